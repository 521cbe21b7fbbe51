//! The fixes by their words.

use std::fmt;
use std::str::FromStr;

use stopgap_chunks::iommu::PageSizes;
use stopgap_chunks::policy::{Chunk, Effort, Name, Request, Source};
use stopgap_kernel::files::Files;
use stopgap_kernel::thp::Thp;

use crate::failure::Failure;

/// A fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fix {
    /// Places for anonymous maps.
    Arena,
    /// The same, and the pages of freed maps are kept for the next map of their size.
    ArenaKeep,
    /// Places for anonymous maps, and advice about huge pages.
    Chunks(Name),
    /// `SCHED_BATCH`.
    BatchClient,
}

impl FromStr for Fix {
    type Err = String;

    fn from_str(text: &str) -> Result<Fix, String> {
        match text.split_once('=') {
            None if text == "arena" => Ok(Fix::Arena),
            None if text == "arena-keep" => Ok(Fix::ArenaKeep),
            None if text == "batch-client" => Ok(Fix::BatchClient),
            Some(("chunks", policy)) => policy.parse().map(Fix::Chunks),
            _ => Err(format!(
                "'{text}' is no fix; there are arena, arena-keep, batch-client and chunks=POLICY"
            )),
        }
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fix::Arena => f.write_str("arena"),
            Fix::ArenaKeep => f.write_str("arena-keep"),
            Fix::Chunks(policy) => write!(f, "chunks={}", policy.word()),
            Fix::BatchClient => f.write_str("batch-client"),
        }
    }
}

/// Advice that the library gives for large maps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// `huge` or `nohuge`.
    pub(super) word: &'static str,
    /// Why it is not what the policy would like.
    pub(super) instead: Option<String>,
}

/// Gives what is asked for, and remembers how hard a huge page was tried.
struct Asked {
    huge: u32,
    effort: Option<Effort>,
    next: u64,
}

impl Source for Asked {
    fn allocate(&mut self, order: u32, effort: Effort) -> Option<u64> {
        if order >= self.huge {
            self.effort = Some(effort);
        }
        let frame = self.next.next_multiple_of(1 << order);
        self.next = frame + (1 << order);
        Some(frame)
    }

    fn free(&mut self, _: Chunk) {}
}

/// What a program's own faults can do of a policy: take huge pages or not. How hard a fault tries, the machine's knob
/// says.
pub(super) fn advice(policy: Name, files: &impl Files) -> Result<Advice, Failure> {
    let thp = Thp::read(files)?;
    let Some(thp) = thp else {
        return Ok(Advice {
            word: "nohuge",
            instead: Some(format!(
                "chunks={}: this kernel has no transparent huge pages; base pages it is",
                policy.word()
            )),
        });
    };
    let pages = thp.pmd_size.0 >> 12;
    let mut asked = Asked {
        huge: pages.max(1).trailing_zeros(),
        effort: None,
        next: 0,
    };
    let request = Request {
        pages,
        page: 4096,
        sizes: "4K,64K,2M".parse::<PageSizes>().map_err(Failure::error)?,
        single_pages: false,
    };
    let built = policy.build(&request, &mut asked);
    built.map_err(|error| Failure::error(error.to_string()))?;
    let none = |why: String| Advice {
        word: "nohuge",
        instead: Some(format!("chunks={}: {why}; base pages it is", policy.word())),
    };
    Ok(match asked.effort {
        None => Advice {
            word: "nohuge",
            instead: None,
        },
        Some(_) if thp.enabled == "never" => {
            none("/sys/kernel/mm/transparent_hugepage/enabled is never".to_owned())
        }
        // A fault of advised memory would reclaim and compact, which the policy never does.
        Some(Effort::NoReclaim) if Thp::direct(&thp.defrag, true) => none(format!(
            "it never reclaims, but with /sys/kernel/mm/transparent_hugepage/defrag at {} a fault would",
            thp.defrag
        )),
        Some(_) => Advice {
            word: "huge",
            instead: None,
        },
    })
}

#[cfg(test)]
mod tests;
