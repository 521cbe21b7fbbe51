//! Campaigns whose boots are made up: in a mount namespace of its own, files of the test lie over the boot's id, its command line and
//! a setting. A campaign that is killed at any moment counts each occasion once.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use stopgap_testing::{Skip, skip};

use crate::common::{NOBODY, Run, STOPGAP, has, root, text};

const SETTING: &str = "/proc/sys/vm/swappiness";

/// A plan of 5 occasions a side; `more` are lines before its sides.
fn plan(run: &Run, more: &str) {
    let out = run.path("out");
    run.write(
        "plan.toml",
        format!(
            "occasions = 5\nseed = 3\nsettle = \"10ms\"\noutput = {out:?}\n{more}\n\
             [before]\nname = \"quiet\"\nsettings = {{ \"vm.swappiness\" = 60 }}\n\
             [after]\nname = \"loud\"\nboot = \"echo x=1 >line.next\"\ncommand-line = [\"x=1\"]\n\
             settings = {{ \"vm.swappiness\" = 10 }}\nset = \"echo in >>entered\"\nundo = \"echo out >>entered\"\n"
        ),
    );
}

/// What an occasion does: notes that it ran, and prints three numbers, of which `after`'s are larger by half.
const COMMAND: &str = r#"command = "echo $STOPGAP_OCCASION $STOPGAP_SIDE $(cat /proc/sys/vm/swappiness) >>log; sleep 0.03; n=$((STOPGAP_OCCASION % 3)); case $STOPGAP_SIDE in after) n=$((n+50));; esac; for i in 0 1 2; do echo $((100+n+i)); done""#;

const REBOOT: &str = "reboot = \"touch reboot\"";

/// A machine that is made up of files in the run's directory.
struct Machine<'a> {
    run: &'a Run,
    boots: u32,
}

impl Machine<'_> {
    fn new(run: &Run) -> Machine<'_> {
        run.write("swappiness", "33\n");
        fs::DirBuilder::new()
            .mode(0o700)
            .create(run.path("journal"))
            .unwrap();
        let mut machine = Machine { run, boots: 0 };
        machine.boot();
        machine
    }

    /// Boots what was selected, or else the usual.
    fn boot(&mut self) {
        self.boots += 1;
        let line = fs::read_to_string(self.run.path("line.next")).unwrap_or_default();
        let _ = fs::remove_file(self.run.path("line.next"));
        let _ = fs::remove_file(self.run.path("reboot"));
        self.run.write("line", format!("quiet {}\n", line.trim()));
        self.run.write("boot", format!("boot-{}\n", self.boots));
        // Settings end with the boot.
        self.run.write("swappiness", "33\n");
    }

    fn start(&self, step: &str) -> Child {
        self.command(&format!("exec {STOPGAP} campaign {step} --state state"))
            .spawn()
            .unwrap()
    }

    /// Runs a script on the machine. It has a journal of its own: for stopgap elsewhere its runs would be of an earlier boot.
    fn command(&self, script: &str) -> Command {
        let script = format!(
            "mkdir -p /run/stopgap && mount --bind journal /run/stopgap && mount --bind line /proc/cmdline && \
             mount --bind swappiness {SETTING} && mount --bind boot /proc/sys/kernel/random/boot_id && {script}"
        );
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", &script])
            .current_dir(self.run.directory.path())
            .env("XDG_STATE_HOME", self.run.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a step to its end: exit status, output, errors.
    fn does(&self, step: &str) -> (Option<i32>, String, String) {
        let output = self.start(step).wait_with_output().unwrap();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    fn state(&self) -> Value {
        serde_json::from_str(&self.run.read("state/state.json")).unwrap()
    }

    fn counted(&self, outcome: &str) -> usize {
        let state = self.state();
        let attempts = state["attempts"].as_array().unwrap();
        attempts
            .iter()
            .filter(|of| of["outcome"] == outcome)
            .count()
    }

    /// Everything is back, and each occasion was done once, in the order, in a boot of its own.
    fn is_whole(&self) {
        let state = self.state();
        let done: Vec<&Value> = state["attempts"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|of| of["outcome"] == "done")
            .collect();
        let numbers: Vec<u64> = done
            .iter()
            .map(|of| of["occasion"].as_u64().unwrap())
            .collect();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        for side in ["before", "after"] {
            let files = fs::read_dir(self.run.path("out")).unwrap();
            let of = files.filter(|file| {
                let name = file.as_ref().unwrap().file_name();
                name.to_string_lossy().starts_with(&format!("{side}-"))
            });
            assert_eq!(of.count(), 5, "{side}");
        }
        assert_eq!(self.run.read("swappiness").trim(), "33");
        // Each measurement had the setting of its side.
        for line in self.run.read("log").lines() {
            let right = line.ends_with("before 60") || line.ends_with("after 10");
            assert!(right, "{line}");
        }
        let entered = self.run.read("entered");
        let of = |word: &str| entered.lines().filter(|line| *line == word).count();
        assert!(of("out") >= 5 && of("in") >= 5, "{entered}");
        assert!(entered.ends_with("out\n"), "{entered}");
    }
}

/// Whether files may be laid over others here.
fn may() -> bool {
    let tried = Command::new("unshare")
        .args(["-m", "mount", "--bind", "/proc/version", "/proc/cmdline"])
        .output();
    match (root(), tried) {
        (false, _) => skip(&Skip::root("a mount namespace")),
        (_, Err(error)) => skip(&Skip::program(format!("unshare: {error}"))),
        (_, Ok(done)) if !done.status.success() => skip(&Skip::machine(text(&done.stderr))),
        _ => return true,
    }
    false
}

#[test]
fn a_campaign_over_boots_finds_the_change_and_puts_everything_back() {
    if !may() {
        return;
    }
    let run = Run::new();
    plan(
        &run,
        &format!("{COMMAND}\n{REBOOT}\nput-back = \"echo back >>entered\"\nmargin = \"2%\""),
    );
    let mut machine = Machine::new(&run);
    let (status, out, err) = machine.does("start plan.toml");
    assert_eq!(status, Some(0), "{err}");
    has(
        &out,
        &[
            "5 occasions per side",
            "each in a boot of its own",
            "seed 3",
            "campaign run --state",
        ],
    );
    has(
        &machine.does("start plan.toml").2,
        &["not over (0 of 10 occasions)"],
    );
    // The machine booted the usual kernel although the other one was asked for: that does not count.
    let mut lost = false;
    let mut said = String::new();
    for _ in 0..40 {
        let (status, out, err) = machine.does("run");
        assert_eq!(status, Some(0), "{err}");
        said = out;
        if run.path("reboot").exists() {
            if !lost && run.path("line.next").exists() {
                lost = true;
                fs::remove_file(run.path("line.next")).unwrap();
            }
            machine.boot();
        } else {
            break;
        }
    }
    has(
        &said,
        &[
            "WORSE\n",
            "before quiet, 5 occasions",
            "after loud, 5 occasions",
            "1 in a wrong boot",
            "put back: 'echo back",
        ],
    );
    assert!(!said.contains("warning"), "{said}");
    assert_eq!(machine.counted("wrong-boot"), 1);
    assert_eq!(machine.counted("done"), 10);
    let boots = machine.state()["attempts"].as_array().unwrap().len();
    assert_eq!(run.read("log").lines().count(), 10);
    assert!(
        machine.boots as usize > boots - 1,
        "{} boots",
        machine.boots
    );
    assert!(run.read("entered").ends_with("out\nback\n"));
    let entered = run.read("entered").replace("back\n", "");
    run.write("entered", entered);
    machine.is_whole();
    let document: Value = serde_json::from_str(&run.read("out/compare.json")).unwrap();
    assert_eq!(document["verdict"]["word"], "regression");
    assert_eq!(document["before"]["runs"], 5);
    // It has ended: nothing more happens, and another one may begin.
    has(&machine.does("run").2, &["the campaign has ended: done"]);
    has(
        &machine.does("status").1,
        &["10 of 10 occasions done", "report in"],
    );
    assert_eq!(machine.does("stop").0, Some(1));
    run.write(
        "plan.toml",
        run.read("plan.toml").replace("/out\"", "/again\""),
    );
    assert_eq!(machine.does("start plan.toml").0, Some(0));
}

/// SIGKILL at moments that move through a whole occasion and beyond, each followed by a boot or by none.
#[test]
fn a_campaign_that_is_cut_off_anywhere_loses_and_doubles_nothing() {
    if !may() {
        return;
    }
    let run = Run::new();
    plan(&run, &format!("{COMMAND}\n{REBOOT}"));
    let mut machine = Machine::new(&run);
    assert_eq!(machine.does("start plan.toml").0, Some(0));
    let began = Instant::now();
    let mut cuts = 0;
    for turn in 0..400_u64 {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "{}",
            machine.state()
        );
        let due = machine.state()["attempts"].as_array().unwrap().clone();
        let done = due.iter().filter(|of| of["outcome"] == "done").count();
        let cut_here = due
            .iter()
            .filter(|of| of["outcome"] == "cut" && of["occasion"] == done)
            .count();
        let mut child = machine.start("run");
        // Three cuts of one occasion would end the campaign.
        if cut_here < 2 && turn.is_multiple_of(2) {
            std::thread::sleep(Duration::from_millis(10 + turn * 13 % 120));
            if child.try_wait().unwrap().is_none() {
                cuts += 1;
                child.kill().unwrap();
            }
        }
        let output = child.wait_with_output().unwrap();
        let killed = output.status.code().is_none();
        assert!(killed || output.status.success(), "{output:?}");
        if run.path("reboot").exists() || (killed && turn.is_multiple_of(4)) {
            machine.boot();
        } else if !killed {
            break;
        }
    }
    assert!(cuts > 3, "{cuts}");
    assert_eq!(machine.counted("done"), 10);
    machine.is_whole();
    let (_, out, _) = machine.does("status");
    has(
        &out,
        &["10 of 10 occasions done: 5 before, 5 after", "report in"],
    );
}

#[test]
fn a_campaign_ends_when_it_cannot_go_on() {
    if !may() {
        return;
    }
    for (more, after, why) in [
        (
            "command = \"exit 7\"",
            "",
            "failed 3 times: 'exit 7' failed with exit status 7",
        ),
        (
            "command = \"echo 1; echo x\"",
            "",
            "what it printed: line 2",
        ),
        (
            COMMAND,
            "x=1",
            "got a boot that is none of its side 3 times",
        ),
        (
            "command = \"sleep 60\"\ntakes = \"30ms\"",
            "",
            "was not done after 150 ms",
        ),
    ] {
        let run = Run::new();
        plan(&run, &format!("{more}\n{REBOOT}"));
        let mut machine = Machine::new(&run);
        assert_eq!(machine.does("start plan.toml").0, Some(0));
        let mut end = None;
        for _ in 0..30 {
            let (status, _, err) = machine.does("run");
            if status != Some(0) {
                end = Some(err);
                break;
            }
            assert!(run.path("reboot").exists(), "{err}");
            machine.boot();
            if !after.is_empty() {
                run.write(
                    "line",
                    format!(
                        "quiet {}\n",
                        if machine.boots.is_multiple_of(2) {
                            "y"
                        } else {
                            "z"
                        }
                    ),
                );
            }
        }
        // The side without words of its own takes any of these boots.
        has(&end.unwrap_or_else(|| machine.state().to_string()), &[why]);
        assert_eq!(run.read("swappiness").trim(), "33");
        has(&machine.state()["ended"].to_string(), &["given up"]);
    }
}

#[test]
fn stop_puts_back_what_a_killed_run_left() {
    if !may() {
        return;
    }
    let run = Run::new();
    plan(&run, "command = \"echo measuring >>log; sleep 30\"");
    let text = run.read("plan.toml").replace(
        "boot = \"echo x=1 >line.next\"\ncommand-line = [\"x=1\"]\n",
        "",
    );
    run.write(
        "plan.toml",
        text.replace(
            "[before]\n",
            "[before]\nset = \"echo in >>entered\"\nundo = \"echo out >>entered\"\n",
        ),
    );
    let machine = Machine::new(&run);
    let (status, out, err) = machine.does("start plan.toml");
    assert_eq!(status, Some(0), "{err}");
    has(&out, &["all in one boot"]);
    let mut child = machine.start("run");
    crate::common::wait_for("it measures", || run.path("log").exists().then_some(()));
    assert_ne!(run.read("swappiness").trim(), "33");
    has(&machine.does("status").1, &["occasion 1", ": begun"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(run.read("swappiness").trim(), "33");
    // Settings come back even where the state is damaged.
    let state = run.read("state/state.json");
    run.write("state/state.json", &state[1..]);
    has(
        &machine.does("stop").2,
        &["swappiness back to '33'", "it is damaged"],
    );
    assert_eq!(run.read("swappiness").trim(), "33");
    run.write("state/state.json", state);
    let (status, out, err) = machine.does("stop");
    assert_eq!(status, Some(0), "{err}");
    has(
        &out,
        &[
            "1 cut off and repeated",
            "settings are as they were",
            "stopped after 0 of 10",
        ],
    );
    assert_eq!(run.read("entered"), "in\nout\n");
    has(&machine.does("stop").2, &["no campaign goes on"]);
}

#[test]
fn bad_plans_and_states_are_refused() {
    let run = Run::new();
    let refuses = |line: &str, parts: &[&str]| {
        let done = run.stopgap(line);
        assert_eq!(
            (done.status, done.err.trim_end().lines().count()),
            (Some(1), 1),
            "{done:#?}"
        );
        has(&done.err, parts);
    };
    refuses(
        "campaign start none.toml --state s",
        &["none.toml", "No such file"],
    );
    refuses("campaign run --state s", &["no campaign in"]);
    refuses("campaign status --state s", &["no campaign in"]);
    refuses("campaign stop --state s", &["no campaign goes on"]);
    let sides = "[before]\nname = \"a\"\n[after]\nname = \"b\"\n";
    let out = run.path("out");
    for (lines, part) in [
        ("occasions = 1\ncommand = \"x\"\n", "5 to 60"),
        (
            "occasions = 5\ncommand = \"x\"\ncolour = 1\n",
            "unknown field",
        ),
        (
            "occasions = 5\ncommand = \"x\"\nmargin = \"much\"\n",
            "much",
        ),
        (
            "occasions = 5\ncommand = \"x\"\nname = \"\\u001b[31m\"\n",
            "control",
        ),
    ] {
        run.write("plan.toml", format!("output = {out:?}\n{lines}{sides}"));
        refuses("campaign start plan.toml --state s", &[part]);
        assert!(!run.path("s").exists() && !out.exists());
    }
    let other = sides.replace("\"b\"", "\"b\"\nkernel = \"0.1\"");
    let kernel = format!("output = {out:?}\noccasions = 5\ncommand = \"x\"\n{other}");
    run.write("plan.toml", kernel);
    refuses("campaign start plan.toml --state s", &["not 0.1"]);
    let good = format!("output = {out:?}\noccasions = 5\ncommand = \"x\"\n");
    for (setting, part) in [
        ("\"vm.no_such\" = 1", "no_such"),
        ("\"/etc/hosts\" = 1", "below /proc/sys or /sys"),
    ] {
        let sides = sides.replace("\"b\"", &format!("\"b\"\nsettings = {{ {setting} }}"));
        run.write("plan.toml", format!("{good}{sides}"));
        refuses("campaign start plan.toml --state s", &[part]);
    }
    run.write("plan.toml", format!("{good}{sides}"));
    fs::create_dir(&out).unwrap();
    fs::write(out.join("before-001.json"), "1").unwrap();
    refuses("campaign start plan.toml --state s", &["is not empty"]);
    fs::remove_file(out.join("before-001.json")).unwrap();
    // A dry run begins nothing.
    let dry = run.stopgap("campaign start plan.toml --dry-run --state s");
    has(
        &dry.out,
        &["takes about 30 min", "finds, in 4 of 5 campaigns"],
    );
    assert!(!run.path("s").exists());

    assert_eq!(
        run.stopgap("campaign start plan.toml --state s").status,
        Some(0)
    );
    let state = run.read("s/state.json");
    run.write("s/state.json", state.replace("campaign/1", "campaign/0"));
    refuses("campaign run --state s", &["campaign/0", "another version"]);
    run.write("s/state.json", &state[..state.len() / 2]);
    refuses("campaign status --state s", &["it is damaged"]);
    run.write("s/state.json", &state);
    if root() {
        // Another user could have had root run commands of theirs.
        std::os::unix::fs::chown(run.path("s"), Some(NOBODY), None).unwrap();
        refuses("campaign run --state s", &["another user's"]);
        std::os::unix::fs::chown(run.path("s"), Some(0), None).unwrap();
    }
    fs::set_permissions(
        run.path("s"),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    refuses("campaign run --state s", &["others may write"]);
}

/// The disk is full: the occasion is not counted as a failure, and the campaign goes on when there is room.
#[test]
fn a_full_disk_loses_nothing() {
    if !may() {
        return;
    }
    let run = Run::new();
    plan(&run, COMMAND);
    let text = run.read("plan.toml").replace(
        "boot = \"echo x=1 >line.next\"\ncommand-line = [\"x=1\"]\n",
        "",
    );
    run.write("plan.toml", text);
    let machine = Machine::new(&run);
    assert_eq!(machine.does("start plan.toml").0, Some(0));
    for _ in 0..4 {
        let script = format!(
            "mount -t tmpfs -o size=4k none out && yes >out/filler; exec {STOPGAP} campaign run --state state"
        );
        let full = machine.command(&script).output().unwrap();
        assert_eq!(full.status.code(), Some(1), "{full:?}");
        has(
            &crate::common::text(&full.stderr),
            &["No space left", "001.json"],
        );
        assert_eq!(run.read("swappiness").trim(), "33");
        assert_eq!(machine.counted("done"), 0);
    }
    assert_eq!(machine.does("run").0, Some(0));
    assert_eq!(machine.counted("done"), 10);
    machine.is_whole();
}
