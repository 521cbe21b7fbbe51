use super::*;

#[test]
fn medians_of_none_one_and_two() {
    assert_eq!(median(vec![]), None);
    assert_eq!(median(vec![3.0]), Some(3.0));
    assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
    assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
}

/// The line of the issue about memory that is not fragmented, live, with a few MiB.
#[test]
fn entries_are_within_five_per_cent_of_the_best_strategys() {
    if Linux.uid() != 0 {
        println!(
            "skipped: chunked buffers beside the probe's strategies: knobs and page frames need root"
        );
        return;
    }
    let flags = Flags {
        states: 0,
        rounds: 3,
        size: Bytes::mib(4),
        memory: Bytes::mib(64),
        seconds: 60,
        defrag: "never".to_owned(),
        seed: 1,
    };
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::new(&Linux, folder.path());
    let bench = Bench {
        flags: &flags,
        journal: &journal,
        end: Linux.now() + Nanos::secs(60),
    };
    let knob = "/sys/kernel/mm/transparent_hugepage/defrag";
    if let Err(error) = std::fs::OpenOptions::new().write(true).open(knob) {
        stopgap_kernel::fake::skipped(format_args!(
            "chunked buffers beside the probe's strategies: {knob}: {error}"
        ));
        return;
    }
    let defrag = || std::fs::read_to_string(knob).unwrap();
    let before = defrag();
    let Ok(bounds) = whole::run(&bench).map_err(Failure::report) else {
        panic!("it could not be measured; why is told above");
    };
    assert_eq!(defrag(), before);
    assert_eq!(bounds.len(), 3);
    for bound in &bounds {
        assert!(bound.holds(), "{bound}");
    }
}
