//! `stopgap fleet`: what it runs, and what it says where that is not installed. `python/tests/fleet` holds what it answers.

use std::os::unix::fs::PermissionsExt as _;

use crate::common::Run;

#[test]
fn words_go_to_the_package_as_they_are() {
    let run = Run::new();
    run.write(
        "python",
        "#!/bin/sh\nshift 2\nprintf '%s|' \"$@\"\nexit 7\n",
    );
    let python = run.path("python");
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let words = [
        "fleet",
        "explain",
        "a b",
        "--workers",
        "2",
        "-o",
        "x",
        "--help",
    ];
    let done = run.command(&words).env("STOPGAP_PYTHON", &python).output();
    let done = done.unwrap();
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    let printed = String::from_utf8_lossy(&done.stdout);
    assert_eq!(printed, "explain|a b|--workers|2|-o|x|--help|");
}

#[test]
fn one_line_says_how_to_install_it() {
    let run = Run::new();
    run.write(
        "stopgap.py",
        "raise SystemExit('the current directory was searched')",
    );
    // Without site-packages there is no package.
    run.write("python", "#!/bin/sh\nexec python3 -S \"$@\"\n");
    let bare = run.path("python");
    std::fs::set_permissions(&bare, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (python, says) in [
        ("no-such-python", "fleet needs Python"),
        (bare.to_str().unwrap(), "-m pip install './python[fleet]'"),
    ] {
        let mut command = run.command(&["fleet", "report", "traces"]);
        command
            .env("STOPGAP_PYTHON", python)
            .env_remove("PYTHONPATH");
        let done = command.output().unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        assert!(
            errors.lines().count() == 1 && errors.contains(says),
            "{errors}"
        );
        assert!(done.stdout.is_empty(), "{done:?}");
    }
}
