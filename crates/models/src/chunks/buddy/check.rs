//! The invariants of [`Buddy`], carried out.

use super::words::{BLOCK_ORDER, MAX_ORDER, Mobility, ORDERS, Use};
use super::{Buddy, Cell};

impl Buddy {
    /// Whether everything is as [`Buddy`] says. O(pages).
    ///
    /// # Errors
    /// The first thing that is not: frame, order and what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let mut used = [0u64; Use::ALL.len()];
        let mut blocks = [[0u64; Mobility::ALL.len()]; ORDERS];
        let mut frame = 0;
        while frame < self.cells.len() {
            let cell = self.cells.get(frame);
            if let Some(of) = cell.usage() {
                used[of as usize] += 1;
                frame += 1;
                continue;
            }
            let Some((order, mobility)) = cell.heads() else {
                return Err(format!("frame {frame} is inside of no free block"));
            };
            self.check_block(frame, order, mobility)?;
            blocks[order as usize][mobility as usize] += 1;
            frame += 1 << order;
        }
        if used != self.used {
            return Err(format!("{used:?} pages are used, {:?} counted", self.used));
        }
        for order in 0..=MAX_ORDER {
            for &mobility in Mobility::ALL {
                let met = blocks[order as usize][mobility as usize];
                let (counted, listed) = (
                    self.free_blocks_of(order, mobility),
                    self.free_list(order, mobility).len() as u64,
                );
                if (counted, listed) != (met, met) {
                    return Err(format!(
                        "order {order}, {mobility}: {met} free blocks, {listed} on the list, {counted} counted"
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_block(&self, frame: u32, order: u32, mobility: Mobility) -> Result<(), String> {
        let what = format!("the free block of order {order}, {mobility}, at frame {frame}");
        if order > MAX_ORDER || !frame.is_multiple_of(1 << order) {
            return Err(format!("{what} is not aligned"));
        }
        let pages = self.cells.len();
        if pages - frame < 1 << order {
            return Err(format!("{what} leaves the memory of {pages} pages"));
        }
        let inside = frame + 1..frame + (1 << order);
        if let Some(page) = inside
            .clone()
            .find(|&page| self.cells.get(page) != Cell::INSIDE)
        {
            return Err(format!("frame {page} is not inside of {what}"));
        }
        let buddy = frame ^ (1 << order);
        if order < MAX_ORDER && buddy < pages {
            let heads = self.cells.get(buddy).heads();
            if heads.is_some_and(|(free, _)| free == order) {
                return Err(format!("{what} and its buddy are not one"));
            }
        }
        for block in (frame..frame + (1 << order)).step_by(1 << BLOCK_ORDER) {
            if self.mobility(block) != mobility && (order >= BLOCK_ORDER || !self.old) {
                return Err(format!("{what} is in a block of the other type"));
            }
        }
        Ok(())
    }
}
