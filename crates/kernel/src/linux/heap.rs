//! How this process's allocator gives memory back to the system.

/// From this size on a block is a mapping of its own, which the system has again as soon as the block is freed: as glibc begins.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: libc::c_int = 128 << 10;

/// Makes freed memory leave a process that runs for weeks. With each large block that is freed, glibc raises the size from which on blocks
/// are mappings of their own, up to 32 MiB, and keeps twice as much freed memory at the end of its heap; this ends that. All threads
/// share one heap then. Other C libraries do nothing of the kind, and nothing is changed there.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes plain integers.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives the pages of freed blocks back, those between blocks in use too. Takes some ms for a heap of many pieces.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    /// Resident bytes of this process.
    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size()
    }

    /// Blocks of 64 KiB lie on the heap, and the last ones keep its end where it is.
    #[test]
    fn memory_between_blocks_in_use_is_given_back() {
        const BLOCK: usize = 64 << 10;
        super::keep_small();
        let mut blocks: Vec<Vec<u8>> = (0..1_600).map(|_| vec![1; BLOCK]).collect();
        let most = resident();
        blocks.drain(..1_598);
        super::trim();
        let least = resident();
        assert!(least + 1_200 * BLOCK < most, "{most} {least}");
        assert_eq!(blocks.len(), 2);
    }
}
