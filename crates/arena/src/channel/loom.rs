//! Every order of the ring's atomics, tried by loom: no message is lost, torn or read twice, nobody sleeps for ever.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p stopgap-arena --lib channel::loom
//! ```
//!
//! The futex is a lock and a condition: the kernel, too, compares and goes to sleep in one step. Where nobody wakes a
//! sleeper, loom finds that all threads wait, and fails. What is not modelled: time (no wait ends by itself, as if
//! [`super::Options::idle`] were for ever) and the socket, whose wake-ups stay until they are read.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::own_memory::Own;
use super::ring::{CLIENT, Front, Ring, SERVER, sleep};

/// Words of a way: two messages of one word each.
const WORDS: u32 = 4;

struct World {
    own: Own,
    /// The kernel's queues, one a side. A sleeper holds the lock while it compares.
    kernel: [(Mutex<()>, Condvar); 2],
}

#[derive(Clone)]
struct Model(Arc<World>);

impl std::ops::Deref for Model {
    type Target = Own;

    fn deref(&self) -> &Own {
        &self.0.own
    }
}

impl Model {
    fn new() -> Model {
        let queue = || (Mutex::new(()), Condvar::new());
        Model(Arc::new(World {
            own: Own::new(0, WORDS),
            kernel: [queue(), queue()],
        }))
    }

    /// futex(2), `FUTEX_WAIT`.
    fn wait(&self, side: usize, expected: u32) {
        let (lock, woken) = &self.0.kernel[side];
        let held = lock.lock().unwrap();
        let word = &self.header.sides[side].sleep;
        if word.load(super::sync::Ordering::Relaxed) == expected {
            drop(woken.wait(held).unwrap());
        }
    }

    /// futex(2), `FUTEX_WAKE`.
    fn wake(&self, side: usize) {
        let (lock, woken) = &self.0.kernel[side];
        let _held = lock.lock().unwrap();
        woken.notify_one();
    }
}

/// An end as `end.rs` has it, without time and without a socket.
struct End {
    ring: Ring<Model>,
    model: Model,
    me: usize,
}

impl End {
    fn new(model: &Model, me: usize) -> End {
        End {
            ring: Ring::new(model.clone(), me),
            model: model.clone(),
            me,
        }
    }

    fn flush(&mut self) {
        if self.ring.sleeper().is_some() {
            self.model.wake(1 - self.me);
        }
    }

    fn wait(&mut self, bits: u32, mut ready: impl FnMut(&mut Ring<Model>) -> bool) {
        self.flush();
        while !ready(&mut self.ring) {
            let how = bits | sleep::FUTEX;
            self.ring.falls_asleep(how);
            if !ready(&mut self.ring) {
                self.model.wait(self.me, how);
            }
            self.ring.is_awake();
        }
    }

    fn send(&mut self, message: &[u8]) {
        while !self.ring.push(message, 0).unwrap() {
            let room = super::ring::footprint(message.len() as u32);
            self.wait(sleep::ROOM, |ring| ring.room(room).unwrap());
        }
    }

    fn recv(&mut self) -> u64 {
        self.wait(sleep::MESSAGE, |ring| ring.front().unwrap().is_some());
        let mut message = [0; 8];
        let front = self.ring.front().unwrap();
        assert_eq!(front, Some(Front { length: 8, fds: 0 }));
        self.ring.pop(&mut message);
        u64::from_ne_bytes(message)
    }
}

/// All interleavings with at most so many pre-emptions: loom's own advice is 2 or 3, which finds nearly all faults.
fn model(pre_emptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(pre_emptions);
    builder.check(body);
}

#[test]
fn a_request_and_its_reply() {
    model(4, || {
        let shared = Model::new();
        let mut server = End::new(&shared, SERVER);
        let serving = thread::spawn(move || {
            let request = server.recv();
            server.send(&(request + 1).to_ne_bytes());
            server.flush();
        });
        let mut client = End::new(&shared, CLIENT);
        client.send(&41_u64.to_ne_bytes());
        assert_eq!(client.recv(), 42);
        serving.join().unwrap();
    });
}

#[test]
fn two_replies_cost_at_most_one_wake_and_come_in_order() {
    model(3, || {
        let shared = Model::new();
        let mut server = End::new(&shared, SERVER);
        let serving = thread::spawn(move || {
            server.send(&1_u64.to_ne_bytes());
            server.send(&2_u64.to_ne_bytes());
            server.flush();
        });
        let mut client = End::new(&shared, CLIENT);
        assert_eq!(client.recv(), 1);
        assert_eq!(client.recv(), 2);
        serving.join().unwrap();
    });
}

#[test]
fn who_waits_for_room_is_woken_when_there_is_some() {
    model(3, || {
        let shared = Model::new();
        let mut client = End::new(&shared, CLIENT);
        // The ring holds two.
        let sending = thread::spawn(move || {
            for number in 1..=3_u64 {
                client.send(&number.to_ne_bytes());
            }
            client.flush();
        });
        let mut server = End::new(&shared, SERVER);
        for number in 1..=3 {
            assert_eq!(server.recv(), number);
        }
        server.flush();
        sending.join().unwrap();
    });
}

/// Whether in any order a waiter would sleep, unwoken, beside a message.
fn is_lost(second_look: bool) -> bool {
    let lost = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let found = std::sync::Arc::clone(&lost);
    model(3, move || {
        let shared = Model::new();
        let mut server = End::new(&shared, SERVER).ring;
        let serving = thread::spawn(move || {
            assert!(server.push(&[1; 8], 0).unwrap());
            server.sleeper().is_some()
        });
        let mut client = End::new(&shared, CLIENT).ring;
        let mut sleeps = client.front().unwrap().is_none();
        if sleeps {
            client.falls_asleep(sleep::MESSAGE | sleep::FUTEX);
            sleeps = !second_look || client.front().unwrap().is_none();
        }
        let woken = serving.join().unwrap();
        if sleeps && !woken {
            found.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    lost.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn the_second_look_is_what_saves_the_wake_up() {
    assert!(!is_lost(true));
    // So the model would see it, if it were lost.
    assert!(is_lost(false));
}
