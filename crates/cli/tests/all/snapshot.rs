//! `stopgap snapshot`: what everybody may see of physical memory, what root sees more, and where
//! it goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Run, root, text};
use stopgap_events::snapshot::Snapshot;
use stopgap_kernel::fake::skipped as skip;

fn read(path: &Path) -> Snapshot {
    Snapshot::read(fs::File::open(path).unwrap()).unwrap()
}

fn path(run: &Run, name: &str) -> PathBuf {
    run.directory.path().join(name)
}

/// In the run's folder.
fn output(run: &Run, words: &[&str]) -> Output {
    let mut command = run.command(&[&["snapshot"], words].concat());
    command.current_dir(run.directory.path()).output().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    entries.map(|e| name(e).into_string().unwrap()).collect()
}

/// Fails unless the document fits the schema that is checked in.
fn assert_valid(json: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let schema = fs::read(folder.join("stopgap.snapshot-1.json")).unwrap();
    let schema = serde_json::from_slice(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let document = serde_json::from_slice(json).unwrap();
    let errors = validator
        .iter_errors(&document)
        .map(|error| error.to_string());
    assert_eq!(errors.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn it_goes_where_it_is_told() {
    let run = Run::new();
    fs::write(path(&run, "here.json"), "old").unwrap();
    let said = output(&run, &["-o", "here.json"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    let screen = text(&said.stdout);
    let snapshot = read(&path(&run, "here.json"));
    for zone in &snapshot.zones {
        assert!(screen.contains(&zone.name), "{screen}");
    }
    assert!(screen.contains("unusable") && screen.ends_with("snapshot here.json\n"));

    let said = output(&run, &["-o", "-"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    Snapshot::from_json(&said.stdout).unwrap();
    assert_valid(&said.stdout);
    assert_eq!(names(run.directory.path()), ["here.json"]);
}

#[test]
fn an_ordinary_user_gets_what_may_be_read() {
    if !root() {
        return skip("snapshot as nobody: becoming nobody needs root");
    }
    let run = Run::new();
    let said = run.as_nobody(&["snapshot"]).output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    let screen = text(&said.stdout);
    assert!(screen.contains("unknown: what each page is"), "{screen}");
    // Where records go.
    let records = crate::common::records(&path(&run, "nobody/.local/state/stopgap"));
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

#[test]
fn a_place_that_is_none_is_told_before_the_work() {
    let run = Run::new();
    fs::create_dir(path(&run, "folder")).unwrap();
    fs::write(path(&run, "file"), "").unwrap();
    let before = names(run.directory.path()).len();
    let refused = |words: &[&str], part: &str| {
        let said = output(&run, words);
        let line = text(&said.stderr);
        assert_eq!(said.status.code(), Some(1), "{words:?}: {line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{words:?}: {line}");
        assert!(line.contains(part) && said.stdout.is_empty(), "{said:?}");
    };
    refused(&["-o", "folder"], "cannot write folder: Is a directory");
    refused(&["-o", "no/file"], "cannot write no/file: No such file");
    refused(&["-o", "file/x"], "cannot write file/x: Not a directory");
    refused(&["-o", ""], "a value is required");
    refused(
        &["-o", "/dev/full"],
        "cannot write /dev/full: No space left",
    );
    assert_eq!(names(run.directory.path()).len(), before);
    let full = fs::metadata("/dev/full").unwrap();
    assert!(!full.is_file(), "a file has taken its place");
}

/// As nobody, who may not open a disk should the refusal ever go.
#[test]
fn a_disk_is_not_written_to() {
    let disks = fs::read_dir("/sys/class/block").into_iter().flatten();
    let mut disks = disks.filter_map(|disk| Some(Path::new("/dev").join(disk.ok()?.file_name())));
    let Some(disk) = disks.find(|disk| disk.exists()) else {
        return skip("snapshot over a disk: there is none");
    };
    if !root() {
        return skip("snapshot over a disk: becoming nobody needs root");
    }
    let run = Run::new();
    let mut command = run.as_nobody(&["snapshot", "-o"]);
    let said = command.arg(disk).output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(text(&said.stderr).contains("it is a disk"), "{said:?}");
}

/// Interrupted wherever it is, it leaves what was there.
#[test]
fn ctrl_c_leaves_no_half_file() {
    let run = Run::new();
    let file = path(&run, "s.json");
    fs::write(&file, "old").unwrap();
    for wait in [0, 20, 200] {
        let mut command = run.command(&["snapshot", "-o", "s.json"]);
        command.current_dir(run.directory.path());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        interrupt(child.id());
        let deadline = Instant::now() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it goes on after {wait} ms");
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = child.wait_with_output().unwrap();
        match said.status.code() {
            Some(0) => drop(read(&file)),
            Some(1) => assert!(text(&said.stderr).contains("interrupted"), "{said:?}"),
            // Before it asked for the signal.
            None => {}
            other => panic!("{other:?}: {said:?}"),
        }
        let whole = fs::read_to_string(&file).unwrap();
        assert!(whole == "old" || Snapshot::from_json(whole.as_bytes()).is_ok());
        assert_eq!(names(run.directory.path()), ["s.json"], "after {wait} ms");
    }
}

fn interrupt(pid: u32) {
    let kill = std::process::Command::new("kill")
        .args(["-INT", &pid.to_string()])
        .status();
    assert!(kill.unwrap().success());
}
