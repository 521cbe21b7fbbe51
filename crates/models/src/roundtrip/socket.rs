//! One end of a pair of Unix stream sockets: what has arrived, and whether its reader hears a wake-up.

use std::collections::VecDeque;

/// Reason of a wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Something can be read: one buffer was queued (`sk_data_ready`).
    Data,
    /// There is room to write: the peer has read a buffer and freed it (`sk_write_space`). Whether there was room
    /// before does not matter.
    Room,
}

/// In what call a task sleeps, which decides what wakes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sleep {
    /// select, poll or epoll, for input: hears news that it asked for, and news without a key.
    Polling,
    /// A blocking read: its wait entry has no key, so it hears all.
    Reading,
}

/// Who sleeps like that, wakes by that?
pub(super) fn hears(sleep: Sleep, news: News, keyed: bool) -> bool {
    news == News::Data || sleep == Sleep::Reading || !keyed
}

/// Messages that arrived and were not yet read, by buffer.
#[derive(Debug, Default)]
pub(super) struct Inbox(VecDeque<u32>);

impl Inbox {
    pub(super) fn queue(&mut self, messages: u32) {
        self.0.push_back(messages);
    }

    pub(super) fn has(&self) -> bool {
        !self.0.is_empty()
    }

    /// Reads all; gives the messages, and the buffers that were freed.
    pub(super) fn read(&mut self) -> (u32, usize) {
        let buffers = self.0.len();
        (self.0.drain(..).sum(), buffers)
    }
}
