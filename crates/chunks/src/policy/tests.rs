extern crate std;

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::iommu::{self, Alignment, PageSizes};

mod rule;

const K4: u64 = 1 << 12;
const K64: u64 = 1 << 16;
const M2: u64 = 1 << 21;

fn request(pages: u64) -> Request {
    Request {
        pages,
        page: K4,
        sizes: PageSizes::K4_K64_M1_M16,
        single_pages: false,
    }
}

/// Blocks of at most 2^`largest` pages without end, none beside another. After `pages` it has nothing.
/// Notes what is out.
struct Blocks {
    largest: u32,
    pages: u64,
    next: u64,
    out: BTreeSet<(u64, u32)>,
}

impl Blocks {
    fn of(largest: u32, pages: u64) -> Blocks {
        Blocks {
            largest,
            pages,
            next: 0,
            out: BTreeSet::new(),
        }
    }
}

impl Source for Blocks {
    fn allocate(&mut self, order: u32, _: Effort) -> Option<u64> {
        if order > self.largest || 1 << order > self.pages {
            return None;
        }
        self.pages -= 1 << order;
        let frame = self.next;
        self.next += 2 << LARGEST;
        self.out.insert((frame, order));
        Some(frame)
    }

    /// Frames ascend, so the newest is the last.
    fn free(&mut self, chunk: Chunk) {
        assert_eq!(self.out.pop_last(), Some((chunk.frame, chunk.order)));
        self.pages += chunk.pages();
    }
}

fn tries(name: Name, request: &Request, largest: u32) -> (u64, u64) {
    let built = name
        .build(request, &mut Blocks::of(largest, u64::MAX))
        .unwrap();
    assert_eq!(built.pages(), request.pages);
    (built.tries.total(), built.tries.total_failed())
}

/// A 4 MiB buffer on memory of 4 KiB pages with nothing contiguous: the first count is mail 001's own.
#[test]
fn a_buffer_of_single_pages_makes_the_tries_of_the_mail() {
    let of = |name| tries(name, &request(1024), 0);
    assert_eq!(of(Name::Old), (9228, 8204));
    assert_eq!(of(Name::Sticky), (1034, 10));
    assert_eq!(of(Name::Start64k), (1028, 4));
    assert_eq!(of(Name::Fold), (1026, 2));
    assert_eq!(of(Name::List), (1027, 3));
    assert_eq!(of(Name::OnePage), (1024, 0));
    // Those that the mail does not count.
    assert_eq!(of(Name::ListNoReclaim), (1027, 3));
    assert_eq!(of(Name::Sorted), (1024, 0));
    assert_eq!(of(Name::IovaOffset), (9228, 8204));
    assert_eq!(of(Name::Landed), (1027, 3));
    assert_eq!(of(Name::IommuDma), (1026, 2)); // 1 MiB and 64 KiB; 16 MiB is more than order 10
    assert_eq!(of(Name::Ttm), (1034, 10));
    assert_eq!(of(Name::PerDevice), (1027, 3));
}

#[test]
fn tries_are_counted_by_order() {
    let built = Name::List
        .build(&request(1024), &mut Blocks::of(4, u64::MAX))
        .unwrap();
    let mut expected = Tries::default();
    expected.tries[9] = 1;
    expected.tries[8] = 1;
    expected.failed = expected.tries;
    expected.tries[4] = 64;
    assert_eq!(built.tries, expected);
    expected += built.tries;
    assert_eq!((expected.total(), expected.total_failed()), (132, 4));
}

/// 64 KiB is order 4, 2 or 0; 2 MiB is order 9, 7 or 5.
#[test]
fn orders_follow_from_the_base_page() {
    let of = |name: Name, page| {
        let sizes = PageSizes::new(&[page, K64, M2]).unwrap();
        let request = Request {
            page,
            sizes,
            ..request(1 << 10)
        };
        let built = name.build(&request, &mut Blocks::of(0, u64::MAX)).unwrap();
        let orders = (0..ORDERS)
            .rev()
            .filter(|&order| built.tries.tries[order] > 0);
        orders.collect::<Vec<usize>>()
    };
    const K16: u64 = 1 << 14;
    assert_eq!(of(Name::List, K4), [9, 8, 4, 0]);
    assert_eq!(of(Name::List, K16), [7, 6, 2, 0]);
    assert_eq!(of(Name::List, K64), [5, 4, 0]);
    assert_eq!(of(Name::IommuDma, K4), [9, 4, 0]);
    assert_eq!(of(Name::IommuDma, K16), [7, 2, 0]);
    assert_eq!(of(Name::IommuDma, K64), [5, 0]);
    assert_eq!(of(Name::Start64k, K16), [2, 1, 0]);
    assert_eq!(of(Name::Start64k, K64), [0]);
    assert_eq!(of(Name::Fold, K4), [4, 1, 0]);
    assert_eq!(of(Name::Fold, K16), [2, 1, 0]);
    assert_eq!(of(Name::Fold, K64), [0]);
}

/// An IOMMU that knows smaller pages than the CPU maps a base page with several of them.
#[test]
fn an_iommu_with_smaller_pages_is_no_harm() {
    let request = Request {
        page: K64,
        sizes: PageSizes::K4_M2_G1,
        ..request(100)
    };
    for &name in Name::ALL {
        let built = name.build(&request, &mut Blocks::of(10, u64::MAX)).unwrap();
        let runs = built.runs(request.page).unwrap();
        let iova = name.iova(&request, &built, Alignment::IommuDma).unwrap();
        let entries = iommu::entries(&runs, request.sizes, iova).unwrap();
        let mapped: u64 = entries.iter().map(|(size, count)| size * count).sum();
        assert_eq!(mapped, request.bytes(), "{name}");
    }
}

#[test]
fn the_device_decides_for_those_that_ask_it() {
    let single = Request {
        single_pages: true,
        ..request(1024)
    };
    for &name in Name::ALL {
        let asks = [Name::Landed, Name::IommuDma, Name::PerDevice].contains(&name);
        let same = tries(name, &single, 10) == tries(name, &request(1024), 10);
        assert_eq!(same, !asks || name == Name::OnePage, "{name}");
    }
    let small = Request {
        sizes: PageSizes::new(&[K4]).unwrap(),
        ..request(1024)
    };
    assert_eq!(tries(Name::PerDevice, &small, 10), (1024, 0));
    assert_eq!(tries(Name::IommuDma, &small, 10), (1024, 0));
    assert_eq!(tries(Name::Landed, &small, 10), (2, 0)); // it does not ask what the IOMMU maps
}

#[test]
fn sorted_gives_the_device_ascending_frames() {
    struct Downward(u64);
    impl Source for Downward {
        fn allocate(&mut self, _: u32, _: Effort) -> Option<u64> {
            self.0 -= 1;
            Some(self.0)
        }
        fn free(&mut self, _: Chunk) {}
    }
    let entries = |name: Name| {
        let request = Request {
            sizes: PageSizes::K4_K64_M2,
            ..request(512)
        };
        let built = name.build(&request, &mut Downward(1024)).unwrap();
        let iova = name.iova(&request, &built, Alignment::IommuDma).unwrap();
        iommu::entries(&built.runs(K4).unwrap(), request.sizes, iova).unwrap()
    };
    assert_eq!(entries(Name::OnePage), [(K4, 512)].into());
    assert_eq!(entries(Name::Sorted), [(M2, 1)].into());
}

#[test]
fn a_buffer_that_cannot_be_completed_is_undone() {
    for &name in Name::ALL {
        let mut blocks = Blocks::of(5, 1000);
        let error = name.build(&request(1024), &mut blocks).unwrap_err();
        let text = error.to_string();
        let BuildError::Exhausted { tries, pages } = error else {
            panic!("{name}: {error:?}");
        };
        assert_eq!((pages, tries.failed[0]), (1000, 1), "{name}");
        assert_eq!((blocks.out.len(), blocks.pages), (0, 1000), "{name}");
        assert!(text.contains("at its end after 1000 pages"), "{text}");
    }
}

#[test]
fn a_buffer_can_be_given_back() {
    let mut blocks = Blocks::of(10, 1875);
    let built = Name::Old.build(&request(1875), &mut blocks).unwrap();
    assert_eq!((blocks.out.len(), blocks.pages), (7, 0));
    built.give_back(&mut blocks);
    assert_eq!((blocks.out.len(), blocks.pages), (0, 1875));
}

/// Nothing is asked of the source where the request makes no sense.
#[test]
fn requests_that_make_no_sense_are_refused() {
    struct Untouched;
    impl Source for Untouched {
        fn allocate(&mut self, _: u32, _: Effort) -> Option<u64> {
            unreachable!()
        }
        fn free(&mut self, _: Chunk) {
            unreachable!()
        }
    }
    let page = |page| Request { page, ..request(1) };
    let pages = (1 << 40) + 1;
    let steps = |orders: &[u32]| Steps {
        orders: orders.to_vec(),
        effort: Effort::NoRetry,
    };
    let sizes = Request {
        sizes: PageSizes::new(&[K64, M2]).unwrap(),
        ..request(1)
    };
    let no_base = BuildError::NoBasePage {
        smallest: K64,
        page: K4,
    };
    let size = |bytes| (page(bytes), BuildError::PageSize { page: bytes });
    let cases = [
        ((request(0), BuildError::Zero), "at least one page"),
        (
            (request(pages), BuildError::TooLong { pages }),
            "more than 2^40",
        ),
        (size(0), "a base page of 0 bytes"),
        (size(5000), "power of two"),
        (size(2048), "from 4 KiB"),
        (size(1 << 63), "to 256 KiB"),
        (
            (sizes, no_base),
            "smallest page has 65536 bytes and cannot map a base page of 4096",
        ),
    ];
    for ((request, error), text) in &cases {
        assert!(error.to_string().contains(text), "{error}");
        for &name in Name::ALL {
            let built = name.build(request, &mut Untouched);
            assert_eq!(built.as_ref(), Err(error), "{name}");
        }
        let built = steps(&[0]).build(request, &mut Untouched);
        assert_eq!(built.as_ref(), Err(error));
    }
    let bad: [&[u32]; 6] = [&[], &[4], &[11, 0], &[u32::MAX, 0], &[4, 4, 0], &[0, 4, 0]];
    for orders in bad {
        let built = steps(orders).build(&request(1), &mut Untouched);
        assert_eq!(built, Err(BuildError::Orders), "{orders:?}");
    }
}

/// The largest request is tried, not computed with: memory ends long before.
#[test]
fn the_largest_buffer_is_no_overflow() {
    let largest = Request {
        page: 1 << 18,
        ..request(1 << 40)
    };
    assert_eq!(largest.bytes(), 1 << 58);
    for &name in Name::ALL {
        let error = name.build(&largest, &mut Blocks::of(10, 5000)).unwrap_err();
        assert!(
            matches!(error, BuildError::Exhausted { pages: 5000, .. }),
            "{name}"
        );
    }
}

#[test]
fn frames_beyond_physical_memory_are_an_error() {
    let built = Built {
        chunks: vec![Chunk {
            frame: u64::MAX,
            order: 0,
        }],
        tries: Tries::default(),
    };
    assert_eq!(built.runs(K4), Err(iommu::MapError::TooLong));
    assert!(built.log(&request(1), 0).is_err());
    let iova = Name::IovaOffset.iova(&request(1), &built, Alignment::Arm);
    assert_eq!(iova, Err(iommu::MapError::TooLong));
}

#[test]
fn names_are_words_and_back() {
    let words: Vec<&str> = Name::ALL.iter().map(|name| name.word()).collect();
    let expected = "old one-page sticky start-64k fold list list-noreclaim sorted iova-offset landed \
                    iommu-dma ttm per-device";
    assert_eq!(words.join(" "), expected);
    for &name in Name::ALL {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    let error = "best".parse::<Name>().unwrap_err();
    assert!(
        error.starts_with("unknown policy 'best'; there are old, one-page, "),
        "{error}"
    );
}
