//! The holder's work: fill, keep every k-th frame, free the rest, eat the large blocks.

use serde::{Deserialize, Serialize};
use stopgap_events::memory::Protection;
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::holds::Part;
use stopgap_kernel::memory::{Advice, MapKind, MapRequest, Mapping};
use stopgap_kernel::shortage::fragmentation;
use stopgap_kernel::{System, own, pagemap};

use super::recipe::Recipe;

/// Memory that is worked on between two looks at the machine.
const STEP: Bytes = Bytes::mib(32);

/// Free memory of which no more than this share lies in large blocks is fragmented.
const ENOUGH: f64 = 0.002;

/// What the holder made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Built {
    /// Filled with base pages, bytes.
    pub filled: u64,
    /// Kept of them, bytes.
    pub kept: u64,
    /// Eaten in huge pages, bytes.
    pub eaten: u64,
    /// Pipes' page references to what is kept, bytes.
    pub pinned: u64,
}

/// Makes the state, calls `ready`, and holds everything until that returns.
///
/// # Errors
/// What went wrong, in words: a call, or memory that somebody else took meanwhile.
pub(super) fn hold(
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

    /// Share of free memory in blocks too large to lie between two kept frames.
    fn large(&self) -> Result<f64, String> {
        let indices = fragmentation(self.system).map_err(|error| error.to_string())?;
        let order = self.recipe.fragment.keep.largest_order() + 1;
        let of = indices.iter().find(|of| of.order == order);
        Ok(of.map_or(0.0, |of| 1.0 - of.index))
    }

    /// Takes large blocks as huge pages, whose sizes the knobs allow, until there are none: until
    /// faults give mostly smaller pages. Others take and give back memory meanwhile, so what is
    /// free does not tell.
    fn eat(&self, built: &mut Built) -> Result<Option<Mapping>, String> {
        if self.recipe.eat == Bytes(0) {
            return Ok(None);
        }
        let mapping = self.map(self.recipe.eat, Advice::HugePage)?;
        let page = self.system.page_size();
        let large = Bytes(page.0 << (self.recipe.fragment.keep.largest_order() + 1));
        let faults = || own::minor_faults(self.system).map_err(|error| error.to_string());
        let mut before = faults()?;
        for part in steps(self.recipe.eat) {
            self.stop()?;
            if self.free()?.saturating_sub(part.length) < self.recipe.reserve {
                break;
            }
            self.touch(&mapping, part)?;
            built.eaten += part.length.0;
            let now = faults()?;
            let small = now.saturating_sub(before) > part.length.0 / large.0;
            if small || self.large()? <= ENOUGH {
                break;
            }
            before = now;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::fragment::{Fragment, Ratio};
    use stopgap_events::units::Nanos;
    use stopgap_kernel::Linux;
    use stopgap_kernel::fake::skipped;
    use stopgap_kernel::memory::Memory;
    use stopgap_kernel::tasks::{ChildLimits, Tasks};

    fn recipe(pinned: bool) -> Recipe {
        Recipe {
            fragment: Fragment {
                keep: Ratio::new(4).unwrap(),
                pinned,
            },
            fill: Bytes::mib(40),
            eat: Bytes(0),
            reserve: Bytes(0),
        }
    }

    #[test]
    fn parts_cover_a_length_without_gap() {
        let parts: Vec<_> = steps(Bytes::mib(70)).collect();
        let lengths: Vec<_> = parts.iter().map(|part| part.length.0 >> 20).collect();
        assert_eq!(lengths, [32, 32, 6]);
        assert_eq!(parts[2].offset, Bytes::mib(64));
    }

    /// Every page of this process's mapping of that length that is there: is it in a fourth frame?
    fn fourth(length: u64) -> Vec<bool> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let ranges = maps.lines().filter_map(|line| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let address = |word| u64::from_str_radix(word, 16).ok();
            Some(AddressRange {
                start: address(start)?,
                end: address(end)?,
            })
        });
        let ranges: Vec<_> = ranges.collect();
        let range = ranges.iter().rfind(|range| range.length().0 == length);
        let runs = pagemap::layout(&Linux, *range.unwrap())
            .unwrap()
            .runs
            .unwrap();
        let page = Linux.page_size().0;
        let frames = runs
            .iter()
            .flat_map(|run| (run.start / page)..(run.end / page));
        frames.map(|frame| frame.is_multiple_of(4)).collect()
    }

    /// How it ended, what was made, and whether each page is in a fourth frame.
    type Sent = (Result<(), String>, Option<(Built, Vec<bool>)>);

    /// In a guarded child, which looks at its own page frames while it holds them.
    #[test]
    fn every_fourth_frame_is_kept_and_the_rest_is_free() {
        if Linux.uid() != 0 {
            skipped("fragmenting: page frames need root");
            return;
        }
        let limits = ChildLimits {
            time: Nanos::secs(20),
            cgroup: None,
        };
        for pinned in [false, true] {
            let outcome = Linux.run_child(&limits, &mut || {
                let mut seen = None;
                let made = hold(&Linux, &recipe(pinned), &|| false, &mut |built| {
                    seen = Some((built.clone(), fourth(40 << 20)));
                });
                crate::load::encode(&(made, seen))
            });
            let (made, seen) = crate::load::decode::<Sent>(&outcome.unwrap()).unwrap();
            made.unwrap();
            let (built, fourth) = seen.unwrap();
            assert_eq!(built.filled, 40 << 20);
            assert_eq!(fourth.len() as u64 * Linux.page_size().0, built.kept);
            assert!(built.kept > 0 && built.kept < built.filled, "{built:?}");
            assert!(fourth.iter().all(|&fourth| fourth));
            assert_eq!(built.pinned, if pinned { built.kept } else { 0 });
        }
    }

    #[test]
    fn it_stops_when_told_and_when_memory_is_short() {
        let said = |recipe: Recipe, stop: bool| {
            let limits = ChildLimits {
                time: Nanos::secs(20),
                cgroup: None,
            };
            let outcome = Linux.run_child(&limits, &mut || {
                crate::load::encode(&hold(&Linux, &recipe, &|| stop, &mut |_| ()))
            });
            crate::load::decode::<Result<(), String>>(&outcome.unwrap()).unwrap()
        };
        assert_eq!(said(recipe(false), true), Err("interrupted".to_owned()));
        let short = Recipe {
            reserve: Bytes::gib(1 << 20),
            ..recipe(false)
        };
        let error = said(short, false).unwrap_err();
        assert!(error.contains("somebody else took memory"), "{error}");
    }
}
