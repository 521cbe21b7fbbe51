//! Mail 001, Robin Murphy, 18 December 2015: a framebuffer on a Juno at boot, memory still in large blocks.
//!
//! `iommu-dma` of that time went down all orders, as `sticky` does: so does `old` where nothing fails.

use stopgap_chunks::iommu::{self, Alignment, Format, Line, PageSizes};
use stopgap_chunks::policy::{Built, Chunk, Effort, Name, Request, Source};

const K4: u64 = 1 << 12;
const M2: u64 = 1 << 21;
const IOVA: u64 = 0xff80_0000;

/// The lines of the mail, up to its "...".
const MAIL: &str = "\
iommu_dma_alloc: alloc size 0x753000, 1875 pages
__iommu_dma_alloc_pages: allocated at order 10
__iommu_dma_alloc_pages: allocated at order 9
__iommu_dma_alloc_pages: allocated at order 8
__iommu_dma_alloc_pages: allocated at order 6
__iommu_dma_alloc_pages: allocated at order 4
__iommu_dma_alloc_pages: allocated at order 1
__iommu_dma_alloc_pages: allocated at order 0
iommu: map: iova 0xff800000 pa 0x00000009f5400000 size 0x400000
iommu: mapping: iova 0xff800000 pa 0x00000009f5400000 pgsize 0x200000
iommu: mapping: iova 0xffa00000 pa 0x00000009f5600000 pgsize 0x200000
iommu: map: iova 0xffc00000 pa 0x00000000fa200000 size 0x200000
iommu: mapping: iova 0xffc00000 pa 0x00000000fa200000 pgsize 0x200000
iommu: map: iova 0xffe00000 pa 0x00000009f5a00000 size 0x100000
iommu: mapping: iova 0xffe00000 pa 0x00000009f5a00000 pgsize 0x1000
iommu: mapping: iova 0xffe01000 pa 0x00000009f5a01000 pgsize 0x1000
iommu: mapping: iova 0xffe02000 pa 0x00000009f5a02000 pgsize 0x1000
iommu: mapping: iova 0xffe03000 pa 0x00000009f5a03000 pgsize 0x1000
";

/// A block of every order. Where orders 10, 9 and 8 lie, the mail says; the others are put apart from them.
struct Juno;

impl Source for Juno {
    fn allocate(&mut self, order: u32, _: Effort) -> Option<u64> {
        Some(match order {
            10 => 0x9_f540_0000 / K4,
            9 => 0xfa20_0000 / K4,
            8 => 0x9_f5a0_0000 / K4,
            small => 0xc000_0000 / K4 + (2 << small),
        })
    }
    fn free(&mut self, _: Chunk) {
        unreachable!("nothing fails");
    }
}

fn request() -> Request {
    Request {
        pages: 1875,
        page: K4,
        sizes: PageSizes::new(&[K4, M2]).unwrap(),
        single_pages: false,
    }
}

fn orders(built: &Built) -> Vec<u32> {
    built.chunks.iter().map(|chunk| chunk.order).collect()
}

#[test]
fn the_log_is_that_of_the_mail() {
    for name in [Name::Sticky, Name::Old, Name::Ttm] {
        let built = name.build(&request(), &mut Juno).unwrap();
        assert_eq!(orders(&built), [10, 9, 8, 6, 4, 1, 0], "{name}");
        let lines: Vec<Line> = built.log(&request(), IOVA).unwrap().collect();
        let text: Vec<String> = lines.iter().map(Line::to_string).collect();
        let mail: Vec<&str> = MAIL.lines().collect();
        assert_eq!(text[..mail.len()], mail[..]);
        // Behind the mail's "...": the rest of order 8, and the chunks from order 6 on.
        let rest = &lines[mail.len()..];
        let maps = rest.iter().filter(|line| matches!(line, Line::Map { .. }));
        assert_eq!(maps.count(), 4);
        assert_eq!(rest.len(), 4 + (256 - 4) + 64 + 16 + 2 + 1);
    }
}

#[test]
fn three_entries_map_over_80_percent() {
    let built = Name::Sticky.build(&request(), &mut Juno).unwrap();
    let aligned = Alignment::IommuDma.bytes(request().bytes(), K4);
    assert_eq!(aligned, Some(8 << 20));
    assert_eq!(
        Name::Sticky.iova(&request(), &built, Alignment::IommuDma),
        Ok(8 << 20)
    );
    let runs = built.runs(K4).unwrap();
    let batches = iommu::map(&runs, request().sizes, IOVA).unwrap();
    let entries = iommu::entries(&runs, request().sizes, IOVA).unwrap();
    assert_eq!(entries, [(K4, 339), (M2, 3)].into());
    assert!(10 * 3 * M2 > 8 * request().bytes());
    // Root, third and second level, and one last level for the 339.
    let format = Format::for_sizes(request().sizes).unwrap();
    assert_eq!(format.table_bytes(&batches), Some(4 * K4));
}

/// Arm's own allocator aligned to 1 MiB at most: without luck, order 10 and 9 bring not one large entry.
#[test]
fn aligned_to_1_mib_nothing_is_left_of_it() {
    let built = Name::Sticky.build(&request(), &mut Juno).unwrap();
    let runs = built.runs(K4).unwrap();
    let iova = Name::Sticky
        .iova(&request(), &built, Alignment::Arm)
        .unwrap();
    assert_eq!(iova, 1 << 20);
    let entries = iommu::entries(&runs, request().sizes, iova).unwrap();
    assert_eq!(entries, [(K4, 1875)].into());
    let iova = Name::IovaOffset.iova(&request(), &built, Alignment::Arm);
    let entries = iommu::entries(&runs, request().sizes, iova.unwrap()).unwrap();
    assert_eq!(entries[&M2], 3);
}

/// `iommu-dma` allocates since 4.7 only orders that are pages of this IOMMU.
#[test]
fn todays_iommu_dma_takes_2_mib_and_single_pages() {
    let mut next = 0;
    struct Apart<'a>(&'a mut u64);
    impl Source for Apart<'_> {
        fn allocate(&mut self, order: u32, _: Effort) -> Option<u64> {
            *self.0 = (*self.0 + 1).next_multiple_of(1 << order) + (1 << order);
            Some(*self.0)
        }
        fn free(&mut self, _: Chunk) {}
    }
    let built = Name::IommuDma
        .build(&request(), &mut Apart(&mut next))
        .unwrap();
    let mut expected = vec![9; 3];
    expected.resize(3 + 339, 0);
    assert_eq!(orders(&built), expected);
}
