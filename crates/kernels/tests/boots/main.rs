//! Real kernels in a real QEMU: those packages that lie in the folder that `STOPGAP_KERNELS` names.
//!
//! Each test says `skipped:` with the reason where there is no such folder, no QEMU, or no way to link a static program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use stopgap_guest::protocol::Line;
use stopgap_kernels::machine::{Device, Machine};
use stopgap_kernels::qemu::Qemu;
use stopgap_kernels::{Architecture, Boot, End, Image, Initramfs, run_all};

/// The packages of one of Debian's architectures, smallest first.
fn packages(architecture: &str) -> Result<Vec<PathBuf>, String> {
    let ending = format!("{architecture}.deb");
    let folder = std::env::var_os("STOPGAP_KERNELS")
        .ok_or("STOPGAP_KERNELS names no folder of linux-image packages")?;
    let mut found: Vec<(u64, PathBuf)> = std::fs::read_dir(&folder)
        .map_err(|e| format!("{}: {e}", Path::new(&folder).display()))?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(&ending))
        .map(|entry| (entry.metadata().map_or(0, |m| m.len()), entry.path()))
        .collect();
    found.sort();
    if found.is_empty() {
        return Err(format!(
            "no linux-image package for {architecture} in {}",
            Path::new(&folder).display()
        ));
    }
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// `init.rs` as a static program.
fn program(folder: &Path) -> Result<Vec<u8>, String> {
    let crc = Line::Done { lines: 1 }.to_string();
    let crc = crc.split(' ').nth(1).unwrap();
    let source = include_str!("init.rs").replace("DONE_CRC", crc);
    let (from, to) = (folder.join("init.rs"), folder.join("init"));
    std::fs::write(&from, source).map_err(|e| e.to_string())?;
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc)
        .args([
            "--edition",
            "2024",
            "-O",
            "-C",
            "target-feature=+crt-static",
            "-o",
        ])
        .args([&to, &from])
        .output()
        .map_err(|e| format!("rustc: {e}"))?;
    if !built.status.success() {
        return Err(format!("rustc: {}", String::from_utf8_lossy(&built.stderr)));
    }
    std::fs::read(&to).map_err(|e| e.to_string())
}

/// What a boot needs, or why there is none.
struct Ready {
    qemu: Qemu,
    images: Vec<Image>,
    program: Vec<u8>,
}

fn ready() -> Result<Ready, String> {
    let packages = packages("amd64")?;
    let qemu = Qemu::find(Architecture::X86_64).map_err(|e| e.to_string())?;
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let program = program(folder.path())?;
    let images = packages.iter().map(|path| {
        let began = Instant::now();
        let image = Image::open(path.to_str().unwrap()).unwrap();
        println!(
            "{} opened in {:.1} s",
            image.release.as_deref().unwrap(),
            began.elapsed().as_secs_f64()
        );
        image
    });
    Ok(Ready {
        qemu,
        images: images.collect(),
        program,
    })
}

impl Ready {
    fn machine(&self, image: &Image, seed: u64, end: &str) -> Machine {
        let initramfs = Initramfs::build(&self.program, "{}", &[], &[]).unwrap();
        let mut machine = Machine::new(self.qemu.clone(), image.clone(), initramfs, seed);
        machine.append.push(format!("stopgap_end={end}"));
        // The limit is the host's clock, and this may be a busy one.
        machine.limit = Duration::from_secs(600);
        machine
    }
}

/// Past the harness, which keeps what a test that passes prints to itself.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

fn run(machines: &[Machine]) -> Vec<Boot> {
    run_all(machines, 2, &AtomicBool::new(false), &mut |_, boot| {
        println!(
            "{:?} after {:.1} s {} {:?}",
            boot.end,
            boot.host_time.as_secs_f64(),
            boot.why,
            boot.lines.first()
        );
    })
    .unwrap()
}

#[test]
fn packages_are_known_and_boots_are_bit_identical() {
    let ready = match ready() {
        Ok(ready) => ready,
        Err(why) => return skipped(&format!("kernels in emulation: {why}")),
    };
    let mut machines = Vec::new();
    for image in &ready.images {
        let release = image.release.as_deref().unwrap();
        assert_eq!(image.architecture, Architecture::X86_64);
        assert!(image.kernel.exists() && image.is_unpacked());
        assert_eq!(image.option("CONFIG_64BIT"), Some("y"));
        assert!(image.version.as_deref().unwrap().starts_with(release));
        assert_eq!(
            image.system_map, None,
            "Debian's says where the real one is"
        );
        assert!(image.modules.count().unwrap() > 100);
        for seed in [1, 1, 2] {
            machines.push(ready.machine(image, seed, "done"));
        }
    }
    let boots = run(&machines);
    for (image, boots) in ready.images.iter().zip(boots.chunks(3)) {
        for boot in boots {
            assert_eq!(boot.end, End::PoweredOff, "{boot:#?}");
            // Some kernels say this last word in an emergency's tone, which `quiet` does not silence.
            let mut said = boot.console.iter();
            assert!(
                said.all(|line| line.ends_with("reboot: Power down")),
                "{boot:#?}"
            );
            assert_eq!(boot.lines.len(), 2);
        }
        // The last word of a line is the counter itself: the whole boot took as many instructions.
        assert_eq!(boots[0].lines, boots[1].lines, "{:?}", image.release);
        assert_ne!(boots[0].lines, boots[2].lines, "another sample");
    }
}

#[test]
fn each_end_is_told() {
    let ready = match ready() {
        Ok(ready) => ready,
        Err(why) => return skipped(&format!("kernels in emulation: {why}")),
    };
    let image = &ready.images[0];
    let mut without_program = ready.machine(image, 1, "");
    without_program.initramfs = Initramfs::build(b"#!/nowhere\n", "{}", &[], &[]).unwrap();
    // As long as a boot takes here and now, and more.
    let whole = run(&[ready.machine(image, 1, "done")]).remove(0);
    assert!(whole.is_whole(), "{whole:#?}");
    let mut hang = ready.machine(image, 1, "hang");
    hang.limit = whole.host_time * 4 + Duration::from_secs(5);
    let mut late = ready.machine(image, 1, "done");
    late.limit = Duration::from_millis(300);
    let mut no_memory = ready.machine(image, 1, "done");
    no_memory.memory_mib = 1 << 30;
    let boots = run(&[
        ready.machine(image, 1, "panic"),
        ready.machine(image, 1, "early"),
        without_program,
        hang,
        late,
        no_memory,
    ]);
    let End::Panicked { reason } = &boots[0].end else {
        panic!("{:#?}", boots[0]);
    };
    assert_eq!(reason, "Attempted to kill init! exitcode=0x00000100");
    assert!(boots[0].why.ends_with("(the guest program ended)"));
    assert!(
        boots[0]
            .console
            .iter()
            .any(|line| line.contains("Call Trace")),
        "{:#?}",
        boots[0].console
    );
    assert_eq!(boots[1].end, End::PoweredOffEarly);
    assert_eq!(boots[1].lines.len(), 1);
    assert!(
        matches!(&boots[2].end, End::Panicked { .. }),
        "{:#?}",
        boots[2]
    );
    assert_eq!(boots[3].end, End::TimeLimit);
    assert_eq!(boots[3].lines.len(), 1);
    assert_eq!(boots[4].end, End::Silent);
    assert!(
        boots[4].why.contains("it has a serial console"),
        "{}",
        boots[4].why
    );
    assert!(
        matches!(boots[5].end, End::QemuFailed { .. }),
        "{:?}",
        boots[5].end
    );
}

#[test]
fn devices_and_modules_of_real_packages() {
    let ready = match ready() {
        Ok(ready) => ready,
        Err(why) => return skipped(&format!("kernels in emulation: {why}")),
    };
    // The largest one has the most modules.
    if let Some(image) = ready.images.last() {
        let release = image.release.as_deref();
        let resolved = image
            .modules
            .resolve(&["vgem", "vfio-pci", "udmabuf", "nowhere"], release)
            .unwrap();
        let names: Vec<&str> = resolved
            .modules
            .iter()
            .map(|module| module.name.as_str())
            .collect();
        println!(
            "{release:?}: {names:?} {:?} {:?}",
            resolved.builtin, resolved.missing
        );
        assert!(resolved.missing.contains(&"nowhere".to_owned()));
        let at = |name: &str| names.iter().position(|has| *has == name);
        assert!(at("vfio_pci").is_none_or(|last| at("vfio_pci_core").unwrap() < last));
        assert!(
            resolved
                .modules
                .iter()
                .all(|module| module.bytes.starts_with(b"\x7fELF"))
        );
        let mut machine = ready.machine(image, 1, "done");
        machine.devices = vec![Device::Iommu, Device::Edu];
        let initramfs = Initramfs::build(&ready.program, "{}", &resolved.modules, &[]).unwrap();
        machine.initramfs = initramfs;
        let boots = run(&[machine.clone(), machine]);
        assert!(boots.iter().all(Boot::is_whole), "{boots:#?}");
        assert_eq!(boots[0].lines, boots[1].lines);
    }
}

/// Arm's kernels come as far as /init, with devices and without. It needs no toolchain for Arm: /init is a program of a few
/// instructions, made here, that says what the virtual counter is and powers off.
#[test]
fn arm_boots_to_init_and_is_bit_identical() {
    let ready = packages("arm64").and_then(|packages| {
        let qemu = Qemu::find(Architecture::Aarch64).map_err(|e| e.to_string())?;
        Ok((packages, qemu))
    });
    let (packages, qemu) = match ready {
        Ok(ready) => ready,
        Err(why) => return skipped(&format!("kernels for Arm in emulation: {why}")),
    };
    for path in packages {
        let image = Image::open(path.to_str().unwrap()).unwrap();
        assert_eq!(image.architecture, Architecture::Aarch64);
        let release = image.release.as_deref();
        assert!(
            path.to_str()
                .unwrap()
                .contains(release.unwrap().trim_end_matches("-unsigned")),
            "{release:?}"
        );
        let resolved = image.modules.resolve(&["vfio-pci"], release).unwrap();
        assert!(
            resolved
                .modules
                .iter()
                .any(|module| module.name == "vfio_pci"),
            "{resolved:?}"
        );
        let initramfs = Initramfs::build(&arm_program(), "{}", &[], &[]).unwrap();
        let mut machine = Machine::new(qemu.clone(), image, initramfs, 1);
        machine.limit = Duration::from_secs(300);
        let mut with_devices = machine.clone();
        with_devices.devices = vec![Device::Iommu, Device::Edu];
        let mut other_seed = machine.clone();
        other_seed.seed = 2;
        let boots = run(&[machine.clone(), machine, other_seed, with_devices]);
        assert!(
            boots.iter().all(|boot| boot.end == End::PoweredOff),
            "{boots:#?}"
        );
        assert_eq!(boots[0].lines, boots[1].lines);
    }
}

/// An ELF file of one segment at 0x40_0000: its header, this program, and at 0x200 the text that it writes.
///
/// ```text
///     isb; mrs x0, cntvct_el0                     the counter, as 16 digits into the text
///     mov x1, #0x400210; mov x2, #16
/// 1:  sub x2, x2, #1; and x3, x0, #15; lsr x0, x0, #4
///     cmp x3, #10; add x4, x3, #'0'; add x5, x3, #'a' - 10; csel x3, x4, x5, lo
///     strb w3, [x1, x2]; cbnz x2, 1b
///     write(1, 0x400200, 256); ioctl(1, TCSBRK, 1); reboot(POWER_OFF)
/// 2:  b 2b
/// ```
fn arm_program() -> Vec<u8> {
    const CODE: [u32; 34] = [
        0xd503_3fdf,
        0xd53b_e040,
        0xd2a0_0801,
        0xf280_4201,
        0xd280_0202,
        0xd100_0442,
        0x9240_0c03,
        0xd344_fc00,
        0xf100_287f,
        0x9100_c064,
        0x9101_5c65,
        0x9a85_3083,
        0x3822_6823,
        0xb5ff_ff02,
        0xd280_0020,
        0xd2a0_0801,
        0xf280_4001,
        0xd280_2002,
        0xd280_0808,
        0xd400_0001,
        0xd280_0020,
        0xd28a_8121,
        0xd280_0022,
        0xd280_03a8,
        0xd400_0001,
        0xd29b_d5a0,
        0xf2bf_dc20,
        0xd283_2d21,
        0xf2a5_0241,
        0xd29f_db82,
        0xf2a8_6422,
        0xd280_11c8,
        0xd400_0001,
        0x1400_0000,
    ];
    let mut elf = vec![b'\n'; 0x300];
    elf[..0x200].fill(0);
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    for (at, value, size) in [
        // An executable for AArch64, version 1; its entry, its one program header.
        (16, 2, 2),
        (18, 183, 2),
        (20, 1, 4),
        (24, 0x40_0078, 8),
        (32, 64, 8),
        (52, 64, 2),
        (54, 56, 2),
        (56, 1, 2),
        // Loaded from the file's start, readable, writable and executable.
        (64, 1, 4),
        (68, 7, 4),
        (72, 0, 8),
        (80, 0x40_0000, 8),
        (88, 0x40_0000, 8),
        (96, 0x300, 8),
        (104, 0x300, 8),
        (112, 0x1_0000_u64, 8),
    ] {
        elf[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    for (at, word) in CODE.iter().enumerate() {
        elf[0x78 + 4 * at..0x7c + 4 * at].copy_from_slice(&word.to_le_bytes());
    }
    let text = format!(
        "@stopgap counts 0123456789abcdef\n{}\n",
        Line::Done { lines: 1 }
    );
    elf[0x200..0x200 + text.len()].copy_from_slice(text.as_bytes());
    elf
}
