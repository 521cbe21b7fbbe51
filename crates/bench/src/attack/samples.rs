//! Small valid files of each format that the command reads, and the commands that read them. `samples.sh` makes the files:
//! by the command itself, by dpkg-deb, or of fixtures of this repository.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use stopgap_cli::{Failure, tell};
use stopgap_guest::protocol::{Counted, Counts, Hello, Line, Unit, VERSION};

use super::Place;
use crate::common::failed;

/// Formats, and their commands in turn. `{}` is the mutant, `{s}` a good sample, `{w}` the folder of the run.
const FORMATS: &str = include_str!("formats.txt");

/// A file, or a folder of files.
#[derive(Clone)]
pub(super) struct Sample {
    /// Names, empty for a single file, and contents.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl Sample {
    pub(super) fn read(path: &Path) -> Result<Sample, Failure> {
        let mut files = Vec::new();
        for name in super::names(path) {
            let inside = path.join(&name);
            files.push((name, fs::read(&inside).map_err(failed(inside.display()))?));
        }
        if !path.is_dir() {
            let bytes = fs::read(path).map_err(failed(path.display()))?;
            files.push((String::new(), bytes));
        }
        Ok(Sample { files })
    }

    /// Writes it to `path`: the file, or the folder.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        for (name, bytes) in &self.files {
            let path = match name.is_empty() {
                true => path.to_owned(),
                false => path.join(name),
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
    pub(super) commands: Vec<String>,
    lab: PathBuf,
}

/// User and group `nobody`: a journal of root's would be carried out.
const NOBODY: u32 = 65_534;

impl Format {
    /// Returns the part of the seed that differs between formats.
    pub(super) fn number(&self) -> u64 {
        let mix = |sum: u64, byte: u8| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        self.name.bytes().fold(0, mix) & 0xffff
    }

    /// Returns the command `words` on `mutant`, in `place`.
    pub(super) fn command(&self, words: &str, place: &Place, mutant: &Path) -> Command {
        let words = words.replace("{}", mutant.to_str().unwrap_or_default());
        let mut command = place.command(&words);
        in_lab(&mut command, &self.lab);
        match self.name {
            "elf-library" => _ = command.env("STOPGAP_PRELOAD", mutant),
            "elf-guest" => _ = command.env("STOPGAP_GUEST", mutant),
            "guest-serial" => _ = command.env("STOPGAP_GUEST_SAYS", mutant),
            "journal" => {
                let inside = ["journal", "journal/4194303.json"];
                let [journal, file] =
                    inside.map(|name| place.folder.join("state/stopgap").join(name));
                let made = fs::create_dir_all(&journal);
                let _ = made.and_then(|()| fs::copy(mutant, &file));
                if rustix::process::getuid().is_root() {
                    let folders = ["state", "state/stopgap", "out", "tmp"];
                    let folders = folders.map(|name| place.folder.join(name)).into_iter();
                    for path in folders.chain([journal, file]) {
                        let _ = chown(path, Some(NOBODY), Some(NOBODY));
                    }
                    command.uid(NOBODY).gid(NOBODY);
                }
            }
            _ => {}
        }
        command
    }
}

/// A script in QEMU's place: a guest says what a file has.
const QEMU: &str = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'QEMU emulator version 7.2.22 (a script)' && exit\n\
                    sleep \"${STOPGAP_GUEST_TAKES:-0}\"\ncat \"$STOPGAP_GUEST_SAYS\"\n";

/// Returns the `wanted` formats, without those whose samples cannot be made here.
pub(super) fn all(place: &Place, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Format>, Failure> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let lab = place.folder.join("lab");
    lab_of(&lab)?;
    let mut script = place.command("");
    in_lab(&mut script, &lab);
    let mut shell = Command::new("sh");
    let variables = script
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    shell.envs(variables).current_dir(&place.folder);
    shell.args(["-c", include_str!("samples.sh"), "samples.sh"]);
    let told = shell.arg(&place.program).arg(crates).output();
    let told = told.map_err(failed("sh"))?.stderr;
    let told = String::from_utf8_lossy(&told);
    told.lines()
        .for_each(|line| tell(&format!("skipped: {line}")));
    small(&place.folder.join("snapshot/s"))?;
    let mut formats = Vec::new();
    for (name, commands) in FORMATS.lines().filter_map(|line| line.split_once(": ")) {
        let folder = place.folder.join(name);
        let pages = |name: &String| !name.ends_with(".html");
        let samples = super::names(&folder).into_iter().filter(pages);
        let samples: Vec<PathBuf> = samples.map(|name| folder.join(name)).collect();
        if let Some(good) = samples.first().filter(|_| wanted(name)) {
            let good = good.to_str().unwrap_or_default();
            let samples: Result<_, Failure> =
                samples.iter().map(|path| Sample::read(path)).collect();
            formats.push(Format {
                name,
                commands: commands
                    .replace("{s}", good)
                    .split("; ")
                    .map(str::to_owned)
                    .collect(),
                samples: samples?,
                lab: lab.clone(),
            });
        }
    }
    Ok(formats)
}

/// Leaves the first zone of a snapshot: its 16 MiB are modelled in a moment.
fn small(snapshot: &Path) -> Result<(), Failure> {
    let Ok(bytes) = fs::read(snapshot) else {
        return Ok(());
    };
    let mut value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(failed(snapshot.display()))?;
    if let Some(zones) = value["zones"].as_array_mut() {
        zones.truncate(1);
    }
    fs::write(snapshot, value.to_string()).map_err(failed(snapshot.display()))
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
pub(super) fn in_lab<'a>(command: &'a mut Command, lab: &Path) -> &'a mut Command {
    command
        .env("PATH", format!("{}:/usr/bin:/bin", lab.display()))
        .env("STOPGAP_GUEST", lab.join("guest"))
        .env("STOPGAP_GUEST_SAYS", lab.join("says"))
}

/// Returns the text that a guest writes to its serial port.
fn serial() -> Result<String, Failure> {
    let hello = Line::Hello(Hello {
        version: VERSION,
        release: "6.12.0-attack".to_owned(),
        seed: 1,
        unit: Unit::Instructions { per_tick: 1 },
        ..Hello::default()
    });
    let counts = Counts::new(vec![(20_000, 95), (20_010, 5)]).map_err(failed("counts"))?;
    let counts = Line::Counts(Counted {
        name: "roundtrip".to_owned(),
        operation: "round trip".to_owned(),
        counts,
    });
    let mut text = String::new();
    let done = Line::Done { lines: 2 };
    let _ = write!(
        text,
        "[ 0.0] Booting Linux\r\n{hello}\r\n[ 1.2] random: crng\r\n{counts}\r\n{done}\r\n[ 2.0] reboot\r\n"
    );
    Ok(text)
}

/// The bzImage of the checks of capabilities, with a release of its own.
fn bzimage() -> Vec<u8> {
    let image = include_bytes!("../../../../checks/capabilities/files/kernels/linux-a");
    let mut bytes = image.to_vec();
    bytes[0x300..0x310].copy_from_slice(b"6.12.0-attack (s");
    bytes
}
