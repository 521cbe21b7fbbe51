//! The two programs, a step at a time: the probe's client and server.

use super::prices::Prices;
use stopgap_events::roundtrip::{Cell, ClientWait, Reply};

/// Next step of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// In user mode, nanoseconds: its own, and those of the cell.
    User { own: u64, told: u64 },
    /// A write of so many messages.
    Write(u32),
    /// Waits until there is something to read.
    Wait,
    /// Reads all that is there; waits where there is nothing.
    Read,
}

/// A program and where it is.
#[derive(Debug)]
pub(super) enum Program {
    Client(Client),
    Server(Server),
}

impl Program {
    /// The next step, after the one before is done.
    pub(super) fn next(&mut self, cell: &Cell, prices: &Prices) -> Step {
        match self {
            Program::Client(client) => client.next(cell, prices),
            Program::Server(server) => server.next(cell, prices),
        }
    }

    /// A read gave so many messages; says whether a round trip is over with them.
    pub(super) fn took(&mut self, messages: u32) -> bool {
        match self {
            Program::Client(client) => {
                client.awaited -= messages;
                client.awaited == 0
            }
            Program::Server(server) => {
                server.asked += messages;
                false
            }
        }
    }
}

/// think, write, then [wait,] read until all replies are here.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Replies that are still to come.
    awaited: u32,
    thought: bool,
    waited: bool,
}

impl Client {
    fn next(&mut self, cell: &Cell, prices: &Prices) -> Step {
        if self.awaited > 0 {
            if cell.client != ClientWait::Read && !self.waited {
                self.waited = true;
                return Step::Wait;
            }
            self.waited = false;
            return Step::Read;
        }
        if !self.thought {
            self.thought = true;
            return Step::User {
                own: prices.client_loop,
                told: cell.think.0,
            };
        }
        self.thought = false;
        self.waited = false;
        self.awaited = cell.batch;
        Step::Write(cell.batch)
    }
}

/// wait, read, then work on each request and answer it, or all in the end.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Requests that were read and not yet answered.
    asked: u32,
    /// How many of them were worked on.
    worked: u32,
    waited: bool,
}

impl Server {
    fn next(&mut self, cell: &Cell, prices: &Prices) -> Step {
        let answer = match cell.reply {
            Reply::Each => self.worked > 0,
            Reply::Together => self.asked > 0 && self.worked == self.asked,
        };
        if answer {
            self.asked -= self.worked;
            return Step::Write(std::mem::take(&mut self.worked));
        }
        if self.asked > 0 {
            self.worked += 1;
            return Step::User {
                own: match cell.work.0 {
                    0 => 0,
                    _ => prices.server_loop,
                },
                told: cell.work.0,
            };
        }
        self.waited = !self.waited;
        if self.waited { Step::Wait } else { Step::Read }
    }
}
