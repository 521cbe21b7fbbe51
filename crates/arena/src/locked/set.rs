//! The set: what is locked, what was released, what may go, and the limits of it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use super::memory::{Memory, Way, whole_pages};
use super::pressure::{Pressure, Trigger, Watch};
use crate::error::{Error, Result};
use crate::sys::lock;

/// How a set behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Bytes that may be locked at a time, released and purgeable ones that still are among them. `RLIMIT_MEMLOCK` holds
    /// beside it, for all ways together (the kernel itself counts each way apart), unless this thread has `CAP_IPC_LOCK`.
    pub budget: u64,
    /// What is released is unlocked when this many bytes are (0: at once), and no munlock(2) is for more than that or 1 MiB,
    /// whichever is more: the kernel lets nobody of the process map memory meanwhile.
    pub batch: u64,
    /// By which way [`Set::take`] locks; [`Way::SysV`] still falls back where there are no segments.
    pub way: Way,
    /// Pressure that [`Set::poll_pressure`] and [`Set::watch`] react to.
    pub pressure: Option<Pressure>,
}

impl Default for Options {
    /// 64 MiB; 4 MiB a batch; segments; no trigger.
    fn default() -> Options {
        Options {
            budget: 64 << 20,
            batch: 4 << 20,
            way: Way::SysV,
            pressure: None,
        }
    }
}

/// Whether what was released or purgeable is as it was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// It is.
    Kept,
    /// It was given back meanwhile and reads as zero.
    Lost,
}

/// Result of a reaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use = "it says what is lost, and whether something failed"]
pub struct Purged {
    /// Purgeable objects whose contents went.
    pub objects: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes of released objects that were unlocked.
    pub unlocked: u64,
    /// The first failure. The rest was still done.
    pub error: Option<Error>,
}

/// Counters of a set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Objects.
    pub objects: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes that are locked: this is what the budget limits.
    pub locked: u64,
    /// Bytes of those that were released and wait for their batch.
    pub released: u64,
    /// Bytes of those that are purgeable.
    pub purgeable: u64,
    /// Objects that lost their contents since the set was made.
    pub purged: u64,
}

/// Bytes that one munlock(2) may be for, however small the batch: each splits a mapping where it ends. Pages are smaller.
const LEAST_STEP: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Released,
    /// With its place in the order of being marked.
    Purgeable(u64),
    Lost,
}

#[derive(Debug)]
struct Object {
    memory: Memory,
    /// Whether the kernel has it locked; `State::locked` is the sum over these.
    locked: bool,
    phase: Phase,
}

impl Object {
    fn bytes(&self) -> u64 {
        self.memory.length() as u64
    }

    fn set_locked(&mut self, locked: bool, sum: &mut u64) {
        match (self.locked, locked) {
            (false, true) => *sum += self.bytes(),
            (true, false) => *sum -= self.bytes(),
            _ => {}
        }
        self.locked = locked;
    }
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<u64, Object>,
    /// The next object's name, and the next place in the order of being marked.
    next: u64,
    /// Bytes locked.
    locked: u64,
    /// Objects that are released and locked, and their bytes.
    released: BTreeSet<u64>,
    released_bytes: u64,
    /// Purgeable objects in the order of being marked.
    purgeable: BTreeMap<u64, u64>,
    purged: u64,
    /// What was dropped and could not be unmapped (a part of a larger mapping cannot, where there are as many mappings as
    /// there may be), and whether it is locked.
    left: Vec<(Memory, bool)>,
    /// Why there are no segments at all.
    no_segments: Option<Error>,
}

impl State {
    fn object(&mut self, name: u64) -> Result<&mut Object> {
        // Only dropping `Held` takes it away.
        self.objects.get_mut(&name).ok_or(Error::Invalid {
            what: "an object of another set",
        })
    }

    /// Takes an object out of the orders that its phase put it into.
    fn leave_phase(&mut self, name: u64) -> Result<()> {
        let object = self.object(name)?;
        let (phase, bytes) = (object.phase, object.bytes());
        match phase {
            Phase::Released => {
                if self.released.remove(&name) {
                    self.released_bytes -= bytes;
                }
            }
            Phase::Purgeable(place) => {
                self.purgeable.remove(&place);
            }
            Phase::Held | Phase::Lost => {}
        }
        Ok(())
    }

    fn enter(&mut self, name: u64, phase: Phase) -> Result<()> {
        self.leave_phase(name)?;
        let object = self.object(name)?;
        object.phase = phase;
        let (locked, bytes) = (object.locked, object.bytes());
        match phase {
            Phase::Released if locked => {
                self.released.insert(name);
                self.released_bytes += bytes;
            }
            Phase::Purgeable(place) => {
                self.purgeable.insert(place, name);
            }
            Phase::Released | Phase::Held | Phase::Lost => {}
        }
        Ok(())
    }

    /// `name` is unlocked now.
    fn unlocked(&mut self, name: u64) {
        if let Some(object) = self.objects.get_mut(&name) {
            object.set_locked(false, &mut self.locked);
            if self.released.remove(&name) {
                self.released_bytes -= object.bytes();
            }
        }
    }

    /// Tries again to unmap what could not be; whether any could.
    fn clear_left(&mut self) -> bool {
        let before = self.left.len();
        let locked = &mut self.locked;
        self.left.retain_mut(|(memory, was_locked)| {
            let gone = memory.unmap().is_ok();
            if gone && *was_locked {
                *locked -= memory.length() as u64;
            }
            !gone
        });
        self.left.len() < before
    }

    /// Unlocks all that is released: parts of files that lie side by side in one call, in steps of `batch` bytes.
    fn flush(&mut self, batch: u64) -> Result<u64> {
        self.clear_left();
        let before = self.released_bytes;
        let mut files = Vec::new();
        let names: Vec<u64> = self.released.iter().copied().collect();
        for name in names {
            let memory = &self.object(name)?.memory;
            match memory.way() {
                Way::SysV => {
                    memory.unlock()?;
                    self.unlocked(name);
                }
                Way::Memfd => files.push((memory.address(), memory.length(), name)),
            }
        }
        files.sort_unstable();
        let step = usize::try_from(batch).unwrap_or(usize::MAX).max(LEAST_STEP);
        let step = step - step % crate::sys::page();
        // Those whose unlocking has begun and not ended.
        let mut open = Vec::new();
        let mut run: Option<(usize, usize)> = None;
        for (at, &(address, length, name)) in files.iter().enumerate() {
            // Addresses of mappings: no sum leaves the address space.
            let end = address + length;
            let start = run.map_or(address, |(start, _)| start);
            open.push((end, name));
            run = Some((start, end));
            let follows = files.get(at + 1).is_some_and(|&(next, ..)| next == end);
            if follows && end - start < step {
                continue;
            }
            let mut from = start;
            while from < end && (!follows || end - from >= step) {
                let to = end.min(from.saturating_add(step));
                lock::unlock(from, to - from)?;
                from = to;
                open.retain(|&(end, name)| {
                    let done = end <= from;
                    if done {
                        self.unlocked(name);
                    }
                    !done
                });
            }
            run = follows.then_some((from, end));
        }
        Ok(before - self.released_bytes)
    }

    /// Has the longest purgeable object of those that are locked lose its contents and its lock; false: there is none. One
    /// that is not locked would lose its contents for nothing.
    fn purge_oldest(&mut self) -> Result<bool> {
        let locked = |name: &u64| self.objects.get(name).is_some_and(|object| object.locked);
        let Some(name) = self.purgeable.values().copied().find(locked) else {
            return Ok(false);
        };
        self.purge(name).map(|()| true)
    }

    fn purge(&mut self, name: u64) -> Result<()> {
        let object = self.object(name)?;
        object.memory.empty()?;
        let locked = object.locked;
        self.enter(name, Phase::Lost)?;
        self.purged += 1;
        if locked {
            // Nothing of it is resident any more: the call moves no page.
            self.object(name)?.memory.unlock()?;
            self.unlocked(name);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Shared {
    pid: Pid,
    budget: u64,
    batch: u64,
    way: Way,
    trigger: Option<Trigger>,
    state: Mutex<State>,
}

impl Shared {
    /// # Errors
    /// In a child of fork: another thread of the parent may have held the lock.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        if getpid() != self.pid {
            return Err(Error::Invalid {
                what: "a set that was made before fork",
            });
        }
        // Nothing panics while it is held but for a failed allocation, between two steps of which each leaves it whole.
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns how many bytes may be locked in all, and the name of that limit.
    fn limit(&self) -> Result<(u64, &'static str)> {
        let own = (self.budget, "the budget");
        match lock::memlock() {
            Some(limit) if limit < self.budget && lock::bound_by_memlock()? => Ok((limit, MEMLOCK)),
            _ => Ok(own),
        }
    }

    /// Has what is released unlocked, then what is purgeable purged, oldest first, until `asked` bytes more may be locked.
    fn make_room(&self, state: &mut State, asked: u64) -> Result<()> {
        let (limit, which) = self.limit()?;
        let passes = Error::Limit {
            asked,
            limit,
            which,
        };
        if asked > limit {
            return Err(passes); // for which nothing need go
        }
        while state
            .locked
            .checked_add(asked)
            .is_none_or(|all| all > limit)
        {
            if !self.give_way(state)? {
                return Err(passes);
            }
        }
        Ok(())
    }

    /// One step of that; false where there is nothing left to give.
    fn give_way(&self, state: &mut State) -> Result<bool> {
        if state.clear_left() {
            return Ok(true);
        }
        if !state.released.is_empty() {
            return state.flush(self.batch).map(|_| true);
        }
        state.purge_oldest()
    }

    /// Locks `memory`, for which there is room by our own count. The kernel counts others' as well.
    fn lock(&self, state: &mut State, memory: &Memory) -> Result<()> {
        loop {
            let error = match memory.lock() {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let short = error.is(&[Errno::NOMEM, Errno::AGAIN]);
            if !short || !self.give_way(state)? {
                return Err(refused(error, memory, state.locked));
            }
        }
    }

    /// Locks an object that is not.
    fn lock_object(&self, state: &mut State, name: u64) -> Result<()> {
        let bytes = state.object(name)?.bytes();
        self.make_room(state, bytes)?;
        // Out of the map meanwhile, as others may have to give way.
        let Some(mut object) = state.objects.remove(&name) else {
            return Ok(());
        };
        let locked = self.lock(state, &object.memory);
        if locked.is_ok() {
            object.set_locked(true, &mut state.locked);
        }
        state.objects.insert(name, object);
        locked
    }
}

const MEMLOCK: &str = "RLIMIT_MEMLOCK";

/// Turns the kernel's refusal to lock into the error that it means.
fn refused(error: Error, memory: &Memory, locked: u64) -> Error {
    let Error::Call { errno, .. } = error else {
        return error;
    };
    let asked = memory.length() as u64;
    let Some(limit) = lock::memlock() else {
        return error;
    };
    if !lock::bound_by_memlock().unwrap_or(true) {
        return error;
    }
    let over = match errno {
        Errno::PERM => limit == 0,
        // Where locking makes nothing resident there is no other reason. Counted is what all processes of the user have
        // by SHM_LOCK, and what this one has by mlock(2), ours or not.
        Errno::NOMEM | Errno::AGAIN => {
            !memory.locks_at_once() || locked.saturating_add(asked) > limit
        }
        _ => false,
    };
    if over {
        Error::Limit {
            asked,
            limit,
            which: MEMLOCK,
        }
    } else {
        error
    }
}

/// Memory that is locked, within limits. Clones are one and the same set; any thread may use it.
#[derive(Debug, Clone)]
pub struct Set {
    shared: Arc<Shared>,
}

impl Set {
    /// A set with nothing in it. No thread is started.
    ///
    /// # Errors
    /// Where [`Options::pressure`] is given: [`Error::Unsupported`] where the kernel keeps none; else as open(2) and
    /// write(2) on its file.
    pub fn new(mut options: Options) -> Result<Set> {
        let trigger = options.pressure.take().map(Trigger::new).transpose()?;
        Ok(Set::with(&options, trigger))
    }

    pub(super) fn with(options: &Options, trigger: Option<Trigger>) -> Set {
        Set {
            shared: Arc::new(Shared {
                pid: getpid(),
                budget: options.budget,
                batch: options.batch,
                way: options.way,
                trigger,
                state: Mutex::default(),
            }),
        }
    }

    /// `length` bytes (rounded up to pages) that read as zero and are locked as soon as they are touched, by the cheapest
    /// way that this kernel gives. Touching is left to the owner; nothing is resident before.
    ///
    /// Eight system calls, of which none touches a page.
    ///
    /// # Errors
    /// [`Error::Limit`] beyond the budget, `RLIMIT_MEMLOCK`, or with a memfd `RLIMIT_FSIZE`; else as shmget(2), memfd_create(2), mmap(2) and mlock(2).
    pub fn take(&self, length: usize) -> Result<Held> {
        self.make(length, |state, shared, length| {
            if shared.way == Way::Memfd {
                return Memory::memfd(length).map(|memory| (memory, None));
            }
            let why = match state.no_segments {
                Some(why) => why,
                None => match Memory::segment(length) {
                    Ok(memory) => return Ok((memory, None)),
                    Err(why) => why,
                },
            };
            match why {
                // No segments (not built, or not for us), or none of this size, or no more of them.
                Error::Call {
                    errno: Errno::NOSYS,
                    ..
                } => state.no_segments = Some(why),
                Error::Call {
                    errno: Errno::INVAL | Errno::NOSPC | Errno::PERM | Errno::ACCESS,
                    ..
                } => {}
                other => return Err(other),
            }
            Memory::memfd(length).map(|memory| (memory, Some(why)))
        })
    }

    /// [`Set::take`] of memory that can be passed to other processes: [`Held::file`]. Its size is sealed.
    ///
    /// # Errors
    /// As [`Set::take`].
    pub fn take_shareable(&self, length: usize) -> Result<Held> {
        self.make(length, |_, _, length| {
            Memory::memfd(length).map(|memory| (memory, None))
        })
    }

    /// Locks `length` bytes (rounded up to pages) from `offset` on of a memfd that is there already, through a mapping of
    /// the set's own. All of it becomes resident. Where it is sealed against writing it is mapped read-only
    /// ([`Held::is_writable`]). A process that may cut it short can make its users fault: ask for `F_SEAL_SHRINK`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is shorter than that; else as [`Set::take`].
    pub fn take_file(&self, fd: OwnedFd, offset: u64, length: usize) -> Result<Held> {
        self.make(length, |_, _, length| {
            Memory::file(fd, offset, length).map(|memory| (memory, None))
        })
    }

    fn make(
        &self,
        length: usize,
        memory: impl FnOnce(&mut State, &Shared, usize) -> Result<(Memory, Option<Error>)>,
    ) -> Result<Held> {
        let length = whole_pages(length)?;
        let shared = &*self.shared;
        let mut state = shared.state()?;
        shared.make_room(&mut state, length as u64)?;
        let (memory, instead) = memory(&mut state, shared, length)?;
        shared.lock(&mut state, &memory)?;
        let held = |name, memory: &Memory| Held {
            set: self.clone(),
            name,
            address: memory.address(),
            length,
            way: memory.way(),
            writable: memory.writable(),
            instead,
        };
        let name = state.next;
        state.next += 1;
        let held = held(name, &memory);
        let mut object = Object {
            memory,
            locked: false,
            phase: Phase::Held,
        };
        object.set_locked(true, &mut state.locked);
        state.objects.insert(name, object);
        Ok(held)
    }

    /// Unlocks all that was released; how many bytes.
    ///
    /// # Errors
    /// As munlock(2) and shmctl(2): `ENOMEM` where a mapping had to be split and there are as many as there may be. What
    /// was not unlocked waits on.
    pub fn flush(&self) -> Result<u64> {
        self.shared.state()?.flush(self.shared.batch)
    }

    /// Has all purgeable objects lose their contents, and unlocks all that was released: for when memory is short.
    ///
    /// # Errors
    /// In a child of fork alone; what fails of it is in [`Purged::error`].
    pub fn react(&self) -> Result<Purged> {
        let mut state = self.shared.state()?;
        let mut purged = Purged::default();
        for name in state.purgeable.values().copied().collect::<Vec<u64>>() {
            let before = state.purged;
            let done = state.purge(name);
            if state.purged > before {
                purged.objects += 1;
                purged.bytes += state.object(name).map_or(0, |object| object.bytes());
            }
            purged.error = purged.error.or(done.err());
        }
        match state.flush(self.shared.batch) {
            Ok(bytes) => purged.unlocked = bytes,
            Err(error) => purged.error = purged.error.or(Some(error)),
        }
        Ok(purged)
    }

    /// Asks the trigger whether memory got short since it was last asked, and reacts if so. Never waits; one system call
    /// where nothing happened. `None`: memory is not short, or no pressure is asked about.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the trigger's cgroup is gone; else as [`Set::react`].
    pub fn poll_pressure(&self) -> Result<Option<Purged>> {
        match &self.shared.trigger {
            Some(trigger) if trigger.fired(None)? => self.react().map(Some),
            _ => Ok(None),
        }
    }

    /// The trigger, for a poll(2) of the owner's: `POLLPRI` says that [`Set::poll_pressure`] will react.
    #[must_use]
    pub fn pressure_file(&self) -> Option<BorrowedFd<'_>> {
        self.shared.trigger.as_ref().map(Trigger::file)
    }

    /// What the trigger waits for: what was asked for, or the same share of a window that everybody may ask for.
    #[must_use]
    pub fn pressure(&self) -> Option<&Pressure> {
        self.shared
            .trigger
            .as_ref()
            .map(|trigger| &trigger.pressure)
    }

    /// Starts a thread that reacts to pressure by itself, until what is returned is dropped. The trigger is its then:
    /// [`Set::poll_pressure`] finds nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] where no pressure is asked about; else as eventfd(2) and pthread_create(3).
    pub fn watch(&self) -> Result<Watch> {
        if self.shared.trigger.is_none() {
            return Err(Error::Invalid {
                what: "the set was made without pressure to react to",
            });
        }
        Watch::start(self.clone())
    }

    pub(super) fn react_until(&self, end: BorrowedFd<'_>) -> Result<()> {
        let Some(trigger) = &self.shared.trigger else {
            return Ok(());
        };
        loop {
            if trigger.fired(Some(end))? {
                // An object that failed stays purgeable, for the next time.
                let _ = self.react()?;
            } else if lock::poll([(end, rustix::event::PollFlags::IN)], false)?[0].there {
                return Ok(());
            }
        }
    }

    /// Returns counters of the set.
    ///
    /// # Errors
    /// In a child of fork.
    pub fn statistics(&self) -> Result<Statistics> {
        let state = self.shared.state()?;
        let all = state.objects.values();
        let purgeable = all
            .clone()
            .filter(|object| object.locked && matches!(object.phase, Phase::Purgeable(_)));
        Ok(Statistics {
            objects: state.objects.len() as u64,
            bytes: all.map(Object::bytes).sum(),
            locked: state.locked,
            released: state.released_bytes,
            purgeable: purgeable.map(Object::bytes).sum(),
            purged: state.purged,
        })
    }
}

/// Memory of a [`Set`]. Dropped, it is unmapped and given back, locked or not: no holder of its address may use it any more.
#[derive(Debug)]
#[must_use = "dropped, its memory is given back"]
pub struct Held {
    set: Set,
    name: u64,
    address: usize,
    length: usize,
    way: Way,
    writable: bool,
    instead: Option<Error>,
}

impl Held {
    /// Where it begins, at a page. Contents may change during a read (the memory is shared, and may be purged): make no
    /// reference into it while it is purgeable.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// Returns the same address, known not to be null.
    #[must_use]
    pub fn as_non_null(&self) -> NonNull<u8> {
        NonNull::new(self.as_ptr()).unwrap_or(NonNull::dangling()) // the kernel maps nothing at 0 without being told
    }

    /// Bytes, whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: nothing is not held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// By which way it is locked.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
    }

    /// Why it is no segment, where it should have been one.
    #[must_use]
    pub fn instead(&self) -> Option<Error> {
        self.instead
    }

    /// Whether it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// A new descriptor of the memfd that it is, and where in that it begins; `None`: it is a segment.
    ///
    /// # Errors
    /// As dup(2): `EMFILE`.
    pub fn file(&self) -> Result<Option<(OwnedFd, u64)>> {
        let mut state = self.set.shared.state()?;
        let Some((fd, offset)) = state.object(self.name)?.memory.fd() else {
            return Ok(None);
        };
        lock::duplicate(fd).map(|fd| Some((fd, offset)))
    }

    /// The owner needs it off the lists no longer; its contents stay. It is unlocked with its batch.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is released already, or its contents are lost; else as [`Set::flush`] of the batch that
    /// it filled, and it is released all the same.
    pub fn release(&self) -> Result<()> {
        let shared = &self.set.shared;
        let mut state = shared.state()?;
        match state.object(self.name)?.phase {
            Phase::Released => {
                return Err(Error::Invalid {
                    what: "released already",
                });
            }
            Phase::Lost => {
                return Err(Error::Invalid {
                    what: "its contents are lost, and it is not locked",
                });
            }
            Phase::Held | Phase::Purgeable(_) => {}
        }
        state.enter(self.name, Phase::Released)?;
        if state.released_bytes > 0 && state.released_bytes >= shared.batch {
            state.flush(shared.batch)?;
        }
        Ok(())
    }

    /// Its contents may go when memory gets short. Until then it stays as it is, locked where it was.
    ///
    /// # Errors
    /// [`Error::Invalid`] where they cannot go: a memfd that may not be written.
    pub fn purgeable(&self) -> Result<()> {
        let mut state = self.set.shared.state()?;
        let object = state.object(self.name)?;
        match object.phase {
            Phase::Purgeable(_) | Phase::Lost => return Ok(()),
            Phase::Held | Phase::Released => object.memory.check_can_be_emptied()?,
        }
        let place = state.next;
        state.next += 1;
        state.enter(self.name, Phase::Purgeable(place))
    }

    /// Takes it again after [`Held::release`] or [`Held::purgeable`]: locked, with what was in it or, once, the word that
    /// that is lost. No system call where it is locked still.
    ///
    /// # Errors
    /// As [`Set::take`]; then it is as it was, and the next call reports a loss.
    pub fn keep(&self) -> Result<Contents> {
        let shared = &self.set.shared;
        let mut state = shared.state()?;
        let (phase, locked) = {
            let object = state.object(self.name)?;
            (object.phase, object.locked)
        };
        if phase != Phase::Held {
            if !locked {
                // Not to be purged for its own sake.
                state.leave_phase(self.name)?;
                if let Err(error) = shared.lock_object(&mut state, self.name) {
                    state.enter(self.name, phase)?;
                    return Err(error);
                }
            }
            state.enter(self.name, Phase::Held)?;
        }
        Ok(if phase == Phase::Lost {
            Contents::Lost
        } else {
            Contents::Kept
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // In a child of fork: its parent's.
        let Ok(mut state) = self.set.shared.state() else {
            return;
        };
        let _ = state.leave_phase(self.name);
        let Some(object) = state.objects.remove(&self.name) else {
            return;
        };
        drop(state);
        // Long for what is long, and nobody need wait for it.
        let Object {
            mut memory, locked, ..
        } = object;
        let gone = memory.unmap();
        if let Ok(mut state) = self.set.shared.state() {
            match gone {
                Ok(()) if locked => state.locked -= memory.length() as u64,
                Ok(()) => {}
                Err(_) => state.left.push((memory, locked)),
            }
        }
    }
}
