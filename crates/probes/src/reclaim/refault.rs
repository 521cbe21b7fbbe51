//! The load that makes memory short for a group of ours alone, beside a set that is held.
//!
//! ```text
//!  limit |<------------------------------------------------------------>|
//!        |  held set (by a way; for `none`: nothing, and a lower limit) | room |
//!                                                                       |2 MiB blocks|
//!  file  |<-- larger than the room: each page is gone when its turn comes again -->|
//! ```
//!
//! One thread populates and unmaps 2 MiB blocks, as the bystander of mail 004 (gem_syslatency
//! -m) does; one reads a sparse file round and round. The file must *refault*: a file that
//! fits, and a stream that is read once, show nothing. `none` has the same room, so that the
//! held set is the only difference. Page cache is charged to its first toucher, so every load
//! has a group and a file of its own.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::{MemoryGroup, Reclaimed, Site};
use stopgap_kernel::holds::Way;
use stopgap_kernel::tasks::ChildLimits;
use stopgap_kernel::{Error, Result, System, own};

use super::cost::{hold, map, populate};
use crate::contract::Context;
use crate::load;

/// One load.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// How the set is held; `None`: there is no set.
    pub(super) way: Option<Way>,
    /// The set.
    pub(super) held: Bytes,
    /// What the rest of the group may use.
    pub(super) room: Bytes,
    /// What is read round and round.
    pub(super) file: Bytes,
    /// What the bystander populates at a time.
    pub(super) block: Bytes,
    /// How long it runs before anything is counted.
    pub(super) warm_up: Nanos,
    /// How long it is counted.
    pub(super) time: Nanos,
}

impl Load {
    fn limit(&self) -> Bytes {
        match self.way {
            Some(_) => self.room + self.held,
            None => self.room,
        }
    }
}

/// What one load gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    /// When it began, on the monotonic clock.
    pub(super) start_ns: u64,
    /// How long it ran.
    pub(super) length_ns: u64,
    /// Pages scanned and reclaimed meanwhile, and of those scanned: anonymous.
    pub(super) scanned: u64,
    pub(super) reclaimed: u64,
    pub(super) anonymous: Option<u64>,
    /// How long some task waited for memory meanwhile; or why that is not known.
    pub(super) stalled_ns: std::result::Result<u64, String>,
    /// CPU time of the load inside the kernel.
    pub(super) system_ns: std::result::Result<u64, String>,
    /// Bytes read.
    pub(super) read: u64,
    /// Start and length of each block's populating.
    pub(super) blocks: Vec<(u64, u64)>,
}

/// What is counted from one point in time to another.
struct Counts {
    at: Nanos,
    pages: Reclaimed,
    stalled: Result<Nanos>,
    system: Result<Nanos>,
}

impl Counts {
    fn read(system: &dyn System, group: &MemoryGroup) -> Result<Counts> {
        Ok(Counts {
            pages: group.reclaimed(system)?,
            stalled: group.stalled(system),
            system: own::system_time(system),
            at: system.now(),
        })
    }
}

/// Populates and unmaps blocks until `deadline`.
fn bystander(system: &dyn System, block: Bytes, deadline: Nanos) -> Result<Vec<(u64, u64)>> {
    let mut blocks = Vec::with_capacity(1 << 14);
    while system.now() < deadline {
        let start = system.now();
        let mapping = map(system, block)?;
        let populated = populate(system, &mapping);
        blocks.push((start.0, system.now().saturating_sub(start).0));
        system.unmap(mapping)?;
        populated?;
    }
    Ok(blocks)
}

/// Reads the file round and round until `deadline`; bytes read.
fn reader(system: &dyn System, file: &Path, deadline: Nanos) -> Result<u64> {
    let mut read = 0;
    while system.now() < deadline {
        let once = system.stream(file, &|| system.now() < deadline)?;
        if once.0 == 0 && system.now() < deadline {
            let advice = "it was cut short while it was read";
            return Err(Error::parse(file.display(), advice));
        }
        read += once.0;
    }
    Ok(read)
}

/// The load's life inside the group.
pub(super) fn body(
    system: &dyn System,
    group: &MemoryGroup,
    file: &Path,
    load: &Load,
) -> Result<Sample> {
    let set = match load.way {
        Some(_) => Some(map(system, load.held)?),
        None => None,
    };
    if let Some(set) = &set {
        populate(system, set)?;
    }
    // Released at the end of this function; the process ends soon after.
    let _held = match (&set, load.way) {
        (Some(set), Some(way)) => Some(hold(system, set, way)?),
        _ => None,
    };
    let warm = system.now() + load.warm_up;
    let deadline = warm + load.time;
    let (before, blocks, read) = std::thread::scope(|scope| {
        let bystander = scope.spawn(|| bystander(system, load.block, deadline));
        let before = reader(system, file, warm).and_then(|_| Counts::read(system, group));
        let read = reader(system, file, deadline);
        let blocks = bystander
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (before, blocks, read)
    });
    let (before, mut blocks) = (before?, blocks?);
    let after = Counts::read(system, group)?;
    let start = before.at;
    blocks.retain(|&(block_start, _)| block_start >= start.0);
    let counts = after.pages.since(before.pages);
    let since = |before: Result<Nanos>, after: Result<Nanos>| match (before, after) {
        (Ok(before), Ok(after)) => Ok(after.saturating_sub(before).0),
        (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
    };
    Ok(Sample {
        start_ns: start.0,
        length_ns: after.at.saturating_sub(start).0,
        scanned: counts.scanned,
        reclaimed: counts.reclaimed,
        anonymous: counts.anonymous,
        stalled_ns: since(before.stalled, after.stalled),
        system_ns: since(before.system, after.system),
        read: read?,
        blocks,
    })
}

/// Makes the group and the file, runs the load in a guarded child in it, removes both. The
/// sample, the child's peak memory in bytes, and what could not be removed.
pub(super) fn run(
    context: &Context<'_>,
    site: &Site,
    number: u32,
    load: &Load,
) -> Result<(Sample, u64, Vec<Error>)> {
    let system = context.system;
    let scope = context.journal.scope();
    let name = format!("stopgap-{}-{number}", system.pid());
    let group = MemoryGroup::make(system, context.journal, site, &name, load.limit())?;
    let file = context.scratch.join(&name);
    context.journal.make_file(&file, || {
        system.create(&file, b"")?;
        system.extend(&file, load.file, false)
    })?;
    let limits = ChildLimits {
        // Taking the set and the first round come on top; a loaded machine takes its time.
        time: Nanos((load.warm_up + load.time).0.saturating_mul(4)) + Nanos::secs(20),
        cgroup: Some(group.path().to_owned()),
    };
    let outcome = load::child(system, &limits, || {
        body(system, &group, &file, load).map_err(|error| error.to_string())
    });
    let left = scope.undo();
    let (sample, peak) = outcome?;
    let sample = sample.map_err(|error| Error::Child {
        ended: format!("could not carry the load out: {error}"),
    })?;
    Ok((sample, peak, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_set_the_room_is_the_same() {
        let load = |way| Load {
            way,
            held: Bytes::mib(128),
            room: Bytes::mib(100),
            file: Bytes::mib(150),
            block: Bytes::mib(2),
            warm_up: Nanos::secs(1),
            time: Nanos::secs(1),
        };
        assert_eq!(load(None).limit(), Bytes::mib(100));
        assert_eq!(load(Some(Way::Mlock)).limit(), Bytes::mib(228));
    }
}
