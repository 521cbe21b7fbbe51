//! `explain` beside the kernel's delay accounting, in its short form: as root, where there are tracefs, a
//! memory cgroup and a disk for a swap file; otherwise skipped, and said.

use std::process::Command;

use stopgap_kernel::Linux;
use stopgap_kernel::cgroup::Site;
use stopgap_kernel::files::Files;
use stopgap_kernel::tasks::Tasks;

#[test]
fn what_explain_sums_is_what_the_kernel_counts() {
    let setting = || std::fs::read_to_string(stopgap_kernel::taskstats::SETTING);
    let lacks = if Linux.uid() != 0 {
        Some("needs root".to_owned())
    } else if let Err(error) = setting() {
        Some(format!("delay accounting: {error}"))
    } else {
        let site = Site::find(&Linux).err().map(|error| error.to_string());
        site.or_else(|| Linux.tracefs().err().map(|error| error.to_string()))
    };
    if let Some(why) = lacks {
        stopgap_kernel::fake::skipped(why);
        return;
    }
    let before = setting().unwrap();
    // On a disk: the folder of the build.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_stopgap-bench"))
        .args(["delays", "--runs", "1"])
        .env("XDG_STATE_HOME", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let row: Vec<&str> = said.lines().last().unwrap().split_whitespace().collect();
    let [reclaims, time]: [f64; 2] = [row[1], row[2]].map(|word| word.parse().unwrap());
    // At least 64 MiB do not fit, and a reclaim frees some hundred pages at most.
    assert!(reclaims >= 20.0 && time > 0.0, "{said}");
    assert_eq!(setting().unwrap(), before, "put back");
    let left = std::fs::read_dir(folder.path().join("stopgap")).unwrap();
    assert_eq!(left.count(), 0, "nothing is left");
}
