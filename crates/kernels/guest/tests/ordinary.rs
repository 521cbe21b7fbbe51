//! The program as an ordinary one: a plan in, lines out, each cell in a process of its own.

use std::path::Path;
use std::process::{Command, Output};

use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::workload::Workload;
use stopgap_guest::protocol::{Cell, Counts, Device, Plan, Transcript, Unit, Work};
use stopgap_testing::{Skip, skip};

fn guest(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stopgap-guest"));
    command.args(words).output().expect("the program starts")
}

fn cell(name: &str, work: Work) -> Cell {
    Cell {
        name: name.to_owned(),
        work,
    }
}

fn written(folder: &Path, cells: Vec<Cell>) -> String {
    let mut plan = Plan::new(cells);
    plan.settle = Nanos(0);
    let path = folder.join("plan.json");
    std::fs::write(&path, plan.to_json()).unwrap();
    path.display().to_string()
}

#[test]
fn every_kind_of_cell_is_carried_out_and_a_failure_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let placement = Work::Placement {
        workload: Workload::Pbobench,
        n: 50,
        operations: 300,
    };
    let fork = |exec| Work::Fork {
        children: 3,
        exec,
        pages: 10,
    };
    let command = |argv: &[&str]| Work::Command {
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        files: vec![],
        limit: Nanos::secs(60),
    };
    let plan = written(
        folder.path(),
        vec![
            cell("gone", command(&["/no/such/program"])),
            cell("placement", placement),
            cell("roundtrip", Work::Roundtrip { requests: 20 }),
            cell("fork", fork(false)),
            cell("exec", fork(true)),
            cell("command", command(&["/bin/sh", "-c", "echo $PATH; exit 3"])),
        ],
    );
    let output = guest(&[&plan, "7"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let read = Transcript::read(text.lines()).unwrap();

    assert_eq!((read.hello.seed, read.hello.first_process), (7, false));
    assert_eq!(read.hello.unit, Unit::Ticks);
    assert!(read.hello.page_size >= Bytes::kib(4) && read.hello.memory > Bytes::mib(64));
    assert_eq!(read.failed.len(), 1, "{:?}", read.failed);
    assert_eq!(read.failed[0].0, "gone");
    assert!(
        read.failed[0].1.contains("/no/such/program"),
        "{:?}",
        read.failed
    );
    for (name, operation, times) in [
        ("roundtrip", "round trip", 20),
        ("fork", "fork", 3),
        ("fork", "fork+wait", 3),
        ("exec", "fork+exec+wait", 3),
    ] {
        let counts = read
            .counts(name, operation)
            .unwrap_or_else(|| panic!("{name}: {operation}"));
        assert_eq!(counts.operations(), times, "{name}: {operation}");
        assert!(counts.median() > Some(0));
    }
    let total = |operation| {
        read.counts("placement", operation)
            .map_or(0, Counts::operations)
    };
    assert_eq!(total("map") + total("unmap"), 300);
    assert_eq!(total("churn"), total("unmap"));
    assert_eq!(read.ran[0].status, Some(3));
    let said = &read.files[&(Some("command".to_owned()), "stdout".to_owned())];
    assert!(said.starts_with(b"/bin"), "{said:?}");
}

/// A device that this machine may lack: figures, or the reason with what it takes.
#[test]
fn a_device_is_used_or_its_lack_is_said() {
    let folder = tempfile::tempdir().unwrap();
    for (name, device, takes) in [
        ("vgem", Device::Vgem, "modprobe vgem"),
        ("udmabuf", Device::Udmabuf, "udmabuf"),
    ] {
        let work = Work::Device {
            device,
            n: 10,
            operations: 50,
        };
        let plan = written(folder.path(), vec![cell(name, work)]);
        let text = String::from_utf8(guest(&[&plan]).stdout).unwrap();
        let read = Transcript::read(text.lines()).unwrap();
        match &read.failed[..] {
            [] => assert!(read.counts(name, "create").is_some()),
            [(failed, why)] => {
                assert_eq!(failed, name);
                assert!(why.contains(takes), "{why}");
                skip(&Skip::machine(format!("{name}: {why}")));
            }
            more => panic!("{more:?}"),
        }
    }
}

#[test]
fn what_is_no_plan_is_said_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json").display().to_string();
    std::fs::write(&path, "{").unwrap();
    for (words, what) in [
        (vec![path.as_str()], "plan.json: "),
        (vec!["/no/such/plan.json"], "/no/such/plan.json"),
        (vec![path.as_str(), "many"], "the seed 'many'"),
        (vec![], "usage"),
        (vec!["--cell", "x"], "no order"),
        (vec!["--help"], "usage"),
    ] {
        let output = guest(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(said.contains(what), "{words:?}: {said}");
    }
}
