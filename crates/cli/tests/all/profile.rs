//! Where CPU time goes: `record --samples` and `explain` of programs of which it is known.
//!
//! Captures need root and tracefs, and programs a C compiler; otherwise skipped, and said.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Run, may, text, valid};
use serde_json::Value;
use stopgap_testing::{Skip, skip};

/// Samples per second of CPU time. A program needs 0.25 s for some 1,250: a share of 70 % is then 70 +- 1.3.
const HZ: &str = "4999";

/// `spin spin` is in seventy() for 70 % of its time and in thirty() for the rest; `spin maps` maps and unmaps 256 KiB of
/// memory again and again; `spin threads` has a thread `large` with three times the CPU time of a thread `small`.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
static volatile unsigned long sink[64];
static double spent(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
__attribute__((noinline)) void seventy(int w) { for (int i = 0; i < 700000; i++) sink[w]++; }
__attribute__((noinline)) void thirty(int w) { for (int i = 0; i < 300000; i++) sink[w]++; }
static void *thread(void *of) {
  int large = of != 0;
  pthread_setname_np(pthread_self(), large ? "large" : "small");
  while (spent(CLOCK_THREAD_CPUTIME_ID) < (large ? 0.225 : 0.075)) seventy(large * 32);
  return 0;
}
int main(int count, char **words) {
  if (count > 1 && !strcmp(words[1], "threads")) {
    pthread_t both[2];
    for (long i = 0; i < 2; i++) pthread_create(&both[i], 0, thread, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(both[i], 0);
    return 0;
  }
  int maps = count > 1 && !strcmp(words[1], "maps");
  while (spent(CLOCK_PROCESS_CPUTIME_ID) < 0.25) {
    if (maps) {
      for (int i = 0; i < 20; i++)
        munmap(mmap(0, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0), 1 << 18);
    } else {
      seventy(0);
      thirty(0);
    }
  }
  return 0;
}
"#;

/// Compiles the program with these flags; skips the test and returns `None` where that fails.
fn compiled(folder: &Path, flags: &[&str]) -> Option<PathBuf> {
    let source = folder.join("spin.c");
    fs::write(&source, PROGRAM).unwrap();
    let program = folder.join("spin");
    let built = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &source])
        .args(flags)
        .output();
    match built {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            skip(&Skip::program(format!(
                "cc {flags:?}: {}",
                text(&output.stderr)
            )));
            None
        }
        Err(error) => {
            skip(&Skip::program(format!("cc: {error}")));
            None
        }
    }
}

/// The document of a command that was recorded with samples. Its shares add up.
fn profiled(run: &Run, words: &[&str]) -> Value {
    let file = run.directory.path().join("trace.parquet");
    let file = file.to_str().unwrap();
    let mut all = vec!["record", "--samples", HZ, "-o", file, "--"];
    all.extend(words);
    let output = run.output(&all);
    assert!(output.status.success(), "{output:?}");
    let output = run.output(&["explain", file, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let document = valid("stopgap.explain-2.json", &text(&output.stdout));
    adds_up(&document["profile"]);
    document
}

/// Each sample is in each of the lists once: nothing is left out.
fn adds_up(profile: &Value) {
    let samples = count(&profile["samples"]);
    let sum = |list: &Value, of: &str| -> u64 {
        let list = list.as_array().unwrap();
        list.iter().map(|one| count(&one[of])).sum()
    };
    let by = |of: &Value| count(&of["user"]) + count(&of["kernel"]) + count(&of["unnamed"]);
    assert_eq!(by(&profile["innermost"]), samples);
    assert_eq!(sum(&profile["threads"], "samples"), samples);
    assert_eq!(sum(&profile["functions"], "own_samples"), samples);
    assert_eq!(sum(&profile["stacks"], "samples"), samples);
    for thread in profile["threads"].as_array().unwrap() {
        let of_thread = count(&thread["samples"]);
        assert_eq!(sum(&thread["states"], "samples"), of_thread);
        assert_eq!(by(&thread["innermost"]), of_thread);
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Per cent of the profile's samples in rows of `list` that `is` of `key`.
fn share(profile: &Value, list: &str, key: &str, is: &str, of: &str) -> f64 {
    let rows = profile[list].as_array().unwrap().iter();
    let of_it = rows.filter(|row| row[key] == is).map(|row| count(&row[of]));
    of_it.sum::<u64>() as f64 / count(&profile["samples"]) as f64 * 100.0
}

/// Own samples of a function, in per cent.
fn own(profile: &Value, function: &str) -> f64 {
    share(profile, "functions", "function", function, "own_samples")
}

/// The shares are the program's own: 70 to 30 within 5 points. Frame pointers or none, static or not: the innermost function is right. Stripped it is unknown, and said to be.
#[test]
fn functions_have_the_shares_that_they_have() {
    if !may("record --samples") {
        return;
    }
    for flags in [
        &["-fno-omit-frame-pointer"][..],
        &["-fomit-frame-pointer"],
        &["-static"],
    ] {
        let run = Run::new();
        let Some(program) = compiled(run.directory.path(), flags) else {
            continue;
        };
        let document = profiled(&run, &[program.to_str().unwrap()]);
        let profile = &document["profile"];
        let [seventy, thirty] = ["seventy", "thirty"].map(|function| own(profile, function));
        println!(
            "{flags:?}: seventy {seventy:.1} %, thirty {thirty:.1} % of {}",
            profile["samples"]
        );
        // What is left is the kernel's: switches and their tracing, more of it on a busy machine.
        let both = seventy + thirty;
        assert!(both > 85.0, "{flags:?} {seventy} {thirty}");
        assert!(
            (seventy / both - 0.7).abs() < 0.05,
            "{flags:?} {seventy} {thirty}"
        );
    }
    let run = Run::new();
    let Some(program) = compiled(run.directory.path(), &["-s"]) else {
        return;
    };
    let document = profiled(&run, &[program.to_str().unwrap()]);
    let unnamed = own(&document["profile"], "spin [no symbol]");
    println!("stripped: {unnamed:.1} % in the program, no symbol");
    assert!(unnamed > 90.0, "{unnamed}");
    let file = run.directory.path().join("trace.parquet");
    let screen = text(&run.output(&["explain", file.to_str().unwrap()]).stdout);
    for part in ["PROFILE", "spin [no symbol]", "in code without a name"] {
        assert!(screen.contains(part), "no '{part}' in:\n{screen}");
    }
}

#[test]
fn threads_and_the_kernel_have_theirs() {
    if !may("record --samples") {
        return;
    }
    let run = Run::new();
    if let Some(program) = compiled(run.directory.path(), &["-fno-omit-frame-pointer"]) {
        let document = profiled(&run, &[program.to_str().unwrap(), "threads"]);
        let profile = &document["profile"];
        let [large, small] =
            ["large", "small"].map(|thread| share(profile, "threads", "task", thread, "samples"));
        println!("large {large:.1} %, small {small:.1} %");
        assert!((large - 75.0).abs() < 7.0, "{large} {small}");
        assert!((small - 25.0).abs() < 7.0, "{large} {small}");
    }
    let run = Run::new();
    let words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=3000"];
    let document = profiled(&run, &words);
    let profile = &document["profile"];
    let dd = profile["threads"].as_array().unwrap().iter();
    let dd = dd.filter(|thread| thread["task"] == "dd");
    let states = dd.flat_map(|thread| thread["states"].as_array().unwrap());
    let reads = states.filter(|state| state["call"] == "read");
    let reads: u64 = reads.map(|state| count(&state["samples"])).sum();
    let (kernel, all) = (
        count(&profile["innermost"]["kernel"]),
        count(&profile["samples"]),
    );
    println!("dd: {reads} in read, {kernel} in the kernel, of {all}");
    assert!(reads * 10 > all * 7 && kernel * 10 > all * 7, "{profile:#}");
}

/// The profile names an interpreter's functions and counts code without a name.
#[test]
fn of_an_interpreter_nothing_is_left_out() {
    if !may("record --samples") {
        return;
    }
    let run = Run::new();
    let program = "import time\nn = 0\nwhile time.process_time() < 0.2: n += sum(range(1000))";
    if let Err(error) = Command::new("python3").args(["-c", ""]).output() {
        return skip(&Skip::program(format!("python3: {error}")));
    }
    let document = profiled(&run, &["python3", "-c", program]);
    let profile = &document["profile"];
    println!("python3: {}", profile["innermost"]);
    assert!(count(&profile["samples"]) > 200, "{profile:#}");
}

/// Mail 000: maps of which none takes a millisecond, and a thread that does nothing else.
#[test]
fn many_short_maps_are_found() {
    if !may("record --samples") {
        return;
    }
    let run = Run::new();
    let Some(program) = compiled(run.directory.path(), &["-fno-omit-frame-pointer"]) else {
        return;
    };
    let document = profiled(&run, &[program.to_str().unwrap(), "maps"]);
    println!("{}", document["verdict"]["text"]);
    let short = &document["short_calls"][0];
    assert_eq!(
        (&document["verdict"]["word"], &short["task"]),
        (&"stalls".into(), &"spin".into())
    );
    assert!(short["share"].as_f64().unwrap() > 0.7, "{short:#}");
    assert!(count(&short["samples"]) > 500, "{short:#}");
    assert!(
        !short["functions"].as_array().unwrap().is_empty(),
        "{short:#}"
    );
    let told = document["verdict"]["text"].as_str().unwrap();
    let sentence = short["text"].as_str().unwrap();
    assert!(told.contains(sentence), "{told}");
}

/// 10,000 calls of `us` microseconds, and as long in between, with a sample in each tenth.
fn calls(us: u64) -> String {
    let mut lines = String::from(
        "{\"schema\":\"stopgap.trace/1\",\"clock\":\"monotonic\",\"losses\":[],\"sample_period_ns\":1000000}\n",
    );
    let switch = "\"kind\":\"switch\",\"state\":\"R\",\"next_tid\":7";
    writeln!(lines, "{{\"time_ns\":0,\"cpu\":0,\"tid\":0,{switch}}}").unwrap();
    let mut event = |now: u64, rest: &str| {
        let who = "\"cpu\":0,\"pid\":7,\"tid\":7,\"comm\":\"mapper\"";
        writeln!(lines, "{{\"time_ns\":{now},{who},{rest}}}").unwrap();
    };
    let stack = |stack: &str| format!("\"kind\":\"sample\",\"stack\":\"{stack}\"");
    let call = |kind: &str, name: &str| {
        format!("\"kind\":\"syscall-{kind}\",\"syscall\":1,\"syscall_name\":\"{name}\"")
    };
    let mut now = 2;
    for index in 0..10_000 {
        let name = ["mmap", "munmap"][index % 2];
        event(now, &call("enter", name));
        if index % 10 < 4 {
            let function = ["vm_unmapped_area", "find_vma"][usize::from(index % 10 == 3)];
            event(
                now + 1,
                &stack(&format!("main;do_syscall_64_[k];{function}_[k]")),
            );
        }
        now += us * 1_000;
        event(now, &call("exit", name));
        if index % 10 == 5 {
            event(now + 1, &stack("main;app+0x1f"));
        }
        now += us * 1_000;
    }
    lines
}

#[test]
fn short_calls_are_a_stall_where_a_thread_spends_its_time_in_them() {
    let explained = |us: u64| {
        let run = Run::new();
        let path = run.directory.path().join("trace.jsonl");
        fs::write(&path, calls(us)).unwrap();
        let output = run.output(&["explain", path.to_str().unwrap(), "--json"]);
        assert!(output.status.success(), "{output:?}");
        valid("stopgap.explain-2.json", &text(&output.stdout))
    };
    let document = explained(100);
    adds_up(&document["profile"]);
    assert_eq!(
        document["verdict"]["text"],
        "stalls: mapper spent 50 % of its 2.00 s of work in 10000 short calls of the mmap family, 100 us each, the longest \
         100 us, none above 1 ms (mmap 5000, munmap 5000); the kernel was in vm_unmapped_area 75 %, find_vma 25 % \
         there (4000 samples)"
    );
    let profile = &document["profile"];
    let shares =
        ["app [no symbol]", "vm_unmapped_area_[k]"].map(|name| own(profile, name).round() as i64);
    assert_eq!(shares, [20, 60]);
    let states = &profile["threads"][0]["states"];
    let told = states.as_array().unwrap().iter();
    let told: Vec<_> = told
        .map(|state| (state["state"].as_str().unwrap(), count(&state["samples"])))
        .collect();
    assert_eq!(
        told,
        [
            ("in mmap", 2_000),
            ("in munmap", 2_000),
            ("user mode", 1_000)
        ]
    );
    // The same calls of 1 us come to 10 ms: nobody notices.
    let document = explained(1);
    assert_eq!(document["short_calls"], Value::Array(Vec::new()));
    assert_eq!(document["verdict"]["word"], "clean");
}
