//! Files that are read while the recorder still writes them.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Whether a file is complete, shared between its reader and whoever learns that.
pub(crate) type Complete = Rc<Cell<bool>>;

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 16;

/// The whole lines of a file that may grow: a line that is not ended yet comes when its end has come, or when the file is
/// complete. The end of what is there is the end of the file for now; reading on later gives what has come since.
pub(crate) struct WholeLines<R> {
    from: R,
    complete: Complete,
    bytes: Vec<u8>,
    /// Bytes that were given.
    given: usize,
    /// Bytes of whole lines.
    whole: usize,
}

impl<R: Read> WholeLines<R> {
    pub(crate) fn new(from: R, complete: Complete) -> WholeLines<R> {
        WholeLines {
            from,
            complete,
            bytes: Vec::new(),
            given: 0,
            whole: 0,
        }
    }
}

impl<R: Read> Read for WholeLines<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.given == self.whole {
            self.bytes.drain(..self.given);
            self.given = 0;
            let held = self.bytes.len();
            self.bytes.resize(held + CHUNK, 0);
            let read = self.from.read(&mut self.bytes[held..]);
            let count = *read.as_ref().unwrap_or(&0);
            self.bytes.truncate(held + count);
            let newline = self.bytes.iter().rposition(|&byte| byte == b'\n');
            self.whole = newline.map_or(0, |at| at + 1);
            if read? == 0 {
                if self.complete.get() {
                    self.whole = self.bytes.len();
                }
                break;
            }
        }
        let count = to.len().min(self.whole - self.given);
        to[..count].copy_from_slice(&self.bytes[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A file that others append to.
    struct Pipe(Rc<RefCell<Vec<u8>>>);

    impl Read for Pipe {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let mut bytes = self.0.borrow_mut();
            let count = to.len().min(bytes.len());
            to[..count].copy_from_slice(&bytes[..count]);
            bytes.drain(..count);
            Ok(count)
        }
    }

    #[test]
    fn half_a_line_waits_for_its_end() {
        let file = Rc::new(RefCell::new(Vec::new()));
        let complete = Complete::default();
        let mut lines = WholeLines::new(Pipe(Rc::clone(&file)), Rc::clone(&complete));
        let mut next = || {
            let mut text = String::new();
            lines.read_to_string(&mut text).unwrap();
            text
        };
        file.borrow_mut().extend(b"one\ntw");
        assert_eq!(next(), "one\n");
        assert_eq!(next(), "");
        file.borrow_mut().extend(b"o\nthr");
        assert_eq!(next(), "two\n");
        complete.set(true);
        assert_eq!(next(), "thr");
        assert_eq!(next(), "");
    }
}
