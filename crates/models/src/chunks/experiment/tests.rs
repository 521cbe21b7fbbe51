//! Experiments whose figures are known.

use stopgap_chunks::iommu::PageSizes;
use stopgap_stats::replay::chunks::MailKind;

use super::*;
use crate::chunks::buddy::{Buddy, Use};
use crate::chunks::scenario::Scenario;

const PAGES: u64 = 1_024;

fn device(access: &[Pattern]) -> Device {
    Device {
        sizes: PageSizes::K4_K64_M2,
        access: access.to_vec(),
    }
}

fn machine(scenario: Scenario) -> Machine {
    scenario.machine(&scenario.setting(1)).unwrap()
}

fn experiment<'a>(machine: &'a Machine, steps: &'a [Step], device: &'a Device) -> Experiment<'a> {
    Experiment {
        workload: "here",
        machine,
        otherwise: &[],
        steps,
        device,
        beside_mail: false,
        seed: 1,
    }
}

/// The row of an experiment that nobody stops.
fn whole(experiment: &Experiment<'_>, policy: Name) -> ChunksRow {
    let row = experiment.row(policy, &|| false, &|_| ());
    row.unwrap().unwrap()
}

fn row(scenario: Scenario, steps: &[Step], device: &Device, policy: Name) -> ChunksRow {
    let machine = machine(scenario);
    let experiment = Experiment {
        beside_mail: scenario == Scenario::Thread,
        ..experiment(&machine, steps, device)
    };
    whole(&experiment, policy)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Mail 001: 9,228 tries a buffer; with every page apart each of the 1,024 is an entry, and reading them in rows
/// of 4 KiB misses once a page, reading them down the columns always.
#[test]
fn nothing_contiguous() {
    let device = device(&[Pattern::Linear, Pattern::Rotate90]);
    let steps = videos(PAGES, 3, 2);
    let row = row(Scenario::NoContiguous, &steps, &device, Name::Old);
    assert_eq!(
        (
            row.operations,
            row.tries_per_buffer,
            row.failed_tries_per_buffer
        ),
        (3, 9_228.0, 8_204.0)
    );
    let by_order = &row.tries_per_buffer_by_order;
    assert!(
        close(by_order.iter().sum(), row.tries_per_buffer),
        "{row:?}"
    );
    assert!(close(by_order[0], 1_024.0), "{row:?}");
    assert_eq!(row.entries, [("4K".to_owned(), 1_024.0)].into());
    assert!(close(row.tlb[0].misses_per_access, 1.0 / 64.0), "{row:?}");
    assert!(close(row.tlb[1].misses_per_access, 1.0), "{row:?}");
    assert!(close(row.tlb[1].pass_ms, 65_536.0 * 200.0 / 1e6), "{row:?}");
    assert_eq!(row.tlb_misses_per_access, Some(1.0 / 64.0));
    assert!(row.unusable_before[1..].iter().all(|i| *i == Some(1.0)));
    assert_eq!(row.mail, None);
    // Single pages alone were there to take.
    assert_eq!(row.large_blocks_per_mib, Some(0.0));
    // The four levels of tables of 4 KiB, with two of the last one for 4 MiB.
    assert_eq!(row.table_bytes, Some(5.0 * 4_096.0));
}

/// Two entries of 2 MiB, and 1 MiB is 32 blocks of order 3.
#[test]
fn unfragmented() {
    let device = device(&[Pattern::Rotate90]);
    let row = row(
        Scenario::Unfragmented,
        &videos(PAGES, 5, 4),
        &device,
        Name::List,
    );
    assert_eq!(row.entries, [("2M".to_owned(), 2.0)].into());
    assert_eq!(row.large_blocks_per_mib, Some(32.0));
    assert_eq!(
        (row.tries_per_buffer, row.tries_per_buffer_at_worst),
        (2.0, 1_027)
    );
    assert_eq!(row.bystander_failures, 0);
    assert!(row.bystander_tries > 0);
    assert_eq!(row.tlb_misses_per_access, Some(2.0 / 65_536.0));
}

/// Causes add up to the time, and twice a price is twice its cause.
#[test]
fn time_is_made_of_its_causes() {
    let device = device(&[Pattern::Linear, Pattern::Random]);
    let row = row(Scenario::Thread, &videos(PAGES, 2, 4), &device, Name::Fold);
    let time = row.time_ms.unwrap();
    assert!(close(row.time_by_cause_ms.values().sum(), time), "{row:?}");
    assert!(row.time_worst_ms.unwrap() >= time);
    let of = |assumption: &str, factor: f64| {
        let same = row
            .sensitivity
            .iter()
            .filter(|one| one.assumption == assumption && one.factor == Some(factor));
        same.map(|one| one.value).next().unwrap()
    };
    let reclaim = row.time_by_cause_ms["reclaim"];
    assert!(close(of("reclaim", 2.0), time + reclaim), "{row:?}");
    assert!(close(of("reclaim", 0.5), time - reclaim / 2.0), "{row:?}");
    let compaction = row.time_by_cause_ms["compaction"];
    let more = of("scan", 2.0) + of("move", 2.0) - 2.0 * time;
    assert!(close(more, compaction), "{row:?}");
    // A p99 of two buffers is nobody's.
    assert_eq!(row.time_p99_ms, None);
    assert!(row.missing.iter().any(|m| m.what == "time_p99_ms"));
    let mail = row.mail.unwrap();
    assert_eq!((mail.mail_ms, mail.kind), (Some(450.0), MailKind::Compared));
    assert!(close(mail.factor.unwrap(), time / 450.0));
}

/// More buffers than fit: those that fail are counted, and giving back what never was is nothing.
///
/// ```text
/// 256 MiB, half of it free:  build 100 MiB  build 100 MiB (fails)  release both  build 100 MiB
/// ```
#[test]
fn memory_that_ends_is_a_figure() {
    let build = |id| Step::Build { id, pages: 25_600 };
    let release = |id| Step::Release { id };
    let steps = [build(1), build(2), release(2), release(1), build(2)];
    let device = device(&[Pattern::Linear]);
    let row = row(Scenario::NoContiguous, &steps, &device, Name::OnePage);
    assert_eq!((row.operations, row.failures), (3, 1));
    assert!(close(row.entries["4K"], 25_600.0), "{row:?}");
}

/// The attribute of a driver that reads row by row and in no other way turns two policies into `one-page`.
#[test]
fn a_device_that_only_reads_rows_asks_for_single_pages() {
    let linear = device(&[Pattern::Linear]);
    let both = device(&[Pattern::Linear, Pattern::Rotate90]);
    let steps = videos(PAGES, 1, 1);
    for policy in [Name::PerDevice, Name::Landed] {
        let tries = |device| row(Scenario::NoContiguous, &steps, device, policy).tries_per_buffer;
        assert_eq!(
            (tries(&linear), tries(&both)),
            (1_024.0, 1_027.0),
            "{policy}"
        );
    }
}

/// Nothing else is assumed, so nothing changes; half of the memory gone, it does.
#[test]
fn what_is_assumed_otherwise_is_carried_out_too() {
    let usual = machine(Scenario::Unfragmented);
    let kept = machine(Scenario::Kept {
        of: 2,
        pinned: true,
    });
    let otherwise = [
        ("the same".to_owned(), usual.clone()),
        ("every second page pinned".to_owned(), kept),
    ];
    let (steps, device) = (videos(PAGES, 2, 2), device(&[Pattern::Rotate90]));
    let experiment = Experiment {
        otherwise: &otherwise,
        ..experiment(&usual, &steps, &device)
    };
    let row = whole(&experiment, Name::ListNoReclaim);
    let of = |assumption: &str, quantity: &str| {
        let same = row
            .sensitivity
            .iter()
            .find(|one| one.assumption == assumption && one.quantity == quantity);
        same.unwrap().value
    };
    assert!(close(of("the same", "time_ms"), row.time_ms.unwrap()));
    assert!(of("every second page pinned", "time_ms") > row.time_ms.unwrap());
    assert!(close(
        of("every second page pinned", "misses_per_access"),
        1.0
    ));
    // Nobody lacks anything where nothing is built.
    let alone = experiment.alone(&|| false).unwrap();
    assert!(alone.iter().all(|one| one.failures == 0 && one.tries > 0));
}

/// Ctrl-C before the first buffer gives no row; after it, the row of what was done.
#[test]
fn an_end_in_the_middle() {
    let machine = machine(Scenario::Unfragmented);
    let device = device(&[Pattern::Linear]);
    let steps = videos(PAGES, 9, 9);
    let experiment = experiment(&machine, &steps, &device);
    let after = |buffers: u32| {
        // Asked before each buffer, and before each of the two chunks that it has.
        let left = std::cell::Cell::new(3 * buffers);
        let stop = move || left.replace(left.get().saturating_sub(1)) == 0;
        experiment.row(Name::List, &stop, &|_| ()).unwrap()
    };
    assert_eq!(after(0), None);
    assert_eq!(after(4).unwrap().operations, 4);
}

/// A device that cannot map a base page is an error and no row.
#[test]
fn a_request_that_makes_no_sense() {
    let machine = machine(Scenario::Unfragmented);
    let device = Device {
        sizes: PageSizes::new(&[1 << 16]).unwrap(),
        access: vec![Pattern::Linear],
    };
    let steps = videos(PAGES, 1, 1);
    let experiment = experiment(&machine, &steps, &device);
    assert!(experiment.row(Name::List, &|| false, &|_| ()).is_err());
}

/// At 100 s a call a buffer of 1,024 pages takes 28 hours, longer than any histogram counts: its longest is still no
/// shorter than its mean.
#[test]
fn the_worst_is_no_better_than_the_mean() {
    let mut setting = Scenario::NoContiguous.setting(1);
    setting.costs.call_ns = 1e11;
    let machine = Scenario::NoContiguous.machine(&setting).unwrap();
    let (steps, device) = (videos(PAGES, 2, 2), device(&[Pattern::Linear]));
    let row = whole(&experiment(&machine, &steps, &device), Name::OnePage);
    let (mean, worst) = (row.time_ms.unwrap(), row.time_worst_ms.unwrap());
    assert!(mean >= 1_024.0 * 1e5, "{mean}");
    assert!(worst >= mean * (1.0 - 1e-9), "{worst} < {mean}");
}

/// Where all memory is used when it begins, the row gives that as the reason for the missing index.
#[test]
fn an_index_that_is_not_there_has_a_reason() {
    let buddy = Buddy::new(4_096, Use::Reclaimable).unwrap();
    let machine = Machine::new(buddy, &Scenario::Thread.setting(1)).unwrap();
    let (steps, device) = (videos(16, 1, 1), device(&[Pattern::Linear]));
    let row = whole(&experiment(&machine, &steps, &device), Name::OnePage);
    assert!(row.unusable_before.iter().all(Option::is_none));
    let said = |one: &Missing| one.what == "unusable_before" && one.why.contains("free");
    assert!(row.missing.iter().any(said), "{:?}", row.missing);
}

/// Buffers of 1,024 pages in single pages: Ctrl-C after 500 of the first, and after 500 of the second.
#[test]
fn a_stop_is_heard_within_a_buffer() {
    let machine = machine(Scenario::Unfragmented);
    let device = device(&[Pattern::Linear]);
    let steps = videos(PAGES, 3, 3);
    let experiment = experiment(&machine, &steps, &device);
    let until = |most: u32| {
        let asked = std::cell::Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() > most
        };
        let row = experiment.row(Name::OnePage, &stop, &|_| ()).unwrap();
        assert!(asked.get() <= most + 2, "asked {} times", asked.get());
        row.map(|row| (row.operations, row.failures, row.tries_per_buffer))
    };
    assert_eq!(until(500), None);
    assert_eq!(until(1_524), Some((1, 0, 1_024.0)));

    let mut stopped = machine.clone();
    let stop = stopped.build_until(Name::List, &experiment.request(PAGES), &|| true);
    assert_eq!(stop, Err(MachineError::Stopped));
    assert_eq!(stopped.buddy().free_pages(), machine.buddy().free_pages());
}
