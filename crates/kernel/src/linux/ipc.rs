use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Linux;
use crate::error::{Error, Result};
use crate::ipc::{Endpoint, Ipc};

impl Ipc for Linux {
    fn stream_pair(&self) -> Result<(Endpoint, Endpoint)> {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|e| Error::call("socketpair", "AF_UNIX", e))?;
        Ok((Endpoint::new(one), Endpoint::new(other)))
    }

    fn allow_files(&self, count: u64) -> Result<()> {
        let limit = getrlimit(Resource::Nofile);
        if limit.current.is_none_or(|current| current >= count) {
            return Ok(());
        }
        // Beyond the hard limit it takes CAP_SYS_RESOURCE, which raises both; without it the call fails with EPERM.
        let raised = Rlimit {
            current: Some(count),
            maximum: limit.maximum.map(|maximum| maximum.max(count)),
        };
        setrlimit(Resource::Nofile, raised)
            .map_err(|e| Error::call("setrlimit", format!("RLIMIT_NOFILE {count}"), e))
    }

    fn most_files(&self) -> Option<u64> {
        getrlimit(Resource::Nofile).maximum
    }
}
