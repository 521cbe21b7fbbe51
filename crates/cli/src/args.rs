//! Every flag, once. The help texts are the manual: each says what, in which unit, and what
//! happens without it.
//!
//! The commands of a few flags are here; `probe` and `replay` have a file each.

mod campaign;
mod chunks;
mod compare;
mod fleet;
mod kernels;
mod ministat;
mod probe;
mod reclaim;
mod record;
mod replay;
mod roundtrip;
mod run;
mod shell;
mod values;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{StyledStr, Styles};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use stopgap_events::question::Question;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_explain::Request;

use crate::export::Form;
use crate::failure::{DONE, ERROR, Failure, NOT_THE_COMMAND};
use crate::voice::{self, Voice};
use crate::{output, places};

pub(crate) use campaign::{Campaign, CampaignPlace, CampaignStep};
pub(crate) use chunks::{Advise, AdviseChunks, AdviseQuestion, ChunksInput, ReplayChunks};
pub(crate) use compare::{CannotTell, Compare, FailOn};
pub(crate) use fleet::Fleet;
pub(crate) use kernels::Kernels;
pub(crate) use ministat::Ministat;
pub(crate) use probe::{
    ChunksBackend, ChunksFlags, PlacementFlags, Probe, ProbeCommon, ProbeQuestion, ReclaimFlags,
    RoundtripFlags,
};
pub(crate) use reclaim::ReplayReclaim;
pub(crate) use record::Record;
pub use replay::ReplayPlacement;
pub(crate) use replay::{Replay, ReplayQuestion};
pub(crate) use roundtrip::ReplayRoundtrip;
pub(crate) use run::RunFix;
pub(crate) use shell::{Completions, Man, Shell};
pub use values::count;
use values::{MOST_OPERATIONS, age, between, pid, size};
pub(crate) use values::{margin, time};
pub(crate) use watch::{FAULT, Frame, FrameOf, Limit, MapGrowth, Resource, Watch, What};

/// Find the stall, name its cause, try the fix, before you patch the kernel.
#[derive(Debug, Parser)]
#[command(name = "stopgap", version = VERSION, propagate_version = true, max_term_width = WIDEST,
          help_template = template(), after_help = EXIT)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) voice: Voice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Version, commit and features, as `--version` prints them.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("STOPGAP_COMMIT"),
    ", features: ",
    env!("STOPGAP_FEATURES"),
    ")"
);

/// Columns of a help text.
const WIDEST: usize = 80;

const EXIT: &str = "\
Exit status: 0 done, 1 error, 3 unsupported here (check: no question
could be answered). Gates of compare and kernels: 2 regression, 4
cannot tell; with --bisect 0, 1, 125. record and run: the command's.

Start with: stopgap check";

/// What a user wants to do, and the commands for it. Commands that are not named here stand below them, as "Others".
const GROUPS: [(&str, &[&str]); 3] = [
    ("Look at this machine", &["check", "watch", "doctor"]),
    (
        "Look at a program",
        &["record", "explain", "run", "compare", "campaign", "fleet"],
    ),
    ("Ask what if", &["replay", "advise", "snapshot", "kernels"]),
];

/// Returns the help of `stopgap` with its commands in groups. clap groups flags, but no commands.
fn template() -> StyledStr {
    let commands = Command::augment_subcommands(clap::Command::new("stopgap"));
    let shown: Vec<_> = commands
        .get_subcommands()
        .filter(|c| !c.is_hide_set())
        .collect();
    let longest = shown.iter().map(|command| command.get_name().len()).max();
    let longest = longest.unwrap_or_default();
    let (head, literal) = (Styles::default(), Styles::default());
    let (head, literal) = (*head.get_header(), *literal.get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    let mut group = |title: &str, members: &[&clap::Command]| {
        text.push_str(&format!("\n{head}{title}:{head:#}\n"));
        for command in members {
            let (name, about) = (command.get_name(), command.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!(
                "  {literal}{name}{literal:#}{:1$}  {about}\n",
                "",
                longest - name.len()
            ));
        }
    };
    for (title, names) in GROUPS {
        let of = |name: &&str| shown.iter().find(|command| command.get_name() == *name);
        let members: Vec<_> = names.iter().filter_map(of).copied().collect();
        group(title, &members);
    }
    let grouped = |name| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others = shown.iter().filter(|command| !grouped(command.get_name()));
    group("Others", &others.copied().collect::<Vec<_>>());
    text.push_str(&format!(
        "\n{head}Options:{head:#}\n{{options}}{{after-help}}"
    ));
    text.into()
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Test this machine for the four known causes of freezes.
    Check(Check),
    /// Measure one question in depth.
    Probe(Probe),
    /// Record why the threads of a program wait, as a trace.
    Record(Record),
    /// Catch the next freeze and name its cause (root).
    Watch(Watch),
    /// Replay a workload or a trace under other policies.
    Replay(Replay),
    /// Choose the policy that suits a device's buffers.
    Advise(Advise),
    /// Explain a trace: who waited for what, and why.
    Explain(Explain),
    /// Compare two sides of runs; exit status for CI.
    Compare(Compare),
    /// Compare two kernels or settings over many boots.
    Campaign(Campaign),
    /// Ask thousands of traces: causes, kernels, policies.
    Fleet(Fleet),
    /// Count the instructions of two kernels in emulation.
    Kernels(Kernels),
    /// Convert a trace for Perfetto, Chrome or as CSV.
    Export(Export),
    /// Compare columns of numbers like FreeBSD's ministat.
    Ministat(Ministat),
    /// Save how physical memory lies, for a replay.
    Snapshot(Snapshot),
    /// Make one HTML page with pictures of records.
    Report(Report),
    /// Run a program with a fix, without rebuilding it.
    Run(RunFix),
    /// Show what this machine and this user allow.
    Doctor(Doctor),
    /// Put back settings that a killed run left changed.
    Restore(Restore),
    /// Delete old records, reports and traces.
    Prune(Prune),
    /// Print the completions for bash, zsh or fish.
    Completions(Completions),
    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Man(Man),
}

impl Command {
    /// Whether it is not to put back, as every other command, what killed runs left: it only says what it would do, or it does
    /// so itself.
    pub(crate) fn leaves_all_as_it_is(&self) -> bool {
        match self {
            Command::Check(flags) => flags.common.dry_run,
            Command::Probe(probe) => probe.question.common().common.dry_run,
            Command::Kernels(flags) => flags.dry_run,
            Command::Watch(flags) => {
                flags.finish.is_some() || flags.thin.is_some() || flags.history.is_some()
            }
            Command::Campaign(flags) => flags.step.leaves_all_as_it_is(),
            Command::Fleet(_) | Command::Restore(_) | Command::Completions(_) | Command::Man(_) => {
                true
            }
            _ => false,
        }
    }
}

/// Where the record of a command goes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Place {
    /// Write the record into this directory [default: $XDG_STATE_HOME/stopgap or
    /// ~/.local/state/stopgap].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Write no record, and no other file that stays.
    #[arg(long, conflicts_with = "output")]
    pub(crate) no_record: bool,
}

impl Place {
    /// Finds the directory for the record before any work is done. `None`: no record is wanted.
    ///
    /// # Errors
    /// Where the directory cannot be made or written to.
    pub(crate) fn directory(&self) -> Result<Option<PathBuf>, Failure> {
        match self.no_record {
            true => Ok(None),
            false => places::records(self.output.as_deref()).map(Some),
        }
    }
}

/// Flags of every command that measures.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Print the record as JSON (schema stopgap.run/1) instead of the screen.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what would be run, touched and used, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Set the seed of every random choice [default: from the clock; the record has it].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Let load use so much memory, as 512M [default: a quarter of MemAvailable, at most 2G].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<Bytes>,
    /// Stay on these CPUs, as 0,1 [default: all that this process may use].
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) cpus: Option<Vec<u32>>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Make fewer runs of fewer variants: about 15 s, wider intervals.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only look, and put no load on the machine: under 2 s, safe in production.
    #[arg(long, conflicts_with_all = ["quick", "only"])]
    pub(crate) passive: bool,
    /// Ask about this process: its mappings and tasks. Placement is tested beside as many
    /// mappings.
    #[arg(short, long, value_name = "PID", value_parser = pid)]
    pub(crate) pid: Option<u32>,
    /// Ask these questions only, as placement,chunks; wakeup can be named, too [default: all
    /// four].
    #[arg(long, value_name = "QUESTION", value_delimiter = ',')]
    pub(crate) only: Vec<Question>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// Trace file, or JSON lines (docs/trace.md).
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Print JSON (schema stopgap.explain/2) instead of the screen.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show so many of the slowest operations with --verbose or --json, at most 10k.
    #[arg(long, value_name = "N", value_parser = count, default_value = "10")]
    pub(crate) top: u64,
    /// End a frame at this event, and show switches and lost time per frame: the name of a mark, a
    /// system call as it begins, or the word of a kind of event (fence-wait-end).
    #[arg(long, value_name = "EVENT|SYSCALL")]
    pub(crate) frame_marker: Option<String>,
    /// Show where the time of a request went. It begins and ends with two system calls on one
    /// descriptor, as write..read, or with two marks, as mark:begin..mark:end.
    #[arg(long, value_name = "BEGIN..END")]
    pub(crate) request: Option<Request>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Trace file, JSON lines (docs/trace.md), or a built-in workload: pbobench, agua,
    /// freegap-posted, freegap-innermprot, freegap-innerremap, frag, aligned, limits, tight-1.03,
    /// tight-1.06, many-sizes, phases, sequential. Write ./frag for a file of such a name.
    #[arg(value_name = "INPUT")]
    pub(crate) input: PathBuf,
    /// Write this form: trace (Parquet), jsonl (JSON lines), perfetto (for ui.perfetto.dev),
    /// chrome (JSON for chrome://tracing), csv [default: by the name of the file].
    #[arg(long, value_name = "FORM")]
    pub(crate) to: Option<Form>,
    /// Write this file, which only you can read: x.parquet, x.jsonl, x.perfetto or x.pftrace,
    /// x.json (chrome), x.csv. Another name needs --to, as does - for standard output (jsonl,
    /// chrome, csv). A file of that name is replaced when all is written, unless it is the input.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace names by hashes: host, command lines, labels, paths, cgroups, processes, threads,
    /// marks, functions of programs. The salt stays in this user's state directory. Numbers,
    /// times, system calls and the kernel's functions stay.
    #[arg(long)]
    pub(crate) anonymous: bool,
    /// Make so many mappings of a workload, as 40k [default: the workload's].
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) n: Option<u64>,
    /// Carry out so many operations of a workload after its layout; a map is one and an unmap is
    /// one [default: the workload's] [up to 100m].
    #[arg(long, value_name = "N", value_parser = between::<0, MOST_OPERATIONS>)]
    pub(crate) ops: Option<u64>,
    /// Set the seed of a workload's random choices [default: 1].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Snapshot {
    /// Write this file (JSON, schema stopgap.snapshot/1); - is standard output, without the
    /// summary. A file of that name is replaced when all is written [default: a new file where
    /// records go: $XDG_STATE_HOME/stopgap or ~/.local/state/stopgap].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    /// Records (JSON) of check, probe, replay, explain --json and compare, at most 200. Runs of
    /// one question are shown together, different machines side by side.
    #[arg(value_name = "RUN", required = true)]
    pub(crate) records: Vec<PathBuf>,
    /// Write this file; - is standard output. A file of that name is replaced [default: beside one
    /// record, with .html; report.html beside the first of several].
    #[arg(short, long, value_name = "FILE", conflicts_with = "terminal")]
    pub(crate) output: Option<PathBuf>,
    /// Print a short form instead of writing a page.
    #[arg(long)]
    pub(crate) terminal: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Print JSON (schema stopgap.doctor/1) instead of the screen.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Deletes files that stopgap wrote and named where records go by default:
$XDG_STATE_HOME/stopgap or ~/.local/state/stopgap. It deletes no file that was
written elsewhere with -o, no stall of watch (see watch --disk), and nothing
that belongs to another user.")]
pub(crate) struct Prune {
    /// Delete what was written longer ago than this, as 30d or 12h.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older: Nanos,
    /// Print what would be deleted, and delete nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// Print JSON (schema stopgap.restore/1) instead of the screen.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Returns the definition of the command line, for completions, manual pages and checks of documents.
#[must_use]
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Reads the command line of the program that `A` defines.
///
/// # Errors
/// [`Failure`]: what is wrong with it, in one line, or that help was asked for and is printed.
pub fn parse<A: Parser>() -> Result<A, Failure> {
    parse_words(&std::env::args_os().collect::<Vec<_>>())
}

/// Reads `words`, program name first, as [`parse`] does.
pub(crate) fn parse_words<A: Parser>(words: &[OsString]) -> Result<A, Failure> {
    let mut program = A::command().color(voice::colour_of_help(words));
    let matches = program.try_get_matches_from_mut(words);
    let read = matches.and_then(|mut matches| A::from_arg_matches_mut(&mut matches));
    read.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let status = if error.use_stderr() { ERROR } else { DONE };
            let printed = match error.kind() {
                // clap would name the sub-command as if it were a program of its own.
                ErrorKind::DisplayVersion => {
                    writeln!(io::stdout(), "{}", program.render_version().trim())
                }
                _ => error.print(),
            };
            match output::written_out(printed) {
                Ok(()) => Failure::Silent { status },
                Err(failure) => failure,
            }
        }
        _ => Failure::Told {
            message: one_line(&error, &program, words),
            status: match words.get(1).and_then(|word| word.to_str()) {
                // A drop-in, down to its exit status.
                Some("ministat") => crate::ministat::WRONG,
                // The others are the command's.
                Some(word) if has_status_of_command(word, words) => NOT_THE_COMMAND,
                _ => ERROR,
            },
        },
    })
}

/// Returns whether `word`, with the command line `words`, would end with the status of the command that it runs.
fn has_status_of_command(word: &str, words: &[OsString]) -> bool {
    let own = words.iter().position(|word| word == "--");
    own.is_some_and(|own| match word {
        "record" => true,
        "run" => !words[..own].iter().any(|word| word == "--measure"),
        _ => false,
    })
}

/// Returns what is wrong with the command line `words`, and whose help to read.
fn one_line(error: &clap::Error, program: &clap::Command, words: &[OsString]) -> String {
    let (mut command, mut name) = (program, program.get_name().to_owned());
    for word in words.iter().skip(1) {
        let Some(inner) = command.find_subcommand(word) else {
            break;
        };
        // The word after `help` names another command than its own.
        if inner.get_name() == "help" {
            break;
        }
        command = inner;
        name = format!("{name} {}", inner.get_name());
    }
    let help = format!("'{name} --help'");
    let asks = program.find_subcommand(command.get_name()).is_some();
    if let (ErrorKind::InvalidSubcommand, true, Some(ContextValue::String(word))) = (
        error.kind(),
        asks,
        error.get(ContextKind::InvalidSubcommand),
    ) {
        let names = command.get_subcommands().map(clap::Command::get_name);
        let names: Vec<&str> = names.filter(|&name| name != "help").collect();
        let kind = command.get_subcommand_value_name().unwrap_or("command");
        return format!(
            "unknown {} '{word}'; there are {}; see {help}",
            kind.to_lowercase(),
            names.join(", ")
        );
    }
    let text = error.to_string();
    let what = text.lines().take_while(|line| !line.is_empty());
    let what: Vec<&str> = what.map(str::trim).collect();
    let what = what.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    if let Some(owner) = whose(error, command) {
        return format!("{what}: it belongs to {owner}; see {help}");
    }
    match meant(error) {
        Some(words) => format!("{what}; did you mean {words}? See {help}"),
        None => format!("{what}; see {help}"),
    }
}

/// Returns the commands that take the unknown flag, as `check ('stopgap check --quick')`, where it stands before the command.
fn whose(error: &clap::Error, command: &clap::Command) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let long = flag.strip_prefix("--")?.split('=').next()?;
    let takes = |one: &&clap::Command| one.get_arguments().any(|arg| arg.get_long() == Some(long));
    let names = command.get_subcommands().filter(takes);
    let names: Vec<&str> = names.map(clap::Command::get_name).collect();
    let first = names.first()?;
    let all = names.join(", ");
    let of = command.get_name();
    (error.kind() == ErrorKind::UnknownArgument).then(|| format!("{all} ('{of} {first} --{long}')"))
}

/// Returns the words that are spelt much like the wrong one.
fn meant(error: &clap::Error) -> Option<String> {
    let kinds = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    let quoted = |word: &String| format!("'{word}'");
    let words: Vec<String> = match kinds.iter().find_map(|&kind| error.get(kind))? {
        ContextValue::String(word) => vec![quoted(word)],
        ContextValue::Strings(words) => words.iter().map(quoted).collect(),
        _ => Vec::new(),
    };
    (!words.is_empty()).then(|| words.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_help_names_every_workload() {
        let mut command = Args::command();
        let export = command.find_subcommand_mut("export").unwrap();
        let help = export.render_long_help().to_string();
        for workload in stopgap_events::workload::Workload::ALL {
            assert!(help.contains(workload.word()), "{workload}");
        }
    }

    #[test]
    fn the_help_of_kernels_names_every_workload() {
        let mut command = Args::command();
        let kernels = command.find_subcommand_mut("kernels").unwrap();
        let help = kernels.render_long_help().to_string();
        for word in stopgap_guest::protocol::words() {
            assert!(help.contains(word), "{word}");
        }
    }

    #[test]
    fn the_help_of_a_replay_names_every_policy() {
        let mut command = Args::command();
        let replay = command.find_subcommand_mut("replay").unwrap();
        let mut help = |question: &str| {
            let question = replay.find_subcommand_mut(question).unwrap();
            question.render_long_help().to_string()
        };
        let placement = help("placement");
        for policy in stopgap_placement::registry::Name::ALL {
            assert!(placement.contains(&policy.to_string()), "{policy}");
        }
        let chunks = help("chunks");
        for policy in stopgap_chunks::policy::Name::ALL {
            assert!(chunks.contains(policy.word()), "{policy}");
        }
        let reclaim = help("reclaim");
        let policies = stopgap_models::reclaim::Policy::ALL
            .iter()
            .map(|policy| policy.word());
        let releases = stopgap_models::reclaim::Release::ALL
            .iter()
            .map(|release| release.word());
        let loads = stopgap_events::reclaim::Load::ALL
            .iter()
            .map(|load| load.word());
        for word in policies.chain(releases).chain(loads) {
            assert!(reclaim.contains(word), "{word}");
        }
        for scenario in stopgap_models::chunks::scenario::Scenario::ALL {
            assert!(chunks.contains(&scenario.to_string()), "{scenario}");
        }
    }

    /// Each command stands in the help once, with its own words, on one short line.
    #[test]
    fn the_help_has_every_command_in_a_group() {
        let mut program = Args::command();
        let help = program.render_help().to_string();
        for command in Args::command().get_subcommands() {
            let about = command.get_about().unwrap().to_string();
            let name = command.get_name();
            let lines = help.lines().filter(|line| {
                let words = line
                    .strip_prefix("  ")
                    .and_then(|line| line.strip_prefix(name));
                words.is_some_and(|words| words.trim() == about)
            });
            let times = if command.is_hide_set() { 0 } else { 1 };
            assert_eq!(lines.count(), times, "{name}: {help}");
        }
        for (_, names) in GROUPS {
            for name in names {
                assert!(program.find_subcommand(name).is_some(), "{name}");
            }
        }
        let mut commands = help.lines().skip_while(|line| !line.starts_with("Look at"));
        let commands = commands.by_ref().take_while(|line| *line != "Options:");
        for line in commands {
            assert!(line.chars().count() <= 70, "{line}");
        }
        for heading in [
            "Look at this machine:",
            "Look at a program:",
            "Ask what if:",
            "Others:",
        ] {
            assert!(help.contains(&format!("\n{heading}\n")), "{help}");
        }
    }

    /// The texts of all commands fit the usual terminal. Usage lines and examples are not wrapped.
    #[test]
    fn help_fits_80_columns() {
        fn check(command: &mut clap::Command, path: &str) {
            for help in [command.render_help(), command.render_long_help()] {
                let text = help.to_string();
                for line in text.lines().filter(|line| !line.starts_with("Usage:")) {
                    assert!(line.chars().count() <= 80, "{path}: {line}");
                }
            }
            let names: Vec<String> = command
                .get_subcommands()
                .map(|c| c.get_name().to_owned())
                .collect();
            for name in names {
                let inner = command.find_subcommand_mut(&name).unwrap();
                check(inner, &format!("{path} {name}"));
            }
        }
        let mut program = Args::command();
        program.build();
        check(&mut program, "stopgap");
    }

    fn told(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut program = Args::command();
        let error = program.try_get_matches_from_mut(&words).unwrap_err();
        one_line(&error, &program, &words)
    }

    #[test]
    fn a_misspelt_word_is_told_with_the_right_one() {
        for (line, meant, help) in [
            ("stopgap chekc", "check", "stopgap"),
            ("stopgap check --passiv", "--passive", "stopgap check"),
            ("stopgap doctor --color alway", "always", "stopgap doctor"),
            ("stopgap record --onyl -- ls", "--only", "stopgap record"),
            ("stopgap run --measur -- ls", "--measure", "stopgap run"),
        ] {
            let said = told(line);
            let end = format!("; did you mean '{meant}'? See '{help} --help'");
            assert!(said.ends_with(&end), "{said}");
        }
    }

    #[test]
    fn a_flag_before_its_command_is_told_with_the_command() {
        let said = told("stopgap --quick check");
        assert_eq!(
            said,
            "unexpected argument '--quick' found: it belongs to check ('stopgap check --quick'); see 'stopgap --help'"
        );
        assert!(told("stopgap --nothing check").ends_with("found; see 'stopgap --help'"));
    }

    #[test]
    fn a_wrong_command_line_is_told_in_one_line_with_whose_help_to_read() {
        for (line, help) in [
            ("stopgap check --only gpu", "stopgap check"),
            ("stopgap check --passive --quick", "stopgap check"),
            ("stopgap probe placement --n x", "stopgap probe placement"),
            ("stopgap probe placement -d 5x", "stopgap probe placement"),
            ("stopgap compare a b -n 9", "stopgap compare"),
        ] {
            let said = told(line);
            assert!(!said.contains('\n'), "{said}");
            assert!(said.ends_with(&format!("; see '{help} --help'")), "{said}");
        }
        for (line, questions) in [
            ("stopgap advise gpu", "chunks"),
            (
                "stopgap replay gpu",
                "placement, chunks, roundtrip, reclaim",
            ),
        ] {
            let said = told(line);
            let told = format!("unknown question 'gpu'; there are {questions}; see");
            assert!(said.starts_with(&told), "{said}");
        }
        let said = told("stopgap campaign begin");
        let starts = "unknown command 'begin'; there are start, run, status, stop; see";
        assert!(said.starts_with(starts), "{said}");
        assert_eq!(
            told("stopgap help frobnicate"),
            "unrecognized subcommand 'frobnicate'; see 'stopgap --help'"
        );
    }

    #[test]
    fn counts_have_one_form() {
        let parse = |line: &str| Args::try_parse_from(line.split(' ')).unwrap().command;
        let Command::Probe(probe) = parse("stopgap probe placement --n 10k,2m --threads 1k") else {
            panic!("another command");
        };
        let ProbeQuestion::Placement(flags) = probe.question else {
            panic!("another question");
        };
        assert_eq!(flags.n, [10_000, 2_000_000]);
        assert_eq!(flags.threads, Some(vec![1_000]));
    }
}
