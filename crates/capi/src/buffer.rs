//! Chunked buffers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

use stopgap_arena::chunked::{Buffer, Kind as Pages, PageSizes, Request, Why};

use crate::failure::{Failure, Result, enter, write_text};
use crate::given::{self, put, structs};
use crate::tables::{BUFFERS, open, stopgap_buffer};

structs! {
    stopgap_buffer_options, 40:
        policy: *const c_char, device_sizes: u64, deadline_ns: u64, flags: u64,;

    stopgap_buffer_statistics, 48:
        bytes: u64, large_bytes: u64, pages: u64, chunks: u64, took_ns: u64,;

    stopgap_buffer_pages, 72:
        page: u64, kind: u64, bytes: u64, unverified: u64, tries: u64, failed: u64, refused: u64,
        why: u64,;
}

const SINGLE_PAGES: u64 = 1;
const NO_HUGETLB: u64 = 2;

/// A reason that the header has no word for yet.
const OTHER: u64 = 255;

/// # Safety
/// The policy is NULL or a string that ends with a NUL.
unsafe fn usual(length: usize, theirs: &stopgap_buffer_options) -> Result<Request> {
    let mut ours = Request::new(length);
    if !theirs.policy.is_null() {
        // SAFETY: the caller's promise.
        let word = unsafe { CStr::from_ptr(theirs.policy) };
        ours.policy = word
            .to_str()
            .ok()
            .and_then(|word| word.parse().ok())
            .ok_or(Failure::Argument(
                "no such policy; stopgap_chunked(3) names those there are",
            ))?;
    }
    if theirs.device_sizes != 0 {
        let sizes: Vec<u64> = (0..u64::BITS)
            .map(|bit| 1 << bit)
            .filter(|size| theirs.device_sizes & size != 0)
            .collect();
        // Powers of two, at least one: never refused.
        let sizes = PageSizes::new(&sizes).map_err(|_| Failure::Argument("no page sizes"))?;
        ours.device = Some(sizes);
    }
    if theirs.deadline_ns != 0 {
        ours.deadline = Some(Duration::from_nanos(theirs.deadline_ns));
    }
    if theirs.flags & !(SINGLE_PAGES | NO_HUGETLB) != 0 {
        return Err(Failure::Argument("no such flag"));
    }
    ours.single_pages = theirs.flags & SINGLE_PAGES != 0;
    ours.hugetlb = theirs.flags & NO_HUGETLB == 0;
    Ok(ours)
}

/// Makes a buffer of pieces as large as memory has.
///
/// # Safety
/// `options` is NULL or a `struct stopgap_buffer_options` with its size filled in, and its policy NULL or a string that
/// ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_buffer_new(
    length: usize,
    options: *const stopgap_buffer_options,
) -> *mut stopgap_buffer {
    enter(|| {
        // SAFETY: the caller's promise.
        let request = match unsafe { given::read(options) }? {
            // SAFETY: the caller's promise.
            Some(theirs) => unsafe { usual(length, &theirs) }?,
            None => Request::new(length),
        };
        open(&BUFFERS, Buffer::new(&request)?)
    })
}

/// Where it begins.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_buffer_address(buffer: *mut stopgap_buffer) -> *mut c_void {
    enter(|| Ok(BUFFERS.get(buffer)?.as_ptr().cast()))
}

/// Fills in the sums of the buffer's pages.
///
/// # Safety
/// `statistics` is NULL or a `struct stopgap_buffer_statistics` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_buffer_stat(
    buffer: *mut stopgap_buffer,
    statistics: *mut stopgap_buffer_statistics,
) -> c_int {
    enter(|| {
        let used = BUFFERS.get(buffer)?;
        let got = used.got();
        let value = stopgap_buffer_statistics {
            size: 0,
            bytes: used.len() as u64,
            large_bytes: got.large_bytes() as u64,
            pages: got.sizes.len() as u64,
            chunks: got.chunks.len() as u64,
            took_ns: u64::try_from(got.took.as_nanos()).unwrap_or(u64::MAX),
        };
        // SAFETY: the caller's promise.
        unsafe { given::write(statistics, &value, "the statistics") }?;
        Ok(0)
    })
}

/// Fills in the pages of one size.
///
/// # Safety
/// `pages` is NULL or a `struct stopgap_buffer_pages` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_buffer_got(
    buffer: *mut stopgap_buffer,
    index: usize,
    pages: *mut stopgap_buffer_pages,
) -> c_int {
    enter(|| {
        let used = BUFFERS.get(buffer)?;
        let Some(size) = used.got().sizes.get(index) else {
            return Ok(0);
        };
        let value = stopgap_buffer_pages {
            size: 0,
            page: size.page as u64,
            kind: match size.kind {
                Pages::Base => 0,
                Pages::Thp => 1,
                Pages::Hugetlb => 2,
            },
            bytes: size.bytes as u64,
            unverified: size.unverified as u64,
            tries: size.tries,
            failed: size.failed,
            refused: size.refused,
            why: size.why.map_or(0, reason),
        };
        // SAFETY: the caller's promise.
        unsafe { given::write(pages, &value, "what it got") }?;
        Ok(1)
    })
}

/// Reasons with their words in the header, `STOPGAP_WHY_...`.
macro_rules! reasons {
    ($($pattern:pat => $word:ident $value:literal,)*) => {
        const fn reason(why: Why) -> u64 {
            match why {
                $($pattern => $value,)*
                _ => OTHER,
            }
        }

        #[cfg(test)]
        pub(crate) fn reasons() -> impl Iterator<Item = (&'static str, u64)> {
            [$((stringify!($word), $value),)* ("OTHER", OTHER)].into_iter()
        }
    };
}

reasons! {
    Why::NoSuchSize => NO_SUCH_SIZE 1,
    Why::NoThp => NO_THP 2,
    Why::NotEnabled => NOT_ENABLED 3,
    Why::WouldCompact(_) => WOULD_COMPACT 4,
    Why::SwitchedOff => SWITCHED_OFF 5,
    Why::Unknown => UNKNOWN 6,
    Why::AdviceRefused => ADVICE_REFUSED 7,
    Why::Unaligned => UNALIGNED 8,
    Why::Deadline => DEADLINE 9,
    Why::PoolEmpty => POOL_EMPTY 10,
    Why::PoolGrows => POOL_GROWS 11,
    Why::PoolRefused => POOL_REFUSED 12,
}

/// Neighbouring chunks of one size.
///
/// # Safety
/// `bytes` and `count` are each NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_buffer_chunks(
    buffer: *mut stopgap_buffer,
    index: usize,
    bytes: *mut u64,
    count: *mut u64,
) -> c_int {
    enter(|| {
        let used = BUFFERS.get(buffer)?;
        let Some(&(each, many)) = used.got().chunks.get(index) else {
            return Ok(0);
        };
        // SAFETY: the caller's promise.
        unsafe {
            put(bytes, each as u64);
            put(count, many);
        }
        Ok(1)
    })
}

/// Writes a description of the buffer's pages.
///
/// # Safety
/// `text` is NULL with `size` 0, or `size` bytes can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_buffer_text(
    buffer: *mut stopgap_buffer,
    text: *mut c_char,
    size: usize,
) -> c_int {
    enter(|| {
        let used = BUFFERS.get(buffer)?;
        // SAFETY: the caller's promise.
        unsafe { write_text(text, size, format_args!("{}", used.got())) }
    })
}

/// Gives it back.
///
/// # Safety
/// Nothing uses its memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_buffer_close(buffer: *mut stopgap_buffer) -> c_int {
    enter(|| BUFFERS.close(buffer).map(drop))
}
