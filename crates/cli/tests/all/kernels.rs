//! `stopgap kernels` through the command, with a script in QEMU's place that says what guests say: verdicts, gate, bisect,
//! Ctrl-C, and what goes wrong. No network, no emulator. Real kernels: `kernels_real.rs`.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use crate::common::{Run, text, valid};
use stopgap_events::units::Bytes;
use stopgap_guest::protocol::{Counts, Hello, Line, Unit, VERSION};

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
    qemu: &'static str,
}

impl Lab {
    fn new() -> Lab {
        Lab::of("qemu-system-x86_64", 62)
    }

    fn of(qemu: &'static str, machine: u8) -> Lab {
        let lab = Lab {
            run: Run::new(),
            qemu,
        };
        fs::create_dir(lab.path("bin")).unwrap();
        let program = lab.path("bin").join(qemu);
        stopgap_kernel::fake::script(&program, QEMU);
        // A static program of no content.
        let mut guest = vec![0; 64];
        guest[..6].copy_from_slice(b"\x7fELF\x02\x01");
        guest[18] = machine;
        fs::write(lab.path("guest"), guest).unwrap();
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.run.directory.path().join(name)
    }

    /// A kernel whose guest says these counts of `roundtrip`, by seed from 1 on.
    fn kernel(&self, name: &str, config: &str, counts: &[&[(u64, u64)]]) -> String {
        let image = match self.qemu {
            "qemu-system-x86_64" => bzimage(name),
            _ => arm64(name),
        };
        let path = self.path(name);
        fs::write(&path, image).unwrap();
        fs::write(self.path(&format!("config-{name}")), config).unwrap();
        for (seed, counts) in (1u64..).zip(counts) {
            let log = self.path(&format!("{name}.{seed}"));
            fs::write(log, serial(name, self.architecture(), seed, counts)).unwrap();
        }
        path.to_str().unwrap().to_owned()
    }

    fn architecture(&self) -> &'static str {
        match self.qemu {
            "qemu-system-x86_64" => "x86_64",
            _ => "aarch64",
        }
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

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Standard output, and the exit status.
    fn kernels(&self, words: &[&str]) -> (String, String, Option<i32>) {
        let output = self.output(words);
        (
            text(&output.stdout),
            text(&output.stderr),
            output.status.code(),
        )
    }

    fn started(&self) -> usize {
        let list = fs::read_to_string(self.path("started")).unwrap_or_default();
        list.lines().count()
    }
}

/// The smallest file that is taken for a bzImage: a header, a release, and four bytes of kernel in gzip.
fn bzimage(release: &str) -> Vec<u8> {
    const KERNEL: [u8; 24] = [
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x77, 0xf5, 0x71, 0x03,
        0x00, 0x51, 0xc4, 0x3a, 0xa7, 0x04, 0x00, 0x00, 0x00,
    ];
    // Whose own last four bytes are the length.
    let payload = KERNEL;
    let mut bytes = vec![0; 1024];
    bytes[0x1f1] = 1;
    let paragraphs = payload.len().div_ceil(16) as u32;
    bytes[0x1f4..0x1f8].copy_from_slice(&paragraphs.to_le_bytes());
    bytes[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x206..0x208].copy_from_slice(&0x020fu16.to_le_bytes());
    bytes[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
    (bytes[0x211], bytes[0x236]) = (1, 1);
    bytes[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let version = format!("{release} (somebody@somewhere) #1 SMP");
    bytes[0x300..0x300 + version.len()].copy_from_slice(version.as_bytes());
    bytes.extend(payload);
    bytes
}

/// An arm64 Image likewise.
fn arm64(release: &str) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[16..24].copy_from_slice(&4096u64.to_le_bytes());
    bytes[56..60].copy_from_slice(b"ARM\x64");
    let version = format!("Linux version {release} (somebody@somewhere) #1 SMP\n\0");
    bytes[0x500..0x500 + version.len()].copy_from_slice(version.as_bytes());
    bytes
}

/// What comes from a guest's serial port: kernel messages, and our lines between them.
fn serial(release: &str, architecture: &str, seed: u64, counts: &[(u64, u64)]) -> String {
    let hello = Line::Hello(Hello {
        version: VERSION,
        release: release.to_owned(),
        build: "#1 SMP".to_owned(),
        architecture: architecture.to_owned(),
        cpu: None,
        command_line: format!("quiet stopgap.seed={seed}"),
        seed,
        unit: Unit::Instructions { per_tick: 1 },
        overhead: 60,
        page_size: Bytes::kib(4),
        memory: Bytes::mib(950),
        first_process: true,
    });
    let counts = Line::Counts {
        name: "roundtrip".to_owned(),
        operation: "round trip".to_owned(),
        counts: Counts::try_from(counts.to_vec()).unwrap(),
    };
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
fn sixty_two_instructions_are_called_and_fail_the_gate() {
    let (lab, a, b, same) = lab();
    let (out, _, status) = lab.kernels(&[&a, &b, "--workloads", "roundtrip", "--json"]);
    assert_eq!(status, Some(0), "{out}");
    let record = valid("stopgap.kernels-1.json", &out);
    let row = &record["against"][0]["rows"][0];
    assert_eq!(
        row["median"]["differences"],
        serde_json::json!([62.0, 62.0, 62.0, 62.0, 62.0])
    );
    assert_eq!(row["word"], "longer");
    assert_eq!(record["against"][0]["cause"], "code");
    assert_eq!(record["unit"], "guest instructions");
    assert_eq!(record["emulator"]["qemu"], "7.2.22 (a script)");
    assert_eq!(
        record["kernels"][0]["cells"][0]["seeds"][0]["counts"],
        "20000x95 20010x5"
    );
    assert_eq!(record["kernels"][0]["boots"].as_array().unwrap().len(), 10);
    let line = record["kernels"][0]["command_line"].to_string();
    assert!(
        line.contains("SEED") && line.contains("INITRAMFS") && line.contains("icount"),
        "{line}"
    );
    assert_eq!(lab.started(), 20);

    let gate = |words: &[&str]| {
        let (_, told, status) = lab.kernels(&[words, &WORK].concat());
        (status, told)
    };
    let (status, told) = gate(&[&a, &b, "--gate", "--margin", "0.2%"]);
    assert_eq!(status, Some(2));
    assert!(
        told.contains("fail: longer by more than 0.2 %: roundtrip, round trip"),
        "{told}"
    );
    assert_eq!(gate(&[&a, &b, "--gate", "--margin", "0.4%"]).0, Some(0));
    assert_eq!(gate(&[&b, &a, "--gate"]).0, Some(0));
    assert_eq!(gate(&[&a, &same, "--gate"]).0, Some(0));
    assert_eq!(gate(&[&a, &same, &b, "--gate"]).0, Some(2));
    // Four layouts are too few to say anything but that it is the same.
    assert_eq!(gate(&[&a, &b, "--gate", "--seeds", "4"]).0, Some(4));
    assert_eq!(gate(&[&a, &same, "--gate", "--seeds", "1"]).0, Some(0));
    // A bisect's words.
    assert_eq!(gate(&[&a, &b, "--bisect"]).0, Some(1));
    assert_eq!(gate(&[&a, &same, "--bisect"]).0, Some(0));
    assert_eq!(gate(&[&a, &b, "--bisect", "--seeds", "4"]).0, Some(125));
    assert_eq!(gate(&[&a, &b, &same, "--bisect"]).0, Some(125));
}

#[test]
fn the_screen_has_the_answer_and_what_it_cannot_tell() {
    let (lab, a, b, same) = lab();
    let (out, _, _) = lab.kernels(&[&a, &b, &same, "--workloads", "roundtrip"]);
    for part in [
        "B against A: longer: 1 of 1 longer by 0.31 %",
        "C against A: identical: 1 of 1 identical",
        "a difference is of code: the configurations are the same",
        "a difference is of config + code: 1 options differ, 1 of which both know: CONFIG_SMP y -> n",
        "+62",
        "what this cannot tell",
        "SMP, contention",
        "caches, TLB",
        "guest instruction has no duration",
        "record ",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    // The same again is the same again, but for its name and beginning.
    let document = || {
        let (out, _, _) = lab.kernels(&[&a, &b, "--workloads", "roundtrip", "--json"]);
        let mut document: serde_json::Value = serde_json::from_str(&out).unwrap();
        document["started_unix_s"] = 0.into();
        document
    };
    assert_eq!(document(), document());
}

/// A kernel whose guest maps for DMA, with so many physical runs.
fn maps_for_dma(lab: &Lab, name: &str, runs: u64) -> String {
    let path = lab.kernel(name, "CONFIG_VFIO_PCI=m\nCONFIG_VFIO_IOMMU_TYPE1=y\n", &[]);
    let dma = format!(
        "{{\"entries\": {{\"by_size\": {{\"4096\": {runs}}}, \"source\": \"computed\"}}, \"physical_runs\": {runs},
          \"table_pages\": {{\"unknown\": \"not counted before 6.11\"}}, \"copied_bytes\": 32768}}"
    );
    for seed in 1..=5 {
        let counts = serial(name, "x86_64", seed, &[(30_000, 20)]);
        let counts = Line::parse(
            counts
                .lines()
                .find(|line| line.contains("round trip"))
                .unwrap(),
        );
        let Some(Ok(Line::Counts { counts, .. })) = counts else {
            panic!("{counts:?}")
        };
        let of = |cell: &str| Line::Counts {
            name: cell.to_owned(),
            operation: "dma map".to_owned(),
            counts: counts.clone(),
        };
        let mut lines = vec![of("vfio 4K"), of("vfio 64K")];
        lines.extend(Line::file(Some("vfio 4K"), "vfio.json", dma.as_bytes()));
        lines.push(Line::Failed {
            name: "vfio 2M".to_owned(),
            why: "status 1: the transfer: byte 7 differs".to_owned(),
        });
        let first = serial(name, "x86_64", seed, &[]);
        let first = first
            .lines()
            .find(|line| line.contains("\"hello\""))
            .unwrap();
        let done = Line::Done {
            lines: lines.len() as u64 + 1,
        };
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        fs::write(
            lab.path(&format!("{name}.{seed}")),
            format!("{first}\r\n{lines}{done}\r\n"),
        )
        .unwrap();
    }
    path
}

/// What mapping for DMA took of the IOMMU is printed of each kernel, with what the transfer showed; and a driver that gave
/// figures is not missing, wherever it came from.
#[test]
fn entries_of_the_iommu_are_printed_and_recorded() {
    let lab = Lab::new();
    let (a, b) = (maps_for_dma(&lab, "a", 1_024), maps_for_dma(&lab, "b", 64));
    let (out, told, status) = lab.kernels(&[&a, &b, "--workloads", "vfio"]);
    assert_eq!(status, Some(0), "{told}");
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "for DMA kernel IOMMU entries physical runs table pages transfer",
        "vfio 4K A 1,024 of 4 KiB (computed) 1,024 unknown 32 KiB, as sent",
        "vfio 4K B 64 of 4 KiB (computed) 64 unknown 32 KiB, as sent",
        "unknown: B, table pages: not counted before 6.11",
        "vfio 2M: status 1: the transfer: byte 7 differs",
        // Of the third cell no figures came, so that the driver may be why; built in it is not.
        "module vfio_pci: CONFIG_VFIO_PCI=m, and no such module came with the kernel",
    ] {
        assert!(words.contains(part), "{part}\n{out}");
    }
    assert!(!out.contains("module vfio_iommu_type1"), "{out}");
    let (out, _, _) = lab.kernels(&[&a, &b, "--workloads", "vfio", "--json"]);
    let record = valid("stopgap.kernels-1.json", &out);
    let dma = &record["kernels"][1]["dma"];
    assert_eq!(dma.as_array().unwrap().len(), 1);
    let sample = &dma[0]["seeds"][4];
    assert_eq!(
        (&sample["seed"], &sample["repeats"]),
        (&5.into(), &true.into())
    );
    assert_eq!(sample["dma"]["entries"]["by_size"]["4096"], 64);
    assert_eq!(
        sample["dma"]["table_pages"]["unknown"],
        "not counted before 6.11"
    );
}

#[test]
fn a_kernel_against_itself_is_exactly_nothing() {
    let (lab, a, _, _) = lab();
    let (out, _, status) = lab.kernels(&[&a, &a, "--workloads", "roundtrip", "--gate", "--json"]);
    let record = valid("stopgap.kernels-1.json", &out);
    assert_eq!(status, Some(0));
    assert_eq!(record["against"][0]["verdict"]["word"], "identical");
    assert_eq!(record["against"][0]["cause"], "same image");
    assert_eq!(record["against"][0]["rows"][0]["median"]["change"], 0.0);
}

#[test]
fn figures_that_do_not_repeat_are_the_tools_fault() {
    for (flags, expected) in [(&["--gate"][..], 1), (&["--bisect"], 125), (&[], 1)] {
        let (lab, a, b, _) = lab();
        for boot in [1, 3] {
            let other = serial("b", "x86_64", 3, &[(20_069, 95), (20_080, 5)]);
            fs::write(lab.path(&format!("b.3.boot.{boot}")), other).unwrap();
        }
        let (out, told, status) = lab.kernels(&[&[&*a, &*b], &WORK[..], flags].concat());
        assert_eq!(status, Some(expected), "{told}");
        assert!(told.contains("2 boots more: two of a layout"), "{told}");
        assert!(
            out.contains("void: 1 of 1, first roundtrip, round trip: the tool is at fault"),
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
    let other = serial("b", "x86_64", 3, &[(20_069, 95), (20_080, 5)]);
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
    for (flags, expected) in [(&[][..], 1), (&["--gate"], 1), (&["--bisect"], 125)] {
        let before = lab.started();
        let (out, told, status) = lab.kernels(&[&[&*a, &*broken], &WORK[..], flags].concat());
        assert_eq!(status, Some(expected), "{told}");
        assert!(
            told.contains("the kernel panicked: VFS: Unable to mount root fs"),
            "{told}"
        );
        assert!(out.contains("VFS: cannot open root"), "{out}");
        assert!(out.contains("inconclusive: 1 of 1 inconclusive"), "{out}");
        // It was tried once; without it there is nothing to compare.
        assert_eq!(lab.started() - before, 2);
    }
    // Beside a third kernel the others are still compared.
    let b = lab.kernel("b2", "", &slices(&five(20_062)));
    let (out, _, status) = lab.kernels(&[&a, &broken, &b, "--workloads", "roundtrip"]);
    assert_eq!(status, Some(1));
    assert!(out.contains("C against A: longer"), "{out}");
    // One that hangs is ended by the limit.
    let hangs = lab.kernel("hangs", "", &[]);
    fs::write(lab.path("hangs.all"), "[    0.0] Booting Linux\r\n").unwrap();
    fs::write(lab.path("hangs.all.hangs"), "").unwrap();
    let began = Instant::now();
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
    assert!(began.elapsed() < Duration::from_secs(60));
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
        while lab.started() < 21 && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(300));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let (out, told) = (text(&output.stdout), text(&output.stderr));
        assert!(
            out.contains("longer: 1 of 1 longer by 0.31 %; interrupted: less was measured"),
            "{out}{told}"
        );
        assert!(out.contains("were interrupted"), "{out}");
        // What it has proven it has proven.
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

#[test]
fn arms_log_is_read_by_the_same_rules() {
    let lab = Lab::of("qemu-system-aarch64", 183);
    let (before, after) = (five(30_000), five(30_090));
    let a = lab.kernel("a", "", &slices(&before));
    let b = lab.kernel("b", "", &slices(&after));
    let (out, told, status) = lab.kernels(&[&a, &b, "--workloads", "roundtrip", "--json"]);
    assert_eq!(status, Some(0), "{told}");
    let record = valid("stopgap.kernels-1.json", &out);
    assert_eq!(record["kernels"][0]["architecture"], "aarch64");
    assert_eq!(record["against"][0]["rows"][0]["median"]["change"], 90.0);
    // A program for this machine is not what arm64's kernels start: what to do is said.
    let mut guest = fs::read(lab.path("guest")).unwrap();
    guest[18] = 62;
    fs::write(lab.path("guest-of-a-pc"), guest).unwrap();
    let mut other = lab.command(&[&a, &b]);
    let output = other
        .env("STOPGAP_GUEST", lab.path("guest-of-a-pc"))
        .output()
        .unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(
        told.contains("it is for x86_64, the kernels for aarch64; build it ("),
        "{told}"
    );
    if cfg!(target_arch = "x86_64") {
        assert!(told.contains("checks/aarch64-guest/build"), "{told}");
    }
    // Of two architectures nothing is compared; a guest's program for the other one is refused.
    let pc = lab.path("pc");
    fs::write(&pc, bzimage("pc")).unwrap();
    let (_, told, status) = lab.kernels(&[&a, pc.to_str().unwrap()]);
    assert_eq!(status, Some(1));
    assert!(told.contains("kernels of two architectures"), "{told}");
    stopgap_kernel::fake::install(
        &lab.path("bin").join(lab.qemu),
        &lab.path("bin").join("qemu-system-x86_64"),
    );
    let pc = pc.to_str().unwrap();
    let (_, told, status) = lab.kernels(&[pc, pc]);
    assert_eq!(status, Some(3));
    assert!(
        told.contains("it is for aarch64, the kernels for x86_64"),
        "{told}"
    );
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    let (lab, a, b, _) = lab();
    let said = |command: &mut std::process::Command| {
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let mut none = lab.command(&[&a, &b]);
    none.env("PATH", lab.path("nowhere"));
    let (status, told) = said(&mut none);
    assert_eq!(status, Some(3));
    assert!(
        told.contains("unsupported: install qemu-system-x86"),
        "{told}"
    );
    let mut bisect = lab.command(&[&a, &b, "--bisect"]);
    assert_eq!(said(bisect.env("PATH", lab.path("nowhere"))).0, Some(125));
    for guest in ["/nowhere", "/", "/proc/self/exe", "/etc/passwd"] {
        let mut none = lab.command(&[&a, &b]);
        let (status, told) = said(none.env("STOPGAP_GUEST", guest));
        assert_eq!(status, Some(3), "{guest}: {told}");
        assert!(
            told.contains("-p stopgap-guest") && told.contains("STOPGAP_GUEST"),
            "{told}"
        );
    }
    for (words, status, says) in [
        (&[&*a, "/nowhere"][..], 1, "/nowhere"),
        (
            &[&*a, "/etc/passwd"],
            1,
            "/etc/passwd: a text file, not a kernel",
        ),
        (&[&*a, &*b, "--limit", "0"], 1, "give 1s at least"),
        (
            &[&*a, &*b, "--margin", "2"],
            1,
            "'2' is no margin; write it as 5%",
        ),
        (
            &[&*a, &*b, "--workloads", "forks"],
            1,
            "unknown workload 'forks'; there are pbobench",
        ),
        (&[&*a, &*b, "--workloads", "fork:3"], 1, "no N"),
        (&[&*a], 1, "--help"),
        (&[&*a, &*b, "--seeds", "0"], 1, "--help"),
        (&[&*a, &*b, "--gate", "--bisect"], 125, "--help"),
        (&[&*a, &*b, "-o", "/proc/x"], 1, "give another directory"),
    ] {
        let (_, told, code) = lab.kernels(words);
        assert_eq!(code, Some(status), "{words:?}: {told}");
        assert!(told.contains(says), "{words:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    assert_eq!(lab.started(), 0);
}

#[test]
fn a_dry_run_boots_nothing() {
    let (lab, a, b, _) = lab();
    let (out, _, status) = lab.kernels(&[&a, &b, "--dry-run", "--workloads", "pbobench:10k,vgem"]);
    assert_eq!(status, Some(0));
    for part in [
        "would boot 20 guests, 2 at a time",
        "pbobench N=10000",
        "modules vgem",
        "nothing is installed",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    assert_eq!(lab.started(), 0);
    assert!(lab.run.records().is_empty());
}
