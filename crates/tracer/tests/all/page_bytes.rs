//! Pages and formats that a running kernel gave (Linux 6.18, a shell that runs `true` and a pipe),
//! whole and with changed bytes: what the fuzz target asserts.

use std::path::{Path, PathBuf};

use stopgap_tracer::format::Format;
use stopgap_tracer::page::PageLayout;

#[path = "../../../../fuzz/bodies/trace_page.rs"]
mod body;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn layout() -> PageLayout {
    let text = std::fs::read_to_string(fixtures().join("header_page")).unwrap();
    PageLayout::parse("header_page", &text).unwrap()
}

/// The kernel's own count (`per_cpu/cpuN/stats`, `read events`) and the times of its own text.
#[test]
fn every_record_of_the_kernel_is_found() {
    let layout = layout();
    for (file, count, first_us, last_us) in [
        ("cpu0.raw", 102, 27_142_884_801, 27_142_899_504),
        ("cpu1.raw", 874, 27_142_884_822, 27_142_900_576),
    ] {
        let bytes = std::fs::read(fixtures().join(file)).unwrap();
        let mut times = Vec::new();
        for page in bytes.chunks(layout.page_bytes()) {
            let page = layout.page(page).unwrap();
            assert_eq!(page.lost, None);
            times.extend(page.records().map(|record| record.unwrap().time));
        }
        assert_eq!(times.len(), count, "{file}");
        assert!(times.is_sorted(), "{file}");
        let rounded = |time: u64| (time + 500) / 1_000;
        assert_eq!(rounded(times[0]), first_us, "{file}");
        assert_eq!(rounded(times[count - 1]), last_us, "{file}");
    }
}

/// `sched_switch` of this kernel, by the text that it printed itself.
#[test]
fn the_fields_of_the_kernel_are_found() {
    let read = |name: &str| {
        let text = std::fs::read_to_string(fixtures().join("formats").join(name)).unwrap();
        Format::parse(name, &text).unwrap()
    };
    let (switch, exec) = (read("sched.sched_switch"), read("sched.sched_process_exec"));
    let layout = layout();
    let bytes = std::fs::read(fixtures().join("cpu1.raw")).unwrap();
    let (mut first, mut programs) = (None, Vec::new());
    for page in bytes.chunks(layout.page_bytes()) {
        for record in layout.page(page).unwrap().records() {
            let record = record.unwrap();
            let text = |format: &Format, name: &str| {
                let text = format.field(name).unwrap().text(record.data);
                text.unwrap().into_owned()
            };
            if record.id() == Some(switch.id) && first.is_none() {
                first = Some((text(&switch, "prev_comm"), text(&switch, "next_comm")));
            } else if record.id() == Some(exec.id) {
                programs.push(text(&exec, "filename"));
            }
        }
    }
    assert_eq!(first, Some(("rustc".to_owned(), "python3".to_owned())));
    assert!(programs.starts_with(&["/bin/sh".to_owned(), "/bin/true".to_owned()]));
}

#[test]
fn changed_bytes_end() {
    let mut files = Vec::new();
    for folder in [fixtures(), fixtures().join("formats")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let bytes = std::fs::read(path).unwrap();
                files.extend(bytes.chunks(4096).map(<[u8]>::to_vec));
            }
        }
    }
    crate::run_changed(&files, [0, 0xff, b'(', b'0'], |bytes| {
        body::run(bytes);
    });
}
