//! What the fuzz target `trace_page` does: also run by `crates/tracer/tests/all/page_bytes.rs` on changed
//! files for a few seconds.

use stopgap_tracer::format::Format;
use stopgap_tracer::page::PageLayout;
use stopgap_tracer::print::Names;

const LAYOUT: &str = include_str!("../../crates/tracer/fixtures/header_page");

/// Reads `bytes` as a page and as a format. Each ends with what it holds or with one line.
pub(crate) fn run(bytes: &[u8]) {
    let layout = PageLayout::parse("header_page", LAYOUT).unwrap();
    let text = String::from_utf8_lossy(bytes);
    let format = Format::parse("format", &text);
    if let Ok(page) = layout.page(bytes) {
        let mut records = 0;
        for record in page.records().flatten() {
            records += record.data.len() + 4;
            if let Ok(format) = &format {
                for name in ["common_pid", "prev_comm", "filename"] {
                    let Some(field) = format.field(name) else {
                        continue;
                    };
                    let _ = (field.text(record.data), field.signed(record.data));
                }
            }
        }
        assert!(records <= bytes.len());
    }
    let _ = PageLayout::parse("header_page", &text);
    let _ = Names::parse(&text, "prev_state").flags(u64::MAX);
}
