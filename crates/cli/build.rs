//! Gives the release build its features and the commit that it is made from, for `--version`. A debug build names no commit: it would be
//! compiled again after each.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit =
        packaged(&own).or_else(|| release.then(|| checked_out(&own.join("../.."))).flatten());
    let known = commit
        .filter(|commit| commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()));
    println!(
        "cargo:rustc-env=STOPGAP_COMMIT={}",
        known.as_ref().map_or("unknown", |commit| &commit[..12])
    );
    let gl = std::env::var_os("CARGO_FEATURE_GL").is_some();
    println!(
        "cargo:rustc-env=STOPGAP_FEATURES={}",
        if gl { "gl" } else { "none" }
    );
}

/// Returns the commit that `cargo package` noted beside the package's `Cargo.toml`.
fn packaged(package: &Path) -> Option<String> {
    let note = fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let (_, after) = note.split_once("\"sha1\"")?;
    Some(after.split('"').nth(1)?.to_owned())
}

/// Returns the commit that is checked out in `root`, read from Git's files. Tells cargo which of them change with the commit: cargo runs a build
/// script again each time if one of these files does not exist.
fn checked_out(root: &Path) -> Option<String> {
    let read = |file: &Path| {
        let text = fs::read_to_string(file).ok()?;
        println!("cargo:rerun-if-changed={}", file.display());
        Some(text.trim().to_owned())
    };
    let mut git = root.join(".git");
    // In a worktree .git is a file that names the folder, which in turn names the folder of the branches.
    if git.is_file() {
        git = root.join(read(&git)?.strip_prefix("gitdir: ")?);
    }
    let common =
        read(&git.join("commondir")).map_or_else(|| git.clone(), |folder| git.join(folder));
    let head = read(&git.join("HEAD"))?;
    let Some(branch) = head.strip_prefix("ref: ") else {
        return Some(head);
    };
    if let Some(commit) = read(&common.join(branch)) {
        return Some(commit);
    }
    // The next commit makes the branch a file of its own in this folder.
    let folder = common.join(branch).parent()?.to_owned();
    println!("cargo:rerun-if-changed={}", folder.display());
    let packed = read(&common.join("packed-refs"))?;
    let named = |line: &str| {
        line.strip_suffix(branch)?
            .strip_suffix(' ')
            .map(str::to_owned)
    };
    packed.lines().find_map(named)
}
