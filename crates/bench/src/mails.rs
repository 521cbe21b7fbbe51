//! `stopgap-bench mails`: the claims of the five mails, each held against what a command prints, as `docs/mails.md` and a
//! page a mail.
//!
//! No verdict and no figure of ours is typed. A claim (`mails/claims/*.json`) quotes the mail and names a command, the figures to
//! read from its record, and a criterion that was fixed before looking:
//!
//! ```text
//! for each trial: seed 1, 2, 3, and twice the length -> stopgap COMMAND --json -> record -> figures, holds or not
//! all trials hold: agrees;  else: differs, and somebody must have written why;  no hardware: cannot be tested here
//! ```
//!
//! Exit status 1 where a claim was not judged, or differs without a reason; nothing is then written.

mod claim;
mod expression;
mod page;
mod record;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::signals;

use crate::common::{Stopgap, failed, folder, wait};
use claim::{Claim, Command, MAILS, Mail};
use record::{Record, look};

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
    #[command(flatten)]
    stopgap: Stopgap,
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
struct Judged<'a> {
    claim: &'a Claim,
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
    let trials = bench.trials.clone();
    let bar = progress_bar();
    let chosen = |mail: &&Mail| flags.only.is_empty() || flags.only.contains(&mail.number);
    let mails: Vec<&Mail> = MAILS.iter().filter(chosen).collect();
    let all: usize = mails.iter().map(|mail| mail.claims.len()).sum();
    let (mut done, mut faults, mut pages) = (0, Vec::new(), Vec::new());
    for mail in mails {
        let mut page = Vec::new();
        for (at, claim) in mail.claims.iter().enumerate() {
            done += 1;
            if flags.quick && !mail.commands(claim).all(Command::is_quick) {
                continue;
            }
            let id = format!("{}.{}", mail.number, at + 1);
            bar.set_position((done * 1_000 / all) as u64);
            bar.set_message(format!("{done} of {all} claims: {id} {}", claim.title));
            let judged = judge(mail, claim, id, &trials, &mut |words, command| {
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
        let text = page::page(mail, &page, &trials, bench.records.values().flatten());
        pages.push((mail, text));
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

impl Judged<'_> {
    /// Says why the claim's page may not be written.
    fn fault(&self) -> Option<String> {
        match &self.verdict {
            Verdict::NotJudged(why) => Some(why.clone()),
            Verdict::Differs if self.claim.because.is_empty() => {
                let failing = self.seen.iter().find(|(.., holds)| !holds);
                let prints = failing.map_or("", |(_, prints, _)| prints);
                Some(format!("differs ({prints}): write why, in `because`"))
            }
            _ => None,
        }
    }
}

/// Judges a claim by the records that `record` gives of its commands.
fn judge<'a>(
    mail: &'a Mail,
    claim: &'a Claim,
    id: String,
    trials: &[Trial],
    record: &mut dyn FnMut(&str, &Command) -> Result<Value, Verdict>,
) -> Judged<'a> {
    let mut judged = Judged {
        claim,
        id,
        verdict: Verdict::Agrees,
        commands: Vec::new(),
        seen: Vec::new(),
    };
    judged.verdict = match &claim.lacks {
        Some(what) => Verdict::Lacks(what.clone()),
        None => judged
            .look(&mail.commands(claim).collect::<Vec<_>>(), trials, record)
            .unwrap_or_else(|verdict| verdict),
    };
    judged
}

impl Judged<'_> {
    /// Looks at the records of each trial. A claim of probes alone has one.
    fn look(
        &mut self,
        commands: &[&Command],
        trials: &[Trial],
        record: &mut dyn FnMut(&str, &Command) -> Result<Value, Verdict>,
    ) -> Result<Verdict, Verdict> {
        let varies = commands.iter().any(|command| command.longer.is_some());
        for &(seed, length) in if varies { trials } else { &trials[..1] } {
            let mut records = Vec::new();
            for &command in commands {
                let words = command.words(seed, length);
                let value = record(&words, command)?;
                let command = format!("stopgap {words}");
                records.push(Record { command, value });
            }
            let seen = look(self.claim, &records);
            if self.commands.is_empty() {
                self.commands = records.into_iter().map(|record| record.command).collect();
            }
            let (prints, holds) = seen.map_err(|why| match why.strip_prefix(INCONCLUSIVE) {
                Some(why) => Verdict::Lacks(format!(
                    "a quieter machine: the probe was inconclusive{why}"
                )),
                None => Verdict::NotJudged(why),
            })?;
            let name = if varies && trials.len() > 1 {
                name((seed, length))
            } else {
                String::new()
            };
            self.seen.push((name, prints, holds));
        }
        Ok(match self.seen.iter().all(|(.., holds)| *holds) {
            true => Verdict::Agrees,
            false => Verdict::Differs,
        })
    }
}

/// Names a trial.
fn name((seed, length): Trial) -> String {
    match length {
        1 => format!("with seed {seed}"),
        _ => format!("with seed {seed} for {length} times as long"),
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
        let mut trials: Vec<Trial> = flags.seeds.iter().map(|&seed| (seed, 1)).collect();
        if flags.quick {
            trials.truncate(1);
        } else if flags.length > 1 {
            trials.push((flags.seeds[0], flags.length));
        }
        Ok(Bench {
            flags,
            program: flags.stopgap.program()?,
            folder: folder("mails")?,
            trials,
            records: BTreeMap::new(),
        })
    }

    /// Returns the record of a command, or the verdict of its claims where there is none.
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
        for (name, count, mean, deviation) in &command.files {
            let path = folder.join(name);
            fs::write(&path, numbers(*count, *mean, *deviation)).map_err(failed(path.display()))?;
        }
        let (out, told) = (folder.join("out"), folder.join("told"));
        let create = |path: &Path| File::create(path).map_err(failed(path.display()));
        let mut child = process::Command::new(&self.program)
            .args(words.split_whitespace())
            .args(command.files.is_empty().then_some("--json"))
            .current_dir(folder)
            .env("XDG_STATE_HOME", folder)
            .stdin(Stdio::null())
            .stdout(create(&out)?)
            .stderr(create(&told)?)
            .spawn()
            .map_err(failed(self.program.display()))?;
        let limit = self.flags.limit;
        let Some(status) = wait(&mut child, Duration::from_secs(60 * limit))? else {
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
            if wait(&mut child, TO_END)?.is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
            let why = format!("`stopgap {words}` did not end within --limit {limit} minutes");
            return Ok(Err(Verdict::NotJudged(why)));
        };
        let read = |path: &Path| fs::read_to_string(path).map_err(failed(path.display()));
        let (out, told) = (read(&out)?, read(&told)?);
        let told = told.trim();
        let failed = |why: String| format!("`stopgap {words}`: {why}");
        Ok(match status.code() {
            Some(0) if !command.files.is_empty() => Ok(Value::String(out)),
            Some(0) => serde_json::from_str(&out)
                .map_err(|error| Verdict::NotJudged(failed(format!("its record: {error}")))),
            Some(UNSUPPORTED) => Err(Verdict::Lacks(failed(told.to_owned()))),
            _ => Err(Verdict::NotJudged(failed(format!("{status}, {told}")))),
        })
    }
}

/// Returns so many numbers with this mean and standard deviation: half lie as far below the mean as the others above.
fn numbers(count: u32, mean: f64, deviation: f64) -> String {
    let away = deviation * (1.0 - 1.0 / f64::from(count)).sqrt();
    let number = |at| mean + if at % 2 == 0 { away } else { -away };
    (0..count).map(|at| format!("{}\n", number(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_mean_and_deviation_that_were_asked() {
        let values: Vec<f64> = numbers(120, 9_579.467_1, 9_552.865)
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        let mean = values.iter().sum::<f64>() / 120.0;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        assert_eq!(values.len(), 120);
        assert!((mean - 9_579.467_1).abs() < 1e-6);
        assert!(((squares / 119.0).sqrt() - 9_552.865).abs() < 1e-6);
    }

    /// A mail with a claim about a model, one about a probe, and one that differs without a reason.
    fn mail() -> Mail {
        let claim = |command, holds, because| {
            serde_json::json!({"title": "x", "lines": "1", "quote": "words", "commands": [command],
                "read": {"x": "x"}, "prints": "{x}", "holds": holds, "holds_if": "x is large", "because": because})
        };
        let mail = serde_json::json!({"number": "000", "title": "", "commands": {
                "model": {"words": "replay chunks", "longer": "--buffers {}", "usual": 50},
                "probe": {"words": "probe chunks"},
            }, "claims": [claim("model", "x > 1", "a reason"), claim("probe", "x > 1", ""), claim("model", "x > 3", "")]});
        serde_json::from_value(mail).unwrap()
    }

    fn judged(mail: &Mail, claim: usize, mut at: impl Iterator<Item = Value>) -> Judged<'_> {
        let mut record = |_: &str, _: &Command| Ok(at.next().unwrap());
        let trials = [(1, 1), (1, 2)];
        judge(
            mail,
            &mail.claims[claim],
            "000.1".to_owned(),
            &trials,
            &mut record,
        )
    }

    #[test]
    fn a_claim_agrees_where_its_criterion_holds_in_every_trial() {
        let mail = mail();
        let x = |values: [f64; 2]| values.into_iter().map(|x| serde_json::json!({ "x": x }));
        let agrees = judged(&mail, 0, x([2.0, 2.0]));
        assert_eq!((&agrees.verdict, agrees.fault()), (&Verdict::Agrees, None));
        assert_eq!(agrees.commands, ["stopgap replay chunks --seed 1"]);
        let names: Vec<&str> = agrees.seen.iter().map(|(name, ..)| &**name).collect();
        assert_eq!(names, ["with seed 1", "with seed 1 for 2 times as long"]);
        let once = judged(&mail, 0, x([2.0, 0.5]));
        assert_eq!((&once.verdict, once.fault()), (&Verdict::Differs, None));
        let differs = judged(&mail, 2, x([2.0, 2.0]));
        assert!(
            differs
                .fault()
                .unwrap()
                .contains("(2.00): write why, in `because`")
        );
        // A probe runs once.
        let probe = judged(&mail, 1, x([2.0, 0.0]));
        assert_eq!((probe.verdict, probe.seen.len()), (Verdict::Agrees, 1));
    }

    #[test]
    fn a_record_without_the_figure_is_no_verdict() {
        let mail = mail();
        let judged = judged(&mail, 0, std::iter::repeat(serde_json::json!({})));
        let why = "the record of `stopgap replay chunks --seed 1` has no x";
        assert_eq!(judged.verdict, Verdict::NotJudged(why.to_owned()));
        assert_eq!(judged.fault().as_deref(), Some(why));
    }

    #[test]
    fn a_probe_that_cannot_tell_gives_no_verdict() {
        let mut mail = mail();
        mail.claims[1].look = Some("flat".to_owned());
        let verdict = serde_json::json!({"word": "inconclusive", "text": "inconclusive: 1 run"});
        let record = serde_json::json!({"answers": [{"verdict": verdict}]});
        let judged = judged(&mail, 1, std::iter::once(record));
        let why = "a quieter machine: the probe was inconclusive: 1 run";
        assert_eq!(judged.verdict, Verdict::Lacks(why.to_owned()));
    }

    #[test]
    fn a_model_runs_twice_as_long_by_its_own_flag() {
        let mail = mail();
        let model = &mail.commands["model"];
        assert_eq!(model.words(3, 1), "replay chunks --seed 3");
        assert_eq!(model.words(1, 2), "replay chunks --seed 1 --buffers 100");
    }

    /// Their figures are found in no record here: every other fault of an expression would come before that.
    #[test]
    fn the_claims_are_whole() {
        let claims = || {
            MAILS
                .iter()
                .flat_map(|mail| mail.claims.iter().map(move |claim| (mail, claim)))
        };
        assert!(claims().count() >= 60);
        assert!(claims().filter(|(_, claim)| claim.conclusion).count() >= 4);
        for (mail, claim) in claims() {
            let title = &claim.title;
            assert!((11..400).contains(&claim.quote.len()), "{title}");
            assert!(
                claim.lines.starts_with(|c: char| c.is_ascii_digit()),
                "{title}"
            );
            assert_eq!(claim.commands.is_empty(), claim.lacks.is_some(), "{title}");
            assert_eq!(claim.holds_if.is_empty(), claim.lacks.is_some(), "{title}");
            assert!(mail.commands(claim).count() <= 2, "{title}");
            if claim.look.is_none() && claim.lacks.is_none() {
                let figures = claim.read.keys().map(|name| (name.clone(), 1.0)).collect();
                expression::value(&claim.holds, &figures).unwrap();
                expression::filled(&claim.prints, &figures).unwrap();
            }
        }
    }
}
