//! A fence that is signalled late: its driver, and the thread that submitted its work.

use super::*;

/// Thread 1 waits for a fence from 10 to 510 ms, as a kernel with vgem writes it (checks/known-answers/fences.rs): an
/// interruptible sleep in an ioctl, and a span that begins before it and ends after it.
fn fence_rows(waker: Waker, submitter: Option<u32>) -> Vec<Event> {
    // DMA_BUF_IOCTL_SYNC
    let sync = ("ioctl", [4, 0x4008_6200, 0]);
    let wait = wait_row(1, [10, 510, 510], sync, waker);
    let span = Span {
        driver: Some("vgem".into()),
        timeline: Some("unbound".into()),
        context: Some(7),
        seqno: Some(1),
        holder: submitter,
        ..Span::new(Activity::Fence, Nanos(10 * MS - 1_000))
    };
    let told = Event {
        time: Nanos(510 * MS + 1_000),
        kind: Kind::Span(Box::new(span)),
        ..wait.clone()
    };
    let next = wait_row(1, [511, 512, 512], ("nanosleep", [0; 3]), woken_by(0, None));
    let of_other = ("clock_nanosleep", [0; 3]);
    let submitted = wait_row(2, [1, 2, 2], of_other, woken_by(0, None));
    let sleeps = wait_row(2, [3, 509, 509], of_other, woken_by(0, None));
    vec![submitted, sleeps, wait, told, next]
}

fn said(rows: &[Event]) -> (String, u64) {
    let record = graph_of(rows).finish(&HashSet::new());
    let found = chains(&record, "t1", "fence");
    assert!(!found.is_empty(), "{:?}", record.waiting);
    found[0].clone()
}

#[test]
fn a_late_fence_names_driver_timeline_and_submitter() {
    // An interrupt of a device signals it.
    let rows = fence_rows(woken_by(0, None), Some(2));
    let (text, ns) = said(&rows);
    assert_eq!(
        text,
        "waited for a fence of vgem (timeline unbound), submitted by t2 > the device, with work of t2"
    );
    assert_eq!(ns, 500 * MS);
    let record = graph_of(&rows).finish(&HashSet::new());
    let blamed = &record.blame[0];
    assert_eq!((blamed.task.as_deref(), blamed.ns), (Some("t2"), 500 * MS));
    // The thread that submitted the work signals it, after a sleep.
    let (text, ns) = said(&fence_rows(woken_by(2, Some("ioctl")), Some(2)));
    assert_eq!(
        text,
        "waited for a fence of vgem (timeline unbound), submitted by t2 > t2 slept in clock_nanosleep > on purpose"
    );
    assert_eq!(ns, 499 * MS);
    // The thread waits for its own work, so nobody else is to blame.
    let own = fence_rows(woken_by(0, None), Some(1));
    let (text, _) = said(&own);
    assert!(
        text.ends_with("submitted by itself > the device, with work of t1"),
        "{text}"
    );
    assert!(graph_of(&own).finish(&HashSet::new()).blame.is_empty());
    // The work was submitted before the recording.
    let (text, _) = said(&fence_rows(woken_by(0, None), None));
    assert_eq!(
        text,
        "waited for a fence of vgem (timeline unbound) > the device"
    );
}

/// A thread that is woken, and that loses its CPU before the kernel reports the end of the wait for the fence.
#[test]
fn a_fence_is_known_although_the_cpu_was_lost_before_its_end() {
    let mut rows = fence_rows(woken_by(0, None), Some(2));
    let lost = wait_row(
        1,
        [510, 511, 511],
        ("ioctl", [4, 0x4008_6200, 0]),
        woken_by(0, None),
    );
    let lost = with(lost, |wait| {
        wait.state = Some(State::Runnable);
        (wait.woken, wait.waker) = (None, None);
    });
    // The stack shows a fence, but not its submitter.
    rows[2] = with(rows[2].clone(), |wait| {
        wait.stack = Some(stopgap_events::wait::Stack {
            frames: "dma_fence_wait_timeout_[k];dma_fence_default_wait_[k]".into(),
            of_a_like_wait: false,
        });
    });
    rows[3].time = Nanos(511 * MS + 1_000);
    rows.insert(3, lost);
    let (text, ns) = said(&rows);
    assert_eq!(
        text,
        "waited for a fence of vgem (timeline unbound), submitted by t2 > the device, with work of t2"
    );
    assert_eq!(ns, 500 * MS);
    let record = graph_of(&rows).finish(&HashSet::new());
    let blamed = &record.blame[0];
    assert_eq!((blamed.task.as_deref(), blamed.ns), (Some("t2"), 500 * MS));
}
