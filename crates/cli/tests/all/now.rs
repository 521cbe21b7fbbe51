//! NOW is right: against values read from /proc by other means, and for a process made to
//! hold 9,000 driver-like mappings.

use std::time::Duration;

use crate::common::{Run, assert_valid, text, wait_for};
use stopgap_events::memory::Protection;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::memory::{MapKind, MapRequest, Memory};
use stopgap_kernel::tasks::{ChildLimits, Tasks};

fn passive(run: &Run, more: &[&str]) -> serde_json::Value {
    let words = [&["check", "--passive", "--json"], more].concat();
    let output = run.output(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_valid(&text(&output.stdout))
}

fn meminfo(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Each order's index, from the blocks themselves.
fn unusable() -> Vec<f64> {
    let text = std::fs::read_to_string("/proc/buddyinfo").unwrap();
    let mut blocks: Vec<u64> = Vec::new();
    for line in text.lines() {
        let counts = line
            .split_whitespace()
            .skip(4)
            .map(|n| n.parse::<u64>().unwrap());
        for (order, count) in counts.enumerate() {
            blocks.resize(blocks.len().max(order + 1), 0);
            blocks[order] += count;
        }
    }
    let pages = |from: usize| -> u64 {
        (from..blocks.len())
            .map(|order| blocks[order] << order)
            .sum()
    };
    let index = |order| 1.0 - pages(order) as f64 / pages(0) as f64;
    (0..blocks.len()).map(index).collect()
}

#[test]
fn values_agree_with_proc() {
    let run = Run::alone(); // others lock memory
    let before = unusable();
    let record = passive(&run, &[]);
    let after = unusable();
    let now = &record["now"];
    let number = |path: &str| -> u64 {
        std::fs::read_to_string(path)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    };
    assert_eq!(now["max_map_count"], number("/proc/sys/vm/max_map_count"));
    let near = |value: &serde_json::Value, expected: u64| {
        let value = value.as_u64().unwrap();
        let slack = expected / 10 + (32 << 20); // others lock and unlock meanwhile
        assert!(
            value.abs_diff(expected) <= slack,
            "{value} is not near {expected}"
        );
    };
    near(&now["unevictable"], meminfo("Unevictable:"));
    near(&now["mlocked"], meminfo("Mlocked:"));

    // Others allocate and free between two looks.
    let orders = now["unusable_index"].as_array().unwrap();
    assert_eq!(orders.len(), before.len());
    for one in orders {
        let order = usize::try_from(one["order"].as_u64().unwrap()).unwrap();
        let (low, high) = (
            before[order].min(after[order]),
            before[order].max(after[order]),
        );
        let index = one["index"].as_f64().unwrap();
        assert!(
            (low - 0.1..high + 0.1).contains(&index),
            "order {order}: {index}, {low} to {high}"
        );
    }

    // The kernel's counters only grow.
    let vmstat = std::fs::read_to_string("/proc/vmstat").unwrap();
    let later = |name: &str| -> u64 {
        vmstat
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(key, _)| {
                *key == name || (name == "allocstall" && key.starts_with("allocstall_"))
            })
            .map(|(_, value)| value.parse::<u64>().unwrap())
            .sum()
    };
    for counter in now["since_boot"].as_array().unwrap() {
        let name = counter["name"].as_str().unwrap();
        let value = counter["value"].as_u64().unwrap();
        assert!(value <= later(name), "{name}: {value} > {}", later(name));
    }
    let boot: Vec<_> = now["since_boot"].as_array().unwrap().iter().collect();
    assert!(boot.iter().any(|c| c["name"] == "allocstall"), "{boot:?}");
    assert!(
        boot.iter().any(|c| c["name"] == "compact_stall"),
        "{boot:?}"
    );

    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
    let shown = now["uptime_s"].as_u64().unwrap() as f64;
    assert!((uptime - shown).abs() < 60.0);
}

/// The driver's buffers of mail 000: one page each, of one file, offsets that never continue one another. Alone, because the
/// child lives for seconds and holds the pipes of other tests' commands, which this process has open.
#[test]
fn a_process_with_9000_mappings_leads() {
    const MAPPINGS: u64 = 9_000;
    let run = Run::alone();
    let (mapped, over) = (run.path("mapped"), run.path("over"));
    let told = [mapped.clone(), over.clone()];
    let holder = std::thread::spawn(move || {
        let [mapped, over] = told;
        let limits = ChildLimits {
            time: Nanos::secs(120),
            ..ChildLimits::default()
        };
        Linux.run_child(&limits, &mut || {
            let page = Linux.page_size();
            let file = Linux.mem_file(Bytes(2 * MAPPINGS * page.0)).unwrap();
            for index in 0..MAPPINGS {
                // Dropped, it stays mapped until the process ends.
                let _held = Linux
                    .map(&MapRequest {
                        length: page,
                        protection: Protection::Write,
                        kind: MapKind::File {
                            file: &file,
                            offset: Bytes(2 * index * page.0),
                        },
                        align: Bytes(0),
                    })
                    .unwrap();
            }
            std::fs::write(&mapped, "").unwrap();
            while !over.exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
            Vec::new()
        })
    });
    wait_for("the mappings", || mapped.exists().then_some(()));
    let record = passive(&run, &[]);
    let first = &record["now"]["mappings"][0];
    assert!(first["mappings"].as_u64().unwrap() >= MAPPINGS, "{first}");
    let backing = &first["backing"][0];
    assert!(
        backing["file"].as_str().unwrap().contains("memfd:stopgap"),
        "{first}"
    );
    assert_eq!(backing["mappings"], MAPPINGS);
    assert_eq!(backing["one_page"], MAPPINGS);

    let pid = first["pid"].to_string();
    let one = passive(&run, &["-p", &pid]);
    assert_eq!(one["now"]["process"]["pid"], first["pid"]);
    assert_eq!(one["now"]["mappings"].as_array().unwrap().len(), 1);

    let screen = text(&run.output(&["check", "--passive"]).stdout);
    std::fs::write(over, "").unwrap();
    let words: Vec<&str> = screen.split_whitespace().collect();
    let screen = words.join(" ");
    let row = format!(
        " ! mappings {} ({pid}): 9,0",
        first["name"].as_str().unwrap()
    );
    assert!(screen.contains(&row), "{screen}");
    assert!(
        screen.contains("of one page of a file (warns at 5,000)"),
        "{screen}"
    );
    assert!(
        screen.contains(&format!("stopgap check -p {pid}")),
        "{screen}"
    );
    holder.join().unwrap().unwrap();
}
