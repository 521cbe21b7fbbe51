use std::process::Command;

use proptest::prelude::*;
use rustix::io::Errno;
use stopgap_testing::{Skip, skip};

use super::build::build;
use super::knobs::File;
use super::*;
use crate::error::Error;
use crate::inject;

mod model;

use model::{Model, PAGE};

const COMMON: [&str; 3] = ["always", "madvise", "never"];
const WORDS: [&str; 4] = ["always", "inherit", "madvise", "never"];
const DEFRAG: [&str; 5] = ["always", "defer", "defer+madvise", "madvise", "never"];

/// 2 MiB, 1 MiB, 64 KiB, and three pages.
const LENGTH: usize = (512 + 256 + 16 + 3) * PAGE;

fn request(policy: Policy) -> Request {
    Request {
        policy,
        ..Request::new(LENGTH)
    }
}

/// The table of `knobs`, by the word that counts for a size: `always` or `madvise`; with `never` nothing is tried.
#[test]
fn what_may_be_tried_with_every_combination_of_knobs() {
    use Advice::{Advised, Plain};
    let table = |defrag: &str| match defrag {
        "always" => (
            Err(Why::WouldCompact(Defrag::Always)),
            Err(Why::WouldCompact(Defrag::Always)),
        ),
        "defer+madvise" => (Ok(Plain), Err(Why::WouldCompact(Defrag::DeferMadvise))),
        "madvise" => (Ok(Plain), Err(Why::WouldCompact(Defrag::Madvise))),
        "defer" | "never" => (Ok(Advised), Ok(Advised)),
        other => panic!("{other}"),
    };
    let mut seen = 0;
    for defrag in DEFRAG {
        let (always, madvise) = table(defrag);
        for common in COMMON {
            for own in WORDS {
                for order in [2, 4, 8, 9] {
                    let knobs = Model::new(common, defrag, &[(order, own)]).knobs();
                    let expected = match if own == "inherit" { common } else { own } {
                        "always" => always,
                        "madvise" => madvise,
                        _ => Err(Why::NotEnabled),
                    };
                    let got = knobs.may(PAGE << order);
                    assert_eq!(got, expected, "{common} {defrag} {own} order {order}");
                    assert_eq!(knobs.may(PAGE << (order + 1)), Err(Why::NoSuchSize));
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 240);
}

/// Builds a buffer, compares its report with the model, and unmaps it. Nothing may compact. Returns bytes in large pages.
fn check(mut model: Model, request: &Request) -> Result<(usize, Got)> {
    let knobs = model.knobs();
    let mut blocks = Vec::new();
    let (place, got) = build(&mut model, request, &knobs, &mut |done| blocks.push(done))?;
    let text = format!(
        "{model:#?}",
        model = (model.common, model.defrag, &model.sizes, request)
    );
    assert_eq!(model.direct, 0, "{text}");
    assert!(model.foreign_is_untouched(), "{text}");
    assert_eq!(place.length, request.length.next_multiple_of(PAGE));
    let folios = model.folios(place.start, place.length);
    if model.hides_pagemap {
        let unverified: usize = got.sizes.iter().map(|size| size.unverified).sum();
        let pool = got.sizes.iter().filter(|size| size.kind == Kind::Hugetlb);
        assert_eq!(
            got.large_bytes(),
            pool.map(|size| size.bytes).sum::<usize>()
        );
        assert_eq!(
            got.large_bytes() + unverified + bytes(&got, Kind::Base),
            place.length
        );
    } else {
        assert_eq!(folios, got.chunks, "{text}");
    }
    let sum: usize = got.sizes.iter().map(|size| size.bytes).sum();
    assert_eq!(sum, place.length, "{text}");
    assert_eq!(blocks.last(), Some(&place.length));
    assert!(blocks.is_sorted(), "{blocks:?}");
    // One mapping, or two with the pool's, and what is never accessible.
    let pages = model.pages(place.start, place.reserved);
    let alike = |page: &Option<model::PageOf>| {
        page.map(|page| model::PageOf {
            folio: None,
            ..page
        })
    };
    let mut kinds: Vec<_> = pages.iter().map(alike).collect();
    kinds.dedup();
    let pool = usize::from(bytes(&got, Kind::Hugetlb) > 0);
    let rest = usize::from(bytes(&got, Kind::Hugetlb) < place.length);
    let most = pool + rest + usize::from(place.reserved > place.length);
    assert!(kinds.len() <= most, "{kinds:?} {text}");
    build::give_back(&mut model, place);
    assert_eq!(model.left(), 0);
    Ok((got.large_bytes(), got))
}

fn bytes(got: &Got, kind: Kind) -> usize {
    let of = got.sizes.iter().filter(|size| size.kind == kind);
    of.map(|size| size.bytes).sum()
}

/// Every combination of the knobs of three sizes, with memory free in pieces of each kind.
#[test]
fn no_combination_of_knobs_ever_compacts() {
    for defrag in DEFRAG {
        for common in COMMON {
            for small in WORDS {
                for middle in WORDS {
                    for large in WORDS {
                        let sizes = [(4, small), (8, middle), (9, large)];
                        for free in [0, 4, 10] {
                            let mut model = Model::new(common, defrag, &sizes);
                            model.free_order = free;
                            let knobs = model.knobs();
                            let may = |order: usize| knobs.may(PAGE << order).is_ok();
                            let policy = Policy::ListNoReclaim;
                            let (got, _) = check(model, &request(policy)).unwrap();
                            // Every free page that may be tried is taken.
                            let mut expected = 0;
                            for (order, pages) in [(9, 512), (8, 256), (4, 16)] {
                                let left = 512 + 256 + 16 - expected / PAGE;
                                if may(order) && order <= free {
                                    expected += (left >> order << order)
                                        .max(pages.min(left) >> order << order)
                                        * PAGE;
                                }
                            }
                            assert_eq!(got, expected, "{common} {defrag} {sizes:?} {free}");
                        }
                    }
                }
            }
        }
    }
}

fn models() -> impl Strategy<Value = Model> {
    let word = |words: &'static [&'static str]| prop::sample::select(words);
    let sizes = prop::collection::btree_map(2..=9_usize, word(&WORDS), 0..5);
    let knobs = (word(&COMMON), word(&DEFRAG), sizes);
    (
        knobs,
        0..=9_usize,
        0..40_usize,
        0..3_u64,
        0..3_u64,
        any::<bool>(),
    )
        .prop_map(
            |((common, defrag, sizes), order, count, pool, pool_now, hides)| {
                let sizes: Vec<_> = sizes.into_iter().collect();
                let mut model = Model::new(common, defrag, &sizes);
                model.free_order = order;
                model.free_count = count;
                model.pool = pool;
                model.pool_now = pool_now;
                model.hides_pagemap = hides;
                model
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every policy, every length, any knobs, any memory, a pool that may be empty when it is asked.
    #[test]
    fn any_buffer_is_what_it_says(model in models(), length in 1..=3 * 512 * PAGE) {
        for &policy in Policy::ALL {
            let request = Request { policy, ..Request::new(length) };
            check(model.clone(), &request).unwrap();
        }
    }

    /// Each call fails in turn: an error or a whole buffer, and nothing stays mapped.
    #[test]
    fn a_call_that_fails_leaves_nothing_behind(model in models(), policy in prop::sample::select(Policy::ALL)) {
        let mut failed = 0;
        for fails in 1.. {
            let mut model = model.clone();
            model.fails = fails;
            let knobs = model.knobs();
            match build(&mut model, &request(policy), &knobs, &mut |_| ()) {
                Ok((place, _)) => {
                    prop_assert_eq!(model.folios(place.start, place.length).is_empty(), false);
                    let before = model.calls;
                    build::give_back(&mut model, place);
                    prop_assert_eq!(model.left(), 0);
                    if before < fails {
                        break;
                    }
                }
                Err(Error::Call { errno, .. }) => {
                    failed += 1;
                    prop_assert_eq!(errno, Errno::NOMEM);
                    prop_assert_eq!(model.left(), 0);
                }
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
        prop_assert!(failed > 2);
    }
}

#[test]
fn the_pool_comes_first_and_says_why_it_does_not() {
    let usual = || Model::new("madvise", "madvise", &[(9, "inherit")]);
    let mut model = usual();
    (model.pool, model.pool_now) = (1, 1);
    let request = Request::new(2 * 512 * PAGE);
    let (_, got) = check(model.clone(), &request).unwrap();
    assert_eq!(bytes(&got, Kind::Hugetlb), 512 * PAGE);
    assert_eq!(bytes(&got, Kind::Base), 512 * PAGE);
    let why = |model: &Model, request: &Request| {
        let (_, got) = check(model.clone(), request).unwrap();
        assert_eq!(bytes(&got, Kind::Hugetlb), 0);
        let row = got.sizes.iter().find(|size| size.kind == Kind::Hugetlb);
        row.and_then(|row| row.why)
    };
    assert_eq!(why(&usual(), &request), Some(Why::PoolEmpty));
    let mut gone = model.clone();
    gone.pool_now = 0;
    assert_eq!(why(&gone, &request), Some(Why::PoolRefused));
    let mut grows = model.clone();
    grows.overcommit = 1;
    assert_eq!(why(&grows, &request), Some(Why::PoolGrows));
    let not = Request {
        hugetlb: false,
        ..request
    };
    assert_eq!(why(&model, &not), None);
    let at_once = Request {
        deadline: Some(Duration::ZERO),
        ..request
    };
    assert_eq!(why(&model, &at_once), Some(Why::Deadline));
    // A policy without 2 MiB wants none.
    let small = Request {
        policy: Policy::Fold,
        ..request
    };
    assert_eq!(why(&model, &small), None);
}

/// ```text
/// calls of 1 ms    mmap mprotect madvise mprotect populate pread populate pread | over: base pages
/// ```
#[test]
fn after_the_deadline_base_pages_are_taken() {
    let mut model = Model::new("always", "never", &[(9, "always")]);
    model.tick = Duration::from_millis(1);
    let mut request = Request {
        deadline: Some(Duration::from_millis(8)),
        ..Request::new(4 * 512 * PAGE)
    };
    let (large, got) = check(model.clone(), &request).unwrap();
    assert_eq!(large, 2 * 512 * PAGE, "{got}");
    let row = got
        .sizes
        .iter()
        .find(|size| size.page == 512 * PAGE && size.kind == Kind::Thp);
    assert_eq!(
        row.map(|row| (row.tries, row.failed, row.why)),
        Some((2, 0, Some(Why::Deadline)))
    );
    request.deadline = Some(Duration::ZERO);
    assert_eq!(check(model.clone(), &request).unwrap().0, 0);
    request.deadline = None;
    assert_eq!(check(model, &request).unwrap().0, 4 * 512 * PAGE);
}

/// The page sizes of the device decide what is tried.
#[test]
fn the_device_decides() {
    let model = Model::new(
        "always",
        "never",
        &[(4, "always"), (8, "always"), (9, "always")],
    );
    let asked = |policy, sizes: &[u64], single_pages| {
        let request = Request {
            policy,
            device: Some(PageSizes::new(sizes).unwrap()),
            single_pages,
            ..request(Policy::PerDevice)
        };
        let (_, got) = check(model.clone(), &request).unwrap();
        let rows = got.sizes.iter().filter(|size| size.kind == Kind::Thp);
        let tried = rows.filter(|size| size.tries > 0);
        tried.map(|size| size.page / PAGE).collect::<Vec<_>>()
    };
    let (k4, k64, m2) = (4096, 1 << 16, 1 << 21);
    assert_eq!(asked(Policy::PerDevice, &[k4, m2], false), [512, 256, 16]);
    assert_eq!(asked(Policy::PerDevice, &[k4, m2], true), [0; 0]);
    assert_eq!(asked(Policy::PerDevice, &[k4], false), [0; 0]);
    assert_eq!(asked(Policy::IommuDma, &[k4, m2], false), [512]);
    assert_eq!(asked(Policy::IommuDma, &[k4, k64], false), [16]);
    let error = check(
        model,
        &Request {
            device: Some(PageSizes::new(&[k64]).unwrap()),
            ..request(Policy::PerDevice)
        },
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "the device's smallest page is larger than a base page"
    );
}

/// A knob that cannot be read forbids.
#[test]
fn what_is_not_known_is_not_tried() {
    let knobs = |read: &dyn Fn(&str) -> File| Knobs::by(PAGE, false, read);
    assert_eq!(knobs(&|_| File::Absent).may(512 * PAGE), Err(Why::NoThp));
    assert_eq!(
        knobs(&|_| File::Unreadable).may(512 * PAGE),
        Err(Why::Unknown)
    );
    let nonsense = |text: &'static str| knobs(&move |_| File::Text(text.to_owned()));
    for text in [
        "",
        "[",
        "]",
        "[sometimes]",
        "always madvise never",
        "[always",
        "\0\u{fffd}",
    ] {
        assert_eq!(
            nonsense(text).may(512 * PAGE),
            Err(Why::Unknown),
            "{text:?}"
        );
    }
    assert_eq!(nonsense("[inherit]").may(512 * PAGE), Err(Why::NotEnabled));
    let model = Model::new("always", "never", &[(9, "always")]);
    let mut off = model.knobs();
    off.switched_off = true;
    assert_eq!(off.may(512 * PAGE), Err(Why::SwitchedOff));
    assert_eq!(model.knobs().may(512 * PAGE), Ok(Advice::Advised));
    for bytes in [0, 1, PAGE, PAGE + 1, 3 * PAGE, 1024 * PAGE, usize::MAX] {
        assert!(model.knobs().may(bytes).is_err(), "{bytes}");
    }
}

/// Before 6.8 there were no directories of sizes.
#[test]
fn an_older_kernel_has_the_pmds_size_alone() {
    let knobs = Knobs::by(PAGE, false, &|path| match path
        .strip_prefix("/sys/kernel/mm/transparent_hugepage/")
    {
        Some("enabled") => File::Text("[always] madvise never".to_owned()),
        Some("defrag") => File::Text("always [madvise] never".to_owned()),
        Some("hpage_pmd_size") => File::Text("2097152\n".to_owned()),
        _ => File::Absent,
    });
    assert_eq!(knobs.may(512 * PAGE), Ok(Advice::Plain));
    assert_eq!(knobs.may(16 * PAGE), Err(Why::NoSuchSize));
}

#[test]
fn a_buffer_is_zeroed_resident_and_given_back() {
    let length = (5 << 20) + 1;
    let mut buffer = Buffer::new(&Request::new(length)).unwrap();
    assert_eq!(buffer.len(), length.next_multiple_of(crate::sys::page()));
    assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
    buffer.as_mut_slice().fill(7);
    assert!(buffer.as_slice().iter().all(|&byte| byte == 7));
    let physical = buffer.physical().unwrap();
    assert_eq!(physical.resident, buffer.len());
    let sizes = PageSizes::K4_M2_G1;
    let Entries::AtMost(most) = buffer.got().entries(sizes).unwrap() else {
        panic!("an exact count without frame numbers");
    };
    match physical.entries(sizes).unwrap() {
        Some(Entries::Exactly(exact)) => assert!(0 < exact && exact <= most, "{exact} {most}"),
        Some(other) => panic!("{other:?}"),
        None => skip(&Skip::root("entries by frame numbers")),
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let error = |length| Buffer::new(&Request::new(length)).unwrap_err();
    assert!(matches!(error(0), Error::Invalid { .. }));
    for length in [usize::MAX, usize::MAX - 4096, 1 << 63, isize::MAX as usize] {
        assert!(matches!(error(length), Error::NoRoom { .. }), "{length:#x}");
    }
    // More than an address space; and more than this machine can promise.
    for length in [1 << 60, 1 << 46] {
        assert_eq!(
            error(length).errno(),
            Errno::NOMEM.raw_os_error(),
            "{length:#x}"
        );
    }
}

/// No `/sys`, and knobs that allow nothing: base pages all the same.
#[test]
fn without_knobs_there_are_base_pages() {
    for file in [File::Absent, File::Unreadable] {
        let knobs = Knobs::by(crate::sys::page(), false, &|_| file.clone());
        let buffer = Buffer::with(&Request::new(1 << 20), &knobs, &mut |_| ()).unwrap();
        assert_eq!(bytes(buffer.got(), Kind::Base), 1 << 20);
    }
}

/// Carries a hidden test out in a process of its own, under a limit of the shell's.
fn alone(test: &str, limit: &str) {
    let exe = std::env::current_exe().unwrap();
    let script =
        format!("{limit} exec \"$0\" --exact chunked::tests::{test} --ignored --nocapture");
    let out = Command::new("sh")
        .arg("-c")
        .arg(script)
        .arg(exe)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

fn size_of_process() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').next().unwrap().parse().unwrap();
    pages * crate::sys::page()
}

#[test]
fn the_kernel_is_left_as_it_was_whichever_call_fails() {
    alone("each_call_fails", "");
}

#[test]
#[ignore = "carried out in a process of its own"]
fn each_call_fails() {
    // Base pages as this machine's knobs have it, and large ones as if they allowed all. The report
    // may be wrong
    // (a fault of ours might compact), never what is done.
    let free = Model::new("always", "never", &[(4, "always"), (9, "always")]).knobs();
    let length = (8 << 20) + 12_345;
    for knobs in [None, Some(free)] {
        let mut before = 0;
        for nth in 1.. {
            let calls = inject::failing(nth, Errno::NOMEM, || {
                let knobs = knobs.clone().unwrap_or_else(Knobs::read);
                let buffer = Buffer::with(&Request::new(length), &knobs, &mut |_| ())?;
                assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
                assert_eq!(
                    buffer.physical().map_or(buffer.len(), |p| p.resident),
                    buffer.len()
                );
                Ok::<_, Error>(())
            });
            if let Err(error) = calls.result {
                let Error::Call { call, errno } = error else {
                    panic!("{error:?}");
                };
                assert_eq!((Some(call), errno), (calls.failed, Errno::NOMEM));
            }
            // The allocator may keep a little.
            match before {
                0 => before = size_of_process(),
                _ => assert!(size_of_process() < before + (1 << 20), "{:?}", calls.failed),
            }
            if calls.failed.is_none() {
                assert!(nth > 5);
                break;
            }
        }
    }
}

#[test]
fn an_address_space_that_ends_is_an_error() {
    alone("limited", "ulimit -v 100000;");
}

#[test]
#[ignore = "carried out in a process of its own"]
fn limited() {
    let before = size_of_process();
    let error = Buffer::new(&Request::new(200 << 20)).unwrap_err();
    assert_eq!(
        error,
        Error::Call {
            call: "mmap",
            errno: Errno::NOMEM
        }
    );
    assert!(size_of_process() < before + (1 << 20));
    drop(Buffer::new(&Request::new(1 << 20)).unwrap());
}
