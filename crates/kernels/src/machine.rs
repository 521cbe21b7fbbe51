//! The emulated machine: QEMU's command line and the guest kernel's, every flag pinned.
//!
//! | flag | why |
//! |---|---|
//! | `-accel tcg,thread=single -icount shift=0,sleep=off` | an instruction is a nanosecond of the guest's clock, on any host; waiting is skipped |
//! | `-cpu max,-la57,-erms,-fsrm` | TCG counts each iteration of a REP instruction: kernels must copy without them |
//! | `-cpu cortex-a72,cntfrq=1000000000` | one tick of the virtual counter is one instruction (62.5 MHz by itself: sixteen) |
//! | `-smp 1` | one order of events |
//! | `-rtc base=...,clock=vm` | the same time of day at each boot |
//! | `-seed N` | the same random numbers at each boot of one layout sample |
//! | `-no-user-config -nodefaults` | nothing of the host's configuration |
//! | `-no-reboot` | a panic ends QEMU (`panic=-1` on the guest's side) |
//! | `nokaslr norandmaps` | addresses mean the same in each boot; what the layout does to figures is what seeds sample |
//! | `nolapic_timer` | x86: the kernel measures the local APIC's timer by polling for 216 million instructions, a third of a boot on the host; it ticks by the HPET instead |
//!
//! KASLR alone would be as repeatable: QEMU's seed is its only source. It is off so that System.map holds.
//!
//! Left out on purpose: SMP, KVM, caches and TLBs. Figures show nothing of what depends on them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::Result;
use crate::boot::Boot;
use crate::image::{Architecture, Image};
use crate::initramfs::Initramfs;
use crate::qemu::Qemu;

/// Memory of a guest, in MiB, where nobody says otherwise.
pub const MEMORY_MIB: u32 = 1024;
/// How long a guest may take, where nobody says otherwise: some twenty times what a boot takes on an idle host. Where many
/// others want the CPUs, it can be too short for a guest that does nothing wrong; [`Boot::why`] says how much CPU time
/// it had.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A device beside the serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    /// An IOMMU: VT-d on x86 (`intel_iommu=on` goes to the guest), SMMUv3 on Arm.
    Iommu,
    /// QEMU's `edu`: a PCI device with a DMA engine, for vfio-pci.
    Edu,
}

/// A TCG plugin that counts instructions by function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// The library.
    pub library: PathBuf,
    /// Its arguments, each `name=value`.
    pub arguments: Vec<String>,
}

/// A guest that has not been started.
#[derive(Debug, Clone)]
pub struct Machine {
    /// By which QEMU.
    pub qemu: Qemu,
    /// Which kernel.
    pub image: Image,
    /// Its initramfs.
    pub initramfs: Initramfs,
    /// The layout sample: QEMU's seed, and `stopgap.seed=` for the guest.
    pub seed: u64,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Beside the serial port.
    pub devices: Vec<Device>,
    /// One that is loaded into QEMU.
    pub plugin: Option<Plugin>,
    /// Seconds of the host's clock until the guest is ended. It decides nothing but whether there is a result.
    pub limit: Duration,
    /// More words for the guest kernel's command line.
    pub append: Vec<String>,
    /// The guest's clock is the host's: nothing can be counted, and a machine that is suspended wakes up.
    pub real_time: bool,
}

impl Machine {
    /// A guest without devices, with [`MEMORY_MIB`] and [`LIMIT`].
    #[must_use]
    pub fn new(qemu: Qemu, image: Image, initramfs: Initramfs, seed: u64) -> Machine {
        Machine {
            qemu,
            image,
            initramfs,
            seed,
            memory_mib: MEMORY_MIB,
            devices: Vec::new(),
            plugin: None,
            limit: LIMIT,
            append: Vec::new(),
            real_time: false,
        }
    }

    /// Returns the emulated CPU, as QEMU's command line names it.
    #[must_use]
    pub fn cpu(&self) -> &'static str {
        match self.image.architecture {
            Architecture::X86_64 => "max,-la57,-erms,-fsrm",
            // A real model: what "max" is grows with QEMU's versions, and old kernels do not take all of it.
            Architecture::Aarch64 => "cortex-a72,cntfrq=1000000000",
        }
    }

    /// The guest kernel's command line.
    fn kernel_command_line(&self, seed: &str) -> String {
        let x86 = self.image.architecture == Architecture::X86_64;
        let console = if x86 { "ttyS0,115200" } else { "ttyAMA0" };
        let mut words = vec![format!(
            "console={console} quiet panic=-1 nokaslr norandmaps"
        )];
        if x86 {
            words.push("nolapic_timer".to_owned());
        }
        if x86 && self.devices.contains(&Device::Iommu) {
            words.push("intel_iommu=on".to_owned());
        }
        words.push(format!("{}{seed}", stopgap_guest::protocol::SEED));
        words.extend(self.append.iter().cloned());
        words.join(" ")
    }

    /// QEMU's arguments, with the initramfs at `initramfs`.
    #[must_use]
    pub fn arguments(&self, initramfs: &Path) -> Vec<OsString> {
        self.words(&self.image.kernel, initramfs, &self.seed.to_string())
    }

    /// QEMU's command line with words in the place of what differs from boot to boot, or is gone after it.
    pub(crate) fn pinned_command_line(&self) -> Vec<String> {
        let kernel = match self.image.is_unpacked() {
            true => Path::new("KERNEL"),
            false => &self.image.kernel,
        };
        let words = self.words(kernel, Path::new("INITRAMFS"), "SEED");
        let words = words.iter().map(|word| word.to_string_lossy().into_owned());
        [self.qemu.program().display().to_string()]
            .into_iter()
            .chain(words)
            .collect()
    }

    fn words(&self, kernel: &Path, initramfs: &Path, seed: &str) -> Vec<OsString> {
        let x86 = self.image.architecture == Architecture::X86_64;
        let iommu = self.devices.contains(&Device::Iommu);
        let machine = match (x86, iommu) {
            (true, false) => "pc",
            (true, true) => "q35,kernel-irqchip=split",
            (false, false) => "virt",
            // GICv3 with its ITS: VFIO refuses a device whose interrupts are not translated (EPERM).
            (false, true) => "virt,iommu=smmuv3,gic-version=3",
        };
        let clock = match self.real_time {
            false => " -icount shift=0,sleep=off -rtc base=2020-01-01T00:00:00,clock=vm",
            true => "",
        };
        let text = format!(
            "-no-user-config -nodefaults -display none -no-reboot -machine {machine} -cpu {} -smp 1 \
             -accel tcg,thread=single{clock} -m {} -seed {seed} \
             -chardev stdio,id=console,signal=off -serial chardev:console{}{}",
            self.cpu(),
            self.memory_mib,
            if iommu && x86 {
                " -device intel-iommu,intremap=on"
            } else {
                ""
            },
            if self.devices.contains(&Device::Edu) {
                " -device edu"
            } else {
                ""
            },
        );
        let mut all: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        if let Some(plugin) = &self.plugin {
            // A comma ends a value; two stand for one.
            let library = plugin
                .library
                .as_os_str()
                .as_bytes()
                .split(|&byte| byte == b',');
            let mut value = b"file=".to_vec();
            value.extend(library.collect::<Vec<_>>().join(&b",,"[..]));
            for argument in &plugin.arguments {
                value.extend(format!(",{}", argument.replace(',', ",,")).bytes());
            }
            all.extend(["-plugin".into(), OsString::from_vec(value)]);
        }
        all.extend([
            "-kernel".into(),
            kernel.into(),
            "-initrd".into(),
            initramfs.into(),
        ]);
        all.extend(["-append".into(), self.kernel_command_line(seed).into()]);
        all
    }

    /// Boots it and waits for its end, or until `stop` is set.
    ///
    /// # Errors
    ///
    /// As [`crate::run_all`].
    pub fn run(&self, stop: &AtomicBool) -> Result<Boot> {
        let mut boots = crate::run_all(std::slice::from_ref(self), 1, stop, &mut |_, _| {})?;
        Ok(boots.remove(0))
    }
}

#[cfg(test)]
mod tests;
