//! Generic netlink, as far as taskstats needs it (netlink(7), include/uapi/linux/genetlink.h).
//!
//! ```text
//! message:   length u32, type u16, flags u16, sequence u32, port u32 | command u8, version u8, 0 u16 | attributes
//! attribute: length u16, type u16 | payload, up to a multiple of 4
//! ```

use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    sockopt,
};

use crate::error::{Error, Result};
use crate::taskstats::{Delays, parse};

const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;

const REQUEST: u16 = 1;
const ERROR: u16 = 2;

/// The family that names families: `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID`,
/// `CTRL_ATTR_FAMILY_NAME`.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `TASKSTATS_CMD_GET`, `TASKSTATS_CMD_ATTR_PID`, `TASKSTATS_TYPE_AGGR_PID`, `TASKSTATS_TYPE_STATS`.
const GET: u8 = 1;
const OF_THREAD: u16 = 1;
const AGGREGATE: u16 = 4;
const STATS: u16 = 3;

pub(crate) fn of_thread(tid: u32) -> Result<Delays> {
    let call =
        |call: &'static str| move |error: rustix::io::Errno| Error::call(call, "netlink", error);
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::GENERIC),
    )
    .map_err(call("socket"))?;
    // The kernel answers within the request; a wait without an end must not be possible all the same.
    let second = Some(std::time::Duration::from_secs(1));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, second)
        .map_err(call("setsockopt"))?;
    let answer = ask(&socket, CONTROL, GET_FAMILY, FAMILY_NAME, b"TASKSTATS\0");
    let answer = answer.map_err(|error| match error.errno() {
        Some(libc::ENOENT) => Error::unsupported(
            "delay accounting",
            "this kernel has no taskstats (CONFIG_TASKSTATS)",
        ),
        _ => error,
    })?;
    let family = attribute(&answer, FAMILY_ID).and_then(|id| id.first_chunk().copied());
    let family = family.ok_or_else(|| Error::parse("netlink", "the family has no id"))?;
    let family = u16::from_ne_bytes(family);
    let answer = ask(&socket, family, GET, OF_THREAD, &tid.to_ne_bytes());
    let answer = answer.map_err(|error| match error.errno() {
        Some(libc::ESRCH) => Error::no_process(tid, ""),
        _ => error,
    })?;
    let stats = attribute(&answer, AGGREGATE).and_then(|nested| attribute(nested, STATS));
    parse(stats.ok_or_else(|| Error::parse("netlink", "the answer has no statistics"))?)
}

/// Sends one request with one attribute; the attributes of the answer.
fn ask(socket: &OwnedFd, family: u16, command: u8, kind: u16, payload: &[u8]) -> Result<Vec<u8>> {
    let mut attributes = Vec::new();
    attributes.extend(((ATTRIBUTE_HEADER + payload.len()) as u16).to_ne_bytes());
    attributes.extend(kind.to_ne_bytes());
    attributes.extend(payload);
    attributes.resize(attributes.len().next_multiple_of(4), 0);
    let mut message = Vec::new();
    let length = (HEADER + GENERIC_HEADER + attributes.len()) as u32;
    message.extend(length.to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]); // no sequence: one request at a time; the kernel's own port
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    send(socket, &message, SendFlags::empty())
        .map_err(|error| Error::call("send", "netlink", error))?;
    let mut answer = vec![0_u8; 8 << 10];
    let (length, _) = recv(socket, &mut *answer, RecvFlags::empty())
        .map_err(|error| Error::call("recv", "netlink", error))?;
    answer.truncate(length);
    read(answer)
}

/// The attributes of a message; its error where it is one.
fn read(mut message: Vec<u8>) -> Result<Vec<u8>> {
    let short = || Error::parse("netlink", "the answer is shorter than it says");
    let at = |from: usize, to: usize| message.get(from..to).ok_or_else(short);
    let length = at(0, 4)?
        .first_chunk()
        .map_or(0, |&b| u32::from_ne_bytes(b)) as usize;
    let kind = at(4, 6)?
        .first_chunk()
        .map_or(0, |&b| u16::from_ne_bytes(b));
    if kind == ERROR {
        let errno = at(HEADER, HEADER + 4)?.first_chunk();
        let errno = errno.map_or(0, |&bytes| i32::from_ne_bytes(bytes));
        return Err(Error::refusal("taskstats", "netlink", -errno));
    }
    if length < HEADER + GENERIC_HEADER || length > message.len() {
        return Err(short());
    }
    message.truncate(length);
    Ok(message.split_off(HEADER + GENERIC_HEADER))
}

/// The payload of the first attribute of that type.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let payload = attributes.get(ATTRIBUTE_HEADER..length)?;
        // The highest bits say how it is to be read (NLA_F_NESTED).
        if kind & 0x3fff == wanted {
            return Some(payload);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_others() {
        let bytes = [
            [5, 0, 9, 0].as_slice(), // five bytes, type 9
            &[1, 0, 0, 0],
            &[8, 0, 4, 0x80],
            &[7, 7, 7, 7],
        ];
        let bytes: Vec<u8> = bytes.concat();
        if cfg!(target_endian = "little") {
            assert_eq!(attribute(&bytes, 9), Some([1].as_slice()));
            assert_eq!(attribute(&bytes, 4), Some([7, 7, 7, 7].as_slice()));
            assert_eq!(attribute(&bytes, 5), None);
        }
        // One that says it has no length must not be read for ever.
        assert_eq!(attribute(&[0; 16], 9), None);
        assert_eq!(attribute(&[3, 0, 9, 0], 9), None);
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error() {
        for length in [0, 3, 15, 19] {
            assert!(read(vec![1; length]).is_err());
        }
        let mut refused = vec![0; 36];
        refused[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        refused[16..20].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert!(read(refused).unwrap_err().is_refused());
    }
}
