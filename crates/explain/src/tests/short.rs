//! Short calls that are a stall together.

use stopgap_trace::{Kind, Stack};

use super::builder::{Builder, CLIENT, SERVER, options, with_waits};
use crate::Explainer;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Adds `count` maps that take `us` each. Within each map, another thread has the CPU for `queue` us.
fn maps(b: &mut Builder, count: u64, us: u64, queue: u64) {
    for _ in 0..count {
        b.enter(CLIENT, "mmap", 0).after(us / 2 * US);
        b.switch(CLIENT, "R", SERVER).after(queue * US);
        b.switch(SERVER, "S", CLIENT).after(us / 2 * US);
        b.exit(CLIENT, "mmap", 4_096);
    }
}

fn begun() -> Builder {
    let mut b = Builder::new();
    b.switch(0, "S", CLIENT);
    b
}

/// Waiting for a CPU is no work. On a busy machine the share is the same, and it is reported there, too.
#[test]
fn waits_for_a_cpu_are_not_counted() {
    for queue in [0, 900] {
        let mut b = begun();
        b.after(200 * MS);
        maps(&mut b, 2_000, 100, queue);
        let findings = b.explain();
        let text = findings.verdict.text.replacen(
            "stalls: client lost 1.80 s in 2000 waits, the longest 900 us; mostly it waited for a CPU, \
             behind server; and ",
            "stalls: ",
            1,
        );
        assert_eq!(
            text,
            "stalls: client spent 50 % of its 400 ms of work in 2000 short calls of the mmap family, 100 us each, the \
             longest 100 us, none above 1 ms (mmap 2000); record --samples 999 shows in which functions of the kernel"
        );
        assert_eq!(findings.losses.contradictions, 0);
    }
}

#[test]
fn a_small_share_or_a_short_time_is_none() {
    let mut b = begun();
    maps(&mut b, 900, 100, 0); // 90 ms, all there is
    assert_eq!(b.explain().short_calls, Some(Vec::new()));
    let mut b = begun();
    b.after(3_000 * MS);
    maps(&mut b, 2_000, 100, 0); // 200 ms of 3.2 s
    assert_eq!(b.explain().short_calls, Some(Vec::new()));
    let mut b = begun();
    b.after(10 * MS).switch(CLIENT, "S", SERVER);
    assert_eq!(b.explain().short_calls, None, "no calls were recorded");
}

/// Sleep elsewhere is no work. A second full of calls is a stall, however long the rest is.
#[test]
fn a_burst_is_found() {
    let mut b = begun();
    b.after(10_000 * MS);
    maps(&mut b, 4_000, 100, 0);
    let short = &b.explain().short_calls.unwrap()[0];
    assert_eq!(short.worst_second_ns, 400 * MS);
    assert!(short.share < 0.05, "{}", short.share);
    assert!(
        short
            .text
            .contains(", 400 ms of it in one second (10 s after the first event)"),
        "{}",
        short.text
    );
    let mut b = begun();
    b.enter(CLIENT, "read", 3).switch(CLIENT, "S", SERVER);
    b.after(10_000 * MS).wake(SERVER, CLIENT);
    b.switch(SERVER, "S", CLIENT).exit(CLIENT, "read", 0);
    maps(&mut b, 1_500, 100, 0);
    let short = &b.explain().short_calls.unwrap()[0];
    assert!(short.share > 0.99, "{}", short.share);
}

/// The larger stall comes first. A call that is a stall by itself does not count twice.
#[test]
fn beside_a_long_call() {
    let mut b = begun();
    maps(&mut b, 2_000, 100, 0);
    maps(&mut b, 1, 12_000, 0);
    b.event(
        CLIENT,
        Kind::Sample {
            stack: Stack("main".into()),
        },
    );
    let findings = b.explain();
    let text = &findings.verdict.text;
    assert!(
        text.starts_with("stalls: client spent 94 % of its 212 ms of work in 2000 short calls"),
        "{text}"
    );
    assert!(
        text.contains("; and a thread lost 12 ms at a time, the longest mmap of client: 12.0 ms"),
        "{text}"
    );
    assert_eq!(findings.short_calls.unwrap()[0].samples, Some(0));
    maps(&mut b, 1, 300_000, 0);
    let text = b.explain().verdict.text;
    assert!(
        text.starts_with("stalls: threads lost 10 ms or more at a time 2 times, 312 ms in all"),
        "{text}"
    );
}

/// Where calls have no rows, waits from one place may be one call or many: their sum is said, and not that one lost 10 ms.
#[test]
fn short_waits_in_a_row_are_no_long_call() {
    let mut b = begun();
    for _ in 0..200 {
        b.enter(CLIENT, "fsync", 3).switch(CLIENT, "D", 0);
        b.after(4 * MS).wake(0, CLIENT).switch(0, "R", CLIENT);
        b.exit(CLIENT, "fsync", 0).after(10 * US);
    }
    let mut explainer = Explainer::new(&b.metadata, options());
    let waits = with_waits(&b.events).into_iter();
    for event in waits.filter(|event| matches!(event.kind, Kind::Wait(_))) {
        explainer.event(&event);
    }
    let text = explainer.finish().verdict.text;
    assert!(
        text.starts_with(
            "stalls: client lost 800 ms in 200 waits, the longest 4 ms; mostly it was in fsync"
        ),
        "{text}"
    );
    assert!(!text.contains("at a time"), "{text}");
}
