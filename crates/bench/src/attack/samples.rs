//! Small valid files of each format that the command reads, and the commands that read them. Made by the command itself,
//! by dpkg-deb, or fixtures of this repository.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use stopgap_cli::{Failure, tell};
use stopgap_events::guest::{Counts, Hello, Line, Unit, VERSION};
use stopgap_events::units::Bytes;

use super::{Place, failed};

/// A file, or a folder of files, by their names.
#[derive(Clone)]
pub(super) struct Sample {
    /// Names, empty for a single file, and contents.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl Sample {
    pub(super) fn of(name: &str, bytes: Vec<u8>) -> Sample {
        let files = vec![(name.to_owned(), bytes)];
        Sample { files }
    }

    fn read(path: &Path) -> Result<Sample, Failure> {
        let bytes = fs::read(path).map_err(failed(path.display()))?;
        Ok(Sample::of("", bytes))
    }

    /// Writes it to `path`: the file, or a folder of them.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        for (name, bytes) in &self.files {
            let path = if name.is_empty() {
                path.to_owned()
            } else {
                path.join(name)
            };
            let made = path.parent().map_or(Ok(()), fs::create_dir_all);
            made.and_then(|()| fs::write(&path, bytes))
                .map_err(failed(path.display()))?;
        }
        Ok(())
    }
}

/// A format, its samples, and who reads it.
pub(super) struct Format {
    pub(super) name: &'static str,
    pub(super) samples: Vec<Sample>,
    /// Words of the command: `{}` is the mutant, `{w}` the folder of the run.
    pub(super) commands: &'static [&'static str],
    /// The mutant's name.
    pub(super) file: &'static str,
    /// A variable that names the mutant, where no word does.
    variable: Option<&'static str>,
    /// Where QEMU stands in, the folder of it, of a guest's program and of what a guest says.
    kernels: Option<PathBuf>,
}

/// User and group `nobody`: a journal of root's would be carried out.
const NOBODY: u32 = 65_534;

impl Format {
    /// Returns the part of the seed that differs between formats.
    pub(super) fn number(&self) -> u64 {
        let mix = |sum: u64, byte: u8| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        self.name.bytes().fold(0, mix) & 0xffff
    }

    /// The surroundings of a run that reads `mutant`.
    pub(super) fn prepare(&self, command: &mut Command, place: &Place, mutant: &Path) {
        if let Some(lab) = &self.kernels {
            in_lab(command, lab);
        }
        if let Some(variable) = self.variable {
            command.env(variable, mutant);
        }
        if self.name == "journal" {
            let inside = [
                "state/stopgap/journal",
                "state/stopgap/journal/4194303.json",
            ];
            let [journal, file] = inside.map(|name| place.folder.join(name));
            let made = fs::create_dir_all(&journal);
            let _ = made.and_then(|()| fs::copy(mutant, &file));
            if rustix::process::getuid().is_root() {
                for name in ["state", "state/stopgap", "out", "tmp"]
                    .into_iter()
                    .chain(inside)
                {
                    let _ = chown(place.folder.join(name), Some(NOBODY), Some(NOBODY));
                }
                command.uid(NOBODY).gid(NOBODY);
            }
        }
    }
}

/// A script in QEMU's place: a guest says what a file has.
const QEMU: &str = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'QEMU emulator version 7.2.22 (a script)' && exit\n\
                    sleep \"${STOPGAP_GUEST_TAKES:-0}\"\ncat \"$STOPGAP_GUEST_SAYS\"\n";

const WORKLOAD: &[&str] = &[
    "explain {}",
    "export {} --to jsonl -o /dev/null",
    "replay placement {} --policy stopgap,linux-6.12 --json",
    "replay chunks {} --policy sorted --json",
];
const RECORDED: &[&str] = &[
    "explain {}",
    "export {} --to perfetto -o /dev/null",
    "export {} --to csv -o /dev/null",
];
const TEXT: &[&str] = &["explain {}", "export {} --to csv -o /dev/null"];
const RESULT: &[&str] = &[
    "compare {} {w}/../good --json",
    "compare {w}/../good {} --junit {w}/out/j",
];
const REPORT: &[&str] = &["report {} --terminal", "report {} -o {w}/out/r.html"];
const RECORD: &[&str] = &[
    "report {} --terminal",
    "report {} -o {w}/out/r.html",
    "compare {} {w}/../good --json",
];
const KERNELS: &[&str] =
    &["kernels {} {w}/../good --seeds 1 --workloads roundtrip,vgem:10 --limit 5s"];

/// Returns the `wanted` formats, without those whose samples cannot be made here.
pub(super) fn all(place: &Place, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Format>, Failure> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut formats = Vec::new();
    let mut add = |name, file, commands, make: &dyn Fn() -> Result<Vec<Sample>, Failure>| {
        if wanted(name) {
            match make() {
                Ok(samples) => formats.push(Format {
                    name,
                    samples,
                    commands,
                    file,
                    variable: None,
                    kernels: None,
                }),
                Err(why) => tell(&format!("skipped: {name}: {why:?}")),
            }
        }
    };
    let lab = place.folder.join("lab");
    lab_of(&lab)?;
    // The file that the command writes; of several the last by name that is no page.
    let made = |words: &str| -> Result<Vec<Sample>, Failure> {
        let out = place.folder.join("out");
        let _ = fs::remove_dir_all(&out);
        fs::create_dir(&out).map_err(failed(out.display()))?;
        let mut command = place.command(words);
        if words.starts_with("kernels") {
            in_lab(&mut command, &lab);
        }
        let (status, told) = place.ends(&mut command, Duration::from_secs(60))?;
        let files = fs::read_dir(&out).map_err(failed(out.display()))?;
        let files = files.flatten().map(|entry| entry.path());
        let file = files
            .filter(|path| path.extension().is_none_or(|end| end != "html"))
            .max();
        let file =
            file.ok_or_else(|| Failure::error(format!("stopgap {words}: {status:?} {told}")))?;
        Ok(vec![Sample::read(&file)?])
    };
    let fixtures = |names: &[&str]| -> Result<Vec<Sample>, Failure> {
        names
            .iter()
            .map(|name| Sample::read(&crates.join(name)))
            .collect()
    };
    const PARQUET: &str = "events/fixtures/text/recorded.parquet";
    add("parquet-workload", "trace", WORKLOAD, &|| {
        made("export frag --n 40 --ops 60 --to trace -o {w}/out/t")
    });
    add("jsonl-workload", "trace", WORKLOAD, &|| {
        made("export frag --n 40 --ops 60 --to jsonl -o {w}/out/t")
    });
    add("parquet-recorded", "trace", RECORDED, &|| {
        fixtures(&[PARQUET])
    });
    add("jsonl-recorded", "trace", RECORDED, &|| {
        let recorded = crates.join(PARQUET);
        made(&format!(
            "export {} --to jsonl -o {{w}}/out/t",
            recorded.display()
        ))
    });
    add("trace-ftrace", "trace", TEXT, &|| {
        let names = ["trace", "trace-cmd", "trace-cmd-stacks"];
        fixtures(
            &names
                .map(|name| format!("events/fixtures/text/{name}.txt"))
                .each_ref()
                .map(String::as_str),
        )
    });
    add("trace-perf", "trace", TEXT, &|| {
        fixtures(&[
            "events/fixtures/text/perf.txt",
            "events/fixtures/text/perf-stacks.txt",
        ])
    });
    add(
        "spool",
        ".t.1.spool",
        &["record --recover {} -o {w}/out/t"],
        &|| {
            let mut files = Vec::new();
            for name in ["spool.json", "cpu0.raw", "cpu1.raw"] {
                let path = crates.join("tracer/fixtures").join(name);
                files.push((
                    name.to_owned(),
                    fs::read(&path).map_err(failed(path.display()))?,
                ));
            }
            Ok(vec![Sample { files }])
        },
    );
    let snapshot = &[
        "replay chunks {} --policy sorted --buffers 2 --size 256K --json",
        "advise chunks {} --policy sorted,list --buffers 2 --size 256K --device 4K,2M --access linear",
    ];
    add("snapshot", "snapshot", snapshot, &|| {
        let whole = made("snapshot -o {w}/out/s")?;
        let parsed = serde_json::from_slice(&whole[0].files[0].1);
        let mut value: serde_json::Value = parsed.map_err(failed("a snapshot"))?;
        // The first zone is 16 MiB: a model of it takes a moment.
        if let Some(zones) = value["zones"].as_array_mut() {
            zones.truncate(1);
        }
        Ok(vec![Sample::of("", value.to_string().into_bytes())])
    });
    add("record-run", "r.json", RECORD, &|| {
        made(
            "probe placement --n 100,200 --steps 200 --runs 3 --threads 0 --agua-loops 1 --agua-live 1000 \
             --freegap-rounds 100 -d 1s -o {w}/out",
        )
    });
    add("record-gather", "r.json", &["compare {} --json"], &|| {
        made("compare --run true --run true -n 2 -o {w}/out")
    });
    add("record-kernels", "r.json", REPORT, &|| {
        made("kernels {w}/lab/bzImage {w}/lab/bzImage --seeds 1 --workloads roundtrip -o {w}/out")
    });
    add("record-replay", "r.json", REPORT, &|| {
        made("replay placement pbobench --n 100,200 --ops 2k --policy stopgap -o {w}/out")
    });
    add("record-compare", "r.json", REPORT, &|| {
        let result = crates.join("stats/fixtures/read/hyperfine-one.json");
        let sides = ["a.json", "b.json"].map(|name| place.folder.join(name));
        for side in &sides {
            fs::copy(&result, side).map_err(failed(side.display()))?;
        }
        let [before, after] = sides.each_ref().map(|side| side.display());
        made(&format!("compare {before} {after} -o {{w}}/out"))
    });
    add("record-explain", "r.json", REPORT, &|| {
        let trace = crates.join(PARQUET);
        let output = place
            .command(&format!("explain {} --json", trace.display()))
            .stdout(std::process::Stdio::piped())
            .output();
        let output = output.map_err(failed("explain"))?;
        Ok(vec![Sample::of("", output.stdout)])
    });
    for (name, file) in [
        ("hyperfine", "hyperfine-one.json"),
        ("cyclictest-h", "cyclictest-h.txt"),
        ("cyclictest-q", "cyclictest-q.txt"),
        ("cyclictest-json", "cyclictest.json"),
        ("rtla", "rtla-timerlat-hist.txt"),
        ("hdr-log", "histogram.hlog"),
    ] {
        add(name, file, RESULT, &|| {
            fixtures(&[&format!("stats/fixtures/read/{file}")])
        });
    }
    let numbers = &["ministat {} {w}/../good", "compare {} {w}/../good --json"];
    add("numbers", "n", numbers, &|| {
        Ok(vec![Sample::of(
            "",
            b"# a\n12.5\n13\n12.75\n14e0\n13.1\n".to_vec(),
        )])
    });
    let journal = r#"{"schema":"stopgap.journal/1","pid":4194303,"start_time":17,"boot":"b","namespace":"","changes":[
        {"change":"file","path":"/nonexistent/stopgap-file"},
        {"change":"directory","path":"/nonexistent/stopgap-folder"}]}"#;
    add("journal", "j.json", &["restore --json"], &|| {
        Ok(vec![Sample::of("", journal.into())])
    });
    let own_elf: &[&str] = &["run --fix arena -- {}"];
    let library = place.program.with_file_name("libstopgap_preload.so");
    add("elf-program", "program", own_elf, &|| {
        let sample = Sample::read(Path::new("/bin/true"))?;
        Ok(vec![
            Sample::of("", b"#!/usr/bin/env sh\n".to_vec()),
            sample,
        ])
    });
    add(
        "elf-library",
        "l.so",
        &["run --fix arena -- {w}/none"],
        &|| fixtures(&[library.to_str().unwrap_or_default()]),
    );
    for how in ["none", "gzip", "xz", "zstd"] {
        let name = ["deb-none", "deb-gzip", "deb-xz", "deb-zstd"];
        let name = name
            .into_iter()
            .find(|name| name.ends_with(how))
            .unwrap_or_default();
        add(name, "k.deb", KERNELS, &|| package(&lab, how));
    }
    add("kernel-image", "bzImage", KERNELS, &|| {
        Ok(vec![Sample::of("", bzimage())])
    });
    let both_good = &[
        "kernels {w}/../../samples/lab/bzImage {w}/../../samples/lab/bzImage --seeds 1 --workloads roundtrip --limit 5s",
    ];
    add("guest-serial", "says", both_good, &|| {
        fixtures(&[&lab.join("says").display().to_string()])
    });
    add("elf-guest", "guest", both_good, &|| {
        fixtures(&["/bin/true"])
    });
    for format in &mut formats {
        let reads = |word: &str| format.commands.iter().any(|words| words.starts_with(word));
        format.kernels = reads("kernels").then(|| lab.clone());
        format.variable = match format.name {
            "elf-library" => Some("STOPGAP_PRELOAD"),
            "elf-guest" => Some("STOPGAP_GUEST"),
            "guest-serial" => Some("STOPGAP_GUEST_SAYS"),
            _ => None,
        };
    }
    Ok(formats)
}

/// Makes what stands in for QEMU, for a guest's program, and what a guest says.
pub(super) fn lab_of(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(failed(folder.display()))?;
    let write = |name: &str, bytes: &[u8], mode: u32| {
        let path = folder.join(name);
        let done = fs::write(&path, bytes);
        done.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .map_err(failed(path.display()))
    };
    write("qemu-system-x86_64", QEMU.as_bytes(), 0o755)?;
    let mut guest = vec![0; 64];
    guest[..6].copy_from_slice(b"\x7fELF\x02\x01");
    guest[18] = 62;
    write("guest", &guest, 0o644)?;
    write("bzImage", &bzimage(), 0o644)?;
    write("says", serial()?.as_bytes(), 0o644)
}

/// Lets the command find what stands in.
pub(super) fn in_lab(command: &mut Command, lab: &Path) {
    command
        .env("PATH", format!("{}:/usr/bin:/bin", lab.display()))
        .env("STOPGAP_GUEST", lab.join("guest"))
        .env("STOPGAP_GUEST_SAYS", lab.join("says"));
}

/// Returns the text that a guest writes to its serial port.
fn serial() -> Result<String, Failure> {
    let hello = Line::Hello(Hello {
        version: VERSION,
        release: "6.12.0-attack".to_owned(),
        build: "#1 SMP".to_owned(),
        architecture: "x86_64".to_owned(),
        cpu: None,
        command_line: "quiet stopgap.seed=1".to_owned(),
        seed: 1,
        unit: Unit::Instructions { per_tick: 1 },
        overhead: 60,
        page_size: Bytes::kib(4),
        memory: Bytes::mib(950),
        first_process: true,
    });
    let counts = Counts::try_from(vec![(20_000, 95), (20_010, 5)]).map_err(failed("counts"))?;
    let counts = Line::Counts {
        name: "roundtrip".to_owned(),
        operation: "round trip".to_owned(),
        counts,
    };
    let mut text = String::new();
    let done = Line::Done { lines: 2 };
    let _ = write!(
        text,
        "[ 0.0] Booting Linux\r\n{hello}\r\n[ 1.2] random: crng\r\n{counts}\r\n{done}\r\n[ 2.0] reboot\r\n"
    );
    Ok(text)
}

/// The smallest file that is taken for a bzImage: a header, a release, and four bytes of kernel in gzip.
fn bzimage() -> Vec<u8> {
    const KERNEL: [u8; 24] = [
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x77, 0xf5, 0x71, 0x03,
        0x00, 0x51, 0xc4, 0x3a, 0xa7, 0x04, 0x00, 0x00, 0x00,
    ];
    let mut bytes = vec![0; 1024];
    bytes[0x1f1] = 1;
    bytes[0x1f4] = 2; // paragraphs
    bytes[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    bytes[0x202..0x208].copy_from_slice(b"HdrS\x0f\x02");
    bytes[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    (bytes[0x211], bytes[0x236], bytes[0x24c]) = (1, 1, 24);
    bytes[0x300..0x310].copy_from_slice(b"6.12.0-attack (s");
    bytes.extend(KERNEL);
    bytes
}

/// A kernel package, by dpkg-deb, with a module by the assembler.
fn package(lab: &Path, how: &str) -> Result<Vec<Sample>, Failure> {
    let tree = lab.join("tree");
    let write = |name: &str, bytes: &[u8]| {
        let path = tree.join(name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&path, bytes))
            .map_err(failed(path.display()))
    };
    write("DEBIAN/control", b"Package: linux-image-attack\nVersion: 1\nArchitecture: amd64\nMaintainer: a <a@a>\nDescription: a\n")?;
    write("boot/vmlinuz-6.12.0-attack", &bzimage())?;
    write(
        "boot/config-6.12.0-attack",
        b"CONFIG_SMP=y\nCONFIG_DRM_VGEM=m\n",
    )?;
    write(
        "lib/modules/6.12.0-attack/modules.builtin",
        b"kernel/drm.ko\n",
    )?;
    write("module.s", b".section .modinfo,\"a\"\n.asciz \"name=vgem\"\n.asciz \"depends=\"\n.asciz \"vermagic=6.12.0-attack SMP\"\n")?;
    let run = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).current_dir(lab).output();
        let output = output.map_err(failed(program))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Failure::error(format!(
                "{program}: {}",
                String::from_utf8_lossy(&output.stderr)
            ))),
        }
    };
    run("as", &["tree/module.s", "-o", "vgem.ko"])?;
    write(
        "lib/modules/6.12.0-attack/kernel/vgem.ko",
        &fs::read(lab.join("vgem.ko")).map_err(failed("vgem.ko"))?,
    )?;
    fs::remove_file(tree.join("module.s")).map_err(failed("module.s"))?;
    run(
        "dpkg-deb",
        &[
            &format!("-Z{how}"),
            "--root-owner-group",
            "-b",
            "tree",
            "k.deb",
        ],
    )?;
    Ok(vec![Sample::read(&lab.join("k.deb"))?])
}
