//! From how many pages on it is cheaper to give memory back, and take it again page by page, than to overwrite it.

use std::fmt::Write as _;
use std::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use stopgap_cli::Failure;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_stats::quantile::median;

/// What is measured of each size: as a table.
pub(super) fn measure() -> Result<String, Failure> {
    let page = rustix::param::page_size();
    let most = 4096 * page;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: without an address the kernel chooses one that nothing uses.
    let at = unsafe { mmap_anonymous(ptr::null_mut(), most, protection, MapFlags::PRIVATE) };
    let at = at.map_err(|error| Failure::error(error.to_string()))?;
    let mut text = String::from(
        "ns for each page, median of 31; then a share of the pages is written to\n     pages  overwritten: all      none   given back: all    a tenth      none\n",
    );
    for shift in 0..=12 {
        let pages = 1_usize << shift;
        let touch = |every: usize| {
            for number in (0..pages).step_by(every) {
                // SAFETY: inside of the mapping.
                unsafe { at.cast::<u8>().add(number * page).write_volatile(1) };
            }
        };
        let time = |zero: &dyn Fn(), every: Option<usize>| {
            let figures: Vec<f64> = (0..31)
                .map(|_| {
                    touch(1);
                    let start = Linux.thread_cpu().0;
                    zero();
                    if let Some(every) = every {
                        touch(every);
                    }

                    (Linux.thread_cpu().0 - start) as f64 / pages as f64
                })
                .collect();
            median(figures).unwrap_or(f64::NAN)
        };
        let by_hand = || {
            // SAFETY: inside of the mapping.
            unsafe { at.cast::<u8>().write_bytes(0, pages * page) };
        };
        let by_kernel = || {
            // SAFETY: nobody needs what is in it; where it fails it takes no time, which the table shows.
            let _ = unsafe { madvise(at, pages * page, Advice::LinuxDontNeed) };
        };
        let row = [
            time(&by_hand, Some(1)),
            time(&by_hand, None),
            time(&by_kernel, Some(1)),
            time(&by_kernel, Some(10)),
            time(&by_kernel, None),
        ];
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{pages:>10} {:>17.0} {:>9.0} {:>17.0} {:>10.0} {:>9.0}",
            row[0], row[1], row[2], row[3], row[4]
        );
    }
    // SAFETY: mapped above, and not used any more.
    let _ = unsafe { munmap(at, most) };
    Ok(text)
}
