//! Transparent huge pages: what this kernel has and what its knobs allow.
//!
//! `/sys/kernel/mm/transparent_hugepage` (Documentation/admin-guide/mm/transhuge.rst, Linux
//! 6.12). Sizes other than the PMD's, *mTHP*, have a directory each since 6.8; before, the one
//! knob `enabled` speaks for the PMD size. A kernel without THP has no such directory.

use std::path::{Path, PathBuf};

use stopgap_events::order::SortRows;
use stopgap_events::units::Bytes;

use crate::error::{Error, Result};
use crate::files::{Files, read_choice, read_number};

/// The directory.
pub const DIRECTORY: &str = "/sys/kernel/mm/transparent_hugepage";

/// What the kernel sets by itself whenever an `enabled` knob is written: compaction gets more free memory to work
/// with while huge pages are allowed (`set_recommended_min_free_kbytes`, Linux 6.12, `mm/khugepaged.c`).
pub const MIN_FREE: &str = "/proc/sys/vm/min_free_kbytes";

/// Returns the setting that the kernel sets when `knob` is written.
#[must_use]
pub fn follower(knob: &Path) -> Option<&'static Path> {
    let name = knob.file_name()?;
    let enables = name == "enabled" || name == "shmem_enabled";
    (enables && knob.starts_with(DIRECTORY)).then(|| Path::new(MIN_FREE))
}

/// The knobs, as they stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thp {
    /// `enabled`, the chosen word: `always`, `madvise`, `never`.
    pub enabled: String,
    /// `defrag`, the chosen word: what a fault does where there is no huge page at hand.
    pub defrag: String,
    /// Size of a page that one entry of the second page-table level maps.
    pub pmd_size: Bytes,
    /// Sizes that anonymous memory can have, ascending. Before 6.8 only the PMD's.
    pub sizes: Vec<Size>,
}

/// One size and its knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// Bytes of one page of this size.
    pub page: Bytes,
    /// The knob's chosen word: `always`, `inherit`, `madvise`, `never`; where the kernel has
    /// no knob for the size: `inherit`.
    pub enabled: String,
    /// The knob; before 6.8 that of all sizes.
    pub knob: PathBuf,
}

impl Thp {
    /// Reads the knobs; `None` on a kernel without THP.
    ///
    /// # Errors
    /// Where a knob is there and cannot be read or understood.
    pub fn read(files: &(impl Files + ?Sized)) -> Result<Option<Thp>> {
        let directory = Path::new(DIRECTORY);
        let names = match files.list(directory) {
            Err(error) if error.is_absent() => return Ok(None),
            names => names?,
        };
        let pmd_size = Bytes(read_number(files, directory.join("hpage_pmd_size"))?);
        let mut sizes = Vec::new();
        for name in &names {
            let Some(page) = size_of(directory, name)? else {
                continue;
            };
            let knob = directory.join(name).join("enabled");
            match read_choice(files, &knob) {
                Ok(enabled) => sizes.push(Size {
                    page,
                    enabled,
                    knob,
                }),
                Err(error) if error.is_absent() => {} // a size for files only, as 8 KiB
                Err(error) => return Err(error),
            }
        }
        if sizes.is_empty() {
            sizes.push(Size {
                page: pmd_size,
                enabled: "inherit".to_owned(),
                knob: enabled_knob(),
            });
        }
        sizes.sort_rows_by_key(|size| size.page);
        Ok(Some(Thp {
            enabled: read_choice(files, enabled_knob())?,
            defrag: read_choice(files, defrag_knob())?,
            pmd_size,
            sizes,
        }))
    }

    /// Whether a fault may take a page of this size: in memory that was `advised` with
    /// `MADV_HUGEPAGE`, or in any.
    ///
    /// `thp_vma_allowable_orders` (Linux 6.12, `include/linux/huge_mm.h`).
    #[must_use]
    pub fn allows(&self, size: &Size, advised: bool) -> bool {
        let by = |word: &str| word == "always" || (advised && word == "madvise");
        match size.enabled.as_str() {
            "inherit" => by(&self.enabled),
            word => by(word),
        }
    }

    /// Whether a fault reclaims and compacts itself where no huge page is at hand, with
    /// `defrag` at `word`.
    ///
    /// `vma_thp_gfp_mask` (Linux 6.12, `mm/huge_memory.c`): the same for every size.
    #[must_use]
    pub fn direct(word: &str, advised: bool) -> bool {
        match word {
            "always" => true,
            "madvise" | "defer+madvise" => advised,
            _ => false, // defer: background; never: not at all
        }
    }
}

/// `enabled`, the knob of all sizes that inherit.
#[must_use]
pub fn enabled_knob() -> PathBuf {
    Path::new(DIRECTORY).join("enabled")
}

/// `defrag`.
#[must_use]
pub fn defrag_knob() -> PathBuf {
    Path::new(DIRECTORY).join("defrag")
}

/// The size that a directory `hugepages-64kB` stands for; `None` for another name.
pub(crate) fn size_of(directory: &Path, name: &str) -> Result<Option<Bytes>> {
    let Some(rest) = name.strip_prefix("hugepages-") else {
        return Ok(None);
    };
    rest.strip_suffix("kB")
        .and_then(|number| number.parse().ok())
        .filter(|kib: &u64| kib.is_power_of_two() && kib.leading_zeros() > 10)
        .map(|kib| Some(Bytes::kib(kib)))
        .ok_or_else(|| {
            let path = directory.join(name);
            Error::parse(path.display(), "the name holds no size in kB")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn machine() -> Fake {
        let at = |name: &str| format!("{DIRECTORY}/{name}");
        Fake::default()
            .with_file(at("enabled"), "always [madvise] never\n")
            .with_file(at("defrag"), "always defer defer+madvise [madvise] never\n")
            .with_file(at("hpage_pmd_size"), "33554432\n")
    }

    fn with_sizes(words: &[(&str, &str)]) -> Fake {
        words.iter().fold(machine(), |fake, (size, word)| {
            let text = "always inherit madvise never".replace(word, &format!("[{word}]"));
            fake.with_file(format!("{DIRECTORY}/hugepages-{size}kB/enabled"), text)
        })
    }

    #[test]
    fn a_kernel_without_thp_is_none() {
        assert_eq!(Thp::read(&Fake::default()).unwrap(), None);
    }

    #[test]
    fn before_there_were_sizes_the_pmd_follows_the_one_knob() {
        let thp = Thp::read(&machine()).unwrap().unwrap();
        assert_eq!(thp.pmd_size, Bytes::mib(32));
        let [pmd] = &thp.sizes[..] else {
            panic!("{thp:?}");
        };
        assert_eq!((pmd.page, &pmd.knob), (Bytes::mib(32), &enabled_knob()));
        assert!(thp.allows(pmd, true) && !thp.allows(pmd, false));
    }

    #[test]
    fn sizes_come_with_their_knobs() {
        let fake = with_sizes(&[
            ("32768", "inherit"),
            ("64", "always"),
            ("128", "madvise"),
            ("256", "never"),
        ])
        .with_file(
            format!("{DIRECTORY}/hugepages-32kB/shmem_enabled"),
            "[never]",
        );
        let thp = Thp::read(&fake).unwrap().unwrap();
        let allowed = |advised| -> Vec<u64> {
            let sizes = thp.sizes.iter();
            let sizes = sizes.filter(|size| thp.allows(size, advised));
            sizes.map(|size| size.page.0 >> 10).collect()
        };
        assert_eq!(thp.sizes.len(), 4);
        assert_eq!(allowed(false), [64]);
        assert_eq!(allowed(true), [64, 128, 32768]);
    }

    #[test]
    fn who_reclaims_directly() {
        let direct = |advised| {
            ["always", "defer", "defer+madvise", "madvise", "never"]
                .map(|word| Thp::direct(word, advised))
        };
        assert_eq!(direct(true), [true, false, true, true, false]);
        assert_eq!(direct(false), [true, false, false, false, false]);
    }

    #[test]
    fn a_name_that_is_no_size_is_an_error() {
        for name in [
            "hugepages-xkB",
            "hugepages-3kB",
            "hugepages-18014398509481984kB",
        ] {
            let fake = machine().with_file(format!("{DIRECTORY}/{name}/enabled"), "[never]");
            let error = Thp::read(&fake).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
