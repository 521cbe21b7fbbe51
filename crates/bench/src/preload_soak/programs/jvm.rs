//! A JVM with the G1 collector: reserves its heap, commits and uncommits parts of it by MAP_FIXED, mprotect and madvise.

use std::fs;

use crate::preload_soak::place::{Place, failed, finish};
use crate::preload_soak::programs::Program;

pub(super) struct Jvm;

const SOURCE: &str = include_str!("../sources/Churn.java");

impl Program for Jvm {
    fn name(&self) -> &'static str {
        "jvm"
    }

    fn packages(&self) -> &'static str {
        "openjdk-17-jdk-headless"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["java", "javac"]
    }

    fn prepare(&self, place: &Place) -> Result<(), String> {
        let path = place.shared().join("Churn.java");
        fs::write(&path, SOURCE).map_err(|e| failed(&path, &e))?;
        let mut javac = place.plain("javac");
        javac.arg("-d").arg(place.shared()).arg(path);
        finish(javac, &place.run()).map(drop)
    }

    fn run(&self, place: &Place) -> Result<(), String> {
        let mut java = place.command("java");
        java.args([
            "-XX:+UseG1GC",
            "-Xms16m",
            "-Xmx256m",
            // Or G1 makes it larger and smaller by how long its pauses took, and one run is 15 % dearer than the next.
            "-Xmn8m",
            "-XX:ParallelGCThreads=2",
            "-Xlog:gc:file=gc.log",
        ]);
        java.arg("-cp").arg(place.shared()).arg("Churn");
        let said = finish(java, &place.run())?.out;
        let path = place.run().join("answer");
        fs::write(&path, said).map_err(|e| failed(&path, &e))
    }

    fn check(&self, place: &Place) -> Result<Vec<u8>, String> {
        let read = |name: &str| {
            let path = place.run().join(name);
            fs::read_to_string(&path).map_err(|e| failed(&path, &e))
        };
        let (answer, log) = (read("answer")?, read("gc.log")?);
        if !log.contains("Using G1") || !log.contains("Pause Young") {
            return Err(format!("G1 has not collected: {log}"));
        }
        match answer.starts_with("ok ") {
            true => Ok(answer.into_bytes()),
            false => Err(answer),
        }
    }
}
