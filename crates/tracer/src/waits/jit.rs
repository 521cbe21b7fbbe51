//! Names of functions that a program made at run time: the perf map that many runtimes write (node --perf-basic-prof, Java's
//! perf-map-agent, PyPy, .NET), `/tmp/perf-PID.map` as the process sees it, by its number in its own PID namespace.
//!
//! ```text
//! 7f3a10 1c0 LazyCompile:*handle server.js:10      address and length in hexadecimal, name
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, folder};
use stopgap_trace::Text;

use super::keyed::Keyed;

/// The most that is read of a map; those of large servers have some 10 MiB.
const LARGEST: u64 = 64 << 20;
/// Bytes of a name that are kept.
const LONGEST: usize = 512;
/// Processes whose maps are kept at a time.
const PROCESSES: usize = 64;

/// The functions of one process.
#[derive(Debug, Default)]
struct Functions {
    /// By first address: the one after the last, and the name.
    all: BTreeMap<u64, (u64, Text)>,
    /// Length of the file when it was read: a runtime appends.
    length: u64,
}

/// Functions of processes by address.
#[derive(Debug, Default)]
pub(super) struct Jit {
    processes: Keyed<u32, Functions>,
}

impl Jit {
    /// Returns the function of process `pid` at `address`; `own_pid` is the process's number in its own namespace. A map that
    /// has grown since it was read is read again.
    pub(super) fn function(&mut self, pid: u32, own_pid: u32, address: u64) -> Option<Text> {
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&pid) {
            self.processes.clear();
        }
        let functions = self.processes.entry(pid).or_default();
        if let Some(name) = functions.find(address) {
            return Some(name);
        }
        let (file, length) = open(pid, own_pid)?;
        if length != functions.length {
            let mut bytes = Vec::new();
            file.take(LARGEST).read_to_end(&mut bytes).ok()?;
            *functions = Functions::parse(&bytes);
            functions.length = length;
        }
        functions.find(address)
    }
}

impl Functions {
    /// Reads a map; lines of another form, as the last one on its way, are passed over. Of two functions at one address the later
    /// line counts.
    fn parse(bytes: &[u8]) -> Functions {
        let mut functions = Functions::default();
        for line in bytes.split(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            let mut words = line.splitn(3, ' ');
            let mut number = || {
                let word = words.next()?;
                u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
            };
            let (Some(start), Some(length)) = (number(), number()) else {
                continue;
            };
            let name = words.next().unwrap_or_default().trim();
            let Some(end) = start.checked_add(length).filter(|_| !name.is_empty()) else {
                continue;
            };
            // A stack joins frames by semicolons.
            let name: String = name.chars().take(LONGEST).collect();
            let name = Text::from(name.replace(';', ":"));
            functions.all.insert(start, (end, name));
        }
        functions
    }

    fn find(&self, address: u64) -> Option<Text> {
        let (_, (end, name)) = self.all.range(..=address).next_back()?;
        (address < *end).then(|| Text::clone(name))
    }
}

/// Opens the map of a process: in its own mount namespace while it lives, else in ours. It must be a regular file of the process's
/// user, of root or of ours; nothing of it is believed.
fn open(pid: u32, own_pid: u32) -> Option<(File, u64)> {
    let owner = fs::metadata(format!("/proc/{pid}"));
    let owner = owner.ok().map(|about| about.uid());
    let open = |path: String| {
        let there = fs::symlink_metadata(&path).ok()?;
        let trusted = owner == Some(there.uid()) || [0, Linux.uid()].contains(&there.uid());
        if !trusted || !there.is_file() {
            return None;
        }
        let file = folder::open(path.as_ref(), |_| false).ok()?;
        let about = file.metadata().ok()?;
        (about.ino() == there.ino()).then_some((file, about.len()))
    };
    open(format!("/proc/{pid}/root/tmp/perf-{own_pid}.map"))
        .or_else(|| open(format!("/tmp/perf-{pid}.map")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_names_the_addresses_of_its_functions() {
        let map = b"7f0000001000 40 LazyCompile:*handle server.js:10\n0x7f0000002000 0x10 a;b\nnonsense\n\n\
                    7f0000001000 20 moved\nffffffffffffffff 10 beyond\n5 5\n7f00000030";
        let functions = Functions::parse(map);
        let name = |address| functions.find(address).map(|name| name.to_string());
        assert_eq!(name(0x7f00_0000_1000).as_deref(), Some("moved"));
        assert_eq!(name(0x7f00_0000_1020), None);
        assert_eq!(name(0x7f00_0000_200f).as_deref(), Some("a:b"));
        assert_eq!(name(0x7f00_0000_2010), None);
        assert_eq!(name(5), None);
        assert_eq!(functions.all.len(), 2);
    }
}
