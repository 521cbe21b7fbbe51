use std::io;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::write;

use super::Linux;
use crate::error::{Error, Result};
use crate::realtime::{Awake, CPU_LATENCY, Realtime};

impl Realtime for Linux {
    fn set_fifo(&self, priority: u32) -> Result<()> {
        let parameters = libc::sched_param {
            sched_priority: priority.cast_signed(),
        };
        // SAFETY: the parameters outlive the call; 0 is the calling thread.
        let status =
            unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
        if status == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        Err(Error::call(
            "sched_setscheduler",
            format!("SCHED_FIFO {priority}"),
            error,
        ))
    }

    fn lock_memory(&self) -> Result<()> {
        // SAFETY: mlockall takes flags and changes no content.
        if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } == 0 {
            return Ok(());
        }
        Err(Error::last("mlockall", "this process"))
    }

    fn stay_awake(&self) -> Result<Awake> {
        let failed = |call| move |error| Error::call(call, CPU_LATENCY, error);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = open(CPU_LATENCY, flags, Mode::empty()).map_err(failed("open"))?;
        // Four bytes are a binary number of microseconds.
        write(&file, &0i32.to_ne_bytes()).map_err(failed("write"))?;
        Ok(Awake { _file: Some(file) })
    }
}
