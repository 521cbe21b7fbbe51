//! Which physical pages a buffer gets, and what getting them costs: a model of the kernel's memory.
//!
//! * [`buddy`]: the memory itself: free lists, migrate types, watermarks.

pub mod buddy;
