//! Flags of `replay roundtrip`.

use std::path::PathBuf;

use stopgap_events::roundtrip::{ClientPolicy, ClientWait, Cpus, Reply, Wait};
use stopgap_events::units::Nanos;

use super::replay::RecordFlags;
use super::values::{U32, count, few, fixed_cpus, time, yes_no};

/// Each combination of what is given is carried out, by each policy.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayRoundtrip {
    /// Carry out the clients and servers of this trace as they were seen to talk, and show what
    /// the trace counted beside the model's figures [default: the cells of the flags below].
    #[arg(value_name = "TRACE", conflicts_with_all = [
        "client", "server", "k", "work", "think", "batch", "reply", "on", "client_policy", "beside",
    ])]
    pub(crate) trace: Option<PathBuf>,
    /// Follow these rules of waking up: linux-2.6.35, linux-6.12, or all [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// Let the client wait by poll, epoll, read (blocking) [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) client: Vec<ClientWait>,
    /// Let the server wait by select, poll, epoll.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "poll"
    )]
    pub(crate) server: Vec<Wait>,
    /// Let the server wait for so many descriptors, all but one idle.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = few::<0, U32>)]
    pub(crate) k: Vec<u32>,
    /// Let the server use so much CPU time per request [default: 0,5us,50us,1ms].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = time)]
    pub(crate) work: Vec<Nanos>,
    /// Let the client use so much CPU time between the last reply and its next request [default:
    /// 0].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = time)]
    pub(crate) think: Vec<Nanos>,
    /// Send so many requests by one write; a round trip ends with the last reply.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = few::<0, U32>)]
    pub(crate) batch: Vec<u32>,
    /// Answer a batch together (one writev) or each (a write per reply).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "together"
    )]
    pub(crate) reply: Vec<Reply>,
    /// Run both on one CPU, or on two (one each).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "one",
        value_parser = fixed_cpus
    )]
    pub(crate) on: Vec<Cpus>,
    /// Schedule the client as other or batch.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "other"
    )]
    pub(crate) client_policy: Vec<ClientPolicy>,
    /// Let the wake-up for room to write say so, and let pollers for input sleep on: yes (since
    /// Linux 2.6.37), no.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = yes_no, default_value = "yes")]
    pub(crate) keyed: Vec<bool>,
    /// Let a wake-up pre-empt: yes, no.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = yes_no, default_value = "yes")]
    pub(crate) preempt: Vec<bool>,
    /// Let a writev of several messages wake once, as Linux does (yes), or once per message (no).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = yes_no, default_value = "yes")]
    pub(crate) merge: Vec<bool>,
    /// Make so many round trips per row.
    #[arg(long, value_name = "N", value_parser = count, default_value = "2000")]
    pub(crate) round_trips: u64,
    /// Show what the record of a `stopgap probe roundtrip` measured beside the model's figures, at
    /// the prices that it measured. Without --client and --work all cells of the record are
    /// carried out.
    #[arg(long, value_name = "FILE")]
    pub(crate) beside: Option<PathBuf>,
    /// Set the seed of how much more or less each step takes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) record: RecordFlags,
}
