use super::*;
use crate::oracle::{Answer, Differential, Shape};

fn space(start: u64, pages: u64) -> Space {
    Space::new(Range::new(start, start + pages * 0x1000), 0x1000).unwrap()
}

#[test]
fn it_keeps_the_contract() {
    let windows = [
        (0x10_0000, 1, 1, 1),
        (0x7000, 3, 2, 2),
        (0x10_0000, 200, 48, 12),
        (0, 128, 60, 4),
        (0x1_0000, 4096, 200, 90),
        (0xffff_0000, 50_000, 300, 400),
        (0x1_0000, (1 << 35) - 0x10, 60, 1 << 33),
        (0x1_0000, (1 << 35) - 0x10, 400, 64),
        (0x3000, 1 << 20, 200, 1 << 13),
    ];
    for (seed, (start, pages, live, size)) in (1..).zip(windows) {
        for base in [Shape::ALL, Shape::PLAIN] {
            let shape = Shape {
                live,
                pages: size,
                ..base
            };
            let policy = Stopgap::new(space(start, pages));
            let mut run = Differential::new(policy, Answer::Valid, shape, seed);
            run.run(10_000, 29)
                .unwrap_or_else(|what| panic!("{pages} pages, seed {seed}: {what}"));
        }
    }
}

/// Once an alignment was asked for, what needs none takes no start that is aligned if there is another.
///
/// ```text
/// page      top - 512        top
/// freed     |A A A A|. . .|B B B B|      A was asked for at a multiple of 512, B anywhere
/// ```
#[test]
fn aligned_starts_are_left_to_those_that_need_them() {
    let mut stopgap = Stopgap::new(space(0, 1 << 20));
    let plain = Request::of(0x4000);
    let aligned = Request {
        alignment: 512 * 0x1000,
        ..plain
    };
    let a = stopgap.place(&aligned).unwrap();
    let b = stopgap.place(&plain).unwrap();
    assert_ne!(b.start % aligned.alignment, 0);
    // Both wait in one magazine, the aligned one on top.
    stopgap.free(b).unwrap();
    stopgap.free(a).unwrap();
    let visited = stopgap.work().visited;
    assert_eq!(stopgap.place(&plain), Ok(b));
    assert_eq!(stopgap.place(&aligned), Ok(a));
    assert_eq!(stopgap.work().visited, visited, "the map was asked");
    stopgap.check().unwrap();
}
