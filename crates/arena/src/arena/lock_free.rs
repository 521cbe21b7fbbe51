//! What threads share without a lock, and the lock: small pieces, each with loom tests.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p stopgap-arena --release --lib lock_free
//! ```
//!
//! runs those tests: loom carries each out in every order that the memory model allows (up to its bound on
//! pre-emptions). The rest of the arena is not compiled then.

#![cfg_attr(loom, allow(dead_code))]

pub(crate) mod lock;
pub(crate) mod marks;
pub(crate) mod owners;
pub(crate) mod strays;
mod sync;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
