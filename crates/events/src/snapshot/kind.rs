use crate::words;

/// The use of a page, as far as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// In a free block of the buddy system. (A free page that a CPU keeps for itself is
    /// [`Kind::Kernel`]: nothing tells it from one.)
    Free,
    /// Memory of processes, not of a file: evictable where there is swap.
    Anonymous,
    /// Page cache of files: evictable.
    File,
    /// Shared memory and tmpfs: evictable where there is swap.
    Shmem,
    /// Unevictable: mlock, `SHM_LOCK`, ramfs. Stays in memory, but may be moved.
    Locked,
    /// The kernel's: slab, page tables, buffers of drivers, and all that has no other sign.
    Kernel,
    /// In the hugetlb pool, in use or not.
    Hugetlb,
    /// Not the buddy system's: the kernel itself, what firmware keeps, broken or ballooned pages.
    Reserved,
    /// No memory, or none that is in use yet.
    Hole,
    /// Not known: frames that two zones both span.
    Unknown,
}

words!(Kind, "kind of page",
    Free "free",
    Anonymous "anonymous",
    File "file",
    Shmem "shmem",
    Locked "locked",
    Kernel "kernel",
    Hugetlb "hugetlb",
    Reserved "reserved",
    Hole "hole",
    Unknown "unknown",
);

impl Kind {
    /// Its letter in the layout.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Kind::Free => 'f',
            Kind::Anonymous => 'a',
            Kind::File => 'c',
            Kind::Shmem => 's',
            Kind::Locked => 'u',
            Kind::Kernel => 'k',
            Kind::Hugetlb => 'h',
            Kind::Reserved => 'r',
            Kind::Hole => 'n',
            Kind::Unknown => '?',
        }
    }

    /// The kind that has this letter.
    #[must_use]
    pub fn of_letter(letter: char) -> Option<Kind> {
        Kind::ALL
            .iter()
            .copied()
            .find(|kind| kind.letter() == letter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_one_each() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::of_letter(kind.letter()), Some(kind));
        }
        assert_eq!(Kind::of_letter('x'), None);
    }
}
