//! A real X server, recorded and explained, in few runs. The ratio is the command's own matter: it takes more runs
//! and a CPU that is idle.

use std::process::Command;

use stopgap_kernel::Linux;
use stopgap_kernel::files::Files;
use stopgap_kernel::x11::X11;

#[test]
fn what_is_said_of_switches_is_true() {
    let possible = Linux.x_programs().and_then(|()| Linux.tracefs().map(drop));
    if let Err(why) = possible {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: {why}"); // past the harness's capture
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_stopgap-bench"))
        .args(["x11", "--runs", "3"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 2)), "{errors}");
    for bound in ["agreement", "flushes", "sums", "attribution", "advice"] {
        let holds = format!("holds   {bound}: ");
        let line = text.lines().find(|line| line.starts_with(&holds));
        assert!(line.is_some(), "{bound} does not hold:\n{text}");
    }
}
