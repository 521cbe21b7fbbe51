//! The holder's work: fill, keep every k-th frame, free the rest, eat the large blocks.

use serde::{Deserialize, Serialize};
use stopgap_events::machine::OrderIndex;
use stopgap_events::memory::Protection;
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::holds::Part;
use stopgap_kernel::memory::{Advice, MapKind, MapRequest, Mapping};
use stopgap_kernel::shortage::fragmentation;
use stopgap_kernel::{System, pagemap};

use super::recipe::Recipe;

/// Memory that is worked on between two looks at the machine.
const STEP: Bytes = Bytes::mib(64);

/// Free memory of which no more than this share lies in large blocks is fragmented.
const ENOUGH: f64 = 0.01;

/// What the holder made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::chunks) struct Built {
    /// Filled with base pages, bytes.
    pub(in crate::chunks) filled: u64,
    /// Kept of them, bytes.
    pub(in crate::chunks) kept: u64,
    /// Eaten in huge pages, bytes.
    pub(in crate::chunks) eaten: u64,
    /// Pipes' page references to what is kept, bytes.
    pub(in crate::chunks) pinned: u64,
}

/// Makes the state, calls `ready`, and holds everything until that returns.
///
/// # Errors
/// What went wrong, in words: a call, or memory that somebody else took meanwhile.
pub(in crate::chunks) fn hold(
    system: &dyn System,
    recipe: &Recipe,
    interrupted: &dyn Fn() -> bool,
    ready: &mut dyn FnMut(&Built),
) -> Result<(), String> {
    let floor = Floor {
        system,
        recipe,
        interrupted,
    };
    let mut built = Built {
        filled: 0,
        kept: 0,
        eaten: 0,
        pinned: 0,
    };
    let filled = floor.fill(&mut built)?;
    let kept = floor.sift(&filled, &mut built)?;
    let _held = if recipe.fragment.pinned {
        // A pipe of 1 MiB holds 256 pages and takes two descriptors; a small one 16.
        let files = kept.len() as u64 / 8 + 64;
        let most = system.most_files().map_or(files, |most| files.min(most));
        system
            .allow_files(most)
            .map_err(|error| error.to_string())?;
        let held = system
            .vmsplice_parts(&filled, &kept)
            .map_err(|error| error.to_string())?;
        built.pinned = held.length().0;
        Some(held)
    } else {
        None
    };
    floor.free_between(&filled, &kept)?;
    let _eaten = floor.eat(&mut built)?;
    ready(&built);
    Ok(())
}

/// The work, with an eye on what stays free.
struct Floor<'a> {
    system: &'a dyn System,
    recipe: &'a Recipe,
    interrupted: &'a dyn Fn() -> bool,
}

impl Floor<'_> {
    fn free(&self) -> Result<Bytes, String> {
        meminfo(self.system, "MemFree").map_err(|error| error.to_string())
    }

    /// Whether to go on: an error where we are to stop.
    fn stop(&self) -> Result<(), String> {
        match (self.interrupted)() {
            true => Err("interrupted".to_owned()),
            false => Ok(()),
        }
    }

    fn map(&self, length: Bytes, advice: Advice) -> Result<Mapping, String> {
        let mapping = self.system.map(&MapRequest {
            length,
            protection: Protection::Write,
            kind: MapKind::Anonymous,
            align: Bytes::mib(2),
        });
        let mapping = mapping.map_err(|error| error.to_string())?;
        self.system
            .advise(&mapping, Bytes(0), length, advice)
            .map_err(|error| error.to_string())?;
        Ok(mapping)
    }

    fn fill(&self, built: &mut Built) -> Result<Mapping, String> {
        let mapping = self.map(self.recipe.fill, Advice::NoHugePage)?;
        for part in steps(self.recipe.fill) {
            self.stop()?;
            let free = self.free()?;
            if free.saturating_sub(part.length) < self.recipe.reserve {
                let reserve = self.recipe.reserve;
                return Err(format!(
                    "somebody else took memory meanwhile: {free} are free, and {reserve} stay free"
                ));
            }
            self.touch(&mapping, part)?;
            built.filled += part.length.0;
        }
        Ok(mapping)
    }

    fn touch(&self, mapping: &Mapping, part: Part) -> Result<(), String> {
        self.system
            .touch(mapping, part.offset, part.length)
            .map_err(|error| error.to_string())
    }

    /// The pages that are kept: those in every k-th page frame.
    fn sift(&self, filled: &Mapping, built: &mut Built) -> Result<Vec<Part>, String> {
        let page = self.system.page_size();
        let one_in = self.recipe.fragment.keep.one_in();
        let mut kept = Vec::new();
        for part in steps(self.recipe.fill) {
            self.stop()?;
            let start = filled.range().start + part.offset.0;
            let range = AddressRange {
                start,
                end: start + part.length.0,
            };
            let layout = pagemap::layout(self.system, range).map_err(|error| error.to_string())?;
            let runs = layout
                .runs
                .ok_or("page frames are hidden: it needs root (CAP_SYS_ADMIN)")?;
            if layout.present != part.length.pages(page) {
                return Err("pages were reclaimed while memory was filled".to_owned());
            }
            // All are present, so the runs follow one another without a gap.
            let mut offset = part.offset;
            for run in runs {
                for at in (run.start..run.end).step_by(page_step(page)) {
                    if (at / page.0).is_multiple_of(one_in) {
                        kept.push(Part {
                            offset,
                            length: page,
                        });
                    }
                    offset += page;
                }
            }
        }
        built.kept = kept.iter().map(|part| part.length.0).sum();
        Ok(kept)
    }

    /// Gives back what lies between the kept pages.
    fn free_between(&self, filled: &Mapping, kept: &[Part]) -> Result<(), String> {
        let mut from = Bytes(0);
        let end = Part {
            offset: self.recipe.fill,
            length: Bytes(0),
        };
        for (number, part) in kept.iter().chain([&end]).enumerate() {
            if number.is_multiple_of(1 << 16) {
                self.stop()?;
            }
            let length = part.offset.saturating_sub(from);
            if length > Bytes(0) {
                self.system
                    .advise(filled, from, length, Advice::DontNeed)
                    .map_err(|error| error.to_string())?;
            }
            from = part.offset + part.length;
        }
        Ok(())
    }

    /// Free memory in blocks too large to lie between two kept frames.
    #[allow(clippy::cast_precision_loss)] // sizes of memory
    fn large(&self) -> Result<(f64, f64), String> {
        let free = self.free()?.0 as f64;
        let indices = fragmentation(self.system).map_err(|error| error.to_string())?;
        let order = self.recipe.fragment.keep.largest_order() + 1;
        let index = |of: &OrderIndex| of.order == order;
        let unusable = indices
            .iter()
            .find(|of| index(of))
            .map_or(1.0, |of| of.index);
        Ok((free * (1.0 - unusable), free))
    }

    /// Takes large blocks as huge pages, whose sizes the knobs allow, until they are gone: until
    /// what is taken comes from elsewhere.
    #[allow(clippy::cast_precision_loss)] // sizes of memory
    fn eat(&self, built: &mut Built) -> Result<Option<Mapping>, String> {
        if self.recipe.eat == Bytes(0) {
            return Ok(None);
        }
        let mapping = self.map(self.recipe.eat, Advice::HugePage)?;
        let (mut large, _) = self.large()?;
        for part in steps(self.recipe.eat) {
            self.stop()?;
            if self.free()?.saturating_sub(part.length) < self.recipe.reserve {
                break;
            }
            self.touch(&mapping, part)?;
            built.eaten += part.length.0;
            let (now, free) = self.large()?;
            let gone = large - now;
            if now <= ENOUGH * free || gone < part.length.0 as f64 / 2.0 {
                break;
            }
            large = now;
        }
        Ok(Some(mapping))
    }
}

fn page_step(page: Bytes) -> usize {
    usize::try_from(page.0).unwrap_or(usize::MAX)
}

/// `length` in parts of [`STEP`].
fn steps(length: Bytes) -> impl Iterator<Item = Part> {
    (0..length.0.div_ceil(STEP.0)).map(move |number| {
        let offset = Bytes(number * STEP.0);
        Part {
            offset,
            length: STEP.min(length - offset),
        }
    })
}
