//! How much of the caller's stack each interposed call takes: called on a painted stack of its own.

#![allow(unsafe_code)]

use std::ffi::c_int;

const PAGE: usize = 4096;
/// Longer than any call may need: what it takes is looked at, not made to fail.
const STACK: usize = 256 << 10;
const PAINT: u8 = 0xa5;

struct Painted {
    stack: Vec<u8>,
    deepest: usize,
    calls: usize,
}

/// Calls `function` with `arguments` on the stack that ends at `top`.
#[cfg(target_arch = "x86_64")]
unsafe fn call_on(top: *mut u8, function: usize, arguments: [usize; 6]) -> usize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result;
    // SAFETY: the caller's; the old stack pointer lies in a register that the function saves.
    unsafe {
        std::arch::asm!(
            "xchg rsp, r12",
            "call rax",
            "mov rsp, r12",
            inout("r12") top => _,
            inout("rax") function => result,
            in("rdi") first, in("rsi") second, in("rdx") third, in("rcx") fourth, in("r8") fifth, in("r9") sixth,
            clobber_abi("C"),
        );
    }
    result
}

/// Calls `function` with `arguments` on the stack that ends at `top`.
#[cfg(target_arch = "aarch64")]
unsafe fn call_on(top: *mut u8, function: usize, arguments: [usize; 6]) -> usize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result;
    // SAFETY: the caller's; the old stack pointer lies in a register that the function saves.
    unsafe {
        std::arch::asm!(
            "mov x21, sp",
            "mov sp, x20",
            "blr x22",
            "mov sp, x21",
            in("x20") top, in("x22") function, out("x21") _,
            inout("x0") first => result,
            in("x1") second, in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth,
            clobber_abi("C"),
        );
    }
    result
}

impl Painted {
    fn call(&mut self, function: usize, arguments: [usize; 6]) -> usize {
        self.stack.fill(PAINT);
        let end = self.stack.as_mut_ptr_range().end;
        // As the ABI wants it before a call.
        let top = end.wrapping_sub(end as usize % 16);
        // SAFETY: a function of libc's type with these arguments, on a stack that is ours and long enough.
        let result = unsafe { call_on(top, function, arguments) };
        let untouched = self.stack.iter().take_while(|byte| **byte == PAINT);
        self.deepest = self.deepest.max(STACK - untouched.count());
        self.calls += 1;
        result
    }

    fn map(&mut self, at: usize, pages: usize, flags: c_int) -> usize {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        let arguments = [at, pages * PAGE, 3, flags as usize, usize::MAX, 0];
        self.call(libc::mmap as *const () as usize, arguments)
    }

    fn unmap(&mut self, at: usize, pages: usize) {
        let done = self.call(
            libc::munmap as *const () as usize,
            [at, pages * PAGE, 0, 0, 0, 0],
        );
        assert_eq!(done as c_int, 0);
    }
}

/// Makes every kind of call, the very first map among them, and returns what the deepest took, as `deepest BYTES`.
pub(crate) fn deepest() -> String {
    // Nothing was mapped through the library yet, or little: the test harness's thread.
    let mut painted = Painted {
        stack: vec![0; STACK],
        deepest: 0,
        calls: 0,
    };
    let first = painted.map(0, 1, 0);
    let of_the_first = painted.deepest;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut live: Vec<(usize, usize)> = vec![(first, 1)];
    for _ in 0..6_000 {
        let pages = match next(8) {
            0 => 1 + next(2048),
            1 | 2 => 1 + next(200),
            _ => 1 + next(8),
        };
        let of_all = live.len();
        match next(10) {
            0..5 => {
                let at = painted.map(0, pages, 0);
                assert_ne!(at, usize::MAX);
                // SAFETY: mapped just now.
                unsafe { std::ptr::write_bytes(at as *mut u8, 1, pages.min(4) * PAGE) };
                live.push((at, pages));
            }
            5..8 if of_all > 0 => {
                let (at, pages) = live.swap_remove(next(of_all));
                painted.unmap(at, pages);
            }
            8 if of_all > 0 => {
                // The middle of a map goes, and its parts after it.
                let (at, pages) = live.swap_remove(next(of_all));
                painted.unmap(at + pages / 2 * PAGE, 1);
                painted.unmap(at, pages);
            }
            9 if of_all > 0 => {
                let (at, pages) = live[next(of_all)];
                let length = pages * PAGE;
                match next(6) {
                    0 => {
                        painted.call(
                            libc::mprotect as *const () as usize,
                            [at, length, 3, 0, 0, 0],
                        );
                    }
                    1 => {
                        let function = libc::madvise as *const () as usize;
                        painted.call(
                            function,
                            [at, length, libc::MADV_DONTDUMP as usize, 0, 0, 0],
                        );
                    }
                    2 => {
                        painted.call(libc::mlock as *const () as usize, [at, PAGE, 0, 0, 0, 0]);
                    }
                    3 => {
                        assert_eq!(painted.map(at, pages, libc::MAP_FIXED), at);
                    }
                    _ => {
                        let new = pages + 3;
                        let to = painted.call(
                            libc::mremap as *const () as usize,
                            [at, length, new * PAGE, libc::MREMAP_MAYMOVE as usize, 0, 0],
                        );
                        if to != usize::MAX {
                            live.retain(|map| *map != (at, pages));
                            live.push((to, new));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    for (at, pages) in std::mem::take(&mut live) {
        painted.unmap(at, pages);
    }
    format!(
        "the first map took {of_the_first} bytes, of {} calls the deepest:\ndeepest {}",
        painted.calls, painted.deepest
    )
}
