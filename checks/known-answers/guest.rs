//! What the guest runs beside `stopgap`.
//!
//! ```text
//! known mounts     mounts what is not mounted yet
//! known prepare    does so, swaps to compressed memory, makes a memory cgroup
//! known pressure   joins that cgroup, keeps the device open, and touches three times what the cgroup may have
//! known watch stall|end -- WATCH -- HISTORY    runs WATCH on a disk, then stalls for ever, or ends it in order and runs HISTORY
//! known lockdown   says how the kernel is locked down
//! known naps       sleeps while the clock is set ahead and back
//! known beside -- WATCH    runs WATCH, and stalls while the clock is set
//! known fence WHO  waits for a fence of vgem that WHO signals
//! ```
//!
//! `pressure` is what is recorded. Its page faults have to reclaim, in its own context, because nobody else does it for
//! a cgroup; and it is asked of the module's shrinker, because the open device has an object in that cgroup.

#[path = "late_fence.rs"]
mod late_fence;
#[path = "lives.rs"]
mod lives;

use std::error::Error;
use std::ffi::{CStr, CString};
use std::fs::{self, OpenOptions};
use std::io::Write;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

/// What the cgroup may have in memory. To unmap three times as much takes less than the 10 ms that `explain` calls a
/// stall.
const LIMIT_BYTES: usize = 4 << 20;
/// What is touched.
const TOUCHED_BYTES: usize = 3 * LIMIT_BYTES;
const PAGE_BYTES: usize = 4096;
const SWAP_BYTES: usize = 128 << 20;

const CGROUP: &str = "/sys/fs/cgroup/known";
const DEVICE: &str = "/dev/stopgap_known";
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const SWAP: &str = "/dev/zram0";

type Outcome = Result<(), Box<dyn Error>>;

fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    let outcome = match &*what {
        "mounts" => mounts(),
        "prepare" => prepare(),
        "pressure" => pressure(),
        "lockdown" => lives::lockdown(),
        "watch" => lives::watch(),
        "naps" => lives::naps(),
        "beside" => lives::beside(),
        "suspend" => lives::suspend(),
        "fence" => late_fence::fence(),
        _ => Err(
            "known mounts | prepare | pressure | lockdown | watch | naps | beside | suspend | fence".into(),
        ),
    };
    if let Err(error) = outcome {
        eprintln!("known {what}: {error}");
        std::process::exit(1);
    }
}

fn mounts() -> Outcome {
    for (kind, on) in [
        (c"devtmpfs", "/dev"),
        (c"proc", "/proc"),
        (c"sysfs", "/sys"),
        (c"tracefs", "/sys/kernel/tracing"),
        (c"cgroup2", "/sys/fs/cgroup"),
        (c"tmpfs", "/run"),
        (c"tmpfs", "/tmp"),
    ] {
        let failed = |error: &dyn Error| format!("{on}: {error}");
        fs::create_dir_all(on).map_err(|error| failed(&error))?;
        let data: Option<&CStr> = None;
        match mount(kind, on, kind, MountFlags::empty(), data) {
            Ok(()) | Err(Errno::BUSY) => {}
            Err(error) => return Err(failed(&error).into()),
        }
    }
    Ok(())
}

fn prepare() -> Outcome {
    mounts()?;
    // A fault of 4 KiB reclaims little at a time; of 2 MiB so much that this alone would be a stall.
    put(HUGE_PAGES, "never")?;
    swap()?;
    put("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
    fs::create_dir(CGROUP)?;
    put(&format!("{CGROUP}/memory.max"), &LIMIT_BYTES.to_string())
}

fn put(file: &str, value: &str) -> Outcome {
    fs::write(file, value).map_err(|error| format!("{file}: {error}").into())
}

/// A swap area as mkswap(8) makes it (`union swap_header`, include/linux/swap.h), in compressed memory.
fn swap() -> Outcome {
    put("/sys/block/zram0/disksize", &SWAP_BYTES.to_string())?;
    let last_page = u32::try_from(SWAP_BYTES / PAGE_BYTES - 1)?;
    let mut header = vec![0_u8; PAGE_BYTES];
    header[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&last_page.to_ne_bytes());
    header[PAGE_BYTES - 10..].copy_from_slice(b"SWAPSPACE2");
    let mut area = OpenOptions::new().write(true).open(SWAP)?;
    area.write_all(&header)?;
    area.sync_all()?;
    let path = CString::new(SWAP)?;
    // SAFETY: swapon(2) reads the string, which ends in a NUL and lives until after the call.
    match unsafe { libc::swapon(path.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(format!("swapon: {}", std::io::Error::last_os_error()).into()),
    }
}

fn pressure() -> Outcome {
    put(
        &format!("{CGROUP}/cgroup.procs"),
        &std::process::id().to_string(),
    )?;
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    let _device = device.map_err(|error| format!("{DEVICE}: {error}"))?;
    let mut memory = vec![0_u8; TOUCHED_BYTES];
    for (number, page) in memory.chunks_mut(PAGE_BYTES).enumerate() {
        // No two pages are alike, so none is kept for another.
        page[..size_of::<usize>()].copy_from_slice(&number.to_ne_bytes());
    }
    std::hint::black_box(&memory);
    Ok(())
}
