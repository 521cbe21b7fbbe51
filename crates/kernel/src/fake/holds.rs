use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

use super::files::Node;
use super::{Fake, State};
use crate::error::{Error, Result};
use crate::holds::{Held, Holds, Part, Segment, Way, no_mapping, segment_refusal, segment_refused};
use crate::memory::{MapKind, MapRequest, Mapping, Memory};

/// What the fake charges, ns a page: the figures measured on Linux 6.18 with swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldCosts {
    /// To take.
    pub take: u64,
    /// To release.
    pub release: u64,
    /// For the first pass of `MADV_PAGEOUT`.
    pub first_pass: u64,
    /// For each further pass.
    pub later_pass: u64,
}

impl HoldCosts {
    /// Costs of memory that nothing holds: it is written to swap.
    pub const PLAIN: HoldCosts = HoldCosts {
        take: 0,
        release: 0,
        first_pass: 2_946,
        later_pass: 2,
    };

    /// Returns the costs of a way. `SHM_LOCK` costs 4 us to take, however many the pages.
    #[must_use]
    pub const fn of(way: Way) -> HoldCosts {
        let (take, release, first_pass, later_pass) = match way {
            Way::Mlock => (341, 182, 0, 0),
            Way::ShmLock => (0, 174, 375, 272),
            Way::Vmsplice => (80, 60, 800, 800),
            Way::IoUring => (100, 90, 780, 780),
            Way::Udmabuf => (90, 50, 790, 790),
        };
        HoldCosts {
            take,
            release,
            first_pass,
            later_pass,
        }
    }
}

/// Held ranges, and the ways that the fake kernel refuses.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    refused: BTreeMap<Way, i32>,
    /// Bytes that may be locked; unlimited where absent.
    memlock: Option<u64>,
    charged: u64,
    /// By the start of the mapping: how, and how many passes of reclaim it has seen.
    held: BTreeMap<u64, (Way, u32)>,
    /// Passes that memory held by nothing has seen.
    passed: BTreeMap<u64, u32>,
}

impl State {
    /// Adds to a line of `/proc/vmstat`, where the machine has that file and line.
    fn count(&mut self, name: &str, change: i64) {
        let Some(Node::File(content)) = self.files.get_mut(Path::new("/proc/vmstat")) else {
            return;
        };
        let text = String::from_utf8_lossy(content);
        let lines = text.lines().map(|line| match line.split_once(' ') {
            Some((at, value)) if at == name => {
                let value: i64 = value.trim().parse().unwrap_or(0);
                format!("{name} {}\n", value + change)
            }
            _ => format!("{line}\n"),
        });
        *content = lines.collect::<String>().into_bytes();
    }

    /// One pass of `MADV_PAGEOUT` over what starts there: what it costs.
    pub(super) fn page_out(&mut self, range: AddressRange, pages: u64) -> Result<u64> {
        let (costs, seen) = match self.holds.held.get_mut(&range.start) {
            Some((Way::Mlock, _)) => {
                return Err(Error::refusal(
                    "madvise(PAGEOUT)",
                    range.length(),
                    libc::EINVAL,
                ));
            }
            Some((way, seen)) => {
                *seen += 1;
                (HoldCosts::of(*way), (*seen, Some(*way)))
            }
            None => {
                let seen = self.holds.passed.entry(range.start).or_default();
                *seen += 1;
                (HoldCosts::PLAIN, (*seen, None))
            }
        };
        if seen == (1, Some(Way::ShmLock)) {
            self.count("nr_unevictable", pages.cast_signed());
        }
        Ok(pages
            * if seen.0 == 1 {
                costs.first_pass
            } else {
                costs.later_pass
            })
    }
}

impl Fake {
    /// With a kernel that answers this way to hold memory with `errno`.
    #[must_use]
    pub fn refusing(self, way: Way, errno: i32) -> Fake {
        self.state().holds.refused.insert(way, errno);
        self
    }

    /// With this `RLIMIT_MEMLOCK`.
    #[must_use]
    pub fn with_memlock_limit(self, limit: Bytes) -> Fake {
        self.state().holds.memlock = Some(limit.0);
        let line = format!("Max locked memory {:>12} {0:>12} bytes\n", limit.0);
        self.with_file("/proc/self/limits", line)
    }

    fn hold_by<'a>(
        &'a self,
        way: Way,
        call: &'static str,
        mapping: &'a Mapping,
        length: Bytes,
    ) -> Result<Held<'a>> {
        let range = mapping.range();
        let fail = |errno| Error::refusal(call, length, errno);
        let mut state = self.state();
        match (way, state.holds.refused.get(&way)) {
            (Way::IoUring, Some(&(libc::ENOSYS | libc::EPERM))) => {
                return Err(Error::unsupported("io_uring", "this kernel refuses it"));
            }
            (Way::Udmabuf, Some(&libc::ENOENT)) => {
                return Err(Error::unsupported("udmabuf", "there is no /dev/udmabuf"));
            }
            (_, Some(&errno)) => return Err(fail(errno)),
            (_, None) => {}
        }
        if let (true, Some(limit)) = (way.is_charged(), state.holds.memlock) {
            if state.holds.charged + length.0 > limit {
                let none_at_all = limit == 0 && way.locks();
                return Err(fail(if none_at_all {
                    libc::EPERM
                } else {
                    libc::ENOMEM
                }));
            }
            state.holds.charged += length.0;
        }
        let pages = length.pages(self.page_size()).0;
        let costs = HoldCosts::of(way);
        state.now_ns += 4_000 + costs.take * pages;
        state.holds.held.insert(range.start, (way, 0));
        if way == Way::Mlock {
            state.count("nr_unevictable", pages.cast_signed());
        }
        drop(state);
        Ok(Held::new(way, length, move || {
            let mut state = self.state();
            state.now_ns += costs.release * pages;
            if way.is_charged() {
                state.holds.charged = state.holds.charged.saturating_sub(length.0);
            }
            let culled = state.holds.held.remove(&range.start);
            if matches!(culled, Some((Way::Mlock, _) | (Way::ShmLock, 1..))) {
                state.count("nr_unevictable", -pages.cast_signed());
            }
            Ok(())
        }))
    }
}

impl Holds for Fake {
    fn hold<'a>(&'a self, mapping: &'a Mapping, way: Way) -> Result<Held<'a>> {
        let call = match way {
            Way::Mlock => "mlock",
            Way::Vmsplice => "vmsplice",
            Way::IoUring => "io_uring_register(BUFFERS)",
            Way::Udmabuf => "UDMABUF_CREATE",
            Way::ShmLock => return Err(no_mapping()),
        };
        self.hold_by(way, call, mapping, mapping.range().length())
    }

    /// Within `/proc/sys/kernel/shm{max,all,mni}` and beside what `/proc/sysvipc/shm` lists, where the machine has
    /// these files. Its own segments are not listed.
    fn segment(&self, length: Bytes) -> Result<Segment> {
        let page = self.page_size();
        if let Some(errno) = segment_refusal(self, length, page) {
            let error = io::Error::from_raw_os_error(errno);
            return Err(segment_refused(self, length, page, error));
        }
        let mapping = self.map(&MapRequest::writable(length, MapKind::AnonymousAlone))?;
        Ok(Segment { mapping, id: 1 })
    }

    fn shm_lock<'a>(&'a self, segment: &'a Segment) -> Result<Held<'a>> {
        let mapping = segment.mapping();
        let length = mapping.range().length();
        self.hold_by(Way::ShmLock, "shmctl(SHM_LOCK)", mapping, length)
    }

    fn vmsplice_parts<'a>(&'a self, mapping: &'a Mapping, parts: &[Part]) -> Result<Held<'a>> {
        let length = parts.iter().map(|part| part.length).sum();
        self.hold_by(Way::Vmsplice, "vmsplice", mapping, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn mapping(fake: &Fake) -> Mapping {
        let request = MapRequest::writable(Bytes::kib(40), MapKind::Anonymous);
        fake.map(&request).unwrap()
    }

    #[test]
    fn each_refusal_is_the_one_asked_for() {
        for &way in Way::ALL {
            let fake = Fake::default().refusing(way, libc::EIO);
            let memory = mapping(&fake);
            let segment = fake.segment(Bytes::kib(40)).unwrap();
            let held = match way {
                Way::ShmLock => fake.shm_lock(&segment),
                way => fake.hold(&memory, way),
            };
            assert_eq!(held.unwrap_err().errno(), Some(libc::EIO), "{way}");
        }
    }

    #[test]
    fn the_limit_is_given_back_with_the_hold() {
        let fake = Fake::default().with_memlock_limit(Bytes::kib(40));
        let (one, two) = (mapping(&fake), mapping(&fake));
        let held = fake.hold(&one, Way::Mlock).unwrap();
        assert_eq!(
            fake.hold(&two, Way::Mlock).unwrap_err().errno(),
            Some(libc::ENOMEM)
        );
        held.release().unwrap();
        let before = fake.now();
        drop(fake.hold(&two, Way::Mlock).unwrap());
        assert_eq!((fake.now() - before).0, 4_000 + 10 * (341 + 182));
    }
}
