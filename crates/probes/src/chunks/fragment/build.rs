//! The holder's work: take what is free in large folios, split each, keep every k-th frame, give the rest back.

use serde::{Deserialize, Serialize};
use stopgap_events::memory::Protection;
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::holds::Part;
use stopgap_kernel::memory::{Advice, MapKind, MapRequest, Mapping};
use stopgap_kernel::shortage::fragmentation;
use stopgap_kernel::{System, own, pagemap};

use super::recipe::{Recipe, STEP};

/// Free memory of which no more than this share lies in large blocks is fragmented.
const ENOUGH: f64 = 0.002;

/// Looks at page frames until all are there at one time.
const LOOKS: u32 = 20;

/// State that the holder made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Built {
    /// Taken in folios as large as were free, and split, bytes.
    pub split: u64,
    /// Kept of them, bytes.
    pub kept: u64,
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
    let holder = Holder {
        system,
        recipe,
        interrupted,
    };
    let mut built = Built {
        split: 0,
        kept: 0,
        pinned: 0,
    };
    let mapping = holder.map()?;
    let pinned = recipe.fragment.pinned;
    if pinned {
        // A pipe of 1 MiB holds 256 pages and takes two descriptors; a small one 16.
        let pages = recipe.peak().pages(system.page_size()).0;
        let files = pages / 8 + 1024;
        let most = system.most_files().map_or(files, |most| files.min(most));
        system.allow_files(most)?;
    }
    let mut held = Vec::new();
    holder.split_all(&mapping, &mut built, &mut |kept| {
        // At once: what is not pinned yet the compactor moves together again.
        if pinned {
            let parts = system.vmsplice_parts(&mapping, kept)?;
            held.push(parts);
        }
        Ok(())
    })?;
    built.pinned = held.iter().map(|held| held.length().0).sum();
    ready(&built);
    Ok(())
}

/// The work, with an eye on what stays available.
struct Holder<'a> {
    system: &'a dyn System,
    recipe: &'a Recipe,
    interrupted: &'a dyn Fn() -> bool,
}

impl Holder<'_> {
    /// Whether to go on: an error where we are to stop.
    fn stop(&self) -> Result<(), String> {
        match (self.interrupted)() {
            true => Err("interrupted".to_owned()),
            false => Ok(()),
        }
    }

    fn map(&self) -> Result<Mapping, String> {
        let mapping = self.system.map(&MapRequest {
            length: self.recipe.through,
            protection: Protection::Write,
            kind: MapKind::Anonymous,
            align: Bytes::mib(2),
        });
        mapping.map_err(String::from)
    }

    /// Goes through free memory, the largest blocks first, until what is free lies in small ones: until faults give
    /// mostly smaller folios. Others take and give back memory meanwhile, so what is free does not tell.
    ///
    /// `keep` is called with the pages that are kept, those in every k-th page frame, as they come.
    fn split_all(
        &self,
        mapping: &Mapping,
        built: &mut Built,
        keep: &mut dyn FnMut(&[Part]) -> Result<(), String>,
    ) -> Result<(), String> {
        self.advise(mapping, whole(self.recipe.through), Advice::HugePage)?;
        let page = self.system.page_size();
        let pmd = Bytes(page.0 * (page.0 / 8));
        let large = Bytes(page.0 << (self.recipe.fragment.keep.largest_order() + 1));
        for part in steps(self.recipe.through) {
            self.stop()?;
            let available = meminfo(self.system, "MemAvailable")?;
            if available.saturating_sub(part.length) < self.recipe.reserve {
                let reserve = self.recipe.reserve;
                return Err(format!(
                    "somebody else took memory meanwhile: {available} are available, and {reserve} stay so"
                ));
            }
            let before = self.faults()?;
            self.system.touch(mapping, part.offset, part.length)?;
            let faults = self.faults()?.saturating_sub(before);
            let kept = self.sift(mapping, part)?;
            // Nothing but huge pages: one page of each splits it.
            let folio = (faults == part.length.0 / pmd.0).then_some(pmd);
            self.split(mapping, part, &kept, folio)?;
            keep(&kept)?;
            built.split += part.length.0;
            built.kept += kept.iter().map(|part| part.length.0).sum::<u64>();
            if faults > part.length.0 / large.0 || self.large()? <= ENOUGH {
                break;
            }
        }
        // Else khugepaged would make huge pages of it again.
        self.advise(mapping, whole(self.recipe.through), Advice::NoHugePage)
    }

    fn advise(&self, mapping: &Mapping, part: Part, advice: Advice) -> Result<(), String> {
        self.system
            .advise(mapping, part.offset, part.length, advice)
            .map_err(String::from)
    }

    fn faults(&self) -> Result<u64, String> {
        own::minor_faults(self.system).map_err(String::from)
    }

    /// The pages of `part` that are kept.
    fn sift(&self, mapping: &Mapping, part: Part) -> Result<Vec<Part>, String> {
        let mut kept = Vec::new();
        let page = self.system.page_size();
        let one_in = self.recipe.fragment.keep.one_in();
        let start = mapping.range().start + part.offset.0;
        let range = AddressRange {
            start,
            end: start + part.length.0,
        };
        let whole = part.length.pages(page);
        let mut layout = None;
        for _ in 0..LOOKS {
            let now = pagemap::layout(self.system, range)?;
            if now.runs.is_none() {
                return Err("page frames are hidden: it needs root (CAP_SYS_ADMIN)".to_owned());
            }
            if now.present == whole {
                layout = now.runs;
                break;
            }
            // A page that is just being moved is absent; touching it waits until it is back.
            self.system.touch(mapping, part.offset, part.length)?;
        }
        let runs = layout.ok_or("pages were reclaimed while memory was taken")?;
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
        Ok(kept)
    }

    /// Splits the folios that the pages in `kept` are of, and gives back what lies between them.
    ///
    /// Pages that are given back out of the middle of a folio stay with it until it is split (`deferred_split_folio`,
    /// mm/huge_memory.c). `MADV_COLD` of a part splits it at once (`madvise_cold_or_pageout_pte_range`, mm/madvise.c).
    /// `folio` is the size of all of them, where it is known.
    fn split(
        &self,
        mapping: &Mapping,
        part: Part,
        kept: &[Part],
        folio: Option<Bytes>,
    ) -> Result<(), String> {
        let mut from = part.offset;
        let mut split = None;
        let end = Part {
            offset: part.offset + part.length,
            length: Bytes(0),
        };
        for &keep in kept.iter().chain([&end]) {
            let of = folio.map(|folio| keep.offset.0 / folio.0);
            if keep.length > Bytes(0) && (of.is_none() || of != split) {
                self.advise(mapping, keep, Advice::Cold)?;
                split = of;
            }
            let between = Part {
                offset: from,
                length: keep.offset.saturating_sub(from),
            };
            if between.length > Bytes(0) {
                self.advise(mapping, between, Advice::DontNeed)?;
            }
            from = keep.offset + keep.length;
        }
        Ok(())
    }

    /// Share of free memory in blocks too large to lie between two kept frames.
    fn large(&self) -> Result<f64, String> {
        let indices = fragmentation(self.system)?;
        let order = self.recipe.fragment.keep.largest_order() + 1;
        let of = indices.iter().find(|of| of.order == order);
        Ok(of.map_or(0.0, |of| 1.0 - of.index))
    }
}

fn whole(length: Bytes) -> Part {
    Part {
        offset: Bytes(0),
        length,
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
    use stopgap_kernel::memory::Memory;
    use stopgap_kernel::tasks::{ChildLimits, Tasks};
    use stopgap_testing::{Skip, skip};

    fn recipe(pinned: bool) -> Recipe {
        Recipe {
            fragment: Fragment {
                keep: Ratio::new(4).unwrap(),
                pinned,
            },
            through: Bytes::mib(40),
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
            return skip(&Skip::root("page frames of a child"));
        }
        let limits = ChildLimits::within(Nanos::secs(20));
        for pinned in [false, true] {
            let outcome = Linux.run_child(&limits, &mut || {
                let mut seen = None;
                let made = hold(&Linux, &recipe(pinned), &|| false, &mut |built| {
                    seen = Some((built.clone(), fourth(40 << 20)));
                });
                crate::runner::encode(&(made, seen))
            });
            let (made, seen) = crate::runner::decode::<Sent>(&outcome.unwrap()).unwrap();
            made.unwrap();
            let (built, fourth) = seen.unwrap();
            assert_eq!(built.split, 40 << 20);
            assert_eq!(fourth.len() as u64 * Linux.page_size().0, built.kept);
            assert!(built.kept > 0 && built.kept < built.split, "{built:?}");
            assert!(fourth.iter().all(|&fourth| fourth));
            assert_eq!(built.pinned, if pinned { built.kept } else { 0 });
        }
    }

    #[test]
    fn it_stops_when_told_and_when_memory_is_short() {
        let said = |recipe: Recipe, stop: bool| {
            let limits = ChildLimits::within(Nanos::secs(20));
            let outcome = Linux.run_child(&limits, &mut || {
                crate::runner::encode(&hold(&Linux, &recipe, &|| stop, &mut |_| ()))
            });
            crate::runner::decode::<Result<(), String>>(&outcome.unwrap()).unwrap()
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
