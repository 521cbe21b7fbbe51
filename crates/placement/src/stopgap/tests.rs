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
