use std::fmt::{Debug, Display};

use crate::chunks::buddy::{Buddy, BuddyError, Mobility, Piece, Use};

use super::Naive;

/// One step: what changes the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// [`Buddy::allocate`].
    Take(u32, Mobility, Use),
    /// [`Buddy::allocate_at`].
    TakeAt(u64, Use),
    /// [`Buddy::free`].
    Give(u64, u32),
    /// [`Buddy::set_use`].
    SetUse(u64, Use),
    /// [`Buddy::set_block_mobility`].
    SetBlock(u64, Mobility),
}

/// A [`Buddy`] and a [`Naive`] that take the same steps.
pub struct Pair {
    buddy: Buddy,
    naive: Naive,
}

impl Pair {
    /// Memory of `pages` pages: used as `of`, or free.
    ///
    /// # Errors
    /// As [`Buddy::new`].
    pub fn new(pages: u64, of: Option<Use>) -> Result<Pair, BuddyError> {
        Ok(match of {
            Some(of) => Pair {
                buddy: Buddy::new(pages, of)?,
                naive: Naive::new(pages, of)?,
            },
            None => Pair {
                buddy: Buddy::all_free(pages)?,
                naive: Naive::all_free(pages)?,
            },
        })
    }

    /// The same two with the fallback of 3.14.
    #[must_use]
    pub fn of_3_14(self) -> Pair {
        Pair {
            buddy: self.buddy.of_3_14(),
            naive: self.naive.of_3_14(),
        }
    }

    /// The memory.
    #[must_use]
    pub fn buddy(&self) -> &Buddy {
        &self.buddy
    }

    /// Carries `step` out on both: the frame that was taken (`None`: nothing large enough), or for the other steps what
    /// was wrong with it.
    ///
    /// # Errors
    /// The first difference: in the answer, the number of free pages or of fallbacks.
    pub fn step(&mut self, step: Step) -> Result<Result<Option<u64>, BuddyError>, String> {
        let Pair { buddy, naive } = self;
        let (answer, right) = match step {
            Step::Take(order, mobility, of) => (
                Ok(buddy.allocate(order, mobility, of)),
                Ok(naive.allocate(order, mobility, of)),
            ),
            Step::TakeAt(frame, of) => (
                buddy.allocate_at(frame, of).map(|()| None),
                naive.allocate_at(frame, of).map(|()| None),
            ),
            Step::Give(frame, order) => (
                buddy.free(frame, order).map(|()| None),
                naive.free(frame, order).map(|()| None),
            ),
            Step::SetUse(frame, of) => (
                buddy.set_use(frame, of).map(|()| None),
                naive.set_use(frame, of).map(|()| None),
            ),
            Step::SetBlock(frame, mobility) => (
                buddy.set_block_mobility(frame, mobility).map(|()| None),
                naive.set_block_mobility(frame, mobility).map(|()| None),
            ),
        };
        let same = || {
            same("answer", &answer, &right)?;
            same("free pages", &buddy.free_pages(), &naive.free_pages())?;
            same("fallbacks", &buddy.fallbacks(), &naive.fallbacks())
        };
        same().map_err(|what| format!("{step:?}: {what}"))?;
        Ok(answer)
    }

    /// Compares all that the two can say, and carries the invariants out. O(pages).
    ///
    /// # Errors
    /// The first difference, or the first thing that is not as it must be.
    pub fn compare(&self) -> Result<(), String> {
        let Pair { buddy, naive } = self;
        buddy.check()?;
        for frame in 0..=buddy.pages() {
            let (has, right) = (buddy.page(frame), naive.page(frame));
            same(format_args!("page {frame}"), &has, &right)?;
        }
        for frame in (0..buddy.pages()).step_by(512) {
            let (has, right) = (buddy.block_mobility(frame), naive.block_mobility(frame));
            same(format_args!("type at {frame}"), &has, &right)?;
        }
        let free = buddy.free_pages();
        for order in 0..12 {
            for &mobility in Mobility::ALL {
                let right = naive.free_list(order, mobility);
                let has = buddy.free_list(order, mobility);
                same(
                    format_args!("list of order {order}, {mobility}"),
                    &has,
                    &right,
                )?;
                let (has, right) = (buddy.free_blocks_of(order, mobility), right.len() as u64);
                same(
                    format_args!("list of order {order}, {mobility}"),
                    &has,
                    &right,
                )?;
            }
            let (has, right) = (buddy.unusable_index(order), naive.unusable_index(order));
            same(
                format_args!("unusable index of order {order}"),
                &has,
                &right,
            )?;
            let below = free.saturating_sub(1 << order);
            for min in [0, 1, free / 4, free / 2, below, u64::MAX] {
                let reserve = min / 3;
                let has = (
                    buddy.watermark_ok_3_4(order, min, reserve),
                    buddy.watermark_ok_6_12(order, min, reserve),
                );
                let right = (
                    naive.watermark_ok_3_4(order, min, reserve),
                    naive.watermark_ok_6_12(order, min, reserve),
                );
                same(
                    format_args!("watermarks {min}, order {order}"),
                    &has,
                    &right,
                )?;
            }
        }
        for &of in Use::ALL {
            let (has, right) = (buddy.used_pages(of), naive.used_pages(of));
            same(format_args!("pages used, {of}"), &has, &right)?;
        }
        let mut next = 0;
        for piece in buddy.walk(0..u64::MAX) {
            let (frame, pages) = match piece {
                Piece::Free { frame, order } => (frame, 1 << order),
                Piece::Used { frame, .. } => (frame, 1),
            };
            same(format_args!("{piece:?} of the walk"), &frame, &next)?;
            next += pages;
        }
        same("end of the walk", &next, &buddy.pages())
    }
}

fn same<T: PartialEq + Debug>(what: impl Display, has: &T, right: &T) -> Result<(), String> {
    if has == right {
        Ok(())
    } else {
        Err(format!("{what}: {has:?}, but {right:?} is right"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages of one list in the other order keep every invariant; only the comparison sees it.
    #[test]
    fn the_order_of_a_list_is_compared() {
        let mut pair = Pair::new(16, Some(Use::Movable)).unwrap();
        for frame in [3, 6, 9] {
            pair.step(Step::Give(frame, 0)).unwrap().unwrap();
        }
        pair.compare().unwrap();
        pair.buddy.allocate_at(6, Use::Movable).unwrap();
        pair.buddy.free(6, 0).unwrap();
        pair.buddy.check().unwrap();
        let found = pair.compare().unwrap_err();
        assert!(found.contains("list of order 0"), "{found}");
        let step = Step::Take(0, Mobility::Movable, Use::Movable);
        let found = pair.step(step).unwrap_err();
        assert!(
            found.contains("Some(6)") && found.contains("Some(9)"),
            "{found}"
        );
    }
}
