use super::*;
use crate::testing;
use crate::testing::holds;

fn machine(image: &[u8]) -> Machine {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel");
    std::fs::write(&path, image).unwrap();
    let image = Image::open(path.to_str().unwrap()).unwrap();
    let qemu = testing::qemu(image.architecture, "", folder.path());
    Machine::new(qemu, image, Initramfs::build(b"", "", &[], &[]).unwrap(), 7)
}

fn words(machine: &Machine) -> String {
    let words = machine.arguments(Path::new("/i"));
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[test]
fn every_flag_is_pinned() {
    let machine = machine(&testing::bzimage("6.1 x", b"\x7fELF", "gz"));
    let kernel = machine.image.kernel.display();
    assert_eq!(
        words(&machine),
        format!(
            "-no-user-config -nodefaults -display none -no-reboot -machine pc -cpu max,-la57,-erms,-fsrm -smp 1 \
             -accel tcg,thread=single -icount shift=0,sleep=off -rtc base=2020-01-01T00:00:00,clock=vm -m 1024 -seed 7 \
             -chardev stdio,id=console,signal=off -serial chardev:console -kernel {kernel} -initrd /i \
             -append console=ttyS0,115200 quiet panic=-1 nokaslr norandmaps nolapic_timer stopgap.seed=7"
        )
    );
    let real_time = words(&Machine {
        real_time: true,
        ..machine.clone()
    });
    assert!(real_time.contains("thread=single -m"), "{real_time}");
    let pinned = machine.pinned_command_line().join(" ");
    assert!(pinned.contains("-m 1024 -seed SEED -chardev"), "{pinned}");
    let end = format!("-kernel {kernel} -initrd INITRAMFS -append console=ttyS0,115200 quiet");
    assert!(
        pinned.contains(&end) && pinned.ends_with(" stopgap.seed=SEED"),
        "{pinned}"
    );
}

#[test]
fn devices_bring_their_machine_and_the_guests_flag() {
    let mut machine = machine(&testing::bzimage("6.1 x", b"\x7fELF", "gz"));
    machine.devices = vec![Device::Iommu, Device::Edu];
    machine.append = vec!["more=1".to_owned()];
    let words = words(&machine);
    let parts = [
        "-machine q35,kernel-irqchip=split ",
        "-device intel-iommu,intremap=on -device edu ",
        " intel_iommu=on stopgap.seed=7 more=1",
    ];
    testing::holds(&words, &parts);
}

#[test]
fn arm_has_its_own_machine_cpu_and_console() {
    let mut machine = machine(&testing::arm64("6.1 x"));
    let plain = words(&machine);
    for part in [
        "-machine virt ",
        "-cpu cortex-a72,cntfrq=1000000000 ",
        "console=ttyAMA0 quiet",
    ] {
        assert!(plain.contains(part), "{part} is not in {plain}");
    }
    machine.devices = vec![Device::Iommu, Device::Edu];
    let words = words(&machine);
    holds(
        &words,
        &["-machine virt,iommu=smmuv3,gic-version=3 ", "-device edu "],
    );
    assert!(!words.contains("intel"), "{words}");
}

#[test]
fn a_comma_in_a_plugins_path_or_argument_ends_nothing() {
    let mut machine = machine(&testing::bzimage("6.1 x", b"\x7fELF", "gz"));
    machine.plugin = Some(Plugin {
        library: "/a,b/lib.so".into(),
        arguments: vec!["out=/c,d".to_owned(), "every=1".to_owned()],
    });
    let words = words(&machine);
    holds(
        &words,
        &["-plugin file=/a,,b/lib.so,out=/c,,d,every=1 -kernel"],
    );
}
