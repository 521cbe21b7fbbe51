use super::*;
use crate::fake::Fake;
use stopgap_events::snapshot::Kind;
use stopgap_testing::assert_contains;

/// ```text
/// frame   4        8     10       16            20
///         [ free   ][anon][ free  ][ no flags    ]
/// block   [ 2      ]      [1][ 2  ]
/// ```
const FLAGS: [u64; 20] = {
    let mut flags = [0x400; 20];
    flags[8] = 0x5828;
    flags[9] = 0x5828;
    let mut frame = 16;
    while frame < 20 {
        flags[frame] = 0;
        frame += 1;
    }
    flags
};

fn zoneinfo(zone: &str, start: u64, pages: u64) -> String {
    format!(
        "Node 0, zone {zone}\n  pages free 10\n min 1\n low 2\n high 3\n spanned {pages}\n \
         present {pages}\n managed {pages}\n pagesets\n cpu: 0\n count: 3\n start_pfn: {start}\n"
    )
}

fn bytes(entries: &[u64]) -> Vec<u8> {
    entries
        .iter()
        .flat_map(|entry| entry.to_ne_bytes())
        .collect()
}

/// A machine as an ordinary user sees it.
fn unprivileged() -> Fake {
    Fake::default()
        .with_file("/proc/zoneinfo", zoneinfo("Normal", 4, 16))
        .with_file("/proc/buddyinfo", "Node 0, zone   Normal  0 1 2\n")
        .with_file("/proc/sys/kernel/osrelease", "6.12.0\n")
        .unreadable("/proc/pagetypeinfo", libc::EACCES)
        .unreadable("/proc/kpageflags", libc::EACCES)
        .unreadable("/proc/kpagecount", libc::EACCES)
}

/// The same machine as root sees it.
fn privileged() -> Fake {
    let mut counts = [0; 20];
    counts[8] = 3;
    Fake::default()
        .with_file("/proc/zoneinfo", zoneinfo("Normal", 4, 16))
        .with_file("/proc/buddyinfo", "Node 0, zone   Normal  0 1 2\n")
        .with_file(
            "/proc/pagetypeinfo",
            "Page block order: 2\nNode 0, zone Normal, type Movable 0 1 2\n\
             Number of blocks type Movable\nNode 0, zone Normal 4\n",
        )
        .with_file("/proc/kpageflags", bytes(&FLAGS))
        .with_file("/proc/kpagecount", bytes(&counts))
}

fn taken(fake: &Fake) -> Snapshot {
    take(fake, "0", &mut |_| true).unwrap().unwrap()
}

/// Why it is missing; fails where it is not.
fn why<'a>(snapshot: &'a Snapshot, what: &str) -> &'a str {
    let missing = snapshot.missing.iter().find(|one| one.what.contains(what));
    &missing
        .unwrap_or_else(|| panic!("no '{what}': {:?}", snapshot.missing))
        .why
}

#[test]
fn root_sees_each_page() {
    let snapshot = taken(&privileged());
    let zone = &snapshot.zones[0];
    let runs: Vec<_> = zone
        .runs()
        .unwrap()
        .map(|run| (run.start, run.kind))
        .collect();
    let expected = [
        (4, Kind::Free),
        (8, Kind::Anonymous),
        (10, Kind::Free),
        (16, Kind::Kernel),
    ];
    assert_eq!(runs, expected);
    assert_eq!(zone.free_blocks_of_layout().unwrap(), zone.free_blocks);
    assert_eq!(zone.mapped, Some(Pages(1)));
    assert_eq!(zone.per_cpu, Some(Pages(3)));
    assert_eq!(snapshot.pageblock_order, Some(2));
    assert_eq!(zone.by_type.as_ref().unwrap()[0].pageblocks, 4);
    assert!(why(&snapshot, "per-CPU").starts_with("12 KiB that are free"));
    assert_eq!(snapshot.missing.len(), never_known().len() + 1);
}

#[test]
fn others_see_the_free_blocks_and_are_told_what_lacks() {
    let snapshot = taken(&unprivileged());
    let zone = &snapshot.zones[0];
    assert_eq!(zone.free_blocks, [0, 1, 2]);
    assert_eq!(zone.watermarks.low, Pages(2));
    assert!(zone.layout.is_none() && zone.by_type.is_none() && zone.mapped.is_none());
    assert_eq!(snapshot.pageblock_order, None);
    for what in ["migrate type, and", "what each page is"] {
        assert!(why(&snapshot, what).contains("needs root"));
    }
    for what in ["migrate type of each page", "pinned"] {
        assert!(why(&snapshot, what).contains("the kernel tells"));
    }
}

/// ```text
/// frame   0       4       8              32,776   32,780
///         [ reserved][file][ no flags     ][ file   ]
/// ```
#[test]
fn what_has_no_flags_for_long_is_no_memory() {
    const LONG: u64 = 1 << 15;
    for (pages, expected) in [(LONG, Kind::Hole), (LONG - 1, Kind::Kernel)] {
        let flags = [(0x1_0000_0000, 4), (0x2c, 4), (0, pages), (0x2c, 4)];
        let flags = flags
            .iter()
            .flat_map(|&(flag, pages)| (0..pages).map(move |_| flag));
        let flags: Vec<u64> = flags.collect();
        let fake = privileged()
            .with_file("/proc/zoneinfo", zoneinfo("Normal", 0, flags.len() as u64))
            .with_file("/proc/kpagecount", bytes(&vec![0; flags.len()]))
            .with_file("/proc/kpageflags", bytes(&flags));
        let snapshot = taken(&fake);
        let runs: Vec<_> = snapshot.zones[0].runs().unwrap().collect();
        let found: Vec<_> = runs.iter().map(|run| (run.kind, run.pages.0)).collect();
        let kinds = [
            (Kind::Reserved, 4),
            (Kind::File, 4),
            (expected, pages),
            (Kind::File, 4),
        ];
        assert_eq!(found, kinds);
    }
}

#[test]
fn frames_of_two_zones_are_unknown() {
    let zones = zoneinfo("Normal", 4, 10) + &zoneinfo("Movable", 12, 8);
    let fake = privileged().with_file("/proc/zoneinfo", zones).with_file(
        "/proc/buddyinfo",
        "Node 0, zone Movable 0 0 0\nNode 0, zone Normal 0 1 1\n",
    );
    let snapshot = taken(&fake);
    let kinds = |zone: &Zone| -> Vec<_> {
        let runs = zone.runs().unwrap();
        runs.map(|run| (run.start, run.pages.0, run.kind)).collect()
    };
    assert_eq!(snapshot.zones[0].name, "Normal");
    assert_eq!(
        *kinds(&snapshot.zones[0]).last().unwrap(),
        (12, 2, Kind::Unknown)
    );
    assert_eq!(kinds(&snapshot.zones[1])[0], (12, 2, Kind::Unknown));
    assert!(why(&snapshot, "several zones").contains("of 2 page frames"));
}

#[test]
fn a_layout_of_another_moment_is_said_to_be_one() {
    let fake = privileged().with_file("/proc/buddyinfo", "Node 0, zone Normal 16 0 0\n");
    let snapshot = taken(&fake);
    let why = why(&snapshot, "same moment");
    assert_contains(
        why,
        &["10 pages are free in blocks of order 1 and larger by its layout, 0 by"],
    );
    // Said, so it is taken.
    let text = serde_json::to_vec(&snapshot).unwrap();
    assert_eq!(Snapshot::from_json(&text).unwrap(), snapshot);
}

#[test]
fn pages_that_cannot_be_read_are_unknown_and_the_rest_is_kept() {
    let short = privileged().with_file("/proc/kpageflags", bytes(&FLAGS[..18]));
    let snapshot = taken(&short);
    assert!(snapshot.zones[0].layout.is_none());
    let short = why(&snapshot, "what each page is");
    assert!(short.contains("ends before page frame 18 of 20"), "{short}");

    let snapshot = taken(&privileged().without("/proc/kpagecount"));
    assert!(snapshot.zones[0].layout.is_some() && snapshot.zones[0].mapped.is_none());
    assert!(why(&snapshot, "mapped").contains("/proc/kpagecount"));

    let snapshot = taken(&privileged().with_file("/proc/pagetypeinfo", "nothing\n"));
    assert!(why(&snapshot, "migrate type, and").contains("has no 'Page block order'"));
}

#[test]
fn without_zones_there_is_nothing() {
    let error = |fake: Fake| take(&fake, "0", &mut |_| true).unwrap_err().to_string();
    let of = error(privileged().without("/proc/zoneinfo"));
    assert!(of.contains("/proc/zoneinfo"), "{of}");
    let of = error(privileged().with_file("/proc/buddyinfo", "Node 0, zone DMA 1\n"));
    assert_contains(&of, &["/proc/buddyinfo: has no node 0, zone Normal"]);
    // More free than there is: the files contradict one another.
    let of = error(unprivileged().with_file("/proc/buddyinfo", "Node 0, zone Normal 99 0 0\n"));
    assert_contains(&of, &["zone Normal", "try again"]);
}

#[test]
fn it_stops_when_it_is_told_to() {
    let fake = privileged();
    let mut asked = 0;
    let stopped = take(&fake, "0", &mut |share| {
        assert!((0.0..1.0).contains(&share));
        asked += 1;
        asked < 2
    });
    assert_eq!((stopped.unwrap(), asked), (None, 2));
}

/// The real machine: exact as far as it stands still.
#[test]
fn the_layout_of_this_machine_agrees_with_its_free_blocks() {
    use crate::Linux;
    use crate::files::Files;
    use stopgap_testing::{Skip, skip};
    if let Err(error) = Linux.read_at(Path::new("/proc/kpageflags"), 0, 8) {
        return skip(&Skip::root(format_args!("layout of this machine: {error}")));
    }
    // Others are at work here, and take and give memory between the two readings.
    let mut apart = None;
    for _ in 0..5 {
        let snapshot = take(&Linux, "0", &mut |_| true).unwrap().unwrap();
        apart = snapshot.layout_apart();
        if apart.is_none() {
            let text = serde_json::to_vec(&snapshot).unwrap();
            assert_eq!(Snapshot::from_json(&text).unwrap(), snapshot);
            return;
        }
    }
    panic!("the last of 5: {}", apart.unwrap());
}

/// ```text
/// frame    0   10   20   30   40   50
///          [ A                ]
///              [ B  ]
///                        [ C       ]
///                                       [ D
/// shared       [    ]    [    ]
/// ```
#[test]
fn frames_of_two_zones_are_found() {
    let spans = [30..50, 0..40, 10..20, 55..60, 60..70];
    let both = shared(&spans);
    assert_eq!(both, [10..20, 30..40]);
    let of = |span: Range<u64>| pieces(&span, &both).collect::<Vec<_>>();
    assert_eq!(
        of(0..40),
        [
            (0..10, true),
            (10..20, false),
            (20..30, true),
            (30..40, false)
        ]
    );
    assert_eq!(of(30..50), [(30..40, false), (40..50, true)]);
    assert_eq!(of(10..20), [(10..20, false)]);
    assert_eq!(of(55..60), [(55..60, true)]);
    // Three at one place.
    let of = |spans: &[Range<u64>]| {
        let both = shared(spans).into_iter();
        both.map(|range| (range.start, range.end))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&[0..9, 0..9, 0..9, 9..12]), [(0, 9)]);
    assert_eq!(of(&[0..9, 2..4, 3..9]), [(2, 9)]);
}

#[test]
fn flags_say_what_a_page_is() {
    // As read on Linux 6.18.
    for (flags, expected) in [
        (0x400, Kind::Free),
        (0x408, Kind::Free),
        (0x1_0000_0000, Kind::Reserved),
        (0x1_0100_0000, Kind::Reserved), // the zero page
        (0x8_0000_002c, Kind::File),
        (0x4_0000_5828, Kind::Anonymous),
        (0x4028, Kind::Shmem),
        (0x80, Kind::Kernel),
        (PGTABLE, Kind::Kernel),
        (1 << 11, Kind::Kernel), // a driver's, mapped
        (0x2_0004_5828, Kind::Locked),
        (LRU | UNEVICTABLE, Kind::Locked),
        (HUGE | 1 << 15, Kind::Hugetlb),
        (OFFLINE, Kind::Reserved),
        (NOPAGE, Kind::Hole),
    ] {
        assert_eq!(kind(flags), expected, "{flags:#x}");
    }
}
