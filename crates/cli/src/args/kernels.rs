//! Flags of `kernels`.

use stopgap_events::units::Nanos;
use stopgap_kernels::Cell;

use super::Place;
use super::values::{count, margin, time};

/// No guest ends sooner.
const SHORTEST: Nanos = Nanos::secs(1);

/// The most layouts: each is two boots of each kernel.
const MOST_SEEDS: u64 = 1_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
stopgap kernels linux-image-6.1.*.deb linux-image-6.12.*.deb
stopgap kernels old/bzImage new/bzImage --gate --margin 0.2%
git bisect run sh -c 'make bzImage || exit 125
  stopgap kernels --bisect good.bzImage arch/x86/boot/bzImage'
stopgap kernels host host --append '' --append init_on_alloc=0

Workloads: pbobench, agua (with N: pbobench:10000), freegap-posted,
freegap-innermprot, freegap-innerremap, roundtrip, fork; vgem, dma-heap,
udmabuf (with N), reuse and vfio, whose modules the kernel must have;
placement, devices, standard: all of that kind.

The command counts instructions of the guest, and never time. Below the result
it says what that cannot tell; docs/kernels.md says how it judges. It needs
qemu-system-x86_64 (or -aarch64) in PATH, and the program stopgap-guest beside
this one or where STOPGAP_GUEST says.

Exit status: 0 compared, 1 error, 3 a program is missing. With --gate: 0 pass,
1 error, 2 longer by more than the margin, 4 cannot tell. With --bisect: 0 good,
1 bad, 125 cannot tell (errors and kernels that do not boot, too).")]
pub(crate) struct Kernels {
    /// Kernels, the earlier one first: a bzImage (arm64: Image), a Debian linux-image package (it
    /// is not installed), or host for the running kernel. Each further kernel is compared with the
    /// first.
    #[arg(value_name = "KERNEL", required = true, num_args = 2..)]
    pub(crate) kernels: Vec<String>,
    /// Add these words to the kernels' command lines. Give it once for all kernels, or once for
    /// each in their order: one kernel named twice then compares two command lines.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub(crate) append: Vec<String>,
    /// Run these workloads, as pbobench:10000,fork; see below.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = cells, default_value = "standard")]
    pub(crate) workloads: Vec<Cells>,
    /// Boot so many layout samples, each twice to see that it repeats. From 5 on a change can be
    /// called [1 to 1000].
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    pub(crate) seeds: u64,
    /// Boot so many guests at once, of at most 1 GiB each. The counts do not depend on it [1 to
    /// 64].
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,
    /// Stop a guest after this time by the host's clock.
    #[arg(long, value_name = "TIME", value_parser = limit, default_value = "120s")]
    pub(crate) limit: Nanos,
    /// Exit with 2 where a later kernel is longer by more than the margin on any workload, and
    /// with 4 where the counts cannot tell.
    #[arg(long, conflicts_with = "bisect")]
    pub(crate) gate: bool,
    /// Let a later kernel be longer by this share and still pass.
    #[arg(long, value_name = "SHARE", value_parser = margin, default_value = "0.2%", allow_hyphen_values = true)]
    pub(crate) margin: f64,
    /// Exit as git bisect run reads it, with two kernels: 0 good, 1 bad, 125 cannot tell (errors
    /// and kernels that do not boot, too).
    #[arg(long)]
    pub(crate) bisect: bool,
    /// Say which functions differ: two more boots of each kernel, with the plugin libstopgap_plugin.so in QEMU, which must lie
    /// beside this program or where STOPGAP_PLUGIN says. x86-64 only.
    #[arg(long)]
    pub(crate) functions: bool,
    /// Print JSON (schema stopgap.kernels/1) instead of the screen.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what would be booted, and boot nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// The cells that one word of `--workloads` names.
#[derive(Debug, Clone)]
pub(crate) struct Cells(pub(crate) Vec<Cell>);

fn cells(text: &str) -> Result<Cells, String> {
    stopgap_kernels::workloads(text, count).map(Cells)
}

fn limit(text: &str) -> Result<Nanos, String> {
    let limit = time(text)?;
    (limit >= SHORTEST)
        .then_some(limit)
        .ok_or_else(|| format!("'{text}' is too short for any guest; give at least 1s"))
}
