//! What the fuzz target `perf_records` does: also run by `crates/tracer/tests/all/perf_bytes.rs` on changed
//! files for a few seconds.

use stopgap_tracer::perf::record::parse;
use stopgap_tracer::perf::{NoNames, PerfDescription, Records};
use stopgap_tracer::symbols::Symbols;
use stopgap_tracer::trace::Source;

/// Reads `bytes` as one record, and as the records of two CPUs. Each ends with what it holds or with
/// one line a piece. Gives back how many events there were.
pub(crate) fn run(bytes: &[u8]) -> usize {
    if let Err(why) = parse(bytes) {
        assert!(!why.contains(char::is_control));
    }
    let description = PerfDescription {
        cpus: vec![0, 1],
        scheduling: true,
        period: None,
        mappings: Vec::new(),
    };
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let sources = vec![(0, first), (1, second)];
    let names = Box::new(NoNames);
    let mut records = Records::new(&description, &[], Symbols::default(), names, sources).unwrap();
    let mut events = 0;
    while let Some(event) = records.next_event().unwrap() {
        assert!(event.cpu.is_some());
        events += 1;
    }
    assert!(events <= bytes.len() / 8);
    let told = records.report();
    assert!(told.missing.len() <= 22);
    events
}
