//! Inputs that claim more than they are, and counts that nobody can wait for: each is refused in a moment and in little
//! memory. Children run under a limit of address space, so that a reader without a bound dies and the machine does not.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::{Run, STOPGAP, text};
use stopgap_kernel::fake::skipped as skip;

/// The command where it may have 1 GiB of address space and a minute of CPU time.
fn limited(run: &Run, words: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "ulimit -v 1048576; ulimit -t 60; exec \"$0\" \"$@\"",
            STOPGAP,
        ])
        .args(words)
        .current_dir(run.directory.path())
        .env("XDG_STATE_HOME", run.directory.path().join("state"))
        .env("TMPDIR", run.directory.path());
    command.output().unwrap()
}

/// Fails unless it ends with status 1, at once, and says `parts` in one line.
fn refused(run: &Run, words: &[&str], parts: &[&str]) {
    let begin = Instant::now();
    let output = limited(run, words);
    let took = begin.elapsed();
    let said = text(&output.stderr);
    // Somebody else may have killed a run here.
    let lines = said
        .lines()
        .filter(|line| !line.contains("after a killed run"));
    assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
    assert_eq!(lines.count(), 1, "{words:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{words:?}: {part}: {said}");
    }
    assert!(took < Duration::from_secs(20), "{words:?} took {took:?}");
}

fn put(run: &Run, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = run.directory.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

/// A member of an ar archive.
fn member(name: &str, size: u64) -> String {
    format!(
        "{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n",
        0, 0, 0, "100644"
    )
}

/// A header of tar(1), as POSIX has it.
fn tar_header(name: &str, kind: u8, size: u64) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    header[148..156].copy_from_slice(b"        ");
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar  \0");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// A package that holds one entry of `size` zeros; it takes a block on the disk.
fn package(run: &Run, name: &str, entry: &str, kind: u8, size: u64) -> PathBuf {
    let path = run.directory.path().join(name);
    let mut file = File::create(&path).unwrap();
    let data = 512 + size + 1_024;
    write!(
        file,
        "!<arch>\n{}2.0\n{}",
        member("debian-binary", 4),
        member("data.tar", data)
    )
    .unwrap();
    file.write_all(&tar_header(entry, kind, size)).unwrap();
    let written = file.metadata().unwrap().len();
    file.set_len(written + size + 1_024).unwrap();
    path
}

#[test]
fn a_package_whose_kernel_is_larger_than_any() {
    let run = Run::new();
    let larger = "larger than such a file of any kernel";
    for (name, entry, kind, says) in [
        ("kernel.deb", "./boot/vmlinuz-6.1", b'0', larger),
        ("config.deb", "./boot/config-6.1", b'0', larger),
        (
            "name.deb",
            "././@LongLink",
            b'L',
            "the name of an entry: it has more than 1 MiB",
        ),
        (
            "pax.deb",
            "./PaxHeaders/x",
            b'x',
            "the name of an entry: it has more than 1 MiB",
        ),
    ] {
        package(&run, name, entry, kind, 3_500 << 20);
        refused(&run, &["kernels", name, name], &[name, says]);
    }
    // Nothing of it was unpacked.
    let left = fs::read_dir(run.directory.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    let unpacked = |name: &&std::ffi::OsString| name.to_string_lossy().contains("emulate");
    assert_eq!(left.iter().find(unpacked), None);

    let image = File::create(run.directory.path().join("bzImage")).unwrap();
    image.set_len(3_500 << 20).unwrap();
    refused(
        &run,
        &["kernels", "bzImage", "bzImage"],
        &["at most 512 MiB are read"],
    );
}

/// A recording that was cut off: two CPUs, and what is asked of its pages.
fn spool(run: &Run) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tracer/fixtures");
    let folder = run.directory.path().join(".t.parquet.9.spool");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    for name in ["spool.json", "cpu0.raw", "cpu1.raw"] {
        fs::copy(fixtures.join(name), folder.join(name)).unwrap();
    }
    folder
}

const RECOVER: [&str; 5] = [
    "record",
    "--recover",
    ".t.parquet.9.spool",
    "-o",
    "t.parquet",
];

#[test]
fn a_spool_whose_descriptions_have_no_end() {
    let run = Run::new();
    for name in ["end.json", "spool.json"] {
        let folder = spool(&run);
        File::create(folder.join(name))
            .unwrap()
            .set_len(64 << 30)
            .unwrap();
        refused(&run, &RECOVER, &[name, "it has more than"]);
        assert!(folder.join("cpu1.raw").exists(), "nothing is lost");
        assert!(!run.directory.path().join("t.parquet").exists());
    }
}

#[test]
fn a_spool_without_the_pages_of_a_cpu() {
    let run = Run::new();
    let folder = spool(&run);
    let aside = run.directory.path().join("cpu1.raw");
    fs::rename(folder.join("cpu1.raw"), &aside).unwrap();
    let output = limited(&run, &RECOVER);
    let (said, told) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("cpu1.raw is not there") && said.contains("events of CPU 1"),
        "{said}"
    );
    assert!(
        told.contains("missing   events of CPU 1: cpu1.raw is not in the folder"),
        "{told}"
    );
    assert!(folder.join("cpu0.raw").exists(), "the folder stays");

    fs::rename(&aside, folder.join("cpu1.raw")).unwrap();
    let output = limited(&run, &RECOVER);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("events    962"), "{output:?}");
    assert!(!folder.exists());
}

/// A Parquet file of 238 bytes: two columns, each a dictionary of one value and a run of 2^31 - 1 times that value.
const MANY_ROWS: &str = "504152311504151015104c15021500000005000000000000001500150e150e2c15feffffff0f1510150615060000\
01feffffff0f001504151015104c15021500000004000000657869741500150e150e2c15feffffff0f151015061506000001feffffff0f0015021\
93c48017215040015042500180774696d655f6e7300150c250018046b696e640016feffffff0f191c192c26081c15041925001019180774696d65\
5f6e73150016feffffff0f16621662263226080000266a1c150c192500101918046b696e64150016feffffff0f16621662269401266a000016cc0\
116feffffff0f00008000000050415231";

#[test]
fn a_parquet_file_that_claims_more_rows_than_it_can_hold() {
    let run = Run::new();
    let digits: Vec<u8> = MANY_ROWS.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
    put(&run, "many.parquet", bytes);
    let says = [
        "many.parquet",
        "2147483647 rows",
        "more than its 238 bytes can hold",
    ];
    for words in [
        &["explain", "many.parquet"][..],
        &["export", "many.parquet", "--to", "csv", "-o", "x"],
        &["replay", "placement", "many.parquet"],
        &["replay", "chunks", "many.parquet"],
        &["replay", "roundtrip", "many.parquet"],
    ] {
        refused(&run, words, &says);
    }
}

#[test]
fn counts_that_nobody_can_wait_for() {
    let run = Run::new();
    let operations = "at most 100,000,000";
    for (words, says) in [
        (
            &["export", "frag", "--to", "csv", "-o", "x", "--ops", "1g"][..],
            operations,
        ),
        (
            &["export", "frag", "--to", "csv", "-o", "x", "--n", "1g"],
            "at most",
        ),
        (&["replay", "placement", "frag", "--ops", "10g"], operations),
        (
            &["replay", "placement", "frag", "--n", "1g"],
            "above 67,108,864",
        ),
        (&["replay", "chunks", "--buffers", "1g"], "at most"),
        (&["replay", "roundtrip", "--round-trips", "1g"], "1 to"),
        (&["replay", "roundtrip", "--k", "4g"], "--k"),
        (
            &["replay", "reclaim", "--runs", "1001"],
            "at least 1 and at most 1,000",
        ),
        (
            &[
                "advise", "chunks", "--device", "4K", "--access", "linear", "--passes", "1g",
            ],
            operations,
        ),
        (
            &["probe", "placement", "--steps", "1000000000000"],
            operations,
        ),
        (
            &["probe", "placement", "--freegap-rounds", "1g"],
            operations,
        ),
        (
            &["probe", "placement", "--agua-loops", "4000000000"],
            "at most 1,000,000",
        ),
        (
            &["probe", "placement", "--agua-live", "4000000000"],
            "at most 64,000,000",
        ),
        (
            &["probe", "placement", "--agua-drop", "4000000000"],
            "at most 64,000,000",
        ),
        (
            &["probe", "placement", "--runs", "4000000000"],
            "at most 10,000",
        ),
        (&["probe", "roundtrip", "--round-trips", "1g"], operations),
        (
            &["probe", "roundtrip", "--k", "4000000000"],
            "at most 1,000,000",
        ),
        (
            &["probe", "chunks", "--buffers", "4000000000"],
            "at most 100,000",
        ),
        (&["probe", "reclaim", "--passes", "1001"], "at most 1000"),
        (&["probe", "wakeup", "--runs", "10001"], "at most 10,000"),
        (&["explain", "x", "--top", "1g"], "at most 10000"),
        (
            &["compare", "--run", "a", "--run", "b", "-n", "5001"],
            "at least 2 and at most 5,000",
        ),
        (
            &["kernels", "a", "b", "--seeds", "1001"],
            "at least 1 and at most 1,000",
        ),
        (
            &["kernels", "a", "b", "--workloads", "pbobench:1g"],
            "pbobench:1g",
        ),
    ] {
        refused(&run, words, &[says]);
    }
}

/// The text that `cyclictest -h` prints at its end.
const CYCLICTEST: &str = "\
# Histogram
000005 000003 000000
000010 000100 000200
# Total: 000000103 000000200
# Min Latencies: 00005 00010
# Avg Latencies: 00009 00010
# Max Latencies: 35400 00012
# Histogram Overflows: 00001 00000
# Histogram Overflow at cycle number:
# Thread 0: 00012
# Thread 1:
";

const CYCLICTEST_Q: &str =
    "T: 0 (  792) P: 0 I:500 C:   6801 Min:     26 Act:   88 Avg:  175 Max:   35377\n";

const RTLA: &str = "\
# RTLA timerlat histogram
# Time unit is microseconds (us)
# Duration:   0 00:00:10
Index   IRQ-000   Thr-000
0          4764         0
9             0      4764
over:         0         0
count:     4764      4764
min:          0         9
avg:          0         9
max:          8        19
";

const HYPERFINE: &str = "{\"results\":[{\"command\":\"a\",\"times\":[1.25,1.5,1.75]}]}\n";

/// What is compared of a file: its longest sample, and of each endpoint the figures of all runs.
fn compared(run: &Run, name: &str) -> Option<(serde_json::Value, Vec<Vec<f64>>)> {
    let output = limited(run, &["compare", name, "whole", "--json"]);
    if output.status.code() != Some(0) {
        let said = text(&output.stderr);
        let refused = output.status.code() == Some(1) && said.starts_with("stopgap: cut: ");
        assert!(refused, "{output:?}");
        return None;
    }
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let runs = |endpoint: &serde_json::Value| {
        let runs = endpoint["before_runs"].as_array().unwrap();
        runs.iter().map(number).collect()
    };
    let endpoints = record["endpoints"].as_array().unwrap();
    Some((
        record["before"]["max"].clone(),
        endpoints.iter().map(runs).collect(),
    ))
}

/// Wherever a result is cut off, it is refused, or what is compared of it is what is compared of the whole.
#[test]
fn a_result_that_is_cut_off_is_never_another_result() {
    let run = Run::new();
    for whole in [
        CYCLICTEST,
        CYCLICTEST_Q,
        RTLA,
        HYPERFINE,
        "12.5\n13.25\n14.125\n",
    ] {
        put(&run, "whole", whole);
        put(&run, "copy", whole);
        let (longest, endpoints) = compared(&run, "copy").expect("the whole is compared");
        assert!(endpoints.iter().all(|runs| !runs.is_empty()) && !endpoints.is_empty());
        // Each is a process: all cuts of the end, where totals stand, and some of the beginning.
        let near = |at: &usize| at + 80 > whole.len() || at.is_multiple_of(11);
        for at in (1..whole.len()).filter(near) {
            put(&run, "cut", &whole[..at]);
            let Some((longest_of_cut, of_cut)) = compared(&run, "cut") else {
                continue;
            };
            assert_eq!(longest_of_cut, longest, "cut at {at}: {}", &whole[..at]);
            for (some, all) in of_cut.iter().zip(&endpoints) {
                // Between two numbers of a line each nobody can tell.
                let lines = whole.starts_with('1') && whole[..at].ends_with('\n');
                let all = if lines { &all[..some.len()] } else { all };
                assert_eq!(some, all, "cut at {at}: {}", &whole[..at]);
            }
        }
    }
}

/// Texts of other tools end with a line feed: without it digits may be missing.
#[test]
fn a_text_that_is_cut_off_is_explained_as_far_as_it_goes() {
    let run = Run::new();
    let whole = "\
            a    10 [000]     1.000000000: raw_syscalls:sys_enter: NR 0 (3, 7f, 10, 0, 0, 0)
            a    10 [000]     1.000100000: raw_syscalls:sys_exit: NR 0 = 140234
";
    put(&run, "perf.txt", whole);
    assert_eq!(
        limited(&run, &["explain", "perf.txt"]).status.code(),
        Some(0)
    );
    put(&run, "perf.txt", &whole[..whole.len() - 4]);
    let output = limited(&run, &["explain", "perf.txt"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said.contains("line 2: it ends without a line feed"),
        "{said}"
    );
    assert!(text(&output.stdout).contains("1 event"), "{output:?}");
}

/// ministat is a drop-in: it takes the number, and says what may be wrong with it.
#[test]
fn a_last_number_without_its_line_feed_is_told() {
    let run = Run::new();
    put(&run, "cut", "12.5\n13.25\n14.1");
    let output = limited(&run, &["ministat", "cut"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("cut ends without a line feed"), "{said}");
}

/// The explainer keeps something for each thread, so it stops where a trace has more threads than any machine.
#[test]
fn a_trace_of_too_many_threads() {
    let run = Run::new();
    let mut lines = String::new();
    for tid in 1..=300_000 {
        lines.push_str(&format!("{{\"time_ns\":{tid},\"kind\":\"exit\",\"pid\":{tid},\"tid\":{tid},\"comm\":\"n{tid}\"}}\n"));
    }
    put(&run, "threads.jsonl", lines);
    let output = limited(&run, &["explain", "threads.jsonl"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("more than 262144 threads and names; what comes before is explained"),
        "{said}"
    );
}

/// A bar while a long trace is read, and Ctrl-C ends it.
#[test]
fn a_long_replay_shows_how_far_it_is_and_ends_at_ctrl_c() {
    if Command::new("script").arg("--version").output().is_err() {
        return skip("a bar on a terminal: there is no script(1) to make one");
    }
    let run = Run::new();
    let mut lines = String::new();
    for id in 0..400_000 {
        let at = id * 1_000;
        lines.push_str(&format!(
            "{{\"time_ns\":{at},\"kind\":\"map\",\"id\":{id},\"length_bytes\":4096,\"protection\":\"write\",\
             \"merge\":\"never\"}}\n"
        ));
    }
    put(&run, "maps.jsonl", lines);
    let begin = Instant::now();
    let line = format!("timeout -s INT 1 {STOPGAP} replay chunks maps.jsonl");
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(run.directory.path())
        .env("XDG_STATE_HOME", run.directory.path())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("reading maps.jsonl"), "{shown}");
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn a_budget_that_holds_no_load_leaves_the_fixes_untried() {
    let run = Run::new();
    let output = run.output(&["check", "--quick", "--memory", "1", "--json"]);
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a record");
    let answers = record["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 4);
    for fix in answers
        .iter()
        .flat_map(|answer| answer["fixes"].as_array().unwrap())
    {
        assert!(
            fix["pairs"].as_array().unwrap().is_empty(),
            "it was tried: {fix}"
        );
        let why = fix["why"].as_str().unwrap_or_default();
        let said = why.contains("memory budget of 1 B") || why.contains("no memory pressure");
        assert!(said, "{fix}");
    }
}
