//! A request and its reply between two processes on one CPU.
//!
//! ```text
//! client  write ....... read          one round trip is counted from the client's write(2)
//! server      read write  read ..     to the end of its read(2); both switches lie in it
//! ```

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::protocol::Line;
use stopgap_kernel::Linux;
use stopgap_kernel::tasks::Tasks;

use super::length;
use crate::child::Child;
use crate::counter::Counter;
use crate::mark::{self, Operation};
use crate::samples::{Samples, words};

/// Bytes of a request and of a reply, as in the probe.
const MESSAGE: usize = 32;
/// Round trips that are not counted: the first make what stays.
const WARM: u64 = 50;
/// A request's first byte: answer, or end.
const ANSWER: u8 = 1;
const END: u8 = 2;

/// Counts `requests` round trips.
///
/// # Errors
/// The system's refusal, and a server that ended early.
pub(super) fn run(name: &str, requests: u64, counter: &Counter) -> Result<Vec<Line>, String> {
    one_cpu().map_err(|error| error.to_string())?;
    let mut samples = Samples::of(&words([Operation::Roundtrip]), length(requests)?);
    let exchange = |samples: &mut Samples| -> std::io::Result<()> {
        let (mut ours, mut theirs) = UnixStream::pair()?;
        let server = Child::start(|| u8::from(serve(&mut theirs).is_err()))?;
        drop(theirs);
        let mut reply = [0; MESSAGE];
        for number in 0..WARM + requests {
            mark::counted(number >= WARM);
            let (count, result) = counter.count::<{ Operation::Roundtrip as u8 }, _>(|| {
                ours.write_all(&[ANSWER; MESSAGE])?;
                ours.read_exact(&mut reply)
            });
            result?;
            if number >= WARM {
                samples.push(0, count);
            }
        }
        ours.write_all(&[END; MESSAGE])?;
        server.reap()
    };
    exchange(&mut samples).map_err(|error| format!("socket: {error}"))?;
    Ok(samples.lines(name))
}

/// Answers until the client asks it to end. It holds the client's end open, too, and would not see it close.
fn serve(client: &mut UnixStream) -> std::io::Result<()> {
    let mut request = [0; MESSAGE];
    loop {
        client.read_exact(&mut request)?;
        if request[0] == END {
            return Ok(());
        }
        client.write_all(&request)?;
    }
}

/// From now on this process and its children are on one CPU. In a guest there is but one.
fn one_cpu() -> stopgap_kernel::Result<()> {
    match Linux.cpus()?[..] {
        [first, _, ..] => Linux.set_cpus(&[first]),
        _ => Ok(()),
    }
}
