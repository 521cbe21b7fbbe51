use super::Fake;
use crate::error::{Error, Result};
use crate::tasks::{ChildLimits, ChildOutcome, Tasks};

impl Tasks for Fake {
    fn cpus(&self) -> Result<Vec<u32>> {
        Ok(vec![0])
    }

    fn set_cpus(&self, cpus: &[u32]) -> Result<()> {
        if cpus.contains(&0) {
            return Ok(());
        }
        let none = std::io::Error::from_raw_os_error(libc::EINVAL);
        Err(Error::call("sched_setaffinity", format!("{cpus:?}"), none))
    }

    /// Runs `body` here: there is only one process.
    fn run_child(
        &self,
        _limits: &ChildLimits,
        body: &mut dyn FnMut() -> Vec<u8>,
    ) -> Result<ChildOutcome> {
        Ok(ChildOutcome {
            output: body(),
            peak_resident: 0,
        })
    }

    fn uid(&self) -> u32 {
        0
    }

    fn pid(&self) -> u32 {
        1
    }
}
