//! Every function, called as C would: panics, failing system calls, what is no handle; and whether the header says
//! the same as the code.

use std::ffi::{c_int, c_void};
use std::io::Read;
use std::mem::size_of;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::ptr::{self, null, null_mut};

use ::stopgap_arena::chunked::{Defrag, Why};
use ::stopgap_arena::inject::failing;
use proptest::prelude::*;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use stopgap_testing::{Skip, skip};

use crate::arena::*;
use crate::buffer::*;
use crate::channel::*;
use crate::failure::inject::{Panic, panicking};
use crate::failure::*;
use crate::given;
use crate::handle::*;
use crate::sched::*;
use crate::set::*;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn set_errno(value: c_int) {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = value };
}

/// Returns whether C sees a failure.
fn failed<T: Answer<C = T> + PartialEq>(value: &T) -> bool {
    *value == T::FAILED
}

/// One of each.
struct World {
    arena: *mut stopgap_arena,
    address: *mut c_void,
    buffer: *mut stopgap_buffer,
    set: *mut stopgap_set,
    held: *mut stopgap_held,
    channel: *mut stopgap_channel,
    peer: *mut stopgap_channel,
    listener: *mut stopgap_listener,
    writer: *mut stopgap_writer,
    stream: UnixStream,
    /// The handles are the world's own. With what has to stay: a client of the listener, the folder of its socket.
    closes: Option<(OwnedFd, tempfile::TempDir)>,
}

fn arena_options() -> stopgap_arena_options {
    // SAFETY: a struct of integers.
    let mut options: stopgap_arena_options = unsafe { std::mem::zeroed() };
    options.size = size_of::<stopgap_arena_options>();
    options.window = 16 << 20;
    options
}

fn sockets() -> [c_int; 2] {
    let (flags, none) = (SocketFlags::CLOEXEC, None);
    let made = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, none);
    let (one, two) = made.unwrap();
    [one.into_raw_fd(), two.into_raw_fd()]
}

/// A client that connects and says nothing, so that an accept need not wait.
fn silent_client(path: &std::ffi::CStr) -> OwnedFd {
    let (flags, none) = (SocketFlags::CLOEXEC, None);
    let client = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, none).unwrap();
    net::connect(&client, &SocketAddrUnix::new(path).unwrap()).unwrap();
    client
}

fn path(folder: &tempfile::TempDir) -> std::ffi::CString {
    std::ffi::CString::new(folder.path().join("socket").to_str().unwrap()).unwrap()
}

impl World {
    /// A world whose handles are all the same, which no function of most kinds may take.
    fn of(handle: *mut c_void, address: *mut c_void) -> World {
        World {
            arena: handle.cast(),
            address,
            buffer: handle.cast(),
            set: handle.cast(),
            held: handle.cast(),
            channel: handle.cast(),
            peer: handle.cast(),
            listener: handle.cast(),
            writer: handle.cast(),
            stream: UnixStream::pair().unwrap().0,
            closes: None,
        }
    }

    /// Handles of each kind.
    fn handles(&self) -> [(&'static str, *mut c_void); 7] {
        [
            ("arena", self.arena.cast()),
            ("buffer", self.buffer.cast()),
            ("set", self.set.cast()),
            ("held", self.held.cast()),
            ("listener", self.listener.cast()),
            ("channel", self.channel.cast()),
            ("writer", self.writer.cast()),
        ]
    }

    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let (stream, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let [one, two] = sockets();
        let path = path(&folder);
        // SAFETY: NULL or filled in, and what is given away is not used any more.
        unsafe {
            let arena = stopgap_arena_new(&arena_options());
            let peer = stopgap_channel_over(two, 1, null());
            let set = stopgap_set_new(null());
            let world = World {
                arena,
                address: stopgap_arena_alloc(arena, 4096, 0),
                buffer: stopgap_buffer_new(1, null()),
                set,
                held: stopgap_set_take(set, 1),
                channel: stopgap_channel_over(one, 0, null()),
                peer,
                listener: stopgap_channel_listen(path.as_ptr()),
                writer: stopgap_writer_open(ours.as_raw_fd(), null()),
                stream,
                closes: Some((silent_client(&path), folder)),
            };
            assert!(!world.address.is_null() && !world.peer.is_null());
            assert!(world.handles().iter().all(|(_, handle)| !handle.is_null()));
            world
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.closes.is_none() {
            return;
        }
        // Some are closed already; then it is an error and nothing else.
        // SAFETY: the world is not used any more.
        unsafe {
            stopgap_arena_close(self.arena);
            stopgap_buffer_close(self.buffer);
            stopgap_held_close(self.held);
        }
        stopgap_set_close(self.set);
        stopgap_channel_close(self.channel);
        stopgap_channel_close(self.peer);
        stopgap_listener_close(self.listener);
        stopgap_writer_close(self.writer);
    }
}

/// Every function with arguments that make sense, and the kind of handle it takes.
struct Call {
    name: &'static str,
    takes: &'static str,
    call: fn(&World) -> bool,
}

macro_rules! calls {
    ($($takes:literal { $($name:ident($($argument:expr),*);)* })*) => {
        /// All but `stopgap_version`, which has nothing that could fail.
        #[allow(unused_unsafe)]
        const CALLS: &[Call] = &[$($(Call {
            name: stringify!($name),
            takes: $takes,
            call: {
                fn call(world: &World) -> bool {
                    let _ = world;
                    // SAFETY: arguments that make sense; see `World`.
                    failed(&unsafe { $name($(with(world, $argument)),*) })
                }
                call
            },
        },)*)*];
    };
}

/// Arguments are written as functions of the world.
fn with<T>(world: &World, argument: impl FnOnce(&World) -> T) -> T {
    argument(world)
}

calls! {
    "" {
        stopgap_error_text(|_| null_mut(), |_| 0);
        stopgap_batch_client();
        stopgap_batch_client_end();
        stopgap_arena_new(|_| null());
        stopgap_buffer_new(|_| 1, |_| null());
        stopgap_set_new(|_| null());
        stopgap_channel_listen(|_| c"/nonexistent/x".as_ptr());
        stopgap_channel_connect(|_| c"/nonexistent/x".as_ptr(), |_| null());
        stopgap_channel_over(|_| -1, |_| 0, |_| null());
        stopgap_writer_open(|w| w.stream.as_raw_fd(), |_| null());
    }
    "arena" {
        stopgap_arena_alloc(|w| w.arena, |_| 1, |_| 0);
        stopgap_arena_alloc_uninit(|w| w.arena, |_| 1, |_| 0);
        stopgap_arena_free(|w| w.arena, |w| w.address, |_| 4096);
        stopgap_arena_export(|w| w.arena, |w| w.address, |_| null_mut());
        stopgap_arena_contains(|w| w.arena, |w| w.address);
        stopgap_arena_window(|w| w.arena, |_| null_mut(), |_| null_mut());
        stopgap_arena_trim(|w| w.arena, |_| null_mut());
        stopgap_arena_decay(|w| w.arena, |_| null_mut());
        stopgap_arena_stat(|w| w.arena, |_| null_mut());
        stopgap_arena_close(|w| w.arena);
    }
    "buffer" {
        stopgap_buffer_address(|w| w.buffer);
        stopgap_buffer_stat(|w| w.buffer, |_| null_mut());
        stopgap_buffer_got(|w| w.buffer, |_| 0, |_| null_mut());
        stopgap_buffer_chunks(|w| w.buffer, |_| 0, |_| null_mut(), |_| null_mut());
        stopgap_buffer_text(|w| w.buffer, |_| null_mut(), |_| 0);
        stopgap_buffer_close(|w| w.buffer);
    }
    "set" {
        stopgap_set_take(|w| w.set, |_| 1);
        stopgap_set_take_shareable(|w| w.set, |_| 1);
        stopgap_set_take_file(|w| w.set, |_| -1, |_| 0, |_| 1);
        stopgap_set_flush(|w| w.set, |_| null_mut());
        stopgap_set_react(|w| w.set, |_| null_mut());
        stopgap_set_poll_pressure(|w| w.set, |_| null_mut());
        stopgap_set_pressure_fd(|w| w.set);
        stopgap_set_watch(|w| w.set);
        stopgap_set_watch_end(|w| w.set);
        stopgap_set_stat(|w| w.set, |_| null_mut());
        stopgap_set_close(|w| w.set);
    }
    "held" {
        stopgap_held_address(|w| w.held);
        stopgap_held_length(|w| w.held);
        stopgap_held_way(|w| w.held);
        stopgap_held_is_writable(|w| w.held);
        stopgap_held_file(|w| w.held, |_| null_mut());
        stopgap_held_release(|w| w.held);
        stopgap_held_purgeable(|w| w.held);
        stopgap_held_keep(|w| w.held);
        stopgap_held_close(|w| w.held);
    }
    "listener" {
        stopgap_listener_fd(|w| w.listener);
        stopgap_channel_accept(|w| w.listener, |_| null());
        stopgap_listener_close(|w| w.listener);
    }
    "channel" {
        stopgap_channel_send(|w| w.channel, |_| c"x".as_ptr().cast(), |_| 1, |_| 0);
        stopgap_channel_send_fds(|w| w.channel, |_| c"x".as_ptr().cast(), |_| 1, |_| null(), |_| 0, |_| 0);
        stopgap_channel_flush(|w| w.channel);
        stopgap_channel_recv(|w| w.channel, |_| null_mut(), |_| 0, |_| 0);
        stopgap_channel_call(|w| w.channel, |_| null(), |_| 0, |_| null_mut(), |_| 0, |_| 0);
        stopgap_channel_next(|w| w.channel, |_| null_mut());
        stopgap_channel_take_fds(|w| w.channel, |_| null_mut(), |_| 0);
        stopgap_channel_arm(|w| w.channel);
        stopgap_channel_fd(|w| w.channel);
        stopgap_channel_check_peer(|w| w.channel);
        stopgap_channel_longest(|w| w.channel);
        stopgap_channel_stat(|w| w.channel, |_| null_mut());
        stopgap_channel_close(|w| w.channel);
    }
    "writer" {
        stopgap_writer_push(|w| w.writer, |_| c"x".as_ptr().cast(), |_| 1);
        stopgap_writer_flush(|w| w.writer);
        stopgap_writer_read(|w| w.writer, |w| w.stream.as_raw_fd(), |_| null_mut(), |_| 0);
        stopgap_writer_due(|w| w.writer, |_| null_mut(), |_| null_mut());
        stopgap_writer_close(|w| w.writer);
    }
}

/// The names of the version script.
fn promised() -> Vec<String> {
    let map =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("stopgap.map")).unwrap();
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    names
        .filter(|name| name.starts_with("stopgap_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn these_tests_call_every_function() {
    let mut called: Vec<_> = CALLS
        .iter()
        .map(|call| call.name)
        .chain(["stopgap_version"])
        .collect();
    called.sort_unstable();
    assert_eq!(called, promised());
}

/// Silences the messages of panics that a test asks for.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    use std::sync::Once;
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&"asked for by a test") {
                usual(info);
            }
        }));
    });
    work()
}

#[test]
fn no_panic_crosses_any_function() {
    for call in CALLS {
        let world = World::new();
        set_errno(0);
        let failed = quietly(|| panicking(Panic::First, || (call.call)(&world)));
        assert!(failed, "{}", call.name);
        assert_eq!(errno(), libc::ENOTRECOVERABLE, "{}", call.name);
        // No handle was looked up, so all arguments are unchanged.
        let fine = stopgap_channel_fd(world.channel);
        assert!(fine >= 0, "{}", call.name);
    }
}

#[test]
fn a_handle_that_a_panic_went_through_can_only_be_closed() {
    for call in CALLS
        .iter()
        .filter(|call| !call.takes.is_empty() && !call.name.ends_with("_close"))
    {
        let world = World::new();
        let failed = quietly(|| panicking(Panic::WithHandle, || (call.call)(&world)));
        assert!(failed && errno() == libc::ENOTRECOVERABLE, "{}", call.name);
        for other in CALLS.iter().filter(|other| other.takes == call.takes) {
            set_errno(0);
            let failed = (other.call)(&world);
            let closes = other.name == format!("stopgap_{}_close", call.takes);
            let expected = (!closes, if closes { 0 } else { libc::ENOTRECOVERABLE });
            let what = format!("{} after {}", other.name, call.name);
            assert_eq!((failed, errno()), expected, "{what}");
        }
        set_errno(0);
        let failed = (call.call)(&world);
        assert!(failed && errno() == libc::EBADF, "{}", call.name);
    }
}

#[test]
fn every_function_refuses_what_is_no_handle_of_its_kind() {
    for call in CALLS.iter().filter(|call| !call.takes.is_empty()) {
        let world = World::new();
        let mut wrong: Vec<*mut c_void> = vec![
            null_mut(),
            ptr::without_provenance_mut(usize::MAX),
            ptr::from_ref(&world).cast_mut().cast(),
            world.address,
        ];
        for (kind, handle) in world.handles() {
            if kind == call.takes {
                // A neighbour of it, and earlier or later users of its place.
                let near = [1 << 16, -(1 << 22), 1 << 22];
                wrong.extend(near.map(|by| handle.wrapping_byte_offset(by)));
            } else {
                wrong.push(handle);
            }
        }
        for handle in wrong {
            let strange = World::of(handle, world.address);
            set_errno(0);
            assert!((call.call)(&strange), "{} took {handle:?}", call.name);
            assert_eq!(errno(), libc::EBADF, "{} with {handle:?}", call.name);
        }
    }
}

#[test]
fn errno_is_as_it_was_where_a_function_succeeds() {
    for call in CALLS {
        let world = World::new();
        set_errno(4711);
        let failed = (call.call)(&world);
        assert_ne!(failed, errno() == 4711, "{}", call.name);
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Each system call of each function fails in turn: the function fails or copes, and what it was called with goes on.
#[test]
fn every_system_call_may_fail() {
    // Other tests of this process open descriptors meanwhile, so they are counted in one of its own.
    if std::env::var_os("STOPGAP_CAPI_ALONE").is_none() {
        let this = "tests::every_system_call_may_fail";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--test-threads=1", "--nocapture"])
            .env("STOPGAP_CAPI_ALONE", "1")
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
        return;
    }
    for call in CALLS {
        let mut made = 0;
        for nth in 1.. {
            drop(World::new());
            let before = descriptors();
            let world = World::new();
            set_errno(0);
            let calls = failing(nth, Errno::NOMEM, || (call.call)(&world));
            if calls.failed.is_none() {
                made = calls.made;
                break;
            }
            if calls.result {
                assert_ne!(errno(), 0, "{} {:?}", call.name, calls.failed);
            }
            // Whatever happened, the others of the world work, and all that was opened is closed with it.
            assert!(call.takes == "channel" || stopgap_channel_fd(world.channel) >= 0);
            drop(world);
            let after = descriptors();
            // Nothing closes the handles that these calls return.
            let kept = matches!(
                call.name,
                "stopgap_set_new"
                    | "stopgap_channel_listen"
                    | "stopgap_arena_new"
                    | "stopgap_writer_open"
                    | "stopgap_held_file"
                    | "stopgap_set_take_shareable"
                    | "stopgap_set_take"
            );
            assert!(
                after == before || kept && !calls.result,
                "{}: {before} descriptors, then {after} after {:?} failed",
                call.name,
                calls.failed
            );
        }
        println!("{}: {made} system calls", call.name);
    }
}

/// Fills buffers of C programs that are too long, too short, of no version.
mod sizes {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Known {
        size: usize,
        one: u64,
        two: u64,
    }

    // SAFETY: integers of 8 bytes each, the size first.
    unsafe impl given::Struct for Known {
        const FIRST: usize = 16;
    }

    proptest! {
        #[test]
        fn what_is_short_reads_as_zero_and_what_is_longer_must_be(
            bytes in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 8..64),
            off in 0_usize..8,
        ) {
            // At any address.
            let mut memory = vec![0xaa_u8; 8 + bytes.len()];
            let at = &mut memory[off..off + bytes.len()];
            at.copy_from_slice(&bytes);
            at[..8].copy_from_slice(&bytes.len().to_ne_bytes());
            // SAFETY: as long as it says.
            let read = unsafe { given::read(at.as_ptr().cast::<Known>()) };
            let word = |i: usize| {
                let mut word = [0; 8];
                let rest = at.get(i..).unwrap_or(&[]);
                let length = rest.len().min(8);
                word[..length].copy_from_slice(&rest[..length]);
                u64::from_ne_bytes(word)
            };
            let tail = at.get(24..).unwrap_or(&[]);
            match read {
                Ok(known) => {
                    prop_assert!(bytes.len() >= 16 && tail.iter().all(|&byte| byte == 0));
                    prop_assert_eq!((known.one, known.two), (word(8), word(16)));
                }
                Err(failure) if bytes.len() < 16 => prop_assert_eq!(failure.errno(), libc::EINVAL),
                Err(failure) => {
                    prop_assert_eq!(failure.errno(), libc::E2BIG);
                    prop_assert!(tail.iter().any(|&byte| byte != 0));
                }
            }
        }

        #[test]
        fn no_byte_beyond_the_size_is_written(length in 0_usize..64, off in 0_usize..8, one: u64, two: u64) {
            let mut memory = vec![0xaa_u8; 8 + 64 + 8];
            memory[off..off + 8].copy_from_slice(&length.to_ne_bytes());
            let value = Known { size: 1, one, two };
            // SAFETY: more room than any of the lengths says.
            let wrote = unsafe { given::write(memory[off..].as_mut_ptr().cast::<Known>(), &value, "it") };
            prop_assert_eq!(wrote.is_ok(), length >= 16);
            let mut expected = vec![0xaa_u8; memory.len()];
            expected[off..off + 8].copy_from_slice(&length.to_ne_bytes());
            if length >= 16 {
                let mut whole = [one.to_ne_bytes(), two.to_ne_bytes()].concat();
                whole.resize(64, 0);
                expected[off + 8..off + length].copy_from_slice(&whole[..length - 8]);
            }
            prop_assert_eq!(memory, expected);
        }
    }

    #[test]
    fn absurd_sizes_are_not_followed() {
        for size in [0, 1, 7, 4097, usize::MAX] {
            let known = Known {
                size,
                one: 0,
                two: 0,
            };
            // SAFETY: what is refused is not read.
            let read = unsafe { given::read(&known) };
            assert_eq!(read.err().map(Failure::errno), Some(libc::EINVAL), "{size}");
        }
        // SAFETY: NULL.
        let usual = unsafe { given::read(null::<Known>()) }.unwrap();
        assert_eq!((usual.size, usual.one, usual.two), (0, 0, 0));
        // SAFETY: NULL.
        let nowhere = unsafe { given::write(null_mut(), &usual, "it") };
        assert_eq!(nowhere.err().map(Failure::errno), Some(libc::EFAULT));
    }
}

/// Sizes, offsets and constants that stand in the header and in the code.
#[test]
fn the_header_and_the_code_agree() {
    let structs = [
        stopgap_arena_options::layout(),
        stopgap_arena_statistics::layout(),
        stopgap_buffer_options::layout(),
        stopgap_buffer_statistics::layout(),
        stopgap_buffer_pages::layout(),
        stopgap_set_options::layout(),
        stopgap_purged::layout(),
        stopgap_set_statistics::layout(),
        stopgap_writer_options::layout(),
        stopgap_channel_options::layout(),
        stopgap_channel_statistics::layout(),
    ];
    let all = structs.concat().into_iter();
    let mut expected: Vec<_> = all.map(|(what, value)| (what, value as u64)).collect();
    let header =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/stopgap.h"))
            .unwrap();
    // Without comments, which may end a line as a field does.
    let mut code = String::new();
    let mut rest = header.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").unwrap().1;
    }
    let header = code + rest;
    // No struct and no field of the header is missing above.
    let of = |what: &str| {
        expected
            .iter()
            .filter(|(name, _)| name.starts_with(what))
            .count()
    };
    let count = |text: &str| header.matches(text).count();
    assert_eq!(of("sizeof"), count("\nstruct stopgap_"));
    let fields = count(";\n") - count(");\n") - count("};\n") - count("\ntypedef ");
    assert_eq!(of("offsetof"), fields);

    let reasons = [
        (Why::NoSuchSize, "NO_SUCH_SIZE"),
        (Why::NoThp, "NO_THP"),
        (Why::NotEnabled, "NOT_ENABLED"),
        (Why::WouldCompact(Defrag::Always), "WOULD_COMPACT"),
        (Why::SwitchedOff, "SWITCHED_OFF"),
        (Why::Unknown, "UNKNOWN"),
        (Why::AdviceRefused, "ADVICE_REFUSED"),
        (Why::Unaligned, "UNALIGNED"),
        (Why::Deadline, "DEADLINE"),
        (Why::PoolEmpty, "POOL_EMPTY"),
        (Why::PoolGrows, "POOL_GROWS"),
        (Why::PoolRefused, "POOL_REFUSED"),
    ];
    let words = reasons.map(|(why, word)| (format!("STOPGAP_WHY_{word}"), reason(why)));
    expected.extend(words);
    expected.push(("STOPGAP_WHY_OTHER".to_owned(), 255));

    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    let mut program =
        "#include <stddef.h>\n#include <stdio.h>\n#include <stopgap.h>\nint main(void)\n{\n"
            .to_owned();
    for (what, _) in &expected {
        program += &format!("\tprintf(\"%s=%lu\\n\", \"{what}\", (unsigned long){what});\n");
    }
    program += "\treturn 0;\n}\n";
    std::fs::write(&source, program).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let program = folder.path().join("layout");
    let compiled = Command::new("cc")
        .arg("-I")
        .arg(include)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    match compiled {
        Ok(status) => assert!(status.success()),
        Err(error) => return skip(&Skip::program(format_args!("cc: {error}"))),
    }
    let output = Command::new(&program).output().unwrap();
    let expected: String = expected
        .iter()
        .map(|(what, value)| format!("{what}={value}\n"))
        .collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

/// Random calls by a caller who makes every mistake that can be made with handles, addresses and lengths. An oracle
/// knows what is open; what is given out never overlaps and keeps its bytes.
mod misuse {
    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Open,
        Alloc {
            arena: usize,
            length: usize,
            align: usize,
            zeroed: bool,
        },
        Free {
            arena: usize,
            buffer: usize,
            offset: isize,
            more: isize,
        },
        Stat {
            arena: usize,
            size: usize,
        },
        Close {
            arena: usize,
        },
        Other {
            call: usize,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        let length = prop_oneof![
            4 => 0_usize..70_000,
            1 => prop::sample::select(vec![usize::MAX, usize::MAX - 4095, isize::MAX as usize, 1 << 20, 1 << 24]),
        ];
        let align = prop_oneof![4 => Just(0), 2 => (0_u32..64).prop_map(|bit| 1 << bit), 1 => any::<usize>()];
        prop_oneof![
            1 => Just(Step::Open),
            8 => (any::<usize>(), length, align, any::<bool>())
                .prop_map(|(arena, length, align, zeroed)| Step::Alloc { arena, length, align, zeroed }),
            8 => (
                any::<usize>(),
                any::<usize>(),
                prop_oneof![6 => Just(0), 1 => Just(4096), 1 => -5000_isize..5000],
                prop_oneof![6 => Just(0), 1 => -5000_isize..5000],
            )
                .prop_map(|(arena, buffer, offset, more)| Step::Free { arena, buffer, offset, more }),
            1 => (any::<usize>(), 0_usize..300).prop_map(|(arena, size)| Step::Stat { arena, size }),
            1 => any::<usize>().prop_map(|arena| Step::Close { arena }),
            1 => any::<usize>().prop_map(|call| Step::Other { call }),
        ]
    }

    struct Given {
        arena: usize,
        address: *mut u8,
        length: usize,
        byte: u8,
        live: bool,
    }

    impl Given {
        /// Its first and last bytes are what was written.
        fn is_whole(&self) -> bool {
            // SAFETY: live, by the oracle.
            unsafe {
                self.address.read() == self.byte
                    && self.address.add(self.length - 1).read() == self.byte
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn is_refused_and_changes_nothing(steps in prop::collection::vec(step(), 1..250)) {
            // Handle, and whether it is open.
            let mut arenas: Vec<(*mut stopgap_arena, bool)> = vec![(null_mut(), false)];
            let mut given: Vec<Given> = Vec::new();
            let page = rustix::param::page_size();
            for step in steps {
                set_errno(4711);
                match step {
                    Step::Open => {
                        // SAFETY: filled in.
                        let arena = unsafe { stopgap_arena_new(&arena_options()) };
                        prop_assert!(!arena.is_null());
                        prop_assert!(arenas.iter().all(|(other, _)| *other != arena));
                        arenas.push((arena, true));
                    }
                    Step::Alloc { arena, length, align, zeroed } => {
                        let arena = arena % arenas.len();
                        let (handle, open) = arenas[arena];
                        let call = if zeroed { stopgap_arena_alloc } else { stopgap_arena_alloc_uninit };
                        let address = call(handle, length, align).cast::<u8>();
                        if address.is_null() {
                            let expected: &[c_int] = match (open, length, align) {
                                (false, ..) => &[libc::EBADF],
                                (_, 0, _) => &[libc::EINVAL],
                                // Two mistakes at once: the errno may be of either.
                                (_, length, align) if align.count_ones() > 1 && length > 16 << 20 => {
                                    &[libc::EINVAL, libc::ENOMEM]
                                }
                                (_, _, align) if align.count_ones() > 1 => &[libc::EINVAL],
                                _ => &[libc::ENOMEM],
                            };
                            prop_assert!(expected.contains(&errno()), "{} for {} at {}", errno(), length, align);
                            continue;
                        }
                        prop_assert!(open && length > 0 && errno() == 4711);
                        prop_assert_eq!(address.addr() % align.max(page), 0);
                        let whole = length.next_multiple_of(page);
                        for other in given.iter().filter(|other| other.live) {
                            let end = other.address.addr() + other.length.next_multiple_of(page);
                            prop_assert!(address.addr() >= end || address.addr() + whole <= other.address.addr());
                        }
                        let byte = (given.len() % 251) as u8 + 1;
                        // SAFETY: given out just now, and that long.
                        unsafe {
                            if zeroed {
                                // By memcmp: an iterator takes seconds where nothing is optimised.
                                let bytes = std::slice::from_raw_parts(address, whole);
                                prop_assert!(bytes == vec![0; whole]);
                            }
                            address.write_bytes(byte, length);
                        }
                        given.push(Given { arena, address, length, byte, live: true });
                    }
                    Step::Free { arena, buffer, offset, more } => {
                        if given.is_empty() {
                            continue;
                        }
                        let buffer = buffer % given.len();
                        // Mostly of its own arena.
                        let arena = if arena % 8 == 0 { arena / 8 % arenas.len() } else { given[buffer].arena };
                        let address = given[buffer].address.wrapping_byte_offset(offset);
                        let length = given[buffer].length.wrapping_add_signed(more);
                        let right = given.iter().position(|one| {
                            let pages = |bytes: usize| bytes.div_ceil(page);
                            one.live && one.arena == arena && one.address == address && pages(one.length) == pages(length) && length > 0
                        });
                        if let Some(right) = right {
                            prop_assert!(given[right].is_whole());
                        }
                        // SAFETY: what is live is not used after this.
                        let freed = unsafe { stopgap_arena_free(arenas[arena].0, address.cast(), length) };
                        match right {
                            Some(right) => {
                                prop_assert_eq!((freed, errno()), (0, 4711));
                                given[right].live = false;
                            }
                            None => {
                                prop_assert_eq!(freed, -1);
                                let expected = if arenas[arena].1 { libc::EINVAL } else { libc::EBADF };
                                prop_assert_eq!(errno(), expected);
                            }
                        }
                    }
                    Step::Stat { arena, size } => {
                        let arena = arena % arenas.len();
                        let mut memory = [0xaa_u8; 400];
                        memory[..8].copy_from_slice(&size.to_ne_bytes());
                        // SAFETY: there is room for more than it says.
                        let said = unsafe { stopgap_arena_stat(arenas[arena].0, memory.as_mut_ptr().cast()) };
                        prop_assert_eq!(said == 0, arenas[arena].1 && size >= size_of::<stopgap_arena_statistics>());
                        prop_assert!(memory[size.max(8)..].iter().all(|&byte| byte == 0xaa));
                    }
                    Step::Close { arena } => {
                        let arena = arena % arenas.len();
                        // SAFETY: what lies in it is not used after this.
                        let closed = unsafe { stopgap_arena_close(arenas[arena].0) };
                        prop_assert_eq!(closed == 0, arenas[arena].1);
                        arenas[arena].1 = false;
                        for one in given.iter_mut().filter(|one| one.arena == arena) {
                            one.live = false;
                        }
                    }
                    Step::Other { call } => {
                        // A function of another kind, with a handle of an arena's.
                        let call = &CALLS[call % CALLS.len()];
                        if call.takes.is_empty() || call.takes == "arena" {
                            continue;
                        }
                        let handle: *mut c_void = arenas[arenas.len() - 1].0.cast();
                        let strange = World::of(handle, null_mut());
                        prop_assert!((call.call)(&strange) && errno() == libc::EBADF, "{}", call.name);
                    }
                }
            }
            for one in given.iter().filter(|one| one.live) {
                prop_assert!(one.is_whole());
            }
            for (arena, open) in arenas {
                // SAFETY: nothing of it is used any more.
                prop_assert_eq!(unsafe { stopgap_arena_close(arena) } == 0, open);
            }
        }
    }
}

/// A second thread in a call with what takes one at a time is refused and does not wait.
#[test]
fn one_call_at_a_time() {
    let world = World::new();
    let busy = CHANNELS.call(world.channel, |channel| {
        let taken = one_call(channel)?;
        assert_eq!(
            (stopgap_channel_flush(world.channel), errno()),
            (-1, libc::EBUSY)
        );
        drop(taken);
        assert_eq!(
            (stopgap_channel_close(world.channel), errno()),
            (-1, libc::EBUSY)
        );
        Ok(())
    });
    assert_eq!(busy, 0);
    assert_eq!(stopgap_channel_flush(world.channel), 0);
    assert_eq!(stopgap_channel_close(world.channel), 0);
}

/// The descriptors of an end that is closed are, too; and the other end sees it.
#[test]
fn a_closed_writer_is_seen_as_the_end() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let fd = theirs.into_raw_fd();
    // SAFETY: NULL is all usual; `fd` is closed once.
    unsafe {
        let writer = stopgap_writer_open(fd, null());
        libc::close(fd);
        assert_eq!(stopgap_writer_push(writer, c"all".as_ptr().cast(), 3), 1);
        assert_eq!(stopgap_writer_close(writer), 0);
    }
    let mut all = Vec::new();
    ours.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"all");
}
