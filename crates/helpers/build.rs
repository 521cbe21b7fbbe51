//! Builds the helper files into the command where `STOPGAP_BUILTIN` is set, as `cargo install --path crates/cli` does
//! (`crates/cli/.cargo/config.toml`). Other builds are spared the two minutes.
//!
//! Cargo cannot yet name a library or a program as a dependency, so this calls cargo again, with a target directory of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

const FILES: [&str; 3] = [
    "libstopgap_preload.so",
    "stopgap-guest",
    "libstopgap_plugin.so",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=STOPGAP_BUILTIN");
    println!("cargo:rustc-check-cfg=cfg(builtin)");
    if std::env::var_os("STOPGAP_BUILTIN").is_none_or(|wanted| wanted.is_empty()) {
        return;
    }
    let variable = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_default());
    let root = variable("CARGO_MANIFEST_DIR").join("../..");
    if !root.join("crates/preload/Cargo.toml").exists() {
        println!(
            "cargo:warning=the sources of the helper files are not beside this package; the command will look for the files"
        );
        return;
    }
    for source in [
        "arena",
        "chunks",
        "events",
        "kernel",
        "kernels/guest",
        "kernels/plugin",
        "placement",
        "preload",
        "probes",
        "stats",
    ] {
        println!(
            "cargo:rerun-if-changed={}",
            root.join("crates").join(source).display()
        );
    }
    println!(
        "cargo:rerun-if-changed={}",
        root.join("Cargo.lock").display()
    );
    let out = variable("OUT_DIR");
    build(
        &root,
        &out.join("target"),
        &["build", "-p", "stopgap-preload", "-p", "stopgap-plugin"],
        &[],
    );
    let guest = ["rustc", "-p", "stopgap-guest", "--bin", "stopgap-guest"];
    build(
        &root,
        &out.join("target"),
        &guest,
        &["--", "-C", "target-feature=+crt-static"],
    );
    let target = std::env::var("TARGET").unwrap_or_default();
    for file in FILES {
        let built = out.join("target").join(&target).join("release").join(file);
        if let Err(error) = std::fs::copy(&built, out.join(file)) {
            panic!("cannot copy {}: {error}", built.display());
        }
    }
    println!("cargo:rustc-cfg=builtin");
}

/// Runs cargo on packages of the workspace, for the same target, without symbols.
fn build(root: &Path, target: &Path, what: &[&str], after: &[&str]) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(what)
        .args(["--release", "--locked", "--target"])
        .arg(std::env::var_os("TARGET").unwrap_or_default())
        .arg("--target-dir")
        .arg(target)
        .args(after)
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        // Flags of the outer build, such as +crt-static, are not for a library.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("STOPGAP_BUILTIN");
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?} ended with {status}"),
        Err(error) => panic!("cannot run {command:?}: {error}"),
    }
}
