//! Inputs that claim more than they are, and counts that nobody can wait for: each is refused in a moment and in little
//! memory. Children run under a limit of address space, so that a reader without a bound dies and the machine does not.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Done, Run, STOPGAP, has, names};
use stopgap_testing::{Skip, skip};

/// Runs `stopgap LINE` with 1 GiB of address space and 20 s of CPU time.
fn limited(run: &Run, line: &str) -> Done {
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "ulimit -v 1048576; ulimit -t 20; exec \"$0\" \"$@\"",
            STOPGAP,
        ])
        .args(line.split(' '))
        .current_dir(run.directory.path())
        .env("XDG_STATE_HOME", run.path("state"))
        .env("TMPDIR", run.directory.path());
    Done::new(line, &command.output().unwrap())
}

/// Fails unless it ends with status 1 and says `parts` in one line.
fn refused(run: &Run, line: &str, parts: &[&str]) {
    let done = limited(run, line).ends(1);
    // Somebody else may have killed a run here.
    let lines = done
        .err
        .lines()
        .filter(|line| !line.contains("after a killed run"));
    assert_eq!(lines.count(), 1, "{done:#?}");
    has(&done.err, parts);
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

/// A package that holds one entry of 3.5 GiB of zeros; it takes a block on the disk.
fn package(run: &Run, name: &str, entry: &str, kind: u8) {
    let size = 3_500 << 20;
    let mut file = File::create(run.path(name)).unwrap();
    let (binary, data) = (
        member("debian-binary", 4),
        member("data.tar", 512 + size + 1_024),
    );
    write!(file, "!<arch>\n{binary}2.0\n{data}").unwrap();
    file.write_all(&tar_header(entry, kind, size)).unwrap();
    let written = file.metadata().unwrap().len();
    file.set_len(written + size + 1_024).unwrap();
}

#[test]
fn a_package_whose_kernel_is_larger_than_any() {
    let run = Run::new();
    let larger = "larger than such a file of any kernel";
    let name_of_entry = "the name of an entry: it has more than 1 MiB";
    for (name, entry, kind, says) in [
        ("kernel.deb", "./boot/vmlinuz-6.1", b'0', larger),
        ("config.deb", "./boot/config-6.1", b'0', larger),
        ("name.deb", "././@LongLink", b'L', name_of_entry),
        ("pax.deb", "./PaxHeaders/x", b'x', name_of_entry),
    ] {
        package(&run, name, entry, kind);
        refused(&run, &format!("kernels {name} {name}"), &[name, says]);
    }
    // Nothing of it was unpacked.
    let left = names(run.directory.path());
    assert!(
        left.iter().all(|name| !name.contains("emulate")),
        "{left:?}"
    );

    let image = File::create(run.path("bzImage")).unwrap();
    image.set_len(3_500 << 20).unwrap();
    refused(
        &run,
        "kernels bzImage bzImage",
        &["at most 512 MiB are read"],
    );
}

/// A recording that was cut off: two CPUs, and what is asked of its pages.
fn spool(run: &Run) -> PathBuf {
    let folder = run.path(".t.parquet.9.spool");
    let _ = fs::remove_dir_all(&folder);
    crate::common::spool(&folder);
    folder
}

const RECOVER: &str = "record --recover .t.parquet.9.spool -o t.parquet";

#[test]
fn a_spool_whose_descriptions_have_no_end() {
    let run = Run::new();
    for name in ["end.json", "spool.json"] {
        let folder = spool(&run);
        let file = File::create(folder.join(name)).unwrap();
        file.set_len(64 << 30).unwrap();
        refused(&run, RECOVER, &[name, "it has more than"]);
        assert!(folder.join("cpu1.raw").exists(), "nothing is lost");
        assert!(!run.path("t.parquet").exists());
    }
}

#[test]
fn a_spool_without_the_pages_of_a_cpu() {
    let run = Run::new();
    let folder = spool(&run);
    fs::rename(folder.join("cpu1.raw"), run.path("cpu1.raw")).unwrap();
    let done = limited(&run, RECOVER).ends(1);
    has(&done.err, &["cpu1.raw is not there", "events of CPU 1"]);
    has(
        &done.out,
        &["missing   events of CPU 1: cpu1.raw is not in the folder"],
    );
    assert!(folder.join("cpu0.raw").exists(), "the folder stays");

    fs::rename(run.path("cpu1.raw"), folder.join("cpu1.raw")).unwrap();
    let done = limited(&run, RECOVER).ok();
    has(&done.out, &["waits     26", "events    765"]);
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
    run.write("many.parquet", bytes);
    for line in [
        "explain many.parquet",
        "export many.parquet --to csv -o x",
        "replay placement many.parquet",
        "replay chunks many.parquet",
        "replay roundtrip many.parquet",
    ] {
        let more = "more than its 238 bytes can hold";
        refused(&run, line, &["many.parquet", "2147483647 rows", more]);
    }
}

#[test]
fn counts_that_nobody_can_wait_for() {
    let run = Run::new();
    let operations = "at most 100,000,000";
    for (line, says) in [
        ("export frag --to csv -o x --ops 1g", operations),
        ("export frag --to csv -o x --n 1g", "at most"),
        ("replay placement frag --ops 10g", operations),
        ("replay placement frag --n 1g", "above 67,108,864"),
        ("replay chunks --buffers 1g", "at most"),
        ("replay roundtrip --round-trips 1g", "1 to"),
        ("replay roundtrip --k 4g", "give 1 to 1048576 descriptors"),
        ("replay reclaim --runs 1001", "at least 1 and at most 1,000"),
        (
            "advise chunks --device 4K --access linear --passes 1g",
            operations,
        ),
        ("probe placement --steps 1000000000000", operations),
        ("probe placement --freegap-rounds 1g", operations),
        (
            "probe placement --agua-loops 4000000000",
            "at most 1,000,000",
        ),
        (
            "probe placement --agua-live 4000000000",
            "at most 64,000,000",
        ),
        (
            "probe placement --agua-drop 4000000000",
            "at most 64,000,000",
        ),
        ("probe placement --runs 4000000000", "at most 10,000"),
        ("probe roundtrip --round-trips 1g", operations),
        ("probe roundtrip --k 4000000000", "at most 1,000,000"),
        ("probe chunks --buffers 4000000000", "at most 100,000"),
        ("probe reclaim --passes 1001", "at most 1000"),
        ("probe wakeup --runs 10001", "at most 10,000"),
        ("explain x --top 1g", "at most 10000"),
        (
            "compare --run a --run b -n 5001",
            "at least 2 and at most 5,000",
        ),
        ("kernels a b --seeds 1001", "1..=1000"),
        ("kernels a b --workloads pbobench:1g", "pbobench:1g"),
    ] {
        refused(&run, line, &[says]);
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
    let done = limited(run, &format!("compare {name} whole --json"));
    if done.status != Some(0) {
        let refused = done.status == Some(1) && done.err.starts_with("stopgap: cut: ");
        assert!(refused, "{done:#?}");
        return None;
    }
    let record: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let runs = |endpoint: &serde_json::Value| {
        let runs = endpoint["before_runs"].as_array().unwrap();
        runs.iter().map(number).collect()
    };
    let endpoints = record["endpoints"].as_array().unwrap().iter();
    Some((
        record["before"]["max"].clone(),
        endpoints.map(runs).collect(),
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
        run.write("whole", whole);
        run.write("copy", whole);
        let (longest, endpoints) = compared(&run, "copy").expect("the whole is compared");
        assert!(endpoints.iter().all(|runs| !runs.is_empty()) && !endpoints.is_empty());
        // Each is a process: all cuts of the end, where totals stand, and some of the beginning.
        let near = |at: &usize| at + 80 > whole.len() || at.is_multiple_of(11);
        for at in (1..whole.len()).filter(near) {
            run.write("cut", &whole[..at]);
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
    run.write("perf.txt", whole);
    limited(&run, "explain perf.txt").ok();
    run.write("perf.txt", &whole[..whole.len() - 4]);
    let done = limited(&run, "explain perf.txt").ends(1);
    has(&done.err, &["line 2: it ends without a line feed"]);
    has(&done.out, &["1 event"]);
}

/// The explainer keeps something for each thread, so it stops where a trace has more threads than any machine.
#[test]
fn a_trace_of_too_many_threads() {
    let run = Run::new();
    let line = |tid: u32| {
        format!(
            "{{\"time_ns\":{tid},\"kind\":\"exit\",\"pid\":{tid},\"tid\":{tid},\"comm\":\"n{tid}\"}}\n"
        )
    };
    run.write("threads.jsonl", (1..=300_000).map(line).collect::<String>());
    let done = limited(&run, "explain threads.jsonl").ends(1);
    has(
        &done.err,
        &["more than 262144 threads and names; what comes before is explained"],
    );
}

/// A bar while a long trace is read, and Ctrl-C ends it: else the model builds for minutes.
#[test]
fn a_long_replay_shows_how_far_it_is_and_ends_at_ctrl_c() {
    let run = Run::new();
    let line = |id: u64| {
        let at = id * 1_000;
        format!(
            "{{\"time_ns\":{at},\"kind\":\"map\",\"id\":{id},\"length_bytes\":4096,\"protection\":\"write\",\
             \"merge\":\"never\"}}\n"
        )
    };
    run.write("maps.jsonl", (0..400_000).map(line).collect::<String>());
    let line = format!(
        "ulimit -t 20; timeout -s INT 3 {STOPGAP} replay chunks maps.jsonl; echo ends with $?"
    );
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(run.directory.path())
        .env("XDG_STATE_HOME", run.directory.path())
        .stdin(std::process::Stdio::null())
        .output();
    let Ok(output) = output else {
        return skip(&Skip::program("script"));
    };
    // timeout(1) ends with 124 unless the command was killed for its CPU time.
    let shown = String::from_utf8_lossy(&output.stdout);
    has(&shown, &["reading maps.jsonl", "ends with 124"]);
}

#[test]
fn a_budget_that_holds_no_load_leaves_the_fixes_untried() {
    let run = Run::new();
    let record = run.stopgap("check --quick --memory 1 --json").out;
    let record: serde_json::Value = serde_json::from_str(&record).expect("a record");
    let answers = record["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 4);
    let fixes = answers
        .iter()
        .flat_map(|answer| answer["fixes"].as_array().unwrap());
    for fix in fixes {
        assert_eq!(fix["pairs"], serde_json::json!([]), "it was tried: {fix}");
        let why = fix["why"].as_str().unwrap_or_default();
        let said = why.contains("memory budget of 1 B") || why.contains("no memory pressure");
        assert!(said, "{fix}");
    }
}
