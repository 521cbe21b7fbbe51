//! `stopgap-bench channel`: every cell is measured and every bound is said. Whether the bounds hold is the command's
//! exit status, on a machine with nothing else to do; here a loaded one must not fail.

use std::process::Command;

#[test]
fn every_cell_has_its_line_and_every_bound_its_word() {
    let output = Command::new(env!("CARGO_BIN_EXE_stopgap-bench"))
        .args(["channel", "--runs", "3", "--window", "10"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{text}{errors}");
    let status = output.status.code();
    assert!(matches!(status, Some(0 | 2)), "{status:?}: {errors}");
    let broken = text.lines().any(|line| line.starts_with("BROKEN"));
    assert_eq!(broken, status == Some(2));

    let one_cpu_only = text.contains("skipped: one CPU only");
    if one_cpu_only {
        use std::io::Write;
        let _ = writeln!(
            std::io::stderr(),
            "skipped: one CPU only, so nothing is said of two"
        ); // past the harness's capture
    }
    let placements: &[&str] = if one_cpu_only {
        &["one"]
    } else {
        &["one", "two", "free"]
    };
    for cpus in placements {
        for work in ["0 ns", "50 us"] {
            let of = |side: &str| {
                let begin = format!("{cpus:<5}{work:>6}");
                let lines = text.lines().filter(|line| line.starts_with(&begin));
                lines.filter(|line| line.contains(side)).count()
            };
            // One request, and 32 of them; the last side only with the latter.
            assert_eq!(
                (of("channel "), of("socket "), of("socket, each")),
                (2, 2, 1),
                "{cpus} {work}"
            );
        }
    }
    let wakes = text
        .lines()
        .filter(|line| line.contains("wake-ups for 32 replies"));
    // This one is a count, and holds on any machine.
    assert!(wakes.clone().count() >= 2 && wakes.clone().all(|line| line.starts_with("holds")));
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("server killed"))
            .count(),
        3
    );
}
