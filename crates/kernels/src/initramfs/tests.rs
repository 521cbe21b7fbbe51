use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use stopgap_testing::Skip;

use super::*;

/// Name, mode, device, contents.
type Entry = (String, u32, (u32, u32), Vec<u8>);

/// The slow reader that is too simple to be wrong, in the archive's order.
fn read(bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut at = 0;
    loop {
        assert_eq!(&bytes[at..at + 6], b"070701");
        let field = |n: usize| {
            let digits = std::str::from_utf8(&bytes[at + 6 + 8 * n..at + 14 + 8 * n]).unwrap();
            u32::from_str_radix(digits, 16).unwrap()
        };
        let (mode, mtime, size, name) = (field(1), field(5), field(6) as usize, field(11) as usize);
        assert_eq!(mtime, 0);
        let name_at = at + 110;
        let text = std::str::from_utf8(&bytes[name_at..name_at + name - 1]).unwrap();
        assert_eq!(bytes[name_at + name - 1], 0);
        let body_at = (name_at + name).next_multiple_of(4);
        if text == "TRAILER!!!" {
            assert!(bytes[body_at..].iter().all(|&byte| byte == 0));
            return entries;
        }
        entries.push((
            text.to_owned(),
            mode,
            (field(9), field(10)),
            bytes[body_at..body_at + size].to_vec(),
        ));
        at = (body_at + size).next_multiple_of(4);
    }
}

fn file(path: &str, bytes: &[u8]) -> InitramfsFile {
    InitramfsFile {
        path: path.to_owned(),
        bytes: bytes.to_vec(),
        executable: true,
    }
}

fn module(name: &str) -> Module {
    Module {
        name: name.to_owned(),
        bytes: b"elf".to_vec(),
    }
}

#[test]
fn what_went_in_is_read_back() {
    let files = [file("/bin/deep/tool", b"#!")];
    let built = Initramfs::build(b"program", "{}", &[module("vgem")], &files).unwrap();
    let entries = read(built.bytes()).into_iter();
    let entries: BTreeMap<_, _> = entries
        .map(|(name, mode, device, body)| (name, (mode, device, body)))
        .collect();
    assert_eq!(entries["init"], (0o100_755, (0, 0), b"program".to_vec()));
    assert_eq!(
        entries["stopgap/plan.json"],
        (0o100_644, (0, 0), b"{}".to_vec())
    );
    assert_eq!(entries["stopgap/modules/vgem.ko"].2, b"elf");
    assert_eq!(entries["bin/deep/tool"].0, 0o100_755);
    assert_eq!(entries["bin/deep"].0, 0o040_755);
    assert_eq!(entries["dev/console"], (0o020_600, (5, 1), vec![]));
}

#[test]
fn folders_come_before_what_is_in_them_and_everything_once() {
    let built =
        Initramfs::build(b"", "", &[], &[file("/a/b/c", b""), file("/a/b/d", b"")]).unwrap();
    let mut seen = BTreeSet::new();
    for (name, ..) in read(built.bytes()) {
        if let Some((folder, _)) = name.rsplit_once('/') {
            assert!(seen.contains(folder), "{name}");
        }
        assert!(seen.insert(name));
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let build = |plan| Initramfs::build(b"p", plan, &[module("a")], &[file("/x", b"y")]).unwrap();
    assert_eq!(build("1").sha256(), build("1").sha256());
    assert_ne!(build("1").sha256(), build("2").sha256());
}

#[test]
fn names_that_mean_something_else_in_the_guest_are_refused() {
    for path in [
        "relative", "/", "/a/../b", "/a//b", "/a/", "/./a", "/init", "/a\0b", PLAN,
    ] {
        let built = Initramfs::build(b"", "", &[], &[file(path, b"")]);
        assert!(built.is_err(), "{path:?}");
    }
}

/// The system's own reader has the last word on the format.
#[test]
fn cpio_reads_it() {
    let files = [file("/bin/tool", b"1234567")];
    let built = Initramfs::build(b"program", "{}", &[module("vgem")], &files).unwrap();
    let child = Command::new("cpio")
        .args(["--extract", "--to-stdout", "--quiet", "bin/tool", "init"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return stopgap_testing::skip(&Skip::program(format!("cpio: {error}"))),
    };
    // It may have read enough before the padding at the end.
    let _ = child.stdin.take().unwrap().write_all(built.bytes());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"program1234567");
}

proptest! {
    #[test]
    fn any_files_are_read_back(files in prop::collection::btree_map("/[a-z]{1,3}/[a-z]{4,9}", prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
        let list: Vec<_> = files.iter().map(|(path, bytes)| file(path, bytes)).collect();
        let built = Initramfs::build(b"p", "{}", &[], &list).unwrap();
        prop_assert_eq!(built.bytes().len() % 512, 0);
        let read = read(built.bytes());
        for (path, bytes) in &files {
            let found = read.iter().find(|(name, ..)| name == &path[1..]).unwrap();
            prop_assert_eq!(&found.3, bytes);
        }
    }
}
