//! A guest's serial port: bytes into lines. Pure.

use std::collections::VecDeque;

use stopgap_guest::protocol::{Line, MARKER};

/// So many of the other lines are kept.
pub(super) const TAIL: usize = 60;
/// A longer line is shown cut, in characters.
const WIDEST: usize = 300;
/// A longer line is no line of ours, in bytes.
const LONGEST: usize = 4 << 20;
/// No guest of ours writes more, in bytes. Its serial port would need 50 minutes of its clock for that.
pub(super) const MOST: usize = 32 << 20;

#[derive(Debug, Default)]
pub(super) struct Console {
    /// Bytes of the line that has not ended.
    open: Vec<u8>,
    /// Our own lines.
    pub(super) marked: Vec<String>,
    /// The last of the others.
    pub(super) tail: VecDeque<String>,
    /// Bytes that came.
    pub(super) taken: usize,
    /// Whether the guest's last line came through whole.
    pub(super) done: bool,
    /// Why the kernel panicked first.
    pub(super) panic: Option<String>,
}

impl Console {
    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        self.taken = self.taken.saturating_add(bytes.len());
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.open.extend_from_slice(&bytes[..end]);
            self.close();
            bytes = &bytes[end + 1..];
        }
        self.open.extend_from_slice(bytes);
        if self.open.len() > LONGEST {
            self.close();
        }
    }

    /// The guest has ended: what it wrote last is a line, too.
    pub(super) fn finish(&mut self) {
        if !self.open.is_empty() {
            self.close();
        }
    }

    fn close(&mut self) {
        let line = std::mem::take(&mut self.open);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        // Text before the marker is a kernel message that was interrupted.
        if let Some(at) = line.find(MARKER) {
            self.show(&line[..at]);
            let marked = &line[at..];
            self.done |= is_last(marked);
            self.marked.push(marked.to_owned());
        } else {
            self.show(line);
        }
    }

    fn show(&mut self, line: &str) {
        let text = plain(line);
        let text = text.trim_end();
        if text.is_empty() {
            return;
        }
        // The first one is the cause; what follows it is a consequence.
        if self.panic.is_none()
            && let Some((_, after)) = text.split_once("Kernel panic - not syncing: ")
        {
            self.panic = Some(after.to_owned());
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(text.to_owned());
    }
}

/// Whether a marked line is the guest's last, and came through whole.
fn is_last(marked: &str) -> bool {
    // Lines of counts are long: only what may be the last is read to its end.
    marked.contains("\"done\"") && matches!(Line::parse(marked), Some(Ok(Line::Done { .. })))
}

/// Without terminal sequences and control characters, at most [`WIDEST`] characters.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut length = 0;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            // ESC [ ... letter, or ESC and one character.
            if chars.next() == Some('[') {
                chars.by_ref().find(|c| !matches!(c, '0'..='9' | ';' | '?'));
            }
            continue;
        }
        if length == WIDEST {
            text.push_str("...");
            break;
        }
        if c == '\t' {
            text.push(' ');
        } else if !c.is_control() {
            text.push(c);
        } else {
            continue;
        }
        length += 1;
    }
    text
}
