//! One record of perf (`enum perf_event_type` in `include/uapi/linux/perf_event.h`), of events as
//! [`stopgap_kernel::linux::perf::Recorder`] opens them.

/// Bytes of a record's header: type (4), misc (2), length of the whole (2).
pub(super) const HEADER: usize = 8;
/// Bytes of the `sample_id` at the end of every record but samples: pid and tid (4 each), time (8),
/// CPU (4), nothing (4).
const SAMPLE_ID: usize = 24;

const MISC_EXEC: u16 = 1 << 13; // of COMM
const MISC_OUT: u16 = 1 << 13; // of SWITCH
const MISC_PREEMPTED: u16 = 1 << 14;
const MISC_BUILD_ID: u16 = 1 << 14; // of MMAP2

/// Above these a call chain's words say whose the next ones are (`PERF_CONTEXT_MAX`).
const CONTEXT: u64 = (-4095_i64).cast_unsigned();
const CONTEXT_KERNEL: u64 = (-128_i64).cast_unsigned();
const CONTEXT_USER: u64 = (-512_i64).cast_unsigned();

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// On which CPU.
    pub cpu: u32,
    /// Process and thread to which it happened; `None` of what has just ended.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// The event.
    pub body: Body,
}

/// The content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// A file or memory was mapped, executable.
    Mapped(Mapped),
    /// A thread has another name.
    Comm {
        /// The name.
        comm: String,
        /// Because it runs another program.
        exec: bool,
    },
    /// The record's thread has made another.
    Fork {
        /// The new one's process: another than the maker's unless it is a thread.
        pid: u32,
        /// The new one.
        tid: u32,
        /// Process of the maker.
        parent_pid: u32,
        /// The maker.
        parent_tid: u32,
    },
    /// A thread ends.
    Exit {
        /// Its process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// The record's thread gets the CPU, or leaves it.
    Switch {
        /// It leaves.
        out: bool,
        /// It could have run on.
        preempted: bool,
    },
    /// The profiler looked.
    Sample {
        /// Kernel functions, innermost first.
        kernel: Vec<u64>,
        /// User functions, innermost first.
        user: Vec<u64>,
    },
    /// Records found no room.
    Lost(u64),
    /// The kernel has samples made more rarely for a while.
    Throttled,
    /// A record of another type.
    Other,
}

/// Memory of a process that may hold functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// Its process.
    pub pid: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file's inode; 0 where it is none.
    pub inode: u64,
    /// The file; `//anon`, `[vdso]` and the like where it is none.
    pub name: String,
}

/// Reads a record, header and all.
///
/// # Errors
/// A line where it ends before its fields.
pub fn parse(record: &[u8]) -> Result<Record, String> {
    let short = |what: &str| format!("a {what} of {} bytes ends before its fields", record.len());
    let mut header = Words(record);
    let kind = header.u32().ok_or_else(|| short("record"))?;
    let misc = header.u32().ok_or_else(|| short("record"))? & 0xffff;
    let misc = misc as u16;
    let body = header.0;
    if kind == 9 {
        return sample(body).ok_or_else(|| short("sample"));
    }
    let at = body.len().checked_sub(SAMPLE_ID);
    let (body, id) = body.split_at(at.ok_or_else(|| short("record"))?);
    let mut id = Words(id);
    let id = (|| Some((id.task()?, id.task()?, id.u64()?, id.u32()?)))();
    let (pid, tid, time, cpu) = id.ok_or_else(|| short("record"))?;
    let mut body = Words(body);
    let (name, body) = match kind {
        2 => ("loss", body.lost()),
        3 => ("name", body.comm(misc)),
        4 => (
            "exit",
            body.task_event()
                .map(|[pid, _, tid, _]| Body::Exit { pid, tid }),
        ),
        5 => ("throttle", Some(Body::Throttled)),
        7 => (
            "fork",
            body.task_event()
                .map(|[pid, parent_pid, tid, parent_tid]| Body::Fork {
                    pid,
                    tid,
                    parent_pid,
                    parent_tid,
                }),
        ),
        10 => ("mapping", body.mapped(misc)),
        13 => ("loss", body.u64().map(Body::Lost)),
        14 => (
            "switch",
            Some(Body::Switch {
                out: misc & MISC_OUT != 0,
                preempted: misc & MISC_PREEMPTED != 0,
            }),
        ),
        _ => ("record", Some(Body::Other)),
    };
    Ok(Record {
        time,
        cpu,
        pid,
        tid,
        body: body.ok_or_else(|| short(name))?,
    })
}

fn sample(body: &[u8]) -> Option<Record> {
    let mut body = Words(body);
    let (pid, tid, time) = (body.task()?, body.task()?, body.u64()?);
    let cpu = body.u32()?;
    body.u32()?;
    let count = usize::try_from(body.u64()?).ok()?;
    let chain = body.0.get(..count.checked_mul(8)?)?;
    let (mut kernel, mut user) = (Vec::new(), Vec::new());
    let mut to = None;
    let mut words = chain
        .as_chunks()
        .0
        .iter()
        .map(|&word| u64::from_ne_bytes(word));
    for word in words.by_ref() {
        match word {
            CONTEXT_KERNEL => to = Some(&mut kernel),
            CONTEXT_USER => break,
            CONTEXT.. => to = None, // a guest's, a hypervisor's
            address => {
                if let Some(to) = &mut to {
                    to.push(address);
                }
            }
        }
    }
    // The user's come last. A program without frame pointers has anything on its stack, a context's word too.
    user.extend(words.filter(|word| *word < CONTEXT));
    Some(Record {
        time,
        cpu,
        pid,
        tid,
        body: Body::Sample { kernel, user },
    })
}

/// The rest of a record.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*word))
    }

    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    /// A process or a thread; -1 is one that is gone.
    fn task(&mut self) -> Option<Option<u32>> {
        self.u32().map(|id| (id != u32::MAX).then_some(id))
    }

    fn task_event(&mut self) -> Option<[u32; 4]> {
        Some([self.u32()?, self.u32()?, self.u32()?, self.u32()?])
    }

    fn lost(&mut self) -> Option<Body> {
        self.u64()?; // of which event
        self.u64().map(Body::Lost)
    }

    fn comm(&mut self, misc: u16) -> Option<Body> {
        self.u64()?; // process and thread, as at its end
        Some(Body::Comm {
            comm: self.text(),
            exec: misc & MISC_EXEC != 0,
        })
    }

    fn mapped(&mut self, misc: u16) -> Option<Body> {
        let pid = self.u32()?;
        self.u32()?;
        let (start, length, offset) = (self.u64()?, self.u64()?, self.u64()?);
        let device = (self.u32()?, self.u32()?, self.u64()?, self.u64()?);
        self.u64()?; // protection, flags
        Some(Body::Mapped(Mapped {
            pid,
            start,
            length,
            offset,
            // A build id stands in the place of device and inode.
            inode: if misc & MISC_BUILD_ID == 0 {
                device.2
            } else {
                0
            },
            name: self.text(),
        }))
    }

    /// Up to a NUL, or to the end.
    fn text(&self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0);
        String::from_utf8_lossy(&self.0[..end.unwrap_or(self.0.len())]).into_owned()
    }
}
