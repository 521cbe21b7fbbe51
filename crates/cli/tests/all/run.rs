//! `stopgap run --fix` through the command.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use crate::common::{Run, STOPGAP, pipe, text, valid, wait_for, words};
use stopgap_testing::{Skip, skip};

/// The library, built beside the command under test.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let profile = std::path::Path::new(STOPGAP).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(words("build -q --locked -p stopgap-preload --target-dir"));
    build.arg(profile.parent().unwrap());
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(built.unwrap().success(), "{build:?}");
    profile.join("libstopgap_preload.so")
});

fn run(words: &[&str]) -> Command {
    let mut command = Command::new(STOPGAP);
    command.args(words).env("STOPGAP_PRELOAD", &*LIBRARY);
    command
}

#[test]
fn the_command_runs_with_the_library_and_ends_as_itself() {
    let shown = run(&["run", "--fix", "arena", "--", "cat", "/proc/self/maps"])
        .output()
        .unwrap();
    assert!(shown.status.success(), "{shown:?}");
    assert!(text(&shown.stdout).contains("libstopgap_preload.so"));
    assert_eq!(text(&shown.stderr), "");
    let status = run(&["run", "--fix", "arena", "--", "sh", "-c", "exit 7"]).status();
    assert_eq!(status.unwrap().code(), Some(7));
    let none = run(&["run", "--fix", "arena", "--", "/no/such/command"])
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(127), "{none:?}");
    let folder = run(&["run", "--fix", "arena", "--", "/"]).output().unwrap();
    assert_eq!(folder.status.code(), Some(126), "{folder:?}");
}

#[test]
fn what_is_preloaded_already_stays_and_the_library_comes_once() {
    let words = [
        "run",
        "--fix",
        "arena",
        "--",
        STOPGAP,
        "run",
        "--fix",
        "arena,chunks=one-page",
        "--",
        "env",
    ];
    let shown = run(&words).output().unwrap();
    let shown = text(&shown.stdout);
    let own = LIBRARY.canonicalize().unwrap();
    assert!(
        shown.contains(&format!("LD_PRELOAD={}\n", own.display())),
        "{shown}"
    );
    assert!(shown.contains("STOPGAP_ADVICE=nohuge\n"), "{shown}");
    let other = run(&["run", "--fix", "arena", "--", "env"])
        .env("LD_PRELOAD", "libm.so.6")
        .output();
    let other = text(&other.unwrap().stdout);
    assert!(
        other.contains(&format!("LD_PRELOAD={}:libm.so.6\n", own.display())),
        "{other}"
    );
}

#[test]
fn pages_are_kept_only_where_that_is_asked_for_and_it_says_for_whom_that_is_unsafe() {
    let shown = |list: &str, given: Option<&str>| {
        let mut command = run(&["run", "--fix", list, "--", "env"]);
        if let Some(given) = given {
            command.env("STOPGAP_KEEP", given);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let all = text(&output.stdout);
        let keep = all
            .lines()
            .find_map(|line| line.strip_prefix("STOPGAP_KEEP="));
        (keep.unwrap().to_owned(), text(&output.stderr))
    };
    for list in ["arena", "chunks=one-page"] {
        assert_eq!(shown(list, None), ("0".to_owned(), String::new()), "{list}");
        assert_eq!(shown(list, Some("64M")).0, "0", "{list}");
    }
    for (given, kept) in [(None, "32M"), (Some("64M"), "64M"), (Some(""), "32M")] {
        let (keep, told) = shown("arena-keep", given);
        assert_eq!(keep, kept);
        let first = told.lines().next().unwrap();
        assert!(
            first.starts_with("stopgap: arena-keep is unsafe for programs"),
            "{told}"
        );
    }
}

/// A program that maps, and reads what it freed; the runtime of the sanitizer is a shared library, as gcc has it by
/// default.
#[test]
fn a_sanitizer_starts_and_finds_its_faults_under_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("freed.c");
    std::fs::write(
        &source,
        "#include <stdlib.h>\n#include <stdio.h>\n#include <sys/mman.h>\n\
         int main(int count, char **words) {\n\
         for (int i = 0; i < 1000; i++) {\n\
         char *at = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
         if (at == MAP_FAILED || at[5]) return 2;\n\
         at[5] = 1; munmap(at, 65536); }\n\
         if (mlockall(MCL_CURRENT)) return 3;\n\
         puts(\"mapped\"); fflush(stdout);\n\
         volatile char *freed = malloc(100); free((void *)freed);\n\
         return count > 1 ? freed[3] : 0; }\n",
    )
    .unwrap();
    for (word, status) in [("address", 1), ("thread", 66)] {
        let program = folder.path().join(word);
        let built = Command::new("cc")
            .arg(format!("-fsanitize={word}"))
            .args(["-g", "-o"])
            .args([&program, &source])
            .output()
            .unwrap();
        let plain = Command::new(&program).output();
        let works = plain.is_ok_and(|plain| plain.status.success());
        if !built.status.success() || !works {
            // The compiler has no such runtime, or that does not run on this kernel.
            skip(&Skip::program(format!(
                "cc -fsanitize={word}: {}",
                text(&built.stderr)
            )));
            continue;
        }
        let path = program.to_str().unwrap();
        for (list, words) in [
            ("arena", vec![path]),
            ("arena-keep", vec![path]),
            ("arena", vec!["sh", "-c", path]),
            ("arena-keep", vec!["sh", "-c", path]),
        ] {
            let all = [vec!["run", "--fix", list, "--"], words.clone()].concat();
            let output = run(&all).output().unwrap();
            assert!(output.status.success(), "{all:?}: {output:?}");
            assert_eq!(text(&output.stdout), "mapped\n");
            let told = text(&output.stderr);
            let said = told.contains("is built with a sanitizer");
            assert_eq!(said, words.len() == 1, "{told}");
            if word == "address" {
                let faulty = format!("{path} x");
                let output = run(&["run", "--fix", list, "--", "sh", "-c", &faulty])
                    .output()
                    .unwrap();
                assert_eq!(output.status.code(), Some(status), "{output:?}");
                let told = text(&output.stderr);
                assert!(told.contains("heap-use-after-free"), "{told}");
            }
        }
    }
}

#[test]
fn without_the_library_it_says_how_to_build_it() {
    // Beside the command, where there is none.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("stopgap");
    stopgap_kernel::fake::install(std::path::Path::new(STOPGAP), &copy);
    let output = Command::new(&copy)
        .args(["run", "--fix", "arena", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    // SCHED_BATCH needs none.
    let words = [
        "run",
        "--fix",
        "batch-client",
        "--",
        "sh",
        "-c",
        "cat /proc/$$/sched | grep policy; chrt -p $$",
    ];
    let output = Command::new(&copy).args(words).output().unwrap();
    assert!(text(&output.stdout).contains("SCHED_BATCH"), "{output:?}");
}

#[test]
fn a_fix_that_is_none_is_refused() {
    for fix in ["arena-files", "arena-keep=1", ""] {
        for (measure, status) in [(&["--measure"][..], 1), (&[], 125)] {
            let words = [&["run", "--fix", fix], measure, &["--", "true"]].concat();
            let output = run(&words).output().unwrap();
            assert_eq!(output.status.code(), Some(status), "{fix}: {output:?}");
        }
    }
}

#[test]
fn it_measures_with_and_without_in_turn() {
    let here = Run::new();
    let mut command = here.command(&[
        "run",
        "--fix",
        "arena,batch-client",
        "--measure",
        "-n",
        "2",
        "--json",
        "--",
        "sh",
        "-c",
        "echo \"it's\" $0",
        "word",
    ]);
    let output = command.env("STOPGAP_PRELOAD", &*LIBRARY).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let record = valid("stopgap.run-fix-1.json", &text(&output.stdout));
    assert_eq!(
        record["fixes"],
        serde_json::json!(["arena", "batch-client"])
    );
    assert!(record["cpu_time"]["ratio"].is_number(), "{record}");
    assert_eq!(record["comparison"]["before"]["runs"], 2);
    let described = record["described"].as_array().unwrap();
    assert!(
        described.iter().any(|one| one["name"] == "minor faults"),
        "{record}"
    );
    let failing = run(&words("run --fix arena --measure -n 2 -- false"))
        .output()
        .unwrap();
    assert_eq!(failing.status.code(), Some(1), "{failing:?}");
}

/// It would be loaded, and nothing would be as it says.
#[test]
fn another_real_library_is_told_before_anything_runs() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split(' ').next_back());
    let libc = paths.find(|path| path.ends_with("/libc.so.6")).unwrap();
    for (measure, status) in [(&["--measure", "-n", "2"][..], 3), (&[], 125)] {
        let words = [&["run", "--fix", "arena"], measure, &["--", "true"]].concat();
        let mut command = run(&words);
        let shown = command.env("STOPGAP_PRELOAD", libc).output().unwrap();
        assert_eq!(shown.status.code(), Some(status), "{shown:?}");
        assert_eq!(text(&shown.stdout), "");
        let told = text(&shown.stderr);
        assert!(told.contains("libc.so.6 is another library"), "{told}");
        assert!(told.contains("libstopgap_preload.so"), "{told}");
    }
}

#[test]
fn large_maps_take_one_policy() {
    let fix = |list: &str| run(&["run", "--fix", list, "--", "true"]).output().unwrap();
    let two = fix("chunks=fold,chunks=one-page");
    assert_eq!(two.status.code(), Some(125), "{two:?}");
    assert!(text(&two.stderr).contains("one policy"), "{two:?}");
    let same = fix("chunks=one-page,arena,chunks=one-page");
    assert_eq!(same.status.code(), Some(0), "{same:?}");
}

/// A thread under SCHED_IDLE, which it needs no privilege for, keeps it: the command is not run.
#[test]
fn a_policy_of_its_own_choice_is_not_taken_away() {
    for (measure, status) in [(&["--measure", "-n", "2"][..], 3), (&[], 125)] {
        let mut words = vec!["--idle", "0", STOPGAP, "run", "--fix", "batch-client"];
        words.extend(measure);
        words.extend(["--", "true"]);
        let shown = Command::new("chrt").args(words).output().unwrap();
        assert_eq!(shown.status.code(), Some(status), "{shown:?}");
        assert!(
            text(&shown.stderr).contains("SCHED_BATCH for this thread"),
            "{shown:?}"
        );
    }
}

/// A pipe that nobody writes to, in the command's place and in the library's.
#[test]
fn a_command_that_is_a_pipe_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("pipe");
    pipe(&place);
    let pipe = place.to_str().unwrap();
    let mut as_library = run(&["run", "--fix", "arena", "--", "true"]);
    as_library.env("STOPGAP_PRELOAD", pipe);
    for (mut command, status) in [
        (run(&["run", "--fix", "arena", "--", pipe]), 126),
        (as_library, 125),
    ] {
        let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        let ended = wait_for("its end, without a writer", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(status), "{command:?}");
    }
}

#[test]
fn a_static_program_is_refused() {
    // This test's own program, its PT_INTERP made a PT_NULL.
    let mut program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let half = |at: usize| usize::from(u16::from_le_bytes([program[at], program[at + 1]]));
    let (size, count) = (half(54), half(56));
    let interpreter = (0..count)
        .map(|number| 64 + number * size)
        .find(|at| program[*at] == 3);
    program[interpreter.unwrap()] = 0;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("static");
    std::fs::write(&path, program).unwrap();
    let path = path.to_str().unwrap();
    for measure in [&["--measure", "-n", "2"][..], &[]] {
        let words = [&["run", "--fix", "arena"], measure, &["--", path]].concat();
        let shown = run(&words).output().unwrap();
        assert_eq!(shown.status.code(), Some(3), "{shown:?}");
        let told = text(&shown.stderr);
        assert!(told.contains("a library cannot be put under it"), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}
