//! How many mappings a process has, counted piece by piece.

use std::fs::File;
use std::io::Read;

use crate::error::{Error, Result};

/// A count of the lines of `/proc/PID/maps`, under way.
///
/// The kernel has no number of a process's mappings to read. Each read(2) takes its mmap_lock for
/// reading and gives up to a page of text, some 40 mappings in about 15 us (`fs/proc/task_mmu.c`,
/// `m_start()`; `fs/seq_file.c`): so it is counted in pieces, and the caller can leave off in
/// between. What the process maps meanwhile behind the place reached is counted, before it is not.
#[derive(Debug)]
pub struct MappingCount {
    file: File,
    path: String,
    lines: u64,
    buffer: Box<[u8]>,
}

/// What the kernel gives at most in one read(2), on machines with pages of 4 KiB.
const PIECE: usize = 4096;

impl MappingCount {
    /// Begins with the process `pid`. A process that forgets its mappings meanwhile (execve(2))
    /// counts as none.
    ///
    /// # Errors
    /// As open(2): `ENOENT` where there is none, `EACCES` where it is not ours to look at.
    pub fn begin(pid: u32) -> Result<MappingCount> {
        let path = format!("/proc/{pid}/maps");
        let file = File::open(&path).map_err(|e| Error::call("open", &path, e))?;
        Ok(MappingCount {
            file,
            path,
            lines: 0,
            buffer: vec![0; PIECE].into_boxed_slice(),
        })
    }

    /// Counts a piece more; how many there are, once that is known. 0 is a process without memory
    /// of its own: one that has ended, or a thread of the kernel.
    ///
    /// # Errors
    /// As read(2).
    pub fn step(&mut self) -> Result<Option<u64>> {
        match self.file.read(&mut self.buffer) {
            Ok(0) => Ok(Some(self.lines)),
            Ok(length) => {
                let piece = &self.buffer[..length];
                self.lines += piece.iter().filter(|&&byte| byte == b'\n').count() as u64;
                Ok(None)
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(None),
            // The process has ended between.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(Some(0)),
            Err(error) => Err(Error::call("read", &self.path, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_what_the_file_has_lines() {
        // A child that stands still: nobody maps in it meanwhile.
        let mut child = std::process::Command::new("sleep")
            .arg("20")
            .spawn()
            .unwrap();
        let settled = |pid| std::fs::read_to_string(format!("/proc/{pid}/wchan"));
        while !settled(child.id()).is_ok_and(|text| text.contains("nanosleep")) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let path = format!("/proc/{}/maps", child.id());
        let lines = std::fs::read_to_string(path).unwrap().lines().count() as u64;
        let mut count = MappingCount::begin(child.id()).unwrap();
        let mut pieces = 0;
        let counted = loop {
            pieces += 1;
            if let Some(counted) = count.step().unwrap() {
                break counted;
            }
        };
        assert!(lines > 3 && pieces > 1);
        assert_eq!(counted, lines);
        let mut late = MappingCount::begin(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(late.step().unwrap(), Some(0));
        assert!(MappingCount::begin(child.id()).unwrap_err().is_absent());
    }
}
