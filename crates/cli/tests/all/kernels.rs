//! `stopgap kernels` through the command, with a script in QEMU's place that says what guests say: the record, exit statuses,
//! Ctrl-C, and guests that go wrong. No network, no emulator. Screens, workloads, DMA, arm64 and mistakes of the command line:
//! `checks/capabilities/kernels.md`. Real kernels: `kernels_real.rs`.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::{Run, bzimage, guest, text, valid};
use stopgap_guest::protocol::{Counted, Counts, Hello, Line, Unit, VERSION};

/// The script: it says its version; of a boot, what lies beside the kernel for that seed, and for that boot of it.
const QEMU: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "QEMU emulator version 7.2.22 (a script)"; exit; }
echo $$ >>"$STOPGAP_TEST/started"
while [ $# -gt 0 ]; do
    case $1 in -kernel) kernel=$2 ;; -seed) seed=$2 ;; esac
    shift
done
log=$kernel.$seed
[ -e "$log" ] || log=$kernel.all
n=0
while ! mkdir "$kernel.$seed.was.$n" 2>/dev/null; do n=$((n + 1)); done
[ -e "$kernel.$seed.boot.$n" ] && log=$kernel.$seed.boot.$n
cat "$log"
[ -e "$log.hangs" ] && exec sleep 1000
exit 0
"#;

/// Kernels, a guest's program and QEMU, made here.
struct Lab {
    run: Run,
}

impl Lab {
    fn new() -> Lab {
        let lab = Lab { run: Run::new() };
        fs::create_dir(lab.path("bin")).unwrap();
        stopgap_kernel::fake::script(&lab.path("bin").join("qemu-system-x86_64"), QEMU);
        fs::write(lab.path("guest"), guest()).unwrap();
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.run.directory.path().join(name)
    }

    /// A kernel whose guest says these counts of `roundtrip`, by seed, the first is 1.
    fn kernel(&self, name: &str, config: &str, counts: &[&[(u64, u64)]]) -> String {
        let path = self.path(name);
        fs::write(&path, bzimage(name)).unwrap();
        fs::write(self.path(&format!("config-{name}")), config).unwrap();
        for (seed, counts) in (1u64..).zip(counts) {
            let log = self.path(&format!("{name}.{seed}"));
            fs::write(log, serial(name, seed, counts)).unwrap();
        }
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut all = vec!["kernels"];
        all.extend(words);
        let mut command = self.run.command(&all);
        command
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", self.path("bin").display()),
            )
            .env("STOPGAP_GUEST", self.path("guest"))
            .env("STOPGAP_TEST", self.run.directory.path());
        command
    }

    /// Standard output, standard error, and the exit status.
    fn kernels(&self, words: &[&str]) -> (String, String, Option<i32>) {
        let output = self.command(words).output().unwrap();
        let (out, told) = (text(&output.stdout), text(&output.stderr));
        (out, told, output.status.code())
    }

    fn running(&self) -> usize {
        let list = fs::read_to_string(self.path("started")).unwrap_or_default();
        let runs = |pid: &&str| PathBuf::from(format!("/proc/{pid}")).exists();
        list.lines().filter(runs).count()
    }

    fn started(&self) -> usize {
        let list = fs::read_to_string(self.path("started")).unwrap_or_default();
        list.lines().count()
    }
}

/// What comes from a guest's serial port: kernel messages, and our lines between them.
fn serial(release: &str, seed: u64, counts: &[(u64, u64)]) -> String {
    let hello = Line::Hello(Hello {
        version: VERSION,
        release: release.to_owned(),
        seed,
        unit: Unit::Instructions { per_tick: 1 },
        ..Hello::default()
    });
    let counts = Line::Counts(Counted {
        name: "roundtrip".to_owned(),
        operation: "round trip".to_owned(),
        counts: Counts::new(counts.to_vec()).unwrap(),
    });
    let done = Line::Done { lines: 2 };
    format!(
        "[    0.000000] Booting Linux\r\n{hello}\r\n[    1.23] random: crng init done\r\n{counts}\r\n{done}\r\n\
         [    2.0] reboot: Power down\r\n"
    )
}

/// Five layouts of one count each.
fn five(count: u64) -> [Vec<(u64, u64)>; 5] {
    // Layouts differ by more than what is looked for.
    [0, 400, 7, 900, 30].map(|more| vec![(count + more, 95), (count + more + 10, 5)])
}

fn slices(five: &[Vec<(u64, u64)>; 5]) -> [&[(u64, u64)]; 5] {
    [&five[0], &five[1], &five[2], &five[3], &five[4]]
}

/// A lab with `a`, with `b` that is 62 longer in 20,000, and with `same`, which has other bytes and the same figures.
fn lab() -> (Lab, String, String, String) {
    let lab = Lab::new();
    let (before, after) = (five(20_000), five(20_062));
    let a = lab.kernel("a", "CONFIG_SMP=y\n", &slices(&before));
    let b = lab.kernel("b", "CONFIG_SMP=y\n", &slices(&after));
    let same = lab.kernel("same", "CONFIG_SMP=n\n", &slices(&before));
    (lab, a, b, same)
}

const WORK: [&str; 2] = ["--workloads", "roundtrip"];

#[test]
fn figures_that_do_not_repeat_are_the_tools_fault() {
    for (flags, expected) in [(&["--gate"][..], 1), (&["--bisect"], 125), (&[], 1)] {
        let (lab, a, b, _) = lab();
        for boot in [1, 3] {
            let other = serial("b", 3, &[(20_069, 95), (20_080, 5)]);
            fs::write(lab.path(&format!("b.3.boot.{boot}")), other).unwrap();
        }
        let (out, told, status) = lab.kernels(&[&[&*a, &*b], &WORK[..], flags].concat());
        assert_eq!(status, Some(expected), "{told}");
        assert!(told.contains("2 boots more: two of a layout"), "{told}");
        assert!(
            out.contains(
                "DO NOT REPEAT\n1 of 1, first roundtrip, round trip: the tool is at fault"
            ),
            "{out}"
        );
        assert!(out.contains("later kernel under layout 3"), "{out}");
        assert!(told.contains("the tool is at fault"), "{told}");
    }
}

/// As a boot on a host whose CPUs are wanted by many was once: three others of its layout are the same.
#[test]
fn one_boot_that_differs_from_three_others_is_set_aside_and_said() {
    let (lab, a, b, _) = lab();
    let (undisturbed, ..) = lab.kernels(&[&*a, &b, "--workloads", "roundtrip", "--json"]);
    let undisturbed = valid("stopgap.kernels-1.json", &undisturbed);
    let (lab, a, b, _) = self::lab();
    let other = serial("b", 3, &[(20_069, 95), (20_080, 5)]);
    fs::write(lab.path("b.3.boot.1"), other).unwrap();
    let (out, told, status) = lab.kernels(&[&*a, &b, "--workloads", "roundtrip", "--json"]);
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(lab.started(), 5 * 2 * 2 + 2, "two more of that layout");
    let record = valid("stopgap.kernels-1.json", &out);
    assert_eq!(
        record["against"][0]["rows"],
        undisturbed["against"][0]["rows"]
    );
    assert_eq!(
        record["kernels"][1]["cells"],
        undisturbed["kernels"][1]["cells"]
    );
    let boots = record["kernels"][1]["boots"].as_array().unwrap();
    let aside: Vec<_> = boots
        .iter()
        .filter(|boot| boot["set_aside"] == true)
        .collect();
    assert_eq!((aside.len(), &aside[0]["seed"]), (1, &3.into()));
    assert!(told.contains("2 boots more: two of a layout"), "{told}");
}

#[test]
fn a_kernel_that_does_not_boot_is_an_error_and_its_last_lines_are_shown() {
    let (lab, a, _, _) = lab();
    let broken = lab.kernel("broken", "", &[]);
    let panic = "[    1.0] VFS: cannot open root\r\n\
                 [    1.1] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\r\n";
    fs::write(lab.path("broken.all"), panic).unwrap();
    let (out, told, status) = lab.kernels(&[&[&*a, &*broken], &WORK[..], &["--gate"]].concat());
    assert_eq!(status, Some(1), "{told}");
    assert!(out.contains("VFS: cannot open root"), "{out}");
    // It was tried once; without it there is nothing to compare.
    assert_eq!(lab.started(), 2);
    // Beside a third kernel the others are still compared.
    let b = lab.kernel("b2", "", &slices(&five(20_062)));
    let (out, _, status) = lab.kernels(&[&a, &broken, &b, "--workloads", "roundtrip"]);
    assert_eq!(status, Some(1));
    assert!(out.contains("C against A: RUNS MORE INSTRUCTIONS"), "{out}");
    // One that hangs is ended by the limit.
    let hangs = lab.kernel("hangs", "", &[]);
    fs::write(lab.path("hangs.all"), "[    0.0] Booting Linux\r\n").unwrap();
    fs::write(lab.path("hangs.all.hangs"), "").unwrap();
    let (_, told, status) = lab.kernels(&[
        &a,
        &hangs,
        "--workloads",
        "roundtrip",
        "--limit",
        "1s",
        "--bisect",
    ]);
    assert_eq!(status, Some(125));
    assert!(told.contains("it had not ended after 1.0 s"), "{told}");
}

#[test]
fn ctrl_c_reports_what_was_measured_and_leaves_no_guest() {
    let (lab, a, b, _) = lab();
    // The last layout of b does not end.
    fs::write(lab.path("b.6"), "[    0.0] Booting Linux\r\n").unwrap();
    fs::write(lab.path("a.6"), fs::read(lab.path("a.1")).unwrap()).unwrap();
    fs::write(lab.path("b.6.hangs"), "").unwrap();
    for gate in [false, true] {
        let _ = fs::remove_file(lab.path("started"));
        let last = if gate { &["--gate"][..] } else { &[] };
        let words = [&[&*a, &*b, "--seeds", "6"][..], &WORK[..], last];
        let mut command = lab.command(&words.concat());
        let child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let began = Instant::now();
        // The last one has begun, and all the others have ended.
        while (lab.started() < 21 || lab.running() > 1) && began.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(300));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let (out, told) = (text(&output.stdout), text(&output.stderr));
        assert!(
            out.contains(
                "RUNS MORE INSTRUCTIONS\n1 of 1 longer by 0.31 %; interrupted: less was measured"
            ),
            "{out}{told}"
        );
        assert!(out.contains("were interrupted"), "{out}");
        // A proven difference stays proven.
        assert_eq!(
            output.status.code(),
            Some(if gate { 2 } else { 0 }),
            "{told}"
        );
        for pid in fs::read_to_string(lab.path("started")).unwrap().lines() {
            assert!(!PathBuf::from(format!("/proc/{pid}")).exists(), "{pid}");
        }
    }
}
