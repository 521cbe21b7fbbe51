//! Unix stream sockets between load children, and the ways to wait for them.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{FdSetElement, PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;

pub use stopgap_events::roundtrip::Wait;

use crate::error::{Error, Result};

/// Sockets.
pub trait Ipc {
    /// Two Unix stream sockets, connected to one another, blocking.
    ///
    /// # Errors
    /// As socketpair(2): `EMFILE` beyond the limit of open files.
    fn stream_pair(&self) -> Result<(Endpoint, Endpoint)>;

    /// Raises this process's limit of open files to at least `count`, where it is lower.
    ///
    /// # Errors
    /// As setrlimit(2): `EPERM` beyond the hard limit.
    fn allow_files(&self, count: u64) -> Result<()>;

    /// How many open files [`Ipc::allow_files`] can allow; `None`: as many as one likes.
    fn most_files(&self) -> Option<u64>;
}

/// One end of a pair of sockets. It can only come from [`Ipc::stream_pair`].
#[derive(Debug)]
pub struct Endpoint {
    fd: OwnedFd,
}

impl Endpoint {
    pub(crate) fn new(fd: OwnedFd) -> Endpoint {
        Endpoint { fd }
    }

    /// Reads what is there, at most `buffer` full; waits in read(2) where there is nothing.
    /// 0: the other end is closed.
    ///
    /// # Errors
    /// As read(2); a signal does not count.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut *buffer)) {
            // The other end was closed with something of ours unread.
            Err(Errno::CONNRESET) => Ok(0),
            result => result.map_err(|e| Error::call("read", "socket", e)),
        }
    }

    /// Writes all of `bytes`, in one write(2) unless a signal cuts it.
    ///
    /// # Errors
    /// As write(2): `EPIPE` where the other end is closed.
    pub fn write_all(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.fd, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::call("write", "socket", e)),
            }
        }
        Ok(())
    }

    /// Writes `message` `count` times in one writev(2), unless a signal cuts it; what is beyond
    /// [`MOST_GATHERED`] goes by write(2).
    ///
    /// # Errors
    /// As writev(2): `EPIPE` where the other end is closed.
    pub fn write_gathered(&self, message: &[u8], count: usize) -> Result<()> {
        let slices = vec![IoSlice::new(message); count];
        let written = rustix::io::retry_on_intr(|| rustix::io::writev(&self.fd, &slices))
            .map_err(|e| Error::call("writev", "socket", e))?;
        let left = message.len() * count - written;
        if left == 0 {
            return Ok(());
        }
        let rest = message.repeat(count);
        self.write_all(&rest[written..])
    }
}

/// Buffers that one writev(2) takes (`UIO_MAXIOV`).
pub const MOST_GATHERED: usize = 1024;

/// Descriptors that select(2) takes with the C library's `fd_set` (`FD_SETSIZE`); the kernel
/// itself takes more.
pub const MOST_SELECTED: usize = 1024;

/// Waits for several sockets in one way.
pub struct Waiter<'e>(Inner<'e>);

enum Inner<'e> {
    Select {
        /// Borrowed, so that they stay open.
        endpoints: Vec<&'e Endpoint>,
        all: Vec<FdSetElement>,
        ready: Vec<FdSetElement>,
    },
    Poll(Vec<PollFd<'e>>),
    Epoll {
        epoll: OwnedFd,
        ready: Vec<epoll::Event>,
    },
}

impl<'e> Waiter<'e> {
    /// Waits for `endpoints` in the way `wait`.
    ///
    /// # Errors
    /// As epoll_create1(2) and epoll_ctl(2).
    pub fn new(wait: Wait, endpoints: &[&'e Endpoint]) -> Result<Waiter<'e>> {
        Ok(Waiter(match wait {
            Wait::Select => {
                let bound = endpoints
                    .iter()
                    .map(|endpoint| endpoint.fd.as_raw_fd() + 1)
                    .max()
                    .unwrap_or(0);
                let elements = rustix::event::fd_set_num_elements(endpoints.len(), bound);
                let mut all = vec![FdSetElement::default(); elements];
                for endpoint in endpoints {
                    rustix::event::fd_set_insert(&mut all, endpoint.fd.as_raw_fd());
                }
                Inner::Select {
                    endpoints: endpoints.to_vec(),
                    ready: all.clone(),
                    all,
                }
            }
            Wait::Poll => Inner::Poll(
                endpoints
                    .iter()
                    .map(|endpoint| PollFd::from_borrowed_fd(endpoint.fd.as_fd(), PollFlags::IN))
                    .collect(),
            ),
            Wait::Epoll => {
                let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
                    .map_err(|e| Error::call("epoll_create1", "", e))?;
                for (index, endpoint) in endpoints.iter().enumerate() {
                    let data = epoll::EventData::new_u64(index as u64);
                    epoll::add(&epoll, &endpoint.fd, data, epoll::EventFlags::IN)
                        .map_err(|e| Error::call("epoll_ctl", "socket", e))?;
                }
                Inner::Epoll {
                    epoll,
                    ready: Vec::with_capacity(64),
                }
            }
        }))
    }

    /// Waits until one of them can be read or is closed at its other end. Gives how many; 0
    /// where a signal ended the wait.
    ///
    /// # Errors
    /// As select(2), poll(2) and epoll_wait(2).
    pub fn wait(&mut self) -> Result<usize> {
        let (call, result) = match &mut self.0 {
            Inner::Select {
                endpoints,
                all,
                ready,
            } => {
                ready.copy_from_slice(all);
                let bound = rustix::event::fd_set_bound(ready);
                debug_assert!(!endpoints.is_empty());
                // SAFETY: the set holds the descriptors of `endpoints` alone, which are
                // borrowed and so open, and has room for `bound` bits.
                let result = unsafe { rustix::event::select(bound, Some(ready), None, None, None) };
                ("select", result.map(i32::cast_unsigned).map(|n| n as usize))
            }
            Inner::Poll(fds) => ("poll", poll(fds, None)),
            Inner::Epoll { epoll, ready } => {
                ready.clear();
                let result = epoll::wait(epoll, rustix::buffer::spare_capacity(ready), None);
                ("epoll_wait", result)
            }
        };
        match result {
            Err(Errno::INTR) => Ok(0),
            result => result.map_err(|e| Error::call(call, "sockets", e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;

    #[test]
    fn every_way_of_waiting_finds_the_one_that_can_be_read() {
        for &wait in Wait::ALL {
            let pairs: Vec<_> = (0..50).map(|_| Linux.stream_pair().unwrap()).collect();
            let ours: Vec<&Endpoint> = pairs.iter().map(|(ours, _)| ours).collect();
            let mut waiter = Waiter::new(wait, &ours).unwrap();
            pairs[49].1.write_all(b"now").unwrap();
            assert_eq!(waiter.wait().unwrap(), 1, "{wait}");
            let mut buffer = [0; 8];
            assert_eq!(pairs[49].0.read(&mut buffer).unwrap(), 3);
            // Twice, since select(2) overwrites its set.
            pairs[7].1.write_all(b"again").unwrap();
            pairs[8].1.write_all(b"again").unwrap();
            assert_eq!(waiter.wait().unwrap(), 2, "{wait}");
        }
    }

    #[test]
    fn the_other_ends_end_is_seen() {
        for &wait in Wait::ALL {
            let (ours, theirs) = Linux.stream_pair().unwrap();
            ours.write_all(b"never read").unwrap();
            drop(theirs);
            assert_eq!(Waiter::new(wait, &[&ours]).unwrap().wait().unwrap(), 1);
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0);
            let error = ours.write_all(b"more").unwrap_err();
            assert_eq!(error.errno(), Some(libc::EPIPE));
        }
    }

    #[test]
    fn what_was_gathered_comes_in_order() {
        let (ours, theirs) = Linux.stream_pair().unwrap();
        ours.write_gathered(b"abc", 4).unwrap();
        let mut buffer = [0; 32];
        let count = theirs.read(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"abcabcabcabc");
        ours.write_gathered(b"a", MOST_GATHERED + 5).unwrap();
        drop(ours);
        let mut count = 0;
        loop {
            match theirs.read(&mut [0; 4096]).unwrap() {
                0 => break,
                more => count += more,
            }
        }
        assert_eq!(count, MOST_GATHERED + 5);
    }
}
