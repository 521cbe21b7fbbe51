//! The set: what is locked, what was released, what may go, and the limits of it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use super::memory::{Memory, Way, whole_pages};
use super::pressure::{Pressure, Trigger, Watch};
use crate::error::{Error, Result};
use crate::sys::files;
use crate::sys::memory::{self, Span};

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
    memory: Arc<Memory>,
    /// Whether the kernel has it locked.
    locked: bool,
    phase: Phase,
}

impl Object {
    fn bytes(&self) -> u64 {
        self.memory.span.bytes as u64
    }

    fn is_released(&self) -> bool {
        self.locked && self.phase == Phase::Released
    }

    /// Its place in the order of being marked, if it is purgeable.
    fn mark(&self) -> Option<u64> {
        match self.phase {
            Phase::Purgeable(place) => Some(place),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<u64, Object>,
    /// The next object's name, and the next place in the order of being marked.
    next: u64,
    /// Bytes locked, in `objects` and in `left`.
    locked: u64,
    /// Bytes of those that were released.
    released: u64,
    purged: u64,
    /// What was dropped and could not be unmapped: a part of a larger mapping cannot, where there are as many mappings as
    /// there may be.
    left: Vec<Object>,
    /// Why there are no segments at all.
    no_segments: Option<Error>,
}

impl State {
    fn object(&self, name: u64) -> Result<&Object> {
        // Only dropping `Held` takes it away.
        let object = self.objects.get(&name);
        object.ok_or(Error::invalid("an object of another set"))
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Changes an object, and the sums with it.
    fn change(&mut self, name: u64, change: impl FnOnce(&mut Object)) {
        if let Some(mut object) = self.take(name) {
            change(&mut object);
            self.put(name, object);
        }
    }

    fn take(&mut self, name: u64) -> Option<Object> {
        let object = self.objects.remove(&name)?;
        if object.is_released() {
            self.released -= object.bytes();
        }
        if object.locked {
            self.locked -= object.bytes();
        }
        Some(object)
    }

    fn put(&mut self, name: u64, object: Object) {
        if object.is_released() {
            self.released += object.bytes();
        }
        if object.locked {
            self.locked += object.bytes();
        }
        self.objects.insert(name, object);
    }

    /// Tries again to unmap what could not be; whether any could.
    fn clear_left(&mut self) -> bool {
        let before = self.left.len();
        let locked = &mut self.locked;
        self.left.retain(|object| {
            let gone = object.memory.unmap().is_ok();
            if gone && object.locked {
                *locked -= object.bytes();
            }
            !gone
        });
        self.left.len() < before
    }

    /// Unlocks all that is released: parts of files that lie side by side in one call, in steps of `batch` bytes.
    fn flush(&mut self, batch: u64) -> Result<u64> {
        self.clear_left();
        let before = self.released;
        let (mut segments, mut files) = (Vec::new(), Vec::new());
        for (&name, object) in self.objects.iter().filter(|(_, one)| one.is_released()) {
            let memory = &object.memory;
            match memory.way() {
                Way::SysV => segments.push((name, Arc::clone(memory))),
                Way::Memfd => {
                    let Span { start, bytes } = memory.span;
                    files.push((start, start + bytes, name));
                }
            }
        }
        for (name, memory) in segments {
            memory.unlock()?;
            self.change(name, |object| object.locked = false);
        }
        files.sort_unstable();
        let step = usize::try_from(batch).unwrap_or(usize::MAX).max(LEAST_STEP);
        let step = step - step % crate::sys::page();
        for run in files.chunk_by(|one, next| one.1 == next.0) {
            let mut rest = run.iter().peekable();
            let end = run.last().map_or(0, |last| last.1);
            for from in (run[0].0..end).step_by(step) {
                let to = end.min(from.saturating_add(step));
                memory::unlock(Span::new(from, to - from))?;
                while let Some((.., name)) = rest.next_if(|(_, end, _)| *end <= to) {
                    self.change(*name, |object| object.locked = false);
                }
            }
        }
        Ok(before - self.released)
    }

    /// Has the longest purgeable object of those that are locked lose its contents and its lock; false: there is none. One
    /// that is not locked would lose its contents for nothing.
    fn purge_oldest(&mut self) -> Result<bool> {
        let locked = self.objects.iter().filter(|(_, object)| object.locked);
        let marked = locked.filter_map(|(name, object)| Some((object.mark()?, *name)));
        match marked.min() {
            Some((_, name)) => self.purge(name).map(|()| true),
            None => Ok(false),
        }
    }

    fn purge(&mut self, name: u64) -> Result<()> {
        let object = self.object(name)?;
        let (memory, locked) = (Arc::clone(&object.memory), object.locked);
        memory.empty()?;
        self.change(name, |object| object.phase = Phase::Lost);
        self.purged += 1;
        if locked {
            // Nothing of it is resident any more: the call moves no page.
            memory.unlock()?;
            self.change(name, |object| object.locked = false);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Shared {
    pid: Pid,
    options: Options,
    trigger: Option<Trigger>,
    state: Mutex<State>,
}

impl Shared {
    /// # Errors
    /// In a child of fork: another thread of the parent may have held the lock.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        if getpid() != self.pid {
            return Err(Error::invalid("a set that was made before fork"));
        }
        // Nothing panics while it is held but for a failed allocation, between two steps of which each leaves it whole.
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has what is released unlocked, then what is purgeable purged, oldest first, until `asked` bytes more may be locked.
    fn make_room(&self, state: &mut State, asked: u64) -> Result<()> {
        let budget = self.options.budget;
        let (limit, which) = match memory::memlock() {
            Some(limit) if limit < budget && memory::bound_by_memlock()? => (limit, MEMLOCK),
            _ => (budget, "the budget"),
        };
        let passes = Error::Limit {
            asked,
            limit,
            which,
        };
        if asked > limit {
            return Err(passes); // for which nothing need go
        }
        while state.locked > limit - asked {
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
        if state.released > 0 {
            return state.flush(self.options.batch).map(|_| true);
        }
        state.purge_oldest()
    }

    /// Locks `memory`, for which there is room by our own count. The kernel counts others' as well.
    fn lock(&self, state: &mut State, memory: &Memory) -> Result<()> {
        loop {
            let Err(error) = memory.lock() else {
                return Ok(());
            };
            let short = error.is(&[Errno::NOMEM, Errno::AGAIN]);
            if !short || !self.give_way(state)? {
                return Err(refused(error, memory, state.locked));
            }
        }
    }
}

const MEMLOCK: &str = "RLIMIT_MEMLOCK";

/// Turns the kernel's refusal to lock into the error that it means.
fn refused(error: Error, memory: &Memory, locked: u64) -> Error {
    let asked = memory.span.bytes as u64;
    let Some(limit) = memory::memlock().filter(|_| memory::bound_by_memlock().unwrap_or(true))
    else {
        return error;
    };
    // Where locking makes nothing resident there is no other reason for ENOMEM. Counted is what all processes of the user
    // have by SHM_LOCK, and what this one has by mlock(2), ours or not.
    let over = error.is(&[Errno::PERM]) && limit == 0
        || error.is(&[Errno::NOMEM, Errno::AGAIN])
            && (!memory.theirs || locked.saturating_add(asked) > limit);
    match over {
        true => Error::Limit {
            asked,
            limit,
            which: MEMLOCK,
        },
        false => error,
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
        Ok(Set::with(options, trigger))
    }

    pub(super) fn with(options: Options, trigger: Option<Trigger>) -> Set {
        Set {
            shared: Arc::new(Shared {
                pid: getpid(),
                options,
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
        self.make(length, |state, length| {
            if self.shared.options.way == Way::Memfd {
                return Ok((Memory::memfd(length)?, None));
            }
            let segment = match state.no_segments {
                Some(why) => Err(why),
                None => Memory::segment(length),
            };
            let why = match segment {
                Ok(memory) => return Ok((memory, None)),
                Err(why) => why,
            };
            if why.is(&[Errno::NOSYS]) {
                state.no_segments = Some(why); // not built, or not for us
            } else if !why.is(&[Errno::INVAL, Errno::NOSPC, Errno::PERM, Errno::ACCESS]) {
                return Err(why); // else none of this size, or no more of them
            }
            Ok((Memory::memfd(length)?, Some(why)))
        })
    }

    /// [`Set::take`] of memory that can be passed to other processes: [`Held::file`]. Its size is sealed.
    ///
    /// # Errors
    /// As [`Set::take`].
    pub fn take_shareable(&self, length: usize) -> Result<Held> {
        self.make(length, |_, length| Ok((Memory::memfd(length)?, None)))
    }

    /// Locks `length` bytes (rounded up to pages) from `offset` on of a memfd that is there already, through a mapping of
    /// the set's own. All of it becomes resident. Where it is sealed against writing it is mapped read-only
    /// ([`Held::is_writable`]). A process that may cut it short can make its users fault: ask for `F_SEAL_SHRINK`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is shorter than that; else as [`Set::take`].
    pub fn take_file(&self, fd: OwnedFd, offset: u64, length: usize) -> Result<Held> {
        self.make(length, |_, length| {
            Ok((Memory::file(fd, offset, length)?, None))
        })
    }

    fn make(
        &self,
        length: usize,
        memory: impl FnOnce(&mut State, usize) -> Result<(Memory, Option<Error>)>,
    ) -> Result<Held> {
        let length = whole_pages(length)?;
        let shared = &*self.shared;
        let mut state = shared.state()?;
        shared.make_room(&mut state, length as u64)?;
        let (memory, instead) = memory(&mut state, length)?;
        shared.lock(&mut state, &memory)?;
        let memory = Arc::new(memory);
        let name = state.next();
        let object = Object {
            memory: Arc::clone(&memory),
            locked: true,
            phase: Phase::Held,
        };
        state.put(name, object);
        Ok(Held {
            set: self.clone(),
            name,
            memory,
            instead,
        })
    }

    /// Unlocks all that was released; how many bytes.
    ///
    /// # Errors
    /// As munlock(2) and shmctl(2): `ENOMEM` where a mapping had to be split and there are as many as there may be. What
    /// was not unlocked waits on.
    pub fn flush(&self) -> Result<u64> {
        self.shared.state()?.flush(self.shared.options.batch)
    }

    /// Has all purgeable objects lose their contents, and unlocks all that was released: for when memory is short.
    ///
    /// # Errors
    /// In a child of fork alone; what fails of it is in [`Purged::error`].
    pub fn react(&self) -> Result<Purged> {
        let mut state = self.shared.state()?;
        let mut purged = Purged::default();
        let all = state.objects.iter();
        let mut marked: Vec<_> = all
            .filter_map(|(name, object)| Some((object.mark()?, *name, object.bytes())))
            .collect();
        marked.sort_unstable();
        for (_, name, bytes) in marked {
            let before = state.purged;
            let done = state.purge(name);
            if state.purged > before {
                purged.objects += 1;
                purged.bytes += bytes;
            }
            purged.error = purged.error.or(done.err());
        }
        match state.flush(self.shared.options.batch) {
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
        Some(self.shared.trigger.as_ref()?.file.as_fd())
    }

    /// What the trigger waits for: what was asked for, or the same share of a window that everybody may ask for.
    #[must_use]
    pub fn pressure(&self) -> Option<&Pressure> {
        Some(&self.shared.trigger.as_ref()?.pressure)
    }

    /// Starts a thread that reacts to pressure by itself, until what is returned is dropped. The trigger is its then:
    /// [`Set::poll_pressure`] finds nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] where no pressure is asked about; else as eventfd(2) and pthread_create(3).
    pub fn watch(&self) -> Result<Watch> {
        if self.shared.trigger.is_none() {
            return Err(Error::invalid(
                "the set was made without pressure to react to",
            ));
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
            } else if files::poll([(end, rustix::event::PollFlags::IN)], false)?[0].there {
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
        let purgeable = all.clone().filter(|one| one.locked && one.mark().is_some());
        Ok(Statistics {
            objects: state.objects.len() as u64,
            bytes: all.map(Object::bytes).sum(),
            locked: state.locked,
            released: state.released,
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
    memory: Arc<Memory>,
    instead: Option<Error>,
}

impl Held {
    /// Where it begins, at a page. Contents may change during a read (the memory is shared, and may be purged): make no
    /// reference into it while it is purgeable.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.memory.span.start)
    }

    /// Returns the same address, known not to be null.
    #[must_use]
    pub fn as_non_null(&self) -> NonNull<u8> {
        NonNull::new(self.as_ptr()).unwrap_or(NonNull::dangling()) // the kernel maps nothing at 0 without being told
    }

    /// Bytes, whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.span.bytes
    }

    /// Never: nothing is not held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// By which way it is locked.
    #[must_use]
    pub fn way(&self) -> Way {
        self.memory.way()
    }

    /// Why it is no segment, where it should have been one.
    #[must_use]
    pub fn instead(&self) -> Option<Error> {
        self.instead
    }

    /// Whether it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.memory.writable
    }

    /// A new descriptor of the memfd that it is, and where in that it begins; `None`: it is a segment.
    ///
    /// # Errors
    /// As dup(2): `EMFILE`.
    pub fn file(&self) -> Result<Option<(OwnedFd, u64)>> {
        drop(self.set.shared.state()?); // an error in a child of fork
        let Some((fd, offset)) = self.memory.file_behind() else {
            return Ok(None);
        };
        files::duplicate(fd).map(|fd| Some((fd, offset)))
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
            Phase::Released => return Err(Error::invalid("released already")),
            Phase::Lost => {
                return Err(Error::invalid(
                    "its contents are lost, and it is not locked",
                ));
            }
            Phase::Held | Phase::Purgeable(_) => {}
        }
        state.change(self.name, |object| object.phase = Phase::Released);
        if state.released > 0 && state.released >= shared.options.batch {
            state.flush(shared.options.batch)?;
        }
        Ok(())
    }

    /// Its contents may go when memory gets short. Until then it stays as it is, locked where it was.
    ///
    /// # Errors
    /// [`Error::Invalid`] where they cannot go: a memfd that may not be written.
    pub fn purgeable(&self) -> Result<()> {
        let mut state = self.set.shared.state()?;
        match state.object(self.name)?.phase {
            Phase::Purgeable(_) | Phase::Lost => return Ok(()),
            Phase::Held | Phase::Released => self.memory.check_can_be_emptied()?,
        }
        let place = state.next();
        state.change(self.name, |object| object.phase = Phase::Purgeable(place));
        Ok(())
    }

    /// Takes it again after [`Held::release`] or [`Held::purgeable`]: locked, with what was in it or, once, the word that
    /// that is lost. No system call where it is locked still.
    ///
    /// # Errors
    /// As [`Set::take`]; then it is as it was, and the next call reports a loss.
    pub fn keep(&self) -> Result<Contents> {
        let shared = &self.set.shared;
        let mut state = shared.state()?;
        let &Object { phase, locked, .. } = state.object(self.name)?;
        if !locked {
            // Nothing purges it for its own sake: it is not locked.
            shared.make_room(&mut state, self.memory.span.bytes as u64)?;
            shared.lock(&mut state, &self.memory)?;
        }
        state.change(self.name, |object| {
            (object.phase, object.locked) = (Phase::Held, true);
        });
        Ok(match phase {
            Phase::Lost => Contents::Lost,
            _ => Contents::Kept,
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // In a child of fork: its parent's.
        let Ok(mut state) = self.set.shared.state() else {
            return;
        };
        let Some(object) = state.take(self.name) else {
            return;
        };
        // Locked still, as far as anybody else may lock more.
        let locked = if object.locked { object.bytes() } else { 0 };
        state.locked += locked;
        drop(state);
        // Long for what is long, and nobody need wait for it.
        let gone = object.memory.unmap();
        if let Ok(mut state) = self.set.shared.state() {
            match gone {
                Ok(()) => state.locked -= locked,
                Err(_) => state.left.push(object),
            }
        }
    }
}
