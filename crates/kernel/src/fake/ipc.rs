use super::Fake;
use crate::error::{Error, Result};
use crate::ipc::{Endpoint, Ipc};

impl Ipc for Fake {
    /// Refused: who waits here waits for ever, since there is only one process.
    fn stream_pair(&self) -> Result<(Endpoint, Endpoint)> {
        Err(Error::unsupported(
            "a pair of sockets",
            "the fake machine has one process, which would wait for itself",
        ))
    }

    fn allow_files(&self, _count: u64) -> Result<()> {
        Ok(())
    }

    fn most_files(&self) -> Option<u64> {
        None
    }
}
