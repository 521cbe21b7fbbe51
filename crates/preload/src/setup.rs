//! What the environment asks for, what the limits allow, and where the room lies.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::kernel::{self, PAGE};
use crate::room::{HUGE, Span};

/// Bytes of the room, unless `STOPGAP_WINDOW` says otherwise. Addresses only: nothing is reserved.
const WINDOW: usize = 64 << 30;

/// Settings of the environment.
pub(crate) struct Settings {
    /// Bytes of addresses.
    pub(crate) window: usize,
    /// Most bytes of resident pages that wait for their next use; 0: freed maps are unmapped.
    pub(crate) keep: usize,
    /// Advice to the kernel for each map (`STOPGAP_ADVICE`).
    pub(crate) advice: Option<c_int>,
}

/// A variable of the environment; ends with a 0.
fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: getenv reads the environment, which nobody changes while the first map is made (POSIX asks that of
    // programs with threads), and allocates nothing; the value stays where it is.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a value of the environment ends with a 0.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// Bytes: a number with K, M, G or T behind it.
pub(crate) fn bytes(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let number: usize = std::str::from_utf8(number).ok()?.parse().ok()?;
    let shift = match unit {
        b"" => 0,
        b"K" | b"k" => 10,
        b"M" | b"m" => 20,
        b"G" | b"g" => 30,
        b"T" | b"t" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Whether the machine's pages are as long as ours.
fn our_pages() -> bool {
    // SAFETY: sysconf reads a value that the kernel told at the start.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page) == Ok(PAGE)
}

/// Returns what the environment asks for; `None` where pages are not as long as this library takes them to be.
pub(crate) fn settings() -> Option<Settings> {
    our_pages().then(|| Settings {
        window: heeded(0, bytes).unwrap_or(WINDOW),
        keep: heeded(1, bytes).unwrap_or(0),
        advice: heeded(2, advice),
    })
}

/// Variables that can be set to what is no value of theirs; a bit each in [`IGNORED`].
const NAMES: [&CStr; 3] = [c"STOPGAP_WINDOW", c"STOPGAP_KEEP", c"STOPGAP_ADVICE"];
static IGNORED: AtomicU32 = AtomicU32::new(0);

/// Returns the value of a variable, if it is set and valid. Notes a variable that is invalid.
fn heeded<T>(which: usize, parse: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let text = variable(NAMES[which]).filter(|text| !text.is_empty())?;
    let value = parse(text);
    if value.is_none() {
        IGNORED.fetch_or(1 << which, Ordering::Relaxed);
    }
    value
}

/// Names of variables that were set to what is no value of theirs.
pub(crate) fn ignored() -> impl Iterator<Item = &'static str> {
    let bits = IGNORED.load(Ordering::Relaxed);
    let names = NAMES.iter().enumerate();
    names.filter_map(move |(which, name)| (bits & 1 << which != 0).then(|| name.to_str().ok())?)
}

fn advice(word: &[u8]) -> Option<c_int> {
    match word {
        b"huge" => Some(libc::MADV_HUGEPAGE),
        b"nohuge" => Some(libc::MADV_NOHUGEPAGE),
        _ => None,
    }
}

/// `STOPGAP_INJECT`: one of how many calls fails; 0: none.
#[cfg(feature = "inject")]
pub(crate) fn inject() -> usize {
    variable(c"STOPGAP_INJECT").and_then(bytes).unwrap_or(0)
}

/// Returns whether the address space is limited: what is kept would count.
pub(crate) fn limited() -> bool {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let read = kernel::prlimit(0, libc::RLIMIT_AS, std::ptr::null(), &raw mut limit);
    read.is_err() || limit.rlim_cur != libc::RLIM64_INFINITY
}

/// Returns where `length` bytes of addresses lie that the kernel leaves alone: an eighth of the way down from where it
/// puts maps now, so that neither a search from the top nor one from the bottom comes there before all else is full.
pub(crate) fn room(length: usize) -> Option<Span> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let here = kernel::mmap(0, PAGE, libc::PROT_NONE, flags, -1, 0).ok()?;
    let _ = kernel::munmap(here, PAGE);
    let end = (here - here / 8) / HUGE * HUGE;
    let length = length.max(HUGE).min(end / 2) / HUGE * HUGE;
    Some(Span::new(end - length, end))
}

/// Returns the address of a symbol that need not exist; 0 where no library has it. The dynamic linker looks it up once.
/// dlsym(3) would make malloc write an error text for each that is missing, in every program.
macro_rules! if_loaded {
    ($symbol:literal) => {{
        let address: usize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads an entry of the table of addresses, which the dynamic linker has filled.
        unsafe {
            std::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(nostack, preserves_flags, pure, readonly),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("adrp {0}, :got:", $symbol),
                concat!("ldr {0}, [{0}, :got_lo12:", $symbol, "]"),
                out(reg) address,
                options(nostack, preserves_flags, pure, readonly),
            );
        }
        address
    }};
}

/// Returns whether a sanitizer's runtime is loaded. Each has its own idea of which addresses a program may use.
pub(crate) fn sanitized() -> bool {
    let runtimes = [
        if_loaded!("__asan_init"),
        if_loaded!("__tsan_init"),
        if_loaded!("__msan_init"),
        if_loaded!("__hwasan_init"),
    ];
    runtimes.iter().any(|address| *address != 0)
}

/// Where the report goes: `STOPGAP_REPORT` 1 is standard error, another word a file that it is added to.
pub(crate) fn report() -> Option<Report> {
    match variable(c"STOPGAP_REPORT")? {
        b"" | b"0" => None,
        b"1" => Some(Report::Error),
        path => Some(Report::File(path.as_ptr().cast())),
    }
}

/// See [`report`].
pub(crate) enum Report {
    Error,
    /// A path that ends with a 0.
    File(*const c_char),
}
