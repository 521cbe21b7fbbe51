//! The library in real processes: this test again, with the library preloaded, as a guest that does one thing.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
#[path = "guests/filter.rs"]
mod filter;
#[path = "common/guests.rs"]
mod guests;
#[path = "guests/places.rs"]
mod places;
#[path = "fuzz/sides.rs"]
mod sides;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[path = "guests/stack.rs"]
mod stack;

use std::ffi::{c_int, c_void};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use stopgap_testing::{Skip, skip};

use guests::{CASE, LIBRARY, guest_of, number, run, shown, status_kib, text};

const PAGE: usize = 4096;

/// This test as a guest of `case`, with freed maps kept (`--fix arena-keep`).
fn keeping(case: &str) -> Command {
    let mut guest = guest_of(case);
    guest.env("STOPGAP_KEEP", "32M");
    guest
}

fn map(length: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a map without an address touches nothing that is there.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, 3, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    at as usize
}

fn unmap(at: usize, length: usize) -> c_int {
    // SAFETY: the tests unmap their own maps.
    unsafe { libc::munmap(at as *mut c_void, length) }
}

fn fill(at: usize, length: usize) {
    // SAFETY: mapped by the test.
    unsafe { std::ptr::write_bytes(at as *mut u8, 0xaa, length) };
}

fn is_zero(at: usize, length: usize) -> bool {
    // SAFETY: mapped by the test, written by nobody else meanwhile.
    unsafe { std::slice::from_raw_parts(at as *const u8, length) }
        .iter()
        .all(|byte| *byte == 0)
}

fn rss_kib() -> u64 {
    status_kib("VmRSS:")
}

#[test]
fn guest() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    match case.as_str() {
        "reuse" => {
            let at = map(16 * PAGE);
            assert_eq!(shown(at).as_deref(), Some("rw-p"));
            fill(at, 16 * PAGE);
            assert_eq!(unmap(at, 16 * PAGE), 0);
            assert_eq!(shown(at).as_deref(), Some("---p"));
            let again = map(16 * PAGE);
            assert_eq!(again, at, "the pages that were kept");
            assert!(is_zero(again, 16 * PAGE));
            // Twice is no error, as with the kernel.
            assert_eq!((unmap(again, 16 * PAGE), unmap(again, 16 * PAGE)), (0, 0));
        }
        "given-back" => {
            let before = rss_kib();
            let maps: Vec<usize> = (0..32).map(|_| map(8 << 20)).collect();
            maps.iter().for_each(|at| fill(*at, 8 << 20));
            assert!(rss_kib() > before + (250 << 10));
            maps.iter()
                .for_each(|at| assert_eq!(unmap(*at, 8 << 20), 0));
            let kept = rss_kib().saturating_sub(before);
            assert!(
                kept < (32 << 10) + (12 << 10),
                "{kept} KiB are resident yet"
            );
        }
        "churn" => {
            for round in 0..200 {
                let at = map(64 * PAGE);
                assert!(is_zero(at, PAGE), "round {round}");
                fill(at, 64 * PAGE);
                assert_eq!(unmap(at, 64 * PAGE), 0);
            }
        }
        "untouched" => {
            for _ in 0..1_000 {
                let at = map(3 * PAGE);
                assert_eq!(unmap(at, 3 * PAGE), 0);
            }
        }
        "changed" => {
            for _ in 0..1_000 {
                let at = map(3 * PAGE);
                fill(at, 3 * PAGE);
                protect(at + PAGE, PAGE, libc::PROT_READ);
                assert_eq!(unmap(at, 3 * PAGE), 0);
            }
        }
        "raw-forks" => {
            let going = AtomicBool::new(true);
            std::thread::scope(|scope| {
                for pages in [3, 5] {
                    let going = &going;
                    scope.spawn(move || {
                        while going.load(Ordering::Relaxed) {
                            let at = map(pages * PAGE);
                            fill(at, pages * PAGE);
                            assert_eq!(unmap(at, pages * PAGE), 0);
                        }
                    });
                }
                for _ in 0..300 {
                    in_a_child(by_the_kernel, || {
                        for pages in [3, 5, 7, 3, 5, 7] {
                            let at = map(pages * PAGE);
                            let zero = is_zero(at, pages * PAGE);
                            fill(at, pages * PAGE);
                            if !zero || unmap(at, pages * PAGE) != 0 {
                                // SAFETY: nothing of the parent's is run.
                                unsafe { libc::_exit(2) };
                            }
                        }
                    });
                }
                going.store(false, Ordering::Relaxed);
            });
        }
        "limit-later" => {
            let at = map(16 * PAGE);
            fill(at, 16 * PAGE);
            assert_eq!(unmap(at, 16 * PAGE), 0);
            assert_eq!(shown(at).as_deref(), Some("---p"), "it is kept");
            let limit = libc::rlimit {
                rlim_cur: 4 << 30,
                rlim_max: 4 << 30,
            };
            // SAFETY: only the limit of this process changes.
            let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
            assert_eq!((set, shown(at)), (0, None), "what is kept counts");
            let other = map(16 * PAGE);
            fill(other, 16 * PAGE);
            assert_eq!((unmap(other, 16 * PAGE), shown(other)), (0, None));
        }
        "unmapped-at-once" => {
            for pages in [1, 16, 2048] {
                let at = map(pages * PAGE);
                assert_eq!(shown(at).as_deref(), Some("rw-p"));
                fill(at, pages * PAGE);
                assert_eq!((unmap(at, pages * PAGE), shown(at)), (0, None));
                let again = map(pages * PAGE);
                assert_eq!(again, at, "the same place");
                assert!(is_zero(again, pages * PAGE));
                // Twice is no error, as with the kernel.
                assert_eq!((unmap(again, pages * PAGE), unmap(again, PAGE)), (0, 0));
            }
        }
        "parts" => {
            // What is left of a map keeps its contents while its parts and their places come and go.
            let at = map(16 * PAGE);
            fill(at, 16 * PAGE);
            assert_eq!(unmap(at + 4 * PAGE, 4 * PAGE), 0);
            let others: Vec<usize> = (0..64).map(|_| map(4 * PAGE)).collect();
            assert!(others.iter().all(|other| is_zero(*other, 4 * PAGE)));
            for left in [at, at + 8 * PAGE] {
                // SAFETY: still mapped.
                let part = unsafe { std::slice::from_raw_parts(left as *const u8, 4 * PAGE) };
                assert!(part.iter().all(|byte| *byte == 0xaa));
            }
            others
                .iter()
                .for_each(|at| assert_eq!(unmap(*at, 4 * PAGE), 0));
            assert_eq!((unmap(at, 16 * PAGE), shown(at)), (0, None));
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        "stack" => println!("{}", stack::deepest()),
        "fork" => {
            let at = map(16 * PAGE);
            fill(at, 16 * PAGE);
            assert_eq!(unmap(at, 16 * PAGE), 0);
            // SAFETY: the child maps, looks and ends.
            let child = unsafe { libc::fork() };
            let mine = map(16 * PAGE);
            let zero = is_zero(mine, 16 * PAGE);
            fill(mine, 16 * PAGE);
            if child == 0 {
                // SAFETY: nothing of the parent's is run.
                unsafe { libc::_exit(i32::from(!zero)) };
            }
            let mut status = 1;
            // SAFETY: `status` is ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert!(zero && status == 0, "{zero} {status}");
            // posix_spawn: a child in the same address space until its exec.
            for _ in 0..20 {
                assert!(Command::new("true").status().unwrap().success());
            }
        }
        "places-of-parts" => places::parts(),
        "places-moved" => places::moved(),
        "places-taken" => places::taken(),
        "places-full" => places::full(),
        "places-limits" => places::limits(),
        "places-locked" => places::locked(),
        "jump" => jumped_out(),
        #[cfg(target_arch = "x86_64")]
        "noreplace-is-a-hint" => a_hint(),
        "beside-kept" => moved_beside_what_was_kept(),
        "dies-of-what-it-writes" => {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: no handler is set, and nothing else is changed but a limit.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const none), 0);
            }
            assert_eq!(unmap(map(PAGE), PAGE), 0);
        }
        other => panic!("{other}"),
    }
}

/// No handler of libc's runs, and its locks stay as other threads have them.
fn by_the_kernel() -> c_int {
    const NONE: usize = 0;
    // SAFETY: see `in_a_child`.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, NONE, NONE, NONE, NONE) };
    c_int::try_from(pid).unwrap()
}

/// Works in a child, which must end well.
fn in_a_child(fork: fn() -> c_int, work: impl Fn()) {
    let child = fork();
    assert!(child >= 0);
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&work));
        // SAFETY: nothing of the parent's is run.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 1;
    // SAFETY: `status` is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// Pages of maps that lie side by side.
const SIDE_BY_SIDE: [usize; 7] = [6, 3, 5, 4, 5, 3, 6];

/// Where they lie. The one in the middle has a page without access, so that what is touched before it and behind it is
/// touched apart: the kernel never joins the two.
fn side_by_side() -> [usize; 7] {
    let mut all = Vec::new();
    for _ in 0..8 {
        all.extend(SIDE_BY_SIDE.map(|pages| (map(pages * PAGE), pages)));
    }
    let found = all.windows(7).find_map(|seven| {
        let mut seven: [(usize, usize); 7] = seven.try_into().ok()?;
        if seven[0].0 > seven[1].0 {
            seven.reverse();
        }
        let close = |two: &[(usize, usize)]| two[0].0 + two[0].1 * PAGE == two[1].0;
        let right = seven.windows(2).all(close) && seven.map(|(_, pages)| pages) == SIDE_BY_SIDE;
        right.then(|| seven.map(|(at, _)| at))
    });
    let seven = found.expect("maps side by side");
    protect(seven[3] + PAGE, PAGE, 0);
    seven
}

/// A map at the only place of its size that was made free; others may fill what is free elsewhere.
fn map_at(place: usize, pages: usize) {
    let found = (0..1_000).any(|_| map(pages * PAGE) == place);
    assert!(found, "{place:x} is not given out again");
}

fn protect(at: usize, length: usize, protection: c_int) {
    // SAFETY: of a map of this test, which does not look at it while it may not.
    let done = unsafe { libc::mprotect(at as *mut c_void, length, protection) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// A map that nobody touched, with maps beside it that come and go, can be moved: to the kernel it is one.
fn grows(at: usize, pages: usize) {
    let (old, new) = (pages * PAGE, (pages + 8) * PAGE);
    // SAFETY: of a map of this test.
    let to = unsafe { libc::mremap(at as *mut c_void, old, new, libc::MREMAP_MAYMOVE) };
    assert_ne!(to, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    assert!(is_zero(to as usize, new));
    assert_eq!(unmap(to as usize, new), 0);
}

/// Two that are kept on either side of a map come back while a part of it has no access: the kernel joins each with the
/// end of the map that it lies at, and never these two with each other.
fn moved_beside_what_was_kept() {
    let [_, far_before, before, middle, behind, far_behind, _] = side_by_side();
    fill(before, 5 * PAGE);
    fill(behind, 5 * PAGE);
    for (at, pages) in [
        (far_before, 3),
        (far_behind, 3),
        (middle, 4),
        (before, 5),
        (behind, 5),
    ] {
        assert_eq!(unmap(at, pages * PAGE), 0);
    }
    map_at(middle, 4);
    protect(middle + PAGE, PAGE, 0);
    let found = (0..1_000).filter(|_| [before, behind].contains(&map(5 * PAGE)));
    assert_eq!(found.take(2).count(), 2);
    protect(middle + PAGE, PAGE, 3);
    grows(middle, 4);
}

/// As before Linux 4.17: `MAP_FIXED_NOREPLACE` is a flag that nobody knows, and its address a hint.
#[cfg(target_arch = "x86_64")]
fn a_hint() {
    extern "C" fn without_the_flag(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel's context of a call that was not made; it is made here, and errno put back.
        unsafe {
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            let [rdi, rsi, rdx, r10, r8, r9] = [
                libc::REG_RDI,
                libc::REG_RSI,
                libc::REG_RDX,
                libc::REG_R10,
                libc::REG_R8,
                libc::REG_R9,
            ]
            .map(|register| registers[register as usize]);
            let flags = r10 & !i64::from(libc::MAP_FIXED_NOREPLACE);
            let errno = *libc::__errno_location();
            let mapped = libc::syscall(libc::SYS_mmap, rdi, rsi, rdx, flags, r8, r9);
            let answer = match mapped {
                -1 => -i64::from(*libc::__errno_location()),
                at => at,
            };
            registers[libc::REG_RAX as usize] = answer;
            *libc::__errno_location() = errno;
        }
    }
    let at = map(4 * PAGE);
    fill(at, 4 * PAGE);
    let flag = libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the handler makes the call that it interrupts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = without_the_flag as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        let set = libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut());
        assert_eq!(set, 0);
    }
    filter::filter(
        libc::SYS_mmap,
        3,
        libc::BPF_JSET,
        flag as u32,
        libc::SECCOMP_RET_TRAP,
    )
    .unwrap();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flag;
    let noreplace = || {
        // SAFETY: where something is, the map goes elsewhere.
        let to = unsafe { libc::mmap(at as *mut c_void, 4 * PAGE, 3, flags, -1, 0) };
        assert_ne!(to, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        to as usize
    };
    let other = noreplace();
    assert_ne!(other, at);
    // SAFETY: mapped and filled above.
    let all = unsafe { std::slice::from_raw_parts(at as *const u8, 4 * PAGE) };
    assert!(all.iter().all(|byte| *byte == 0xaa));
    assert!(is_zero(other, 4 * PAGE));
    assert_eq!((unmap(other, 4 * PAGE), unmap(at, 4 * PAGE)), (0, 0));
    // The place is free again.
    let at_again = noreplace();
    assert_eq!(at_again, at);
    assert!(is_zero(at, 4 * PAGE));
}

/// A thread ends at a random place inside a call, again and again. Threads that come
/// after it must get maps, and zeroed ones.
fn jumped_out() {
    extern "C" fn churn(_: *mut c_void) -> *mut c_void {
        loop {
            let at = map(8 * PAGE);
            fill(at, 8 * PAGE);
            unmap(at, 8 * PAGE);
        }
    }
    extern "C" fn end(_: c_int) {
        // SAFETY: the system call ends this thread alone, wherever it is; nothing of it is cleaned up.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    for round in 0..15 {
        // SAFETY: the thread touches its own maps alone; its handle is not used once it is gone.
        unsafe {
            libc::signal(libc::SIGUSR1, end as *const () as libc::sighandler_t);
            let mut thread = std::mem::zeroed();
            let made = libc::pthread_create(
                &raw mut thread,
                std::ptr::null(),
                churn,
                std::ptr::null_mut(),
            );
            assert_eq!(made, 0);
            libc::usleep(1_000 + 300 * round);
            libc::pthread_kill(thread, libc::SIGUSR1);
            libc::usleep(1_000);
        }
        let at = map(8 * PAGE);
        assert!(is_zero(at, 8 * PAGE));
        fill(at, 8 * PAGE);
        assert_eq!(unmap(at, 8 * PAGE), 0);
    }
}

#[test]
fn a_freed_map_cannot_be_touched_and_comes_back_zeroed() {
    let told = run(&mut keeping("reuse"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        number(&told[0], "used_again") >= 1 && number(&told[0], "faults_saved") >= 16,
        "{told:?}"
    );
}

#[test]
fn a_freed_map_is_unmapped_at_once() {
    let told = run(&mut guest_of("unmapped-at-once"));
    assert!(number(&told[0], "placed") >= 6, "{told:?}");
    assert_eq!(number(&told[0], "kept"), 0, "{told:?}");
    run(&mut guest_of("parts"));
    run(&mut keeping("parts"));
}

#[test]
fn a_part_of_a_place_is_free_when_it_is_unmapped() {
    run(guest_of("places-of-parts").env("STOPGAP_WINDOW", "2M"));
}

#[test]
fn a_place_is_free_when_its_map_has_moved() {
    run(guest_of("places-moved").env("STOPGAP_WINDOW", "2M"));
}

#[test]
fn a_map_by_a_direct_call_stays_where_it_is() {
    let told = run(&mut guest_of("places-taken"));
    let missed = places::MOST_MISSED as u64;
    assert_eq!(number(&told[0], "missed"), missed, "{told:?}");
    assert!(number(&told[0], "passed_aside") >= 1, "{told:?}");
}

#[test]
fn a_room_that_is_full_passes_through() {
    let told = run(guest_of("places-full").env("STOPGAP_WINDOW", "2M"));
    assert!(number(&told[0], "passed_no_room") >= 8, "{told:?}");
}

#[test]
fn a_limit_counts_what_the_kernel_counts() {
    run(&mut guest_of("places-limits"));
    run(&mut guest_of("places-locked"));
}

/// Without this the first map on a stack of 16 KiB ended in SIGSEGV, or overwrote what lay below the stack.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn no_call_takes_more_than_2_kib_of_stack() {
    for keep in ["0", "32M"] {
        let output = guest_of("stack")
            .env("STOPGAP_KEEP", keep)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = text(&output.stdout);
        let deepest = text
            .lines()
            .find_map(|line| line.strip_prefix("deepest ")?.parse().ok());
        let deepest: usize = deepest.unwrap_or_else(|| panic!("{text}"));
        // A call that took nothing was not measured.
        assert!((64..=2048).contains(&deepest), "{keep}: {text}");
    }
}

#[test]
fn untouched_and_changed_maps_are_not_kept() {
    for case in ["untouched", "changed"] {
        let told = run(&mut keeping(case));
        // The harness's own maps may be.
        assert!(number(&told[0], "kept") < 10, "{case}: {told:?}");
        assert!(number(&told[0], "unmapped") >= 1_000, "{case}: {told:?}");
    }
    let told = run(&mut keeping("churn"));
    assert!(number(&told[0], "faults_saved") >= 199 * 64, "{told:?}");
}

#[test]
fn under_a_limit_of_the_address_space_nothing_is_kept() {
    let mut command = keeping("churn");
    // SAFETY: setrlimit may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 4 << 30,
                rlim_max: 4 << 30,
            };
            libc::setrlimit(libc::RLIMIT_AS, &raw const limit);
            Ok(())
        });
    }
    let told = run(&mut command);
    assert_eq!(number(&told[0], "kept"), 0, "{told:?}");
    assert!(number(&told[0], "placed") >= 200, "{told:?}");
    run(&mut keeping("limit-later"));
}

#[test]
fn a_room_larger_than_the_address_space_shrinks() {
    for window in ["100000T", "200T", "1", "no number"] {
        let told = run(keeping("reuse").env("STOPGAP_WINDOW", window));
        assert!(number(&told[0], "used_again") >= 1, "{window}: {told:?}");
    }
}

#[test]
fn a_map_stays_one_map_whatever_was_kept_beside_it() {
    run(&mut keeping("beside-kept"));
}

#[test]
fn what_is_kept_is_bounded() {
    let told = run(&mut keeping("given-back"));
    assert!(number(&told[0], "evicted") >= 28, "{told:?}");
}

#[test]
fn a_child_of_a_bare_fork_is_served_whoever_was_in_the_midst_of_what() {
    run(&mut keeping("raw-forks"));
}

#[test]
fn a_forked_child_gets_zeroed_maps_and_serves_its_own() {
    run(&mut keeping("fork"));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn an_old_kernel_that_takes_noreplace_for_a_hint_loses_no_map() {
    run(&mut keeping("noreplace-is-a-hint"));
}

#[test]
fn a_thread_that_vanishes_stops_nobody() {
    run(&mut keeping("jump"));
}

#[test]
fn twice_preloaded_is_preloaded_once() {
    let folder = std::env::temp_dir().join(format!("stopgap-twice-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let copy = folder.join("copy.so");
    std::fs::copy(&*LIBRARY, &copy).unwrap();
    let own = LIBRARY.display();
    for both in [format!("{own}:{own}"), format!("{own}:{}", copy.display())] {
        let told = run(keeping("reuse").env("LD_PRELOAD", both));
        assert_eq!(told.len(), 1, "{told:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What it stands in for, and nothing else: a symbol more would take another library's place.
/// A library more costs each exec of a dynamic program what ours does (`benches/costs.rs`).
#[test]
fn nothing_but_libc_is_loaded_with_it() {
    let tool = |name: &str, argument: &str| {
        let mut command = Command::new(name);
        command.arg(argument);
        if name == "objdump" {
            command.arg(&*LIBRARY);
        }
        let output = command.output().ok()?;
        output.status.success().then(|| text(&output.stdout))
    };
    let unwinder = tool("cc", "-print-file-name=libgcc_eh.a");
    if !unwinder.is_some_and(|path| path.starts_with('/')) {
        return skip(&Skip::program("libgcc_eh.a"));
    }
    let Some(headers) = tool("objdump", "-p") else {
        return skip(&Skip::program("objdump"));
    };
    let needed = headers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"))
        .map(str::trim);
    let others =
        needed.filter(|name| !name.starts_with("libc.so") && !name.starts_with("ld-linux"));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn what_is_no_setting_is_said_in_the_report() {
    let told = run(guest_of("unmapped-at-once")
        .env("STOPGAP_KEEP", "-1")
        .env("STOPGAP_WINDOW", "abc"));
    assert!(
        told[0].ends_with(" ignored=STOPGAP_WINDOW,STOPGAP_KEEP"),
        "{told:?}"
    );
    let told = run(guest_of("unmapped-at-once").env("STOPGAP_KEEP", ""));
    assert!(!told[0].contains("ignored"), "{told:?}");
    let output = guest_of("unmapped-at-once")
        .env("STOPGAP_REPORT", "/proc/self/no/such")
        .output()
        .unwrap();
    assert!(output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("STOPGAP_REPORT cannot be opened"), "{said}");
}

/// The program wrote nothing, so it has nothing to die of.
#[test]
fn a_report_that_cannot_be_written_ends_nobody() {
    let (nobody, pipe) = std::io::pipe().unwrap();
    drop(nobody);
    let mut command = guest_of("dies-of-what-it-writes");
    let status = command.stdout(Stdio::null()).stderr(pipe).status().unwrap();
    assert!(status.success(), "SIGPIPE: {status}");
    let file = std::env::temp_dir().join(format!("stopgap-report-{}", std::process::id()));
    let mut command = guest_of("dies-of-what-it-writes");
    command.env("STOPGAP_REPORT", &file);
    let status = command.stdout(Stdio::null()).status().unwrap();
    let told = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(status.success(), "SIGXFSZ: {status}");
    assert_eq!(text(&told), "");
}

#[test]
fn only_what_is_interposed_is_exported() {
    let listed = match Command::new("objdump").arg("-T").arg(&*LIBRARY).output() {
        Ok(listed) if listed.status.success() => text(&listed.stdout),
        _ => return skip(&Skip::program("objdump")),
    };
    let mut names: Vec<&str> = listed
        .lines()
        .filter(|line| line.contains(".text") || line.contains(".data") || line.contains(".bss"))
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    names.sort_unstable();
    let all = [
        "madvise",
        "mlock",
        "mlock2",
        "mlockall",
        "mmap",
        "mmap64",
        "mprotect",
        "mremap",
        "munmap",
        "pkey_mprotect",
        "prlimit",
        "prlimit64",
        "setrlimit",
        "setrlimit64",
    ];
    assert_eq!(names, all);
}

#[test]
fn a_program_that_gains_rights_runs_without_it() {
    use std::os::unix::fs::{PermissionsExt, chown};
    // SAFETY: it only reads.
    if unsafe { libc::getuid() } != 0 {
        return skip(&Skip::root("a set-user-ID program"));
    }
    let folder = std::env::temp_dir().join(format!("stopgap-setuid-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("env");
    // By a child: a program that was open for writing when another test's child was forked is not executed (ETXTBSY).
    let copied = Command::new("cp")
        .arg("/usr/bin/env")
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    chown(&program, Some(65_534), None).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let maps = |program: &Path| {
        let output = Command::new(program)
            .args(["cat", "/proc/self/maps"])
            .env("LD_PRELOAD", &*LIBRARY)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).contains("libstopgap_preload")
    };
    assert!(maps(Path::new("/usr/bin/env")));
    assert!(
        !maps(&program),
        "the linker takes the variable from a program that gains rights, and from its children"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
