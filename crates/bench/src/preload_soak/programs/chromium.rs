//! Headless Chromium printing a page to PDF. Identical are the rendered pixels; the file holds the time of day.

use std::fs;

use crate::preload_soak::place::{Place, failed, finish};
use crate::preload_soak::programs::Program;

pub(super) struct Chromium;

const PAGE: &str = include_str!("../sources/page.html");

impl Program for Chromium {
    fn name(&self) -> &'static str {
        "chromium"
    }

    fn packages(&self) -> &'static str {
        "chromium poppler-utils"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["chromium", "pdftoppm"]
    }

    fn prepare(&self, place: &Place) -> Result<(), String> {
        let path = place.shared().join("page.html");
        fs::write(&path, PAGE).map_err(|e| failed(&path, &e))
    }

    fn run(&self, place: &Place) -> Result<(), String> {
        let mut command = place.command("chromium");
        command.args(["--headless", "--disable-gpu", "--no-first-run"]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--no-pdf-header-footer",
        ]);
        // Its sandbox refuses root, and drops what LD_PRELOAD says.
        command.arg("--no-sandbox");
        command.arg(format!(
            "--user-data-dir={}",
            place.run().join("profile").display()
        ));
        command.arg(format!(
            "--print-to-pdf={}",
            place.run().join("page.pdf").display()
        ));
        command.arg(format!(
            "file://{}",
            place.shared().join("page.html").display()
        ));
        finish(command, &place.run()).map(drop)
    }

    fn check(&self, place: &Place) -> Result<Vec<u8>, String> {
        let mut render = place.plain("pdftoppm");
        render
            .args(["-r", "60"])
            .arg(place.run().join("page.pdf"))
            .arg(place.run().join("page"));
        finish(render, &place.run())?;
        let entries = fs::read_dir(place.run()).map_err(|e| failed(&place.run(), &e))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let mut pages: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|e| e == "ppm"))
            .collect();
        pages.sort();
        let mut pixels = Vec::new();
        for page in &pages {
            pixels.extend(fs::read(page).map_err(|e| failed(page, &e))?);
        }
        // The script's table alone fills more than one page, and white paper has one value.
        let ink = pixels.iter().filter(|byte| **byte < 128).count();
        if pages.len() < 2 || ink < 10_000 {
            return Err(format!("{} pages, {ink} dark bytes", pages.len()));
        }
        Ok(pixels)
    }
}
