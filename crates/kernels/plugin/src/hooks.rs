//! The functions that QEMU calls, and the callbacks that we register when it translates.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ptr::{from_ref, null_mut, without_provenance_mut};
use std::slice;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("addresses of the guest are handed over as pointers: a host of 64 bits");

use crate::api::{
    self, NO_REGISTERS, qemu_plugin_insn_size as size, qemu_plugin_insn_vaddr as address,
    qemu_plugin_register_vcpu_insn_exec_cb as on_instruction,
    qemu_plugin_register_vcpu_insn_exec_inline as count_instruction,
    qemu_plugin_register_vcpu_mem_cb as on_access,
    qemu_plugin_register_vcpu_tb_exec_cb as on_block, qemu_plugin_tb_get_insn as instruction,
};
use crate::code::{Kind, Mark, kind};
use crate::counts::{Block, Recorder, of_kernel};
use crate::file;

/// The version of the interface that this library was written for: QEMU reads it before anything else.
#[unsafe(no_mangle)]
pub(crate) static qemu_plugin_version: c_int = api::VERSION;

#[derive(Default)]
struct State {
    recorder: Recorder,
    /// All blocks, by their numbers.
    blocks: Vec<&'static Block>,
    /// By where they start and their instructions' bytes: QEMU translates a block again after a flush, and a kernel
    /// patches its own code.
    known: HashMap<(u64, Vec<u8>, Kind), &'static Block>,
    out: String,
}

struct Shared(UnsafeCell<Option<State>>);

// SAFETY: see `state`.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(None));

/// Instructions begun: code that QEMU generates adds to it, in the thread that runs the guest's CPU.
struct Counter(UnsafeCell<u64>);

// SAFETY: only the CPU's thread writes it or reads it.
unsafe impl Sync for Counter {}

static COUNTER: Counter = Counter(UnsafeCell::new(0));

fn counter() -> u64 {
    // SAFETY: only the CPU's thread gets here, and it is not in generated code now.
    unsafe { COUNTER.0.get().read_volatile() }
}

/// The state, for the length of `body`.
fn state(body: impl FnOnce(&mut State)) {
    // SAFETY: nobody else has it. Translations and executions come from the thread of the guest's one CPU
    // (`qemu_plugin_install` refuses more), one after the other, and none of them is called by what `body` does. The
    // installation comes before that thread is made; the end comes from exit(3) in the main thread, after QEMU has
    // stopped the CPU (`qemu_cleanup`, `vm_shutdown`).
    if let Some(state) = unsafe { &mut *STATE.0.get() } {
        body(state);
    }
}

/// Says a line on standard error, which is QEMU's: its own log is off unless asked for.
fn say(text: &str) {
    // Where nobody listens there is nobody to tell.
    let _ = writeln!(io::stderr(), "stopgap plugin: {text}");
}

/// QEMU loads the plugin: refuses the machine or the arguments, or registers the callbacks.
///
/// # Safety
/// `info` is QEMU's, and `argv` has `argc` strings that end in 0: what its interface promises.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn qemu_plugin_install(
    id: api::Id,
    info: *const api::Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let (info, target) = unsafe { (&*info, CStr::from_ptr((*info).target_name)) };
    let words = (0..usize::try_from(argc).unwrap_or(0)).map(|at| {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(*argv.add(at)) }
            .to_string_lossy()
            .into_owned()
    });
    match accept(info, target, words) {
        Ok(state) => {
            // SAFETY: the guest has not started, so nothing else is called yet.
            unsafe { *STATE.0.get() = Some(state) };
            // SAFETY: both functions live as long as QEMU: a plugin that never asks for it is never unloaded.
            unsafe {
                api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
                api::qemu_plugin_register_atexit_cb(id, ended, null_mut());
            }
            0
        }
        Err(why) => {
            say(&why);
            1
        }
    }
}

fn accept(
    info: &api::Info,
    target: &CStr,
    words: impl Iterator<Item = String>,
) -> Result<State, String> {
    let target = target.to_string_lossy();
    if target != "x86_64" || !info.system_emulation {
        return Err(format!(
            "unsupported: a guest of {target}; calls and marks are known of x86-64 machines only"
        ));
    }
    if info.cpus_at_most != 1 {
        let cpus = info.cpus_at_most;
        return Err(format!(
            "unsupported: {cpus} CPUs; instructions are counted of one (-smp 1)"
        ));
    }
    let mut state = State::default();
    for word in words {
        match word.split_once('=') {
            Some(("out", path)) if !path.is_empty() => path.clone_into(&mut state.out),
            _ => return Err(format!("'{word}': out=FILE is all there is to say")),
        }
    }
    if state.out.is_empty() {
        return Err("out=FILE must say where the counts go".to_owned());
    }
    // A file that cannot be written shows now, not after the boot.
    File::create(&state.out).map_err(|error| format!("{}: {error}", state.out))?;
    Ok(state)
}

/// A number that a callback gets back as its pointer.
fn number(value: u64) -> *mut c_void {
    without_provenance_mut(value as usize)
}

/// The bytes of an instruction.
///
/// # Safety
/// The instruction is of the block that is being translated, and the bytes are not kept.
unsafe fn bytes<'a>(insn: *const api::Insn) -> &'a [u8] {
    // SAFETY: QEMU hands over so many bytes, valid while the block is translated: the caller's promise.
    unsafe {
        let bytes = api::qemu_plugin_insn_data(insn).cast::<u8>();
        slice::from_raw_parts(bytes, size(insn))
    }
}

/// QEMU has translated a block: registers the callbacks that count it.
extern "C" fn translated(_: api::Id, tb: *mut api::Tb) {
    // SAFETY: `tb` and its instructions are valid during this call, and so are each instruction's bytes. What is handed
    // over as data is a block that is never freed, a number, or the counter, which is static.
    state(|state| unsafe {
        let count = api::qemu_plugin_tb_n_insns(tb);
        let instructions: Vec<_> = (0..count).map(|at| instruction(tb, at)).collect();
        let (Some(&first), Some(&last)) = (instructions.first(), instructions.last()) else {
            return;
        };
        let sizes = instructions.iter();
        // 15 bytes at most.
        let sizes = sizes.map(|&insn| u8::try_from(size(insn)).unwrap_or(u8::MAX));
        let block = state.block(address(first), sizes.collect(), kind(bytes(last)));
        let data = from_ref(block).cast_mut().cast();
        on_block(tb, starts, NO_REGISTERS, data);
        for insn in instructions {
            count_instruction(insn, api::ADD_U64, COUNTER.0.get().cast(), 1);
            let at = address(insn);
            match (kind(bytes(insn)), of_kernel(at)) {
                (Kind::Mark(mark), false) => {
                    let data = number(u64::from(mark.displacement()));
                    on_instruction(insn, marked, NO_REGISTERS, data);
                }
                (Kind::Call, true) => {
                    let data = number(at.wrapping_add(size(insn) as u64).wrapping_sub(1));
                    on_access(insn, called, NO_REGISTERS, api::STORES, data);
                }
                (Kind::Return, true) => {
                    on_access(insn, returned, NO_REGISTERS, api::LOADS, null_mut());
                }
                _ => {}
            }
        }
    });
}

impl State {
    /// The block of these instructions, the one from before if there is one.
    fn block(&mut self, start: u64, sizes: Vec<u8>, last: Kind) -> &'static Block {
        let key = (start, sizes, last);
        if let Some(block) = self.known.get(&key) {
            return block;
        }
        let block: &'static Block = Box::leak(Box::new(Block {
            // Saturated only after four billion blocks, more than there is memory for.
            number: u32::try_from(self.blocks.len()).unwrap_or(u32::MAX),
            start,
            sizes: key.1.clone(),
            last,
        }));
        self.blocks.push(block);
        self.known.insert(key, block);
        block
    }
}

extern "C" fn starts(_: c_uint, block: *mut c_void) {
    // SAFETY: what `translated` registered: a block that is never freed and never written.
    let block: &'static Block = unsafe { &*block.cast::<Block>() };
    state(|state| state.recorder.starts(block, counter()));
}

extern "C" fn marked(_: c_uint, mark: *mut c_void) {
    state(|state| {
        if let Some(mark) = u32::try_from(mark.addr()).ok().and_then(Mark::of) {
            state.recorder.mark(mark, counter());
        }
    });
}

extern "C" fn called(_: c_uint, _: u32, slot: u64, site: *mut c_void) {
    state(|state| state.recorder.call(slot, site.addr() as u64));
}

extern "C" fn returned(_: c_uint, _: u32, slot: u64, _: *mut c_void) {
    state(|state| state.recorder.ret(slot));
}

/// QEMU ends.
extern "C" fn ended(_: api::Id, _: *mut c_void) {
    state(|state| {
        state.recorder.finish();
        let written = File::create(&state.out).and_then(|file| {
            file::write(&mut BufWriter::new(file), &state.recorder, &state.blocks)
        });
        if let Err(error) = written {
            say(&format!("{}: {error}", state.out));
        }
    });
}
