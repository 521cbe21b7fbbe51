//! The gates of `docs/gate`, run as the shell scripts that a CI runs.

use std::path::Path;
use std::process::Command;

use crate::common::{Run, STOPGAP, has, text};
use stopgap_testing::{Skip, skip};

/// The scripts of a job: the blocks of `run: |`, or the list of `script:`.
fn scripts(yaml: &str) -> String {
    let mut found = String::new();
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut lines = yaml.lines().peekable();
    while let Some(line) = lines.next() {
        let (outer, word) = (depth(line), line.trim());
        let list = word == "script:";
        if !list && word != "run: |" {
            continue;
        }
        while let Some(inner) = lines.next_if(|line| depth(line) > outer) {
            let inner = inner.trim();
            found.push_str(if list { &inner[2..] } else { inner });
            found.push('\n');
        }
    }
    found
}

/// A repository whose branch `main` runs 60,000 turns of a loop, and whose branch `change` so many; a clone of it, with `change`.
fn repository(run: &Run, turns: u32) -> bool {
    let build = |turns: u32| {
        let bench = format!("#!/bin/sh\ni=0; while [ $i -lt {turns} ]; do i=$((i+1)); done\n");
        format!("#!/bin/sh\ncat >bench <<'END'\n{bench}END\nchmod +x bench\n")
    };
    let script = format!(
        "set -e\nexport GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null\n\
         git init -q -b main origin; cd origin\n\
         git config user.name a; git config user.email a@localhost\n\
         cat >build.sh <<'EOF'\n{}EOF\nchmod +x build.sh; git add .; git commit -qm base\n\
         git checkout -qb change\ncat >build.sh <<'EOF'\n{}EOF\ngit commit -qam change --allow-empty\n\
         cd ..; git clone -q origin clone\n",
        build(60_000),
        build(turns)
    );
    let here = run.directory.path();
    let made = Command::new("sh")
        .args(["-c", &script])
        .current_dir(here)
        .output()
        .unwrap();
    if text(&made.stderr).contains("git: not found") {
        skip(&Skip::program("git"));
        return false;
    }
    assert!(made.status.success(), "{made:?}");
    true
}

#[test]
fn each_documented_gate_passes_equal_commands_and_fails_slower_ones() {
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gate");
    let read = |name: &str| std::fs::read_to_string(documents.join(name)).unwrap();
    let shell = read("gate.sh");
    let build = "git worktree add base origin/main; (cd base && ./build.sh); ./build.sh\n";
    let gates = [
        (
            "gate.sh",
            format!("{build}set -- ./base/bench ./bench\n{shell}"),
        ),
        ("github.yml", scripts(&read("github.yml"))),
        ("gitlab.yml", scripts(&read("gitlab.yml"))),
    ];
    for (name, script) in gates {
        has(&script, &["stopgap compare --run ", "--fail-on regression"]);
        for (turns, statuses, verdict) in [
            (60_000, &[0, 4][..], "tests="),
            (90_000, &[2], "failures=\"2\""),
        ] {
            let run = Run::new();
            if !repository(&run, turns) {
                return;
            }
            let bin = run.path("bin");
            std::fs::create_dir(&bin).unwrap();
            std::os::unix::fs::symlink(STOPGAP, bin.join("stopgap")).unwrap();
            let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
            run.write(
                "clone/stopgap.toml",
                "[compare]\nmargin = \"10%\"\nmax-time = \"30s\"\n",
            );
            let ended = Command::new("sh")
                .args(["-e", "-c", &script])
                .env("XDG_STATE_HOME", run.directory.path())
                .current_dir(run.path("clone"))
                .env("PATH", path)
                .env("GITHUB_BASE_REF", "main")
                .env("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")
                .output()
                .unwrap();
            let status = ended.status.code().unwrap();
            assert!(
                statuses.contains(&status),
                "{name}, {turns} turns: {ended:?}"
            );
            has(&run.read("clone/compare.xml"), &[verdict]);
        }
    }
}
