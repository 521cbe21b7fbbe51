//! The library, built as the tests are.

use std::path::PathBuf;
use std::process::Command;

/// Builds it where this test was built, and says where it is: cargo builds no cdylib for the tests of its own package.
/// `STOPGAP_PRELOAD` names another one.
pub(crate) fn library() -> PathBuf {
    if let Some(given) = std::env::var_os("STOPGAP_PRELOAD") {
        return given.into();
    }
    let own = std::env::current_exe().expect("/proc is mounted");
    let profile = own.ancestors().nth(2).expect("target/PROFILE/deps/test");
    let target = profile.parent().expect("target/PROFILE");
    let mut build = Command::new(env!("CARGO"));
    build.args([
        "build",
        "-q",
        "--locked",
        "-p",
        "stopgap-preload",
        "--target-dir",
    ]);
    build.arg(target);
    if cfg!(feature = "inject") {
        build.args(["--features", "inject"]);
    }
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(built.expect("cargo runs").success(), "{build:?}");
    profile.join("libstopgap_preload.so")
}
