//! A kernel that refuses one program of BPF: the others record, and the screen names what is missing.

use std::process::Command;

use stopgap_testing::{Skip, skip};
use stopgap_trace::{Input, Kind};

use crate::common::{Run, STOPGAP, has, root, text};

/// The types of a kernel in which two tracepoints have changed names. Found by its name, the first is the second, to the kernel too.
///
/// Layout: `struct btf_header`, types, strings (include/uapi/linux/btf.h). A tracepoint is a typedef.
fn with_names_changed(btf: &[u8], names: [&str; 2]) -> Vec<u8> {
    const TYPEDEF: u32 = 8 << 24;
    let number = |at: usize| u32::from_le_bytes(btf[at..at + 4].try_into().unwrap());
    let section = |at: usize| {
        let begin = (number(4) + number(at)) as usize;
        begin..begin + number(at + 4) as usize
    };
    let (types, strings) = (section(8), &btf[section(16)]);
    let places = names.map(|name| {
        let whole = format!("\0btf_trace_{name}\0");
        let mut all = strings.windows(whole.len());
        let string = all.position(|text| text == whole.as_bytes()).unwrap() + 1;
        let head = [u32::try_from(string).unwrap(), TYPEDEF].map(u32::to_le_bytes);
        let is = |at: &usize| btf[*at..*at + 8] == *head.as_flattened();
        types.clone().step_by(4).find(is).unwrap()
    });
    let mut changed = btf.to_vec();
    let [one, other] = places;
    changed[one..one + 4].copy_from_slice(&btf[other..other + 4]);
    changed[other..other + 4].copy_from_slice(&btf[one..one + 4]);
    changed
}

/// The program at `contention_begin` reads a second argument, which `sched_wakeup_new` does not have: the kernel refuses it.
#[test]
fn where_the_kernel_refuses_one_program_the_others_record() {
    if !root() {
        return skip(&Skip::root("record by BPF"));
    }
    let run = Run::new();
    let tried = run.stopgap("record --source bpf -o whole.parquet -- true");
    let Ok(btf) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        return skip(&Skip::machine("a kernel without types"));
    };
    if tried.status != Some(0) {
        return skip(&Skip::machine(tried.err));
    }
    assert!(!tried.out.contains("locks"), "{}", tried.out);
    run.write(
        "btf",
        with_names_changed(&btf, ["contention_begin", "sched_wakeup_new"]),
    );
    let script = format!(
        "mount --bind btf /sys/kernel/btf/vmlinux && exec {STOPGAP} record --source bpf -o t.parquet -- sleep 0.05"
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .current_dir(run.path(""))
        .env("XDG_STATE_HOME", run.path(""))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    has(
        &said,
        &["lost      none", "missing   locks: contention_begin: "],
    );
    let mut input = Input::new(std::fs::File::open(run.path("t.parquet")).unwrap()).unwrap();
    let metadata = input.metadata().clone();
    let locks = metadata.missing.iter().find(|one| one.what == "locks");
    let why = &locks.expect("the part that is missing").why;
    assert!(
        why.starts_with("contention_begin: Permission denied"),
        "{why}"
    );
    let events = metadata.events.unwrap();
    let on = |name: &str| events.iter().any(|event| event == name);
    assert!(
        on("bpf:block_rq_issue") && on("bpf:signal_generate"),
        "{events:?}"
    );
    assert!(!on("bpf:contention_begin"), "{events:?}");
    let slept = input.any(|event| {
        let event = event.unwrap();
        let call = match &event.kind {
            Kind::Wait(wait) => wait.call.as_ref().and_then(|call| call.name.clone()),
            _ => None,
        };
        event.comm.as_deref() == Some("sleep") && call.as_deref() == Some("clock_nanosleep")
    });
    assert!(slept, "its sleep is recorded");
}
