use stopgap_report::html::{Document, Source, page};

use super::{report, section};
use crate::functions::Profile;
use crate::judge::{Kernels, Profiled, judge};
use crate::testing::measured;

#[test]
fn functions_and_their_pictures_stand_in_the_section() {
    let kernel = |name: &str| measured(name, "fork", "wait", &[]);
    let mut record = judge(Kernels::default(), &[], vec![kernel("a"), kernel("<b>")]);
    let profiled = |kernel, own| Profiled {
        kernel,
        cell: "pbobench N=1000".to_owned(),
        operation: "map".to_owned(),
        profile: Profile::of(10, [(vec!["do_mmap".to_owned()], own)]),
    };
    record.take_profiles(vec![vec![profiled(0, 1_680), profiled(1, 2_300)]]);
    let html = section("a.json", &record);
    for part in [
        "+62.0",
        "<div class=\"flame\"",
        "What this comparison cannot tell",
    ] {
        assert!(html.contains(part), "{part}\n{html}");
    }
    assert!(!html.contains("<b>against"));

    // The page of such a record shows its texts and never obeys them.
    record.command = vec!["<script>".to_owned()];
    record.missing = vec![stopgap_events::machine::Missing::new("<script>", "<img>")];
    let shown = report(&record.to_json(), "<script>.json").unwrap();
    let source = Source {
        name: "<script>.json".to_owned(),
        document: Document::Other(Box::new(shown)),
    };
    let page = page(&[source]);
    assert!(page.contains("&lt;script&gt;.json: 0 layouts") && page.contains("&lt;img&gt;"));
    assert!(!page.contains("<script") && !page.contains("<img"));
    assert!(report("{}", "a.json").is_err());
}
