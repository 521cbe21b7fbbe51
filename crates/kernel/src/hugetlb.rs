//! The kernel's pools of huge pages that are set aside (hugetlb).
//!
//! `/sys/kernel/mm/hugepages/hugepages-*kB`
//! (Documentation/admin-guide/mm/hugetlbpage.rst, Linux 6.12).

use std::path::{Path, PathBuf};

use stopgap_events::order::SortRows;
use stopgap_events::units::Bytes;

use crate::error::Result;
use crate::files::{Files, list_if_there, read_number};
use crate::thp::size_of;

const DIRECTORY: &str = "/sys/kernel/mm/hugepages";

/// One size's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Bytes of one page.
    pub page: Bytes,
    /// `nr_hugepages`: pages in the pool.
    pub total: u64,
    /// Pages that nobody holds and nobody has reserved.
    pub free: u64,
}

/// The pools, smallest page first; none on a kernel without hugetlb.
///
/// # Errors
/// Where a pool is there and cannot be read.
pub fn pools(files: &(impl Files + ?Sized)) -> Result<Vec<Pool>> {
    let directory = Path::new(DIRECTORY);
    let mut pools = Vec::new();
    for name in list_if_there(files, directory)? {
        let Some(page) = size_of(directory, &name)? else {
            continue;
        };
        let number = |file: &str| read_number::<_, u64>(files, directory.join(&name).join(file));
        pools.push(Pool {
            page,
            total: number("nr_hugepages")?,
            free: number("free_hugepages")?.saturating_sub(number("resv_hugepages")?),
        });
    }
    pools.sort_rows_by_key(|pool| pool.page);
    Ok(pools)
}

/// The knob that sets how many pages of this size the pool holds. The kernel may give fewer.
#[must_use]
pub fn knob(page: Bytes) -> PathBuf {
    Path::new(DIRECTORY)
        .join(format!("hugepages-{}kB", page.0 >> 10))
        .join("nr_hugepages")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn reserved_pages_are_not_free() {
        let with = |fake: Fake, size: &str, [total, free, reserved]: [u64; 3]| {
            let at = |file: &str| format!("{DIRECTORY}/hugepages-{size}kB/{file}");
            fake.with_file(at("nr_hugepages"), total.to_string())
                .with_file(at("free_hugepages"), free.to_string())
                .with_file(at("resv_hugepages"), reserved.to_string())
        };
        let fake = with(Fake::default(), "1048576", [0, 0, 0]);
        let fake = with(fake, "2048", [10, 7, 3]);
        let pools = pools(&fake).unwrap();
        let expected = Pool {
            page: Bytes::mib(2),
            total: 10,
            free: 4,
        };
        assert_eq!(pools[0], expected);
        assert_eq!(pools[1].page, Bytes::gib(1));
        assert_eq!(fake.content(knob(pools[0].page)).unwrap(), "10");
    }

    #[test]
    fn a_kernel_without_hugetlb_has_no_pool() {
        assert_eq!(pools(&Fake::default()).unwrap(), []);
    }
}
