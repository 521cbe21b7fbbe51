//! Flags of `replay roundtrip`.

use std::path::PathBuf;

use stopgap_events::roundtrip::{ClientPolicy, ClientWait, Cpus, Reply, Wait};
use stopgap_events::units::Nanos;

use super::replay::RecordFlags;
use super::values::{U32, count, few, fixed_cpus, time, yes_no};

/// Each combination of what is given is carried out, by each policy.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayRoundtrip {
    /// A recorded trace: its clients and servers are what is carried out, as they were seen to talk, and what the trace
    /// counted stands beside [default: the cells of the flags below].
    #[arg(value_name = "TRACE", conflicts_with_all = [
        "client", "server", "k", "work", "think", "batch", "reply", "on", "client_policy", "beside",
    ])]
    pub(crate) trace: Option<PathBuf>,
    /// Whose wake-up rules: linux-2.6.35, linux-6.12, or all [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// How the client waits: poll, epoll, read (blocking) [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) client: Vec<ClientWait>,
    /// How the server waits: select, poll, epoll.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "poll"
    )]
    pub(crate) server: Vec<Wait>,
    /// Descriptors that the server waits for, all but one idle.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = few::<0, U32>)]
    pub(crate) k: Vec<u32>,
    /// CPU time that the server spends on each request [default: 0,5us,50us,1ms].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = time)]
    pub(crate) work: Vec<Nanos>,
    /// CPU time that the client spends between the last reply and its next request [default: 0].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = time)]
    pub(crate) think: Vec<Nanos>,
    /// Requests sent by one write; a round trip ends with the last reply.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = few::<0, U32>)]
    pub(crate) batch: Vec<u32>,
    /// How a batch is answered: together (one writev), each (a write a reply).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "together"
    )]
    pub(crate) reply: Vec<Reply>,
    /// Where both run: one (the same CPU), two (one each).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "one",
        value_parser = fixed_cpus
    )]
    pub(crate) on: Vec<Cpus>,
    /// The client's scheduling policy: other, batch.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "other"
    )]
    pub(crate) client_policy: Vec<ClientPolicy>,
    /// Whether the wake-up for room to write says so, and pollers for input sleep on: yes (since Linux 2.6.37), no.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = yes_no, default_value = "yes")]
    pub(crate) keyed: Vec<bool>,
    /// Whether a wake-up may pre-empt: yes, no.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = yes_no, default_value = "yes")]
    pub(crate) preempt: Vec<bool>,
    /// Whether a writev of several messages wakes once, as Linux does, or once a message: yes, no.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = yes_no, default_value = "yes")]
    pub(crate) merge: Vec<bool>,
    /// Round trips of each row.
    #[arg(long, value_name = "N", value_parser = count, default_value = "2000")]
    pub(crate) round_trips: u64,
    /// The record of a `stopgap probe roundtrip`: what it measured stands beside what is modelled, by the prices that it
    /// measured; without --client and --work all its cells are carried out.
    #[arg(long, value_name = "FILE")]
    pub(crate) beside: Option<PathBuf>,
    /// Seed of how much more or less each step takes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) record: RecordFlags,
}
