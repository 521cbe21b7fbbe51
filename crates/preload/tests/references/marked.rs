//! State of VMAs, pages and processes that raw system calls set.

use crate::raw::{
    Count, Errno, Map, NO_FILE, PAGE, PLAIN, READ_WRITE, answer, call, checked, in_a_child, peek,
    status_kib, vm_flags,
};
use crate::{Programs, Seen};

pub(crate) const PROGRAMS: Programs = &[
    ("hugepage", || advised(libc::MADV_HUGEPAGE)),
    ("nohugepage", || advised(libc::MADV_NOHUGEPAGE)),
    ("mergeable", || advised(libc::MADV_MERGEABLE)),
    ("dontdump", || advised(libc::MADV_DONTDUMP)),
    ("sequential", || advised(libc::MADV_SEQUENTIAL)),
    ("unmergeable", || advised(libc::MADV_UNMERGEABLE)),
    ("cold", paged_out),
    ("mlock", || locked(0)),
    ("mlock-onfault", || locked(libc::MLOCK_ONFAULT as usize)),
    ("mlock-limit", locked_to_the_limit),
    ("mlockall", || locked_in_future(true)),
    ("mlockall-bare", || locked_in_future(false)),
    ("mlockall-limit", unmapped_beyond_the_limit),
    ("mlock-unmapped", locked_when_unmapped),
    ("madvise-unmapped", advised_when_unmapped),
    ("mbind", || policy(false)),
    ("home-node", || policy(true)),
    ("name", named),
    ("mseal", sealed),
    ("mseal-around", sealed_around),
    ("mprotect-none", || protected(libc::PROT_NONE)),
    ("mprotect-read", || protected(libc::PROT_READ)),
    ("mprotect-exec", || {
        protected(libc::PROT_READ | libc::PROT_EXEC)
    }),
    ("pkey", keyed),
    ("guard", || guarded(false)),
    ("guard-process", || guarded(true)),
    ("pagemap", present),
    ("thp", collapsed),
    ("merge-any", merged),
    ("hugetlb", huge),
    ("personality", executable),
];

const PAGES: usize = 4;

fn advised(advice: i32) -> Seen {
    let map = Map::filled(PAGES, 0x11);
    map.advise(advice)
        .map_err(|errno| format!("madvise {advice}: {errno}"))?;
    let map = map.again();
    let zero = map.all(0);
    Ok(format!("zero {zero}, flags {}", vm_flags(map.at)))
}

fn paged_out() -> Seen {
    let map = Map::filled(PAGES, 0x11);
    let done = [libc::MADV_COLD, libc::MADV_PAGEOUT].map(|advice| answer(map.advise(advice)));
    let map = map.again();
    let zero = map.all(0);
    Ok(format!("{done:?}, zero {zero}, flags {}", vm_flags(map.at)))
}

fn locked(flags: usize) -> Seen {
    let before = status_kib("VmLck");
    let map = Map::filled(PAGES, 0x11);
    let done = call(libc::SYS_mlock2, &[map.at, map.length, flags]);
    done.map_err(|errno| format!("mlock2: {errno}"))?;
    let during = status_kib("VmLck");
    map.unmap();
    let after = status_kib("VmLck");
    let map = Map::new(PAGES);
    Ok(format!(
        "{} KiB locked, after munmap {} KiB, flags {}",
        during - before,
        after - before,
        vm_flags(map.at)
    ))
}

/// Drops root, and limits locked memory to 1 MiB.
fn limited() -> Result<(), String> {
    let limit = libc::rlimit {
        rlim_cur: 1 << 20,
        rlim_max: 1 << 20,
    };
    const NOBODY: u32 = 65_534;
    // SAFETY: only this process changes.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), 0);
        if libc::getuid() == 0 {
            assert_eq!(libc::setresuid(NOBODY, NOBODY, NOBODY), 0);
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
        }
    }
    Ok(())
}

fn locked_to_the_limit() -> Seen {
    limited()?;
    let mut refused = Count::default();
    for pages in 150..170 {
        let map = Map::filled(pages, 0x11);
        refused.add(call(libc::SYS_mlock, &[map.at, map.length]).is_err());
        map.unmap();
    }
    Ok(format!("{refused} calls of mlock refused"))
}

fn locked_in_future(seen: bool) -> Seen {
    const CURRENT_AND_FUTURE: usize = 3;
    let map = Map::filled(PAGES, 0x11);
    if seen {
        // SAFETY: it changes no contents.
        let done = unsafe { libc::mlockall(CURRENT_AND_FUTURE as i32) };
        checked(done as isize).map_err(|errno| format!("mlockall: {errno}"))?;
    } else {
        let future = libc::MCL_FUTURE as usize;
        call(libc::SYS_mlockall, &[future]).map_err(|errno| format!("mlockall: {errno}"))?;
    }
    let fresh = Map::new(PAGES + 1);
    let again = map.again();
    Ok(format!(
        "flags of a new map {}, of one after munmap {}",
        vm_flags(fresh.at),
        vm_flags(again.at)
    ))
}

fn unmapped_beyond_the_limit() -> Seen {
    let maps = [Map::filled(512, 0x11), Map::filled(1024, 0x11).part(0, 512)];
    limited()?;
    let future = libc::MCL_FUTURE as usize;
    call(libc::SYS_mlockall, &[future]).map_err(|errno| format!("mlockall: {errno}"))?;
    let seen = maps.map(|map| {
        let done = answer(map.try_unmap());
        format!("munmap: {done}, can be read: {}", peek(map.at).is_ok())
    });
    Ok(seen.join("; "))
}

fn locked_when_unmapped() -> Seen {
    let map = Map::filled(PAGES, 0x11);
    map.unmap();
    let _ = call(libc::SYS_mlock, &[map.at, map.length]);
    let map = Map::new(PAGES);
    Ok(format!("flags {}", vm_flags(map.at)))
}

fn advised_when_unmapped() -> Seen {
    let map = Map::filled(PAGES, 0x11);
    map.unmap();
    let _ = map.advise(libc::MADV_DONTFORK);
    let map = Map::filled(PAGES, 0xbb);
    let seen = in_a_child(|| peek(map.at).unwrap_or(1));
    Ok(match seen {
        0xbb => "it reads what was written".into(),
        _ => "it has no such map".into(),
    })
}

fn policy(home: bool) -> Seen {
    const BIND: usize = 2;
    let map = Map::filled(PAGES, 0x11);
    let nodes = [1_usize];
    let (at, bits) = (nodes.as_ptr() as usize, 64);
    call(libc::SYS_mbind, &[map.at, map.length, BIND, at, bits, 0])
        .map_err(|errno| format!("mbind: {errno}"))?;
    if home {
        let arguments = [map.at, map.length, 0, 0];
        call(libc::SYS_set_mempolicy_home_node, &arguments)
            .map_err(|errno| format!("set_mempolicy_home_node: {errno}"))?;
    }
    let map = map.again();
    map.fill(0xbb);
    let text = std::fs::read_to_string("/proc/self/numa_maps").map_err(|e| e.to_string())?;
    let mut lines = text.lines().rev().filter_map(|line| {
        let (start, rest) = line.split_once(' ')?;
        Some((usize::from_str_radix(start, 16).ok()?, rest))
    });
    // A VMA may begin before the map.
    let found = lines.find(|(start, _)| *start <= map.at);
    let policy = found.and_then(|(_, rest)| rest.split(' ').next());
    Ok(format!("policy {}", policy.unwrap_or("none")))
}

fn named() -> Seen {
    let map = Map::filled(PAGES, 0x11);
    let name = c"references".as_ptr() as usize;
    let (set, anonymous) = (
        libc::PR_SET_VMA as usize,
        libc::PR_SET_VMA_ANON_NAME as usize,
    );
    let arguments = [set, anonymous, map.at, map.length, name];
    call(libc::SYS_prctl, &arguments).map_err(|errno| {
        format!("PR_SET_VMA: {errno}; not in this kernel (CONFIG_ANON_VMA_NAME)")
    })?;
    map.again();
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| e.to_string())?;
    Ok(format!("named {}", maps.contains("[anon:references]")))
}

fn seal(map: Map) -> Result<(), String> {
    let done = call(libc::SYS_mseal, &[map.at, map.length, 0]);
    done.map(drop).map_err(|errno| format!("mseal: {errno}"))
}

fn sealed() -> Seen {
    let map = Map::filled(PAGES, 0x11);
    seal(map)?;
    let done = map.try_unmap();
    let again = map.part(1, 1).try_unmap();
    let other = Map::new(PAGES);
    Ok(format!(
        "munmap: {}, of a part: {}, as it was: {}, another map is elsewhere: {}",
        answer(done),
        answer(again),
        map.all(0x11),
        other.at != map.at
    ))
}

/// Unmaps the middle of a map, seals the end, and unmaps all of it.
fn sealed_around() -> Seen {
    let map = Map::filled(6, 0x11);
    map.part(2, 2).unmap();
    seal(map.part(4, 2))?;
    let done = map.try_unmap();
    let byte = |page: usize| peek(map.at + page * PAGE);
    Ok(format!(
        "munmap: {}, the first: {}, the sealed one: {}",
        answer(done),
        answer(byte(0)),
        answer(byte(4)),
    ))
}

fn protected(protection: i32) -> Seen {
    let mut dirty = Count::default();
    let mut flags = Vec::new();
    for _ in 0..20 {
        let map = Map::filled(PAGES, 0x11);
        let part = map.part(1, 2);
        let arguments = [part.at, part.length, protection as usize];
        assert_eq!(call(libc::SYS_mprotect, &arguments), Ok(0));
        let map = map.again();
        dirty.add(!map.all(0));
        map.fill(0xbb);
        flags.push(vm_flags(map.at));
        flags.push(vm_flags(map.at + PAGE));
        map.unmap();
    }
    flags.dedup();
    Ok(format!("{dirty} new maps not zero, flags {flags:?}"))
}

fn keyed() -> Seen {
    const NO_ACCESS: usize = 1;
    let key = call(libc::SYS_pkey_alloc, &[0, NO_ACCESS])
        .map_err(|errno| format!("pkey_alloc: {errno}; this CPU has no protection keys"))?;
    // The library's own zeroing is what has no access.
    let status = status_of(|| {
        let map = Map::filled(PAGES, 0x11);
        let arguments = [map.at, map.length, READ_WRITE, key];
        assert_eq!(call(libc::SYS_pkey_mprotect, &arguments), Ok(0));
        map.again().get(0)
    });
    Ok(format!("status {status:#x}"))
}

/// Returns how a child ends (wait(2)) that exits with what `read` gives.
fn status_of(read: impl FnOnce() -> u8) -> i32 {
    let mut status = 0;
    // SAFETY: the program has one thread; the child maps, unmaps, reads and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(read().into());
        }
        libc::waitpid(child, &raw mut status, 0);
    }
    status
}

fn guarded(by_process: bool) -> Seen {
    const GUARD_INSTALL: i32 = 102;
    let map = Map::filled(PAGES, 0x11);
    let guard = map.part(2, 1);
    if by_process {
        let pid = std::process::id() as usize;
        let fd = call(libc::SYS_pidfd_open, &[pid, 0]).expect("of this process");
        let vector = [guard.at, guard.length];
        let at = vector.as_ptr() as usize;
        call(
            libc::SYS_process_madvise,
            &[fd, at, 1, GUARD_INSTALL as usize, 0],
        )
        .map_err(|errno| format!("process_madvise: {errno}"))?;
    } else {
        guard
            .advise(GUARD_INSTALL)
            .map_err(|errno| format!("MADV_GUARD_INSTALL: {errno}"))?;
    }
    assert_eq!(peek(guard.at), Err(Errno(libc::EFAULT)));
    let map = map.again();
    let seen = [0, 2].map(|page| answer(peek(map.at + page * PAGE)));
    Ok(format!("reading pages of the new map: {}", seen.join(", ")))
}

/// Counts the resident pages of a map.
fn there(map: Map) -> usize {
    let mut pages = vec![0_u8; map.length / PAGE];
    let arguments = [map.at, map.length, pages.as_mut_ptr() as usize];
    assert_eq!(call(libc::SYS_mincore, &arguments), Ok(0));
    pages.iter().filter(|page| **page & 1 != 0).count()
}

fn present() -> Seen {
    let map = Map::filled(64, 0x11).again();
    Ok(format!("{} of 64 pages", there(map)))
}

fn collapsed() -> Seen {
    const COLLAPSE: i32 = 25;
    let map = Map::filled(1024, 0x11);
    map.advise(COLLAPSE)
        .map_err(|errno| format!("MADV_COLLAPSE: {errno}"))?;
    let map = map.again();
    let there = there(map);
    Ok(format!("{there} of 1024 pages, zero {}", map.all(0)))
}

fn merged() -> Seen {
    const SET_MEMORY_MERGE: usize = 67;
    let old = Map::filled(PAGES, 0x11);
    call(libc::SYS_prctl, &[SET_MEMORY_MERGE, 1, 0, 0, 0])
        .map_err(|errno| format!("PR_SET_MEMORY_MERGE: {errno}"))?;
    let during = old.again();
    let flags = [vm_flags(during.at), vm_flags(Map::new(PAGES + 1).at)];
    call(libc::SYS_prctl, &[SET_MEMORY_MERGE, 0, 0, 0, 0])
        .map_err(|errno| format!("PR_SET_MEMORY_MERGE: {errno}"))?;
    let after = vm_flags(during.again().at);
    Ok(format!("flags {flags:?}, after it {after}"))
}

fn huge() -> Seen {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    // SAFETY: a map without an address touches nothing that is there.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 2 << 20, 3, flags, -1, 0) };
    let by_libc = checked(at as isize);
    let bare = call(
        libc::SYS_mmap,
        &[
            0,
            2 << 20,
            READ_WRITE,
            PLAIN | libc::MAP_HUGETLB as usize,
            NO_FILE,
        ],
    );
    Ok(format!("{}, {}", answer(by_libc), answer(bare)))
}

fn executable() -> Seen {
    const READ_IMPLIES_EXEC: usize = 0x0040_0000;
    let map = Map::filled(PAGES, 0x11);
    call(libc::SYS_personality, &[READ_IMPLIES_EXEC])
        .map_err(|errno| format!("personality: {errno}"))?;
    let fresh = Map::new(PAGES + 1);
    Ok(format!(
        "flags {}, after munmap {}",
        vm_flags(fresh.at),
        vm_flags(map.again().at)
    ))
}
