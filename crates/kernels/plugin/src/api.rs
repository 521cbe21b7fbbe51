//! QEMU's plugin interface, as much of it as is used here.
//!
//! Lineage: `docs/devel/tcg-plugins.rst` and `include/qemu/qemu-plugin.h` of QEMU 7.2, where the interface's version
//! is 1. Names, types and order of arguments are facts of that interface; the words here are ours. Later versions
//! that still list 1 as supported (`version.min`) load it too; from 9.0 on the smallest is 2 and they refuse.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The version of the interface that this library is written for.
pub(crate) const VERSION: c_int = 1;

/// How QEMU names a loaded plugin.
pub(crate) type Id = u64;

/// QEMU's description of itself, valid during the installation.
#[repr(C)]
pub(crate) struct Info {
    /// The guest's architecture, as in `qemu-system-...`.
    pub(crate) target_name: *const c_char,
    /// The smallest interface version that is supported.
    pub(crate) version_min: c_int,
    /// The newest.
    pub(crate) version_now: c_int,
    /// A machine, not a program.
    pub(crate) system_emulation: bool,
    /// CPUs at the start; only of a machine.
    pub(crate) cpus: c_int,
    /// CPUs that there can be; only of a machine.
    pub(crate) cpus_at_most: c_int,
}

/// A block while it is translated.
#[repr(C)]
pub(crate) struct Tb {
    opaque: [u8; 0],
}

/// An instruction of such a block.
#[repr(C)]
pub(crate) struct Insn {
    opaque: [u8; 0],
}

/// A callback reads no register of the guest. Version 1 has no way to.
pub(crate) const NO_REGISTERS: c_uint = 0;
/// The one operation that is done without a call: an addition.
pub(crate) const ADD_U64: c_uint = 0;
/// Loads only.
pub(crate) const LOADS: c_uint = 1;
/// Stores only.
pub(crate) const STORES: c_uint = 2;

pub(crate) type Translated = extern "C" fn(Id, *mut Tb);
pub(crate) type Executed = extern "C" fn(c_uint, *mut c_void);
pub(crate) type Accessed = extern "C" fn(c_uint, u32, u64, *mut c_void);
pub(crate) type Ended = extern "C" fn(Id, *mut c_void);

unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, call: Translated);
    pub(crate) fn qemu_plugin_register_atexit_cb(id: Id, call: Ended, data: *mut c_void);
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut Tb,
        call: Executed,
        flags: c_uint,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        call: Executed,
        flags: c_uint,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_inline(
        insn: *mut Insn,
        op: c_uint,
        to: *mut c_void,
        what: u64,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        call: Accessed,
        flags: c_uint,
        which: c_uint,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(tb: *const Tb, at: usize) -> *mut Insn;
    pub(crate) fn qemu_plugin_insn_data(insn: *const Insn) -> *const c_void;
    pub(crate) fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub(crate) fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
}
