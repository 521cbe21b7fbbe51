#![allow(unsafe_code)]

use std::io::{Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::*;
use crate::inject::failing;
use crate::own_process::own_process;

/// Fires only when the test says so.
const BY_HAND: Options = Options {
    most_bytes: usize::MAX,
    longest: Duration::from_secs(3600),
    most_pending: 64 << 20,
};

fn reply(number: u32) -> [u8; 32] {
    let mut reply = [0; 32];
    reply[..4].copy_from_slice(&number.to_ne_bytes());
    reply
}

/// All that comes until the other end is closed.
fn all(mut from: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn replies_go_out_in_one_call_when_the_server_would_wait() {
    let (server, client) = UnixStream::pair().unwrap();
    let mut writer = Writer::new(
        server,
        Options {
            longest: Duration::from_secs(3600),
            ..Options::default()
        },
    );
    let calls = failing(0, Errno::NOMEM, || {
        for number in 0..32 {
            assert_eq!(writer.push(&reply(number)), Ok(State::Gathering));
        }
        assert_eq!(writer.pending(), 32 * 32);
        writer.about_to_wait()
    });
    assert_eq!((calls.result, calls.made), (Ok(State::Written), 1));
    assert_eq!((writer.pending(), writer.due()), (0, None));
    drop(writer);
    let sent: Vec<u8> = (0..32).flat_map(reply).collect();
    assert_eq!(all(client), sent);
}

/// 32 requests that come together are answered in one write, a request that comes alone at once.
#[test]
fn a_server_that_reads_through_it_needs_nothing_else() {
    let (server, client) = UnixStream::pair().unwrap();
    let answers = std::thread::spawn(move || {
        let requests = server.try_clone().unwrap();
        let mut writer = Writer::new(server, BY_HAND);
        let mut buffer = [0; 256]; // eight requests
        let mut answered = 0;
        loop {
            let count = writer.read(&requests, &mut buffer).unwrap();
            for request in buffer[..count].chunks_exact(32) {
                writer.push(request).unwrap();
                answered += 1;
            }
            if count == 0 {
                return answered;
            }
        }
    });
    let requests: Vec<u8> = (0..32).flat_map(reply).collect();
    for _ in 0..3 {
        (&client).write_all(&requests).unwrap();
        let mut found = vec![0; requests.len()];
        (&client).read_exact(&mut found).unwrap();
        assert_eq!(found, requests);
        (&client).write_all(&reply(7)).unwrap();
        (&client).read_exact(&mut found[..32]).unwrap();
        assert_eq!(found[..32], reply(7));
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(answers.join().unwrap(), 99);
}

#[test]
fn the_last_replies_go_out_before_the_end_is_told() {
    let (server, client) = UnixStream::pair().unwrap();
    let mut writer = Writer::new(server.try_clone().unwrap(), BY_HAND);
    writer.push(b"last").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(writer.read(&server, &mut [0; 8]), Ok(0));
    let mut found = [0; 4];
    (&client).read_exact(&mut found).unwrap();
    assert_eq!(&found, b"last");
    // A pipe, whose end no socket call tells.
    let (read, write) = rustix::pipe::pipe().unwrap();
    let mut writer = Writer::new(server, BY_HAND);
    writer.push(b"last").unwrap();
    drop(write);
    assert_eq!(writer.read(&read, &mut [0; 8]), Ok(0));
    assert_eq!(writer.pending(), 0);
}

/// On a socket of messages two replies would come as one.
#[test]
fn a_socket_of_messages_is_refused_and_nothing_is_sent() {
    let (datagrams, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let (packets, _other) = crate::sys::socket::pair().unwrap();
    for file in [datagrams.into(), packets] {
        let file: std::os::fd::OwnedFd = file;
        let mut writer = Writer::new(file, BY_HAND);
        writer.push(b"one").unwrap();
        writer.push(b"two").unwrap();
        let error = writer.flush().unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert_eq!(writer.pending(), 6);
    }
    assert!(theirs.recv(&mut [0; 8]).is_err());
}

#[test]
fn reading_never_waits_with_replies_unsent() {
    let (server, client) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let requests = server.try_clone().unwrap();
    let mut writer = Writer::new(server, BY_HAND);
    let again = Err(Error::Call {
        call: "read",
        errno: Errno::AGAIN,
    });
    assert_eq!(writer.read(&requests, &mut [0; 8]), again);
    writer.push(b"reply").unwrap();
    assert_eq!(writer.read(&requests, &mut [0; 8]), again);
    let mut found = [0; 5];
    (&client).read_exact(&mut found).unwrap();
    // Stuck replies are `EAGAIN`, too.
    writer.push_owned(vec![1; 8 << 20]).unwrap();
    assert_eq!(writer.read(&requests, &mut [0; 8]), again);
    assert!(writer.pending() > 0);
}

#[test]
fn enough_bytes_or_enough_time_are_not_gathered_further() {
    let (server, _client) = UnixStream::pair().unwrap();
    let options = Options {
        most_bytes: 64,
        ..BY_HAND
    };
    let mut writer = Writer::new(server.try_clone().unwrap(), options);
    assert_eq!(writer.push(&reply(1)), Ok(State::Gathering));
    assert!(writer.due().unwrap() > Duration::from_secs(3000));
    assert_eq!(writer.push(&reply(2)), Ok(State::Written));
    let options = Options {
        longest: Duration::from_millis(5),
        ..BY_HAND
    };
    let mut writer = Writer::new(server, options);
    assert_eq!(writer.push(&reply(1)), Ok(State::Gathering));
    assert!(writer.due().unwrap() <= Duration::from_millis(5));
    std::thread::sleep(Duration::from_millis(6));
    assert_eq!(writer.due(), Some(Duration::ZERO));
    assert_eq!(writer.push(&reply(2)), Ok(State::Written));
    assert_eq!(writer.push(&[]), Ok(State::Written));
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let (server, client) = UnixStream::pair().unwrap();
    let options = Options {
        most_pending: 10,
        ..BY_HAND
    };
    let mut writer = Writer::new(server, options);
    writer.push(b"12345678").unwrap();
    let refused = writer.push(b"abc").unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Limit {
                asked: 3,
                limit: 10,
                ..
            }
        ),
        "{refused}"
    );
    assert!(matches!(
        writer.push_owned(vec![0; 11]),
        Err(Error::Limit { .. })
    ));
    // By `io::Write` it goes out first, and fits then.
    writer.write_all(b"abc").unwrap();
    assert_eq!(
        io::Write::write(&mut writer, &[0; 11])
            .unwrap_err()
            .raw_os_error(),
        Some(libc::ENOMEM)
    );
    drop(writer);
    assert_eq!(all(client), b"12345678abc");
}

#[test]
fn what_is_not_out_comes_back() {
    let (server, client) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let mut writer = Writer::new(server, BY_HAND);
    let all: Vec<u8> = (0..4_u32 << 20).map(|i| (i % 251) as u8).collect();
    writer.push(&all[..1000]).unwrap();
    writer.push_owned(all[1000..].to_vec()).unwrap();
    assert_eq!(writer.flush(), Ok(State::Blocked));
    assert!(
        matches!(io::Write::flush(&mut writer), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    );
    let pending = writer.pending();
    let (server, rest) = writer.into_inner();
    assert_eq!(rest.len(), pending);
    assert_eq!(rest[..], all[all.len() - pending..]);
    drop((server, client));
}

#[test]
fn a_peer_that_is_gone_is_an_error_and_no_signal() {
    if !own_process(a_peer_that_is_gone_is_an_error_and_no_signal) {
        return;
    }
    let signals = || {
        let mut pending = 0_u64;
        // SAFETY: the set has the length given.
        unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, 8) };
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let blocked = status
            .lines()
            .find(|line| line.starts_with("SigBlk"))
            .unwrap()
            .to_owned();
        (pending, blocked)
    };
    // SAFETY: the default action; this process has no other thread that counts on another.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let before = signals();
    let to = |file: OwnedFd| {
        let mut writer = Writer::new(file, BY_HAND);
        writer.push(b"nobody reads this").unwrap();
        assert_eq!(writer.flush(), Err(Error::PeerGone));
        assert_eq!(writer.push(b"nor this"), Err(Error::PeerGone));
        assert_eq!(
            (writer.pending(), writer.flush()),
            (0, Err(Error::PeerGone))
        );
    };
    let broken_pipe = || {
        let (read, write) = rustix::pipe::pipe().unwrap();
        drop(read);
        write
    };
    to(broken_pipe());
    let (server, client) = UnixStream::pair().unwrap();
    drop(client);
    to(server.into());
    assert_eq!(signals(), before, "as it was, and alive");
    // One that waited before waits afterwards.
    let pipe: u64 = 1 << (libc::SIGPIPE - 1);
    // SAFETY: the set outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            &raw const pipe,
            0_usize,
            8,
        );
        libc::raise(libc::SIGPIPE);
    }
    to(broken_pipe());
    assert_eq!(signals().0, pipe);
}

/// A step of the peer, or a call of the writer.
#[derive(Debug, Clone)]
enum Step {
    Push(usize),
    Owned(usize),
    Flush,
    Read(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![
        0_usize..64,
        Just(BLOCK - 1),
        Just(BLOCK),
        Just(BLOCK + 1),
        0_usize..300_000
    ];
    let step = prop_oneof![
        4 => length.clone().prop_map(Step::Push),
        1 => length.clone().prop_map(Step::Owned),
        2 => Just(Step::Flush),
        2 => length.prop_map(Step::Read),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Bytes that tell where they belong.
fn some_bytes(from: usize, length: usize) -> Vec<u8> {
    (from..from + length)
        .map(|i| (i % 253) as u8 ^ (i >> 8) as u8)
        .collect()
}

/// Carries the steps out on a pair of files, some system call failing; what arrived must be what was accepted.
fn carry_out(
    steps: &[Step],
    options: Options,
    (write, mut read): (OwnedFd, impl Read),
    (nth, errno): (u64, Errno),
) -> std::result::Result<(), TestCaseError> {
    let mut writer = Writer::new(write, options);
    let (mut accepted, mut found) = (Vec::new(), Vec::new());
    let calls = failing(nth, errno, || {
        for step in steps {
            let push = |result: Result<State>, bytes: &[u8], accepted: &mut Vec<u8>| match result {
                Ok(_) | Err(Error::Call { .. }) => accepted.extend_from_slice(bytes),
                Err(Error::Limit { .. }) => {}
                Err(other) => panic!("{other}"),
            };
            match *step {
                Step::Push(length) => {
                    let bytes = some_bytes(accepted.len(), length);
                    push(writer.push(&bytes), &bytes, &mut accepted);
                }
                Step::Owned(length) => {
                    let bytes = some_bytes(accepted.len(), length);
                    push(writer.push_owned(bytes.clone()), &bytes, &mut accepted);
                }
                Step::Flush => match writer.flush() {
                    Ok(State::Gathering) => panic!("flushed, it gathers"),
                    Ok(_) | Err(Error::Call { .. }) => {}
                    Err(other) => panic!("{other}"),
                },
                Step::Read(length) => {
                    let mut buffer = vec![0; length];
                    if let Ok(count) = read.read(&mut buffer) {
                        found.extend_from_slice(&buffer[..count]);
                    }
                }
            }
            assert!(writer.pending() <= options.most_pending);
            assert_eq!(writer.due().is_some(), writer.pending() > 0);
        }
    });
    prop_assert!(calls.failed.is_none() || nth > 0);
    let mut buffer = vec![0; 1 << 20];
    while writer.pending() > 0 {
        let _ = writer.flush();
        if let Ok(count) = read.read(&mut buffer) {
            found.extend_from_slice(&buffer[..count]);
        }
    }
    drop(writer);
    while let Ok(count @ 1..) = read.read(&mut buffer) {
        found.extend_from_slice(&buffer[..count]);
    }
    prop_assert!(
        found == accepted,
        "{} bytes arrived of {}",
        found.len(),
        accepted.len()
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// However the kernel cuts the writes, and whichever call fails.
    #[test]
    fn bytes_arrive_in_order_and_once(
        steps in steps(),
        most_bytes in prop_oneof![Just(0), 1_usize..4096, Just(64 << 10)],
        nth in 0_u64..40,
        errno in prop_oneof![Just(Errno::AGAIN), Just(Errno::INTR), Just(Errno::NOBUFS), Just(Errno::NOMEM)],
        pipe in any::<bool>(),
    ) {
        let options = Options { most_bytes, longest: Duration::from_secs(1), most_pending: 2 << 20 };
        if pipe {
            let flags = rustix::pipe::PipeFlags::NONBLOCK;
            let (read, write) = rustix::pipe::pipe_with(flags).unwrap();
            carry_out(&steps, options, (write, std::fs::File::from(read)), (nth, errno))?;
        } else {
            let (server, client) = UnixStream::pair().unwrap();
            server.set_nonblocking(true).unwrap();
            client.set_nonblocking(true).unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size(server.as_fd(), 4096).unwrap();
            carry_out(&steps, options, (server.into(), client), (nth, errno))?;
        }
    }
}
