//! Two ends against each other, against time, against failing calls, and against peers that die or were never any.
//!
//! Hostile peers that write nonsense into the ring: `tests/channel_bytes.rs`.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use stopgap_testing::{Skip, skip};

use super::*;
use crate::error::{Error, Result};
use crate::inject::failing;
use crate::own_process::own_process;
use crate::sys::{files, socket};

const SOON: Option<Duration> = Some(Duration::from_secs(20));

fn small() -> Options {
    with(|options| options.ring = 4096)
}

/// The default options but for what `change` changes.
fn with(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

/// Those of the smallest ring, for a client that waits so long for its server.
fn hurried(milliseconds: u64) -> Options {
    let connect = Duration::from_millis(milliseconds);
    with(|options| (options.ring, options.connect) = (4096, connect))
}

/// Serves each request by itself, until the client goes.
fn echo(mut server: Server) -> thread::JoinHandle<Statistics> {
    thread::spawn(move || {
        server
            .serve(|request, reply| reply.extend(request))
            .unwrap();
        server.statistics()
    })
}

/// Whether it is an error of this `errno`.
fn fails<T>(result: Result<T>, errno: Errno) -> bool {
    result.is_err_and(|error| error.errno() == errno.raw_os_error())
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A path that no other test has.
fn path(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("stopgap-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path); // of an earlier process with this id
    path
}

/// A message that differs from all others and can be checked: its number, and bytes that follow from it.
fn message(number: u64) -> Vec<u8> {
    let length = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
    let bytes = (0..length).map(|at| (number as usize + at) as u8);
    number.to_ne_bytes().into_iter().chain(bytes).collect()
}

#[test]
fn every_length_comes_whole() {
    let (mut server, mut client) = pair(&small()).unwrap();
    assert_eq!(client.longest(), 4088);
    let mut got = Vec::new();
    for length in 0..=client.longest() {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        assert!(client.try_send(&bytes).unwrap(), "{length}");
        assert_eq!(server.next_length().unwrap(), Some(length));
        assert!(server.try_recv(&mut got).unwrap(), "{length}");
        assert!(got == bytes, "{length}");
    }
    let too_long = vec![0; client.longest() + 1];
    let limit = Error::Limit {
        asked: 4089,
        limit: 4088,
        which: "the ring",
    };
    assert_eq!(client.try_send(&too_long), Err(limit));
    assert_eq!(client.send(&too_long, SOON), Err(limit));
    assert_eq!(
        server.try_recv(&mut got),
        Ok(false),
        "nothing of it was sent"
    );
}

#[test]
fn a_buffer_that_is_too_short_leaves_the_message() {
    let (mut server, mut client) = pair(&small()).unwrap();
    client.send(b"four", None).unwrap();
    let short = server.recv_into(&mut [0; 3], SOON).unwrap_err();
    assert!(
        matches!(
            short,
            Error::Limit {
                asked: 4,
                limit: 3,
                ..
            }
        ),
        "{short}"
    );
    let mut buffer = *b"......";
    assert_eq!(server.recv_into(&mut buffer, SOON), Ok(4));
    assert_eq!(&buffer, b"four..");
}

/// Both sides send and receive a stream through a ring that is always full or empty.
fn streams(options: &Options, count: u64) -> [Statistics; 2] {
    let (server, mut client) = pair(options).unwrap();
    let served = echo(server);
    let (mut sent, mut received) = (0, 0);
    let mut got = Vec::new();
    while received < count {
        while sent < count && sent < received + 40 && client.try_send(&message(sent)).unwrap() {
            sent += 1;
        }
        client.recv(&mut got, SOON).unwrap();
        assert!(got == message(received), "{received}");
        received += 1;
    }
    let statistics = client.statistics();
    drop(client);
    [served.join().unwrap(), statistics]
}

#[test]
fn a_stream_through_a_small_ring_comes_whole_and_in_order() {
    for spin in [Duration::ZERO, Duration::from_micros(100)] {
        for idle in [
            Duration::ZERO,
            Duration::from_micros(1),
            Duration::from_millis(10),
        ] {
            let options = with(|all| (all.ring, all.spin, all.idle) = (4096, spin, idle));
            let statistics = streams(&options, 3_000);
            println!("spin {spin:?} idle {idle:?}: {statistics:?}");
            assert!(
                statistics
                    .iter()
                    .all(|of| of.sent == 3_000 && of.received == 3_000)
            );
            assert!(spin > Duration::ZERO || statistics.iter().all(|of| of.spun == 0));
        }
    }
}

#[test]
fn a_peer_that_never_reads_costs_a_timeout_and_one_wake() {
    let (mut server, mut client) = pair(&small()).unwrap();
    assert!(server.arm().unwrap()); // it sleeps, and will not look
    let mut sent = 0_u64;
    while client.try_send(&[0; 100]).unwrap() {
        sent += 1;
    }
    assert_eq!(sent, 4096 / 112);
    let begin = Instant::now();
    let wait = Duration::from_millis(60);
    assert_eq!(client.send(&[0; 100], Some(wait)), Err(Error::TimedOut));
    assert!(begin.elapsed() >= wait);
    assert_eq!(
        client.send(&[0; 100], Some(Duration::ZERO)),
        Err(Error::TimedOut)
    );
    assert_eq!(client.statistics().wakes, 1);
    assert_eq!(client.statistics().sent, sent);
    // Waiting messages stay as they are.
    let mut got = Vec::new();
    for _ in 0..sent {
        server.recv(&mut got, SOON).unwrap();
    }
    client.send(b"again", SOON).unwrap();
    server.recv(&mut got, SOON).unwrap();
    assert_eq!(got, b"again");
}

#[test]
fn thirty_two_replies_cost_one_wake_at_most() {
    let (server, mut client) = pair(&with(|options| options.spin = Duration::ZERO)).unwrap(); // so that everybody sleeps
    let serving = echo(server);
    let mut got = Vec::new();
    for batch in 1..=200 {
        for _ in 0..32 {
            client.send(&[1; 32], None).unwrap();
        }
        for _ in 0..32 {
            client.recv(&mut got, SOON).unwrap();
        }
        assert!(
            client.statistics().wakes <= batch,
            "{:?}",
            client.statistics()
        );
    }
    drop(client);
    let server = serving.join().unwrap();
    assert!(server.sent == 200 * 32 && server.wakes <= 200, "{server:?}");
    assert!(server.wakes > 0, "it never had to wake anybody: {server:?}");
}

#[test]
fn nobody_spins_for_a_peer_on_its_own_cpu() {
    let pin = || {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0..1024).find(|&cpu| allowed.is_set(cpu)).unwrap();
        let mut one = rustix::thread::CpuSet::new();
        one.set(cpu);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
    };
    let (server, mut client) = pair(&Options::default()).unwrap();
    let serving = thread::spawn(move || {
        pin();
        echo(server).join().unwrap() // a thread inherits its CPUs
    });
    // A thread of its own, so that the test's keeps its CPUs.
    let asking = thread::spawn(move || {
        pin();
        let mut got = Vec::new();
        for _ in 0..2_000 {
            client.call(b"ping", &mut got, SOON).unwrap();
        }
        client.statistics()
    });
    let asked = asking.join().unwrap();
    let served = serving.join().unwrap();
    assert_eq!((asked.spun, served.spun), (0, 0), "{asked:?} {served:?}");
    assert_eq!(served.received, 2_000);
}

#[test]
fn a_time_limit_holds_and_costs_no_cpu() {
    let (_server, mut client) = pair(&Options::default()).unwrap();
    let mut got = Vec::new();
    for wait in [0, 3, 40].map(Duration::from_millis) {
        let begin = Instant::now();
        assert_eq!(client.recv(&mut got, Some(wait)), Err(Error::TimedOut));
        assert!(begin.elapsed() >= wait);
    }
    // 3 ms: one sleep on the futex. 40 ms: one of 10 ms there, and the rest on the socket.
    assert!(client.statistics().sleeps <= 4, "{:?}", client.statistics());
    // No overflow, and it is there at once.
    let (mut server, mut client) = pair(&Options::default()).unwrap();
    server.send(b"now", Some(Duration::MAX)).unwrap();
    client.recv(&mut got, Some(Duration::MAX)).unwrap();
}

#[test]
fn who_waits_for_long_is_woken_by_the_socket_and_does_not_poll() {
    let options = with(|options| options.idle = Duration::from_millis(1));
    let (mut server, mut client) = pair(&options).unwrap();
    let waiting = thread::spawn(move || {
        let mut got = Vec::new();
        server.recv(&mut got, SOON).unwrap();
        (server, got)
    });
    let sleeps = || client.ring().theirs().sleep.load(Ordering::Relaxed);
    while sleeps() & ring::sleep::SOCKET == 0 {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(150));
    client.send(b"late", None).unwrap();
    client.flush().unwrap();
    let (mut server, got) = waiting.join().unwrap();
    assert_eq!(got, b"late");
    let (slept, woke) = (server.statistics(), client.statistics());
    assert_eq!((woke.wakes, woke.wakes_by_socket), (1, 1));
    assert_eq!(
        slept.sleeps, 2,
        "once on the futex, once on the socket: {slept:?}"
    );
    // The packet that woke it wakes nobody twice.
    let begin = Instant::now();
    let wait = Some(Duration::from_millis(50));
    assert_eq!(server.recv(&mut Vec::new(), wait), Err(Error::TimedOut));
    assert!(begin.elapsed() >= Duration::from_millis(50));
}

fn readable(end: std::os::fd::BorrowedFd<'_>) -> bool {
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(
        end,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut fds, Some(&rustix::time::Timespec::default())).unwrap() == 1
}

#[test]
fn an_event_loop_is_told() {
    let (mut server, mut client) = pair(&Options::default()).unwrap();
    let mut got = Vec::new();
    for _ in 0..3 {
        assert!(server.arm().unwrap());
        assert!(!readable(server.fd()));
        client.send(b"one", None).unwrap();
        assert!(!readable(server.fd()), "not before the flush");
        client.send(b"two", None).unwrap();
        client.flush().unwrap();
        assert!(readable(server.fd()));
        assert!(!server.arm().unwrap(), "something is there");
        assert!(!readable(server.fd()), "what woke it is read");
        assert!(server.try_recv(&mut got).unwrap() && got == b"one");
        assert!(server.try_recv(&mut got).unwrap() && got == b"two");
        assert!(!server.try_recv(&mut got).unwrap());
    }
    assert_eq!(client.statistics().wakes, 3);
    assert!(server.arm().unwrap());
    drop(client);
    assert!(readable(server.fd()));
    assert_eq!(server.try_recv(&mut got), Err(Error::PeerGone));
    assert_eq!(server.arm(), Ok(false), "there is an error to get, now");
}

#[test]
fn what_was_sent_is_read_after_the_peer_went() {
    let (mut server, mut client) = pair(&Options::default()).unwrap();
    client.send(b"last words", None).unwrap();
    let pipe = rustix::pipe::pipe().unwrap();
    client
        .send_fds(b"and a will", &[pipe.0.as_fd()], SOON)
        .unwrap();
    server.send(b"unread", None).unwrap();
    drop(client);
    assert_eq!(server.check_peer(), Err(Error::PeerGone));
    let mut got = Vec::new();
    server.recv(&mut got, None).unwrap();
    assert_eq!(got, b"last words");
    assert!(server.try_recv(&mut got).unwrap());
    assert_eq!((&got[..], server.take_fds().len()), (&b"and a will"[..], 1));
    assert_eq!(server.recv(&mut got, None), Err(Error::PeerGone));
    assert_eq!(server.try_recv(&mut got), Err(Error::PeerGone));
    assert_eq!(server.send(b"?", None), Err(Error::PeerGone));
    server.flush().unwrap();
}

#[test]
fn descriptors_of_a_peer_that_went_are_read_though_it_can_be_told_nothing() {
    let (mut server, mut client) = pair(&Options::default()).unwrap();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    client.send_fds(b"a will", &[reader.as_fd()], SOON).unwrap();
    // As if it slept on the socket, and was killed there.
    let how = ring::sleep::MESSAGE | ring::sleep::SOCKET;
    client.ring().falls_asleep(how);
    drop(client);
    server.send(b"?", None).unwrap();
    server.flush().unwrap();
    let mut got = Vec::new();
    assert!(server.try_recv(&mut got).unwrap());
    assert_eq!((&got[..], server.take_fds().len()), (&b"a will"[..], 1));
    assert_eq!(server.try_recv(&mut got), Err(Error::PeerGone));
}

#[test]
fn a_waiter_hears_that_its_peer_was_dropped() {
    for waited in [2, 60].map(Duration::from_millis) {
        let options = with(|options| options.idle = Duration::from_millis(30));
        let (server, mut client) = pair(&options).unwrap();
        let waiting = thread::spawn(move || {
            let result = client.recv(&mut Vec::new(), SOON);
            (result, Instant::now())
        });
        thread::sleep(waited);
        let dropped = Instant::now();
        drop(server);
        let (result, seen) = waiting.join().unwrap();
        assert_eq!(result, Err(Error::PeerGone));
        let after = seen.saturating_duration_since(dropped);
        println!("waited {waited:?}: seen after {after:?}");
        assert!(after < options.idle + Duration::from_secs(5), "{after:?}");
    }
}

#[test]
fn descriptors_come_with_their_message() {
    let (mut server, mut client) = pair(&small()).unwrap();
    let pipes: Vec<_> = (0..16).map(|_| rustix::pipe::pipe().unwrap()).collect();
    let writers: Vec<_> = pipes.iter().map(|(_, writer)| writer.as_fd()).collect();
    client.send(b"none", None).unwrap();
    client.send_fds(b"one", &writers[..1], SOON).unwrap();
    client.send_fds(b"all", &writers, SOON).unwrap();
    client.send_fds(b"no more", &[], SOON).unwrap();
    let mut got = Vec::new();
    for (text, count) in [("none", 0), ("one", 1), ("all", 16), ("no more", 0)] {
        server.recv(&mut got, SOON).unwrap();
        assert_eq!(got, text.as_bytes());
        let fds = server.take_fds();
        assert_eq!(fds.len(), count);
        for (fd, (reader, _)) in fds.into_iter().zip(&pipes) {
            let flags = rustix::io::fcntl_getfd(&fd).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            rustix::io::write(&fd, b"x").unwrap();
            assert_eq!(rustix::io::read(reader, &mut [0; 9]).unwrap(), 1);
        }
        assert!(server.take_fds().is_empty());
    }
    let many = [&writers[..], &writers[..1]].concat();
    let error = client.send_fds(b"17", &many, SOON).unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert_eq!(server.try_recv(&mut got), Ok(false));
}

#[test]
fn descriptors_that_are_on_their_way_are_limited_and_those_nobody_takes_are_closed() {
    let (mut server, mut client) = pair(&small()).unwrap();
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    let writers = [writer.as_fd(); 16];
    let now = Some(Duration::ZERO);
    for _ in 0..4 {
        client.send_fds(b"", &writers, now).unwrap();
    }
    assert_eq!(
        client.send_fds(b"", &writers[..1], now),
        Err(Error::TimedOut)
    );
    client.send(b"without", now).unwrap();
    let mut got = Vec::new();
    // The receiver drains the socket, and holds them until their messages are read.
    server.check_peer().unwrap();
    server.recv(&mut got, SOON).unwrap();
    client.send_fds(b"", &writers, now).unwrap();
    assert_eq!(
        client.send_fds(b"", &writers[..1], now),
        Err(Error::TimedOut)
    );
    for _ in 0..5 {
        server.recv(&mut got, SOON).unwrap();
    }
    client.send_fds(b"", &writers, now).unwrap();
}

#[test]
fn listening_and_connecting() {
    let path = path("listen");
    let listener = Server::bind(&path).unwrap();
    let connecting = thread::spawn({
        let path = path.clone();
        move || {
            let mut client = Client::connect(path, &small())?;
            let mut got = Vec::new();
            client.call(b"?", &mut got, SOON)?;
            Ok::<_, Error>(got)
        }
    });
    let mut server = listener.accept(&small()).unwrap();
    server.serve(|_, reply| reply.extend(b"!")).unwrap();
    assert_eq!(connecting.join().unwrap().unwrap(), b"!");

    assert!(fails(Server::bind(&path), Errno::ADDRINUSE));
    // Nobody accepts: the socket connects, but no ring comes.
    let begin = Instant::now();
    let late = Client::connect(&path, &hurried(30));
    assert_eq!(late.unwrap_err(), Error::TimedOut);
    assert!(begin.elapsed() >= Duration::from_millis(30));
    drop(listener);
    assert!(fails(Client::connect(&path, &small()), Errno::CONNREFUSED));
    std::fs::remove_file(&path).unwrap();
    assert!(fails(Client::connect(&path, &small()), Errno::NOENT));
    for wrong in ["x".repeat(108), "with\0zero".to_owned()] {
        assert!(fails(Server::bind(&wrong), Errno::INVAL));
        assert!(fails(Client::connect(&wrong, &small()), Errno::INVAL));
    }
}

#[test]
fn a_full_backlog_does_not_hold_a_client_for_longer_than_it_says() {
    let path = path("backlog");
    let listener = UnixListener::bind(&path).unwrap(); // a stream: another type
    assert!(fails(Client::connect(&path, &small()), Errno::PROTOTYPE));
    drop(listener);
    std::fs::remove_file(&path).unwrap();

    let listener = Server::bind(&path).unwrap();
    // Those that are in it are gone already, and still take its places.
    for _ in 0..140 {
        let late = Client::connect(&path, &hurried(5));
        assert_eq!(late.unwrap_err(), Error::TimedOut);
    }
    drop(listener);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn impossible_options_and_sockets() {
    for ring in [ring::MOST + 1, usize::MAX] {
        let error = pair(&with(|options| options.ring = ring)).unwrap_err();
        assert!(matches!(error, Error::Limit { .. }), "{error}");
    }
    for ring in [0, 1, 4095] {
        let (server, _) = pair(&with(|options| options.ring = ring)).unwrap();
        assert_eq!(server.longest(), 4088);
    }
    let streams = UnixStream::pair().unwrap();
    assert!(fails(
        Server::over(streams.0.into(), &small()),
        Errno::INVAL
    ));
    assert!(fails(
        Client::over(streams.1.into(), &small()),
        Errno::INVAL
    ));
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(fails(Server::over(file.into(), &small()), Errno::NOTSOCK));
    let (gone, ours) = socket::pair().unwrap();
    drop(gone);
    assert_eq!(Server::over(ours, &small()).unwrap_err(), Error::PeerGone);
}

/// A greeting as a hostile server would send it.
fn greeted(packet: &[u8], fds: &[&OwnedFd]) -> Result<Client> {
    let (theirs, ours) = socket::pair().unwrap();
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    assert_eq!(
        socket::send(theirs.as_fd(), packet, &fds).unwrap(),
        socket::Sent::Yes
    );
    Client::over(ours, &hurried(20))
}

fn greeting(capacity: u32) -> Vec<u8> {
    [
        &b"stopgapc"[..],
        &1_u32.to_ne_bytes(),
        &capacity.to_ne_bytes(),
    ]
    .concat()
}

fn memfd(length: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("hostile", flags).unwrap();
    rustix::fs::ftruncate(&file, length).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Bytes of the file of the smallest ring.
const WHOLE: u64 = 3 * 4096;

#[test]
fn memory_that_could_kill_us_is_refused() {
    if !own_process(memory_that_could_kill_us_is_refused) {
        return;
    }
    let refused = |what: &str, packet: &[u8], fds: &[&OwnedFd]| {
        let before = open_files();
        let error = greeted(packet, fds).map(drop).unwrap_err();
        assert!(matches!(error, Error::Peer { .. }), "{what}: {error}");
        assert_eq!(open_files(), before, "{what}");
        println!("{what}: {error}");
    };
    let good = memfd(WHOLE, SealFlags::SHRINK);
    drop(greeted(&greeting(4096), &[&good]).unwrap());

    for (what, length, seals) in [
        ("no seals", WHOLE, SealFlags::empty()),
        ("other seals", WHOLE, SealFlags::GROW),
        ("short", WHOLE - 1, SealFlags::SHRINK),
        ("empty", 0, SealFlags::SHRINK),
    ] {
        refused(what, &greeting(4096), &[&memfd(length, seals)]);
    }
    for capacity in [0, 1, 2048, 4097, 12288, 1 << 31, u32::MAX] {
        refused("capacity", &greeting(capacity), &[&good]);
    }
    refused("longer than the file", &greeting(8192), &[&good]);
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    for (what, fd) in [("a device", &null), ("a file", &file), ("a pipe", &pipe)] {
        refused(what, &greeting(4096), &[fd]);
    }
    let by_path = rustix::fs::open(
        "/proc/self/exe",
        rustix::fs::OFlags::PATH,
        rustix::fs::Mode::empty(),
    );
    refused("O_PATH", &greeting(4096), &[&by_path.unwrap()]);
    let huge = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    match rustix::fs::memfd_create("huge", huge) {
        Ok(huge) => {
            rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
            rustix::fs::fcntl_add_seals(&huge, SealFlags::SHRINK).unwrap();
            refused("huge pages", &greeting(4096), &[&huge]);
        }
        Err(error) => {
            skip(&Skip::machine(format_args!("memfd of huge pages: {error}")));
        }
    }
    refused("no file", &greeting(4096), &[]);
    refused("two files", &greeting(4096), &[&good, &good]);
    refused("cut", &greeting(4096)[..15], &[&good]);
    refused("long", &[&greeting(4096)[..], b"x"].concat(), &[&good]);
    refused(
        "magic",
        &[&b"stopgapx"[..], &greeting(4096)[8..]].concat(),
        &[&good],
    );
    let mut other = greeting(4096);
    other[8] = 2;
    refused("version", &other, &[&good]);
    // A file that the peer may write to by a descriptor that may not: mapping it says so.
    let read_only = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&good));
    let read_only: OwnedFd = std::fs::File::open(read_only).unwrap().into();
    assert!(fails(
        greeted(&greeting(4096), &[&read_only]),
        Errno::ACCESS
    ));

    let (theirs, ours) = socket::pair().unwrap();
    drop(theirs);
    assert_eq!(Client::over(ours, &small()).unwrap_err(), Error::PeerGone);
}

#[test]
fn the_servers_memory_can_be_cut_by_nobody() {
    let (theirs, ours) = socket::pair().unwrap();
    let _server = Server::over(ours, &small()).unwrap();
    let mut packet = [0; 64];
    let socket::Received::Packet { fds, length, .. } =
        socket::receive(theirs.as_fd(), &mut packet).unwrap()
    else {
        panic!("no greeting");
    };
    assert_eq!((&packet[..length], fds.len()), (&greeting(4096)[..], 1));
    for length in [0, 4096, WHOLE - 1, WHOLE + 4096] {
        assert_eq!(
            rustix::fs::ftruncate(&fds[0], length),
            Err(Errno::PERM),
            "{length}"
        );
    }
    assert_eq!(
        files::kind(&fds[0]).unwrap(),
        files::Kind::Sealed { length: WHOLE }
    );
}

/// As many packets as the socket takes, each of which says "wake up"; how many.
fn flood(socket: std::os::fd::BorrowedFd<'_>) -> u64 {
    let mut sent = 0;
    while socket::send(socket, b"w", &[]).unwrap() == socket::Sent::Yes {
        sent += 1;
    }
    sent
}

/// Else who sends them as fast as they are read would keep this side from ever looking at the clock.
#[test]
fn wake_ups_without_end_are_not_read_without_end() {
    let unread = |server: &Server| rustix::io::ioctl_fionread(server.fd()).unwrap();
    let (mut server, client) = pair(&small()).unwrap();
    let sent = flood(client.fd());
    assert!(sent > 128, "the socket takes only {sent}");
    server.check_peer().unwrap();
    assert_eq!(unread(&server), sent - 128);
    // Nor before the descriptors that a message says it has.
    let (mut server, mut client) = pair(&small()).unwrap();
    let sent = flood(client.fd());
    assert!(client.ring_mut().push(b"", 1).unwrap());
    let error = server.recv(&mut Vec::new(), SOON).unwrap_err();
    assert!(matches!(error, Error::Peer { .. }), "{error}");
    assert_eq!(unread(&server), sent - 128);
}

#[test]
fn files_that_may_not_be_as_long_as_a_ring_are_an_error_and_no_signal() {
    if !own_process(files_that_may_not_be_as_long_as_a_ring_are_an_error_and_no_signal) {
        return;
    }
    let limit = rustix::process::Rlimit {
        current: Some(WHOLE),
        maximum: Some(WHOLE),
    };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    let before = open_files();
    drop(pair(&small()).unwrap());
    assert_eq!(
        pair(&with(|options| options.ring = 8192)).unwrap_err(),
        Error::Limit {
            asked: 4096 + 2 * 8192,
            limit: WHOLE,
            which: "RLIMIT_FSIZE"
        }
    );
    assert_eq!(open_files(), before);
}

#[test]
fn packets_that_are_none_of_ours_end_the_channel() {
    let pipe = rustix::pipe::pipe().unwrap();
    let cases: [(&[u8], usize); 9] = [
        (b"x", 0),
        (b"ww", 0),
        (b"w", 1),
        (b"f", 1),
        (b"f\x00", 0),
        (b"f\x02", 1),
        (b"f\x11", 16),
        (b"f\x01", 0),
        (b"far too long", 0),
    ];
    for (packet, count) in cases {
        let (mut server, client) = pair(&small()).unwrap();
        let fds = vec![pipe.0.as_fd(); count];
        socket::send(client.fd(), packet, &fds).unwrap();
        let error = server.check_peer().unwrap_err();
        assert!(matches!(error, Error::Peer { .. }), "{packet:?}: {error}");
        let mut got = Vec::new();
        assert_eq!(server.send(b"", SOON), Err(error), "it is dead");
        assert_eq!(server.recv(&mut got, SOON), Err(error));
        assert_eq!(server.try_recv(&mut got), Err(error));
        assert_eq!(server.arm(), Err(error));
        assert_eq!(server.flush(), Err(error));
    }
    // More descriptors than may be on their way, without a message.
    let (mut server, client) = pair(&small()).unwrap();
    for _ in 0..5 {
        socket::send(client.fd(), b"f\x10", &[pipe.0.as_fd(); 16]).unwrap();
    }
    assert!(matches!(server.check_peer(), Err(Error::Peer { .. })));
}

/// Everything that makes a system call, in one thread; what it must give where none fails.
fn everything() -> Result<()> {
    let now = Some(Duration::ZERO);
    let path = path("everything");
    let options = hurried(1);
    let listener = Server::bind(&path);
    let connected = Client::connect(&path, &options);
    let _ = std::fs::remove_file(&path);
    let listener = listener?;
    match connected {
        Err(Error::TimedOut) => {}
        other => return other.map(drop),
    }
    let mut server = listener.accept(&options).map(drop);
    if server == Err(Error::PeerGone) {
        server = Ok(()); // the client gave up
    }
    server?;
    let (mut server, mut client) = pair(&options)?;
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let mut got = Vec::new();
    for idle in [Duration::ZERO, Duration::from_millis(1)] {
        let options = Options { idle, ..small() };
        let (_server, mut client) = pair(&options)?;
        match client.recv(&mut got, now) {
            Err(Error::TimedOut) => {}
            other => return other,
        }
    }
    for round in 0..2 {
        if !server.arm()? {
            return Err(Error::invalid("armed"));
        }
        client.send_fds(b"one", &[reader.as_fd()], now)?;
        client.send(b"two", now)?;
        client.flush()?;
        server.recv(&mut got, now)?;
        if server.take_fds().len() != 1 || got != b"one" {
            return Err(Error::invalid("one"));
        }
        server.recv(&mut got, now)?;
        server.send(b"three", now)?;
        // As if it slept.
        client
            .ring()
            .falls_asleep(ring::sleep::MESSAGE | ring::sleep::FUTEX);
        server.flush()?;
        client.recv(&mut got, now)?;
        if got != b"three" || server.statistics().wakes != round + 1 {
            return Err(Error::invalid("three"));
        }
        client.check_peer()?;
    }
    Ok(())
}

#[test]
fn every_call_that_fails_is_an_error_and_nothing_leaks() {
    if !own_process(every_call_that_fails_is_an_error_and_nothing_leaks) {
        return;
    }
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines()
            .filter(|line| line.contains("stopgap-channel"))
            .count()
    };
    everything().unwrap();
    let files = open_files();
    assert_eq!(mappings(), 0);
    for errno in [Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::PERM] {
        let mut failed = Vec::new();
        for nth in 1.. {
            let calls = failing(nth, errno, everything);
            let Some(call) = calls.failed else {
                assert_eq!(calls.result, Ok(()));
                break;
            };
            // Unmapping is the one whose failure nobody can do anything about; and a drop that could not wake.
            match calls.result {
                Err(Error::Call {
                    call: named,
                    errno: said,
                }) => {
                    assert_eq!((named, said), (call, errno), "call {nth}");
                }
                other => assert!(
                    call == "munmap" && other.is_ok(),
                    "call {nth}, {call}: {other:?}"
                ),
            }
            assert_eq!(open_files(), files, "call {nth}, {call}");
            if call != "munmap" {
                assert_eq!(
                    mappings(),
                    failed.iter().filter(|c| **c == "munmap").count(),
                    "call {nth}, {call}"
                );
            }
            failed.push(call);
        }
        println!("{errno}: {} calls failed in turn: {failed:?}", failed.len());
        assert!(failed.len() > 40);
        // Unmaps what the test kept from munmap: the process ends.
        if errno == Errno::NOMEM {
            println!("{} mappings stay where munmap fails", mappings());
        }
        for call in [
            "futex",
            "ppoll",
            "sendmsg",
            "recvmsg",
            "memfd_create",
            "fcntl",
            "mmap",
            "ftruncate",
        ] {
            assert!(failed.contains(&call), "{call}");
        }
        break_mappings();
    }
}

/// Unmaps what injected failures of munmap left.
#[allow(unsafe_code)]
fn break_mappings() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for line in maps.lines().filter(|line| line.contains("stopgap-channel")) {
        let range = line.split(' ').next().unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        let (start, end) = (number(start), number(end));
        // SAFETY: these mappings' owners are dropped; nothing refers to them.
        unsafe { rustix::mm::munmap(start as *mut _, end - start) }.unwrap();
    }
}

#[test]
fn a_wake_up_that_failed_is_made_up_for() {
    let (mut server, mut client) = pair(&small()).unwrap();
    assert!(server.arm().unwrap());
    client.send(b"wake", None).unwrap();
    let calls = failing(1, Errno::NOMEM, || client.flush());
    assert_eq!(calls.failed, Some("sendmsg"));
    assert!(calls.result.is_err());
    assert!(!readable(server.fd()));
    client.flush().unwrap();
    assert!(readable(server.fd()));
}

#[test]
fn descriptors_that_find_no_place_are_an_error_and_the_channel_goes_on() {
    if !own_process(descriptors_that_find_no_place_are_an_error_and_the_channel_goes_on) {
        return;
    }
    let (mut server, mut client) = pair(&small()).unwrap();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    client
        .send_fds(b"lost", &[reader.as_fd(); 3], SOON)
        .unwrap();
    client.send_fds(b"kept", &[reader.as_fd()], SOON).unwrap();
    let old = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let mut tight = old;
    tight.current = Some(3); // those that are open stay, a new one finds no number below it
    rustix::process::setrlimit(rustix::process::Resource::Nofile, tight).unwrap();
    let mut got = Vec::new();
    let lost = server.recv(&mut got, SOON);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, old).unwrap();
    assert_eq!(lost.unwrap_err().errno(), Errno::MFILE.raw_os_error());
    assert!(server.take_fds().is_empty());
    server.recv(&mut got, SOON).unwrap();
    assert_eq!((&got[..], server.take_fds().len()), (&b"kept"[..], 1));
}

/// The other process of [`a_peer_that_is_killed_leaves_whole_messages`]: sends until it is killed.
#[test]
fn sends_until_it_is_killed() {
    let Ok(path) = std::env::var("STOPGAP_CHANNEL") else {
        return;
    };
    let mut client = Client::connect(path, &small()).unwrap();
    println!("connected");
    for number in 0.. {
        if client.send(&message(number), SOON).is_err() {
            return;
        }
    }
}

#[test]
fn a_peer_that_is_killed_leaves_whole_messages() {
    let path = path("killed");
    let listener = Server::bind(&path).unwrap();
    for idle in [
        Duration::ZERO,
        Duration::from_millis(10),
        Duration::from_millis(50),
    ] {
        for run in 0..4 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "channel::tests::sends_until_it_is_killed",
                    "--exact",
                    "--nocapture",
                ])
                .env("STOPGAP_CHANNEL", &path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let options = Options { idle, ..small() };
            let mut server = listener.accept(&options).unwrap();
            let receiving = thread::spawn(move || {
                let mut got = Vec::new();
                for number in 0.. {
                    match server.recv(&mut got, SOON) {
                        Ok(()) => assert!(got == message(number), "{number}"),
                        Err(error) => return (number, error, Instant::now()),
                    }
                }
                unreachable!()
            });
            thread::sleep(Duration::from_millis(20 + 7 * run));
            let killed = Instant::now();
            child.kill().unwrap();
            let (count, error, seen) = receiving.join().unwrap();
            child.wait().unwrap();
            let mut said = String::new();
            child
                .stdout
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            assert!(said.contains("connected"), "{said}");
            assert_eq!(error, Error::PeerGone);
            let after = seen.saturating_duration_since(killed);
            println!("idle {idle:?}: {count} messages, death seen after {after:?}");
            assert!(after < idle + Duration::from_secs(5), "{after:?}");
        }
    }
    std::fs::remove_file(&path).unwrap();
}
