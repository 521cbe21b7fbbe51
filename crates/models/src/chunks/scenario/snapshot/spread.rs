//! Free blocks at random places, so many of each order.

use std::ops::Range;

use stopgap_events::random::Random;

use super::super::super::buddy::ORDERS;
use super::Block;

const LARGEST: u32 = ORDERS as u32 - 1;

/// Places `counts[order]` blocks of each order in `frames`, each aligned to its size, so that no two make a larger
/// one. An order above 10 counts as several blocks of order 10. O(frames).
///
/// From the largest order down: a block is one half of a place of twice its size of which nothing is free yet. The
/// other half serves lower orders, of which again only halves become free.
///
/// # Errors
/// The largest order of which there are too many.
pub(super) fn spread(
    frames: Range<u64>,
    counts: &[u64],
    random: &mut Random,
) -> Result<Vec<Block>, usize> {
    let mut blocks = Vec::new();
    let mut places: Vec<u64> = within(&frames, LARGEST).step_by(1 << LARGEST).collect();
    for _ in 0..largest(counts)? {
        if places.is_empty() {
            return Err(LARGEST as usize);
        }
        let frame = places.swap_remove(random.index(places.len()));
        blocks.push((frame, LARGEST));
    }
    for order in (0..LARGEST).rev() {
        let size = 1 << order;
        // The first and the last part of `frames` belong to no place of twice their size.
        let (all, doubles) = (within(&frames, order), within(&frames, order + 1));
        let mut edges: Vec<u64> = all
            .step_by(1 << order)
            .filter(|frame| !doubles.contains(frame))
            .collect();
        let mut rest = Vec::new();
        for _ in 0..counts.get(order as usize).copied().unwrap_or(0) {
            let available = edges.len() + places.len();
            if available == 0 {
                return Err(order as usize);
            }
            let at = random.index(available);
            if at < edges.len() {
                blocks.push((edges.swap_remove(at), order));
            } else {
                let double = places.swap_remove(at - edges.len());
                let half = random.below(2) * size;
                blocks.push((double + half, order));
                rest.push(double + (size - half));
            }
        }
        rest.append(&mut edges);
        rest.extend(places.iter().flat_map(|&double| [double, double + size]));
        places = rest;
    }
    Ok(blocks)
}

/// Blocks of order 10 that those of order 10 and above are.
fn largest(counts: &[u64]) -> Result<u64, usize> {
    let mut sum: u64 = 0;
    for (order, &count) in counts.iter().enumerate().skip(LARGEST as usize) {
        let each = 1_u64.checked_shl(order as u32 - LARGEST);
        let blocks = if count == 0 {
            Some(0)
        } else {
            each.and_then(|each| count.checked_mul(each))
        };
        sum = blocks
            .and_then(|blocks| blocks.checked_add(sum))
            .ok_or(order)?;
    }
    Ok(sum)
}

/// From the first to the end of the last place of `order` in `frames`.
fn within(frames: &Range<u64>, order: u32) -> Range<u64> {
    let size = 1 << order;
    let start = frames.start.div_ceil(size) * size;
    start..(frames.end / size * size).max(start)
}
