use std::os::unix::fs::PermissionsExt;

use super::*;

fn said(path: &Path) -> String {
    passes_through(path.as_os_str()).map_or_else(String::new, |reason| reason.why)
}

#[test]
fn static_setuid_and_32_bit_programs_pass_through_and_scripts_are_followed() {
    assert!(passes_through(OsStr::new("sh")).is_none());
    assert!(passes_through(OsStr::new("no-such-command-here")).is_none());
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, bytes: &[u8], mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let shell = std::fs::read("/bin/sh").unwrap();

    // The same program, its PT_INTERP called something else: what a static one looks like.
    let mut still = shell.clone();
    let table = u64::from_le_bytes(still[32..40].try_into().unwrap()) as usize;
    let size = usize::from(u16::from_le_bytes([still[54], still[55]]));
    let count = usize::from(u16::from_le_bytes([still[56], still[57]]));
    for entry in (0..count).map(|index| table + index * size) {
        if still[entry] == 3 {
            still[entry] = 0;
        }
    }
    let still = make("static", &still, 0o755);
    assert!(
        said(&still).contains("statically linked"),
        "{}",
        said(&still)
    );
    let script = format!("#!{}\necho\n", still.display());
    let script = make("script", script.as_bytes(), 0o755);
    assert!(
        said(&script).contains("statically linked"),
        "{}",
        said(&script)
    );
    let usual = make("usual", b"#!/usr/bin/env sh\necho\n", 0o755);
    assert_eq!(said(&usual), "");
    let endless = folder.path().join("endless");
    let endless = make(
        "endless",
        format!("#!{}\n", endless.display()).as_bytes(),
        0o755,
    );
    assert_eq!(said(&endless), "");

    let mut small = shell.clone();
    small[4] = 1;
    assert!(said(&make("small", &small, 0o755)).contains("32-bit"));
    for (name, cut) in [("nothing", 0), ("short", 4), ("head", 60)] {
        let _ = said(&make(name, &shell[..cut], 0o755)); // whatever is said, nothing panics
    }

    let gains = make("gains", &shell, 0o755);
    if rustix::process::getuid().is_root() {
        std::os::unix::fs::chown(&gains, Some(65_534), None).unwrap();
        std::fs::set_permissions(&gains, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(
            said(&gains).contains("ignores LD_PRELOAD"),
            "{}",
            said(&gains)
        );
    } else {
        stopgap_testing::skip(&stopgap_testing::Skip::root(
            "a set-user-ID program of another user",
        ));
    }
}

/// A shared library that holds nothing but `notes`, after its head and a program header for them.
fn library_of(notes: &[u8]) -> Vec<u8> {
    let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap()[..64].to_vec();
    bytes[16] = 3;
    bytes[32..40].copy_from_slice(&64_u64.to_ne_bytes());
    bytes[54..58].copy_from_slice(&[56, 0, 1, 0]);
    for word in [4, 64 + 56, 0, 0, notes.len() as u64, 0, 4] {
        bytes.extend_from_slice(&u64::to_ne_bytes(word));
    }
    bytes.extend_from_slice(notes);
    bytes
}

#[test]
fn what_would_not_be_loaded_or_would_do_nothing_is_no_library() {
    let folder = tempfile::tempdir().unwrap();
    let library = library_of(&[&[0; 16][..], &note()].concat());
    let said = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = library.clone();
        change(&mut bytes);
        let path = folder.path().join("library");
        std::fs::write(&path, bytes).unwrap();
        cannot_load(&path).unwrap_or_default()
    };
    let other = "is another library, or that of another version of stopgap";
    assert_eq!(said(&|_| ()), "");
    assert_eq!(said(&|bytes| bytes[4] = 1), "is of another machine");
    assert_eq!(said(&|bytes| bytes[18] ^= 1), "is of another machine");
    assert_eq!(said(&|bytes| bytes[16] = 1), "is no shared library");
    assert_eq!(said(&|bytes| bytes[0] = b'#'), "is no library");
    assert_eq!(said(&|bytes| bytes.truncate(20)), "is no library");
    assert_eq!(said(&Vec::clear), "is no library");
    // Another one, that of another version, and what was copied in part.
    assert_eq!(said(&|bytes| *bytes = library_of(b"")), other);
    assert_eq!(said(&|bytes| *bytes.last_mut().unwrap() ^= 1), other);
    for length in [64, 100, library.len() - 1] {
        assert_eq!(said(&|bytes| bytes.truncate(length)), other, "{length}");
    }
    for wild in [32, 54, 56, 72, 96] {
        let wild = said(&|bytes| bytes[wild..wild + 2].fill(0xff));
        assert!(wild.is_empty() || wild == other, "{wild}");
    }
    let none = cannot_load(&folder.path().join("none")).unwrap();
    assert!(none.starts_with("cannot be read: "), "{none}");
}
