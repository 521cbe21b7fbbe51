//! Writes lines and counts them, so that the last one has their number.

use std::io::{self, Write};

use crate::protocol::Line;

/// Says lines.
#[derive(Debug)]
pub struct Voice<W> {
    out: W,
    said: u64,
}

impl<W: Write> Voice<W> {
    /// On `out`.
    pub fn new(out: W) -> Voice<W> {
        Voice { out, said: 0 }
    }

    /// Says a line, in one write where `out` takes it.
    ///
    /// # Errors
    /// As write(2).
    pub fn say(&mut self, line: &Line) -> io::Result<()> {
        self.out.write_all(format!("{line}\n").as_bytes())?;
        self.said += 1;
        Ok(())
    }

    /// The last line.
    ///
    /// # Errors
    /// As write(2).
    pub fn done(mut self) -> io::Result<()> {
        let lines = self.said;
        self.say(&Line::Done { lines })?;
        self.out.flush()
    }
}
