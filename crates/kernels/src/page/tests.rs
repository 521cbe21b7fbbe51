use crate::functions::Profile;
use crate::judge::{Kernel, Measured, Plan, Profiled, judge};

use super::section;

#[test]
fn functions_and_their_pictures_stand_in_the_section() {
    let kernel = |name: &str| Measured {
        kernel: Kernel {
            name: name.to_owned(),
            release: None,
            architecture: "x86_64".to_owned(),
            sha256: name.repeat(64),
            initramfs_sha256: String::new(),
            config_from: String::new(),
            modules: Vec::new(),
            command_line: Vec::new(),
            boots: Vec::new(),
            cells: Vec::new(),
            dma: Vec::new(),
        },
        config: None,
        boots: Vec::new(),
    };
    let mut record = judge(&Plan::default(), vec![kernel("a"), kernel("<b>")]);
    let profiled = |kernel, own| Profiled {
        kernel,
        cell: "pbobench N=1000".to_owned(),
        operation: "map".to_owned(),
        profile: Profile::of(10, [(vec!["do_mmap".to_owned()], own)]),
    };
    record.take_profiles(vec![profiled(0, 1_680), profiled(1, 2_300)]);
    let html = section("a.json", &record);
    for part in [
        "&lt;b&gt; against a",
        "+62.00",
        "<svg class=\"flame\"",
        "What this comparison cannot tell",
    ] {
        assert!(html.contains(part), "{part}\n{html}");
    }
    assert!(!html.contains("<b>against"));
}
