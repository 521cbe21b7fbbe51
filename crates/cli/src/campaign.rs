//! `stopgap campaign`: probes or commands over boots, kernels or settings, in an order that a coin drew.
//!
//! * `plan`: the plan, checked as a whole.
//! * `state`: what was done, and what that makes due.
//! * `commands`: the commands of a plan, run.
//!
//! The state is on the disk before each step, so that a power cut at any moment loses at most the occasion that was measured,
//! which is repeated and counted as cut off. Settings are in a journal of the campaign's own: a probe that the campaign runs may
//! change others meanwhile.

mod commands;
mod plan;
mod state;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use stopgap_events::units::Nanos;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::conditions::Watch;
use stopgap_kernel::files::{Files, read_choice, read_lossy, read_text};
use stopgap_kernel::folder::Folder;
use stopgap_kernel::journal::{self, Journal};
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, environment, signals};
use stopgap_report::compare::{Beside, screen};
use stopgap_report::table::Style;
use stopgap_report::text::{command_line, plain, uptime};
use stopgap_stats::compare::{Occasion, detectable};
use stopgap_stats::document::Document;
use stopgap_stats::gather::Label;
use stopgap_stats::read;

use crate::args::{self, CampaignStep};
use crate::failure::{DONE, Failure};
use crate::session::tell;
use crate::{compare, output, places, session, voice, whole_file};
use commands::{Shell, sleep};
use plan::Plan;
use state::{Outcome, SCHEMA, State, Step};

const FILE: &str = "state.json";
const USUAL: &str = "/var/lib/stopgap/campaign";
const UNIT: &str = "stopgap-campaign.service";
const WANTED: &str = "/etc/systemd/system/multi-user.target.wants/stopgap-campaign.service";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How long commands that change something may take.
const PATIENCE: Nanos = Nanos::secs(300);

/// The guard of a killed run's command ends within this, and with it the lock on the folder.
const LOCK: Nanos = Nanos::secs(5);

pub(crate) fn run(args: &args::Campaign) -> Result<ExitCode, Failure> {
    signals::install();
    match &args.step {
        CampaignStep::Start {
            plan,
            dry_run,
            place,
        } => start(plan, *dry_run, &Place::new(place)?),
        CampaignStep::Run { place } => go_on(&Place::new(place)?),
        CampaignStep::Status { place } => {
            let place = Place::new(place)?;
            output::print(&status(&place.running()?))?;
            Ok(ExitCode::from(DONE))
        }
        CampaignStep::Stop { place } => stop(&Place::new(place)?),
    }
}

/// Where the state is.
struct Place {
    directory: PathBuf,
    usual: bool,
}

impl Place {
    fn new(given: &args::CampaignPlace) -> Result<Place, Failure> {
        let usual = match Linux.uid() {
            0 => PathBuf::from(USUAL),
            _ => places::would_be(None).join("campaign"),
        };
        let directory = match &given.state {
            None => usual.clone(),
            Some(directory) => {
                std::path::absolute(directory).map_err(|error| cannot(directory, &error))?
            }
        };
        Ok(Place {
            usual: directory == usual,
            directory,
        })
    }

    fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    fn journal(&self) -> PathBuf {
        self.directory.join("journal")
    }

    /// Locks the folder, which must be this user's alone: what is in the state is run.
    fn lock(&self) -> Result<OwnedFd, Failure> {
        let wrong = |error: &dyn std::fmt::Display| cannot(&self.directory, error);
        let folder = Folder::open(&self.directory).map_err(|error| wrong(&error))?;
        if !Linux.is_private(&self.directory)? {
            return Err(wrong(&"others may write to it, or it is another user's"));
        }
        let until = Linux.now() + LOCK;
        loop {
            match folder.lock().map_err(|error| wrong(&error))? {
                Some(lock) => return Ok(lock),
                None if Linux.now() < until && !signals::interrupted() => sleep(Nanos::millis(100)),
                None => {
                    return Err(wrong(
                        &"a campaign is at work there; end that first (systemctl stop stopgap-campaign, or Ctrl-C)",
                    ));
                }
            };
        }
    }

    /// Reads the state; `None` where there is none.
    fn state(&self) -> Result<Option<State>, Failure> {
        let path = self.file();
        let bytes = match Linux.read_own(&path) {
            Err(error) if error.is_absent() => return Ok(None),
            bytes => bytes?,
        };
        let remedy =
            "remove it to give the campaign up; stopgap restore does not know its settings";
        let value: serde_json::Value = serde_json::from_slice(&bytes)
            .map_err(|error| cannot(&path, &format!("it is damaged: {error}; {remedy}")))?;
        if value["schema"] != SCHEMA {
            let found = &value["schema"];
            return Err(cannot(
                &path,
                &format!(
                    "its form is {found}, not \"{SCHEMA}\": another version made it; {remedy}"
                ),
            ));
        }
        serde_json::from_value(value)
            .map(Some)
            .map_err(|error| cannot(&path, &format!("it is damaged: {error}; {remedy}")))
    }

    fn running(&self) -> Result<State, Failure> {
        let none = || {
            Failure::error(format!(
                "no campaign in {}; stopgap campaign start PLAN begins one",
                self.directory.display()
            ))
        };
        self.state()?.ok_or_else(none)
    }

    /// Writes the state, so that a power cut finds the new one or the old one.
    fn save(&self, state: &State) -> Result<(), Failure> {
        let written = whole_file::write(&self.file(), output::json(state));
        written
            .and_then(|()| File::open(&self.directory)?.sync_all())
            .map_err(|error| cannot(&self.file(), &error))
    }
}

fn cannot(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::error(format!("{}: {why}", path.display()))
}

/// Returns the file of an occasion's figures.
fn figures(plan: &Plan, label: Label, occasion: usize) -> PathBuf {
    plan.output
        .join(format!("{}-{:03}.json", word(label), occasion + 1))
}

fn word(label: Label) -> &'static str {
    match label {
        Label::Before => "before",
        Label::After => "after",
    }
}

/// Parses the words of the `compare` that will judge it.
fn compare_args(words: Vec<std::ffi::OsString>) -> Result<args::Compare, Failure> {
    match args::Args::try_parse_from(words).map(|args| args.command) {
        Ok(args::Command::Compare(args)) => Ok(args),
        Ok(_) => Err(Failure::error("no comparison")),
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            Err(Failure::error(line.trim_start_matches("error: ")))
        }
    }
}

fn start(path: &Path, dry_run: bool, place: &Place) -> Result<ExitCode, Failure> {
    let mut plan = Plan::read(path)?;
    let wrong = |why: &dyn std::fmt::Display| cannot(path, why);
    compare_args(plan.compare(&["a".into()], &["b".into()]))?;
    if plan.reboot.is_none() {
        let (kernel, line) = booted()?;
        for later in [false, true] {
            let fits = plan.side(later).fits(plan.side(!later), &kernel, &line);
            fits.map_err(|why| wrong(&format!("no boot of both sides, and no reboot: {why}")))?;
        }
    }
    // In another boot a setting may be there that is not in this one.
    let here = plan.before.boot.is_none() && plan.after.boot.is_none();
    for side in [&plan.before, &plan.after] {
        for (file, _) in side.settings().map_err(|why| wrong(&why))? {
            if here && let Err(error) = Linux.read(&file) {
                return Err(wrong(&format!("{}: {error}", file.display())));
            }
        }
    }
    if let Some(old) = place.state()?.filter(|old| old.ended.is_none()) {
        return Err(Failure::error(format!(
            "a campaign is not over ({} of {} occasions): stopgap campaign status; stopgap campaign stop ends it",
            old.done(),
            old.order.len()
        )));
    }
    let seed = session::seed(plan.seed);
    if dry_run {
        let state = State::new(plan, seed, 0);
        output::print(&described(&state, None))?;
        return Ok(ExitCode::from(DONE));
    }
    plan.output = places::records(Some(&plan.output))?;
    let names = Folder::open(&plan.output).map(|folder| folder.names());
    if names.is_ok_and(|names| !names.is_empty()) {
        return Err(wrong(&format!(
            "output {} is not empty: name a new folder",
            plan.output.display()
        )));
    }
    Folder::make(&place.directory).map_err(|error| cannot(&place.directory, &error))?;
    let _lock = place.lock()?;
    if place.state()?.is_some_and(|old| old.ended.is_none()) {
        return Err(cannot(&place.directory, &"another campaign has just begun"));
    }
    let state = State::new(plan, seed, Linux.unix_seconds());
    for label in [Label::Before, Label::After] {
        if here {
            let tried = set(&state, label, place);
            put_back(&tried.map_err(|why| wrong(&format!("side {}: {why}", word(label))))?)?;
        }
    }
    place.save(&state)?;
    output::print(&described(&state, Some(place)))?;
    Ok(ExitCode::from(DONE))
}

/// Returns what a campaign will do, how long that takes, and what it can find.
fn described(state: &State, begun: Option<&Place>) -> String {
    let plan = &state.plan;
    let each = match plan.reboot {
        Some(_) => ", each in a boot of its own",
        None => ", all in one boot",
    };
    let order = state.order.iter().map(|label| match label {
        Label::Before => " A",
        Label::After => " B",
    });
    let order: String = order.collect();
    let whole = Nanos(plan.expected().0 * state.order.len() as u64);
    let mut text = format!(
        "{} occasions per side in random order{each}; seed {}\n\
         A (before): {}\nB (after):  {}\norder{order}\n\
         takes about {}: {} of idling and {} of measuring each{}\n\
         finds, in 4 of 5 campaigns, a change of {:.1} times the scatter between occasions\n",
        plan.occasions,
        state.seed,
        plan.before.name,
        plan.after.name,
        roughly(whole),
        roughly(plan.settle()),
        roughly(plan.takes()),
        if plan.reboot.is_some() {
            ", and a minute to boot"
        } else {
            ""
        },
        detectable(plan.occasions),
    );
    let Some(place) = begun else { return text };
    let run = |step: &str| {
        let flag = match place.usual {
            true => String::new(),
            false => format!(" --state {}", quoted(&place.directory)),
        };
        format!("stopgap campaign {step}{flag}")
    };
    text += &match (&plan.reboot, place.usual && Linux.uid() == 0) {
        (Some(_), true) => {
            "now: systemctl enable --now stopgap-campaign (it reboots at once)\n".to_owned()
        }
        (Some(_), false) => format!("now and after each boot: {}\n", run("run")),
        (None, _) => format!("now: {}\n", run("run")),
    };
    text + &format!(
        "{}; {} ends it and puts everything back\n",
        run("status"),
        run("stop")
    )
}

fn quoted(path: &Path) -> String {
    command_line(&[path.display().to_string()])
}

fn roughly(time: Nanos) -> String {
    uptime(time.0.div_ceil(1_000_000_000))
}

fn status(state: &State) -> String {
    let (done, all) = (state.done(), state.order.len());
    let of = |label| state.done_of(label).count();
    let mut text = format!(
        "{done} of {all} occasions done: {} before, {} after\n",
        of(Label::Before),
        of(Label::After)
    );
    text += &repeated(state);
    if let Some(ended) = &state.ended {
        return format!("{text}{ended}\n");
    }
    let Some(&label) = state.order.get(done) else {
        return text + "the comparison is due: stopgap campaign run\n";
    };
    let begun = state
        .attempts
        .last()
        .filter(|of| of.outcome == Outcome::Begun);
    let doing = match (begun, &state.asked) {
        (Some(_), _) => "begun",
        (None, Some(_)) => "waits for its boot",
        _ => "not begun",
    };
    // A clock that was set makes single differences wrong, not the middle one.
    let starts = state.attempts.windows(2);
    let mut each: Vec<u64> = starts
        .filter_map(|two| two[1].started_unix_s.checked_sub(two[0].started_unix_s))
        .collect();
    each.sort_unstable();
    let each = each.get(each.len() / 2).copied().map(Nanos::secs);
    let left = each.unwrap_or(state.plan.expected()).0 * (all - done) as u64;
    text + &format!(
        "occasion {} ({} '{}'): {doing}; about {} more\n",
        done + 1,
        word(label),
        state.plan.side(label == Label::After).name,
        roughly(Nanos(left))
    )
}

/// Says what did not count.
fn repeated(state: &State) -> String {
    let each = [
        (Outcome::Cut, "cut off and repeated"),
        (Outcome::Interrupted, "interrupted and repeated"),
        (Outcome::Failed, "failed"),
        (Outcome::WrongBoot, "in a wrong boot, not counted"),
    ];
    let each = each.into_iter().filter_map(|(outcome, what)| {
        let times = state.count(outcome);
        (times > 0).then(|| format!("{times} {what}"))
    });
    let each: Vec<String> = each.collect();
    match each.is_empty() {
        true => String::new(),
        false => each.join(", ") + "\n",
    }
}

fn go_on(place: &Place) -> Result<ExitCode, Failure> {
    place.running()?;
    let _lock = place.lock()?;
    let mut state = place.running()?;
    if let Some(ended) = &state.ended {
        tell(&format!("the campaign has ended: {ended}"));
        return Ok(ExitCode::from(DONE));
    }
    if state.note_cut() {
        tell("the last measurement was cut off, and is repeated");
        place.save(&state)?;
    }
    leave(&mut state, place)?;
    loop {
        if signals::interrupted() {
            tell("interrupted; stopgap campaign run goes on");
            return Ok(ExitCode::from(DONE));
        }
        // Read anew: a command may have been long.
        let boot = read_text(&Linux, BOOT_ID)?;
        let (kernel, line) = booted()?;
        let fits = |label: Label| {
            let side = |later| state.plan.side(later);
            let later = label == Label::After;
            side(later).fits(side(!later), &kernel, &line)
        };
        match state.next(&boot, &fits) {
            Step::Measure(at) => {
                state.begin(at, &boot, Linux.unix_seconds());
                place.save(&state)?;
                let made = match set(&state, state.order[at], place) {
                    Err(why) => Ok(Err(why)),
                    Ok(journal) => {
                        let made = occasion(&mut state, at, &boot, place);
                        put_back(&journal)?;
                        made
                    }
                };
                leave(&mut state, place)?;
                let made = match made {
                    Err(failure) => {
                        // Not the occasion's fault, as on a full disk: it is repeated when that is mended.
                        state.end(Outcome::Interrupted, "");
                        place.save(&state)?;
                        return Err(failure);
                    }
                    Ok(made) => made,
                };
                match made {
                    Ok(under) => {
                        state.end(Outcome::Done, "");
                        if let Some(last) = state.attempts.last_mut() {
                            last.under = Some(under);
                        }
                        let (done, all) = (state.done(), state.order.len());
                        tell(&format!("{done} of {all} occasions done"));
                    }
                    Err(_) if signals::interrupted() => state.end(Outcome::Interrupted, ""),
                    Err(why) => {
                        tell(&format!("occasion {}: {why}", at + 1));
                        state.end(Outcome::Failed, &why);
                    }
                }
                place.save(&state)?;
            }
            Step::WrongBoot(at, why) => {
                tell(&format!("a boot that is not counted: {why}"));
                state.begin(at, &boot, Linux.unix_seconds());
                state.end(Outcome::WrongBoot, &why);
                place.save(&state)?;
            }
            Step::Boot(at) => {
                state.ask(&boot);
                place.save(&state)?;
                let label = state.order[at];
                let shell = Shell::of(word(label), at);
                let select = state.plan.side(label == Label::After).boot.as_deref();
                let reboot = state.plan.reboot.as_deref();
                let mut asked = [select, reboot].into_iter().flatten();
                let asked = asked.try_for_each(|line| shell.change(line, PATIENCE));
                let Err(why) = asked else {
                    return Ok(ExitCode::from(DONE));
                };
                tell(&why);
            }
            Step::Finish => return finish(&mut state, "done", place),
            Step::GiveUp(why) => {
                finish(&mut state, &format!("given up: {why}"), place)?;
                return Err(Failure::error(format!("campaign given up: {why}")));
            }
        }
    }
}

/// Returns release and command line of the kernel that runs.
fn booted() -> Result<(String, String), Failure> {
    let release = read_text(&Linux, "/proc/sys/kernel/osrelease")?;
    Ok((release, read_lossy(&Linux, "/proc/cmdline")?))
}

/// Changes the settings of a side; they are put back when the journal is dropped.
fn set(state: &State, label: Label, place: &Place) -> Result<Journal<'static>, String> {
    let journal = Journal::new(&Linux, &place.journal());
    let even = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (file, value) in state.plan.side(label == Label::After).settings()? {
        journal
            .set(&file, &value)
            .map_err(|error| error.to_string())?;
        let now = read_choice(&Linux, &file).or_else(|_| read_text(&Linux, &file));
        let now = now.map_err(|error| error.to_string())?;
        if even(&now) != even(&value) {
            return Err(format!(
                "{} is '{now}' after '{value}' was written",
                file.display()
            ));
        }
    }
    Ok(journal)
}

fn put_back(journal: &Journal<'_>) -> Result<(), Failure> {
    match journal.undo().first() {
        None => Ok(()),
        Some(error) => Err(not_back(error)),
    }
}

fn not_back(why: &dyn std::fmt::Display) -> Failure {
    Failure::error(format!(
        "could not put back: {why}; mend that, then stopgap campaign stop"
    ))
}

/// Measures an occasion, whose settings are set; returns what it took place under, or how it failed.
fn occasion(
    state: &mut State,
    at: usize,
    boot: &str,
    place: &Place,
) -> Result<Result<Occasion, String>, Failure> {
    let label = state.order[at];
    let shell = Shell::of(word(label), at);
    if let Some(line) = state.plan.side(label == Label::After).set.clone() {
        state.entered = Some(label);
        place.save(state)?;
        if let Err(why) = shell.change(&line, PATIENCE) {
            return Ok(Err(why));
        }
    }
    sleep(state.plan.settle());
    let (pressure, _) = environment::pressure(&Linux);
    let uptime = environment::uptime(&Linux).ok();
    let watch = Watch::begin(&Linux);
    let own = std::env::current_exe().map_err(|error| cannot(Path::new("stopgap"), &error))?;
    let line = state.plan.line(&quoted(&own));
    let printed = match shell.measure(&line, state.plan.limit()) {
        Ok(printed) => printed,
        Err(why) => return Ok(Err(why)),
    };
    let boot = Some(boot.to_owned());
    let under = Occasion::new(boot, uptime, &pressure, Some(watch.end(&Linux)));
    // An output that the comparison would refuse at the end fails now.
    let options = read::Options {
        series: compare_args(state.plan.compare(&["a".into()], &["b".into()]))?.series,
        ..read::Options::default()
    };
    if let Err(error) = read::read(&printed, &options) {
        return Ok(Err(format!("what it printed: {error}")));
    }
    let file = figures(&state.plan, label, at);
    whole_file::write(&file, &printed).map_err(|error| {
        cannot(
            &file,
            &format!("{error}; then stopgap campaign run goes on"),
        )
    })?;
    Ok(Ok(under))
}

fn told(failure: &Failure) -> String {
    match failure {
        Failure::Told { message, .. } => message.clone(),
        Failure::Silent { .. } => String::new(),
    }
}

/// Puts back what a side changed: settings, and by its `undo`.
fn leave(state: &mut State, place: &Place) -> Result<(), Failure> {
    let restored = journal::restore(&Linux, &place.journal())?;
    if let Some(failed) = restored.failed.first() {
        return Err(not_back(failed));
    }
    let Some(label) = state.entered else {
        return Ok(());
    };
    if let Some(line) = state.plan.side(label == Label::After).undo.as_deref() {
        let shell = Shell::of(word(label), state.done());
        let undone = shell.change(line, PATIENCE);
        undone.map_err(|why| not_back(&why))?;
    }
    state.entered = None;
    place.save(state)
}

/// Puts everything back, compares what there is, and notes how it ended.
fn finish(state: &mut State, how: &str, place: &Place) -> Result<ExitCode, Failure> {
    leave(state, place)?;
    let mut back = Vec::new();
    if let Some(line) = state.plan.put_back.as_deref() {
        let done = Shell::of("", state.done()).change(line, PATIENCE);
        done.map_err(|why| not_back(&why))?;
        back.push(format!("'{line}' was run"));
    }
    if place.usual && Path::new(WANTED).is_symlink() {
        let line = format!("systemctl disable {UNIT}");
        match Shell::of("", state.done()).change(&line, PATIENCE) {
            Ok(()) => back.push(format!("{UNIT} is disabled")),
            Err(why) => tell(&format!("could not put back: {why}")),
        }
    }
    let changes = |later| {
        state
            .plan
            .side(later)
            .settings()
            .is_ok_and(|all| !all.is_empty())
    };
    if changes(false) || changes(true) {
        back.push("settings are as they were".to_owned());
    }
    let mut text = repeated(state);
    if !back.is_empty() {
        text += &format!("put back: {}\n", plain(&back.join("; ")));
    }
    let judged = judged(state);
    let report = state.plan.output.join("report.txt");
    let (compared, ended) = match judged {
        Ok(Some(compared)) => {
            let ended = format!("{how}; report in {}", report.display());
            (compared, ended)
        }
        Ok(None) => (String::new(), format!("{how}; there is nothing to compare")),
        Err(failure) => {
            let why = told(&failure);
            (String::new(), format!("{how}; no comparison: {why}"))
        }
    };
    state.ended = Some(ended.clone());
    let whole = format!("{compared}{text}");
    let written = whole_file::write(&report, &whole);
    let written = written.and_then(|()| {
        whole_file::write(
            &state.plan.output.join("campaign.json"),
            output::json(state),
        )
    });
    written.map_err(|error| cannot(&state.plan.output, &error))?;
    place.save(state)?;
    output::screen(&format!("{whole}{ended}\n"))?;
    Ok(ExitCode::from(DONE))
}

/// Compares the occasions that are done; `None` where a side has none. Writes the comparison's document.
fn judged(state: &State) -> Result<Option<String>, Failure> {
    let [before, after] = [Label::Before, Label::After].map(|label| {
        let done = state.done_of(label);
        done.map(|(at, under)| (figures(&state.plan, label, at), under))
            .unzip::<_, _, Vec<PathBuf>, Vec<Occasion>>()
    });
    if before.0.is_empty() || after.0.is_empty() {
        return Ok(None);
    }
    let args = compare_args(state.plan.compare(&before.0, &after.0))?;
    let names = [&*state.plan.before.name, &*state.plan.after.name];
    let comparison = compare::of_campaign(&args, names, [&before.1, &after.1])?;
    let document = state.plan.output.join("compare.json");
    whole_file::write(&document, comparison.to_json())
        .map_err(|error| cannot(&document, &error))?;
    let style = Style {
        colour: false,
        ..voice::style()
    };
    Ok(Some(screen(&comparison, &Beside::default(), style)))
}

fn stop(place: &Place) -> Result<ExitCode, Failure> {
    let none = || {
        let at = place.directory.display();
        Failure::error(format!("no campaign goes on in {at}"))
    };
    if !place.file().exists() {
        return Err(none());
    }
    let _lock = place.lock()?;
    // Also where the state is damaged.
    let restored = journal::restore(&Linux, &place.journal())?;
    for done in restored.done {
        tell(&format!("put back: {done}"));
    }
    let mut state = place.running()?;
    if state.ended.is_some() {
        return Err(none());
    }
    if state.note_cut() {
        place.save(&state)?;
    }
    let (done, all) = (state.done(), state.order.len());
    let how = format!("stopped after {done} of {all} occasions");
    finish(&mut state, &how, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_does_not_move_the_estimate() {
        let plan = plan::tests::plan("occasions = 5\ncommand = \"x\"").unwrap();
        let mut state = State::new(plan, 1, 0);
        for (at, unix) in [1_000, 1_100, 1_200, 40, 140].into_iter().enumerate() {
            state.begin(at, "a", unix);
            state.end(Outcome::Done, "");
        }
        let text = status(&state);
        assert!(text.starts_with("5 of 10 occasions done:"), "{text}");
        assert!(text.contains("about 8 min more"), "{text}");
        state.begin(5, "a", 150);
        state.note_cut();
        assert!(status(&state).contains("1 cut off and repeated"));
    }

    #[test]
    fn what_a_comparison_would_refuse_is_refused_at_the_start() {
        let plan =
            |line: &str| plan::tests::plan(&format!("occasions = 5\ncommand = \"x\"\n{line}"));
        let args =
            |line: &str| compare_args(plan(line).unwrap().compare(&["a".into()], &["b".into()]));
        assert!(args("endpoint = [\"median\", \"p99\"]\nmargin = \"2%\"").is_ok());
        assert!(args("margin = \"much\"").is_err());
    }
}
