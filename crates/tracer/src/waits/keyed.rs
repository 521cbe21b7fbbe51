//! Maps whose keys are numbers. A wait is looked up in ten of them; the hash of the standard library would take half of the
//! time that decoding has.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map by numbers.
pub(super) type Keyed<K, V> = HashMap<K, V, Folding>;

/// Hashes numbers by multiplications that are folded, from a seed of its own: a program chooses its stack pointers, and must
/// not know which of them collide.
#[derive(Debug, Clone)]
pub(super) struct Folding {
    seed: u64,
}

impl Default for Folding {
    fn default() -> Folding {
        Folding {
            seed: RandomState::new().hash_one(0) | 1,
        }
    }
}

impl BuildHasher for Folding {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded {
            state: self.seed,
            seed: self.seed,
        }
    }
}

#[derive(Debug)]
pub(super) struct Folded {
    state: u64,
    seed: u64,
}

impl Folded {
    fn add(&mut self, number: u64) {
        // The golden ratio, so that a key of 0 does not leave the state at 0.
        const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = self.state ^ number.wrapping_add(RATIO);
        let product = u128::from(mixed) * u128::from(self.seed);
        self.state = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        // The map takes its groups by the low bits and its tags by the high ones.
        self.state.rotate_left(26)
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }
    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }
    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }
    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }
    fn write_isize(&mut self, number: isize) {
        self.add(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thread ids, and addresses of stacks that lie 16 bytes or a page apart: few share a bucket.
    #[test]
    fn near_numbers_lie_far_apart() {
        let hash = Folding::default();
        for step in [1_u64, 16, 4096, 1 << 32] {
            let mut buckets = vec![0_u32; 4096];
            for number in 0..4096 {
                let at = hash.hash_one((7_u32, 0x7ffd_0000_0000 + step * number));
                buckets[(at % 4096) as usize] += 1;
            }
            let most = buckets.iter().max().copied().unwrap_or_default();
            assert!(most <= 12, "{most} of step {step} in one bucket");
        }
    }
}
