//! Parameters of a measurement in words, as labels of rows and series.

use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::record::{Parameter, Series};

use crate::details;
use crate::text::thousands;

/// Parameters that need no word where they have their usual value.
const USUAL: [(&str, &str); 3] = [
    ("policy", "other"),
    ("reply", "together"),
    ("workload", "pbobench"),
];

/// Parameters and values that have words of their own.
const NAMED: [(&str, &str, &str); 23] = [
    ("client", "read", "blocking-read client"),
    ("work", "0s", "no work"),
    ("on", "one", "one CPU"),
    ("on", "two", "two CPUs"),
    ("on", "free", "any CPU"),
    ("reply", "each", "a write per reply"),
    ("reply", "together", "one write for all replies"),
    ("policy", "batch", "client under SCHED_BATCH"),
    ("policy", "other", "ordinary scheduling"),
    ("backend", "memfd", "memory file"),
    ("backend", "anonymous", "anonymous memory"),
    ("strategy", "base", "base pages"),
    (
        "strategy",
        "thp-direct",
        "huge pages (THP), the fault reclaims",
    ),
    (
        "strategy",
        "thp-noreclaim",
        "huge pages (THP), the fault does not reclaim",
    ),
    ("strategy", "collapse", "huge pages by MADV_COLLAPSE"),
    ("strategy", "hugetlb", "reserved huge pages (hugetlb)"),
    ("mode", "none", "nothing held"),
    ("mode", "plain", "nothing held"),
    ("mode", "vmsplice", "pinned by vmsplice"),
    ("mode", "io-uring", "pinned by io_uring"),
    ("mode", "mlock", "locked by mlock"),
    ("mode", "shm-lock", "locked by SHM_LOCK"),
    ("clock", "thread CPU", "CPU time of the thread"),
];

/// Returns a parameter in words; `None` where it has its usual value.
pub(super) fn parameter(key: &str, value: &Parameter) -> Option<String> {
    let shown = details::word(value);
    if USUAL.contains(&(key, &*shown)) {
        return None;
    }
    let mut named = NAMED.iter();
    if let Some((.., words)) = named.find(|(of, word, _)| (*of, *word) == (key, &*shown)) {
        return Some((*words).to_owned());
    }
    let size = |text: &str| text.parse::<Bytes>().map(|size| size.to_string());
    Some(match (key, value) {
        ("n", Parameter::Number(n)) => format!("{} mappings", thousands(*n)),
        ("k", Parameter::Number(k)) => format!("server waits for {} descriptors", thousands(*k)),
        ("batch", Parameter::Number(1)) => "one request".to_owned(),
        ("batch", Parameter::Number(n)) => format!("{} requests at once", thousands(*n)),
        ("threads", Parameter::Number(1)) => "one thread".to_owned(),
        ("threads", Parameter::Number(n)) => format!("{} threads", thousands(*n)),
        ("cpu", Parameter::Number(cpu)) => format!("CPU {cpu}"),
        ("client", _) => format!("{shown} client"),
        ("server", _) => format!("{shown} server"),
        ("work", _) => match shown.parse::<Nanos>() {
            Ok(time) => format!("{time} of work"),
            Err(_) => format!("{shown} of work"),
        },
        ("strategy", _) => match shown.strip_prefix("mthp-").map(size) {
            Some(Ok(size)) => format!("pages of {size} (mTHP)"),
            _ => shown,
        },
        ("size", _) => size(&shown).map_or(shown, |size| format!("{size} buffer")),
        // A word mostly says what it is; a number and a yes do not.
        (_, Parameter::Word(word)) if word != "yes" && word != "no" => shown,
        _ => format!("{key} {shown}"),
    })
}

/// Returns the name and the unit of a quantity as an axis has them.
pub(super) fn quantity(series: &Series) -> (&str, &str) {
    match (&*series.name, &*series.unit) {
        ("switches", "switches/rt") => ("context switches", "per round trip"),
        ("scanned per reclaimed", "pages/page") => ("pages scanned", "per page reclaimed"),
        ("memory stall per GiB read", unit) => ("time that tasks waited", unit),
        ("take", "ns/page") => ("time to take hold", "ns per page"),
        ("release", "ns/page") => ("time to release", "ns per page"),
        ("pass 2", "ns/page") => ("time in the second pass", "ns per page"),
        ("take", unit) => ("time to build the buffer", unit),
        ("wake-up", unit) => ("lateness", unit),
        (name, "entries/buffer") => (name, "per buffer"),
        known => known,
    }
}

/// Returns a rank by which strategies stand from small pages to large ones.
pub(super) fn rank(key: &str, value: &Parameter) -> u64 {
    let Parameter::Word(word) = value else {
        return 0;
    };
    match (key, word.strip_prefix("mthp-").map(str::parse::<Bytes>)) {
        ("strategy", Some(Ok(size))) => size.0,
        ("strategy", _) if word != "base" => u64::MAX,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_words_and_the_usual_is_left_out() {
        let said = |key: &str, value: Parameter| parameter(key, &value);
        for (key, word, words) in [
            ("client", "read", "blocking-read client"),
            ("server", "epoll", "epoll server"),
            ("strategy", "mthp-64K", "pages of 64 KiB (mTHP)"),
            ("size", "4M", "4 MiB buffer"),
            ("work", "50us", "50 us of work"),
            ("mode", "vmsplice", "pinned by vmsplice"),
            ("form", "posted", "posted"),
            ("direct-reclaim", "yes", "direct-reclaim yes"),
        ] {
            assert_eq!(said(key, word.into()).as_deref(), Some(words));
        }
        assert_eq!(
            said("n", 1_000_u64.into()).as_deref(),
            Some("1,000 mappings")
        );
        assert_eq!(said("policy", "other".into()), None);
    }
}
