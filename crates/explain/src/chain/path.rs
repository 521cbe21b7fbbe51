//! Chains as numbers: threads, functions and hops are stored once, and a chain is its first hop and the chain behind it.
//!
//! Chains of different waits share their tails, so a wait costs one lookup for each piece of its time. All tables
//! are bounded; what finds no room becomes [`Break::NotKept`] and stays in the sum.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use stopgap_trace::Text;

use crate::recent::Recent;

/// A function, a call, a device: an index into [`Paths`]. 0 is unknown.
pub(super) type Name = u32;
/// A thread, with the name that it had.
pub(super) type ActorId = u32;
/// A chain.
pub(super) type PathId = u32;
/// The first hop of a chain.
pub(super) type HopId = u32;

/// No thread is known.
pub(super) const NOBODY: ActorId = 0;
/// The idle task.
pub(super) const IDLE: ActorId = 1;
/// The chain of what finds no room.
pub(super) const NOT_KEPT: PathId = 0;
/// There is nothing behind the last hop.
const END: PathId = PathId::MAX;

/// Hops of a chain. Of a longer one the first hops and the last are kept.
const MOST_DEPTH: u8 = 12;
const MOST_ACTORS: usize = 1 << 16;
const MOST_NAMES: usize = 1 << 16;
const MOST_HOPS: usize = 1 << 17;
/// A power of two.
const RECENT_HOPS: usize = 128;
/// A power of two.
const RECENT_QUEUED: usize = 256;
const MOST_NODES: usize = 1 << 18;

/// What a sleeping thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum For {
    /// A time that it named itself (`nanosleep`).
    Time,
    /// A lock of this kind; address 0 is unknown.
    Lock { kind: Name, address: u64 },
    /// Someone who tells it to go on: a condition variable, a semaphore.
    Word { address: u64 },
    /// One of several descriptors.
    Events,
    /// Bytes, room for bytes, a connection.
    Data,
    /// A program that a file system asked: FUSE's, a server of NFS or SMB.
    Answer,
    /// A disk, or a page that is read or written.
    Io,
    /// A child's end.
    Child,
    /// A signal.
    Signal,
    /// To be continued: it is stopped.
    Continue,
    /// A fence: of which driver, on which timeline, submitted by whom.
    Fence { driver: Name },
    /// Memory, by this way to get some.
    Memory { how: Name },
    /// A grace period of RCU.
    Rcu,
    /// Work: a worker of the kernel.
    Work,
    /// Something that the trace does not tell.
    Something,
}

/// What a thread did, or what something outside of all threads did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    /// It waited for `what` in `call`, at `place` of its program. The hop behind tells who or what ended that.
    Waits { what: For, call: Name, place: Name },
    /// It ran, in `function` where samples say so.
    Runs { function: Name },
    /// It could run, and `behind` had the CPU.
    Queued { behind: ActorId },
    /// It could run, and its cgroup had used up its CPU time.
    Quota,
    /// It had used up what its real-time policy gets: SCHED_DEADLINE's runtime, or sched_rt_runtime_us.
    Budget,
    /// A request of the hop's thread was in the queue of a disk or under way.
    Disk { device: Name },
    /// A timer ended the sleep: as long as the thread had asked for.
    Timer,
    /// A timer ended the sleep before what the thread waited for.
    Timeout,
    /// A timer ended the sleep, and the hop's thread had been asked for what did not come.
    Unanswered,
    /// The hop's thread held the lock; what it did meanwhile is not known.
    Held,
    /// Packets of another machine, or of a thread that the trace does not tell.
    Network,
    /// An acknowledgement that TCP held back, for which a sender on this machine waited.
    DelayedAck,
    /// An interrupt ended the sleep: a device, or a timer.
    Interrupt,
    /// A device signalled a fence, for the work of the hop's thread.
    Device,
    /// The hop's thread sent the signal that stopped it, or traces it.
    Stopped,
    /// It was stopped, not by a signal, and the hop's thread let it go on.
    Continued,
    /// Both wait for each other; the hop's thread is the other.
    Cycle { sure: bool },
    /// Hops that are left out, because the chain is long.
    LeftOut,
    /// The chain breaks here.
    Broken(Break),
}

/// Why a chain breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Break {
    /// Nobody was seen to end the sleep.
    NoWaking,
    /// The sleep was not over when the recording ended.
    NotOver,
    /// Of the thread that ended it nothing is known at that time: it is not recorded, or its rows are missing.
    Unheard,
    /// Rows of the thread that ended it are missing: they contradict those of others.
    Lost,
    /// The thread slept when the recording began.
    Before,
    /// It looked now and then whether a lock was free: nobody wakes who does that.
    LookedAt,
    /// It slept until its process ended.
    ProcessOver,
    /// An interrupt or the thread that it interrupted ended it; the trace does not say which.
    Uncertain,
    /// The chain came back to the waiting thread, because older times are known by their shares only.
    Coarse,
    /// There are more chains than are kept.
    NotKept,
}

/// One thread in a chain and what it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) actor: ActorId,
    pub(super) doing: Doing,
}

impl Hop {
    /// Returns its place among the recent ones.
    fn slot(self) -> usize {
        let of = match self.doing {
            Doing::Waits { call, place, .. } => call.wrapping_mul(5) ^ place.wrapping_mul(3),
            Doing::Queued { behind } => behind ^ 64,
            Doing::Runs { function } => function ^ 32,
            _ => 96,
        };
        (self.actor.wrapping_mul(11) ^ of) as usize % RECENT_HOPS
    }
}

impl Hash for Hop {
    /// In one word where it can be: each costs a multiplication that the next one waits for.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let actor = u64::from(self.actor);
        match self.doing {
            Doing::Waits { what, call, place } => {
                (u64::from(call) << 32 | u64::from(place)).hash(state);
                what.hash(state);
                actor.hash(state);
            }
            Doing::Queued { behind } => (actor << 32 | 1 << 31 | u64::from(behind)).hash(state),
            Doing::Runs { function } => (actor << 32 | u64::from(function)).hash(state),
            other => {
                actor.hash(state);
                other.hash(state);
            }
        }
    }
}

/// A thread, or all threads of a name where too many came.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) tid: Option<u32>,
    pub(super) comm: Text,
    /// The kernel's priority when it was last seen; lower is more urgent.
    pub(super) priority: Option<i32>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    hop: HopId,
    tail: PathId,
    depth: u8,
}

pub(super) struct Paths {
    actors: Vec<Actor>,
    actor_of: HashMap<(Option<u32>, Text), ActorId>,
    names: Vec<Text>,
    name_of: HashMap<Text, Name>,
    recent: Recent<Name>,
    hops: Vec<Hop>,
    /// Those that were asked for last: most come again soon.
    recent_hops: Box<[(Hop, HopId); RECENT_HOPS]>,
    hop_of: HashMap<Hop, HopId, Quick>,
    /// The chain of one hop, by that; 0 where there is none yet.
    leaf_of: Vec<PathId>,
    /// Chains of waits for a CPU that were asked for last: who waited, behind whom. [`NOT_KEPT`] where there is none.
    recent_queued: Box<[(ActorId, ActorId, PathId); RECENT_QUEUED]>,
    nodes: Vec<Node>,
    node_of: HashMap<(HopId, PathId), PathId, Quick>,
}

impl Paths {
    pub(super) fn new() -> Paths {
        let first = Hop {
            actor: NOBODY,
            doing: Doing::Broken(Break::NotKept),
        };
        let mut paths = Paths {
            actors: Vec::new(),
            actor_of: HashMap::new(),
            names: vec!["".into()],
            name_of: HashMap::new(),
            recent: Recent::default(),
            hops: vec![first],
            recent_hops: Box::new([(first, 0); RECENT_HOPS]),
            hop_of: HashMap::default(),
            leaf_of: Vec::new(),
            recent_queued: Box::new([(NOBODY, NOBODY, NOT_KEPT); RECENT_QUEUED]),
            nodes: Vec::new(),
            node_of: HashMap::default(),
        };
        paths.hop_of.insert(first, 0);
        paths.actor(None, &"".into());
        paths.actor(Some(0), &"idle".into());
        paths.leaf(first.actor, first.doing);
        paths
    }

    /// Returns the number of a thread under that name.
    pub(super) fn actor(&mut self, tid: Option<u32>, comm: &Text) -> ActorId {
        let full = self.actors.len() >= MOST_ACTORS;
        let key = (tid.filter(|_| !full), Text::clone(comm));
        if let Some(&known) = self.actor_of.get(&key) {
            return known;
        }
        if self.actors.len() >= 2 * MOST_ACTORS {
            return NOBODY;
        }
        let id = self.actors.len() as ActorId;
        self.actors.push(Actor {
            tid: key.0,
            comm: Text::clone(comm),
            priority: None,
        });
        self.actor_of.insert(key, id);
        id
    }

    pub(super) fn set_priority(&mut self, actor: ActorId, priority: i32) {
        self.actors[actor as usize].priority = Some(priority);
    }

    pub(super) fn actor_at(&self, actor: ActorId) -> &Actor {
        &self.actors[actor as usize]
    }

    pub(super) fn name(&mut self, name: &Text) -> Name {
        let (names, name_of) = (&mut self.names, &mut self.name_of);
        self.recent.get(name, |name| {
            if let Some(&known) = name_of.get(name) {
                return known;
            }
            if names.len() >= MOST_NAMES {
                return 0;
            }
            let id = names.len() as Name;
            names.push(Text::clone(name));
            name_of.insert(Text::clone(name), id);
            id
        })
    }

    /// Returns a name; `None` where it is unknown.
    pub(super) fn name_at(&self, name: Name) -> Option<&Text> {
        self.names.get(name as usize).filter(|_| name != 0)
    }

    pub(super) fn hop(&mut self, actor: ActorId, doing: Doing) -> HopId {
        let hop = Hop { actor, doing };
        let (recent, id) = &self.recent_hops[hop.slot()];
        if *recent == hop {
            return *id;
        }
        let id = self.find_hop(hop);
        self.recent_hops[hop.slot()] = (hop, id);
        id
    }

    fn find_hop(&mut self, hop: Hop) -> HopId {
        if let Some(&known) = self.hop_of.get(&hop) {
            return known;
        }
        if self.hops.len() >= MOST_HOPS {
            return 0;
        }
        let id = self.hops.len() as HopId;
        self.hops.push(hop);
        self.hop_of.insert(hop, id);
        id
    }

    pub(super) fn hop_at(&self, hop: HopId) -> Hop {
        self.hops[hop as usize]
    }

    /// Returns the chain of one hop.
    pub(super) fn leaf(&mut self, actor: ActorId, doing: Doing) -> PathId {
        let hop = self.hop(actor, doing);
        match self.leaf_of.get(hop as usize) {
            Some(&known) if known > 0 => known,
            _ => {
                let leaf = self.node(hop, END, 1);
                self.leaf_of.resize(self.hops.len(), 0);
                self.leaf_of[hop as usize] = leaf;
                leaf
            }
        }
    }

    /// Returns the chain of a wait of `actor` for the CPU that `behind` had.
    pub(super) fn queued(&mut self, actor: ActorId, behind: ActorId) -> PathId {
        let slot = (actor.wrapping_mul(11) ^ behind) as usize % RECENT_QUEUED;
        match self.recent_queued[slot] {
            (one, other, path) if (one, other) == (actor, behind) && path != NOT_KEPT => path,
            _ => {
                let path = self.leaf(actor, Doing::Queued { behind });
                self.recent_queued[slot] = (actor, behind, path);
                path
            }
        }
    }

    /// Returns the chain `hop`, behind it `tail`.
    ///
    /// * Who waits for a lock for which others wait before it waits for who holds the lock: those others are left out.
    /// * A chain that comes back to the waiting thread breaks.
    pub(super) fn chain(&mut self, hop: HopId, tail: PathId) -> PathId {
        if let Some(&known) = self.node_of.get(&(hop, tail)) {
            return known;
        }
        if self.nodes.len() >= MOST_NODES {
            return NOT_KEPT;
        }
        let made = self.make(hop, tail);
        // The second way to the same chain is as short.
        self.node_of.insert((hop, tail), made);
        made
    }

    fn make(&mut self, hop: HopId, tail: PathId) -> PathId {
        let here = self.hop_at(hop);
        let first = self.first(tail);
        if same_lock(here.doing, first.doing) && first.actor != here.actor {
            let behind = self.nodes[tail as usize].tail;
            return if behind == END {
                self.node(hop, END, 1)
            } else {
                self.chain(hop, behind)
            };
        }
        // Who woke it is what a worker without work waited for: what lies behind is why it came late.
        if let Doing::Waits {
            what: For::Work, ..
        } = first.doing
            && let Some(behind) = self.behind(tail)
        {
            return self.chain(hop, behind);
        }
        if let Some(sure) = self.closes(here, tail) {
            let cycle = self.leaf(first.actor, Doing::Cycle { sure });
            return self.node(hop, cycle, 2);
        }
        let again = self.hops_of(tail).any(|at| {
            at.actor == here.actor
                && matches!(
                    at.doing,
                    Doing::Waits { .. } | Doing::Runs { .. } | Doing::Quota | Doing::Budget
                )
        });
        if again {
            let coarse = self.leaf(NOBODY, Doing::Broken(Break::Coarse));
            return self.node(hop, coarse, 2);
        }
        let depth = self.nodes[tail as usize].depth;
        if depth >= MOST_DEPTH {
            let last = self.last(tail);
            let last = self.node(last, END, 1);
            let left_out = self.hop(NOBODY, Doing::LeftOut);
            let short = self.node(left_out, last, 2);
            return self.node(hop, short, 3);
        }
        self.node(hop, tail, depth + 1)
    }

    /// Returns whether a wait for a lock is one of two threads that wait for each other, and if that is sure. The first
    /// thread behind it gave up waiting for another lock; sure where the lock's holder was the waiting thread.
    fn closes(&self, here: Hop, tail: PathId) -> Option<bool> {
        let waits = |hop: Hop| {
            matches!(
                hop.doing,
                Doing::Waits {
                    what: For::Lock { .. } | For::Word { .. },
                    ..
                }
            )
        };
        let mut hops = self.hops_of(tail);
        let (other, last) = (hops.next()?, hops.next()?);
        if !waits(here) || !waits(other) || last.doing != Doing::Timeout {
            return None;
        }
        let lock = matches!(
            other.doing,
            Doing::Waits {
                what: For::Lock { .. },
                ..
            }
        );
        match last.actor {
            holder if holder == here.actor => Some(true),
            NOBODY if lock => Some(false),
            _ => None,
        }
    }

    fn node(&mut self, hop: HopId, tail: PathId, depth: u8) -> PathId {
        if let Some(&known) = self.node_of.get(&(hop, tail)) {
            return known;
        }
        // A few more than the bound: what a chain is made of.
        if self.nodes.len() >= MOST_NODES + 4_096 {
            return NOT_KEPT;
        }
        let id = self.nodes.len() as PathId;
        self.nodes.push(Node { hop, tail, depth });
        self.node_of.insert((hop, tail), id);
        id
    }

    pub(super) fn first(&self, path: PathId) -> Hop {
        self.hop_at(self.first_id(path))
    }

    pub(super) fn first_id(&self, path: PathId) -> HopId {
        self.nodes[path as usize].hop
    }

    /// Returns what lies behind the first hop.
    pub(super) fn behind(&self, path: PathId) -> Option<PathId> {
        Some(self.nodes[path as usize].tail).filter(|&tail| tail != END)
    }

    /// Returns what the last hop of a chain did.
    pub(super) fn end(&self, path: PathId) -> Doing {
        self.hop_at(self.last(path)).doing
    }

    fn last(&self, path: PathId) -> HopId {
        let mut at = path;
        while let Some(tail) = self.behind(at) {
            at = tail;
        }
        self.first_id(at)
    }

    /// Returns the hops of a chain, the waiting thread's first.
    pub(super) fn hops_of(&self, path: PathId) -> impl Iterator<Item = Hop> {
        std::iter::successors(Some(path), |&at| self.behind(at)).map(|at| self.first(at))
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

fn same_lock(one: Doing, other: Doing) -> bool {
    let of = |doing| match doing {
        Doing::Waits {
            what: For::Lock { kind, address },
            ..
        } if address != 0 => Some((kind, address)),
        _ => None,
    };
    of(one).is_some_and(|lock| Some(lock) == of(other))
}

/// Hashes small keys of a few integers, which no stranger chooses at will: indices of ours, thread ids.
pub(crate) type Quick = BuildHasherDefault<QuickHasher>;

#[derive(Default)]
pub(crate) struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}
