use proptest::prelude::*;

use super::*;
use crate::testing::{module, packed};

/// A folder like /lib/modules/R.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

fn names(resolved: &Resolved) -> Vec<&str> {
    resolved
        .modules
        .iter()
        .map(|module| module.name.as_str())
        .collect()
}

#[test]
fn each_comes_after_what_it_needs_once_and_decompressed() {
    let top = module(&["depends=left,right-hand", "vermagic=6.1 SMP"]);
    let left = module(&["depends=base", "vermagic=6.1 SMP"]);
    let right = module(&["depends=base,inside", "softdep=pre: soft gone post: late"]);
    let folder = folder(&[
        ("kernel/a/top.ko", &top),
        ("kernel/a/left.ko.xz", &packed("xz", &left)),
        ("kernel/b/right_hand.ko.zst", &packed("zst", &right)),
        ("kernel/base.ko.gz", &packed("gz", &module(&["depends="]))),
        ("kernel/soft.ko", &module(&[])),
        ("kernel/late.ko", &module(&[])),
        (
            "modules.builtin",
            b"kernel/x/inside.ko\nkernel/y/also-inside.ko\n",
        ),
    ]);
    let modules = Modules::Folder(folder.path().to_path_buf());
    let resolved = modules
        .resolve(&["top", "also_inside", "nowhere", "left"], Some("6.1"))
        .unwrap();
    assert_eq!(
        names(&resolved),
        ["base", "left", "soft", "right_hand", "top"]
    );
    assert_eq!(resolved.missing, ["nowhere"]);
    assert_eq!(resolved.modules[1].bytes, left);
    assert_eq!(resolved.modules[4].path(), "/stopgap/modules/top.ko");
}

#[test]
fn a_circle_ends() {
    let folder = folder(&[
        ("a.ko", &module(&["depends=b"])),
        ("b.ko", &module(&["depends=a,b"])),
    ]);
    let modules = Modules::Folder(folder.path().to_path_buf());
    assert_eq!(names(&modules.resolve(&["a"], None).unwrap()), ["b", "a"]);
}

#[test]
fn one_for_another_kernel_is_refused_with_both_releases() {
    let folder = folder(&[("a.ko", &module(&["vermagic=6.12.1 SMP preempt"]))]);
    let modules = Modules::Folder(folder.path().to_path_buf());
    let error = modules.resolve(&["a"], Some("6.1.0")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "module a: built for 6.12.1, the kernel is 6.1.0"
    );
    let resolved = modules.resolve(&["a"], Some("6.12.1")).unwrap();
    assert_eq!(names(&resolved), ["a"]);
}

#[test]
fn what_another_needs_and_is_not_there_is_an_error() {
    let folder = folder(&[("a.ko", &module(&["depends=b"]))]);
    let error = Modules::Folder(folder.path().to_path_buf())
        .resolve(&["a"], None)
        .unwrap_err();
    assert!(error.to_string().starts_with("module b: "), "{error}");
}

#[test]
fn damaged_ones_are_errors() {
    let whole = module(&["depends=", "vermagic=6.1"]);
    let cut = &packed("xz", &whole)[..60];
    for (name, bytes) in [
        ("cut.ko.xz", cut),
        ("cut.ko", &whole[..whole.len() - 1]),
        ("text.ko", b"not a module"),
        ("empty.ko", b""),
        ("elf32.ko", b"\x7fELF\x01\x01"),
    ] {
        let folder = folder(&[(name, bytes)]);
        let modules = Modules::Folder(folder.path().to_path_buf());
        let name = name_of(name).unwrap();
        let error = modules.resolve(&[&name], None).unwrap_err().to_string();
        assert!(error.starts_with(&format!("module {name}: ")), "{error}");
    }
}

#[test]
fn links_are_not_followed() {
    let outside = folder(&[("a.ko", &module(&[]))]);
    let inside = folder(&[("b.ko", &module(&[]))]);
    std::os::unix::fs::symlink(outside.path(), inside.path().join("build")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("a.ko"), inside.path().join("a.ko")).unwrap();
    let resolved = Modules::Folder(inside.path().to_path_buf()).resolve(&["a", "b"], None);
    assert_eq!(names(&resolved.unwrap()), ["b"]);
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = needs(&bytes, None);
        let mut elf = b"\x7fELF\x02\x01".to_vec();
        elf.extend_from_slice(&bytes);
        let _ = needs(&elf, None);
    }

    #[test]
    fn a_changed_byte_never_panics(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = module(&["depends=a,b", "vermagic=6.1"]);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = needs(&bytes, None);
    }
}
