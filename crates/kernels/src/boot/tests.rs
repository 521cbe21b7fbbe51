use std::fs;
use std::path::Path;

use proptest::prelude::*;
use stopgap_guest::protocol::Line;

use super::*;
use crate::testing;
use crate::{Image, Initramfs};

/// A guest whose QEMU is a script. `config` is what its kernel carries as its configuration.
struct Fake {
    machine: Machine,
    folder: tempfile::TempDir,
}

fn fake_with(script: &str, config: &str) -> Fake {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel");
    fs::write(&path, testing::bzimage("6.1 x", b"\x7fELF", "gz")).unwrap();
    let mut image = Image::open(path.to_str().unwrap()).unwrap();
    image.config = (!config.is_empty()).then(|| config.to_owned());
    // The file lists processes that may still run.
    let script = format!(
        "cd {}; echo $$ >> started; {script}",
        folder.path().display()
    );
    let qemu = testing::qemu(image.architecture, &script, folder.path());
    let initramfs = Initramfs::build(b"program", "{}", &[], &[]).unwrap();
    let mut machine = Machine::new(qemu, image, initramfs, 1);
    machine.limit = Duration::from_secs(20);
    Fake { machine, folder }
}

fn fake(script: &str) -> Fake {
    fake_with(script, "")
}

impl Fake {
    fn boot(&self) -> Boot {
        let boot = self.machine.run(&AtomicBool::new(false)).unwrap();
        self.nobody_is_left();
        boot
    }

    /// No process of those that were started runs any more.
    fn nobody_is_left(&self) {
        let started = fs::read_to_string(self.folder.path().join("started")).unwrap_or_default();
        for process in started.lines() {
            assert!(!is_running(process), "{process} is left");
        }
    }
}

fn is_running(process: &str) -> bool {
    // A zombie whose parent is gone, too, has ended.
    fs::read_to_string(Path::new("/proc").join(process).join("stat")).is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| !rest.trim_start().starts_with('Z'))
    })
}

fn said(line: &Line) -> String {
    format!("echo '{line}'\n")
}

fn done(lines: u64) -> String {
    said(&Line::Done { lines })
}

fn failed() -> Line {
    Line::Failed {
        name: "a".to_owned(),
        why: "b".to_owned(),
    }
}

#[test]
fn a_guest_that_is_done_gives_its_lines_in_order_and_nothing_else() {
    let script = format!(
        "printf 'SeaBIOS\\r\\n\\033[2J\\033[1;1Hmessage\\n'; {}printf '[ 1.0] half a message'; {}{}",
        said(&failed()),
        said(&failed()),
        done(2),
    );
    let boot = fake(&script).boot();
    assert_eq!(boot.end, End::PoweredOff);
    assert!(boot.is_whole() && boot.why.is_empty());
    let lines = [failed(), failed(), Line::Done { lines: 2 }].map(|line| line.to_string());
    assert_eq!(boot.lines, lines);
    assert_eq!(
        boot.console,
        ["SeaBIOS", "message", "[ 1.0] half a message"]
    );
    assert!(boot.command_line.last().unwrap().contains("stopgap.seed=1"));
    assert_eq!(boot.seed, 1);
}

/// Scripts in QEMU's place, the kernel's configuration, the end, a part of the reason, and the lines that are shown.
#[test]
fn each_end_has_its_reason() {
    let early = "the guest powered off or reset before it was done";
    let torn = Line::Done { lines: 0 }.to_string().replace(":0}", ":1}");
    let panic = "echo '[ 1.2] Call trace'; echo '[ 1.3] Kernel panic - not syncing: Fatal exception in interrupt'; \
                 echo '[ 1.4] Kernel panic - not syncing: a second one'";
    // It does not reset either, and still ends long before its limit.
    let no_init = "echo 'Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)'; exec sleep 1000";
    for (script, config, end, says, shown) in [
        (
            &*format!("echo starting; {}", said(&failed())),
            "",
            End::PoweredOffEarly,
            early,
            1,
        ),
        // A last line that was torn is none.
        (
            &format!("echo '{torn}'"),
            "",
            End::PoweredOffEarly,
            early,
            0,
        ),
        (
            panic,
            "",
            End::Panicked,
            "the kernel panicked: Fatal exception in interrupt",
            3,
        ),
        (
            no_init,
            "",
            End::Panicked,
            "no initramfs support? CONFIG_BLK_DEV_INITRD=y",
            1,
        ),
        (
            no_init,
            "CONFIG_X=y\n",
            End::Panicked,
            "CONFIG_BLK_DEV_INITRD is not set",
            1,
        ),
        (
            no_init,
            "CONFIG_BLK_DEV_INITRD=y\n",
            End::Panicked,
            "did not start /init",
            1,
        ),
        (
            "exit 0",
            "",
            End::Silent,
            "CONFIG_SERIAL_8250_CONSOLE=y is needed",
            0,
        ),
        (
            "exit 0",
            "CONFIG_SMP=y\n",
            End::Silent,
            "CONFIG_SERIAL_8250_CONSOLE is not set",
            0,
        ),
        (
            "exit 0",
            "CONFIG_SERIAL_8250_CONSOLE=y\n",
            End::Silent,
            "it has a serial console",
            0,
        ),
        (
            "exit 3",
            "",
            End::QemuFailed,
            "QEMU failed: exit status 3",
            0,
        ),
        (
            "kill -9 $$",
            "",
            End::QemuFailed,
            "QEMU failed: killed by signal 9 (no memory left?)",
            0,
        ),
        (
            "kill -SEGV $$",
            "",
            End::QemuFailed,
            "QEMU failed: killed by signal 11",
            0,
        ),
        (
            "echo booting; echo 'cannot set up guest memory' >&2; exit 1",
            "",
            End::QemuFailed,
            "QEMU failed: exit status 1: cannot set up guest memory",
            1,
        ),
    ] {
        let mut fake = fake_with(script, config);
        fake.machine.limit = Duration::from_secs(1000);
        let boot = fake.boot();
        assert_eq!((boot.end, boot.console.len()), (end, shown), "{script}");
        assert!(boot.why.contains(says), "{}", boot.why);
    }
}

#[test]
fn a_hang_ends_at_the_limit_and_silence_is_told_from_it() {
    let mut fake = fake(&format!("echo booting; {}exec sleep 1000", said(&failed())));
    // What it says it says in this time on a busy machine, too.
    fake.machine.limit = Duration::from_secs(3);
    let boot = fake.boot();
    assert_eq!(boot.end, End::TimeLimit);
    let (before, after) = boot
        .why
        .split_once(", of which it had a CPU for 0.")
        .unwrap();
    assert_eq!(before, "it had not ended after 3.0 s");
    assert!(after.ends_with(" s (1 lines of results)"), "{after}");
    assert_eq!(boot.console, ["booting"]);

    let mut silent = fake_with("exec sleep 1000", "CONFIG_SMP=y\n");
    silent.machine.limit = Duration::from_millis(500);
    let boot = silent.boot();
    assert_eq!(boot.end, End::Silent);
    let (begin, end) = (
        "not one byte on the serial port in 0.5 s",
        "8250_CONSOLE is not set)",
    );
    assert!(
        boot.why.starts_with(begin) && boot.why.ends_with(end),
        "{}",
        boot.why
    );
}

#[test]
fn a_guest_that_is_done_but_does_not_power_off_is_a_result() {
    // Ended in order: a plugin in QEMU can write its counts. One that does not even end in order is killed.
    for (trap, told) in [
        ("echo in order > ended; exit 0", Some("in order\n")),
        ("", None),
    ] {
        let fake = fake(&format!(
            "trap '{trap}' TERM; {}while :; do sleep 0.1; done",
            done(0)
        ));
        assert_eq!(fake.boot().end, End::PoweredOff);
        let ended = fs::read_to_string(fake.folder.path().join("ended"));
        assert_eq!(ended.ok().as_deref(), told);
    }
}

#[test]
fn qemu_without_icount_or_too_old_is_unsupported() {
    for words in [
        "qemu-system-x86_64: -icount shift=0,sleep=off: cannot configure icount, TCG support not available",
        "qemu-system-x86_64: -accel tcg,thread=single: invalid accelerator tcg",
        "qemu-system-x86_64: -icount: invalid option",
        "qemu-system-x86_64: -seed: invalid option",
        "qemu-system-x86_64: can't apply global max-x86_64-cpu.fsrm=off: Property '.fsrm' not found",
    ] {
        let boot = fake(&format!("echo \"{words}\" >&2; exit 1")).boot();
        let End::QemuUnsupported { reason } = &boot.end else {
            panic!("{words}: {:?}", boot.end);
        };
        assert_eq!(reason, &format!("exit status 1: {words}"));
    }
}

#[test]
fn garbage_and_a_line_without_end_are_no_results() {
    let boot = fake("head -c 9000000 /dev/urandom; echo; head -c 9000000 /dev/zero").boot();
    assert_eq!(boot.end, End::PoweredOffEarly);
    assert!(boot.console.len() <= 60);
    assert!(boot.console.iter().all(|line| line.chars().count() <= 303));
}

#[test]
fn a_flood_is_ended() {
    let mut fake = fake("exec yes 'no end of it'");
    fake.machine.limit = Duration::from_secs(300);
    let boot = fake.boot();
    assert_eq!(boot.end, End::Flooded);
    assert!(boot.console.iter().any(|line| line == "no end of it"));
}

#[test]
fn several_run_side_by_side_and_come_back_in_order() {
    // Each waits for the other's file: one after the other they would not end.
    let shared = tempfile::tempdir().unwrap();
    let (a, b) = (shared.path().join("a"), shared.path().join("b"));
    let meet = |own: &Path, other: &Path| {
        let (own, other) = (own.display(), other.display());
        fake(&format!(
            "touch {own}; while [ ! -e {other} ]; do sleep 0.05; done; {}",
            done(0)
        ))
    };
    let guests = [meet(&a, &b), meet(&b, &a), fake("exit 3")];
    let machines: Vec<Machine> = guests.iter().map(|fake| fake.machine.clone()).collect();
    let mut heard = Vec::new();
    let boots = run_all(
        &machines,
        2,
        &AtomicBool::new(false),
        &mut |number, boot| {
            heard.push((number, boot.end.clone()));
        },
    )
    .unwrap();
    assert!(boots[0].is_whole() && boots[1].is_whole());
    assert_eq!(boots[2].end, End::QemuFailed);
    heard.sort_by_key(|(number, _)| *number);
    let ends = boots.into_iter().map(|boot| boot.end);
    assert_eq!(heard, ends.enumerate().collect::<Vec<_>>());
}

#[test]
fn a_stop_ends_what_runs_and_begins_nothing_more() {
    let guests = ["exec sleep 1000", "exec sleep 1000", &done(0)].map(fake);
    let machines: Vec<Machine> = guests.iter().map(|fake| fake.machine.clone()).collect();
    let stop = AtomicBool::new(false);
    let boots = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        run_all(&machines, 2, &stop, &mut |_, _| {}).unwrap()
    });
    assert!(boots.iter().all(|boot| boot.end == End::Stopped));
    assert!(!guests[2].folder.path().join("started").exists());
    guests.iter().for_each(Fake::nobody_is_left);
}

#[test]
fn a_script_around_qemu_goes_with_all_that_it_started() {
    let mut fake = fake("echo booting; sleep 1000 & echo $! >> started; wait");
    fake.machine.limit = Duration::from_secs(3);
    assert_eq!(fake.boot().end, End::TimeLimit);
}

#[test]
fn a_kernel_for_another_architecture_is_refused_before_it_is_started() {
    let mut fake = fake("");
    fake.machine.image.architecture = crate::Architecture::Aarch64;
    let error = fake
        .machine
        .run(&AtomicBool::new(false))
        .unwrap_err()
        .to_string();
    let says = error.contains("a kernel for aarch64; ") && error.ends_with("emulates x86_64");
    assert!(says, "{error}");
    assert!(!fake.folder.path().join("started").exists());
}

#[test]
fn qemu_that_went_away_is_an_error() {
    let fake = fake("");
    fs::remove_file(fake.machine.qemu.program()).unwrap();
    assert!(fake.machine.run(&AtomicBool::new(false)).is_err());
}

/// The test's own program again, as a process that can be killed: it boots a guest that hangs.
#[test]
fn killed_without_a_word_we_leave_no_qemu() {
    const FOLDER: &str = "STOPGAP_EMULATE_KILLED";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = std::path::PathBuf::from(folder);
        let mut fake = fake("exec sleep 1000");
        fake.machine.limit = Duration::from_secs(1000);
        let started = fake.folder.path().join("started");
        fs::write(folder.join("started"), started.to_str().unwrap()).unwrap();
        fake.boot();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "boot::tests::killed_without_a_word_we_leave_no_qemu";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(FOLDER, folder.path())
        .env("TMPDIR", folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let wait = |what: &dyn Fn() -> Option<String>| {
        for _ in 0..600 {
            if let Some(found) = what() {
                return found;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("it never came");
    };
    let qemu = wait(&|| {
        let path = fs::read_to_string(folder.path().join("started")).ok()?;
        let process = fs::read_to_string(path).ok()?.trim().to_owned();
        (!process.is_empty()).then_some(process)
    });
    assert!(is_running(&qemu));
    child.kill().unwrap();
    child.wait().unwrap();
    wait(&|| (!is_running(&qemu)).then(String::new));
    // The next owner removes the folder that it left.
    let left = |place: &Path| {
        let names = fs::read_dir(place)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("stopgap-emulate-"))
            .count()
    };
    assert_eq!(left(folder.path()), 1);
    drop(Folder::below(folder.path()).unwrap());
    assert_eq!(left(folder.path()), 0);
}

proptest! {
    /// However the bytes are cut into reads, the lines are the same; and nothing panics.
    #[test]
    fn cuts_do_not_matter(bytes in prop::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>()) {
        let mut text = bytes.clone();
        text.extend_from_slice(format!("\n{}\r\n", failed()).as_bytes());
        text.extend_from_slice(&bytes);
        text.extend_from_slice(format!("\n{}\n", Line::Done { lines: 1 }).as_bytes());
        let read = |parts: &[&[u8]]| {
            let mut console = Console::default();
            parts.iter().for_each(|part| console.take(part));
            console.finish();
            (console.done, console.marked, console.tail)
        };
        let (head, tail) = text.split_at(at.index(text.len()));
        let once = read(&[&text]);
        prop_assert!(once.0);
        prop_assert!(once.1.contains(&failed().to_string()));
        prop_assert_eq!(once, read(&[head, tail]));
    }
}
