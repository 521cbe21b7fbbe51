//! Records of perf that a running kernel gave, whole and with changed bytes: what the fuzz target
//! asserts.

use std::path::Path;

#[path = "../../../../fuzz/bodies/perf_records.rs"]
mod body;

/// Linux 6.18: `sh -c "/bin/true; /bin/true | cat"`, switches and samples.
#[test]
fn changed_bytes_end() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/perf");
    let files = ["perf0.raw", "perf1.raw"].map(|name| std::fs::read(folder.join(name)).unwrap());
    for file in &files {
        assert!(body::run(file) > 0);
    }
    crate::run_changed(&files, [0, 0xff, 9, 8], |bytes| {
        body::run(bytes);
    });
}
