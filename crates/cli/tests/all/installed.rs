//! What packages install beside the command: completions, manual pages, systemd units.

use std::path::Path;
use std::process::Command;

use crate::common::{STOPGAP, text};
use stopgap_testing::{Skip, skip};

fn stopgap(words: &[&str]) -> Vec<u8> {
    let output = Command::new(STOPGAP).args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    output.stdout
}

#[test]
fn completions_of_each_shell_name_commands_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = stopgap(&["completions", shell]);
        let shown = text(&script);
        for word in ["check", "explain", "quick", "frame-marker"] {
            assert!(shown.contains(word), "{shell}: {word}");
        }
        let path = folder.path().join(shell);
        std::fs::write(&path, &script).unwrap();
        // Each of them reads a script without running it.
        match Command::new(shell).arg("-n").arg(&path).output() {
            Ok(read) => assert!(read.status.success(), "{shell}: {read:?}"),
            Err(_) => skip(&Skip::machine(format!("{shell} is not installed"))),
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    stopgap(&["man", folder.path().to_str().unwrap()]);
    let help = stopgap(&["--help"]);
    let help = text(&help);
    for command in ["check", "probe", "record", "explain", "run", "completions"] {
        assert!(help.contains(command), "{command}");
        let page = folder.path().join(format!("stopgap-{command}.1"));
        let page = std::fs::read_to_string(page).unwrap();
        assert!(
            page.contains(".SH OPTIONS") || page.contains(".SH SUBCOMMANDS"),
            "{command}"
        );
    }
    let question = std::fs::read_to_string(folder.path().join("stopgap-probe-placement.1"));
    assert!(question.unwrap().contains("stopgap"));
    let missing = folder.path().join("none");
    let missing = Command::new(STOPGAP)
        .arg("man")
        .arg(missing)
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    assert!(
        text(&missing.stderr).contains("cannot write manual pages to"),
        "{missing:?}"
    );
}

#[test]
fn the_version_names_the_commit_and_the_features() {
    let version = stopgap(&["--version"]);
    let version = text(&version);
    let start = concat!("stopgap ", env!("CARGO_PKG_VERSION"), " (commit ");
    let rest = version.strip_prefix(start).expect("the version");
    let (commit, features) = rest.split_once(", features: ").unwrap();
    assert!(commit == "unknown" || commit.len() == 12, "{version}");
    assert!(["none)\n", "gl)\n"].contains(&features), "{version}");
}

/// systemd reads the units of packaging/, and starts the command under test where they name the installed one.
#[test]
fn systemd_accepts_the_units() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let folder = tempfile::tempdir().unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify");
    let mut units = 0;
    for entry in std::fs::read_dir(packaging).unwrap() {
        let path = entry.unwrap().path();
        if !path
            .extension()
            .is_some_and(|end| end == "service" || end == "timer")
        {
            continue;
        }
        let unit = std::fs::read_to_string(&path).unwrap();
        let starts = unit.contains("ExecStart=/usr/bin/stopgap ");
        assert!(starts || unit.contains("[Timer]"), "{}", path.display());
        let copy = folder.path().join(path.file_name().unwrap());
        std::fs::write(&copy, unit.replace("/usr/bin/stopgap", STOPGAP)).unwrap();
        verify.arg(copy);
        units += 1;
    }
    assert_eq!(units, 4);
    match verify.output() {
        Ok(said) => assert_eq!(
            (said.status.code(), text(&said.stderr).as_str()),
            (Some(0), ""),
            "{said:?}"
        ),
        Err(_) => skip(&Skip::machine("systemd-analyze is not installed")),
    }
}
