//! Knobs as a strategy finds them, and those that it has to set.

use std::path::{Path, PathBuf};

use stopgap_events::units::Bytes;
use stopgap_kernel::memory::Advice;
use stopgap_kernel::thp::{DIRECTORY, Size, Thp, defrag_knob};

use super::Strategy;

/// How to take a buffer so that faults do what the strategy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setup {
    /// Bytes of the pages that are asked for.
    pub(super) chunk: Bytes,
    /// Advice to give before the first touch.
    pub(super) advice: Option<Advice>,
    /// Whether taking it may reclaim and compact in place.
    pub(super) direct: bool,
    /// `defrag` while it runs, where faults obey it.
    pub(super) defrag: Option<String>,
    /// Knobs to set first, and to what; none: they already say what they must.
    pub(super) changes: Vec<(PathBuf, &'static str)>,
}

/// How `strategy` (never [`Strategy::EveryMthp`] or [`Strategy::Hugetlb`]) is carried out,
/// with knobs set for it (`may_set`) or as they stand.
///
/// # Errors
/// Why the strategy cannot run here, in words for the record.
pub(super) fn setup(
    strategy: Strategy,
    thp: Option<&Thp>,
    page: Bytes,
    may_set: bool,
) -> Result<Setup, String> {
    let base = Setup {
        chunk: page,
        // A kernel without THP refuses the advice, and needs none.
        advice: thp.map(|_| Advice::NoHugePage),
        direct: false,
        defrag: None,
        changes: Vec::new(),
    };
    if strategy == Strategy::Base {
        return Ok(base);
    }
    let thp = thp.ok_or("this kernel has no THP")?;
    let (chunk, direct) = match strategy {
        Strategy::Mthp(size) | Strategy::MthpUpTo(size) => (size, None),
        Strategy::ThpDirect => (thp.pmd_size, Some(true)),
        Strategy::ThpNoReclaim => (thp.pmd_size, Some(false)),
        // The advice obeys no knob: it always reclaims (khugepaged.c, alloc_charge_folio).
        Strategy::Collapse => {
            return Ok(Setup {
                chunk: thp.pmd_size,
                direct: true,
                ..base
            });
        }
        Strategy::Base | Strategy::EveryMthp | Strategy::Hugetlb => return Ok(base),
    };
    let target = thp
        .sizes
        .iter()
        .find(|size| size.page == chunk)
        .ok_or_else(|| {
            let sizes: Vec<_> = thp.sizes.iter().map(|size| size.page.short()).collect();
            let (none, has) = (chunk.short(), sizes.join(", "));
            format!("this kernel has no THP of {none}; it has {has}")
        })?;
    let smaller = matches!(strategy, Strategy::MthpUpTo(_));
    let changes = changes(thp, target, smaller, direct);
    if may_set {
        return Ok(Setup {
            chunk,
            advice: Some(Advice::HugePage),
            direct: direct.unwrap_or(true),
            defrag: Some(defrag_after(thp, &changes)),
            changes,
        });
    }
    as_it_is(thp, target, smaller, direct).ok_or_else(|| refused(&changes))
}

/// Whether a buffer of pages of `target` has pages of `size` too: with `smaller` every size up to
/// it is tried.
fn is_wanted(size: &Size, target: &Size, smaller: bool) -> bool {
    size.page == target.page || (smaller && size.page < target.page)
}

/// By this the compactor works unasked once memory is fragmented (5.9 on, mm/compaction.c, `kcompactd`): it would undo
/// what is made on purpose.
pub(super) const PROACTIVE: &str = "/proc/sys/vm/compaction_proactiveness";

/// What has to be set so that advised memory gets pages of `target` and of no other size (with
/// `smaller`: of no larger one), and faults reclaim directly or not (`None`: directly).
fn changes(
    thp: &Thp,
    target: &Size,
    smaller: bool,
    direct: Option<bool>,
) -> Vec<(PathBuf, &'static str)> {
    let mut changes = Vec::new();
    for size in &thp.sizes {
        let wanted = is_wanted(size, target, smaller);
        match (thp.allows(size, true), wanted) {
            (false, true) => changes.push((size.knob.clone(), "madvise")),
            (true, false) => changes.push((size.knob.clone(), "never")),
            _ => {}
        }
    }
    match (Thp::direct(&thp.defrag, true), direct.unwrap_or(true)) {
        (false, true) => changes.push((defrag_knob(), "always")),
        (true, false) => changes.push((defrag_knob(), "never")),
        _ => {}
    }
    changes
}

/// What has to be set so that advised memory gets the largest pages that are free, of any size,
/// and nothing is reclaimed or compacted for it.
pub(super) fn any_size_that_is_free(thp: &Thp) -> Vec<(PathBuf, &'static str)> {
    let refused = thp.sizes.iter().filter(|size| !thp.allows(size, true));
    let mut changes: Vec<_> = refused.map(|size| (size.knob.clone(), "madvise")).collect();
    if thp.defrag != "never" {
        changes.push((defrag_knob(), "never")); // `defer` would wake the compactor
    }
    changes
}

fn defrag_after(thp: &Thp, changes: &[(PathBuf, &'static str)]) -> String {
    let set = changes.iter().find(|(knob, _)| *knob == defrag_knob());
    set.map_or_else(|| thp.defrag.clone(), |(_, word)| (*word).to_owned())
}

/// With the knobs as they stand: a fault takes the largest size that is allowed, so advice (or
/// its absence) must leave `target` as the largest.
fn as_it_is(thp: &Thp, target: &Size, smaller: bool, direct: Option<bool>) -> Option<Setup> {
    [true, false].into_iter().find_map(|advised| {
        let largest = thp
            .sizes
            .iter()
            .rev()
            .find(|size| thp.allows(size, advised))?;
        let reclaims = Thp::direct(&thp.defrag, advised);
        let all = |size: &Size| !is_wanted(size, target, true) || thp.allows(size, advised);
        let every = !smaller || thp.sizes.iter().all(all);
        let fits =
            largest.page == target.page && every && direct.is_none_or(|wanted| wanted == reclaims);
        fits.then(|| Setup {
            chunk: target.page,
            advice: advised.then_some(Advice::HugePage),
            direct: reclaims,
            defrag: Some(thp.defrag.clone()),
            changes: Vec::new(),
        })
    })
}

fn refused(changes: &[(PathBuf, &'static str)]) -> String {
    let list: Vec<_> = changes
        .iter()
        .map(|(knob, word)| {
            let name = knob.strip_prefix(Path::new(DIRECTORY)).unwrap_or(knob);
            format!("{} to {word}", name.display())
        })
        .collect();
    format!("needs root to set {}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_testing::assert_contains;

    const PAGE: Bytes = Bytes::kib(4);

    fn thp(enabled: &str, defrag: &str, sizes: &[(u64, &str)]) -> Thp {
        Thp {
            enabled: enabled.to_owned(),
            defrag: defrag.to_owned(),
            pmd_size: Bytes::mib(2),
            sizes: sizes
                .iter()
                .map(|&(kib, word)| Size {
                    page: Bytes::kib(kib),
                    enabled: word.to_owned(),
                    knob: format!("{DIRECTORY}/hugepages-{kib}kB/enabled").into(),
                })
                .collect(),
        }
    }

    /// As distributions have it.
    fn usual() -> Thp {
        thp(
            "madvise",
            "madvise",
            &[(32, "never"), (64, "never"), (2048, "inherit")],
        )
    }

    fn words(setup: &Setup) -> Vec<String> {
        let list = setup.changes.iter();
        let short = |knob: &Path| {
            let name = knob.strip_prefix(DIRECTORY).unwrap();
            name.display().to_string()
        };
        list.map(|(knob, word)| format!("{} {word}", short(knob)))
            .collect()
    }

    #[test]
    fn one_size_alone_is_allowed_and_the_rest_left() {
        let set = |strategy| setup(strategy, Some(&usual()), PAGE, true).unwrap();
        let mthp = set(Strategy::Mthp(Bytes::kib(64)));
        let expected = [
            "hugepages-64kB/enabled madvise",
            "hugepages-2048kB/enabled never",
        ];
        assert_eq!(words(&mthp), expected);
        assert!(mthp.direct && mthp.advice == Some(Advice::HugePage));
        // madvise reclaims directly for advised memory: nothing to set.
        assert_eq!(words(&set(Strategy::ThpDirect)), [""; 0]);
        let without = set(Strategy::ThpNoReclaim);
        assert_eq!(words(&without), ["defrag never"]);
        assert_eq!(without.defrag.unwrap(), "never");
    }

    #[test]
    fn without_root_only_what_the_knobs_allow() {
        let has = |strategy, thp: &Thp| setup(strategy, Some(thp), PAGE, false);
        assert!(has(Strategy::ThpDirect, &usual()).unwrap().direct);
        assert_eq!(
            has(Strategy::ThpNoReclaim, &usual()).unwrap_err(),
            "needs root to set defrag to never"
        );
        let error = has(Strategy::Mthp(Bytes::kib(64)), &usual()).unwrap_err();
        assert!(
            error.starts_with("needs root to set hugepages-64kB/enabled"),
            "{error}"
        );

        // 64K always, 2M on advice: unadvised memory gets 64K, and then reclaims only where
        // defrag is always.
        let both = thp("madvise", "madvise", &[(64, "always"), (2048, "inherit")]);
        let mthp = has(Strategy::Mthp(Bytes::kib(64)), &both).unwrap();
        assert_eq!((mthp.advice, mthp.direct), (None, false));
        // Both always: the larger one wins, with any advice.
        let both = thp("always", "never", &[(64, "always"), (2048, "inherit")]);
        let error = has(Strategy::Mthp(Bytes::kib(64)), &both).unwrap_err();
        assert_contains(&error, &["hugepages-2048kB/enabled to never"]);
        assert!(!has(Strategy::ThpNoReclaim, &both).unwrap().direct);
    }

    #[test]
    fn what_the_kernel_lacks_is_said() {
        let base = setup(Strategy::Base, None, PAGE, true).unwrap();
        assert_eq!((base.advice, base.chunk), (None, PAGE));
        for strategy in [
            Strategy::ThpDirect,
            Strategy::Collapse,
            Strategy::Mthp(Bytes::kib(64)),
        ] {
            let error = setup(strategy, None, PAGE, true).unwrap_err();
            assert_eq!(error, "this kernel has no THP");
        }
        let error = setup(Strategy::Mthp(Bytes::kib(128)), Some(&usual()), PAGE, true);
        assert_eq!(
            error.unwrap_err(),
            "this kernel has no THP of 128K; it has 32K, 64K, 2M"
        );
    }

    #[test]
    fn a_disabled_pmd_size_is_allowed_first() {
        let never = thp("never", "defer", &[(2048, "inherit")]);
        let set = setup(Strategy::ThpDirect, Some(&never), PAGE, true).unwrap();
        assert_eq!(
            words(&set),
            ["hugepages-2048kB/enabled madvise", "defrag always"]
        );
        assert!(setup(Strategy::ThpDirect, Some(&never), PAGE, false).is_err());
    }
}
