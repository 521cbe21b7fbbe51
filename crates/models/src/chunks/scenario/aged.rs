//! A memory that was long in use: allocations and frees at random, four times as many as fill it.
//!
//! Three of four requests are for one page, three of four of the rest for two, and so on; one in five is unmovable.
//! Once all but a fiftieth is used, what was taken is given back in random order, as much as is taken; at the end more
//! of it, until a tenth is free. All these numbers are assumptions: this is a state to try a policy on, not a claim about
//! machines.

use stopgap_events::random::Random;

use super::super::buddy::{Buddy, Mobility, ORDERS, Use};
use super::super::machine::MachineError;

pub(super) fn memory(pages: u64, seed: u64) -> Result<Buddy, MachineError> {
    let mut buddy = Buddy::all_free(pages)?;
    let mut random = Random::new(seed);
    let mut held: Vec<(u64, u32)> = Vec::new();
    let mut taken = 0;
    while taken < 4 * pages {
        let order = (random.bits().trailing_zeros() / 2).min(ORDERS as u32 - 1);
        let (mobility, of) = if random.below(5) == 0 {
            (Mobility::Unmovable, Use::Unmovable)
        } else {
            (Mobility::Movable, Use::Reclaimable)
        };
        if let Some(frame) = buddy.allocate(order, mobility, of) {
            held.push((frame, order));
        }
        taken += 1 << order;
        give_until(pages / 50, &mut buddy, &mut held, &mut random)?;
    }
    give_until(pages / 10, &mut buddy, &mut held, &mut random)?;
    Ok(buddy)
}

/// Gives chunks back at random until so many pages are free.
fn give_until(
    free: u64,
    buddy: &mut Buddy,
    held: &mut Vec<(u64, u32)>,
    random: &mut Random,
) -> Result<(), MachineError> {
    while buddy.free_pages() < free {
        let (frame, order) = held.swap_remove(random.index(held.len()));
        buddy.free(frame, order)?;
    }
    Ok(())
}
