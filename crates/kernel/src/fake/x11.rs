//! A machine without X.

use super::Fake;
use crate::error::{Error, Result};
use crate::x11::{X11, XServer};

fn absent<T>() -> Result<T> {
    let advice = "install xvfb and x11-utils";
    Err(Error::unsupported("an X server", advice))
}

impl X11 for Fake {
    fn x_programs(&self) -> Result<()> {
        absent()
    }

    fn start_x(&self, _: u32, _: &[u32]) -> Result<Box<dyn XServer>> {
        absent()
    }
}
