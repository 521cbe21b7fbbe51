use proptest::prelude::*;

use super::*;
use crate::arena::tests::forks;

fn free(pool: &Pool, address: NonNull<u8>, bytes: usize) -> Result<()> {
    // SAFETY: tests use nothing after they freed it.
    unsafe { pool.free(address, bytes) }
}

fn bytes<'a>(address: NonNull<u8>, len: usize) -> &'a mut [u8] {
    // SAFETY: tests ask for what was given out, once at a time.
    unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), len) }
}

fn at(number: usize) -> NonNull<u8> {
    NonNull::new(std::ptr::with_exposed_provenance_mut(number)).unwrap()
}

fn joined(pool: &Pool) -> Pool {
    Pool::join(files::duplicate(pool.file()).unwrap()).unwrap()
}

fn corrupt<T>(result: Result<T>) {
    assert!(matches!(result.map(drop), Err(Error::Corrupt { .. })));
}

#[test]
fn a_part_is_taken_here_and_freed_there() {
    let ours = Pool::create(100 * page()).unwrap();
    let theirs = joined(&ours);
    let part = ours.alloc(3 * page() - 1).unwrap();
    let offset = ours.offset(part).unwrap();
    let seen = theirs.at(offset, 3 * page()).unwrap();
    assert_ne!(part, seen);
    bytes(part, 3 * page())[3 * page() - 1] = 5;
    assert_eq!(bytes(seen, 3 * page())[3 * page() - 1], 5);
    let mut byte = [0];
    files::read_at(ours.file(), &mut byte, offset + 3 * page() as u64 - 1).unwrap();
    assert_eq!(byte, [5]);
    let other = theirs.alloc(page()).unwrap();
    assert_ne!(theirs.offset(other).unwrap(), offset);
    free(&theirs, seen, 3 * page()).unwrap();
    let address = part.addr().get();
    assert_eq!(free(&ours, part, 3 * page()), Err(Error::Freed { address }));
    // The same place again, which still is as it was left.
    let again = ours.alloc(3 * page()).unwrap();
    assert_eq!((again, bytes(again, 3 * page())[3 * page() - 1]), (part, 5));
}

#[test]
fn frees_are_exact() {
    let pool = Pool::create(64 * page()).unwrap();
    let part = pool.alloc(4 * page()).unwrap();
    let start = part.addr().get();
    let foreign = |address: usize| {
        assert_eq!(
            free(&pool, at(address), page()),
            Err(Error::Foreign { address })
        );
        assert_eq!(pool.offset(at(address)).is_ok(), address == start + page());
    };
    // Misaligned, within a part, outside, in the header.
    for address in [
        start + 1,
        start + page(),
        start - 1,
        start - page(),
        start + 64 * page(),
        8,
    ] {
        foreign(address);
    }
    let address = start + 5 * page();
    assert_eq!(
        free(&pool, at(address), page()),
        Err(Error::Freed { address })
    );
    for len in [0, 1, 3 * page(), 4 * page() + 1, usize::MAX] {
        assert!(
            matches!(free(&pool, part, len), Err(Error::Invalid { .. })),
            "{len}"
        );
    }
    let offset = pool.offset(part).unwrap();
    assert_eq!(pool.at(offset, 4 * page()), Ok(part));
    assert!(pool.at(offset, page()).is_err() && pool.at(offset + 1, page()).is_err());
    for wrong in [0, u64::MAX, 1 << 40, offset + page() as u64] {
        assert!(pool.at(wrong, page()).is_err(), "{wrong}");
    }
    free(&pool, part, 3 * page() + 1).unwrap();
    assert_eq!(
        free(&pool, part, 4 * page()),
        Err(Error::Freed { address: start })
    );
    assert!(matches!(pool.alloc(0), Err(Error::Invalid { .. })));
}

#[test]
fn a_full_pool_says_its_largest_hole() {
    let pool = Pool::create(200 * page()).unwrap();
    let all: Vec<_> = (0..20).map(|_| pool.alloc(10 * page()).unwrap()).collect();
    let refused = |pages: usize, holes: usize| {
        let (bytes, largest) = (pages * page(), Some(holes * page()));
        assert_eq!(pool.alloc(bytes), Err(Error::NoRoom { bytes, largest }));
    };
    refused(1, 0);
    for number in [2, 7, 8, 19] {
        free(&pool, all[number], 10 * page()).unwrap();
    }
    refused(21, 20);
    refused(usize::MAX >> 13, 20);
    let bytes = usize::MAX;
    let largest = Some(20 * page());
    assert_eq!(pool.alloc(bytes), Err(Error::NoRoom { bytes, largest }));
    assert_eq!(pool.alloc(20 * page()), Ok(all[7]));
    refused(11, 10);
}

#[test]
fn a_pool_that_cannot_be_is_refused() {
    assert!(matches!(Pool::create(0), Err(Error::Invalid { .. })));
    assert!(matches!(
        Pool::create(usize::MAX),
        Err(Error::Invalid { .. })
    ));
    let file = |length: u64, seals| files::memfd(c"test", length, seals).unwrap();
    corrupt(Pool::join(file(0, SealFlags::SHRINK)));
    corrupt(Pool::join(file(1 << 20, SealFlags::SHRINK)));
    corrupt(Pool::join(file(1 << 20, SealFlags::empty())));
    let (pipe, _other) = std::io::pipe().unwrap();
    corrupt(Pool::join(pipe.into()));
}

/// Each word of the header, with other values, is refused by those who join and by those who had joined.
#[test]
fn a_corrupted_header_is_refused() {
    let pool = Pool::create(64 * page()).unwrap();
    let part = pool.alloc(page()).unwrap();
    for word in 0..HEADER {
        let good = pool.header()[word].load(Ordering::Relaxed);
        for bad in [0, 1, good + 1, good ^ 1 << 63, 1 << 30, u64::MAX] {
            if bad == good {
                continue;
            }
            pool.header()[word].store(bad, Ordering::Relaxed);
            corrupt(Pool::join(files::duplicate(pool.file()).unwrap()));
            corrupt(pool.alloc(page()));
            corrupt(free(&pool, part, page()));
            corrupt(pool.at(pool.offset(part).unwrap(), page()));
            corrupt(pool.trim());
        }
        pool.header()[word].store(good, Ordering::Relaxed);
    }
    drop(joined(&pool));
    free(&pool, part, page()).unwrap();
}

#[test]
fn marks_that_a_peer_wrote_are_not_believed() {
    let pool = Pool::create(64 * page()).unwrap();
    let part = pool.alloc(4 * page()).unwrap();
    let mark = &pool.marks()[0];
    // Beyond the pool; beyond the part, where pages are free.
    for (wrong, pages) in [(65, 65), (u32::MAX, 1), (5, 5)] {
        mark.store(wrong, Ordering::Relaxed);
        corrupt(free(&pool, part, pages * page()));
        corrupt(pool.at(pool.offset(part).unwrap(), pages * page()));
    }
    mark.store(4, Ordering::Relaxed);
    pool.bits()[0].fetch_and(!4, Ordering::Relaxed);
    corrupt(free(&pool, part, 4 * page()));
    pool.bits()[0].fetch_or(4, Ordering::Relaxed);
    free(&pool, part, 4 * page()).unwrap();
    // A peer that takes everything: full, and no harm.
    pool.bits()[0].store(u64::MAX, Ordering::Relaxed);
    let largest = Some(0);
    assert_eq!(pool.alloc(1), Err(Error::NoRoom { bytes: 1, largest }));
}

#[test]
fn trim_gives_back_what_is_free_and_nothing_else() {
    let pool = Pool::create(300 * page()).unwrap();
    let all: Vec<_> = (0..30).map(|_| pool.alloc(10 * page()).unwrap()).collect();
    for part in &all {
        bytes(*part, 10 * page()).fill(3);
    }
    for part in all.iter().step_by(3) {
        free(&pool, *part, 10 * page()).unwrap();
    }
    assert_eq!(pool.trim(), Ok(100 * page() as u64));
    for (number, part) in all.iter().enumerate() {
        let byte = if number % 3 == 0 { 0 } else { 3 };
        assert!(
            bytes(*part, 10 * page()).iter().all(|&here| here == byte),
            "{number}"
        );
    }
    assert_eq!(pool.alloc(10 * page()), Ok(all[27]));
}

#[derive(Debug, Clone)]
enum Step {
    Alloc(usize),
    Free(usize),
    Trim,
}

/// Both of two that joined the same pool, beside a list.
fn run(pages: usize, steps: &[Step]) {
    let pool = Pool::create(pages * page()).unwrap();
    let both = [joined(&pool), pool];
    let mut held: Vec<(usize, usize, u8)> = Vec::new();
    let first = both[0].layout.data;
    for (count, step) in steps.iter().enumerate() {
        let (pool, tag) = (&both[count % 2], u8::try_from(count % 250 + 1).unwrap());
        match *step {
            Step::Alloc(wanted) => {
                let mut taken: Vec<_> = held.iter().map(|&(at, n, _)| (at, at + n)).collect();
                taken.sort_unstable();
                let mut from = 0;
                let holes = taken
                    .iter()
                    .copied()
                    .chain([(pages, pages)])
                    .map(|(start, end)| {
                        let hole = start - from;
                        from = end;
                        hole
                    });
                let hole = holes.max().unwrap() * page();
                let bytes_asked = wanted * page();
                match pool.alloc(bytes_asked) {
                    Err(error) => {
                        let largest = Some(hole);
                        assert_eq!(
                            error,
                            Error::NoRoom {
                                bytes: bytes_asked,
                                largest
                            }
                        );
                        assert!(hole < bytes_asked);
                    }
                    Ok(part) => {
                        let at =
                            (usize::try_from(pool.offset(part).unwrap()).unwrap() - first) / page();
                        assert!(at + wanted <= pages);
                        assert!(
                            taken
                                .iter()
                                .all(|&(low, high)| at + wanted <= low || high <= at)
                        );
                        bytes(part, bytes_asked)
                            .iter_mut()
                            .step_by(page())
                            .for_each(|b| *b = tag);
                        held.push((at, wanted, tag));
                    }
                }
            }
            Step::Free(which) if !held.is_empty() => {
                let (at, n, tag) = held.swap_remove(which % held.len());
                let part = pool.at((first + at * page()) as u64, n * page()).unwrap();
                assert!(
                    bytes(part, n * page())
                        .iter()
                        .step_by(page())
                        .all(|&b| b == tag)
                );
                free(pool, part, n * page()).unwrap();
                assert!(free(pool, part, n * page()).is_err());
            }
            Step::Free(_) => {}
            Step::Trim => {
                let used: usize = held.iter().map(|held| held.1).sum();
                assert_eq!(pool.trim(), Ok(((pages - used) * page()) as u64));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_calls_do_what_a_list_says(
        pages in 1_usize..300,
        steps in prop::collection::vec(prop_oneof![
            6 => prop_oneof![4 => 1_usize..8, 2 => 1_usize..100, 1 => 60_usize..200].prop_map(Step::Alloc),
            5 => any::<usize>().prop_map(Step::Free),
            1 => Just(Step::Trim),
        ], 1..200),
    ) {
        run(pages, &steps);
    }
}

/// Any bytes in the tables: an error or a part, and never a place beyond the mapping.
#[test]
fn any_bytes_in_the_tables_do_no_harm() {
    let mut seed = 1_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..200 {
        let pool = Pool::create(130 * page()).unwrap();
        let parts: Vec<_> = (0..10)
            .map(|n| pool.alloc((n + 1) * page()).unwrap())
            .collect();
        for _ in 0..20 {
            let mark = &pool.marks()[random() as usize % 130];
            mark.store((random() >> (random() % 64)) as u32, Ordering::Relaxed);
            pool.bits()[random() as usize % 3].store(random(), Ordering::Relaxed);
        }
        for (n, part) in parts.iter().enumerate() {
            let _ = free(&pool, *part, (n + 1) * page());
        }
        for _ in 0..50 {
            let pages = random() as usize % 140 + 1;
            if let Ok(part) = pool.alloc(pages * page()) {
                bytes(part, pages * page())
                    .iter_mut()
                    .step_by(page())
                    .for_each(|b| *b = 1);
                let _ = free(&pool, part, pages * page());
            }
        }
        pool.trim().unwrap();
    }
}

/// Two processes and two threads in each take, write, look and free.
#[test]
fn processes_share_a_pool() {
    let pool = Pool::create(256 * page()).unwrap();
    let work = |pool: &Pool, tag: u8| {
        let mut held = Vec::new();
        for round in 0..3_000_usize {
            let len = (1 + (round * 31 + usize::from(tag) * 7) % 20) * page();
            if let Ok(part) = pool.alloc(len) {
                bytes(part, len)
                    .iter_mut()
                    .step_by(512)
                    .for_each(|b| *b = tag);
                held.push((part, len));
            }
            if held.len() > 5 || round % 3 == 0 && !held.is_empty() {
                let (part, len) = held.swap_remove(round % held.len());
                assert!(bytes(part, len).iter().step_by(512).all(|&b| b == tag));
                free(pool, part, len).unwrap();
            }
        }
        for (part, len) in held {
            free(pool, part, len).unwrap();
        }
    };
    let both = |pool: &Pool, first: u8| {
        std::thread::scope(|scope| {
            scope.spawn(|| work(pool, first));
            work(pool, first + 1);
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            forks::in_child(|| {
                let theirs = joined(&pool);
                both(&theirs, 10);
            });
        });
        both(&pool, 20);
    });
    // Nothing is lost.
    let all = pool.alloc(256 * page()).unwrap();
    free(&pool, all, 256 * page()).unwrap();
}
