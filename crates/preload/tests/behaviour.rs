//! The library in real processes: this test again, with the library preloaded, as a guest that does one thing.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
#[path = "guests/filter.rs"]
mod filter;
#[path = "common/guests.rs"]
mod guests;
#[path = "guests/places.rs"]
mod places;
#[path = "common/raw.rs"]
mod raw;
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

use guests::{CASE, LIBRARY, guest_of, number, run, shown, text};
use raw::{Map, PAGE, status_kib};

/// This test as a guest of `case`, with freed maps kept (`--fix arena-keep`).
fn keeping(case: &str) -> Command {
    let mut guest = guest_of(case);
    guest.env("STOPGAP_KEEP", "32M");
    guest
}

/// Limits the address space to 4 GiB.
fn limit_addresses() -> c_int {
    let limit = libc::rlimit {
        rlim_cur: 4 << 30,
        rlim_max: 4 << 30,
    };
    // SAFETY: only the limit of this process changes.
    unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }
}

/// Maps, writes, changes what is asked for and unmaps, again and again.
fn rounds(count: usize, pages: usize, change: impl Fn(Map)) {
    for round in 0..count {
        let map = Map::new(pages);
        assert!(map.part(0, 1).all(0), "round {round}");
        change(map);
        map.unmap();
    }
}

/// The same map again, zeroed. Unmapping it twice is no error, as with the kernel.
fn comes_back(map: Map) {
    let again = Map::new(map.length / PAGE);
    assert_eq!(again.at, map.at, "the same place");
    assert!(again.all(0));
    again.unmap();
    again.unmap();
}

#[test]
fn guest() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    match case.as_str() {
        "reuse" => {
            let map = Map::new(16);
            assert_eq!(shown(map.at).as_deref(), Some("rw-p"));
            map.fill(0xaa);
            map.unmap();
            assert_eq!(shown(map.at).as_deref(), Some("---p"));
            comes_back(map);
        }
        "unmapped-at-once" => {
            for pages in [1, 16, 2048] {
                let map = Map::new(pages);
                assert_eq!(shown(map.at).as_deref(), Some("rw-p"));
                map.fill(0xaa);
                map.unmap();
                assert_eq!(shown(map.at), None);
                comes_back(map);
            }
        }
        "given-back" => {
            let rss_kib = || status_kib("VmRSS");
            let before = rss_kib();
            let maps = [(); 32].map(|()| Map::filled(2048, 0xaa));
            assert!(rss_kib() > before + (250 << 10));
            maps.iter().for_each(|map| map.unmap());
            let kept = rss_kib().saturating_sub(before);
            assert!(kept < (32 + 12) << 10, "{kept} KiB are resident yet");
        }
        "churn" => rounds(200, 64, |map| map.fill(0xaa)),
        "untouched" => rounds(1_000, 3, |_| ()),
        "changed" => rounds(1_000, 3, |map| {
            map.fill(0xaa);
            protect(map.part(1, 1), libc::PROT_READ);
        }),
        "raw-forks" => {
            let going = AtomicBool::new(true);
            std::thread::scope(|scope| {
                for pages in [3, 5] {
                    let going = &going;
                    scope.spawn(move || {
                        while going.load(Ordering::Relaxed) {
                            Map::filled(pages, 0xaa).unmap();
                        }
                    });
                }
                for _ in 0..300 {
                    in_a_child_by_the_kernel(|| {
                        for pages in [3, 5, 7, 3, 5, 7] {
                            let map = Map::new(pages);
                            let zero = map.all(0);
                            map.fill(0xaa);
                            if !zero || map.try_unmap().is_err() {
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
            let map = Map::filled(16, 0xaa);
            map.unmap();
            assert_eq!(shown(map.at).as_deref(), Some("---p"), "it is kept");
            let set = limit_addresses();
            assert_eq!((set, shown(map.at)), (0, None), "what is kept counts");
            let other = Map::filled(16, 0xaa);
            other.unmap();
            assert_eq!(shown(other.at), None);
        }
        "parts" => {
            // What is left of a map keeps its contents while its parts and their places come and go.
            let map = Map::filled(16, 0xaa);
            map.part(4, 4).unmap();
            let others = [(); 64].map(|()| Map::new(4));
            assert!(others.iter().all(|other| other.all(0)));
            assert!(map.part(0, 4).all(0xaa) && map.part(8, 8).all(0xaa));
            others.iter().for_each(|other| other.unmap());
            map.unmap();
            assert_eq!(shown(map.at), None);
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        "stack" => println!("{}", stack::deepest()),
        "fork" => {
            Map::filled(16, 0xaa).unmap();
            let status = raw::in_a_child(|| {
                let mine = Map::new(16);
                let zero = mine.all(0);
                mine.fill(0xaa);
                u8::from(!zero)
            });
            assert!(status == 0 && Map::new(16).all(0), "{status}");
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
            Map::new(1).unmap();
        }
        other => panic!("{other}"),
    }
}

/// Works in a child, which must end well. No handler of libc's runs, and its locks stay as other threads have them.
fn in_a_child_by_the_kernel(work: impl Fn()) {
    const NONE: usize = 0;
    // SAFETY: the child works and ends.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, NONE, NONE, NONE, NONE) };
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&work));
        // SAFETY: nothing of the parent's is run.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    assert_eq!(raw::status_of(c_int::try_from(child).unwrap()), 0);
}

/// Pages of maps that lie side by side.
const SIDE_BY_SIDE: [usize; 7] = [6, 3, 5, 4, 5, 3, 6];

/// Where they lie. The one in the middle has a page without access, so that what is touched before it and behind it is
/// touched apart: the kernel never joins the two.
fn side_by_side() -> [Map; 7] {
    let mut all = Vec::new();
    for _ in 0..8 {
        all.extend(SIDE_BY_SIDE.map(Map::new));
    }
    let found = all.windows(7).find_map(|seven| {
        let mut seven: [Map; 7] = seven.try_into().ok()?;
        if seven[0].at > seven[1].at {
            seven.reverse();
        }
        let close = |two: &[Map]| two[0].at + two[0].length == two[1].at;
        let pages = seven.map(|map| map.length / PAGE);
        (seven.windows(2).all(close) && pages == SIDE_BY_SIDE).then_some(seven)
    });
    let seven = found.expect("maps side by side");
    protect(seven[3].part(1, 1), 0);
    seven
}

fn protect(map: Map, protection: c_int) {
    // SAFETY: of a map of this test, which does not look at it while it may not.
    let done = unsafe { libc::mprotect(map.at as *mut c_void, map.length, protection) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Two that are kept on either side of a map come back while a part of it has no access: the kernel joins each with the
/// end of the map that it lies at, and never these two with each other. A map that nobody touched, with maps beside it
/// that come and go, can be moved: to the kernel it is one.
fn moved_beside_what_was_kept() {
    let [_, far_before, before, middle, behind, far_behind, _] = side_by_side();
    before.fill(0xaa);
    behind.fill(0xaa);
    for map in [far_before, far_behind, middle, before, behind] {
        map.unmap();
    }
    // The only place of its size that was made free; others may fill what is free elsewhere.
    assert!((0..1_000).any(|_| Map::new(4).at == middle.at));
    protect(middle.part(1, 1), 0);
    let found = (0..1_000).filter(|_| [before.at, behind.at].contains(&Map::new(5).at));
    assert_eq!(found.take(2).count(), 2);
    protect(middle.part(1, 1), 3);
    let (at, length) = (middle.at as *mut c_void, 12 * PAGE);
    // SAFETY: of a map of this test.
    let to = unsafe { libc::mremap(at, middle.length, length, libc::MREMAP_MAYMOVE) };
    assert_ne!(to, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    let moved = Map {
        at: to as usize,
        length,
    };
    assert!(moved.all(0));
    moved.unmap();
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
    let map = Map::filled(4, 0xaa);
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
        let to = unsafe { libc::mmap(map.at as *mut c_void, map.length, 3, flags, -1, 0) };
        assert_ne!(to, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Map {
            at: to as usize,
            ..map
        }
    };
    let other = noreplace();
    assert_ne!(other.at, map.at);
    assert!(map.all(0xaa) && other.all(0));
    other.unmap();
    map.unmap();
    // The place is free again.
    let again = noreplace();
    assert!(again.at == map.at && again.all(0));
}

/// A thread ends at a random place inside a call, again and again. Threads that come
/// after it must get maps, and zeroed ones.
fn jumped_out() {
    extern "C" fn churn(_: *mut c_void) -> *mut c_void {
        loop {
            Map::filled(8, 0xaa).unmap();
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
        rounds(1, 8, |map| {
            assert!(map.all(0));
            map.fill(0xaa);
        });
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
            limit_addresses();
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
