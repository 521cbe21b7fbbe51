//! An off-CPU profiler: where a process waits, by kernel stack, for some seconds.
//!
//!     cargo run --release -p stopgap-capture --example offcpu -- PID [SECONDS]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use stopgap_capture::{Capture, Follow, Level, Options, Record};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let process = words.next().ok_or("give a process id")?.parse()?;
    let seconds = words.next().map_or(Ok(5), |word| word.parse())?;
    let mut capture = Capture::start(&Options::default())?;
    let of_process = Follow {
        process: Some(process),
        ..Follow::all(Level::Whole)
    };
    let threads = capture.follow(&of_process)?;
    let mut by_stack: HashMap<Vec<u64>, (u64, u64)> = HashMap::new();
    let mut count = |_, bytes: &[u8]| {
        if let Ok(Record::Wait(wait)) = Record::parse(bytes) {
            let (waits, time) = by_stack.entry(wait.stack).or_default();
            *waits += 1;
            *time += wait.ran - wait.left;
        }
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        capture.read(&mut count);
    }
    let lost = capture.stop(&mut count)?;
    println!("{threads} threads, {lost} records lost");
    let names = Names::read()?;
    let mut stacks: Vec<_> = by_stack.into_iter().collect();
    stacks.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    for (stack, (waits, time)) in stacks.into_iter().take(10) {
        println!("{waits} waits, {} ms", time / 1_000_000);
        stack
            .iter()
            .for_each(|&address| println!("    {}", names.of(address)));
    }
    Ok(())
}

/// Kernel functions by address.
struct Names(Vec<(u64, String)>);

impl Names {
    fn read() -> std::io::Result<Names> {
        let text = std::fs::read_to_string("/proc/kallsyms")?;
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((address, words.nth(1)?.to_owned()))
        };
        let mut all: Vec<_> = text.lines().filter_map(line).collect();
        all.sort();
        Ok(Names(all))
    }
    fn of(&self, address: u64) -> &str {
        let after = self.0.partition_point(|(begin, _)| *begin <= address);
        after.checked_sub(1).map_or("?", |at| &self.0[at].1)
    }
}
