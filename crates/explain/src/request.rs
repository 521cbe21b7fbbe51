//! Requests: windows from one call or mark of a thread to another.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use stopgap_events::wait::{Call, Wait, Within};
use stopgap_stats::explain::WindowKind;
use stopgap_trace::{Event, Kind, Text};

use crate::call::name_of;
use crate::chain::Graph;
use crate::windows::{Who, Windows};

/// Waits belong to one call if the thread ran for at most this many nanoseconds between them.
const LOOKS_AGAIN_NS: u64 = 10_000;

/// Results after which a program calls again: EINTR and EAGAIN.
const AGAIN: [i64; 2] = [-4, -11];

/// The begin and the end of a request: `write..read`, `mark:begin..mark:end`.
///
/// ```
/// use stopgap_explain::Request;
/// let request: Request = "sendmsg..recvmsg".parse().unwrap();
/// assert_eq!(request.to_string(), "sendmsg..recvmsg");
/// assert!("write".parse::<Request>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    begin: Moment,
    end: Moment,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Moment {
    Call(String),
    Mark(String),
}

impl FromStr for Moment {
    type Err = String;
    fn from_str(text: &str) -> Result<Moment, String> {
        let (mark, name) = match text.strip_prefix("mark:") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let is_call = |name: &str| {
            let word =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            name.bytes().all(word)
        };
        match (mark, name) {
            (_, "") => Err("a name is missing".to_owned()),
            (true, name) => Ok(Moment::Mark(name.to_owned())),
            (false, name) if is_call(name) => Ok(Moment::Call(name.to_owned())),
            (false, name) => Err(format!(
                "'{name}' is no system call's name; write a mark as mark:{name}"
            )),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Call(name) => f.write_str(name),
            Moment::Mark(name) => write!(f, "mark:{name}"),
        }
    }
}

impl FromStr for Request {
    type Err = String;
    fn from_str(text: &str) -> Result<Request, String> {
        let (begin, end) = text.split_once("..").ok_or_else(|| {
            "write what begins and what ends a request, as write..read or mark:begin..mark:end"
                .to_owned()
        })?;
        Ok(Request {
            begin: begin.parse()?,
            end: end.parse()?,
        })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.begin, self.end)
    }
}

/// A call: its number, its first argument, and the instruction from which it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    number: u32,
    first: Option<u64>,
    instruction: Option<u64>,
}

impl Request {
    /// Returns whether both ends are calls on a descriptor. Then they must have the same one.
    fn has_descriptor(&self) -> bool {
        let takes =
            |moment: &Moment| matches!(moment, Moment::Call(name) if takes_descriptor(name));
        takes(&self.begin) && takes(&self.end)
    }

    fn on(&self, first: Option<u64>) -> Option<u64> {
        first.filter(|_| self.has_descriptor())
    }

    /// Returns whether one of both ends is a call.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        [&self.begin, &self.end]
            .into_iter()
            .any(|moment| matches!(moment, Moment::Call(_)))
    }
}

fn is(moment: &Moment, name: &str) -> bool {
    matches!(moment, Moment::Call(call) if call == name)
}

/// Returns whether the first argument of the call is a descriptor that it reads, writes or queries.
fn takes_descriptor(name: &str) -> bool {
    matches!(
        name,
        "read"
            | "readv"
            | "pread64"
            | "preadv"
            | "preadv2"
            | "write"
            | "writev"
            | "pwrite64"
            | "pwritev"
            | "pwritev2"
            | "recvfrom"
            | "recvmsg"
            | "recvmmsg"
            | "sendto"
            | "sendmsg"
            | "sendmmsg"
            | "ioctl"
            | "fsync"
            | "fdatasync"
            | "sync_file_range"
            | "fallocate"
            | "ftruncate"
            | "flock"
            | "fcntl"
            | "connect"
            | "accept"
            | "accept4"
            | "close"
            | "getdents64"
            | "lseek"
            | "fstat"
    )
}

/// Most threads that are remembered.
const MOST: usize = 1 << 16;

/// Follows the requests of all threads.
pub(crate) struct Requests {
    pub(crate) request: Request,
    /// The request as text.
    pub(crate) by: Text,
    /// Threads that are in the call that ends a request, with its descriptor.
    ending: HashMap<u32, Option<u64>>,
    /// Threads with rows of calls.
    heard: HashSet<u32>,
}

const KIND: WindowKind = WindowKind::Request;

impl Requests {
    pub(crate) fn new(request: Request) -> Requests {
        Requests {
            by: request.to_string().into(),
            request,
            ending: HashMap::new(),
            heard: HashSet::new(),
        }
    }

    /// Takes a row of a call or a mark. `who` returns the thread.
    pub(crate) fn row(
        &mut self,
        event: &Event,
        now: u64,
        windows: &mut Windows,
        graph: &mut Graph,
        who: impl Fn(u32) -> Who,
    ) {
        let Some(tid) = event.tid.filter(|&tid| tid != 0) else {
            return;
        };
        match &event.kind {
            Kind::Mark { name } => {
                let matches =
                    |moment: &Moment| matches!(moment, Moment::Mark(mark) if **mark == **name);
                // A request that the waits of a call have ended is over before a mark.
                self.settles(tid, None, windows, graph, &who);
                if matches(&self.request.end)
                    && (self.request.begin != self.request.end || windows.is_open(tid, KIND, None))
                {
                    windows.ends(graph, (&who(tid), &self.by), (KIND, None), now);
                }
                if matches(&self.request.begin) {
                    windows.begins(tid, KIND, None, now);
                }
            }
            Kind::SyscallEnter {
                number,
                name,
                arguments,
            } => {
                self.hears(tid);
                let request = &self.request;
                let name = name_of(*number, name.as_ref());
                let on = request.on(arguments[0]);
                let ends = is(&request.end, &name) && windows.is_open(tid, KIND, on);
                if ends && self.ending.len() < MOST {
                    self.ending.insert(tid, on);
                }
                if is(&request.begin, &name) {
                    windows.begins(tid, KIND, on, now);
                }
            }
            Kind::SyscallExit {
                number,
                name,
                result,
            } => {
                let name = name_of(*number, name.as_ref());
                if !is(&self.request.end, &name) {
                    return;
                }
                let began_before = self.hears(tid);
                let Some(on) = self.ending.remove(&tid).or(began_before.then_some(None)) else {
                    return;
                };
                if !result.is_some_and(|result| AGAIN.contains(&result)) {
                    windows.ends(graph, (&who(tid), &self.by), (KIND, on), now);
                }
            }
            _ => {}
        }
    }

    /// Returns whether this is the first row of a call of `tid`.
    fn hears(&mut self, tid: u32) -> bool {
        self.heard.len() < MOST && self.heard.insert(tid)
    }

    /// Takes a wait of a thread whose calls have no rows. `calls` returns whether a thread's calls have rows.
    pub(crate) fn wait(
        &mut self,
        tid: u32,
        wait: &Wait,
        windows: &mut Windows,
        graph: &mut Graph,
        who: impl Fn(u32) -> Who,
        calls: impl Fn(u32) -> bool,
    ) {
        if !self.request.has_calls() {
            return;
        }
        // The waker was in a call then.
        if let (Some(woken), Some(waker)) = (wait.woken, &wait.waker)
            && let Some(call) = &waker.call
            && waker.task.tid != 0
            && !calls(waker.task.tid)
        {
            let on = self.request.on(call.arguments[0]);
            if is(
                &self.request.begin,
                &name_of(call.number, call.name.as_ref()),
            ) {
                let by = waker.task.tid;
                let over = windows.over(by);
                if over.iter().any(|&(its, _, ran)| its == on && woken.0 > ran) {
                    self.settles(by, None, windows, graph, &who);
                }
                windows.begins(by, KIND, on, woken.0);
            }
        }
        if calls(tid) {
            return;
        }
        let call = wait
            .call
            .as_ref()
            .filter(|_| wait.within == Some(Within::Call));
        let place = call.map(|call| Place {
            number: call.number,
            first: call.arguments[0],
            instruction: wait.instruction_pointer,
        });
        self.settles(
            tid,
            place.map(|place| (place, wait.left.0)),
            windows,
            graph,
            &who,
        );
        let (Some(call), Some(place)) = (call, place) else {
            return;
        };
        if !wait.began_before {
            return self.waits_in(tid, call, place, wait, windows);
        }
        let name = name_of(call.number, call.name.as_ref());
        if let Some(ran) = wait.ran.filter(|_| is(&self.request.end, &name)) {
            let on = self.request.on(call.arguments[0]);
            windows.ends(graph, (&who(tid), &self.by), (KIND, on), ran.0);
        }
    }

    fn waits_in(&self, tid: u32, call: &Call, place: Place, wait: &Wait, windows: &mut Windows) {
        let name = name_of(call.number, call.name.as_ref());
        let on = self.request.on(call.arguments[0]);
        let open = windows.is_open(tid, KIND, on);
        if is(&self.request.begin, &name) {
            windows.begins(tid, KIND, on, wait.left.0);
        }
        let other = self.request.begin != self.request.end || open;
        if let Some(ran) = wait.ran.filter(|_| is(&self.request.end, &name) && other) {
            windows.may_end(tid, on, place, ran.0);
        }
    }

    /// Ends the requests of `tid` that are over, unless the wait `again` belongs to the same call.
    fn settles(
        &self,
        tid: u32,
        again: Option<(Place, u64)>,
        windows: &mut Windows,
        graph: &mut Graph,
        who: impl Fn(u32) -> Who,
    ) {
        for (on, place, ran) in windows.over(tid) {
            let same = again.is_some_and(|(next, left)| {
                next == place && left.saturating_sub(ran) <= LOOKS_AGAIN_NS
            });
            if !same {
                windows.ends(graph, (&who(tid), &self.by), (KIND, on), ran);
            }
        }
    }

    /// Ends the requests of `tid`, because the thread or the trace has ended.
    pub(crate) fn stops(
        &mut self,
        tid: u32,
        windows: &mut Windows,
        graph: &mut Graph,
        who: impl Fn(u32) -> Who,
    ) {
        self.ending.remove(&tid);
        self.settles(tid, None, windows, graph, who);
    }
}
