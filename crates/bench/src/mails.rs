//! `stopgap-bench mails`: the claims of the five mails, each held against what a command prints, as `docs/mails.md` and a
//! page a mail.
//!
//! No verdict and no figure of ours is typed. A claim (`mails/mail_*.rs`) quotes the mail and names a command, a function
//! from the command's record to the figures, and a criterion that was fixed before looking:
//!
//! ```text
//! for each trial: seed 1, 2, 3, and twice the length -> stopgap COMMAND --json -> record -> figures, holds or not
//! all trials hold: agrees;  else: differs, and somebody must have written why;  no hardware: cannot be tested here
//! ```
//!
//! Exit status 1 where a claim was not judged, or differs without a reason; nothing is then written.

mod claim;
mod mail_000;
mod mail_001;
mod mail_002;
mod mail_003;
mod mail_004;
mod page;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::signals;

use crate::attack::{failed, program, wait};
use claim::{Claim, Command, Kind, Mail};
use record::Record;

const MAILS: [&Mail; 5] = [
    &mail_000::MAIL,
    &mail_001::MAIL,
    &mail_002::MAIL,
    &mail_003::MAIL,
    &mail_004::MAIL,
];

/// Time that a command gets to put settings back after SIGINT.
const TO_END: Duration = Duration::from_secs(30);
/// How a look's error begins where a probe could not tell.
const INCONCLUSIVE: &str = "inconclusive";
/// Status of a command that this machine or user does not support.
const UNSUPPORTED: i32 = 3;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Seeds of the models.
    #[arg(long = "seed", value_name = "LIST", value_delimiter = ',', default_values_t = [1, 2, 3])]
    seeds: Vec<u64>,
    /// How many times as long the models run once more, with the first seed; 1: not at all.
    #[arg(long, value_name = "TIMES", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    length: u64,
    /// Only these mails.
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', value_parser = ["000", "001", "002", "003", "004"])]
    only: Vec<String>,
    /// Only claims whose commands end within seconds, with the first seed at the usual length; prints and writes no page.
    #[arg(long)]
    quick: bool,
    /// The folder of the pages.
    #[arg(short, long, value_name = "DIR", default_value = "docs")]
    output: PathBuf,
    /// Keeps the records here, and does not run a command again whose record of the same build is here.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// A command that takes longer is ended, and its claims are not judged.
    #[arg(long, value_name = "MINUTES", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// The program [default: stopgap beside this one].
    #[arg(long, value_name = "FILE")]
    stopgap: Option<PathBuf>,
}

/// With what a model runs: a seed, and how many times as long as usual.
type Trial = (u64, u64);

#[derive(Debug, Clone, PartialEq)]
enum Verdict {
    Agrees,
    Differs,
    /// Not here, for want of this.
    Lacks(String),
    /// A command failed, or its record has no such figure.
    NotJudged(String),
}

/// A claim with its verdict.
struct Judged {
    claim: &'static Claim,
    /// As `004.3`.
    id: String,
    verdict: Verdict,
    /// The commands, as one types them in the first trial.
    commands: Vec<String>,
    /// The name of each trial, the figures that it printed, and whether the criterion holds.
    seen: Vec<(String, String, bool)>,
}

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let mut bench = Bench::new(flags)?;
    let bar = progress_bar();
    let chosen =
        |mail: &&Mail| flags.only.is_empty() || flags.only.iter().any(|n| n == mail.number);
    let mails: Vec<&Mail> = MAILS.into_iter().filter(chosen).collect();
    let all: usize = mails.iter().map(|mail| mail.claims.len()).sum();
    let (mut done, mut faults, mut pages) = (0, Vec::new(), Vec::new());
    for mail in mails {
        let mut page = Vec::new();
        for (at, claim) in mail.claims.iter().enumerate() {
            done += 1;
            if flags.quick && !claim.is_quick() {
                continue;
            }
            let id = format!("{}.{}", mail.number, at + 1);
            bar.set_position((done * 1_000 / all) as u64);
            bar.set_message(format!("{done} of {all} claims: {id} {}", claim.title));
            let judged = judge(claim, id, &bench.trials.clone(), &mut |words, command| {
                bench.record(words, command)
            });
            if signals::interrupted() {
                return Err(Failure::error("interrupted; no page is written"));
            }
            if let Some(fault) = judged.fault() {
                faults.push(format!("{} {}: {fault}", judged.id, claim.title));
            }
            page.push(judged);
        }
        pages.push((
            mail,
            page::of(mail, &page, &bench.trials, bench.records.values().flatten()),
        ));
    }
    bar.finish_and_clear();
    if flags.quick {
        pages.iter().try_for_each(|(_, text)| print(text))?;
    }
    if !faults.is_empty() {
        tell("no page is written:");
        faults.iter().for_each(|fault| tell(fault));
        return Ok(ExitCode::FAILURE);
    }
    if !flags.quick {
        page::write(&flags.output, &pages)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Differs => "differs",
            Verdict::Lacks(_) => "cannot be tested here",
            Verdict::NotJudged(_) => "not judged",
        }
    }
}

impl Judged {
    /// Says why the claim's page may not be written.
    fn fault(&self) -> Option<String> {
        let prints = || {
            &self
                .seen
                .iter()
                .find(|(.., holds)| !holds)
                .unwrap_or(&self.seen[0])
                .1
        };
        match &self.verdict {
            Verdict::NotJudged(why) => Some(why.clone()),
            Verdict::Differs if self.claim.because.is_empty() => {
                Some(format!("differs ({}): write why, in `because`", prints()))
            }
            _ => None,
        }
    }
}

/// Judges a claim by the records that `record` gives of its commands.
fn judge(
    claim: &'static Claim,
    id: String,
    trials: &[Trial],
    record: &mut dyn FnMut(&str, &Command) -> Result<Value, Verdict>,
) -> Judged {
    let mut judged = Judged {
        claim,
        id,
        verdict: Verdict::Agrees,
        commands: Vec::new(),
        seen: Vec::new(),
    };
    let Some(look) = claim.look else {
        judged.verdict = Verdict::Lacks(claim.holds_if.to_owned());
        return judged;
    };
    let varies = |command: &&Command| matches!(command.kind, Kind::Model(..));
    let count = match claim.commands.iter().any(varies) {
        true => trials.len(),
        false => 1,
    };
    for &(seed, length) in &trials[..count] {
        let mut records = Vec::new();
        for command in claim.commands {
            let words = words(command, (seed, length));
            match record(&words, command) {
                Ok(value) => {
                    let command = format!("stopgap {words}");
                    records.push(Record { command, value });
                }
                Err(verdict) => return Judged { verdict, ..judged },
            }
        }
        if judged.commands.is_empty() {
            judged.commands = records.iter().map(|r| r.command.clone()).collect();
        }
        let seen = match look(&records) {
            Ok(seen) => seen,
            Err(why) => {
                let verdict = match why.strip_prefix(INCONCLUSIVE) {
                    Some(why) => Verdict::Lacks(format!(
                        "a quieter machine: the probe was inconclusive{why}"
                    )),
                    None => Verdict::NotJudged(why),
                };
                return Judged { verdict, ..judged };
            }
        };
        if !seen.holds {
            judged.verdict = Verdict::Differs;
        }
        let name = if count == 1 {
            String::new()
        } else {
            name((seed, length))
        };
        judged.seen.push((name, seen.prints, seen.holds));
    }
    judged
}

/// Names a trial.
fn name((seed, length): Trial) -> String {
    match length {
        1 => format!("with seed {seed}"),
        _ => format!("with seed {seed} for {length} times as long"),
    }
}

/// Returns the words of a command in a trial.
fn words(command: &Command, (seed, length): Trial) -> String {
    let words = command.words;
    match command.kind {
        Kind::Model(_, _) if length == 1 => format!("{words} --seed {seed}"),
        Kind::Model(flag, usual) => {
            let longer = flag.replace("{}", &(usual * length).to_string());
            format!("{words} --seed {seed} {longer}")
        }
        Kind::Live | Kind::Files(_) => words.to_owned(),
    }
}

/// Runs commands, each once.
struct Bench<'a> {
    flags: &'a Flags,
    program: PathBuf,
    folder: tempfile::TempDir,
    trials: Vec<Trial>,
    records: BTreeMap<String, Result<Value, Verdict>>,
}

impl Bench<'_> {
    fn new(flags: &Flags) -> Result<Bench<'_>, Failure> {
        let folder = tempfile::Builder::new().prefix("stopgap-mails.").tempdir();
        let mut trials: Vec<Trial> = flags.seeds.iter().map(|&seed| (seed, 1)).collect();
        if flags.quick {
            trials.truncate(1);
        } else if flags.length > 1 {
            trials.push((flags.seeds[0], flags.length));
        }
        Ok(Bench {
            flags,
            program: program(flags.stopgap.as_deref())?,
            folder: folder.map_err(failed("a private folder"))?,
            trials,
            records: BTreeMap::new(),
        })
    }

    /// Returns the record of a command, or what its claims are for want of one.
    fn record(&mut self, words: &str, command: &Command) -> Result<Value, Verdict> {
        if let Some(record) = self.records.get(words) {
            return record.clone();
        }
        let record = self.kept(words).and_then(|kept| {
            let old = kept.as_ref().and_then(|path| fs::read(path).ok());
            if let Some(old) = old.and_then(|text| serde_json::from_slice(&text).ok()) {
                return Ok(Ok(old));
            }
            let record = self.carry_out(words, command)?;
            if let (Ok(record), Some(path)) = (&record, kept) {
                fs::write(&path, record.to_string()).map_err(failed(path.display()))?;
            }
            Ok(record)
        });
        let record = record.unwrap_or_else(|_| {
            let why = format!("`stopgap {words}` could not be run, or its record not be kept");
            Err(Verdict::NotJudged(why))
        });
        self.records.insert(words.to_owned(), record.clone());
        record
    }

    /// Returns where the record of a command and this build is kept.
    fn kept(&self, words: &str) -> Result<Option<PathBuf>, Failure> {
        let Some(folder) = &self.flags.keep else {
            return Ok(None);
        };
        let built = fs::metadata(&self.program).and_then(|file| file.modified());
        let built = built.map_err(failed(self.program.display()))?;
        let built = built.duration_since(UNIX_EPOCH).unwrap_or_default();
        let folder = folder.join(built.as_secs().to_string());
        fs::create_dir_all(&folder).map_err(failed(folder.display()))?;
        let name = words.replace(['/', ' '], "_");
        Ok(Some(folder.join(format!("{name}.json"))))
    }

    /// Runs a command to its end, at most so long as the limit says.
    fn carry_out(&self, words: &str, command: &Command) -> Result<Result<Value, Verdict>, Failure> {
        let folder = self.folder.path();
        let files = match command.kind {
            Kind::Files(files) => files,
            Kind::Model(..) | Kind::Live => &[],
        };
        for &(name, count, mean, deviation) in files {
            let path = folder.join(name);
            let numbers = numbers(count, mean, deviation);
            fs::write(&path, numbers).map_err(failed(path.display()))?;
        }
        let (out, told) = (folder.join("out"), folder.join("told"));
        let create = |path: &Path| File::create(path).map_err(failed(path.display()));
        let mut child = process::Command::new(&self.program)
            .args(words.split_whitespace())
            .args(files.is_empty().then_some("--json"))
            .current_dir(folder)
            .env("XDG_STATE_HOME", folder)
            .stdin(Stdio::null())
            .stdout(create(&out)?)
            .stderr(create(&told)?)
            .spawn()
            .map_err(failed(self.program.display()))?;
        let Some(status) = wait(&mut child, Duration::from_secs(60 * self.flags.limit))? else {
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
            if wait(&mut child, TO_END)?.is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
            let limit = self.flags.limit;
            let why = format!("`stopgap {words}` did not end within --limit {limit} minutes");
            return Ok(Err(Verdict::NotJudged(why)));
        };
        let read = |path: &Path| fs::read_to_string(path).map_err(failed(path.display()));
        let (out, told) = (read(&out)?, read(&told)?);
        let failed = |why: String| format!("`stopgap {words}`: {why}");
        Ok(match status.code() {
            Some(0) if !files.is_empty() => Ok(Value::String(out)),
            Some(0) => serde_json::from_str(&out)
                .map_err(|error| Verdict::NotJudged(failed(format!("its record: {error}")))),
            Some(UNSUPPORTED) => Err(Verdict::Lacks(failed(told.trim().to_owned()))),
            _ => Err(Verdict::NotJudged(failed(format!(
                "{status}, {}",
                told.trim()
            )))),
        })
    }
}

/// Returns so many numbers with this mean and standard deviation: half lie as far below the mean as the others above.
fn numbers(count: u32, mean: f64, deviation: f64) -> String {
    let away = deviation * (1.0 - 1.0 / f64::from(count)).sqrt();
    let of = |at| mean + if at % 2 == 0 { away } else { -away };
    (0..count).map(|at| format!("{}\n", of(at))).collect()
}
