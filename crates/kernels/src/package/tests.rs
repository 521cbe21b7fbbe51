use proptest::prelude::*;

use super::*;
use crate::testing::holds;
use crate::testing::{ar, deb, deb_of, module, packed, tar};

fn try_unpack(bytes: &[u8]) -> (tempfile::TempDir, Result<Unpacked>) {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("package.deb");
    fs::write(&package, bytes).unwrap();
    let into = folder.path().join("into");
    fs::create_dir(&into).unwrap();
    let unpacked = unpack("package.deb", &package, &into).and_then(|unpacked| {
        unpack_modules("package.deb", &package, &into.join("modules")).map(|()| unpacked)
    });
    (folder, unpacked)
}

fn refusal(bytes: &[u8]) -> String {
    let (folder, unpacked) = try_unpack(bytes);
    let error = unpacked.unwrap_err().to_string();
    // Whatever was wrong, nothing was written but below the folder that was given.
    let names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    error
}

fn kernel_files() -> Vec<(&'static str, &'static [u8])> {
    vec![
        ("./boot/vmlinuz-6.1-x", b"the kernel"),
        ("./boot/config-6.1-x", b"CONFIG_X=y\n"),
        ("./usr/share/doc/linux/copyright", b"not needed"),
        ("./lib/modules/6.1-x/modules.builtin", b"kernel/a.ko\n"),
        ("./lib/modules/6.1-x/kernel/drivers/b.ko", b"module"),
    ]
}

#[test]
fn each_compression_gives_the_same() {
    for how in ["", "gz", "xz", "zst"] {
        let (folder, unpacked) = try_unpack(&deb(how, &kernel_files()));
        let unpacked = unpacked.unwrap();
        assert_eq!(unpacked.release, "6.1-x");
        assert_eq!(fs::read(&unpacked.kernel).unwrap(), b"the kernel");
        assert_eq!(fs::read(unpacked.config.unwrap()).unwrap(), b"CONFIG_X=y\n");
        let module = folder.path().join("into/modules/kernel/drivers/b.ko");
        assert_eq!(fs::read(module).unwrap(), b"module");
        assert!(!folder.path().join("into/copyright").exists());
    }
}

#[test]
fn a_merged_usr_has_its_modules_elsewhere() {
    let module = module(&[]);
    let files: [(&str, &[u8]); 2] = [
        ("boot/vmlinuz-6.1", b"k"),
        ("usr/lib/modules/6.1/kernel/a.ko", &module),
    ];
    let (folder, unpacked) = try_unpack(&deb("xz", &files));
    unpacked.unwrap();
    assert!(folder.path().join("into/modules/kernel/a.ko").exists());
}

#[test]
fn names_that_lead_out_are_errors_and_write_nothing() {
    for name in [
        "../outside",
        "./boot/../../vmlinuz-1",
        "/etc/passwd",
        "lib/modules/1/../../../../a.ko",
    ] {
        let said = refusal(&deb("gz", &[(name, b"hostile"), ("boot/vmlinuz-1", b"k")]));
        let says = said.contains("leads out") || said.contains("absolute");
        assert!(says, "{name}: {said}");
    }
}

#[test]
fn links_are_never_made() {
    let mut builder = ::tar::Builder::new(Vec::new());
    for (kind, name, to) in [
        (::tar::EntryType::Symlink, "lib/modules/1/kernel", "/tmp"),
        (::tar::EntryType::Symlink, "boot/vmlinuz-1", "/etc/shadow"),
        (::tar::EntryType::Link, "boot/config-1", "/etc/passwd"),
    ] {
        let mut header = ::tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        builder.append_link(&mut header, name, to).unwrap();
    }
    let said = refusal(&deb_of("gz", &builder.into_inner().unwrap()));
    assert!(said.contains("no /boot/vmlinuz"), "{said}");
}

#[test]
fn a_file_where_a_folder_should_be_is_an_error() {
    let files: [(&str, &[u8]); 3] = [
        ("boot/vmlinuz-1", b"k"),
        ("lib/modules/1/a.ko", b"m"),
        ("lib/modules/1/a.ko/b.ko", b"m"),
    ];
    let (_folder, unpacked) = try_unpack(&deb("gz", &files));
    assert!(unpacked.is_err());
}

#[test]
fn a_truncated_package_is_said_to_be_one_wherever_it_ends() {
    for how in ["", "gz", "xz", "zst"] {
        let whole = deb(how, &kernel_files());
        // Every length that is a multiple of 7: in headers, members, compressed data.
        for length in (8..whole.len() - 1).step_by(7) {
            let said = refusal(&whole[..length]);
            assert!(said.contains("truncated"), "{how} at {length}: {said}");
        }
    }
}

/// The archive around it is whole.
#[test]
fn a_package_whose_data_is_cut_inside_is_said_to_be_truncated() {
    for how in ["gz", "xz", "zst"] {
        let data = packed(how, &tar(&kernel_files()));
        let member = (&*format!("data.tar.{how}"), &data[..data.len() / 2]);
        let said = refusal(&ar(&[("debian-binary", b"2.0\n"), member]));
        assert!(said.contains("truncated or corrupted"), "{how}: {said}");
    }
}

#[test]
fn other_packages_and_archives_are_named() {
    let debian: (&str, &[u8]) = ("debian-binary", b"2.0\n");
    for (bytes, says) in [
        (
            deb("xz", &[("usr/share/doc/linux-image-amd64/copyright", b"")]),
            "only depends on",
        ),
        (ar(&[("libx.o/", b"object")]), "not a Debian package"),
        (ar(&[debian, ("data.tar.bz2", b"BZh91AY&SY")]), "bzip2"),
    ] {
        let said = refusal(&bytes);
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn what_says_it_is_larger_than_any_kernel_is_refused() {
    let mut header = ::tar::Header::new_gnu();
    header.set_path("boot/vmlinuz-1").unwrap();
    header.set_size(LARGEST + 1);
    header.set_mode(0o644);
    header.set_cksum();
    let said = refusal(&deb_of("gz", header.as_bytes()));
    assert!(said.contains("more than a kernel package holds"), "{said}");
}

#[test]
fn a_full_disk_is_not_the_packages_fault() {
    // Whatever is written there finds no space.
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("vmlinuz")).unwrap();
    let package = folder.path().join("package.deb");
    fs::write(&package, deb("xz", &kernel_files())).unwrap();
    let error = unpack("package.deb", &package, folder.path())
        .unwrap_err()
        .to_string();
    holds(&error, &["name another place with TMPDIR=FOLDER"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn a_changed_byte_never_panics_or_leads_out(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = deb("", &kernel_files());
        let at = at.index(bytes.len());
        bytes[at] = to;
        let (folder, _) = try_unpack(&bytes);
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
