//! C's way to the fixes of `stopgap-arena`: what `include/stopgap.h` declares.
//!
//! The header is the contract, the manual pages under `man/` explain it, and the `Makefile` beside them links
//! `libstopgap.so` of this crate's static library, with versioned symbols and no others (`stopgap.map`).
//!
//! What holds at every function:
//!
//! * It begins with `failure::enter`: `errno` is as it was where the function succeeds, and says why where it returns
//!   NULL or -1; a panic ends there as `ENOTRECOVERABLE`.
//! * A handle is no address but the name of a slot (`handle`). A handle that was never given out, was closed,
//!   or is of another kind is refused with `EBADF`; nothing is read through it.
//! * A struct that C hands over begins with its size (`given`), so that later versions may add to it.
//! * A function's pointers are as the header says; that is what `// SAFETY: the caller's promise` names.
//! * Nothing is called back: no frame of C's lies between two of ours, so no longjmp and no exception of C++ crosses
//!   one.
//!
//! Nothing here decides anything about memory: that is the arena's.
#![allow(unsafe_code)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("handles need pointers of 64 bits");

mod arena;
mod buffer;
mod channel;
mod failure;
mod given;
mod handle;
mod sched;
mod set;
#[cfg(test)]
mod tests;
