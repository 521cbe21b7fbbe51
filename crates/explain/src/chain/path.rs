//! Stores chains as numbers. Threads, functions and hops are stored once; a chain is its first hop and the chain
//! behind it.
//!
//! Chains of different waits share their tails, so a wait costs one lookup for each piece of its time. All tables are
//! bounded. A chain that finds no room becomes [`Break::NotKept`], and its time stays in the sums.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use stopgap_trace::Text;

use crate::recent::Recent;

/// Index of a function, a call or a device in [`Paths`]. 0 is unknown.
pub(super) type Name = u32;
/// Index of a thread with one of its names.
pub(super) type ActorId = u32;
/// Index of a chain.
pub(super) type PathId = u32;
/// Index of a hop.
pub(super) type HopId = u32;

/// Stands for an unknown thread.
pub(super) const NOBODY: ActorId = 0;
/// Stands for the idle task of a CPU.
pub(super) const IDLE: ActorId = 1;
/// Stands for all chains that find no room.
pub(super) const NOT_KEPT: PathId = 0;
/// Ends a chain: nothing is behind the last hop.
const END: PathId = PathId::MAX;

/// Most hops of a chain. A longer chain keeps its first hops and its last one.
const MOST_DEPTH: u8 = 12;
const MOST_ACTORS: usize = 1 << 16;
const MOST_NAMES: usize = 1 << 16;
const MOST_HOPS: usize = 1 << 17;
/// Slots of the cache of hops: a power of two.
const RECENT_HOPS: usize = 128;
/// Slots of the cache of waits for a CPU: a power of two.
const RECENT_QUEUED: usize = 256;
const MOST_NODES: usize = 1 << 18;

/// Reason for which a thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum For {
    /// A length or point of time that the thread chose itself (`nanosleep`).
    Time,
    /// A lock of this kind; address 0 is unknown.
    Lock { kind: Name, address: u64 },
    /// Another thread's signal to go on, as in a condition variable or a semaphore.
    Word { address: u64 },
    /// One of several descriptors.
    Events,
    /// Bytes, room for bytes, a connection.
    Data,
    /// The answer of a program that a file system asked: a FUSE daemon, a server of NFS or SMB.
    Answer,
    /// A disk, or a page that is read or written.
    Io,
    /// The end of a child.
    Child,
    /// A signal.
    Signal,
    /// A signal to continue: the thread is stopped.
    Continue,
    /// A fence. The name holds driver, timeline and submitter.
    Fence { driver: Name },
    /// Memory. The name holds how the thread gets it, such as `direct-reclaim`.
    Memory { how: Name },
    /// A grace period of RCU.
    Rcu,
    /// Work: the thread is a worker of the kernel or of a runtime.
    Work,
    /// Unknown: the trace does not say.
    Something,
}

/// Activity of a thread, or of something outside of all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    /// It waited for `what` in `call`, at `place` of its program. The hop behind says what ended the wait.
    Waits { what: For, call: Name, place: Name },
    /// It ran, in `function` if samples name one.
    Runs { function: Name },
    /// It was runnable, and `behind` had the CPU.
    Queued { behind: ActorId },
    /// It was runnable, and its cgroup had used up its CPU quota.
    Quota,
    /// It had used up the CPU time of its real-time policy: SCHED_DEADLINE's runtime, or sched_rt_runtime_us.
    Budget,
    /// A request of the hop's thread was queued or under way on a disk.
    Disk { device: Name },
    /// A timer ended the sleep at the time that the thread had chosen.
    Timer,
    /// A timer ended the sleep before the thread got what it waited for.
    Timeout,
    /// A timer ended the sleep. The hop's thread had been asked and had not answered.
    Unanswered,
    /// The hop's thread held the lock. What it did meanwhile is unknown.
    Held,
    /// Packets from another machine, or from a thread that the trace does not name.
    Network,
    /// TCP held back an acknowledgement for which a sender on this machine waited.
    DelayedAck,
    /// An interrupt of a device or a timer ended the sleep.
    Interrupt,
    /// A device signalled a fence. The hop's thread had submitted the work.
    Device,
    /// The hop's thread sent the stop signal, or traces the stopped thread.
    Stopped,
    /// Something other than a signal stopped the thread, and the hop's thread let it continue.
    Continued,
    /// Two threads wait for each other; the hop's thread is the other one.
    Cycle { sure: bool },
    /// Stands for the hops that a long chain leaves out.
    LeftOut,
    /// The chain breaks here.
    Broken(Break),
}

/// Reason for which a chain breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Break {
    /// No waking was recorded for the sleep.
    NoWaking,
    /// The sleep was not over when the recording ended.
    NotOver,
    /// The thread that ended the sleep is not recorded for that time, or its rows are missing.
    Unheard,
    /// Rows of the thread that ended the sleep are missing: they contradict the rows of other threads.
    Lost,
    /// The thread slept when the recording began.
    Before,
    /// The thread polled a lock in short sleeps. Nobody wakes such a thread, so the holder is unknown.
    LookedAt,
    /// The thread slept until its process ended.
    ProcessOver,
    /// An interrupt ended the sleep, or the thread that it interrupted did; the trace does not say which.
    Uncertain,
    /// The chain returned to the waiting thread, because older times are kept as sums only.
    Coarse,
    /// There are more chains than the graph keeps.
    NotKept,
}

/// One thread in a chain and what it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) actor: ActorId,
    pub(super) doing: Doing,
}

impl Hop {
    /// Returns the hop's slot in `recent_hops`.
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
    /// Hashes a hop as one word where possible: each word costs a multiplication, and each waits for the one before.
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

/// A thread under one of its names; or all threads of a name, if there are too many threads.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) tid: Option<u32>,
    pub(super) comm: Text,
    /// The kernel's priority when the thread was last seen; lower is more urgent.
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
    /// Cache of hops: most hops are asked for again soon.
    recent_hops: Box<[(Hop, HopId); RECENT_HOPS]>,
    hop_of: HashMap<Hop, HopId, Quick>,
    /// The chain that consists of one hop only, by hop; 0 where there is none yet.
    leaf_of: Vec<PathId>,
    /// Cache of chains of waits for a CPU: waiting thread, thread that had the CPU, chain. [`NOT_KEPT`] marks a free
    /// slot.
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

    /// Returns the index of a thread under the name `comm`.
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

    /// Returns the chain that consists of one hop only.
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

    /// Returns the chain for a wait of `actor` for the CPU that `behind` had.
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

    /// Returns the chain that begins with `hop` and goes on with `tail`.
    ///
    /// * If the thread behind waits for the same lock, the chain skips it and goes on with the lock's holder.
    /// * A chain that returns to the waiting thread breaks.
    pub(super) fn chain(&mut self, hop: HopId, tail: PathId) -> PathId {
        if let Some(&known) = self.node_of.get(&(hop, tail)) {
            return known;
        }
        if self.nodes.len() >= MOST_NODES {
            return NOT_KEPT;
        }
        let made = self.make(hop, tail);
        // A second pair of hop and tail that leads to the same chain is found as fast.
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
        // A worker without work waited for the thread that woke it. The reason why the work came late is behind that
        // thread.
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

    /// Returns whether a wait for a lock closes a cycle of two threads that wait for each other, and whether that is
    /// certain. The first thread behind it gave up waiting for another lock. It is certain if the waiting thread held
    /// that other lock.
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
        // A few nodes beyond the bound are for the short tails that `make` adds.
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

    /// Returns the chain behind the first hop.
    pub(super) fn behind(&self, path: PathId) -> Option<PathId> {
        Some(self.nodes[path as usize].tail).filter(|&tail| tail != END)
    }

    /// Returns the activity of the last hop of a chain.
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

/// Hashes keys of a few small integers, such as indices and thread ids. No attacker chooses them at will.
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
