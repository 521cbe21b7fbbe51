//! Work that waits for the disk, in a thread of its own: where the disk hangs, the rings of the kernel are drained all the same.

use std::io;
use std::thread::{self, JoinHandle};

/// One piece of work at a time.
pub(super) struct Aside<T> {
    work: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Aside<T> {
    pub(super) fn new() -> Aside<T> {
        Aside { work: None }
    }

    /// Whether there is work whose result nobody has taken.
    pub(super) fn busy(&self) -> bool {
        self.work.is_some()
    }

    /// Starts a piece of work. There must be none.
    ///
    /// # Errors
    /// As pthread_create(3).
    pub(super) fn start(&mut self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<()> {
        debug_assert!(!self.busy());
        self.work = Some(thread::Builder::new().spawn(work)?);
        Ok(())
    }

    /// Returns the result of work that is done, once.
    pub(super) fn done(&mut self) -> Option<T> {
        let work = self.work.take_if(|work| work.is_finished())?;
        match work.join() {
            Ok(result) => Some(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_starts_it_does_not_wait_for_it() {
        let mut aside = Aside::new();
        let (go, gone) = channel();
        aside.start(move || gone.recv().unwrap()).unwrap();
        assert!(aside.busy());
        assert_eq!(aside.done(), None);
        go.send(7).unwrap();
        let result = std::iter::repeat_with(|| {
            std::thread::yield_now();
            aside.done()
        });
        assert_eq!(result.flatten().next(), Some(7));
        assert!(!aside.busy());
        assert_eq!(aside.done(), None);
    }
}
