//! Changed files, read as users read them: each in a process of its own, within a limit of address space and of time.
//!
//! A mutant depends on the seed, its format and its number alone. Each is read by one of its format's commands, in turn.
//! A mutant on which a command did not end as it should is kept with what the command said.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use stopgap_cli::{Failure, print, progress_bar};
use stopgap_events::random::Random;

use super::samples::{Format, Sample};
use super::{Common, Place, samples};
use crate::common::{failed, folder};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Mutants of each format.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    per_format: u64,
    /// Where mutants that broke a command are kept.
    #[arg(long, value_name = "DIR", default_value = "attack-mutants")]
    keep: PathBuf,
    #[command(flatten)]
    common: Common,
}

const MEMORY: u64 = 3 << 29;
/// No mutant may fill the disk.
const FILE: u64 = 1 << 30;
const TIME: Duration = Duration::from_secs(10);

/// How a command ended on a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Read,
    Refused,
    Silent,
    Panic,
    Signal,
    Memory,
    Time,
}

/// The ends in the order of their declaration.
const ENDS: [&str; 7] = [
    "read", "refused", "silent", "panic", "signal", "memory", "time",
];

impl End {
    fn from_output(status: Option<ExitStatus>, told: &str) -> End {
        let Some(status) = status else {
            return End::Time;
        };
        if told.contains("memory allocation of") {
            End::Memory
        } else if told.contains("panicked at") || status.code() == Some(101) {
            End::Panic
        } else if status.signal().is_some() {
            End::Signal
        } else if status.success() {
            End::Read
        } else if told.trim().is_empty() {
            End::Silent
        } else {
            End::Refused
        }
    }
}

/// Counts of one format.
#[derive(Default)]
struct Seen {
    counts: [u64; ENDS.len()],
    slowest: Duration,
    /// A line for each mutant that broke a command and is kept.
    kept: Vec<String>,
}

pub(super) fn run(flags: &Flags) -> Result<bool, Failure> {
    for (what, most) in [
        (Resource::As, MEMORY),
        (Resource::Fsize, FILE),
        (Resource::Core, 0),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(what, limit).map_err(failed("setrlimit"))?; // what is started inherits it
    }
    let root = folder("attack")?;
    // A journal is read as nobody.
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(root.path(), open).map_err(failed(root.path().display()))?;
    let program = flags.common.stopgap.program()?;
    let place = Place::new(&root.path().join("samples"), &program)?;
    let formats = samples::all(&place, &|name| flags.common.wants(name))?;
    let seed = flags.common.seed;
    print(&format!(
        "seed {seed}, {} mutants of each format, each read by one command, in turn",
        flags.per_format
    ))?;
    let head: String = ENDS.iter().map(|word| format!("{word:>8}")).collect();
    print(&format!("{:<17} {:>8}{head}  slowest", "format", "mutants"))?;
    let bar = progress_bar();
    let mut kept = Vec::new();
    for (at, format) in formats.iter().enumerate() {
        bar.set_position(at as u64 * 1_000 / formats.len() as u64);
        bar.set_message(format.name);
        let seen = attack(format, flags, &root.path().join(format.name), &program)?;
        let counts: String = seen.counts.iter().map(|n| format!("{n:>8}")).collect();
        let all: u64 = seen.counts.iter().sum();
        let slowest = seen.slowest.as_millis();
        bar.suspend(|| {
            print(&format!(
                "{:<17} {all:>8}{counts}  {slowest} ms",
                format.name
            ))
        })?;
        kept.extend(seen.kept);
    }
    bar.finish_and_clear();
    for line in &kept {
        print(line)?;
    }
    Ok(kept.is_empty())
}

/// All mutants of a format, on all CPUs.
fn attack(format: &Format, flags: &Flags, folder: &Path, program: &Path) -> Result<Seen, Failure> {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    well(format, &Place::new(&folder.join("well"), program)?)?;
    let seen = Mutex::new(Seen::default());
    let work = |worker: u64| -> Result<(), Failure> {
        let place = Place::new(&folder.join(worker.to_string()), program)?;
        (worker..flags.per_format)
            .step_by(workers as usize)
            .try_for_each(|number| read_one(format, flags, number, &place, &seen))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|w| scope.spawn(move || work(w))).collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect::<Result<(), _>>()
    })?;
    seen.into_inner().map_err(failed("a thread panicked"))
}

/// Fails unless each command reads each sample as it is: mutants of another would all be refused for one reason.
fn well(format: &Format, place: &Place) -> Result<(), Failure> {
    // These command lines name a program that cannot be run, on purpose.
    if ["elf-program", "elf-library"].contains(&format.name) {
        return Ok(());
    }
    for sample in &format.samples {
        for words in &format.commands {
            let path = place.folder.join("in");
            sample.write(&path)?;
            let (status, told) = place.ends(&mut format.command(words, place, &path), TIME)?;
            if End::from_output(status, &told) != End::Read {
                let why = format!(
                    "{}: stopgap {words} does not read a sample: {told}",
                    format.name
                );
                return Err(Failure::error(why));
            }
            place.empty()?;
        }
    }
    Ok(())
}

fn read_one(
    format: &Format,
    flags: &Flags,
    number: u64,
    place: &Place,
    seen: &Mutex<Seen>,
) -> Result<(), Failure> {
    let seed = flags.common.seed;
    let mut random = Random::new(seed ^ (format.number() << 48) ^ (number << 8));
    let sample = &format.samples[random.index(format.samples.len())];
    let mutant = mutant(sample, &mut random);
    let path = place.folder.join("in");
    mutant.write(&path)?;
    let words = &format.commands[(number % format.commands.len() as u64) as usize];
    let begin = Instant::now();
    let (status, told) = place.ends(&mut format.command(words, place, &path), TIME)?;
    let (took, end) = (begin.elapsed(), End::from_output(status, &told));
    let mut seen = seen.lock().map_err(failed("a thread panicked"))?;
    seen.slowest = seen.slowest.max(took);
    seen.counts[end as usize] += 1;
    if !matches!(end, End::Read | End::Refused) {
        let kept = flags.keep.join(format!("{}-{seed}-{number}", format.name));
        mutant.write(&kept.join("mutant"))?;
        let said = format!("stopgap {words}\n{status:?}\n{told}");
        fs::write(kept.join("said.txt"), said).map_err(failed(kept.display()))?;
        seen.kept.push(format!("{end:?}: {}", kept.display()));
    }
    drop(seen);
    place.empty()
}

/// A sample, of which one file is changed in one to three places.
fn mutant(sample: &Sample, random: &mut Random) -> Sample {
    let mut mutant = sample.clone();
    let at = random.index(mutant.files.len());
    for _ in 0..=random.below(3) {
        change(&mut mutant.files[at].1, random);
    }
    mutant
}

/// Numbers and words at which readers break.
const PIECES: [&[u8]; 14] = [
    b"0",
    b"-1",
    b"4294967295",
    b"2147483648",
    b"9223372036854775808",
    b"18446744073709551615",
    b"1e308",
    b"NaN",
    b"null",
    b"[[[[[[[[",
    b"\"",
    b"\n",
    b"\0",
    b"\xff\xfe",
];

fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(random.bits() as u8);
        return;
    }
    let length = bytes.len();
    // Headers and footers say what the rest is: they are met more often than their share.
    let at = match random.below(4) {
        0 => random.index(length.min(512)),
        1 => length - 1 - random.index(length.min(512)),
        _ => random.index(length),
    };
    let end = |most: u64, random: &mut Random| length.min(at + 1 + random.below(most) as usize);
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.bits() as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end(64, random))),
        // From elsewhere, in place or between.
        4 => {
            let from = random.index(length);
            let piece = bytes[from..length.min(from + 1 + random.index(256))].to_vec();
            let to = if random.below(2) == 0 {
                at
            } else {
                length.min(at + piece.len())
            };
            bytes.splice(at..to, piece);
        }
        // A length at its extremes, in each width.
        5 => {
            let extremes = [
                0,
                1,
                0x7fff_ffff_ffff_ffff,
                u64::MAX,
                0x8000_0000,
                0xffff_ffff,
                length as u64,
            ];
            let value = extremes[random.index(extremes.len())].to_le_bytes();
            let width = 1_usize << random.below(4);
            let to = length.min(at + width);
            bytes[at..to].copy_from_slice(&value[..to - at]);
        }
        // A number of the text, or a few bytes, become one of the pieces.
        6 => {
            let digits = |byte: &u8| byte.is_ascii_digit();
            let from = bytes[at..]
                .iter()
                .position(digits)
                .map_or(at, |more| at + more);
            let to = bytes[from..].iter().position(|byte| !digits(byte));
            let to = to.map_or(length, |more| (from + more).max(from + 1));
            bytes.splice(from..to, PIECES[random.index(PIECES.len())].iter().copied());
        }
        _ => {
            let piece = PIECES[random.index(PIECES.len())];
            bytes.splice(at..at, piece.iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_mutant_and_mutants_differ() {
        let sample = Sample {
            files: vec![(String::new(), b"{\"n\": 17, \"text\": \"word\"}".to_vec())],
        };
        let made: Vec<Sample> = (0..500)
            .map(|n| mutant(&sample, &mut Random::new(n)))
            .collect();
        let again = mutant(&sample, &mut Random::new(7));
        assert_eq!(made[7].files, again.files);
        let mut contents: Vec<&[u8]> = made.iter().map(|made| &made.files[0].1[..]).collect();
        contents.sort_unstable();
        contents.dedup();
        assert!(contents.len() > 400, "{}", contents.len());
    }

    #[test]
    fn ends_are_told_apart() {
        let status = |code: i32| Some(ExitStatus::from_raw(code));
        for (status, told, wanted) in [
            (status(0), "", End::Read),
            (status(1 << 8), "x: no trace\n", End::Refused),
            (status(1 << 8), "", End::Silent),
            (status(101 << 8), "thread 'main' panicked at x", End::Panic),
            (status(11), "", End::Signal),
            (
                status(6),
                "memory allocation of 9 bytes failed",
                End::Memory,
            ),
            (None, "", End::Time),
        ] {
            assert_eq!(End::from_output(status, told), wanted, "{told}");
        }
    }
}
