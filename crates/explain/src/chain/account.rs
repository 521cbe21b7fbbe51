//! Sums time by chain, and makes the record from the sums.

use std::collections::{HashMap, HashSet};

use stopgap_events::order::SortRows;
use stopgap_stats::explain::{Blame, Chains, CriticalPath, Idleness, Link, Waiting};
use stopgap_trace::Text;

use super::Graph;
use super::history::Piece;
use super::idle;
use super::path::{ActorId, Break, Doing, For, Hop, HopId, IDLE, NOBODY, Name, PathId, Paths};
use super::window::{Pieces, Sums};

/// Most groups of waits in a record.
const MOST_WAITING: usize = 200;
/// Most rows of blame.
const MOST_BLAMED: usize = 100;
/// Links with a smaller share of their group are added up.
const SMALL: f64 = 0.005;
/// Most places in the program that a group of waits distinguishes.
const MOST_PLACES: usize = 64;
/// Most pairs of a worker and its work function that are counted.
const MOST_WORK: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Nanoseconds by chain and [`Idleness`].
    by_path: Vec<[u64; 3]>,
    /// Index into `groups` plus one, by hop and [`Idleness`]; 0 where there is no group.
    group_of: Vec<[u32; 3]>,
    groups: Vec<(HopId, Idleness, Group)>,
    work: HashMap<(ActorId, Text), u64>,
}

/// Nanoseconds: shorter waits have no picture.
const LEAST_DRAWN: u64 = 10_000_000;

#[derive(Debug, Clone, Default)]
struct Group {
    waits: u64,
    longest: u64,
    at: u64,
    tid: u32,
    /// The pieces of the longest wait, if it has a picture.
    pieces: Pieces,
}

impl Totals {
    fn add(&mut self, path: PathId, idleness: Idleness, ns: u64) {
        let at = path as usize;
        if at >= self.by_path.len() {
            self.by_path.resize(at + 1, [0; 3]);
        }
        self.by_path[at][idleness as usize] += ns;
    }

    fn count(
        &mut self,
        hop: HopId,
        idleness: Idleness,
        (tid, at): (u32, u64),
        ns: u64,
        pieces: &[Piece],
    ) {
        let at_hop = hop as usize;
        if at_hop >= self.group_of.len() {
            self.group_of.resize(at_hop + 1, [0; 3]);
        }
        let place = &mut self.group_of[at_hop][idleness as usize];
        if *place == 0 {
            self.groups.push((hop, idleness, Group::default()));
            *place = self.groups.len() as u32; // at most three per hop
        }
        let (.., group) = &mut self.groups[*place as usize - 1];
        group.waits += 1;
        if ns > group.longest {
            (group.longest, group.at, group.tid) = (ns, at, tid);
            if ns >= LEAST_DRAWN && idleness == Idleness::Stalled {
                group.pieces = Pieces::of(pieces);
            }
        }
    }

    /// Books a sleep of `tid` that began at `at`. Without `idleness`, each piece is judged separately.
    pub(super) fn slept(
        &mut self,
        paths: &Paths,
        hop: HopId,
        idleness: Option<Idleness>,
        tid: u32,
        at: u64,
        pieces: &[Piece],
    ) {
        if let Some(word) = idleness {
            let ns: u64 = pieces.iter().map(|piece| piece.ns).sum();
            if ns > 0 || pieces.is_empty() {
                self.count(hop, word, (tid, at), ns, pieces);
            }
            for piece in pieces {
                self.add(piece.path, word, piece.ns);
            }
            return;
        }
        let of = |piece: &Piece| idle::of_child(paths.end(piece.path));
        for word in [Idleness::Stalled, Idleness::MayBeIdle, Idleness::Idle] {
            let of_it = || pieces.iter().filter(|piece| of(piece) == word);
            let ns: u64 = of_it().map(|piece| piece.ns).sum();
            if ns > 0 {
                self.count(hop, word, (tid, at), ns, pieces);
            }
            for piece in of_it() {
                self.add(piece.path, word, piece.ns);
            }
        }
    }

    /// Moves time from the chain `from` to the chains `to`, which became known later.
    pub(super) fn moves(&mut self, from: PathId, idleness: Idleness, to: &[Piece]) {
        let whole: u64 = to.iter().map(|piece| piece.ns).sum();
        let of_it = self.by_path.get_mut(from as usize);
        let of_it = of_it.map(|sums| &mut sums[idleness as usize]);
        let Some(of_it) = of_it.filter(|ns| **ns >= whole) else {
            return;
        };
        *of_it -= whole;
        for piece in to {
            self.add(piece.path, idleness, piece.ns);
        }
    }

    /// Removes `waits` idle waits from the sums of the chain `from`; `pieces` add up to their length.
    pub(super) fn unbooks(&mut self, from: PathId, hop: HopId, waits: u64, pieces: &[Piece]) {
        let whole: u64 = pieces.iter().map(|piece| piece.ns).sum();
        if let Some(sums) = self.by_path.get_mut(from as usize) {
            let idle = &mut sums[Idleness::Idle as usize];
            *idle = idle.saturating_sub(whole);
        }
        let place = self.group_of.get(hop as usize);
        let place = place.map_or(0, |places| places[Idleness::Idle as usize]);
        if let Some((.., group)) = (place as usize)
            .checked_sub(1)
            .and_then(|at| self.groups.get_mut(at))
        {
            group.waits = group.waits.saturating_sub(waits);
        }
    }

    /// Books a wait for a CPU.
    pub(super) fn queued(&mut self, paths: &Paths, tid: u32, at: u64, pieces: &[Piece]) {
        let mut at = at;
        for piece in pieces {
            let hop = paths.first_id(piece.path);
            self.count(
                hop,
                Idleness::Stalled,
                (tid, at),
                piece.ns,
                std::slice::from_ref(piece),
            );
            self.add(piece.path, Idleness::Stalled, piece.ns);
            at += piece.ns;
        }
    }

    /// Takes the work of the kernel's workers from other totals.
    pub(super) fn works_as(&mut self, other: &mut Totals) {
        self.work = std::mem::take(&mut other.work);
    }

    /// Counts `ns` for a worker of the kernel that executed `function`.
    pub(super) fn works(&mut self, worker: ActorId, function: &Text, ns: u64) {
        let key = (worker, Text::clone(function));
        if self.work.len() < MOST_WORK || self.work.contains_key(&key) {
            *self.work.entry(key).or_default() += ns;
        }
    }
}

/// Key by which hops are added up in a record: threads with the same name share a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Label {
    pub(super) cause: &'static str,
    pub(super) task: Option<Text>,
    call: Option<Text>,
    pub(super) text: String,
    /// The disk that it waits for.
    device: Option<Text>,
}

#[derive(Debug, Default)]
pub(super) struct Tree {
    ns: u64,
    /// The thread; `Err` where there are several threads.
    tid: Option<Result<u32, ()>>,
    /// Places in the program, with the nanoseconds of each.
    places: Vec<(Name, u64)>,
    pub(super) behind: HashMap<Label, Tree>,
}

impl Tree {
    pub(super) fn add(&mut self, tid: Option<u32>, ns: u64) {
        self.ns += ns;
        self.tid = match (self.tid, tid) {
            (None, Some(tid)) => Some(Ok(tid)),
            (Some(Ok(one)), Some(tid)) if one != tid => Some(Err(())),
            (Some(_), None) => Some(Err(())),
            (known, _) => known,
        };
    }

    /// Adds the time of a hop, and counts its place in the program.
    fn add_hop(&mut self, tid: Option<u32>, hop: Hop, ns: u64) {
        self.add(tid, ns);
        let Doing::Waits { place, .. } = hop.doing else {
            return;
        };
        if let Some((_, of)) = self.places.iter_mut().find(|(known, _)| *known == place) {
            *of += ns;
        } else if self.places.len() < MOST_PLACES {
            self.places.push((place, ns));
        }
    }

    /// Returns the place that has at least half of the time.
    fn place(&self, paths: &Paths) -> Option<String> {
        let (place, ns) = self.places.iter().max_by_key(|(_, ns)| *ns)?;
        let place = paths.name_at(*place).filter(|_| *ns * 2 >= self.ns);
        place.map(ToString::to_string)
    }

    fn one(&self) -> Option<u32> {
        self.tid?.ok()
    }

    /// Returns the links; `whole` is the nanoseconds to which their shares refer.
    pub(super) fn links(self, whole: u64, paths: &Paths) -> Vec<Link> {
        let share = |ns: u64| ns as f64 / whole.max(1) as f64;
        let (mut links, mut small) = (Vec::new(), 0);
        for (label, tree) in self.behind {
            if share(tree.ns) < SMALL {
                small += tree.ns;
                continue;
            }
            links.push(Link {
                cause: label.cause.to_owned(),
                text: label.text,
                task: label.task.as_deref().map(str::to_owned),
                tid: tree.one(),
                call: label.call.as_deref().map(str::to_owned),
                place: tree.place(paths),
                device: label.device.as_deref().map(str::to_owned),
                ns: tree.ns,
                share: share(tree.ns),
                links: tree.links(whole, paths),
            });
        }
        links.sort_rows(|a, b| b.ns.cmp(&a.ns).then_with(|| a.text.cmp(&b.text)));
        if small > 0 {
            links.push(Link {
                cause: "other".to_owned(),
                text: "causes of less than 0.5 % each".to_owned(),
                task: None,
                tid: None,
                call: None,
                place: None,
                device: None,
                ns: small,
                share: share(small),
                links: Vec::new(),
            });
        }
        links
    }
}

impl Graph {
    /// Returns where the time of the thread `tid` went from `from` to `to`, when it has a CPU: the ends of chains
    /// over all threads, which add up to the window. `of` names the window.
    pub fn critical_path(&mut self, of: &str, tid: u32, from: u64, to: u64) -> CriticalPath {
        let mut pieces = Pieces::default();
        self.window(tid, from, to, &mut pieces);
        let mut sums = Sums::default();
        sums.add(&pieces);
        let window_ns = to.saturating_sub(from);
        CriticalPath {
            of: of.to_owned(),
            tid,
            window_ns,
            parts: self.parts(&sums),
        }
    }

    /// Ends the graph after the last event. Returns the waits by cause, and the blame, of the threads `of`. An empty
    /// set means all threads.
    #[must_use]
    pub fn finish(mut self, of: &HashSet<u32>) -> Chains {
        self.commit_all();
        Chains {
            waiting: self.waiting(of),
            blame: self.blame(of),
            critical_path: None,
            windows: Vec::new(),
        }
    }

    /// Returns every chain that has time, with its nanoseconds by idleness.
    fn each(&self, of: &HashSet<u32>) -> impl Iterator<Item = (Vec<Hop>, [u64; 3])> {
        let sums = self.totals.by_path.iter().zip(0..);
        sums.filter(|(sums, _)| sums.iter().any(|&ns| ns > 0))
            .filter(|&(_, path)| self.is_one(self.paths.first(path), of))
            .map(|(&sums, path)| (self.paths.hops_of(path).collect(), sums))
    }

    /// Returns whether the waiting thread is in `of`. An empty set contains every thread.
    fn is_one(&self, waiting: Hop, of: &HashSet<u32>) -> bool {
        let tid = self.paths.actor_at(waiting.actor).tid;
        of.is_empty() || tid.is_none_or(|tid| of.contains(&tid))
    }

    /// Counts waits of the recorder's child as idle: the recorded program had not begun yet.
    fn judged(&self, waiting: Hop, idleness: Idleness) -> Idleness {
        match Some(waiting.actor) == self.recorder {
            true => Idleness::Idle,
            false => idleness,
        }
    }

    pub(super) fn waiting(&self, of: &HashSet<u32>) -> Vec<Waiting> {
        let mut groups: HashMap<(Label, Idleness), (Tree, Group, Vec<u32>)> = HashMap::new();
        for (hop, idleness, group) in &self.totals.groups {
            let hop = self.paths.hop_at(*hop);
            let idleness = self.judged(hop, *idleness);
            if !self.is_one(hop, of) {
                continue;
            }
            let (label, tid) = self.root(hop);
            let (_, sum, tids) = groups.entry((label, idleness)).or_default();
            sum.waits += group.waits;
            if group.longest > sum.longest {
                (sum.longest, sum.at, sum.tid) = (group.longest, group.at, group.tid);
                sum.pieces = group.pieces.clone();
            }
            tids.extend(tid);
        }
        for (hops, sums) in self.each(of) {
            let (label, tid) = self.root(hops[0]);
            for idleness in [Idleness::Stalled, Idleness::MayBeIdle, Idleness::Idle] {
                let ns = sums[idleness as usize];
                if ns == 0 {
                    continue;
                }
                let idleness = self.judged(hops[0], idleness);
                let (tree, ..) = groups.entry((label.clone(), idleness)).or_default();
                tree.add_hop(tid, hops[0], ns);
                let mut at = tree;
                // A wait for a CPU has a single hop, which names the thread that had the CPU.
                let from = usize::from(hops.len() > 1);
                for (index, hop) in hops.iter().enumerate().skip(from) {
                    let (label, tid) = self.label(*hop, &hops[..index]);
                    at = at.behind.entry(label).or_default();
                    at.add_hop(tid, *hop, ns);
                }
            }
        }
        let first = self.first.unwrap_or(0);
        let mut waiting: Vec<Waiting> = (groups.into_iter())
            .map(|((label, idleness), (tree, group, mut tids))| {
                tids.sort_unstable();
                tids.dedup();
                let total_ns = tree.ns;
                let place = tree.place(&self.paths);
                Waiting {
                    task: label.task.as_deref().unwrap_or_default().to_owned(),
                    threads: tids.len().max(1) as u64,
                    cause: label.cause.to_owned(),
                    text: label.text,
                    call: label.call.as_deref().map(str::to_owned),
                    place,
                    idleness,
                    waits: group.waits,
                    steps: self.steps(&group.pieces, group.at.saturating_sub(first)),
                    total_ns,
                    longest_ns: group.longest,
                    longest_at_ns: group.at.saturating_sub(first),
                    longest_tid: group.tid,
                    links: tree.links(total_ns, &self.paths),
                }
            })
            .collect();
        waiting.sort_rows(|a, b| {
            (b.total_ns.cmp(&a.total_ns)).then_with(|| (&a.task, &a.text).cmp(&(&b.task, &b.text)))
        });
        waiting.truncate(MOST_WAITING);
        waiting
    }

    fn blame(&self, of: &HashSet<u32>) -> Vec<Blame> {
        let mut blamed: HashMap<Label, Tree> = HashMap::new();
        for (hops, sums) in self.each(of) {
            let ns = sums[Idleness::Stalled as usize];
            if ns == 0 || Some(hops[0].actor) == self.recorder {
                continue;
            }
            let Some(by) = culprit(&hops) else { continue };
            if by == hops[0].actor && by != NOBODY {
                continue;
            }
            let (label, tid) = self.end(&hops);
            blamed.entry(label).or_default().add(tid, ns);
        }
        let whole: u64 = blamed.values().map(|tree| tree.ns).sum();
        let mut blame: Vec<Blame> = (blamed.into_iter())
            .map(|(label, tree)| Blame {
                cause: label.cause.to_owned(),
                text: label.text,
                task: label.task.as_deref().map(str::to_owned),
                tid: tree.one(),
                ns: tree.ns,
                share: tree.ns as f64 / whole.max(1) as f64,
            })
            .collect();
        blame.sort_rows(|a, b| b.ns.cmp(&a.ns).then_with(|| a.text.cmp(&b.text)));
        blame.truncate(MOST_BLAMED);
        blame
    }

    pub(super) fn comm(&self, actor: ActorId) -> Option<Text> {
        let comm = &self.paths.actor_at(actor).comm;
        (actor != NOBODY && !comm.is_empty()).then(|| Text::clone(comm))
    }

    /// Returns a thread's name for a sentence. A worker of the kernel also gets the name of its work function.
    fn who(&self, actor: ActorId) -> String {
        let comm = self.comm(actor);
        let mut who = comm.map_or_else(|| "an unknown thread".to_owned(), |comm| comm.to_string());
        let work = self
            .totals
            .work
            .iter()
            .filter(|((worker, _), _)| *worker == actor);
        if let Some(((_, function), _)) = work.max_by_key(|(_, ns)| **ns) {
            who += &format!(" ({function})");
        }
        who
    }

    /// Returns the label of a group of waits.
    fn root(&self, hop: Hop) -> (Label, Option<u32>) {
        let (mut label, _) = self.label(hop, &[]);
        if let Doing::Queued { .. } = hop.doing {
            "waited for a CPU".clone_into(&mut label.text);
        }
        if label.task.is_none() {
            label.task = self.comm(hop.actor);
        }
        if let Doing::Queued { .. } = hop.doing {
            label.task = self.comm(hop.actor);
        }
        (label, self.paths.actor_at(hop.actor).tid)
    }

    /// Returns the label of the end of a chain, in words that stand without the chain.
    pub(super) fn end(&self, hops: &[Hop]) -> (Label, Option<u32>) {
        let last = hops.len() - 1;
        let (mut label, mut tid) = self.label(hops[last], &hops[..last]);
        if matches!(hops[last].doing, Doing::Timer)
            && let Some(sleeper) = last.checked_sub(1)
            && is_time(hops[sleeper])
        {
            let actor = hops[sleeper].actor;
            label.task = self.comm(actor);
            tid = self.paths.actor_at(actor).tid;
            label.text = format!("{} slept on purpose", self.who(actor));
        }
        (label, tid)
    }

    /// Returns the label of a hop; `before` are the hops in front of it.
    pub(super) fn label(&self, hop: Hop, before: &[Hop]) -> (Label, Option<u32>) {
        let who = self.who(hop.actor);
        let mut actor = hop.actor;
        let (mut named, mut device) = (None, None);
        let (cause, text) = match hop.doing {
            Doing::Waits { what, call, .. } => {
                named = self.paths.name_at(call).cloned();
                // A signal can stop a thread anywhere, so the call says nothing.
                if what == For::Continue {
                    named = None;
                }
                self.waits(what, named.as_ref(), &who, before.is_empty())
            }
            Doing::Runs { function } => {
                let function = self.paths.name_at(function);
                let function = function.map_or_else(String::new, |name| format!(" in {name}"));
                ("running", format!("{who} ran{function}"))
            }
            Doing::Queued { behind } => {
                actor = behind;
                let subject = match before {
                    [] => "waited".to_owned(),
                    _ => format!("{who} waited"),
                };
                let text = match behind {
                    NOBODY => format!("{subject} for a CPU"),
                    IDLE => format!(
                        "{subject} for a CPU that was idle (its wake-up, or the hypervisor)"
                    ),
                    _ if self.inverts(hop, before) => format!(
                        "{subject} for a CPU, behind {} of higher priority: priority inversion",
                        self.who(behind)
                    ),
                    _ => format!("{subject} for a CPU, behind {}", self.who(behind)),
                };
                let cause = match self.inverts(hop, before) {
                    true => "priority-inversion",
                    false => "run-queue",
                };
                (cause, text)
            }
            Doing::Budget => (
                "cpu-quota",
                format!("{who} had used up the CPU time of its real-time policy"),
            ),
            Doing::Quota => (
                "cpu-quota",
                format!("{who} had used up its cgroup's CPU quota"),
            ),
            Doing::Disk { device: name } => {
                device = self.paths.name_at(name).cloned();
                let name = device.as_ref();
                let disk = name.map_or_else(|| "a disk".to_owned(), |name| format!("disk {name}"));
                let own = before.last().is_some_and(|waits| waits.actor == hop.actor);
                let text = match hop.actor {
                    NOBODY if self.disks.has_requests() => {
                        format!(
                            "{disk}, while no request was under way (a limit on its cgroup's I/O?)"
                        )
                    }
                    NOBODY => disk,
                    _ if own => format!("{disk}, its own request"),
                    _ => format!("{disk}, behind requests of {who}"),
                };
                ("disk", text)
            }
            Doing::Timer if before.last().is_none_or(|hop| is_time(*hop)) => {
                ("timer", "on purpose".to_owned())
            }
            Doing::Timer => ("timer", "a timer of the kernel".to_owned()),
            Doing::Timeout => match hop.actor {
                NOBODY => ("timeout", "until its timeout".to_owned()),
                _ => ("timeout", format!("until its timeout; {who} got it last")),
            },
            Doing::Unanswered => (
                "timeout",
                format!("{who} had been asked and did not answer until a timeout"),
            ),
            Doing::Held => ("held", format!("{who} held it")),
            Doing::Network => ("network", "the network".to_owned()),
            Doing::DelayedAck => {
                let waits = match hop.actor {
                    NOBODY => "Nagle's algorithm waits for it".to_owned(),
                    _ => format!("Nagle's algorithm of {who} waits for it"),
                };
                let text = format!("TCP held its acknowledgement back for 40 ms ({waits})");
                ("delayed-ack", text)
            }
            Doing::Interrupt => ("interrupt", "a device or a timer".to_owned()),
            Doing::Device => match hop.actor {
                NOBODY => ("device", "the device".to_owned()),
                _ => ("device", format!("the device, with work of {who}")),
            },
            Doing::Stopped => match hop.actor {
                NOBODY => ("stopped", "by whom the trace does not tell".to_owned()),
                _ => ("stopped", format!("stopped by {who}")),
            },
            Doing::Continued => ("stopped", format!("until {who} let it go on")),
            Doing::Cycle { sure: true } => (
                "cycle",
                format!("deadlock: {who} waited for it, until a timeout"),
            ),
            Doing::Cycle { sure: false } => (
                "perhaps-cycle",
                format!(
                    "{who} waited for another lock meanwhile; a timeout ended it: perhaps a deadlock"
                ),
            ),
            Doing::LeftOut => ("left-out", "a longer chain".to_owned()),
            Doing::Broken(why) => ("unknown", broken(why, &who)),
        };
        let task = self.comm(actor).filter(|_| actor != IDLE);
        let label = Label {
            cause,
            task,
            call: named,
            text,
            device,
        };
        (
            label,
            self.paths.actor_at(actor).tid.filter(|&tid| tid != 0),
        )
    }

    /// Returns the cause and the sentence of a wait. `first`: the line names the thread already.
    fn waits(
        &self,
        what: For,
        call: Option<&Text>,
        who: &str,
        first: bool,
    ) -> (&'static str, String) {
        let call_text = call.map_or_else(String::new, |call| format!(" in {call}"));
        let (cause, text) = match what {
            For::Time => ("time", format!("slept{call_text}")),
            For::Lock { kind, address } => {
                let kind = self.paths.name_at(kind).map_or("lock", |kind| &**kind);
                let kind = match kind {
                    "futex" => "lock",
                    // Flags of a contention event (include/trace/events/lock.h).
                    "READ" => "kernel's rwsem, to read,",
                    "WRITE" => "kernel's rwsem, to write,",
                    "READ|PERCPU" => "kernel's percpu rwsem, to read,",
                    "WRITE|PERCPU" => "kernel's percpu rwsem, to write,",
                    "MUTEX" => "kernel's mutex",
                    kind => kind,
                };
                let address = match address {
                    0 => String::new(),
                    address => format!(" at {address:#x}"),
                };
                let cause = if kind == "mmap_lock" {
                    "mmap_lock"
                } else {
                    "lock"
                };
                (cause, format!("waited for the {kind}{address}"))
            }
            For::Word { address: 0 } => ("word", format!("waited{call_text}")),
            For::Word { address } => ("word", format!("waited to be woken, at {address:#x}")),
            For::Events => ("events", format!("was{call_text}")),
            For::Data => ("data", format!("was{call_text}")),
            For::Answer if call.is_none() => (
                "answer",
                "waited for the program behind its memory (FUSE, userfaultfd)".to_owned(),
            ),
            For::Answer => (
                "answer",
                format!("was{call_text}, for the program behind it (FUSE, seccomp, fanotify)"),
            ),
            For::Io if call.is_none() => ("io", "waited for a disk".to_owned()),
            For::Io => ("io", format!("was{call_text}")),
            For::Child => ("child", format!("waited for a child{call_text}")),
            For::Signal => ("signal", format!("waited for a signal{call_text}")),
            For::Continue => ("continue", "was stopped".to_owned()),
            For::Fence { driver } => {
                let driver = self.paths.name_at(driver);
                let driver = driver.map_or_else(String::new, |driver| format!(" of {driver}"));
                ("fence", format!("waited for a fence{driver}"))
            }
            For::Rcu => ("rcu", "waited for a grace period of RCU".to_owned()),
            For::Memory { how } => {
                let how = self.paths.name_at(how).map_or("reclaim", |how| &**how);
                let causes = ["direct-reclaim", "memcg-reclaim", "compaction", "throttled"];
                let cause = causes.into_iter().find(|cause| *cause == how);
                let text = match how {
                    "direct-reclaim" => "was in direct reclaim: it freed pages itself".to_owned(),
                    "memcg-reclaim" => {
                        "was in reclaim of its memory group, which is at its limit".to_owned()
                    }
                    "throttled" => "was held back by reclaim (throttled)".to_owned(),
                    how => format!("was in {how}"),
                };
                (cause.unwrap_or("memory"), text)
            }
            For::Work => ("work", "had no work".to_owned()),
            For::Something if call.is_none() => ("something", "slept".to_owned()),
            For::Something => ("something", format!("was{call_text}")),
        };
        match first {
            true => (cause, text),
            false => (cause, format!("{who} {text}")),
        }
    }

    /// Returns whether a wait for a CPU, behind a more urgent thread, delays a thread that is more urgent than both.
    fn inverts(&self, hop: Hop, before: &[Hop]) -> bool {
        let priority = |actor: ActorId| self.paths.actor_at(actor).priority;
        let Doing::Queued { behind } = hop.doing else {
            return false;
        };
        let waits_its_turn = priority(behind)
            .zip(priority(hop.actor))
            .is_none_or(|(behind, own)| behind >= own);
        if waits_its_turn {
            return false;
        }
        before.iter().any(|waiting| {
            let lock = matches!(
                waiting.doing,
                Doing::Waits {
                    what: For::Lock { .. },
                    ..
                }
            );
            lock && priority(waiting.actor)
                .zip(priority(behind))
                .is_some_and(|(a, b)| a < b)
        })
    }
}

/// Returns whether the thread slept for a time that it chose itself.
fn is_time(hop: Hop) -> bool {
    let what = For::Time;
    matches!(hop.doing, Doing::Waits { what: waits, .. } if waits == what)
}

/// Returns the thread that caused a wait; [`NOBODY`] if the cause is outside of all threads; `None` if the cause is
/// unknown.
pub(super) fn culprit(hops: &[Hop]) -> Option<ActorId> {
    let last = hops.last()?;
    match last.doing {
        Doing::Runs { .. }
        | Doing::Disk { .. }
        | Doing::Stopped
        | Doing::Continued
        | Doing::Unanswered
        | Doing::Held
        | Doing::Cycle { .. }
        | Doing::Device
        | Doing::DelayedAck
        | Doing::Budget
        | Doing::Quota => Some(last.actor),
        Doing::Queued { behind } => Some(behind).filter(|&behind| behind != IDLE),
        Doing::Timer => hops.iter().rev().nth(1).map(|sleeper| sleeper.actor),
        Doing::Network => Some(NOBODY),
        Doing::Waits { .. }
        | Doing::Timeout
        | Doing::Interrupt
        | Doing::LeftOut
        | Doing::Broken(_) => None,
    }
}

fn broken(why: Break, who: &str) -> String {
    match why {
        Break::NoWaking => "nobody was seen to end it".to_owned(),
        Break::NotOver => "the wait was not over when the recording ended".to_owned(),
        Break::Unheard => format!("what {who} did is not recorded"),
        Break::Lost => format!("rows of {who} are missing"),
        Break::Before => "the wait began before the recording".to_owned(),
        Break::LookedAt => "it looked now and then; who had it the trace does not tell".to_owned(),
        Break::ProcessOver => "until its process ended".to_owned(),
        Break::Uncertain => "an interrupt, or the thread that it interrupted".to_owned(),
        Break::Coarse => "longer ago than is kept exactly".to_owned(),
        Break::NotKept => "more chains than are kept".to_owned(),
    }
}
