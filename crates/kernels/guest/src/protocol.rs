//! The plan that a guest gets and the lines that it writes: the types that both sides share.
//!
//! A guest is a kernel in emulation whose only program is `stopgap-guest`. It reads a [`Plan`] from
//! its initramfs ([`PLAN`]), the number of its layout sample from its kernel's command line
//! ([`SEED`]), carries the [`Work`] of each [`Cell`] out, counts guest instructions, and says
//! [`Line`]s on its serial port. Whoever started it hands what came to [`Transcript::read`].
//!
//! ```text
//! plan.json, modules, programs -> initramfs -> guest -> serial port -> Transcript -> who compares
//!                                                ^
//!                         stopgap.seed=N on the kernel's command line
//! ```
//!
//! The unit is *guest instructions*, never time ([`Unit`]); counts are exact ([`Counts`]): which
//! value, how often, no buckets. Two boots of one sample must give the same lines but for nothing.
//!
//! **A line that came through torn is an error, never skipped**: each carries the CRC-32 of its
//! text, and the last one says how many there were.

mod counts;
mod dma;
mod line;
mod plan;
mod suite;
#[cfg(test)]
mod tests;
mod transcript;

pub use counts::{Counts, median};
pub use dma::{DMA, Dma, Entries, Known};
pub use line::{Counted, Hello, Line, MARKER, Place, Ran, Unit};
pub use plan::{Cell, Device, PLAN, Plan, SEED, VERSION, Work};
pub use suite::{chosen, devices, standard, words};
pub use transcript::Transcript;
