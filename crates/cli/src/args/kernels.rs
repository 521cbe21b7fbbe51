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
stopgap kernels old/bzImage new/bzImage --workloads pbobench:10000,fork --gate --margin 0.2%
git bisect run sh -c 'make bzImage || exit 125; stopgap kernels --bisect good.bzImage arch/x86/boot/bzImage'

Workloads: pbobench, agua (with N: pbobench:10000), freegap-posted, freegap-innermprot, freegap-innerremap, roundtrip, fork; \
vgem, dma-heap, udmabuf (with N), vfio, whose modules the kernel must have; placement, devices, standard: all of that \
kind. Needs qemu-system-x86_64 (or -aarch64) on PATH and the program stopgap-guest beside this one, or where STOPGAP_GUEST says.

What is counted are guest instructions, never time; what that cannot tell stands under the result. How it is judged: \
docs/kernels.md.

Exit status: 0 compared, 1 error, 3 something is to be installed first. With --gate: 0 pass, 1 error, 2 longer by more than \
the margin, 4 cannot tell. With --bisect: 0 good, 1 bad, 125 cannot tell (errors, and kernels that do not boot, too).")]
pub(crate) struct Kernels {
    /// Kernels, the earlier one first: a bzImage (arm64: Image), a Debian linux-image package (it is never installed), or
    /// host: the running one. Further ones are each compared with the first.
    #[arg(value_name = "KERNEL", required = true, num_args = 2..)]
    pub(crate) kernels: Vec<String>,
    /// What is run, as pbobench:10000,fork; see below.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = cells, default_value = "standard")]
    pub(crate) workloads: Vec<Cells>,
    /// Layout samples; from 5 on a change can be called. Each is booted twice, to see that it repeats [1 to 1000].
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    pub(crate) seeds: u64,
    /// Guests side by side, of 1 GiB of memory each at most. The figures do not depend on it [1 to 64].
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,
    /// How long a guest may take, by the host's clock.
    #[arg(long, value_name = "TIME", value_parser = limit, default_value = "120s")]
    pub(crate) limit: Nanos,
    /// Let the exit status say whether a later kernel is longer by more than the margin, on any workload: 2; 4 cannot tell.
    #[arg(long, conflicts_with = "bisect")]
    pub(crate) gate: bool,
    /// By what share a later kernel may be longer and still pass.
    #[arg(long, value_name = "SHARE", value_parser = margin, default_value = "0.2%", allow_hyphen_values = true)]
    pub(crate) margin: f64,
    /// With two kernels: let the exit status be what git bisect run reads: 0 good, 1 bad, 125 cannot tell (an error, a kernel that
    /// does not boot, too).
    #[arg(long)]
    pub(crate) bisect: bool,
    /// Say which functions differ: one more boot of each kernel, with the plugin libstopgap_plugin.so in QEMU, which must lie
    /// beside this program or where STOPGAP_PLUGIN says. x86-64 only.
    #[arg(long)]
    pub(crate) functions: bool,
    /// Print JSON (schema stopgap.kernels/1) instead of the screen.
    #[arg(long)]
    pub(crate) json: bool,
    /// Say what would be booted, and boot nothing.
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
        .ok_or_else(|| format!("no guest comes to its end in '{text}'; give 1s at least"))
}
