use stopgap_events::machine::Privilege;
use stopgap_events::units::Bytes;

use super::*;
use crate::fake::Fake;

const PSI: &str = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\n";
const VERSION: &str = "/proc/sys/kernel/version";
const V1: &str = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n";
const V2: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";

/// A laptop whose every file is there.
fn machine() -> Fake {
    let kernel = "/proc/sys/kernel";
    let vulnerabilities = "/sys/devices/system/cpu/vulnerabilities";
    let mut fake = Fake::default()
        .with_file(format!("{kernel}/hostname"), "box\n")
        .with_file(format!("{kernel}/osrelease"), "6.18.1\n")
        .with_file(format!("{kernel}/arch"), "x86_64\n")
        .with_file(VERSION, "#1 SMP PREEMPT_DYNAMIC Mon\n")
        .with_file(format!("{kernel}/random/boot_id"), "d2f7\n")
        .with_file(format!("{kernel}/perf_event_paranoid"), "-1\n")
        .with_file("/proc/sys/vm/compaction_proactiveness", "20\n")
        .with_file("/proc/cmdline", "quiet preempt=full preempt=lazy\n")
        .with_file(
            "/boot/config-6.18.1",
            "CONFIG_HZ=1000\nCONFIG_PREEMPT_NONE=y\n",
        )
        .with_file("/sys/kernel/mm/lru_gen/enabled", "0x0007\n")
        .with_file(format!("{THP}/enabled"), "always [madvise] never\n")
        .with_file(
            format!("{THP}/defrag"),
            "always defer [defer+madvise] madvise never\n",
        )
        .with_file(format!("{THP}/hpage_pmd_size"), "33554432\n")
        .with_file(
            "/proc/swaps",
            "Filename Type Size Used Priority\n/dev/zram0 partition 1024 0 100\n",
        )
        .with_file("/proc/self/mounts", V2)
        .with_file("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n")
        .with_file("/sys/kernel/security/lsm", "lockdown,capability\n")
        .with_file("/sys/kernel/iommu_groups/0/type", "DMA-FQ\n")
        .with_file("/sys/kernel/iommu_groups/1/type", "identity\n")
        .with_file("/sys/kernel/iommu_groups/2/type", "DMA-FQ\n")
        .with_file(
            "/proc/cpuinfo",
            "model name : A CPU\nmicrocode : 0x12\nflags : fpu sse\n",
        )
        .with_file(
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "schedutil\n",
        )
        .with_file(format!("{vulnerabilities}/mds"), "Not affected\n")
        .with_file(format!("{vulnerabilities}/l1tf"), "Vulnerable\n")
        .with_file(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            "tsc\n",
        )
        .with_file(
            "/proc/meminfo",
            "MemTotal: 4096 kB\nMemAvailable: 1024 kB\nSwapTotal: 0 kB\n",
        )
        .with_file("/proc/uptime", "61.99 100.00\n")
        .with_file(
            "/proc/self/status",
            "Name:\tstopgap\nCapEff:\t000001ffffffffff\n",
        )
        .with_file("/proc/self/uid_map", "         0          0 4294967295\n")
        .with_file(
            "/proc/self/limits",
            "Max locked memory         8388608              unlimited            bytes\n",
        );
    for resource in ["cpu", "memory", "io"] {
        fake = fake.with_file(format!("/proc/pressure/{resource}"), PSI);
    }
    fake
}

fn why<'a>(environment: &'a Environment, what: &str) -> &'a str {
    let found = environment.missing.iter().find(|one| one.what == what);
    &found
        .unwrap_or_else(|| panic!("nothing about {what} in {:?}", environment.missing))
        .why
}

#[test]
fn every_field_of_a_whole_machine_is_read() {
    let e = read(&machine());
    assert_eq!(e.missing, []);
    for (field, value) in [
        (&e.host, "box"),
        (&e.kernel, "6.18.1"),
        (&e.architecture, "x86_64"),
        (&e.command_line, "quiet preempt=full preempt=lazy"),
        (&e.preemption, "lazy"),
        (&e.thp_enabled, "madvise"),
        (&e.thp_defrag, "defer+madvise"),
        (&e.swap, "zram"),
        (&e.memory_cgroup, "cgroup2"),
        (&e.lsm, "lockdown,capability"),
        (&e.iommu, "DMA-FQ,identity"),
        (&e.cpu, "A CPU"),
        (&e.microcode, "0x12"),
        (&e.governor, "schedutil"),
        (&e.clock_source, "tsc"),
        (&e.hypervisor, "none"),
        (&e.boot_id, "d2f7"),
    ] {
        assert_eq!(field.as_deref(), Some(value));
    }
    assert_eq!((e.hz, e.mglru), (Some(1000), Some(true)));
    assert_eq!(
        (e.pmd_size, e.page_size),
        (Some(Bytes::mib(32)), Bytes::kib(4))
    );
    assert_eq!(
        (e.compaction_proactiveness, e.max_map_count),
        (Some(20), Some(65_530))
    );
    assert_eq!(
        (e.swap_size, e.memlock_limit),
        (Some(Bytes::mib(1)), Some(Bytes::mib(8)))
    );
    assert_eq!(
        (e.memory, e.memory_available),
        (Some(Bytes::mib(4)), Some(Bytes::mib(1)))
    );
    assert_eq!((e.uptime_s, e.perf_event_paranoid), (Some(61), Some(-1)));
    assert_eq!(e.mitigations, ["l1tf: Vulnerable", "mds: Not affected"]);
    assert_eq!(
        (e.cpus.as_slice(), e.privilege),
        ([0].as_slice(), Privilege::Root)
    );
    assert_eq!((e.pressure_before.len(), e.pressure_after.len()), (3, 0));
}

#[test]
fn an_empty_machine_is_all_unknown_and_no_panic() {
    let e = read(&Fake::default().without("/proc").without("/sys"));
    assert_eq!(
        (&e.host, &e.swap, &e.iommu, &e.mglru),
        (&None, &None, &None, &None)
    );
    assert_eq!(e.privilege, Privilege::None);
    let unknown = |what: &str| assert!(!why(&e, what).is_empty());
    for what in [
        "host name",
        "kernel release",
        "command line",
        "kernel configuration",
        "preemption model",
        "multi-generational LRU",
        "transparent huge pages",
        "compaction_proactiveness",
        "max_map_count",
        "swap",
        "memory cgroup",
        "security modules",
        "IOMMU",
        "CPU",
        "frequency governor",
        "mitigations",
        "clock source",
        "hypervisor",
        "memory",
        "available memory",
        "uptime",
        "boot id",
        "capabilities",
        "perf_event_paranoid",
        "RLIMIT_MEMLOCK",
        "pressure",
    ] {
        unknown(what);
    }
}

#[test]
fn features_that_a_kernel_lacks_are_told_from_files_that_cannot_be_read() {
    let lacking = machine()
        .without("/sys/kernel/mm")
        .with_file("/sys/kernel/mm/ksm/run", "0\n")
        .without("/sys/kernel/iommu_groups")
        .without("/proc/swaps");
    let e = read(&lacking);
    assert_eq!((e.mglru, e.thp_enabled.as_deref()), (Some(false), None));
    assert!(why(&e, "transparent huge pages").contains("CONFIG_TRANSPARENT_HUGEPAGE"));
    assert_eq!(
        (e.iommu.as_deref(), e.swap.as_deref()),
        (Some("none"), Some("none"))
    );
    assert_eq!(e.missing.len(), 1);

    let refused = read(&machine().unreadable("/sys/kernel/mm/lru_gen", libc::EACCES));
    assert_eq!(refused.mglru, None);
    assert!(why(&refused, "multi-generational LRU").contains("root can"));
}

#[test]
fn the_preemption_model_comes_from_the_best_source_there_is() {
    let model = |fake: Fake| read(&fake).preemption;
    let debugfs = "/sys/kernel/debug/sched/preempt";
    let live = machine().with_file(debugfs, "none voluntary (full) lazy\n");
    assert_eq!(model(live).as_deref(), Some("full"));
    let built = machine().with_file("/proc/cmdline", "quiet preempt=\n");
    assert_eq!(model(built).as_deref(), Some("none"));
    let rt = machine().with_file(VERSION, "#1 SMP PREEMPT_RT Mon\n");
    assert_eq!(model(rt).as_deref(), Some("rt"));
    // Without PREEMPT_DYNAMIC the command line has no say.
    let fixed = machine().with_file(VERSION, "#1 SMP Mon\n");
    assert_eq!(model(fixed).as_deref(), Some("none"));
    let dark = machine()
        .with_file("/proc/cmdline", "quiet\n")
        .without("/boot");
    let e = read(&dark);
    assert_eq!(
        (e.preemption.as_deref(), e.hz, e.config_hash.as_deref()),
        (None, None, None)
    );
    assert!(why(&e, "preemption model").contains("debugfs"));
    assert!(why(&e, "kernel configuration").contains("/boot/config-6.18.1"));
}

#[test]
fn the_configuration_is_the_same_packed_or_not() {
    use std::io::Write;
    let text = "CONFIG_HZ=1000\nCONFIG_PREEMPT_NONE=y\n";
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(text.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    let plain = read(&machine());
    let from_gz = read(
        &machine()
            .without("/boot")
            .with_file("/proc/config.gz", &packed),
    );
    assert_eq!(
        (plain.config_hash, plain.hz),
        (from_gz.config_hash, from_gz.hz)
    );
    let cut = read(&machine().with_file("/proc/config.gz", &packed[..packed.len() / 2]));
    assert_eq!(cut.config_hash, None);
    assert!(why(&cut, "kernel configuration").starts_with("/proc/config.gz: "));
}

#[test]
fn memory_cgroups_are_found_where_they_live() {
    let kind = |mounts: &str, controllers: &str| {
        let fake = machine()
            .with_file("/proc/self/mounts", mounts)
            .with_file("/sys/fs/cgroup/cgroup.controllers", controllers);
        read(&fake).memory_cgroup.unwrap()
    };
    assert_eq!(kind(V1, ""), "cgroup1");
    assert_eq!(kind(V2, "cpu memory"), "cgroup2");
    assert_eq!(kind(V2, "cpu hugetlb"), "none");
    assert_eq!(kind(&format!("{V2}{V1}"), "cpu"), "cgroup1");
    assert_eq!(kind("proc /proc proc rw 0 0\nbroken\n", ""), "none");
}

#[test]
fn privilege_is_what_the_first_user_namespace_grants() {
    let held = |mask: &str| {
        let e = read(&machine().with_file("/proc/self/status", format!("CapEff:\t{mask}\n")));
        (e.privilege, e.capabilities.join(" "))
    };
    assert_eq!(held("0000000000000000"), (Privilege::None, String::new()));
    assert_eq!(
        held("0000004000800000"),
        (Privilege::Some, "CAP_PERFMON CAP_SYS_NICE".to_owned())
    );
    assert_eq!(
        held("0000000000200000"),
        (Privilege::Root, "CAP_SYS_ADMIN".to_owned())
    );
    let e = read(&machine().with_file("/proc/self/uid_map", "0 1000 1\n"));
    assert_eq!((e.privilege, e.capabilities.len()), (Privilege::None, 0));
    assert!(why(&e, "capabilities").contains("user namespace"));
}

#[test]
fn no_limit_is_not_an_unknown_limit() {
    let limit = |line: &str| read(&machine().with_file("/proc/self/limits", line));
    let unlimited = limit("Max locked memory   unlimited   unlimited   bytes\n");
    assert_eq!(
        (unlimited.memlock_limit, unlimited.missing.len()),
        (None, 0)
    );
    let broken = limit("Max locked memory\n");
    assert!(why(&broken, "RLIMIT_MEMLOCK").starts_with("/proc/self/limits: "));
}

#[test]
fn hypervisors_are_named_where_something_names_them() {
    let guest = || {
        machine().with_file(
            "/proc/cpuinfo",
            "model name: A\nmicrocode: 1\nflags: fpu hypervisor\n",
        )
    };
    let dmi = |fake: Fake| {
        fake.with_file("/sys/class/dmi/id/sys_vendor", "QEMU\n")
            .with_file("/sys/class/dmi/id/product_name", "Standard PC\n")
    };
    let name = |fake: Fake| read(&fake).hypervisor;
    assert_eq!(name(guest()).as_deref(), Some("unknown hypervisor"));
    assert_eq!(name(dmi(guest())).as_deref(), Some("QEMU Standard PC"));
    assert_eq!(
        name(guest().with_file("/sys/hypervisor/type", "xen\n")).as_deref(),
        Some("xen")
    );
    let arm = || machine().with_file("/proc/cpuinfo", "CPU implementer: 0x41\nCPU part: 0xd0c\n");
    assert_eq!(name(arm()), None);
    assert_eq!(name(dmi(arm())).as_deref(), Some("QEMU Standard PC"));
}

#[test]
fn broken_files_are_named_and_the_rest_is_read() {
    let e = read(
        &machine()
            .with_file("/sys/kernel/mm/lru_gen/enabled", "maybe\n")
            .with_file(format!("{THP}/enabled"), "madvise\n")
            .with_file("/proc/swaps", "Filename\nhalf a line\n")
            .with_file("/proc/self/status", "CapEff:\tlots\n"),
    );
    for (what, start) in [
        (
            "multi-generational LRU",
            "/sys/kernel/mm/lru_gen/enabled: 'maybe'",
        ),
        (
            "THP enabled",
            "/sys/kernel/mm/transparent_hugepage/enabled: ",
        ),
        ("swap", "/proc/swaps: line 2"),
        ("capabilities", "/proc/self/status: "),
    ] {
        assert!(
            why(&e, what).starts_with(start),
            "{what}: {}",
            why(&e, what)
        );
    }
    assert_eq!(e.missing.len(), 4);
    assert_eq!(e.host.as_deref(), Some("box"));
}

#[test]
fn each_architecture_names_its_model_otherwise() {
    let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
    assert_eq!(model(x86).as_deref(), Some("AMD EPYC"));
    let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n";
    assert_eq!(model(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
    let power = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n";
    assert_eq!(model(power).as_deref(), Some("POWER9, altivec supported"));
    assert_eq!(model("processor\t: 0\n"), None);
}

const HEAD: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

fn swap(lines: &str) -> (String, Bytes) {
    let swap = parse_swap(&format!("{HEAD}{lines}")).unwrap();
    (swap.kind, swap.size)
}

#[test]
fn kinds_are_named_and_sizes_summed() {
    assert_eq!(swap(""), ("none".to_owned(), Bytes(0)));
    let zram = "/dev/zram0                              partition\t8388604\t\t0\t\t100\n";
    assert_eq!(swap(zram), ("zram".to_owned(), Bytes::kib(8_388_604)));
    let file = "/a\\040b/swapfile file 1024 0 -2\n/dev/sda2 partition 1024 0 -3\n";
    let all = format!("{zram}{file}");
    assert_eq!(
        swap(&all),
        ("file+partition+zram".to_owned(), Bytes::kib(8_390_652))
    );
}

#[test]
fn broken_lines_are_errors_that_name_file_and_line() {
    for line in ["/dev/sda2 partition", "/dev/sda2 partition many 0 -2"] {
        let error = parse_swap(&format!("{HEAD}{line}\n"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("/proc/swaps: line 2: "), "{error}");
    }
    let much = format!("{HEAD}/a file {} 0 -2\n", u64::MAX);
    assert!(parse_swap(&much).is_err());
}
