//! `stopgap snapshot`: what everybody may see of physical memory, what root sees more, and where
//! it goes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::{Run, has, names, records, root, text};
use stopgap_events::snapshot::Snapshot;
use stopgap_testing::{Skip, skip};

fn read(path: &Path) -> Snapshot {
    Snapshot::read(fs::File::open(path).unwrap()).unwrap()
}

#[test]
fn an_ordinary_user_gets_what_may_be_read() {
    if !root() {
        return skip(&Skip::root("becoming nobody"));
    }
    let run = Run::new();
    let said = run.as_nobody(&["snapshot"]).output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    let screen = text(&said.stdout);
    assert!(screen.contains("unknown: what each page is"), "{screen}");
    // Where records go.
    let records = records(&run.path("nobody/.local/state/stopgap"));
    let [record] = &records[..] else {
        panic!("{records:?}");
    };
    let place = format!("snapshot {}\n", record.display());
    assert!(screen.ends_with(&place), "{screen}");
    let snapshot = read(record);
    let seen = |what: &str| snapshot.missing.iter().any(|one| one.what.contains(what));
    for zone in &snapshot.zones {
        assert!(zone.layout.is_none() && zone.mapped.is_none());
        assert!(zone.present.0 > 0 && !zone.free_blocks.is_empty());
    }
    assert!(seen("what each page is") && seen("pinned"));
}

/// As nobody, who may not open a disk should the refusal ever go.
#[test]
fn a_disk_is_not_written_to() {
    let disks = fs::read_dir("/sys/class/block").into_iter().flatten();
    let mut disks = disks.filter_map(|disk| Some(Path::new("/dev").join(disk.ok()?.file_name())));
    let Some(disk) = disks.find(|disk| disk.exists()) else {
        return skip(&Skip::machine("a disk"));
    };
    if !root() {
        return skip(&Skip::root("becoming nobody, who may not open a disk"));
    }
    let run = Run::new();
    let mut command = run.as_nobody(&["snapshot", "-o"]);
    let said = command.arg(disk).output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(text(&said.stderr).contains("it is a disk"), "{said:?}");
}

/// Interrupted wherever it is, it ends and leaves what was there.
#[test]
fn ctrl_c_leaves_no_half_file() {
    let run = Run::new();
    run.write("s.json", "old");
    for wait in [0, 20, 200] {
        let started = run.start("snapshot -o s.json");
        let done = started.interrupt_after(Duration::from_millis(wait));
        match done.status {
            Some(0) => drop(read(&run.path("s.json"))),
            Some(1) => has(&done.err, &["interrupted"]),
            // Before it asked for the signal.
            Some(130) => {}
            other => panic!("{other:?}: {done:#?}"),
        }
        let whole = run.read("s.json");
        assert!(whole == "old" || Snapshot::from_json(whole.as_bytes()).is_ok());
        assert_eq!(names(run.directory.path()), ["s.json"], "after {wait} ms");
    }
}
