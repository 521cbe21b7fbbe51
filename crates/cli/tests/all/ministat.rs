//! `stopgap ministat` beside the program that it stands in for.

use std::fmt::Write;
use std::process::{Command, Output, Stdio};

use crate::common::{Run, text};
use stopgap_events::random::Random;
use stopgap_testing::{Skip, skip};

/// The parts of ministat's output.
#[derive(Debug, PartialEq, Default)]
struct Parts<'a> {
    /// All but the picture, without what only ours has.
    lines: Vec<&'a str>,
    /// Rows of values, the highest first.
    rows: Vec<&'a str>,
    /// Rows of bars, and the frame or the note.
    bars: Vec<&'a str>,
}

fn parts(text: &str) -> Parts<'_> {
    let mut parts = Parts::default();
    for line in text.lines() {
        if line.starts_with('|') {
            if line.contains(['M', 'A']) {
                parts.bars.push(line);
            } else {
                parts.rows.push(line);
            }
        } else if line.starts_with("+-") || line.starts_with("[no plot") {
            parts.bars.push(line);
        } else if !line.starts_with("A t-test does not fit") {
            parts.lines.push(line);
        }
    }
    parts
}

/// Three values or more, of one of many kinds.
fn values(random: &mut Random) -> Vec<f64> {
    let n = {
        let most = [5, 20, 60, 140][random.index(4)];
        3 + random.index(most)
    };
    let level = [0.0, 7.0, 1e3, -250.0, 1e9][random.index(5)];
    let kind = random.below(9);
    let uniform = |random: &mut Random| random.below(1 << 30) as f64 / f64::from(1 << 30);
    (0..n)
        .map(|_| match kind {
            0 => level,
            1 => level + random.below(4) as f64,
            2 => level - 30.0 * uniform(random),
            3 => (uniform(random) - 0.5) * 1e100,
            4 => uniform(random) * 1e-7,
            // A tail as that of stalls.
            5 => level + 1.0 / (uniform(random) + 1e-9),
            6 => (level + uniform(random) * 10.0).round() / 4.0,
            7 => level + 0.1,
            _ => level + (0..6).map(|_| uniform(random)).sum::<f64>(),
        })
        .collect()
}

/// Figures, verdicts, notes and bars are the same on every one of 200 random data sets; the picture is, too, where Debian's
/// program did not cut it. It gives the picture the height of the last set instead of the highest one: so of two sets the
/// lower rows of ours are compared; of three, rows are compared unless a later set is lower than an earlier one.
#[test]
fn the_same_as_debians_on_random_data() {
    if let Err(error) = Command::new("ministat")
        .arg("-n")
        .stdin(Stdio::null())
        .output()
    {
        skip(&Skip::program(format_args!("ministat: {error}")));
        return;
    }
    let seed = match std::env::var("STOPGAP_SEED") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => 6,
    };
    println!("STOPGAP_SEED={seed}");
    let mut random = Random::new(seed);
    let run = Run::new();
    let names = ["a", "b", "c"];
    let [mut whole, mut cut, mut differ, mut misfits] = [0; 4];
    for round in 0..200 {
        let sets = 1 + random.index(3);
        let mut all = Vec::new();
        let mut arguments = Vec::new();
        if random.below(3) > 0 {
            let confidence = ["80", "90", "95", "98", "99", "99.5"][random.index(6)];
            arguments.extend(["-c".to_owned(), confidence.to_owned()]);
        }
        for (flag, odds) in [("-s", 3), ("-n", 12), ("-A", 8)] {
            if random.below(odds) == 0 {
                arguments.push(flag.to_owned());
            }
        }
        let width = if random.below(2) == 0 {
            74
        } else {
            2 + random.index(110)
        };
        arguments.extend(["-w".to_owned(), width.to_string()]);
        for name in &names[..sets] {
            let mut text = String::from("# a comment\n");
            let values = values(&mut random);
            for value in &values {
                writeln!(text, "{value:e}").unwrap();
            }
            all.push(values);
            std::fs::write(run.directory.path().join(name), text).unwrap();
        }
        arguments.extend(names[..sets].iter().map(|&name| name.to_owned()));
        let debian = output(Command::new("ministat"), &run, &arguments);
        let ours = output(run.command(&["ministat"]), &run, &arguments);
        let [theirs, mine] = [text(&debian.stdout), text(&ours.stdout)];
        let context = format!(
            "round {round}: {arguments:?}\n{theirs}\n{mine}\n{}",
            text(&ours.stderr)
        );
        assert_eq!(debian.status.code(), ours.status.code(), "{context}");
        misfits += mine.matches("A t-test does not fit").count();
        differ += mine.matches("\nDifference at").count();
        let (theirs, mine) = (parts(&theirs), parts(&mine));
        assert_eq!(theirs.lines, mine.lines, "{context}");
        assert_eq!(theirs.bars, mine.bars, "{context}");
        let heights = heights(&all, width);
        if heights.is_sorted() || theirs.rows.is_empty() {
            assert_eq!(theirs.rows, mine.rows, "{context}");
            whole += 1;
        } else {
            let highest = mine.rows.len() - theirs.rows.len().min(mine.rows.len());
            if sets == 2 {
                assert_eq!(theirs.rows, mine.rows[highest..], "{context}");
            }
            assert!(theirs.rows.len() <= mine.rows.len(), "{context}");
            cut += 1;
        }
    }
    println!(
        "{whole} pictures the same, {cut} cut by Debian's; {differ} differences, {misfits} misfits"
    );
    assert!(whole >= 60 && cut >= 20 && differ >= 20 && misfits >= 20);
}

/// How many rows each set has in a picture of all of them.
fn heights(sets: &[Vec<f64>], width: usize) -> Vec<usize> {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for set in sets {
        let n = set.len() as f64;
        let mean = set.iter().sum::<f64>() / n;
        let squares: f64 = set.iter().map(|value| value * value).sum();
        let deviation = ((squares - mean * mean * n) / (n - 1.0)).sqrt();
        let around = [mean - deviation, mean + deviation];
        for value in set.iter().copied().chain(around) {
            (least, most) = (least.min(value), most.max(value));
        }
    }
    let step = (most - least) / (width as f64 - 1.0);
    let height = |set: &Vec<f64>| {
        let mut columns = vec![0; width + 1];
        let column = |value: &f64| (((value - least) / step + 0.5) as usize).min(width);
        set.iter().for_each(|value| columns[column(value)] += 1);
        columns.into_iter().max().unwrap_or(0)
    };
    sets.iter().map(height).collect()
}

fn output(mut command: Command, run: &Run, arguments: &[String]) -> Output {
    command
        .args(arguments)
        .current_dir(run.directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn exit_statuses_of_the_original() {
    let run = Run::new();
    let file = |name: &str, text: &str| {
        let path = run.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = file("good", "1\n2\n3\n");
    for (arguments, status, says) in [
        (vec!["-c95", "-c", "80", "-nqs", &good], 0, ""),
        (vec!["-C", "-1", &good], 2, "'-1' is no column"),
        (vec!["-w", "-5", &good], 2, "'-5' is no width"),
        (vec!["-d", "", &good], 2, "empty delimiter"),
    ] {
        let output = run.output(&[&["ministat"], &arguments[..]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
        assert_eq!(said.is_empty(), status == 0, "{arguments:?}: {said}");
    }
}
