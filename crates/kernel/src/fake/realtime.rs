use super::Fake;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::realtime::{Awake, CPU_LATENCY, Realtime};

impl Fake {
    /// A user without privilege: neither real-time priority nor locked memory.
    #[must_use]
    pub fn ordinary(self) -> Fake {
        self.state().ordinary = true;
        self
    }

    fn permitted(&self, call: &'static str, target: String) -> Result<()> {
        if self.state().ordinary {
            return Err(Error::refusal(call, target, libc::EPERM));
        }
        Ok(())
    }
}

impl Realtime for Fake {
    fn set_fifo(&self, priority: u32) -> Result<()> {
        self.permitted("sched_setscheduler", format!("SCHED_FIFO {priority}"))
    }

    fn lock_memory(&self) -> Result<()> {
        self.permitted("mlockall", "this process".to_owned())
    }

    /// Where the file is.
    fn stay_awake(&self) -> Result<Awake> {
        self.write(CPU_LATENCY.as_ref(), &0i32.to_ne_bytes())?;
        Ok(Awake { _file: None })
    }
}
