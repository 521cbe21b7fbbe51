use super::*;
use crate::iommu::PageSizes;

/// Memory with enough single pages and no two adjacent.
struct NothingContiguous {
    next: u64,
}

impl Source for NothingContiguous {
    fn take(&mut self, order: u32, _: Effort) -> Option<u64> {
        self.next += 2;
        (order == 0).then_some(self.next)
    }
    fn give(&mut self, _: Chunk) {}
}

/// A 4 MiB buffer on memory of 4 KiB pages with nothing contiguous: the counts of mail 001.
#[test]
fn a_buffer_of_single_pages_makes_the_tries_of_the_mail() {
    let request = Request {
        pages: 1024,
        page: 4096,
        sizes: PageSizes::K4_K64_M1_M16,
        single_pages: false,
    };
    let tries = |name: Name| {
        let built = name
            .build(&request, &mut NothingContiguous { next: 0 })
            .unwrap();
        assert_eq!(built.pages(), 1024);
        (built.tries.total(), built.tries.total_failed())
    };
    assert_eq!(tries(Name::Old), (9228, 8204));
    assert_eq!(tries(Name::Sticky), (1034, 10));
    assert_eq!(tries(Name::Start64k), (1028, 4));
    assert_eq!(tries(Name::Fold), (1026, 2));
    assert_eq!(tries(Name::List), (1027, 3));
    assert_eq!(tries(Name::OnePage), (1024, 0));
}
