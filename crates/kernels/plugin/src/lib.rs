//! A TCG plugin for QEMU: which instructions of a guest's kernel a counted operation executed, and who called them.
//!
//! Build it with `cargo build --release -p stopgap-plugin`; it is then `target/release/libstopgap_plugin.so`, beside the
//! command, where `stopgap kernels` finds it. By hand:
//!
//! ```text
//! qemu-system-x86_64 -accel tcg,thread=single -icount shift=0,sleep=off ... -plugin file=libstopgap_plugin.so,out=FILE
//! ```
//!
//! # Contract
//!
//! * The guest is not changed by it: a boot with the plugin counts what a boot without it counts, to the instruction.
//! * Windows are what the guest marks (`stopgap_guest::mark`). FILE has, for each cell and operation: how many
//!   instructions each window took; and the kernel's instructions by block and chain of callers. What programs executed
//!   is the rest of the window. See `counts` for what is exact and why, `file` for the form.
//! * FILE is written when QEMU ends, also of itself or by SIGTERM; not when it is killed. One that was not written to
//!   its end says so by lacking its last line.
//!
//! # Rooms
//!
//! * `code`: marks, calls and returns by their bytes. * `stacks`: who called whom. * `counts`: what is counted.
//! * `file`: how it is written. * `api`: QEMU's interface. * `hooks`: what QEMU calls. All but the last two are pure.
//!
//! # Where it does not load
//!
//! * A QEMU built without plugins has no `-plugin`. One from 9.0 on refuses version 1 of the interface; one before 6.0
//!   knows no `out=`. x86-64 guests of one CPU only: other targets are refused by this library with a line that says so.
//!   In each case QEMU ends before the guest starts; counts need no plugin, only the answer to *which function* does.
//!
//! # Licence
//!
//! A plugin that is loaded becomes part of QEMU's process, and QEMU is under GPL-2.0-or-later: the two together are
//! under the GPL, which our licence (MIT, or Apache-2.0 together with GPL-3.0) allows. Nothing of QEMU is in this
//! folder: names and types of the interface are declared here from its documentation, in our words. Our command
//! starts QEMU as a program of its own and is not part of that.

mod code;
mod counts;
mod file;
mod stacks;

// In tests there is no QEMU to call.
#[cfg(not(test))]
mod api;
#[cfg(not(test))]
mod hooks;
