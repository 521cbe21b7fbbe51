use super::*;
use stopgap_events::units::Nanos;

#[test]
fn look() {
    let p = Prices::default();
    let show = |name: &str, cell: Cell, rules: Rules, n: u64| {
        let o = run(&cell, rules, &p, n, 1, &|| false).unwrap();
        println!("{name:28} {rules:14} {:.2}  cpu {:.1} us room {:.2}", o.mean().unwrap(), o.cpu_ns as f64/ n as f64/1e3, o.room_wakes as f64 / n as f64);
        for (c, k) in &o.causes { println!("      {c}: {:.2}", *k as f64 / n as f64); }
    };
    for client in [ClientWait::Poll, ClientWait::Read] {
        for us in [0, 5, 50, 1000] {
            show(&format!("{client} {us}"), Cell { client, work: Nanos::micros(us), ..Cell::PLAIN }, Rules::Linux6_12, 2000);
        }
        for reply in [Reply::Together, Reply::Each] {
            show(&format!("{client} 32 {reply}"), Cell { client, batch: 32, reply, ..Cell::PLAIN }, Rules::Linux6_12, 2000);
        }
    }
    show("two poll", Cell { cpus: Cpus::Two, ..Cell::PLAIN }, Rules::Linux6_12, 2000);
    show("two read 50", Cell { cpus: Cpus::Two, client: ClientWait::Read, work: Nanos::micros(50), ..Cell::PLAIN }, Rules::Linux6_12, 2000);
    show("two select 500", Cell { cpus: Cpus::Two, server: ServerWait::Select, descriptors: 500, ..Cell::PLAIN }, Rules::Linux6_12, 2000);
    show("batch each", Cell { policy: ClientPolicy::Batch, batch: 32, reply: Reply::Each, ..Cell::PLAIN }, Rules::Linux6_12, 2000);
    for kernel in [Cell::MAIL.kernel, Kernel::default(), Kernel{preempt:false, ..Kernel::default()}] {
        show("mail", Cell { kernel, ..Cell::MAIL }, Rules::Linux2_6_35, 2000);
    }
}
