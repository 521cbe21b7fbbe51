//! A row of a history as an event of a trace, into a file and out of it.

use std::io::BufReader;

use stopgap_events::order::Inserted as _;
use stopgap_events::units::Nanos;
use stopgap_explain::chain::live::{Counted, word_of_sleep};
use stopgap_kernel::folder::Folder;
use stopgap_stats::history::{IDLE, Key, Sum};
use stopgap_trace::file::Reader;
use stopgap_trace::{Clock, Event, Kind, Metadata, Text};
use stopgap_tracer::black_box::{Histogram, How, bucket_begin};

use super::files::Name;

/// Page faults among calls.
const FAULT: &str = "fault";

/// Waits of one kind that ended in some time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// From when to when, nanoseconds since 1970.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// The end on the clock that runs since boot.
    pub(super) uptime: Option<u64>,
    pub(super) boot: Option<Text>,
    pub(super) key: Key,
    pub(super) sum: Sum,
}

/// Returns the kind and the sum of a histogram. `call` is the name of its call, `cgroup` the path of its cgroup.
pub(super) fn of_histogram(
    histogram: &Histogram,
    call: Option<&str>,
    cgroup: Option<String>,
) -> (Key, Sum) {
    let name = call.unwrap_or_default();
    let sleeps = matches!(histogram.how, How::Uninterruptible | How::ForIo);
    let call = match call {
        None if sleeps && histogram.process.is_some() => Some(FAULT),
        call => call,
    };
    let buckets = histogram.buckets.iter().enumerate();
    let buckets = buckets.filter(|(_, waits)| **waits > 0);
    let key = Key {
        cause: cause(histogram.how, name).to_owned(),
        process: histogram
            .process
            .as_ref()
            .map(|process| process.comm.clone()),
        cgroup,
        call: call.map(str::to_owned),
    };
    let sum = Sum {
        waits: histogram.waits,
        ns: histogram.ns,
        longest_ns: histogram.longest,
        buckets: buckets
            .map(|(bucket, waits)| (bucket_begin(bucket), *waits))
            .inserted(),
    };
    (key, sum)
}

/// The cause in `explain`'s words.
fn cause(how: How, call: &str) -> &'static str {
    match how {
        How::RunQueue => "run-queue",
        How::CpuQuota => "cpu-quota",
        How::DirectReclaim => "direct-reclaim",
        How::MemcgReclaim => "memcg-reclaim",
        How::Compaction => "compaction",
        How::Shrinker => "shrinker",
        How::MmapLock | How::AnyMmapLock => "mmap_lock",
        How::Lock | How::FutexLock => "lock",
        How::Fence => "fence",
        How::Asleep if call.is_empty() => IDLE,
        How::Stopped => word_of_sleep(Counted::Stopped, call),
        How::ForIo => word_of_sleep(Counted::ForIo, call),
        How::Asleep => word_of_sleep(Counted::Interruptible, call),
        How::Uninterruptible => word_of_sleep(Counted::Uninterruptible, call),
    }
}

impl Row {
    pub(super) fn into_event(self) -> Event {
        Event {
            time: Nanos(self.end),
            cpu: None,
            pid: None,
            tid: None,
            comm: self.key.process.as_deref().map(Text::from),
            kind: Kind::Waits {
                begin: Nanos(self.begin),
                uptime: self.uptime.map(Nanos),
                boot: self.boot,
                cgroup: self.key.cgroup.as_deref().map(Text::from),
                call: self.key.call.as_deref().map(Text::from),
                cause: Text::from(&*self.key.cause),
                waits: self.sum.waits,
                sum: Nanos(self.sum.ns),
                longest: Nanos(self.sum.longest_ns),
                buckets: self.sum.buckets_text().into(),
            },
        }
    }

    /// `None` of another event.
    fn from_event(event: Event) -> Option<Row> {
        let text = |text: Text| text.as_ref().to_owned();
        let Kind::Waits {
            begin,
            uptime,
            boot,
            cgroup,
            call,
            cause,
            waits,
            sum,
            longest,
            buckets,
        } = event.kind
        else {
            return None;
        };
        Some(Row {
            begin: begin.0.min(event.time.0),
            end: event.time.0,
            uptime: uptime.map(|time| time.0),
            boot,
            key: Key {
                cause: text(cause),
                process: event.comm.map(text),
                cgroup: cgroup.map(text),
                call: call.map(text),
            },
            sum: Sum {
                waits,
                ns: sum.0,
                longest_ns: longest.0,
                buckets: Sum::buckets_of(&buckets).unwrap_or_default(),
            },
        })
    }
}

/// Returns the metadata of a file of rows whose source has `machine`'s metadata.
pub(super) fn metadata_of(machine: &Metadata) -> Metadata {
    Metadata {
        clock: Some(Clock::Realtime),
        source: Some("history of waits".to_owned()),
        program: None,
        events: None,
        losses: None,
        missing: Vec::new(),
        ..machine.clone()
    }
}

fn reader(folder: &Folder, name: &Name) -> Result<Reader<BufReader<std::fs::File>>, String> {
    let file = folder.read(&name.os()).map_err(|error| error.to_string())?;
    let reader = Reader::new(BufReader::with_capacity(1 << 16, file));
    reader.map_err(|error| error.to_string())
}

/// Returns what a file says of itself.
pub(super) fn metadata(folder: &Folder, name: &Name) -> Result<Metadata, String> {
    Ok(reader(folder, name)?.metadata().clone())
}

/// Gives `each` the rows of a file. Returns its machine's name.
///
/// # Errors
/// The reason why it cannot be read, or not to its end; the rows before are given.
pub(super) fn read(
    folder: &Folder,
    name: &Name,
    mut each: impl FnMut(Row),
) -> Result<Option<String>, String> {
    let mut reader = reader(folder, name)?;
    let host = reader.metadata().host.clone();
    for event in &mut reader {
        let event = event.map_err(|error| error.to_string())?;
        if let Some(row) = Row::from_event(event) {
            each(row);
        }
    }
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_those_of_a_page() {
        assert_eq!(cause(How::Asleep, "poll"), IDLE);
        assert_eq!(cause(How::Asleep, ""), IDLE);
        assert_eq!(cause(How::Asleep, "futex"), IDLE);
        assert_eq!(cause(How::FutexLock, "futex"), "lock");
        assert_eq!(cause(How::Asleep, "flock"), "lock");
        assert_eq!(cause(How::Uninterruptible, "fdatasync"), "io");
        assert_eq!(cause(How::ForIo, "read"), "io");
        assert_eq!(cause(How::Stopped, "poll"), "stopped");
        assert_eq!(cause(How::Uninterruptible, "vfork"), "child");
        assert_eq!(cause(How::Uninterruptible, "mkdir"), "unknown");
    }

    #[test]
    fn a_row_is_an_event_and_back() {
        let row = Row {
            begin: 10,
            end: 20,
            uptime: Some(5),
            boot: Some("b".into()),
            key: Key {
                cause: "io".to_owned(),
                process: Some("db".to_owned()),
                cgroup: None,
                call: Some("read".to_owned()),
            },
            sum: Sum {
                waits: 3,
                ns: 4_000,
                longest_ns: 2_000,
                buckets: [(1_024, 3)].into(),
            },
        };
        assert_eq!(Row::from_event(row.clone().into_event()), Some(row));
    }
}
