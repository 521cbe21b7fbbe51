//! Prints how many waits a second are decoded, and how many are written as a trace file.
//!
//! ```text
//! cargo run --release -p stopgap-tracer --example waits_per_second            # 2,000,000 waits of a made-up ping-pong
//! cargo run --release -p stopgap-tracer --example waits_per_second -- SPOOL   # those of a recording that was cut off
//! ```
//!
//! Reading the spool's files is part of it; CPU time is counted, so that other work on the machine does not matter.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_trace::Kind;
use stopgap_tracer::description::{Description, SCHEMA};
use stopgap_tracer::spool::{DESCRIPTION, Spool};
use stopgap_tracer::symbols::Symbols;
use stopgap_tracer::waits::{WaitsDescription, waits_of};

const WAITS: u32 = 2_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let made = tempfile::tempdir()?;
    let folder = match given {
        Some(folder) => folder,
        None => {
            make(made.path())?;
            made.path().to_owned()
        }
    };
    let spool = Spool::open(&folder)?;
    let mut trace = spool.trace(&Symbols::default())?;
    let begin = Linux.thread_cpu();
    let mut waits = 0_u64;
    while let Some(event) = trace.next_event()? {
        waits += u64::from(matches!(event.kind, Kind::Wait(_)));
    }
    say("decoded", waits, Linux.thread_cpu().saturating_sub(begin));
    let trace = spool.trace(&Symbols::default())?;
    let begin = Linux.thread_cpu();
    let written = trace.write(Vec::new())?;
    say("written", waits, Linux.thread_cpu().saturating_sub(begin));
    println!("{} bytes a wait", written.out.len() as u64 / waits.max(1));
    Ok(())
}

fn say(what: &str, waits: u64, took: Nanos) {
    let each = took.0 / waits.max(1);
    let rate = waits.saturating_mul(1_000_000_000) / took.0.max(1);
    println!("{what} {waits} waits in {took}: {rate} a second, {each} ns each");
}

/// Makes a spool of two rings: on each, client and server of a ping-pong wake each other and sleep in poll(2) and read(2).
fn make(folder: &Path) -> std::io::Result<()> {
    let description = Description {
        schema: SCHEMA.to_owned(),
        waits: Some(WaitsDescription {
            files: 2,
            ..WaitsDescription::default()
        }),
        syscalls: [(0, "read"), (1, "write"), (7, "poll")]
            .map(|(number, name)| (number, name.to_owned()))
            .into(),
        ..Description::default()
    };
    fs::write(folder.join(DESCRIPTION), serde_json::to_vec(&description)?)?;
    for ring in 0..2_u32 {
        let mut file = Vec::new();
        let tids = [1000 + 2 * ring, 1001 + 2 * ring];
        for tid in tids {
            record(&mut file, &task(tid));
        }
        for turn in 0..WAITS / 2 {
            let (own, other) = (tids[turn as usize % 2], tids[(turn as usize + 1) % 2]);
            record(&mut file, &wait(ring, turn, own, other));
        }
        fs::write(folder.join(waits_of(ring)), file)?;
    }
    Ok(())
}

fn record(file: &mut Vec<u8>, record: &[u8]) {
    file.extend((record.len() as u32).to_le_bytes());
    file.extend(record);
}

/// Bytes of a record, written field by field.
struct Fields(Vec<u8>);

impl Fields {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// As `struct task` of the programs.
fn task(tid: u32) -> Vec<u8> {
    let mut task = Fields(vec![0; 128]);
    task.put(0, &[5, 1]);
    task.put(4, &tid.to_le_bytes());
    task.put(8, &tid.to_le_bytes());
    task.put(104, b"ping-pong");
    task.0
}

/// As `struct wait`; the first at each place has a stack of the kernel's functions.
fn wait(cpu: u32, turn: u32, own: u32, other: u32) -> Vec<u8> {
    let stack: u64 = if turn < 2 { 12 } else { 0 };
    let length = if stack > 0 { 112 + 8 + 8 * 32 } else { 112 };
    let mut wait = Fields(vec![0; length]);
    let ran = 1_000_000 + u64::from(turn) * 2_100;
    wait.put(0, &[if stack > 0 { 2 } else { 1 }, 0]);
    wait.put(2, &(cpu as u16).to_le_bytes());
    wait.put(4, &own.to_le_bytes());
    for (at, time) in [(8, ran - 2_000), (16, ran - 900), (24, ran)] {
        wait.put(at, &time.to_le_bytes());
    }
    let call: i32 = if turn.is_multiple_of(2) { 7 } else { 0 };
    wait.put(32, &call.to_le_bytes());
    wait.put(36, &1_u32.to_le_bytes());
    for (argument, at) in [(40, 0x7ffd_1000_u64), (48, 1), (56, u64::from(turn) % 7)] {
        wait.put(argument, &at.to_le_bytes());
    }
    wait.put(64, &0x7f12_3456_7890_u64.to_le_bytes());
    wait.put(72, &0x7ffd_0000_1000_u64.to_le_bytes());
    for (at, tid) in [(80, other), (84, other), (88, other), (96, 1)] {
        wait.put(at, &tid.to_le_bytes());
    }
    wait.put(92, &1_u16.to_le_bytes());
    wait.put(94, &(cpu as u16).to_le_bytes());
    wait.put(100, &0x1e8_u32.to_le_bytes());
    wait.put(104, &5_u64.to_le_bytes());
    if stack > 0 {
        wait.put(112, &(stack as u32).to_le_bytes());
        for frame in 0..stack {
            let address = 0xffff_ffff_8100_0000 + frame * 0x1234;
            wait.put(120 + 8 * frame as usize, &address.to_le_bytes());
        }
    }
    wait.0
}
