//! Why there is no System V segment: which of the system's limits on them is too small, and what would help.
//!
//! shmget(2) says `EINVAL` beyond `shmmax` and `ENOSPC` beyond `shmall` or `shmmni` (`newseg`, ipc/shm.c; `ipc_addid`,
//! ipc/util.c, 6.12): one errno for two limits, so the limits are read and what is there is counted. A limit that another
//! program has reached meanwhile is not seen; then the errno stands.

use std::io;

use stopgap_events::units::Bytes;

use crate::error::Error;
use crate::files::{Files, read_number, read_text};

/// Where the limits are: bytes of one segment, pages of all, segments.
const SHMMAX: &str = "/proc/sys/kernel/shmmax";
const SHMALL: &str = "/proc/sys/kernel/shmall";
const SHMMNI: &str = "/proc/sys/kernel/shmmni";
/// The segments of this IPC namespace.
const TABLE: &str = "/proc/sysvipc/shm";

/// Returns the number of existing segments, and of their pages.
fn there_is(files: &(impl Files + ?Sized), page: Bytes) -> (u64, u64) {
    let text = read_text(files, TABLE).unwrap_or_default();
    let size = |line: &str| -> Option<u64> { line.split_whitespace().nth(3)?.parse().ok() };
    let sizes = text.lines().skip(1).filter_map(size);
    sizes.fold((0, 0), |(count, pages): (u64, u64), size| {
        (count + 1, pages.saturating_add(Bytes(size).pages(page).0))
    })
}

/// A limit that is too small: its name, what it is in words, and the least that would do. `errno`: of the refusal.
fn too_small(
    files: &(impl Files + ?Sized),
    length: Bytes,
    page: Bytes,
    errno: i32,
) -> Option<(&'static str, String, u64)> {
    let limit = |path| read_number::<_, u64>(files, path).ok();
    match errno {
        libc::EINVAL => {
            let most = limit(SHMMAX).filter(|most| length.0 > *most)?;
            let words = format!("kernel.shmmax allows {} a segment", Bytes(most));
            Some(("shmmax", words, length.0))
        }
        libc::ENOSPC => {
            let (count, pages) = there_is(files, page);
            let needed = pages.saturating_add(length.pages(page).0);
            if let Some(most) = limit(SHMALL).filter(|most| needed > *most) {
                let words =
                    format!("kernel.shmall allows {most} pages in all and {pages} are taken");
                return Some(("shmall", words, needed));
            }
            let most = limit(SHMMNI).filter(|most| count >= *most)?;
            let words = format!("kernel.shmmni allows {most} segments and there are {count}");
            Some(("shmmni", words, count + 1))
        }
        _ => None,
    }
}

/// The error of a shmget(2) for `length` that failed with `error`.
pub(crate) fn refused(
    files: &(impl Files + ?Sized),
    length: Bytes,
    page: Bytes,
    error: io::Error,
) -> Error {
    let errno = error.raw_os_error().unwrap_or(0);
    let what = format!("a System V segment of {length}");
    if errno == libc::ENOSYS {
        return Error::unsupported(what, "this kernel is built without CONFIG_SYSVIPC");
    }
    match too_small(files, length, page, errno) {
        Some((name, words, needed)) => {
            let advice =
                format!("{words}; as root: sysctl kernel.{name}={needed}, or ask for less");
            Error::unsupported(what, advice)
        }
        None => Error::call("shmget", length, error),
    }
}

/// The errno by which a kernel with these files refuses a segment of `length`; `None`: it makes one.
#[cfg(any(test, feature = "fake"))]
pub(crate) fn refusal(files: &(impl Files + ?Sized), length: Bytes, page: Bytes) -> Option<i32> {
    [libc::EINVAL, libc::ENOSPC]
        .into_iter()
        .find(|&errno| too_small(files, length, page, errno).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::holds::Holds;

    const LENGTH: Bytes = Bytes::mib(32);

    fn machine(shmmax: u64, shmall: u64, shmmni: u64, table: &str) -> Fake {
        let head =
            "key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap\n";
        Fake::default()
            .with_file(SHMMAX, shmmax.to_string())
            .with_file(SHMALL, shmall.to_string())
            .with_file(SHMMNI, shmmni.to_string())
            .with_file(TABLE, format!("{head}{table}"))
    }

    const ONE: &str = "0 1 600 1048577 7 7 1 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn the_limit_that_is_too_small_is_named_with_what_would_do() {
        let plenty = u64::MAX >> 24;
        let said = |fake: &Fake| fake.segment(LENGTH).unwrap_err().to_string();
        assert_eq!(
            said(&machine(16 << 20, plenty, 4_096, "")),
            "a System V segment of 32 MiB: kernel.shmmax allows 16 MiB a segment; as root: sysctl \
             kernel.shmmax=33554432, or ask for less"
        );
        // A page more than 1 MiB is taken: 257 pages, and 8192 are asked for.
        assert_eq!(
            said(&machine(plenty, 8_448, 4_096, ONE)),
            "a System V segment of 32 MiB: kernel.shmall allows 8448 pages in all and 257 are taken; as root: sysctl \
             kernel.shmall=8449, or ask for less"
        );
        assert!(machine(plenty, 8_449, 4_096, ONE).segment(LENGTH).is_ok());
        let two = ONE.repeat(2);
        assert_eq!(
            said(&machine(plenty, plenty, 2, &two)),
            "a System V segment of 32 MiB: kernel.shmmni allows 2 segments and there are 2; as root: sysctl \
             kernel.shmmni=3, or ask for less"
        );
        assert!(Fake::default().segment(LENGTH).is_ok(), "limits unknown");
    }

    /// Another's segment may be gone again when we look: then the errno is all that is known.
    #[test]
    fn a_refusal_that_no_limit_explains_stays_what_it_is() {
        let fake = machine(u64::MAX, u64::MAX, 4_096, "");
        let of = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            refused(&fake, LENGTH, Bytes(4_096), error)
        };
        for errno in [libc::EINVAL, libc::ENOSPC, libc::ENOMEM] {
            assert_eq!(of(errno).errno(), Some(errno));
        }
        assert!(of(libc::ENOSYS).to_string().contains("CONFIG_SYSVIPC"));
    }
}
