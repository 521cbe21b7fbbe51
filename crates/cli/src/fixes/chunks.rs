//! `chunks`: a buffer of large pieces, as far as memory has them at once, instead of one of base pages.

use stopgap_arena::chunked::{Buffer, Kind, Request};
use stopgap_events::memory::Protection;
use stopgap_events::units::Bytes;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::memory::{MapKind, MapRequest, Memory};
use stopgap_stats::fix::Fix;

use super::{Allowed, CHILD, us_since};

/// The buffer, as the probe's; of little memory a quarter.
fn length(allowed: Allowed) -> usize {
    let most = Bytes::mib(if allowed.quick { 16 } else { 64 });
    let length = most.0.min(allowed.memory.0 / 4) as usize;
    length.max(2 << 20)
}

/// Time to map and touch `length` bytes as a program does that asks for nothing, us.
fn plain(length: usize) -> Result<f64, String> {
    let request = MapRequest {
        length: Bytes(length as u64),
        protection: Protection::Write,
        kind: MapKind::Anonymous,
        align: Bytes(0),
    };
    let start = Linux.now();
    let mapping = Linux.map(&request).map_err(|error| error.to_string())?;
    let touched = Linux.touch(&mapping, Bytes(0), Bytes(length as u64));
    let us = us_since(start);
    let done = touched.and_then(|()| Linux.unmap(mapping));
    done.map_err(|error| error.to_string())?;
    Ok(us)
}

/// The chunked buffer beside a plain mapping.
pub(super) fn chunked(allowed: Allowed) -> Fix {
    let length = length(allowed);
    // A buffer of huge pages has one of them more at most.
    let need = CHILD + Bytes(length as u64) + Bytes::mib(2);
    if let Some(why) = allowed.refuses(need) {
        return Fix::untried("chunked", &why);
    }
    let measured = super::in_child(|| {
        let mut pairs = Vec::new();
        let mut got = (String::new(), 0);
        for _ in 0..allowed.turns() {
            let before = plain(length)?;
            let start = Linux.now();
            let buffer = Buffer::new(&Request::new(length)).map_err(|error| error.to_string())?;
            pairs.push([before / 1e3, us_since(start) / 1e3]);
            let sizes = &buffer.got().sizes;
            // Transparent huge pages come first: a pool is empty on most machines.
            let of = |kind| sizes.iter().filter(move |size| size.kind == kind);
            let why = of(Kind::Thp)
                .chain(of(Kind::Hugetlb))
                .find_map(|size| size.why);
            let why = why.map(|why| why.to_string()).unwrap_or_default();
            got = (why, buffer.got().large_bytes() as u64);
        }
        Ok((pairs, got))
    });
    let what = format!("for {} mapped and touched", Bytes(length as u64));
    match measured {
        Ok((pairs, (why, large))) => {
            let large = format!("{} in large pages", Bytes(large));
            let but = match why.is_empty() {
                true => large,
                false => format!("{large}: {why}"),
            };
            Fix::tried("chunked", &what, "ms", pairs, allowed.seed)
                .but(but)
                .command("docs/fixes/chunked.md")
        }
        Err(why) => Fix::untried("chunked", &why),
    }
}
