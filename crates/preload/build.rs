//! Puts the unwinder into the library. Rust's standard library takes it from `libgcc_s.so.1`, which every program that
//! does not have it anyway would load with us: half of what the library costs at each exec. Where the C compiler has
//! no static one, `libgcc_s.so.1` is what is used.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") != "linux" || target("ENV") != "gnu" {
        return;
    }
    let linker = std::env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let asked = Command::new(linker)
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    let Ok(answer) = asked else { return };
    let path = String::from_utf8_lossy(&answer.stdout);
    let path = Path::new(path.trim());
    // The bare name comes back where there is none.
    if let Some(folder) = path.parent().filter(|_| path.is_absolute()) {
        println!("cargo:rustc-link-search=native={}", folder.display());
        println!("cargo:rustc-link-lib=static:+whole-archive=gcc_eh");
    }
}
