//! Commands that measure this machine, in their short forms. Bounds on times are the commands' own matter, on a machine with
//! nothing else to do; what is asserted here holds on a busy one.

use std::path::Path;
use std::process::Command;

use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::cgroup::{Site, file_system};
use stopgap_kernel::files::Files;
use stopgap_kernel::realtime::Realtime;
use stopgap_kernel::tasks::{ChildLimits, Tasks};
use stopgap_kernel::x11::X11;
use stopgap_testing::{Skip, skip};

use crate::{alone, command, said};

/// Fails where a bound with one of these names does not hold.
fn hold(text: &str, bounds: &[&str]) {
    for bound in bounds {
        let holds = format!("holds   {bound}: ");
        assert!(
            text.lines().any(|line| line.starts_with(&holds)),
            "{bound} does not hold:\n{text}"
        );
    }
}

#[test]
fn every_cell_has_its_line_and_every_bound_its_word() {
    let _alone = alone();
    let (text, status) = said(&["channel", "--runs", "3", "--window", "10"]);
    assert!(matches!(status, Some(0 | 2)), "{status:?}");
    let broken = text.lines().any(|line| line.starts_with("BROKEN"));
    assert_eq!(broken, status == Some(2));
    let one_cpu = text.contains("skipped: one CPU only");
    let placements: &[&str] = if one_cpu {
        &["one"]
    } else {
        &["one", "two", "free"]
    };
    for cpus in placements {
        for work in ["0 ns", "50 us"] {
            // One request, and 32 of them; the last side only with the latter.
            for (side, count) in [("channel  ", 2), ("socket  ", 2), ("socket, each", 1)] {
                let is_of = |line: &&str| {
                    line.starts_with(cpus) && line.contains(work) && line.contains(side)
                };
                let lines = text.lines().filter(is_of);
                assert_eq!(lines.count(), count, "{cpus} {work} {side}");
            }
        }
    }
    // This one is a count, and holds on any machine.
    let wakes = text
        .lines()
        .filter(|line| line.contains("wake-ups for 32 replies"));
    assert!(wakes.clone().count() >= 2 && wakes.clone().all(|line| line.starts_with("holds")));
    let killed = text
        .lines()
        .filter(|line| line.starts_with("server killed"));
    assert_eq!(killed.count(), 3);
}

/// As root, where there are tracefs, a memory cgroup and a disk for a swap file.
#[test]
fn what_explain_sums_is_what_the_kernel_counts() {
    let setting = || std::fs::read_to_string(stopgap_kernel::taskstats::SETTING);
    if Linux.uid() != 0 {
        return skip(&Skip::root("delay accounting"));
    }
    let lacks = setting()
        .map(drop)
        .map_err(|error| format!("delay accounting: {error}"));
    let lacks = lacks.and_then(|()| {
        Site::find(&Linux)
            .map(drop)
            .map_err(|error| error.to_string())
    });
    let lacks = lacks.and_then(|()| Linux.tracefs().map(drop).map_err(|error| error.to_string()));
    if let Err(why) = lacks {
        return skip(&Skip::machine(why));
    }
    let _alone = alone();
    let before = setting().unwrap();
    // On a disk: the folder of the build.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kind = file_system(&Linux, folder.path()).unwrap();
    if ["overlay", "tmpfs"].contains(&&*kind) {
        return skip(&Skip::machine(format!("a swap file on {kind}")));
    }
    let output = command(&["delays", "--runs", "1"], folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let row: Vec<&str> = said.lines().last().unwrap().split_whitespace().collect();
    let [reclaims, time]: [f64; 2] = [row[1], row[2]].map(|word| word.parse().unwrap());
    // At least 64 MiB do not fit, and a reclaim frees some hundred pages at most.
    assert!(reclaims >= 20.0 && time > 0.0, "{said}");
    assert_eq!(setting().unwrap(), before, "put back");
    let left = std::fs::read_dir(folder.path().join("stopgap")).unwrap();
    assert_eq!(left.count(), 0, "nothing is left");
}

/// As root and with rt-tests.
#[test]
fn we_agree_with_cyclictest_and_keep_what_it_leaves_out() {
    let limits = ChildLimits {
        time: Nanos::secs(10),
        cgroup: None,
    };
    let mut try_it = || match Linux.set_fifo(1) {
        Ok(()) => Vec::new(),
        Err(error) => error.to_string().into_bytes(),
    };
    let refused = Linux.run_child(&limits, &mut try_it).unwrap().output;
    if !refused.is_empty() {
        return skip(&Skip::root(String::from_utf8_lossy(&refused)));
    }
    if Command::new("cyclictest").arg("--help").output().is_err() {
        return skip(&Skip::program("cyclictest (rt-tests)"));
    }
    let _alone = alone();
    let (text, status) = said(&["wakeup", "--runs", "4", "--seconds", "1"]);
    if status == Some(4) {
        assert!(text.contains("inconclusive: "), "{text}");
        return skip(&Skip::machine("a CPU that the host takes seldom"));
    }
    assert!(matches!(status, Some(0 | 2)), "{text}");
    hold(&text, &["missed periods", "left out"]);
}

/// A real X server, recorded and explained, in few runs.
#[test]
fn what_is_said_of_switches_is_true() {
    if let Err(why) = Linux.x_programs() {
        return skip(&Skip::program(why));
    }
    if let Err(why) = Linux.tracefs() {
        return skip(&Skip::machine(why));
    }
    let _alone = alone();
    let (text, status) = said(&["x11", "--runs", "3"]);
    assert!(matches!(status, Some(0 | 2)), "{text}");
    hold(
        &text,
        &["agreement", "flushes", "sums", "attribution", "advice"],
    );
}

/// What the issue about chunked buffers says of memory that is not fragmented, live, with a few MiB.
#[test]
fn entries_are_within_five_per_cent_of_the_best_strategys() {
    if Linux.uid() != 0 {
        return skip(&Skip::root("knobs of huge pages, and page frames"));
    }
    let knob = Path::new("/sys/kernel/mm/transparent_hugepage/defrag");
    if let Err(error) = std::fs::OpenOptions::new().write(true).open(knob) {
        return skip(&Skip::machine(format_args!("{}: {error}", knob.display())));
    }
    let _alone = alone();
    let before = std::fs::read_to_string(knob).unwrap();
    let words = "chunked --states 0 --rounds 3 --size 4M --memory 64M --seconds 60";
    let (text, status) = said(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(std::fs::read_to_string(knob).unwrap(), before);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("holds"))
            .count(),
        3,
        "{text}"
    );
}
