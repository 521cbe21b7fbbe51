//! Holding memory: *locked* (mlock, `SHM_LOCK`: it stays in memory but may still migrate) and
//! *pinned* (page references: it stays where it is). The two are never mixed up.

/// Ways to hold memory. Each is a method that the system carries out or refuses.
pub trait Holds {}
