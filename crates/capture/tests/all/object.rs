//! The checked-in object is what its source makes.

use std::path::Path;
use std::process::Command;

use stopgap_testing::{Skip, skip};

#[test]
fn the_object_is_what_its_source_makes() {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf/build");
    let output = Command::new(build).arg("--check").output().unwrap();
    if output.status.code() == Some(3) {
        return skip(&Skip::program("clang-19"));
    }
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}
