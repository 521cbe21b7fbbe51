//! What needs no running kernel; `tests/all/live.rs` of this crate captures from one.

use super::*;

#[test]
fn buffers_fit_small_devices() {
    assert_eq!(default_buffer(Bytes::gib(24), 2), Bytes::mib(64));
    assert_eq!(default_buffer(Bytes::mib(512), 4), Bytes::mib(4));
    assert_eq!(default_buffer(Bytes::gib(8), 64), Bytes::mib(4));
    assert_eq!(default_buffer(Bytes(0), 0), SMALLEST_BUFFER);
}

#[test]
fn no_tracefs_is_said_with_what_to_do() {
    let fake = stopgap_kernel::fake::Fake::default();
    let journal = Journal::new(&fake, Path::new("/run/stopgap"));
    let options = Options {
        events: EventSet::All,
        buffer: None,
        spool: "/tmp/spool".into(),
        subject: Subject::default(),
    };
    let error = Capture::prepare(&fake, &journal, &options)
        .map(|_| ())
        .unwrap_err();
    assert!(error.to_string().contains("tracefs"), "{error}");
}
