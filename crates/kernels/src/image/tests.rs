use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::testing::holds;
use crate::testing::{arm64, bzimage, bzimage_of, deb, module, packed};

const VERSION: &str = "6.1.0-x (builder@host) #1 SMP";

/// And the folder of what was given.
fn open_kept(bytes: &[u8]) -> (tempfile::TempDir, Result<Image>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("given");
    fs::write(&path, bytes).unwrap();
    let image = Image::open(path.to_str().unwrap());
    (folder, image)
}

fn open(bytes: &[u8]) -> Result<Image> {
    open_kept(bytes).1
}

fn refusal(bytes: &[u8]) -> String {
    open(bytes).unwrap_err().to_string()
}

fn with_config(text: &str) -> Vec<u8> {
    let mut kernel = b"\x7fELF code IKCFG_ST".to_vec();
    kernel.extend_from_slice(&packed("gz", text.as_bytes()));
    kernel.extend_from_slice(b"IKCFG_ED more code");
    kernel
}

#[test]
fn a_bzimage_says_its_release_and_carries_its_configuration() {
    for how in ["gz", "xz", "zst"] {
        let kernel = with_config("CONFIG_SMP=y\n# CONFIG_X is not set\n");
        let image = open(&bzimage(VERSION, &kernel, how)).unwrap();
        assert_eq!(image.architecture, Architecture::X86_64);
        assert_eq!(image.release.as_deref(), Some("6.1.0-x"));
        assert_eq!(image.config_from, "the image itself");
        assert_eq!(image.option("CONFIG_SMP"), Some("y"));
        assert_eq!(image.option("CONFIG_X"), Some("n"));
        assert_eq!(image.sha256.len(), 64);
        assert!(!image.is_unpacked());
    }
    let image = open(&bzimage(VERSION, b"\x7fELF", "gz")).unwrap();
    assert_eq!(image.config, None);
    holds(&image.config_from, &["CONFIG_IKCONFIG"]);
    assert_eq!(image.option("CONFIG_SMP"), None);
}

/// An image whose compression is not read is taken all the same, and the error names the compression.
#[test]
fn a_payload_that_is_not_read_is_named() {
    for (first, name) in [
        (&b"BZh91AY"[..], "bzip2"),
        (b"\x5d\0\0\x80\0", "lzma"),
        (b"\x89LZO\0", "lzo"),
        (b"\x02\x21\x4c\x18", "lz4"),
    ] {
        let payload = [first, &[7; 104]].concat();
        let image = open(&bzimage_of(VERSION, &payload)).unwrap();
        assert_eq!(image.config, None);
        let why = "no configuration: the kernel is compressed by NAME, which is not read here";
        assert_eq!(image.config_from, why.replace("NAME", name));
    }
    // A cut payload says why.
    let gzip = packed("gz", &with_config("CONFIG_Z=y\n"));
    let image = open(&bzimage_of(VERSION, &gzip[..gzip.len() - 4])).unwrap();
    assert!(
        image.config_from.starts_with("no configuration: "),
        "{}",
        image.config_from
    );
}

#[test]
fn what_lies_beside_an_image_is_taken_where_the_release_fits() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    fs::write(place.join("vmlinuz"), bzimage(VERSION, b"\x7fELF", "gz")).unwrap();
    fs::write(place.join("config-6.1.0-x"), "CONFIG_A=y\n").unwrap();
    let image = Image::open(place.join("vmlinuz").to_str().unwrap()).unwrap();
    assert_eq!(image.option("CONFIG_A"), Some("y"));

    // A tree that was built.
    for (release, found) in [("6.1.0-x\n", true), ("6.2.0\n", false)] {
        let tree = place.join(release.trim());
        let boot = tree.join("arch/x86/boot");
        fs::create_dir_all(&boot).unwrap();
        fs::create_dir_all(tree.join("include/config")).unwrap();
        fs::write(tree.join("include/config/kernel.release"), release).unwrap();
        fs::write(tree.join(".config"), "CONFIG_B=m\n").unwrap();
        fs::write(boot.join("bzImage"), bzimage(VERSION, b"\x7fELF", "gz")).unwrap();
        let image = Image::open(boot.join("bzImage").to_str().unwrap()).unwrap();
        assert_eq!(image.option("CONFIG_B"), found.then_some("m"));
    }
}

#[test]
fn arm64_in_all_its_envelopes() {
    let plain = arm64("6.1.0-arm64 (builder) #1");
    let zipped = packed("gz", &plain);
    let mut efi = vec![0; 64];
    efi[..8].copy_from_slice(b"MZ\0\0zimg");
    efi[8..12].copy_from_slice(&64_u32.to_le_bytes());
    let payload = packed("zst", &plain);
    efi[12..16].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    efi.extend_from_slice(&payload);
    let mut sums = Vec::new();
    for bytes in [&plain, &zipped, &efi] {
        let image = open(bytes).unwrap();
        assert_eq!(image.architecture, Architecture::Aarch64);
        assert_eq!(image.release.as_deref(), Some("6.1.0-arm64"));
        assert_eq!(image.is_unpacked(), bytes != &plain);
        if image.is_unpacked() {
            assert_eq!(fs::read(&image.kernel).unwrap(), plain);
        }
        sums.push(image.sha256);
    }
    assert!(sums.iter().all(|sum| *sum == sums[0]));
    assert!(refusal(&efi[..100]).contains("truncated"));
    let mut big_endian = plain.clone();
    big_endian[24] = 1;
    assert!(refusal(&big_endian).contains("big-endian"));
}

#[test]
fn a_package_is_unpacked_into_a_folder_that_only_we_may_read_and_goes() {
    let kernel = bzimage("6.1-x (b) #1", b"\x7fELF", "gz");
    let module = module(&["vermagic=6.1-x SMP"]);
    let packed = packed("xz", &module);
    let files: [(&str, &[u8]); 3] = [
        ("./boot/vmlinuz-6.1-x", &kernel),
        ("./boot/config-6.1-x", b"CONFIG_SMP=y\n"),
        ("./lib/modules/6.1-x/kernel/a.ko.xz", &packed),
    ];
    let package = deb("xz", &files);
    let (_given, image) = open_kept(&package);
    let image = image.unwrap();
    let copy = image.clone();
    drop(image);
    let folder = copy.kernel.parent().unwrap().to_path_buf();
    let mode = fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(copy.config_from, "the package's /boot/config-6.1-x");
    let resolved = copy
        .modules
        .resolve(&["a"], copy.release.as_deref())
        .unwrap();
    assert_eq!(resolved.modules[0].bytes, module);
    drop(copy);
    assert!(!folder.exists());
}

#[test]
fn the_running_kernel_is_found_or_said_not_to_be() {
    let root = tempfile::tempdir().unwrap();
    let refusal = |release| Image::host(root.path(), release).unwrap_err().to_string();
    let none = refusal("6.1.0-x");
    holds(&none, &["no image of the running kernel 6.1.0-x"]);
    assert!(refusal("../etc").contains("the running kernel calls itself"));

    let put = |name: &str, bytes: &[u8]| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    };
    let kernel = bzimage(VERSION, b"\x7fELF", "gz");
    put("boot/vmlinuz-6.1.0-x", &kernel);
    put("proc/config.gz", &packed("gz", b"CONFIG_R=y\n"));
    let image = Image::host(root.path(), "6.1.0-x").unwrap();
    assert_eq!(
        (image.name.as_str(), image.option("CONFIG_R")),
        ("host", Some("y"))
    );

    // The file was replaced by a newer kernel's, and that one does not run yet.
    put("boot/vmlinuz-6.0", &kernel);
    let other = refusal("6.0");
    assert!(other.contains("is 6.1.0-x, but 6.0 runs"), "{other}");

    // Debian's images are world-readable, Ubuntu's are root's.
    let secret = put("boot/vmlinuz-6.2", b"");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).unwrap();
    let refused = refusal("6.2");
    if fs::File::open(&secret).is_err() {
        holds(&refused, &["vmlinuz-6.2", "denied"]);
    }
}

#[test]
fn everything_else_is_refused_by_its_name() {
    let elf = |class: u8, machine: u16, text: &[u8]| {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes.extend_from_slice(text);
        bytes
    };
    let mut riscv = vec![0; 4096];
    riscv[56..60].copy_from_slice(b"RSC\x05");
    let mut arm32 = vec![0; 4096];
    arm32[36..40].copy_from_slice(&[0x18, 0x28, 0x6f, 0x01]);
    let mut xen_efi = b"MZ".to_vec();
    xen_efi.resize(4096, 0);
    xen_efi.extend_from_slice(b"Xen version");
    for (bytes, says) in [
        (
            elf(2, 62, b"Linux version 6.1 (Xen)"),
            "a vmlinux: give the bzImage",
        ),
        (
            elf(2, 183, b"Linux version 6.1"),
            "a vmlinux: give the Image",
        ),
        (elf(2, 22, b"Linux version 6.1"), "a kernel for s390"),
        (elf(1, 3, b"Xen %d.%d"), "a Xen hypervisor"),
        (packed("gz", &elf(1, 3, b"Xen %d.%d")), "a Xen hypervisor"),
        (xen_efi, "a Xen hypervisor"),
        (elf(2, 62, b"hello"), "an ELF file for x86_64, not a kernel"),
        (riscv, "a kernel for RISC-V"),
        (arm32, "a kernel for 32-bit Arm"),
        (b"070701".to_vec(), "an initramfs"),
        (b"\xed\xab\xee\xdb\x03".to_vec(), "an RPM package"),
        (vec![b'x'; 5000], "a text file, not a kernel"),
        (
            "CONFIG_SMP=y # \u{e4}\n".repeat(999).into_bytes(),
            "a text file, not a kernel",
        ),
        (vec![1; 5000], "neither a bzImage"),
        (vec![1; 500], "too short for a kernel"),
        (Vec::new(), "an empty file"),
        (packed("gz", b"text"), "a gzip file of this"),
    ] {
        let said = refusal(&bytes);
        assert!(said.contains(says), "{says:?} is not in {said:?}");
    }
    // Nobody writes to the pipe: who opened it would wait for ever.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for path in [folder.path(), &pipe] {
        let said = Image::open(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(said.contains("not a file"), "{said}");
    }
    assert!(Image::open("/nonexistent/vmlinuz").is_err());
}

#[test]
fn a_bzimage_that_cannot_be_booted_here_is_refused() {
    let whole = bzimage(VERSION, &[7; 3000], "");
    assert!(open(&whole).is_ok());
    for length in (0x240..whole.len() - 15).step_by(61) {
        let said = refusal(&whole[..length]);
        assert!(said.contains("truncated"), "at {length}: {said}");
    }
    let changed = |at: usize, to: u8| {
        let mut bytes = whole.clone();
        bytes[at] = to;
        refusal(&bytes)
    };
    assert!(changed(0x236, 0).contains("32-bit x86"));
    assert!(changed(0x211, 0).contains("zImage"));
    assert!(changed(0x206, 0).contains("boot protocol 2.00"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn a_changed_image_never_panics(
        which in 0..4_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = match which {
            0 => bzimage(VERSION, &with_config("CONFIG_A=y\n"), "gz"),
            1 => bzimage(VERSION, &with_config("CONFIG_A=y\n"), "xz"),
            2 => arm64("6.1 x"),
            _ => packed("gz", &arm64("6.1 x")),
        };
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        let _ = open(&bytes);
        bytes.truncate(length.index(bytes.len()));
        let _ = open(&bytes);
    }
}
