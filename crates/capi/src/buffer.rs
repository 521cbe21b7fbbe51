//! Chunked buffers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

use stopgap_arena::chunked::{Buffer, Kind as Pages, PageSizes, Request, Why};

use crate::failure::{Failure, Result, enter};
use crate::given::{self, put, structs, write_text};
use crate::handle::{BUFFERS, open, stopgap_buffer};

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

/// # Safety
/// The policy is NULL or a string that ends with a NUL.
unsafe fn usual(length: usize, theirs: &stopgap_buffer_options) -> Result<Request> {
    let mut ours = Request::new(length);
    if !theirs.policy.is_null() {
        // SAFETY: the caller's promise.
        let word = unsafe { CStr::from_ptr(theirs.policy) }.to_str().ok();
        let policy = word.and_then(|word| word.parse().ok());
        ours.policy = policy.ok_or(Failure::argument(
            "no such policy; stopgap_chunked(3) names those there are",
        ))?;
    }
    if theirs.device_sizes != 0 {
        let bits = (0..u64::BITS).map(|bit| theirs.device_sizes & 1 << bit);
        let sizes: Vec<u64> = bits.filter(|size| *size != 0).collect();
        // Powers of two, at least one: never refused.
        let sizes = PageSizes::new(&sizes).map_err(|_| Failure::argument("no page sizes"))?;
        ours.device = Some(sizes);
    }
    if theirs.deadline_ns != 0 {
        ours.deadline = Some(Duration::from_nanos(theirs.deadline_ns));
    }
    if theirs.flags & !(SINGLE_PAGES | NO_HUGETLB) != 0 {
        return Err(Failure::argument("no such flag"));
    }
    ours.single_pages = theirs.flags & SINGLE_PAGES != 0;
    ours.hugetlb = theirs.flags & NO_HUGETLB == 0;
    Ok(ours)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_buffer_new(
    length: usize,
    options: *const stopgap_buffer_options,
) -> *mut stopgap_buffer {
    enter(|| {
        // SAFETY: the caller's promise.
        let request = unsafe { usual(length, &given::read(options)?) }?;
        open(&BUFFERS, Buffer::new(&request)?)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_buffer_address(buffer: *mut stopgap_buffer) -> *mut c_void {
    BUFFERS.call(buffer, |buffer| Ok(buffer.as_ptr().cast()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_buffer_stat(
    buffer: *mut stopgap_buffer,
    statistics: *mut stopgap_buffer_statistics,
) -> c_int {
    BUFFERS.call(buffer, |buffer| {
        let got = buffer.got();
        let value = stopgap_buffer_statistics {
            size: 0,
            bytes: buffer.len() as u64,
            large_bytes: got.large_bytes() as u64,
            pages: got.sizes.len() as u64,
            chunks: got.chunks.len() as u64,
            took_ns: u64::try_from(got.took.as_nanos()).unwrap_or(u64::MAX),
        };
        // SAFETY: the caller's promise.
        unsafe { given::write(statistics, &value, "the statistics") }
    })
}

/// Fills in the pages of one size; returns whether there is such a size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_buffer_got(
    buffer: *mut stopgap_buffer,
    index: usize,
    pages: *mut stopgap_buffer_pages,
) -> c_int {
    BUFFERS.call(buffer, |buffer| {
        let Some(size) = buffer.got().sizes.get(index) else {
            return Ok(false);
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
        unsafe { given::write(pages, &value, "what it got") }.map(|()| true)
    })
}

/// The number of a reason in the header, `STOPGAP_WHY_...`.
pub(crate) const fn reason(why: Why) -> u64 {
    match why {
        Why::NoSuchSize => 1,
        Why::NoThp => 2,
        Why::NotEnabled => 3,
        Why::WouldCompact(_) => 4,
        Why::SwitchedOff => 5,
        Why::Unknown => 6,
        Why::AdviceRefused => 7,
        Why::Unaligned => 8,
        Why::Deadline => 9,
        Why::PoolEmpty => 10,
        Why::PoolGrows => 11,
        Why::PoolRefused => 12,
        // The header has no word for it yet.
        _ => 255,
    }
}

/// Fills in neighbouring chunks of one size; returns whether there are any more.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_buffer_chunks(
    buffer: *mut stopgap_buffer,
    index: usize,
    bytes: *mut u64,
    count: *mut u64,
) -> c_int {
    BUFFERS.call(buffer, |buffer| {
        let Some(&(each, many)) = buffer.got().chunks.get(index) else {
            return Ok(false);
        };
        // SAFETY: the caller's promise.
        unsafe {
            put(bytes, each as u64);
            put(count, many);
        }
        Ok(true)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_buffer_text(
    buffer: *mut stopgap_buffer,
    text: *mut c_char,
    size: usize,
) -> c_int {
    BUFFERS.call(buffer, |buffer| {
        // SAFETY: the caller's promise.
        unsafe { write_text(text, size, format_args!("{}", buffer.got())) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_buffer_close(buffer: *mut stopgap_buffer) -> c_int {
    enter(|| BUFFERS.close(buffer).map(drop))
}
