//! `stopgap watch` as packaging/stopgap-watch.service runs it, in a guest with a disk that goes through four lives: QEMU is
//! killed in the midst of a stall, the guest reboots in order, it is killed again, and ends. The last second of each killed life
//! is in a trace that the next one makes; a life that ended in order leaves nothing to recover; the history has them all.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use stopgap_guest::protocol::{Cell, Plan, Work};
use stopgap_kernels::qemu::Qemu;
use stopgap_kernels::{Image, Initramfs, InitramfsFile, Machine};
use stopgap_testing::{Skip, skip};

use crate::{CELL_LIMIT, KNOWN, LIMIT, STOPGAP, run, static_program};

/// From the begin of the stall to the kill, in nanoseconds of the guest's clock. Watch looks at threads that wait each 300 times the CPU
/// time that a look takes, which in emulation is more than a second.
const STALLED: u64 = 20_000_000_000;
/// Watch syncs each second, and the disk takes its time; docs/watch.md says 2 s.
const MISSING: u64 = 2_000_000_000;
/// The life of a guest that does what it should takes a quarter of that.
const LIFE: std::time::Duration = LIMIT;

#[test]
fn a_killed_guest_leaves_its_last_second() {
    let Some(folder) = std::env::var_os("STOPGAP_KERNELS").map(PathBuf::from) else {
        return skip(&Skip::image(
            "STOPGAP_KERNELS names no folder with packages of kernels",
        ));
    };
    for program in ["debugfs", "mkfs.ext4"] {
        if Command::new(program).arg("-V").output().is_err() {
            return skip(&Skip::program(format!("{program} (e2fsprogs)")));
        }
    }
    let Some(package) = smallest(&folder) else {
        return skip(&Skip::image("no package of a kernel 6.12 for amd64"));
    };
    let work = tempfile::tempdir().unwrap();
    let disk = work.path().join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    run(Command::new("mkfs.ext4").arg("-qF").arg(&disk));
    let guest = Guest::new(&package, work.path(), disk);

    let lives = ["stall", "end", "stall", "end"];
    let lives: Vec<Life> = (0..)
        .zip(lives)
        .map(|(number, how)| guest.live(number, how))
        .collect();
    let pages: Vec<usize> = lives.iter().map(|life| life.pages).collect();
    // Each killed life has a page in the next one, and one that ended in order has none.
    assert_eq!(pages, [0, 1, 0, 1]);
    for life in [&lives[1], &lives[3]] {
        assert!(life.said.contains("watch exit status: 0"), "{}", life.said);
        assert!(
            life.said.contains("history exit status: 0"),
            "{}",
            life.said
        );
        print!("{}", life.history);
    }

    let watch = guest.files(work.path());
    let left = names(&watch);
    assert!(!left.iter().any(|name| name.ends_with(".box")), "{left:?}");
    let traces = left.iter().filter(|name| name.ends_with(".parquet"));
    let traces: Vec<(String, PathBuf)> = traces
        .map(|name| (guest.boot(&watch.join(name)), watch.join(name)))
        .collect();
    let mut ends = Vec::new();
    for (number, life) in (1..).zip(&lives).filter(|(_, life)| life.stall > 0) {
        // The clock of each life begins at 0.
        let own = traces.iter().filter(|(boot, _)| *boot == life.boot);
        let rows: Vec<Value> = own.flat_map(|(_, trace)| guest.rows(trace)).collect();
        let waits = rows.iter().filter(|row| row["kind"] == "wait");
        let at_stall = |row: &&Value| {
            let left = row["left_ns"].as_u64();
            let stalled = left.is_some_and(|left| left.abs_diff(life.stall) < 100_000_000);
            row["tid"] == life.victim && row["open"] == true && stalled
        };
        let is_stuck = waits.clone().any(|row| at_stall(&row));
        let ended = waits.filter(|row| row["open"] == false);
        let last = ended.filter_map(|row| row["time_ns"].as_u64()).max();
        let missing = life.last.saturating_sub(last.unwrap_or(0));
        println!(
            "life {number}: stalled at {:.1} s, killed at {:.1} s; the last wait that is kept ended {} ms before; the stuck thread's is there: {is_stuck}",
            life.stall as f64 / 1e9,
            life.last as f64 / 1e9,
            missing / 1_000_000,
        );
        ends.push((missing, is_stuck));
    }
    assert!(
        ends.iter()
            .all(|&(missing, is_stuck)| missing <= MISSING && is_stuck)
    );
    let history = watch.join("history");
    let parts = names(&history).into_iter().map(|name| history.join(name));
    // The last one of a killed life may have its name and no bytes.
    let whole = parts.filter(|path| {
        path.extension().is_some() && fs::metadata(path).is_ok_and(|about| about.len() > 0)
    });
    let boots: BTreeSet<String> = whole
        .flat_map(|path| guest.rows(&path))
        .filter_map(|row| row["boot_id"].as_str().map(str::to_owned))
        .collect();
    let all: BTreeSet<String> = lives.into_iter().map(|life| life.boot).collect();
    assert_eq!(boots, all, "each life has rows in the history");
}

/// The smallest package of a kernel 6.12.
pub(crate) fn smallest(folder: &Path) -> Option<PathBuf> {
    let packages = fs::read_dir(folder).unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?;
        (name.starts_with("linux-image-6.12") && name.ends_with("_amd64.deb")).then_some(path)
    });
    packages.min_by_key(|path| fs::metadata(path).map_or(0, |m| m.len()))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What the guest said of one life.
#[derive(Default)]
struct Life {
    boot: String,
    /// When the victim began to wait, by the guest's clock.
    stall: u64,
    victim: u64,
    /// Its clock when it was killed.
    last: u64,
    /// Pages of lives that were cut off.
    pages: usize,
    /// What the command of stopgap-history.service prints.
    history: String,
    said: String,
}

/// A machine with a disk that stays.
struct Guest {
    package: PathBuf,
    work: PathBuf,
    disk: PathBuf,
    stopgap: Vec<u8>,
    known: Vec<u8>,
    init: Vec<u8>,
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Guest {
    fn new(package: &Path, work: &Path, disk: PathBuf) -> Guest {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let guest = Guest {
            package: package.to_owned(),
            work: work.to_owned(),
            disk,
            stopgap: static_program(&workspace, "stopgap-cli", "stopgap"),
            known: static_program(&own, "stopgap-check-known-answers", "known"),
            init: static_program(&workspace, "stopgap-guest", "stopgap-guest"),
        };
        let host = work.join("stopgap");
        fs::write(&host, &guest.stopgap).unwrap();
        fs::set_permissions(&host, fs::Permissions::from_mode(0o755)).unwrap();
        guest
    }

    /// A machine in which `known watch` does `how` with what the units run.
    fn machine(&self, how: &str) -> Machine {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let command = |unit: &str| {
            let unit = fs::read_to_string(packaging.join(unit)).unwrap();
            let command = unit
                .lines()
                .find_map(|line| line.strip_prefix("ExecStart="));
            command.unwrap().replace("/usr/bin/stopgap", STOPGAP)
        };
        let argv = format!(
            "{KNOWN} watch {how} -- {} -- {}",
            command("stopgap-watch.service"),
            command("stopgap-history.service")
        );
        let image = Image::open(self.package.to_str().unwrap()).unwrap();
        let wanted = ["virtio_pci", "virtio_blk", "ext4"];
        let modules = image.modules.resolve(&wanted, image.release.as_deref());
        let modules = modules.unwrap().modules;
        let cell = Cell {
            name: "watch".to_owned(),
            work: Work::Command {
                argv: argv.split(' ').map(str::to_owned).collect(),
                files: Vec::new(),
                limit: CELL_LIMIT,
            },
        };
        let plan = Plan {
            modules: modules.iter().map(stopgap_kernels::Module::path).collect(),
            ..Plan::new(vec![cell])
        };
        let plan = serde_json::to_string(&plan).unwrap();
        let files = [(STOPGAP, &self.stopgap), (KNOWN, &self.known)];
        let files = files.map(|(path, bytes)| InitramfsFile {
            path: path.to_owned(),
            bytes: bytes.clone(),
            executable: true,
        });
        let initramfs = Initramfs::build(&self.init, &plan, &modules, &files).unwrap();
        let qemu = Qemu::find(image.architecture).unwrap();
        Machine::new(qemu, image, initramfs, 1)
    }

    /// Boots on the disk, and kills QEMU in the stall, if there is one.
    fn live(&self, number: u32, how: &str) -> Life {
        let machine = self.machine(how);
        let initramfs = self.work.join("initramfs");
        fs::write(&initramfs, machine.initramfs.bytes()).unwrap();
        let mut words: Vec<OsString> = machine.arguments(&initramfs);
        // With counted instructions time leaps while the disk writes.
        let counted = words.iter().position(|word| word == "-icount").unwrap();
        words.drain(counted..counted + 2);
        let clock = words.iter().position(|word| word == "-rtc").unwrap() + 1;
        words[clock] = format!("base=2020-01-01T0{number}:00:00,clock=vm").into();
        let disk = self.disk.display();
        let drive = format!("if=none,id=disk,format=raw,cache=writeback,file={disk}");
        words.extend(["-drive".into(), drive.into()]);
        words.extend(["-device".into(), "virtio-blk-pci,drive=disk".into()]);
        let mut command = Command::new(machine.qemu.program());
        command
            .args(&words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut qemu = Killed(command.spawn().unwrap());
        let deadline = Instant::now() + LIFE;
        let mut life = Life::default();
        let mut killed = false;
        let mut lines = BufReader::new(qemu.0.stdout.take().unwrap());
        loop {
            let mut line = Vec::new();
            if lines.read_until(b'\n', &mut line).unwrap() == 0 {
                break;
            }
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            let told = line.split_once("known: ").map_or("", |(_, told)| told);
            if !life.tells(told) {
                life.said.push_str(&format!("{line}\n"));
            }
            let over = life.stall > 0 && life.last >= life.stall + STALLED;
            if (over || Instant::now() > deadline) && !killed {
                qemu.0.kill().unwrap(); // SIGKILL
                killed = true;
            }
        }
        let stalls = how == "stall";
        assert_eq!((life.stall > 0, killed), (stalls, stalls), "{}", life.said);
        life
    }

    /// The folder of watch, as it is on the disk.
    fn files(&self, work: &Path) -> PathBuf {
        let copy = work.join("copy");
        fs::create_dir(&copy).unwrap();
        let copied = format!("rdump /watch {}", copy.display());
        run(Command::new("debugfs")
            .args(["-R", &copied])
            .arg(&self.disk));
        copy.join("watch")
    }

    /// In which boot a trace was recorded.
    fn boot(&self, trace: &Path) -> String {
        let words = ["explain", "--json", trace.to_str().unwrap()];
        let findings = run(Command::new(self.work.join("stopgap")).args(words));
        let findings: Value = serde_json::from_str(&findings).unwrap();
        findings["trace"]["boot_id"].as_str().unwrap().to_owned()
    }

    /// The rows of a trace.
    fn rows(&self, trace: &Path) -> Vec<Value> {
        let words = [
            "export",
            "--to",
            "jsonl",
            "-o",
            "-",
            trace.to_str().unwrap(),
        ];
        let rows = run(Command::new(self.work.join("stopgap")).args(words));
        rows.lines()
            .map(|row| serde_json::from_str(row).unwrap())
            .collect()
    }
}

impl Life {
    /// Reads a line of `known`; whether there is nothing else in it.
    fn tells(&mut self, told: &str) -> bool {
        let mut numbers = told.split(' ').filter_map(|word| word.parse().ok());
        let mut number = || numbers.next().unwrap_or(0);
        if told.starts_with("now ") {
            self.last = self.last.max(number());
        } else if told.starts_with("stall ") {
            (self.stall, self.victim) = (number(), number());
        } else if let Some(boot) = told.strip_prefix("boot ") {
            boot.clone_into(&mut self.boot);
        } else if let Some(line) = told.strip_prefix("history: ") {
            self.history.push_str(&format!("{line}\n"));
        } else {
            self.pages += usize::from(told.contains("cut off"));
            return false;
        }
        true
    }
}
