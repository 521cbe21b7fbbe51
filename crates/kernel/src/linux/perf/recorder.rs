//! The records of processes and all that they fork, in one ring a CPU.
//!
//! ```text
//!            CPU 0              CPU 1
//! our own    dummy + ring       dummy + ring      nothing is recorded of us: these hold the rings
//! thread 7   dummy  cpu-clock   dummy  cpu-clock  inherit; output redirected to the CPU's ring
//! thread 9   dummy  cpu-clock   dummy  cpu-clock
//! ```
//!
//! The kernel does not map an event that is inherited and follows its thread over CPUs
//! (`perf_mmap()` in `kernel/events/core.c`): hence one event a thread *and* CPU. The rings belong to
//! events of our own thread because one of a thread that has ended would wake its reader for ever.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use stopgap_events::units::{Bytes, Nanos};

use super::super::wait_for;
use super::attr::Ring;
use super::attr::{
    Attr, COMM, COMM_EXEC, CONTEXT_SWITCH, INHERIT, MMAP, MMAP2, TASK, enable, send_to,
};
use crate::error::{Error, Result};
use crate::files::{Files, read_text};
use crate::memory::Memory;
use crate::switches::open_refused;

/// Events to record besides forks, ends, names and execs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Every switch to and from a CPU (Linux 4.3; whether pre-empted since 4.17).
    pub switches: bool,
    /// A sample with its call chain after so much time on a CPU, and mappings of programs: from
    /// 10 microseconds.
    pub samples: Option<Nanos>,
}

/// Records of threads and what they fork. Each says who (thread and process), when
/// (`CLOCK_MONOTONIC`) and on which CPU: `sample_type` is TID, TIME and CPU, of samples CALLCHAIN
/// too, and all have their `sample_id`.
#[derive(Debug)]
pub struct Recorder {
    wanted: Wanted,
    rings: Vec<CpuRing>,
    events: Vec<Event>,
    /// Why time in the kernel is not sampled.
    kernel_refused: Option<String>,
    /// Whether this kernel says by read(2) what was lost (Linux 6.0).
    counts_lost: bool,
    runs: bool,
}

#[derive(Debug)]
struct CpuRing {
    cpu: u32,
    ring: Ring,
}

#[derive(Debug)]
struct Event {
    /// Index of its ring.
    ring: usize,
    fd: OwnedFd,
}

impl Recorder {
    /// Makes a ring of at most `ring` for each CPU that is online; where the limit of locked memory
    /// allows less, it is a half, a quarter and so on. Nothing is recorded yet.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where perf is refused or no ring is allowed, with what would help.
    pub fn open<S: Files + Memory + ?Sized>(
        system: &S,
        wanted: Wanted,
        ring: Bytes,
    ) -> Result<Recorder> {
        let page = system.page_size().0 as usize;
        let most = usize::try_from(ring.0).unwrap_or(usize::MAX / 4);
        let mut rings = Vec::new();
        for cpu in online(system)? {
            if let Some(ring) = make_ring(system, cpu, page, most)? {
                rings.push(CpuRing { cpu, ring });
            }
        }
        Ok(Recorder {
            wanted,
            rings,
            events: Vec::new(),
            kernel_refused: None,
            counts_lost: true,
            runs: false,
        })
    }

    /// CPUs that have a ring.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.rings.iter().map(|ring| ring.cpu)
    }

    /// Records the thread `tid` and what it will fork; `false` where it has ended. After
    /// [`Recorder::start`] at once. Two descriptors a CPU at most.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where it may not be recorded; `EMFILE` where descriptors are short
    /// (`ulimit -n`).
    pub fn follow<S: Files + ?Sized>(&mut self, system: &S, tid: u32) -> Result<bool> {
        let mut tells = INHERIT | TASK | COMM | COMM_EXEC;
        if self.wanted.switches {
            tells |= CONTEXT_SWITCH;
        }
        if self.wanted.samples.is_some() {
            tells |= MMAP | MMAP2;
        }
        for index in 0..self.rings.len() {
            if !self.add(system, Attr::dummy(tells), tid, index)? {
                return Ok(false);
            }
            if let Some(period) = self.wanted.samples
                && !self.add_sampling(system, period, tid, index)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The sampling event, with the kernel where that is allowed.
    fn add_sampling<S: Files + ?Sized>(
        &mut self,
        system: &S,
        period: Nanos,
        tid: u32,
        index: usize,
    ) -> Result<bool> {
        let attr = Attr::cpu_clock(period.0, INHERIT);
        if self.kernel_refused.is_none() {
            match self.add(system, attr, tid, index) {
                Err(Error::Unsupported { advice, .. }) => self.kernel_refused = Some(advice),
                other => return other,
            }
        }
        self.add(system, attr.without_kernel(), tid, index)
    }

    /// Opens an event for a thread on a ring's CPU; `false` where the thread has ended.
    fn add<S: Files + ?Sized>(
        &mut self,
        system: &S,
        attr: Attr,
        tid: u32,
        index: usize,
    ) -> Result<bool> {
        let CpuRing { cpu, ring } = &self.rings[index];
        let open = |counts| {
            let attr = attr.identified().counts_lost(counts);
            attr.open(tid, Some(*cpu))
        };
        let mut opened = open(self.counts_lost);
        if matches!(opened, Err(Errno::INVAL)) && self.counts_lost {
            self.counts_lost = false;
            opened = open(false);
        }
        let fd = match opened {
            Err(Errno::SRCH) => return Ok(false),
            Err(Errno::NODEV) => return Ok(true), // the CPU went offline: nobody runs there
            other => other.map_err(|errno| refused(system, errno))?,
        };
        let failed = |e| Error::call("ioctl", format!("perf events of thread {tid}"), e);
        send_to(&fd, ring.event()).map_err(failed)?;
        if self.runs {
            enable(&fd, true).map_err(failed)?;
        }
        self.events.push(Event { ring: index, fd });
        Ok(true)
    }

    /// Why time that is spent in the kernel has no samples; `None` where it has, or none are wanted.
    #[must_use]
    pub fn kernel_refused(&self) -> Option<&str> {
        self.kernel_refused.as_deref()
    }

    /// From now on it is recorded, of what was forked meanwhile too.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn start(&mut self) -> Result<()> {
        self.runs = true;
        self.switch(true)
    }

    /// From now on it is not.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn stop(&mut self) -> Result<()> {
        self.runs = false;
        self.switch(false)
    }

    fn switch(&self, on: bool) -> Result<()> {
        for event in &self.events {
            enable(&event.fd, on).map_err(|e| Error::call("ioctl", "perf events", e))?;
        }
        Ok(())
    }

    /// Gives the records that have come to `consume`, of one CPU after the other, whole and in order,
    /// and makes room for others.
    ///
    /// # Errors
    /// The first one of `consume`.
    pub fn drain<E>(
        &mut self,
        mut consume: impl FnMut(u32, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for CpuRing { cpu, ring } in &mut self.rings {
            let records = ring.drain();
            if !records.is_empty() {
                consume(*cpu, records)?;
            }
        }
        Ok(())
    }

    /// Records that a full ring had no room for, by CPU; `None` where this kernel does not count
    /// them (before Linux 6.0): `PERF_RECORD_LOST` in the ring then speaks of all but the last.
    #[must_use]
    pub fn lost(&self) -> Option<Vec<(u32, u64)>> {
        let mut lost: Vec<(u32, u64)> = self.cpus().map(|cpu| (cpu, 0)).collect();
        for event in &self.events {
            let mut value = [0; 16];
            // The count, which means nothing here, then what was lost.
            let read = rustix::io::read(&event.fd, &mut value).ok()?;
            let count = value[8..].first_chunk().filter(|_| read == value.len())?;
            let count = u64::from_ne_bytes(*count);
            let sum = &mut lost[event.ring].1;
            *sum = sum.saturating_add(count);
        }
        Some(lost)
    }

    /// Waits until a ring is a third full, `end` becomes readable (a process that ends) or the time is
    /// over; a signal may end it early.
    pub fn wait(&self, end: Option<BorrowedFd<'_>>, longest: Nanos) {
        let rings = self.rings.iter().map(|ring| ring.ring.event().as_fd());
        // Whatever ends the wait, the caller looks at everything again.
        wait_for(rings.chain(end).map(|fd| (fd, PollFlags::IN)), longest);
    }
}

/// A ring of at most `most` bytes for `cpu`; `None` where that has gone offline.
fn make_ring<S: Files + ?Sized>(
    system: &S,
    cpu: u32,
    page: usize,
    most: usize,
) -> Result<Option<Ring>> {
    let mut size = 1 << most.max(page).ilog2();
    loop {
        let third = u32::try_from(size / 3).unwrap_or(u32::MAX);
        let attr = Attr::dummy(0).identified().wakes_at(third);
        let event = match attr.open(0, Some(cpu)) {
            Err(Errno::NODEV) => return Ok(None),
            other => other.map_err(|errno| refused(system, errno))?,
        };
        match Ring::map(event, page, size) {
            Ok(ring) => return Ok(Some(ring)),
            Err(Errno::PERM | Errno::NOMEM) if size > page => size /= 2,
            Err(Errno::PERM | Errno::NOMEM) => return Err(Ring::no_room(page, size)),
            Err(error) => return Err(Error::call("mmap", "a ring of perf", error)),
        }
    }
}

/// CPUs on which something may run: `0-3,6`.
fn online<F: Files + ?Sized>(files: &F) -> Result<Vec<u32>> {
    const FILE: &str = "/sys/devices/system/cpu/online";
    let text = read_text(files, FILE)?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let ranges: Option<Vec<std::ops::RangeInclusive<u32>>> =
        text.trim().split(',').map(range).collect();
    let ranges = ranges.ok_or_else(|| Error::parse(FILE, format!("no list of CPUs: '{text}'")))?;
    Ok(ranges.into_iter().flatten().collect())
}

/// Returns the error of a perf_event_open(2) that failed, with what there is to do.
fn refused<F: Files + ?Sized>(files: &F, errno: Errno) -> Error {
    let up_to = "a user's own processes are seen up to 2, their time in the kernel up to 1; CAP_PERFMON may";
    open_refused(files, errno.raw_os_error(), "records of perf", up_to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;
    use crate::fake::Fake;
    use crate::linux::Held;
    use stopgap_testing::{Skip, skip};

    #[test]
    fn cpus_that_are_online_are_read() {
        let online_in = |text: &str| {
            let fake = Fake::default();
            fake.put("/sys/devices/system/cpu/online", text);
            online(&fake)
        };
        assert_eq!(online_in("0-2,5\n").unwrap(), [0, 1, 2, 5]);
        assert_eq!(online_in("0").unwrap(), [0]);
        let error = online_in("0-x").unwrap_err();
        assert!(error.to_string().contains("0-x"), "{error}");
    }

    /// Types of records and their number (`PERF_RECORD_*`).
    fn types(recorder: &mut Recorder, counts: &mut [u64; 32]) {
        let drained: std::result::Result<(), ()> = recorder.drain(|_, mut records| {
            while let Some(header) = records.first_chunk::<8>() {
                counts[usize::from(header[0])] += 1;
                let length = u16::from_ne_bytes([header[6], header[7]]);
                records = &records[usize::from(length)..];
            }
            assert!(records.is_empty(), "records are whole");
            Ok(())
        });
        drained.unwrap();
    }

    /// A shell that forks twice is followed; nothing is recorded before the start.
    #[test]
    fn what_is_forked_is_recorded_too() {
        const COMM: usize = 3;
        const EXIT: usize = 4;
        const FORK: usize = 7;
        const SWITCH: usize = 14;
        let wanted = Wanted {
            switches: true,
            samples: None,
        };
        let mut recorder = match Recorder::open(&Linux, wanted, Bytes::kib(64)) {
            Ok(recorder) => recorder,
            Err(error) => return skip(&Skip::machine(error)),
        };
        let words = ["sh", "-c", "sleep 0.01; sleep 0.01; :"].map(Into::into);
        let held = Held::start(&words).unwrap();
        assert!(recorder.follow(&Linux, held.pid()).unwrap());
        let mut counts = [0; 32];
        types(&mut recorder, &mut counts);
        assert_eq!(counts, [0; 32]);
        recorder.start().unwrap();
        let child = held.release().unwrap();
        while child.ended().unwrap().is_none() {
            recorder.wait(Some(child.watched().end()), Nanos::millis(50));
            types(&mut recorder, &mut counts);
        }
        recorder.stop().unwrap();
        types(&mut recorder, &mut counts);
        println!("{counts:?} {:?}", recorder.lost());
        assert_eq!(counts[FORK], 2);
        assert_eq!(counts[EXIT], 3);
        assert_eq!(counts[COMM], 3, "an exec each");
        assert!(counts[SWITCH] >= 10, "to and from a CPU");
        let lost = recorder.lost().unwrap_or_default();
        assert!(lost.iter().all(|&(_, lost)| lost == 0));
        assert!(!recorder.follow(&Linux, i32::MAX.cast_unsigned()).unwrap());
    }

    #[test]
    fn what_found_no_room_is_counted() {
        let wanted = Wanted {
            switches: true,
            samples: None,
        };
        let mut recorder = match Recorder::open(&Linux, wanted, Bytes(1)) {
            Ok(recorder) => recorder,
            Err(error) => return skip(&Skip::machine(error)),
        };
        let words = [
            "sh",
            "-c",
            "i=0; while [ $i -lt 150 ]; do sleep 0; i=$((i+1)); done",
        ];
        let held = Held::start(&words.map(Into::into)).unwrap();
        recorder.follow(&Linux, held.pid()).unwrap();
        recorder.start().unwrap();
        let child = held.release().unwrap();
        while child.ended().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let Some(lost) = recorder.lost() else { return };
        let lost: u64 = lost.iter().map(|&(_, lost)| lost).sum();
        // A page on each CPU holds at most 128 records; 150 children make five each and more.
        assert!(lost > 0, "{lost}");
    }

    #[test]
    fn a_kernel_that_refuses_is_named() {
        // The filter lasts as long as its thread.
        std::thread::spawn(|| {
            crate::fake::refuse_switch_records().unwrap();
            let error = Recorder::open(&Linux, Wanted::default(), Bytes::kib(64)).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
        })
        .join()
        .unwrap();
    }
}
