use stopgap_kernel::fake::{Fake, Search};

use super::*;

fn knobs(enabled: &str, defrag: &str) -> Fake {
    let folder = "/sys/kernel/mm/transparent_hugepage";
    Fake::new(Search::Constant)
        .with_file(format!("{folder}/enabled"), enabled)
        .with_file(format!("{folder}/defrag"), defrag)
        .with_file(format!("{folder}/hpage_pmd_size"), "2097152\n")
}

const MADVISE: &str = "always [madvise] never\n";
const DEFRAG_MADVISE: &str = "always defer defer+madvise [madvise] never\n";
const DEFRAG_DEFER: &str = "always [defer] defer+madvise madvise never\n";

#[test]
fn a_policy_is_held_to_what_the_knobs_allow() {
    let said = |policy: Name, enabled: &str, defrag: &str| {
        let advice = advice(policy, &knobs(enabled, defrag)).unwrap();
        (advice.word, advice.instead.is_some())
    };
    assert_eq!(said(Name::List, MADVISE, DEFRAG_MADVISE), ("huge", false));
    assert_eq!(
        said(Name::OnePage, MADVISE, DEFRAG_MADVISE),
        ("nohuge", false)
    );
    assert_eq!(said(Name::Fold, MADVISE, DEFRAG_MADVISE), ("nohuge", false));
    // It never enters reclaim: with this knob a fault would.
    assert_eq!(
        said(Name::ListNoReclaim, MADVISE, DEFRAG_MADVISE),
        ("nohuge", true)
    );
    assert_eq!(
        said(Name::ListNoReclaim, MADVISE, DEFRAG_DEFER),
        ("huge", false)
    );
    assert_eq!(
        said(Name::List, "always madvise [never]\n", DEFRAG_DEFER),
        ("nohuge", true)
    );
    for policy in Name::ALL {
        advice(*policy, &knobs(MADVISE, DEFRAG_DEFER)).unwrap();
    }
}

#[test]
fn words_are_read_back() {
    for word in [
        "arena",
        "arena-keep",
        "batch-client",
        "chunks=fold",
        "chunks=list-noreclaim",
    ] {
        assert_eq!(word.parse::<Fix>().unwrap().to_string(), word);
    }
    for wrong in [
        "",
        "Arena",
        "arena=1",
        "arena-keep=1",
        "arena-files",
        "files",
        "chunks",
        "chunks=",
        "chunks=none",
        "batch",
    ] {
        assert!(wrong.parse::<Fix>().is_err(), "{wrong}");
    }
}
