use std::cell::Cell;
use stopgap_testing::assert_contains;

use stopgap_events::machine::Privilege;
use stopgap_events::range::AddressRange;
use stopgap_kernel::devices::{Devices, Region};
use stopgap_kernel::fake::{Fake, FakeVfio};
use stopgap_kernel::journal::Journal;
use stopgap_stats::record::Answer;
use stopgap_stats::verdict::Word;

use super::*;
use crate::contract::test_context;
use crate::{Probe, ProbeError};

const AT: &str = "0000:00:04.0";

fn thp(machine: Fake) -> Fake {
    let folder = "/sys/kernel/mm/transparent_hugepage";
    let machine = machine
        .with_file(format!("{folder}/enabled"), "always [madvise] never\n")
        .with_file(
            format!("{folder}/defrag"),
            "always defer defer+madvise [madvise] never\n",
        )
        .with_file(format!("{folder}/hpage_pmd_size"), "2097152\n");
    [64, 2048].into_iter().fold(machine, |machine, kib| {
        let knob = format!("{folder}/hugepages-{kib}kB/enabled");
        machine.with_file(knob, "always inherit [madvise] never\n")
    })
}

fn machine(fake: FakeVfio) -> Fake {
    thp(Fake::default().with_vfio(AT, fake))
}

fn ask(machine: &Fake, probe: &VfioProbe) -> std::result::Result<Answer, ProbeError> {
    let journal = Journal::new(machine, "/run/stopgap".as_ref());
    let context = test_context(machine, &journal);
    probe.plan(&context)?;
    let measured = probe.run(&context)?;
    Ok(probe.judge(measured, 1, Privilege::None))
}

fn few() -> VfioProbe {
    VfioProbe {
        operations: 5,
        runs: 3,
        pages: vec![Bytes::kib(4), Bytes::mib(2)],
        ..VfioProbe::default()
    }
}

fn refusal(machine: &Fake) -> String {
    ask(machine, &few()).unwrap_err().to_string()
}

#[test]
fn what_is_not_there_is_said_with_what_to_do() {
    let none = refusal(&thp(Fake::default()));
    assert!(
        none.starts_with("unsupported: vfio: no PCI device is bound"),
        "{none}"
    );
    assert!(none.contains("modprobe vfio-pci"), "{none}");
    let no_type1 = refusal(&machine(FakeVfio {
        type1: false,
        ..FakeVfio::default()
    }));
    assert!(no_type1.contains("modprobe vfio_iommu_type1"), "{no_type1}");
    let not_viable = refusal(&machine(FakeVfio {
        viable: false,
        ..FakeVfio::default()
    }));
    assert!(not_viable.contains("not viable"), "{not_viable}");
}

#[test]
fn a_device_that_was_asked_for_and_is_not_there_is_named() {
    let probe = VfioProbe {
        device: Some("0000:00:09.0".parse().unwrap()),
        ..few()
    };
    let error = ask(&machine(FakeVfio::default()), &probe)
        .unwrap_err()
        .to_string();
    assert_contains(&error, &["0000:00:09.0", "no such device"]);
}

/// The fake's mapping costs the same by any pages, and its frames are hidden: no entries, not 0 of them.
#[test]
fn equal_costs_are_clean_and_entries_that_nobody_shows_are_unknown() {
    let answer = ask(&machine(FakeVfio::default()), &few()).unwrap();
    assert_eq!(answer.verdict.word, Word::Clean, "{}", answer.verdict.text);
    assert!(
        answer
            .evidence
            .iter()
            .all(|line| line.contains("IOMMU entries unknown")),
        "{:?}",
        answer.evidence
    );
    assert_contains(&answer.evidence[0], &["32 KiB copied and compared"]);
    assert!(answer.series.iter().all(|series| series.name != "entries"));
}

#[test]
fn wrong_data_leads_the_answer() {
    let fake = FakeVfio {
        wrong_byte: Some(5_000),
        ..FakeVfio::default()
    };
    let answer = ask(&machine(fake), &few()).unwrap();
    assert_eq!(answer.verdict.word, Word::Inconclusive);
    let text = &answer.verdict.text;
    assert_contains(text, &["the data of a transfer", "was expected"]);
}

#[test]
fn parameters_that_measure_nothing_are_refused() {
    let machine = machine(FakeVfio::default());
    let wrong: [fn(&mut VfioProbe); 5] = [
        |probe| probe.runs = 0,
        |probe| probe.operations = 0,
        |probe| probe.pages.clear(),
        |probe| probe.size = Bytes(0),
        |probe| probe.size = Bytes::kib(64),
    ];
    for change in wrong {
        let mut probe = few();
        change(&mut probe);
        let error = ask(&machine, &probe).unwrap_err();
        let refused = matches!(error, ProbeError::Parameter(_));
        assert!(refused, "{probe:?}: {error}");
    }
}

/// Each call is counted once, and nothing stays mapped.
#[test]
fn cycles_count_each_call() {
    struct Times(Vec<Step>);
    impl Meter for Times {
        fn measure<T>(&mut self, step: Step, call: impl FnOnce() -> T) -> T {
            self.0.push(step);
            call()
        }
    }
    let machine = machine(FakeVfio::default());
    let mut vfio = machine.vfio(AT.parse().unwrap()).unwrap();
    let mapping = buffer(&machine, Bytes::mib(4), Bytes::kib(4), None).unwrap();
    let mut times = Times(Vec::new());
    assert!(cycles(&mut *vfio, &mapping, 1 << 22, 3, &mut times, &|| false).unwrap());
    assert_eq!(times.0, [Step::DmaMap, Step::DmaUnmap].repeat(3));
    let asked = Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) == 2;
    assert!(!cycles(&mut *vfio, &mapping, 1 << 22, 3, &mut times, &stop).unwrap());
    assert_eq!(times.0.len(), 10);
    // Something that is there already is refused.
    vfio.map_dma(1 << 22, &mapping).unwrap();
    assert!(
        cycles(&mut *vfio, &mapping, 1 << 22, 1, &mut times, &|| false)
            .unwrap_err()
            .is_taken()
    );
}

/// A device that knows its addresses.
struct Places(Vec<AddressRange>);

impl Vfio for Places {
    fn page_sizes(&self) -> Vec<Bytes> {
        Vec::new()
    }
    fn device_addresses(&self) -> &[AddressRange] {
        &self.0
    }
    fn map_dma(&mut self, _: u64, _: &Mapping) -> Result<()> {
        Ok(())
    }
    fn unmap_dma(&mut self, _: u64, length: Bytes) -> Result<Bytes> {
        // Half of it, as no kernel should.
        Ok(Bytes(length.0 / 2))
    }
    fn read_register(&mut self, _: Region, _: u64) -> Result<u32> {
        Ok(0)
    }
    fn write_register(&mut self, _: Region, _: u64, _: u32) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_device_address_is_aligned_and_within_reach() {
    let at = |ranges: &[(u64, u64)], mib: u64, is_edu: bool| {
        let ranges = ranges
            .iter()
            .map(|&(start, end)| AddressRange { start, end })
            .collect();
        device_address(&Places(ranges), Bytes::mib(mib), is_edu)
            .ok()
            .map(|at| at >> 20)
    };
    assert_eq!(at(&[], 4, false), Some(4));
    assert_eq!(at(&[], 64, false), Some(64));
    assert_eq!(at(&[], 1, false), Some(4));
    assert_eq!(at(&[(0, 4 << 20), (5 << 20, 1 << 40)], 4, false), Some(8));
    assert_eq!(at(&[(0, 1 << 40)], 128, true), Some(128));
    assert_eq!(at(&[(0, 1 << 40)], 256, true), None);
    assert_eq!(at(&[(0, 6 << 20)], 4, false), None);
    assert_eq!(at(&[(0, u64::MAX)], 1 << 43, false), None);
}

#[test]
fn less_unmapped_than_mapped_is_an_error() {
    let machine = machine(FakeVfio::default());
    let mapping = buffer(&machine, Bytes::mib(4), Bytes::kib(4), None).unwrap();
    struct Any;
    impl Meter for Any {
        fn measure<T>(&mut self, _: Step, call: impl FnOnce() -> T) -> T {
            call()
        }
    }
    let error = cycles(&mut Places(Vec::new()), &mapping, 0, 1, &mut Any, &|| false).unwrap_err();
    assert_contains(error.to_string(), &["2 MiB of 4 MiB were unmapped"]);
}

/// ```text
/// frame  0   16       32
///        [-- --][---    ]   64 KiB each
/// ```
#[test]
fn pages_are_told_by_where_runs_begin_and_end() {
    let run = |start: u64, pages: u64| Run {
        start: start << 12,
        length: pages << 12,
    };
    let page = Bytes::kib(64);
    assert!(made_of(&[run(16, 16), run(64, 32)], page));
    assert!(!made_of(&[run(16, 16), run(65, 16)], page));
    assert!(!made_of(&[run(16, 16), run(64, 8), run(80, 8)], page));
    assert!(made_of(&[], page));
}

#[test]
fn pages_that_the_kernel_does_not_have_are_refused_with_those_it_has() {
    let machine = machine(FakeVfio::default());
    let error = buffer(&machine, Bytes::mib(4), Bytes::kib(512), None).unwrap_err();
    assert!(error.contains("no THP of 512K; it has 64K, 2M"), "{error}");
}

proptest::proptest! {
    /// Each once; and of more than four, no two neighbours one after the other.
    #[test]
    fn scattered_numbers_come_once_each(count in 0_u64..3_000) {
        let order: Vec<u64> = scattered(count).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        proptest::prop_assert_eq!(sorted, (0..count).collect::<Vec<_>>());
        if count > 6 {
            let apart = order.windows(2).all(|two| two[0].abs_diff(two[1]) > 1);
            proptest::prop_assert!(apart, "{:?}", &order[..7]);
        }
    }
}
