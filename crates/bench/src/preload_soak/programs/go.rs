//! A Go program, static, and linked with glibc by cgo. Go's runtime makes its system calls itself either way: the library
//! sees what C code asks for and nothing of Go's heap.

use std::fs;

use crate::preload_soak::place::{Place, failed, finish};
use crate::preload_soak::programs::{Loads, Program};

pub(super) struct Go {
    name: &'static str,
    cgo: &'static str,
    loads: Loads,
}

pub(super) const STATIC: Go = Go {
    name: "go-static",
    cgo: "0",
    loads: Loads::Static,
};

pub(super) const DYNAMIC: Go = Go {
    name: "go",
    cgo: "1",
    loads: Loads::Yes,
};

const SOURCE: &str = include_str!("../sources/churn.go.txt");
/// What makes the linker take glibc. Go's own exit ends the process at once: it leaves by C's, so that the library reports.
const CGO: &str =
    "package main\n\n// #include <stdlib.h>\nimport \"C\"\n\nfunc leave() { C.exit(0) }\n";
const NO_CGO: &str = "package main\n\nfunc leave() {}\n";

impl Program for Go {
    fn name(&self) -> &'static str {
        self.name
    }

    fn packages(&self) -> &'static str {
        "golang-go gcc libc6-dev"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["go", "gcc"]
    }

    fn loads(&self) -> Loads {
        self.loads
    }

    fn prepare(&self, place: &Place) -> Result<(), String> {
        let write = |name: &str, text: &str| {
            let path = place.shared().join(name);
            fs::write(&path, text).map_err(|e| failed(&path, &e))
        };
        write("go.mod", "module churn\n\ngo 1.19\n")?;
        write("main.go", SOURCE)?;
        write(
            "leave.go",
            if self.loads == Loads::Yes {
                CGO
            } else {
                NO_CGO
            },
        )?;
        let mut go = place.plain("go");
        go.args(["build", "-o", "churn"])
            .current_dir(place.shared());
        go.env("GOCACHE", place.shared().join("cache"))
            .env("GOPATH", place.shared().join("path"));
        go.env("CGO_ENABLED", self.cgo)
            .env("GOTOOLCHAIN", "local")
            .env("GOPROXY", "off")
            .env("GOFLAGS", "-mod=mod");
        finish(go, &place.run()).map(drop)
    }

    fn run(&self, place: &Place) -> Result<(), String> {
        let program = place.shared().join("churn");
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
