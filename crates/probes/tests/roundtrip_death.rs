//! Whichever of client and server dies, the other one ends and the probe goes on. A test
//! program of its own: it kills children of its process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use stopgap_events::machine::Privilege;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::journal::Journal;
use stopgap_probes::contract::Measured;
use stopgap_probes::roundtrip::{Cell, Roundtrip};
use stopgap_probes::{Context, Probe};

/// One run that would take a minute.
fn measure() -> Measured {
    let journal = Journal::new(&Linux, Path::new("/nonexistent/stopgap"));
    let context = Context {
        system: &Linux,
        journal: &journal,
        budget: Bytes::mib(64),
        time: Nanos::secs(60),
        seed: 1,
        privilege: Privilege::None,
        scratch: Path::new("/nonexistent"),
        progress: &|_, _| {},
        interrupted: &|| false,
    };
    let probe = Roundtrip {
        cells: vec![Cell::PLAIN],
        cpus: Vec::new(),
        runs: 1,
        round_trips: u64::MAX,
    };
    probe.run(&context).unwrap()
}

/// Processes whose parent is this one, the eldest first.
fn children() -> Vec<u32> {
    let ours = std::process::id().to_string();
    let mut children: Vec<u32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let stat = PathBuf::from(format!("/proc/{pid}/stat"));
            let stat = std::fs::read_to_string(stat).unwrap_or_default();
            let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            after_name.split(' ').nth(1) == Some(ours.as_str())
        })
        .collect();
    children.sort_unstable();
    children
}

#[test]
fn whichever_dies_the_probe_ends() {
    for victim in [0, 1] {
        let probe = std::thread::spawn(measure);
        let deadline = Instant::now() + Duration::from_secs(20);
        let both = loop {
            let children = children();
            if children.len() == 2 {
                break children;
            }
            assert!(Instant::now() < deadline, "children: {children:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        std::thread::sleep(Duration::from_millis(100)); // into the counting
        let pid = both[victim].to_string();
        assert!(
            Command::new("kill")
                .args(["-9", &pid])
                .status()
                .unwrap()
                .success()
        );
        let killed = Instant::now();
        let measured = probe.join().unwrap();
        assert!(killed.elapsed() < Duration::from_secs(10), "{victim}");
        assert_eq!(measured.missing.len(), 1, "{:?}", measured.missing);
        let why = &measured.missing[0].why;
        assert!(why.contains("killed by signal 9"), "{why}");
        assert_eq!(children(), [0; 0], "left behind");
    }
}
