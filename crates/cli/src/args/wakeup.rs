//! Flags of `probe wakeup`.

use clap::value_parser;
use stopgap_events::units::Nanos;
use stopgap_probes::wakeup::Policy;

use super::ProbeCommon;
use super::values::time;

/// A thread pinned to each CPU sleeps until an absolute time, again and again; how late it wakes
/// is measured from that time on.
#[derive(Debug, clap::Args)]
pub(crate) struct WakeupFlags {
    /// Between two intended wake-ups; 50us to 1s.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = time)]
    pub(crate) interval: Nanos,
    /// Scheduling policy: fifo (SCHED_FIFO; where it is refused the ordinary one, and that is said),
    /// other (SCHED_OTHER).
    #[arg(long, value_name = "POLICY", default_value = "fifo")]
    pub(crate) policy: Policy,
    /// Priority under fifo, 1 to 99 [default: 80].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) priority: Option<u32>,
    /// From what lateness on a wake-up counts as a stall.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = time)]
    pub(crate) stall: Nanos,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}
