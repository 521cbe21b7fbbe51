use std::time::Duration;

use stopgap_testing::{Skip, skip};

use super::*;

pub(crate) mod forks;
mod injected;
mod oracle;
mod signals;
mod threads;

pub(super) fn arena(window: usize) -> Arena {
    with(window, |_| ())
}

/// An arena whose configuration is the default one but for the window and what `change` changes.
pub(super) fn with(window: usize, change: impl FnOnce(&mut Config)) -> Arena {
    let mut config = Config {
        window,
        ..Config::default()
    };
    change(&mut config);
    made(config)
}

pub(super) fn made(config: Config) -> Arena {
    Arena::new(&config).unwrap()
}

pub(super) fn free(arena: &Arena, address: NonNull<u8>, len: usize) -> Result<()> {
    // SAFETY: tests use nothing after they freed it.
    unsafe { arena.free(address, len) }
}

pub(super) fn bytes<'a>(address: NonNull<u8>, len: usize) -> &'a mut [u8] {
    // SAFETY: tests ask for what was given out, as long as it was, and once at a time.
    unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), len) }
}

pub(super) fn address(number: usize) -> NonNull<u8> {
    NonNull::new(std::ptr::with_exposed_provenance_mut(number)).unwrap()
}

/// Lines of /proc/self/maps inside a range: start, end, permissions.
pub(super) fn vmas(range: (usize, usize)) -> Vec<(usize, usize, String)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let vma = |line: &str| {
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(start)?, number(end)?, rest.get(..4)?.to_owned()))
    };
    let all = maps.lines().filter_map(vma);
    all.filter(|&(start, end, _)| start < range.0 + range.1 && range.0 < end)
        .collect()
}

/// No hole: every address of the window is mapped, by us.
pub(super) fn assert_whole(arena: &Arena) {
    let (start, length) = arena.window();
    let mut at = start;
    for (from, to, permissions) in vmas((start, length)) {
        assert!(from <= at, "a hole at {at:x}");
        assert_ne!(permissions, "r-xp");
        at = to;
    }
    assert!(at >= start + length, "a hole at {at:x}");
}

pub(super) fn check(arena: &Arena) {
    for shard in &arena.0.shards {
        shard.check().unwrap();
    }
    assert_whole(arena);
}

/// Bytes of a memfd or of anonymous memory that are there.
fn resident(address: NonNull<u8>, len: usize) -> usize {
    let mut there = vec![0_u8; len.div_ceil(page())];
    let at = address.as_ptr().cast();
    // SAFETY: the vector has a byte a page.
    assert_eq!(unsafe { libc::mincore(at, len, there.as_mut_ptr()) }, 0);
    there.iter().filter(|&&byte| byte & 1 == 1).count() * page()
}

/// Arenas of either memory.
fn both(window: usize) -> [(Arena, Backing); 2] {
    both_with(window, |_| ())
}

fn both_with(window: usize, change: impl Fn(&mut Config)) -> [(Arena, Backing); 2] {
    [Backing::Anonymous, Backing::Memfd].map(|backing| {
        let arena = with(window, |config| {
            config.backing = backing;
            change(config);
        });
        (arena, backing)
    })
}

/// Whether each byte is `byte`.
pub(super) fn filled(address: NonNull<u8>, len: usize, byte: u8) -> bool {
    bytes(address, len).iter().all(|&here| here == byte)
}

/// Writes a byte of each page.
fn touch(address: NonNull<u8>, len: usize) {
    bytes(address, len)
        .iter_mut()
        .step_by(page())
        .for_each(|byte| *byte = 1);
}

const HOUR: Duration = Duration::from_secs(3_600);

fn invalid<T>(result: Result<T>) {
    assert_eq!(result.err().map(|error| error.errno()), Some(libc::EINVAL));
}

#[test]
fn what_is_given_out_is_zero_and_comes_back() {
    for (arena, _) in both(1 << 30) {
        for len in [1, 5_000, 64 << 12, 65 << 12, 5 << 20] {
            let first = arena.alloc(len, 1).unwrap();
            let whole = len.next_multiple_of(page());
            assert!(filled(first, whole, 0));
            bytes(first, whole).fill(7);
            free(&arena, first, len).unwrap();
            let again = arena.alloc_uninit(whole, 1).unwrap();
            assert_eq!(first, again);
            assert!(filled(again, whole, 7));
            free(&arena, again, whole).unwrap();
            let zero = arena.alloc(len, 1).unwrap();
            assert_eq!(first, zero);
            assert!(filled(zero, whole, 0));
            free(&arena, zero, len).unwrap();
        }
        check(&arena);
    }
}

#[test]
fn errors_are_exact() {
    for (arena, _) in both(1 << 30) {
        invalid(arena.alloc(0, 1));
        invalid(arena.alloc(1, 0));
        invalid(arena.alloc(1, 24));
        let largest = first_page(arena.0.window.pages, arena.0.shards.len(), 1) * page();
        for bytes in [(1 << 30) + 1, usize::MAX, 1 << 62] {
            let largest = Some(largest);
            assert_eq!(arena.alloc(bytes, 1), Err(Error::NoRoom { bytes, largest }));
        }
        assert!(matches!(arena.alloc(1, 1 << 63), Err(Error::NoRoom { .. })));
        let buffer = arena.alloc(3 << 12, 1).unwrap();
        let number = buffer.addr().get();
        let foreign = |at: usize, len| {
            let address = at;
            assert_eq!(
                free(&arena, self::address(at), len),
                Err(Error::Foreign { address })
            );
        };
        foreign(number + 4_096, 4_096);
        foreign(number + 1, 3 << 12);
        foreign(arena.window().0, 4_096);
        foreign(arena.window().0 - 4_096, 4_096);
        foreign(arena.window().0 + arena.window().1, 4_096);
        foreign(8, 4_096);
        foreign(usize::MAX & !4_095, 4_096);
        let stack = 0_u64;
        foreign((&raw const stack).addr(), 8);
        let absurd = [1 << 30, (1 << 30) + 1, 1 << 62, usize::MAX];
        for len in [0, 1, 2 << 12, (3 << 12) + 1].into_iter().chain(absurd) {
            let refused = free(&arena, buffer, len);
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{len}");
        }
        free(&arena, buffer, (2 << 12) + 1).unwrap();
        let freed = Err(Error::Freed { address: number });
        assert_eq!(free(&arena, buffer, 3 << 12), freed);
        arena.trim().unwrap();
        assert_eq!(free(&arena, buffer, 3 << 12), freed);
        assert_eq!(Error::Freed { address: 1 }.errno(), libc::EINVAL);
        check(&arena);
    }
}

#[test]
fn a_window_that_cannot_be_is_an_error() {
    let new = |window| {
        Arena::new(&Config {
            window,
            ..Config::default()
        })
    };
    invalid(new(0));
    invalid(new(usize::MAX));
    // As many pages as an address space has and more.
    invalid(new(1 << 48));
    new(1).unwrap();
    let large = new(1 << 40).unwrap();
    assert_eq!(large.window().1, 1 << 40);
    let buffer = large.alloc(1, 1).unwrap();
    free(&large, buffer, 1).unwrap();
}

#[test]
fn many_buffers_are_few_vmas() {
    for (arena, _) in both(16 << 30) {
        let all: Vec<_> = (0..20_000).map(|_| arena.alloc(1, 1).unwrap()).collect();
        for at in &all {
            bytes(*at, 1)[0] = 1;
        }
        let count = vmas(arena.window()).len();
        assert!(count <= 2 * arena.0.shards.len(), "{count}");
        for at in all.iter().step_by(2) {
            free(&arena, *at, 1).unwrap();
        }
        arena.trim().unwrap();
        assert_eq!(vmas(arena.window()).len(), count);
        let statistics = arena.statistics();
        assert_eq!(
            (statistics.buffers, statistics.buffer_bytes),
            (10_000, 10_000 << 12)
        );
        assert_eq!((statistics.kept, statistics.strays), (0, 0));
        assert!(statistics.given_back >= 10_000 << 12);
    }
}

#[test]
fn guards_fault_and_cost_no_vma_where_the_kernel_has_them() {
    for (arena, backing) in both_with(1 << 30, |c| c.guard = true) {
        let mut all = Vec::new();
        for round in 0..3 {
            for pages in [1, 2, 70] {
                let len = pages * page();
                let at = arena.alloc(len, 1).unwrap();
                assert!(filled(at, len, 0));
                bytes(at, len).fill(9);
                let after = at.addr().get() + len;
                assert!(faults(after), "{pages} pages, round {round}");
                assert!(faults(after + page() - 1));
                all.push((at, len));
            }
            if round == 1 {
                for (at, len) in all.drain(..) {
                    free(&arena, at, len).unwrap();
                }
                arena.trim().unwrap();
            }
        }
        if arena.0.guard_by_table {
            assert!(vmas(arena.window()).len() <= 2 * arena.0.shards.len());
        } else {
            skip(&Skip::machine(format_args!(
                "guards without a VMA: this kernel has none for {backing:?}"
            )));
        }
        for (at, len) in all {
            free(&arena, at, len).unwrap();
        }
        arena.trim().unwrap();
        // Where guards were there are none: the whole is usable.
        let len = 1 << 28;
        let whole = arena.alloc(len, 1).unwrap();
        for at in (0..len).step_by(page()) {
            // SAFETY: given out.
            unsafe { whole.as_ptr().add(at).write_volatile(1) };
        }
        free(&arena, whole, len).unwrap();
        check(&arena);
    }
}

/// Whether a byte cannot be read: the kernel reads it for us, and says so.
fn faults(at: usize) -> bool {
    let file = rustix::fs::memfd_create("fault", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: the kernel reads a byte, or returns EFAULT.
    let written = unsafe {
        libc::write(
            std::os::fd::AsRawFd::as_raw_fd(&file),
            std::ptr::with_exposed_provenance(at),
            1,
        )
    };
    written == -1
}

/// The page that is a guard now may hold what was left there before, and does after the buffer is given back.
///
/// ```text
///   |         xxxxxxgxxxxxxg|   freed, kept
///   |zzzzzzzzzzzzzgyyyyyyyg|   z is too large to be kept, its guard is an old page
/// ```
#[test]
fn what_a_guard_hides_does_not_come_back() {
    for (mut arena, _) in both_with(212 * page(), |c| (c.guard, c.decay) = (true, HOUR)) {
        let alloc = |arena: &Arena, pages| arena.alloc(pages * page(), 1).unwrap();
        let free = |arena: &Arena, at, pages| free(arena, at, pages * page()).unwrap();
        for at in [(); 2].map(|()| alloc(&arena, 65)) {
            bytes(at, 65 * page()).fill(7);
            free(&arena, at, 65);
        }
        assert_eq!(arena.statistics().kept, (2 * 66) << 12);
        // From here on nothing is kept.
        arena.0.half = 0;
        let (above, large) = (alloc(&arena, 70), alloc(&arena, 140));
        assert_eq!(above.addr().get() - large.addr().get(), 141 * page());
        free(&arena, large, 140);
        free(&arena, above, 70);
        arena.trim().unwrap();
        let zero = alloc(&arena, 211);
        assert!(filled(zero, 211 * page(), 0));
        check(&arena);
    }
}

/// The error names the bytes that were asked for, and of the largest hole, without the guard.
#[test]
fn no_room_names_what_was_asked_for_and_what_there_is() {
    let arena = with(64 * page(), |c| c.guard = true);
    let refused = |pages: usize, largest: usize| {
        let (bytes, largest) = (pages * page(), Some(largest * page()));
        let error = arena.alloc(bytes, 1).unwrap_err();
        assert_eq!(error, Error::NoRoom { bytes, largest });
    };
    refused(64, 63);
    let all: Vec<_> = (0..8)
        .map(|_| arena.alloc(7 * page(), 1).unwrap())
        .collect();
    refused(1, 0);
    for at in [1, 4, 5] {
        free(&arena, all[at], 7 * page()).unwrap();
    }
    refused(16, 15);
    arena.alloc(15 * page(), 1).unwrap();
    refused(8, 7);
    let text = arena.alloc(8 * page(), 1).unwrap_err().to_string();
    assert!(
        text.ends_with("; the largest hole is 28672 bytes"),
        "{text}"
    );
}

#[test]
fn a_memfds_buffers_are_exported() {
    let arena = with(1 << 30, |c| c.backing = Backing::Memfd);
    let at = arena.alloc(8_192, 1).unwrap();
    bytes(at, 8_192)[5_000] = 42;
    let (fd, offset) = arena.export(at).unwrap();
    let mut byte = [0];
    rustix::io::pread(fd, &mut byte, offset + 5_000).unwrap();
    assert_eq!(byte, [42]);
    // Nobody who has it can make it end before the mapping does.
    assert!(rustix::fs::ftruncate(fd, 0).is_err());
    let inside = address(at.addr().get() + page());
    assert!(matches!(arena.export(inside), Err(Error::Foreign { .. })));
    assert!(matches!(
        arena.export(address(16)),
        Err(Error::Foreign { .. })
    ));
    free(&arena, at, 8_192).unwrap();
    assert!(matches!(arena.export(at), Err(Error::Freed { .. })));
    arena.trim().unwrap();
    rustix::io::pread(arena.0.window.file().unwrap(), &mut byte, offset + 5_000).unwrap();
    assert_eq!(byte, [0], "given back");
    let anonymous = self::arena(1 << 20);
    let at = anonymous.alloc(1, 1).unwrap();
    assert!(matches!(
        anonymous.export(at),
        Err(Error::Unsupported { .. })
    ));
}

#[test]
fn a_memfd_larger_than_files_may_be_is_an_error_and_no_signal() {
    forks::in_child(|| {
        let limit = rustix::process::Rlimit {
            current: Some(1 << 20),
            maximum: Some(1 << 20),
        };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        let config = |window| Config {
            window,
            backing: Backing::Memfd,
            ..Config::default()
        };
        let limited = Arena::new(&config(2 << 20)).unwrap_err();
        assert_eq!(
            limited,
            Error::Limit {
                asked: 2 << 20,
                limit: 1 << 20,
                which: "RLIMIT_FSIZE"
            }
        );
        assert_eq!(limited.errno(), libc::ENOMEM);
        let fits = Arena::new(&config(1 << 20)).unwrap();
        bytes(fits.alloc(1 << 20, 1).unwrap(), 1 << 20).fill(1);
    });
}

#[test]
fn an_address_space_that_is_limited_is_an_error() {
    forks::in_child(|| {
        // Beside what the tests that run at the same time have mapped by now.
        let room = 4 << 30;
        let mapped = std::fs::read_to_string("/proc/self/statm").unwrap();
        let mapped: u64 = mapped.split(' ').next().unwrap().parse().unwrap();
        let limit = mapped * page() as u64 + room as u64;
        let limit = rustix::process::Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
        let maps = || {
            std::fs::read_to_string("/proc/self/maps")
                .unwrap()
                .lines()
                .count()
        };
        let before = maps();
        for backing in [Backing::Anonymous, Backing::Memfd] {
            // The second is reserved; then there is no room for its marks.
            for window in [64 << 30, room - (1 << 20)] {
                let refused = Arena::new(&Config {
                    window,
                    backing,
                    ..Config::default()
                });
                let errno = refused.unwrap_err();
                assert!(
                    matches!(errno, Error::Call { call: "mmap", .. }),
                    "{errno:?}"
                );
                assert_eq!(errno.errno(), libc::ENOMEM);
            }
        }
        assert_eq!(maps(), before, "nothing stays mapped");
        let arena = arena(1 << 30);
        let at = arena.alloc(1, 1).unwrap();
        free(&arena, at, 1).unwrap();
    });
}

/// Free memory is never more than what is used, or 64 MiB.
#[test]
fn what_is_kept_is_bounded_and_counted() {
    for (arena, _) in both_with(1 << 30, |c| c.decay = HOUR) {
        let floor = 64 << 20;
        let mut held = Vec::new();
        for round in 0..700_usize {
            let len = (1 + round * 7_919 % 150) * page();
            let at = arena.alloc_uninit(len, 1).unwrap();
            touch(at, len);
            held.push((at, len));
        }
        let used = arena.statistics().buffer_bytes;
        assert!(used > 3 * floor);
        for (number, (at, len)) in held.into_iter().enumerate() {
            free(&arena, at, len).unwrap();
            if number.is_multiple_of(10) {
                let statistics = arena.statistics();
                // A cache's part counts as used, too.
                let most = floor.max(statistics.buffer_bytes) + (2 << 20);
                assert!(statistics.kept <= most, "{statistics:?}");
                assert!(statistics.cached <= 1 << 20);
            }
        }
        let kept = arena.statistics().kept;
        assert!(kept > floor / 2 && kept <= floor + (1 << 20), "{kept}");
        // No more is accessible and resident than is kept.
        let (start, length) = arena.window();
        let there = resident(address(start), length);
        // But for what a huge page has beside it.
        let most = kept + (8 << 20);
        assert!(there as u64 <= most, "{there} there, {kept} kept");
        // Some ranges in caches were never used.
        let given_back = arena.trim().unwrap();
        assert!(
            (kept / 2..=most).contains(&given_back),
            "{given_back} of {kept}, {there} there"
        );
        assert_eq!(resident(address(start), length), 0);
        assert_eq!(arena.statistics().kept, 0);
        check(&arena);
    }
}

/// What is larger than may be kept goes with the free.
#[test]
fn what_is_too_large_to_be_kept_goes_at_once() {
    for (arena, _) in both_with(1 << 30, |c| c.decay = HOUR) {
        let len = (64 << 20) + page();
        let at = arena.alloc(len, 1).unwrap();
        bytes(at, len)[len / 2] = 1;
        free(&arena, at, len).unwrap();
        assert_eq!((arena.statistics().kept, resident(at, len)), (0, 0));
    }
}

#[test]
fn at_once_keeps_nothing() {
    for (arena, _) in both_with(1 << 28, |c| c.decay = Duration::ZERO) {
        for len in [1, 100_000, 1 << 20] {
            let at = arena.alloc(len, 1).unwrap();
            bytes(at, len).fill(1);
            free(&arena, at, len).unwrap();
            assert_eq!(resident(at, len), 0);
            assert_eq!(arena.statistics().kept, 0);
        }
        check(&arena);
    }
}

#[test]
fn what_nobody_needed_for_some_time_goes_and_what_is_used_stays() {
    for (arena, _) in both_with(1 << 28, |c| c.decay = Duration::from_secs(60)) {
        let (len, other) = (68 * page(), 70 * page());
        // The second does not fit where the first one was, and what lies between them stays.
        let [first, _, second] = [len, other, other].map(|len| arena.alloc(len, 1).unwrap());
        touch(first, len);
        touch(second, other);
        let half = arena.0.half;
        let mut now = arena.0.half_ends.load(Ordering::Relaxed);
        let mut decay = |more| {
            now += more;
            arena.0.decay(now).unwrap()
        };
        free(&arena, first, len).unwrap();
        free(&arena, second, other).unwrap();
        // What is free now was not when this half began.
        assert_eq!(decay(0), 0);
        assert_eq!(decay(half - 1), 0);
        let again = arena.alloc_uninit(other, 1).unwrap();
        assert_eq!(again, second);
        free(&arena, again, other).unwrap();
        assert_eq!(decay(1), len / page());
        assert_eq!((resident(first, len), resident(second, other)), (0, other));
        assert_eq!(arena.statistics().kept, other as u64);
        // Nothing was freed for so long.
        assert_eq!(decay(3 * half), 70);
        assert_eq!(arena.statistics().kept, 0);
        check(&arena);
    }
}

/// The depot keeps 16 of 60 ranges, and the cache up to 16 others, of which it gives up 8 at a time. The depot's ranges decay like all
/// others.
#[test]
fn what_a_depot_keeps_is_bounded_and_goes_too() {
    let arena = with(1 << 28, |c| c.decay = Duration::from_secs(60));
    let len = 8 * page();
    let shard =
        &arena.0.shards[crate::arena::threads::inside(|inside| arena.0.own_shard(inside), || 0)];
    let in_depot = || shard.locked(|| false, |ranges| ranges.in_depot()).unwrap();
    let mut now = arena.0.half_ends.load(Ordering::Relaxed);
    let all: Vec<_> = (0..60).map(|_| arena.alloc(len, 1).unwrap()).collect();
    all.iter().for_each(|at| touch(*at, len));
    all.iter().for_each(|at| free(&arena, *at, len).unwrap());
    assert_eq!(in_depot(), 16 * 8);
    let kept = || arena.statistics().kept;
    assert_eq!(kept(), 60 * len as u64);
    // Those of the cache, and 8 of the depot's.
    let again: Vec<_> = (0..20).map(|_| arena.alloc(len, 1).unwrap()).collect();
    assert_eq!(arena.0.decay(now).unwrap(), 0);
    again.iter().for_each(|at| free(&arena, *at, len).unwrap());
    now += arena.0.half;
    // The policy's 32 and the 8 that stayed in the depot.
    assert_eq!(arena.0.decay(now).unwrap(), (32 + 8) * 8);
    assert_eq!((in_depot(), kept()), (8 * 8, 20 * len as u64));
    // And where nobody calls for so long.
    now += 3 * arena.0.half;
    assert_eq!(arena.0.decay(now).unwrap(), 8 * 8);
    assert_eq!((in_depot(), kept()), (0, 12 * len as u64));
    check(&arena);
}

/// By the clock: the calls of a program that goes on, and [`Arena::decay`] of one that stands still.
#[test]
fn time_goes_by() {
    let arena = with(1 << 28, |c| c.decay = Duration::from_millis(60));
    let len = 1 << 20;
    for goes_on in [true, false] {
        let at = arena.alloc(len, 1).unwrap();
        bytes(at, len).fill(1);
        free(&arena, at, len).unwrap();
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(50));
            if goes_on {
                let other = arena.alloc_uninit(70 * page(), 1).unwrap();
                free(&arena, other, 70 * page()).unwrap();
            } else {
                arena.decay().unwrap();
            }
        }
        // The other buffer may lie in its place.
        let most = if goes_on { 70 * page() } else { 0 };
        assert!(resident(at, len) <= most);
    }
}

#[test]
fn all_goes_where_memory_is_short() {
    let arena = with(1 << 28, |c| c.decay = HOUR);
    let len = 1 << 20;
    let at = arena.alloc(len, 1).unwrap();
    bytes(at, len).fill(1);
    free(&arena, at, len).unwrap();
    assert_eq!(arena.decay(), Ok(0));
    match crate::sys::files::stalled() {
        Ok(1..) => {
            // As if no task had ever stood still, and all that did since the last look.
            arena.0.pressure.pretend();
            assert_eq!(arena.decay(), Ok(len as u64));
            assert_eq!(arena.statistics().kept, 0);
        }
        told => skip(&Skip::machine(format_args!("pressure: {told:?}"))),
    }
}

/// ```text
///  rrrrr B ccccc B    c fits as well and is higher, but would fault
/// ```
#[test]
fn a_place_that_is_resident_comes_first() {
    for (arena, _) in both_with(1 << 28, |c| c.decay = HOUR) {
        let (len, small) = (100 * page(), 65 * page());
        let alloc = |len| arena.alloc_uninit(len, 1).unwrap();
        let above = alloc(small);
        let [clean, _between, kept, _below] = [len, small, len, small].map(alloc);
        touch(clean, len);
        free(&arena, clean, len).unwrap();
        assert_eq!(arena.trim(), Ok(len as u64));
        touch(kept, len);
        free(&arena, kept, len).unwrap();
        let given = alloc(len);
        assert_eq!(given, kept);
        assert_eq!(resident(given, len), len);
        // And where nothing is: by the policy alone.
        assert_eq!(alloc(len), clean);
        free(&arena, above, small).unwrap();
        check(&arena);
    }
}

/// What is only in part old is zeroed there, and stays untouched where it is not.
#[test]
fn only_what_is_old_is_zeroed() {
    for (arena, _) in both_with(1 << 28, |c| c.decay = HOUR) {
        let piece = 70 * page();
        let _stays = arena.alloc(1, 1).unwrap();
        let all: Vec<_> = (0..20).map(|_| arena.alloc(piece, 1).unwrap()).collect();
        for at in all.iter().step_by(2) {
            bytes(*at, piece).fill(7);
        }
        for at in all.iter().skip(1).step_by(2) {
            free(&arena, *at, piece).unwrap();
        }
        arena.trim().unwrap();
        for at in all.iter().step_by(2) {
            free(&arena, *at, piece).unwrap();
        }
        // After what does not fit the policy keeps nothing apart.
        arena.alloc(1 << 28, 1).unwrap_err();
        let whole = arena.alloc(20 * piece, 1).unwrap();
        // Ten runs of old contents, of which eight are told apart.
        let there = resident(whole, 20 * piece);
        assert!((9 * piece..=12 * piece).contains(&there), "{there}");
        assert!(filled(whole, 20 * piece, 0));
        free(&arena, whole, 20 * piece).unwrap();
    }
}

#[test]
fn several_arenas_are_apart() {
    let (one, two) = (arena(1 << 28), arena(1 << 28));
    let at = one.alloc(1, 1).unwrap();
    assert!(one.contains(at) && !two.contains(at));
    assert!(matches!(free(&two, at, 1), Err(Error::Foreign { .. })));
    free(&one, at, 1).unwrap();
    drop(one);
    free(&two, two.alloc(1, 1).unwrap(), 1).unwrap();
}
