use super::TlbError;

/// Bytes that a device reads at once.
pub const BURST: u64 = 64;

/// A buffer seen as an image of 4 bytes a pixel, so that a burst is 16 pixels of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// Bytes of the buffer; what is left behind the last whole row is not read.
    pub bytes: u64,
    /// Bytes from a row to the next; a multiple of 64.
    pub pitch: u64,
}

impl Image {
    pub(super) fn check(self) -> Result<(), TlbError> {
        let Image { bytes, pitch } = self;
        if pitch == 0 || !pitch.is_multiple_of(BURST) {
            return Err(TlbError::Pitch { pitch });
        }
        if bytes < pitch {
            return Err(TlbError::NoRow { bytes, pitch });
        }
        Ok(())
    }

    fn rows(self) -> u64 {
        self.bytes / self.pitch
    }

    /// Bytes of the whole rows.
    pub(super) fn bytes_read(self) -> u64 {
        self.rows() * self.pitch
    }

    pub(super) fn bursts(self) -> u64 {
        self.bytes_read() / BURST
    }
}

/// In which order a device reads the bursts of an image. All read as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Row by row: scan-out, and in the main video decoding.
    Linear,
    /// Down each column of bursts: rotation by 90 or 270 degrees.
    Rotate90,
    /// Anywhere, with repetitions.
    Random {
        /// The same seed gives the same accesses.
        seed: u64,
    },
}

impl Access {
    /// Hands the offset of every burst to `visit`. The image has been checked.
    pub(super) fn each(self, image: Image, mut visit: impl FnMut(u64)) {
        match self {
            Access::Linear => (0..image.bursts()).for_each(|burst| visit(burst * BURST)),
            Access::Rotate90 => {
                for column in (0..image.pitch).step_by(BURST as usize) {
                    (0..image.rows()).for_each(|row| visit(row * image.pitch + column));
                }
            }
            Access::Random { seed } => {
                let mut state = seed;
                for _ in 0..image.bursts() {
                    visit(below(image.bursts(), &mut state) * BURST);
                }
            }
        }
    }
}

/// A number below `bound`; that its remainder is a trace uneven (2^28 / 2^64 at most) is no harm. The
/// generator is SplitMix64.
fn below(bound: u64, state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)) % bound
}
