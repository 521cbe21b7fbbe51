//! Rust programs that map memory themselves: the mails' own case, buffers that come and go; threads that cut up ranges; and
//! the first one linked statically.

use std::fs;
use std::process::Command;

use crate::preload_soak::place::{Place, failed, finish};
use crate::preload_soak::programs::{Loads, Program};

pub(super) struct Rust {
    name: &'static str,
    source: &'static str,
    loads: Loads,
}

pub(super) const BUFFERS: Rust = Rust {
    name: "rust-buffers",
    source: include_str!("../sources/buffers.rs.txt"),
    loads: Loads::Yes,
};

pub(super) const RANGES: Rust = Rust {
    name: "rust-ranges",
    source: include_str!("../sources/ranges.rs.txt"),
    loads: Loads::Yes,
};

pub(super) const STATIC: Rust = Rust {
    name: "rust-static",
    source: BUFFERS.source,
    loads: Loads::Static,
};

impl Program for Rust {
    fn name(&self) -> &'static str {
        self.name
    }

    fn packages(&self) -> &'static str {
        "gcc libc6-dev, and a rustc in PATH"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["gcc"]
    }

    fn loads(&self) -> Loads {
        self.loads
    }

    fn prepare(&self, place: &Place) -> Result<(), String> {
        let (path, program) = (
            place.shared().join("main.rs"),
            place.shared().join("program"),
        );
        fs::write(&path, self.source).map_err(|e| failed(&path, &e))?;
        // With our own environment: a rustc may be rustup's, which asks HOME which one it is.
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc
            .args(["--edition", "2021", "-O", "-o"])
            .arg(program)
            .arg(path);
        if self.loads == Loads::Static {
            rustc.args(["-C", "target-feature=+crt-static"]);
        }
        finish(rustc, &place.run()).map(drop)
    }

    fn run(&self, place: &Place) -> Result<(), String> {
        let program = place.shared().join("program");
        let said = finish(place.command(&program.to_string_lossy()), &place.run())?;
        if self.loads == Loads::Static {
            place.passes_through(&said)?;
        }
        let said = said.out;
        match said.starts_with("ok ") {
            true => fs::write(place.run().join("answer"), said).map_err(|e| e.to_string()),
            false => Err(said),
        }
    }

    fn check(&self, place: &Place) -> Result<Vec<u8>, String> {
        let path = place.run().join("answer");
        fs::read(&path).map_err(|e| failed(&path, &e))
    }
}
