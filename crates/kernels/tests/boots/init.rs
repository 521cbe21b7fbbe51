//! A guest's first process for the tests of `stopgap-kernels`: counts an operation, prints it, and ends as the command line asks
//! (`stopgap_end=` on the kernel's command line). Compiled by the test, statically.

use std::arch::asm;
use std::io::Write;

/// A system call without the library in between.
#[cfg(target_arch = "x86_64")]
fn call(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    let result;
    // SAFETY: the calls made here (mmap, munmap, reboot) touch no memory that this program uses.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") usize::MAX, in("r9") 0, out("rcx") _, out("r11") _);
    }
    result
}

fn now() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads the counter.
    unsafe { asm!("rdtscp", out("eax") low, out("edx") high, out("ecx") _) };
    u64::from(high) << 32 | u64::from(low)
}

fn main() {
    let end = std::env::var("stopgap_end").unwrap_or_default();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let map = || call(9, 0, 4096, 3, 0x22);
    let mut kept: Vec<isize> = (0..500).map(|_| map()).collect();
    let mut counts = Vec::new();
    for n in 0..2000 {
        let at = n * 7 % kept.len();
        let before = now();
        call(11, kept[at] as usize, 4096, 0, 0);
        kept[at] = map();
        counts.push(now() - before);
    }
    // FNV-1a over every count: one that differs shows.
    let hash = counts.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, count| {
        (hash ^ count).wrapping_mul(0x100_0000_01b3)
    });
    let sum: u64 = counts.iter().sum();
    println!("\n@stopgap counts {} {sum} {hash:016x} {:?} {}", counts.len(), kept[0] as *const u8, now());
    std::io::stdout().flush().unwrap();
    match end.as_str() {
        "hang" => loop {
            std::thread::sleep(std::time::Duration::from_secs(1000));
        },
        "panic" => std::process::exit(1),
        "early" => {}
        // crc32 of the text, as stopgap_guest::protocol::Line has it.
        _ => println!("@stopgap DONE_CRC {{\"line\":\"done\",\"lines\":1}}"),
    }
    std::io::stdout().flush().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    call(169, 0xfee1_dead, 672_274_793, 0x4321_fedc, 0);
}
