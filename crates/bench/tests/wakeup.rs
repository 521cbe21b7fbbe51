//! `probe wakeup` beside cyclictest, in the command's short form: as root and with rt-tests; otherwise skipped, and said.

use std::process::Command;

use stopgap_kernel::Linux;
use stopgap_kernel::realtime::Realtime;
use stopgap_kernel::tasks::{ChildLimits, Tasks};

#[test]
fn we_agree_with_cyclictest_and_keep_what_it_leaves_out() {
    let limits = ChildLimits {
        time: stopgap_events::units::Nanos::secs(10),
        cgroup: None,
    };
    let mut try_it = || match Linux.set_fifo(1) {
        Ok(()) => Vec::new(),
        Err(error) => error.to_string().into_bytes(),
    };
    let refused = Linux.run_child(&limits, &mut try_it).unwrap().output;
    let lacks = if !refused.is_empty() {
        Some(String::from_utf8_lossy(&refused).into_owned())
    } else if Command::new("cyclictest").arg("--help").output().is_err() {
        Some("cyclictest: install rt-tests".to_owned())
    } else {
        None
    };
    if let Some(why) = lacks {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: {why}"); // past the harness's capture
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_stopgap-bench"))
        .args(["wakeup", "--runs", "4", "--seconds", "1"])
        .env("XDG_STATE_HOME", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{text}{errors}");
    if output.status.code() == Some(4) {
        assert!(text.contains("inconclusive: "), "{text}");
        use std::io::Write;
        let _ = writeln!(
            std::io::stderr(),
            "skipped: the host takes the CPU too often"
        );
        return;
    }
    assert!(matches!(output.status.code(), Some(0 | 2)), "{errors}");
    // Means and maxima over four seconds are the command's own matter; these hold whatever else runs.
    for bound in ["missed periods", "left out"] {
        let holds = format!("holds   {bound}: ");
        assert!(text.lines().any(|line| line.starts_with(&holds)), "{text}");
    }
}
