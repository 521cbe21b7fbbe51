//! The server: waits for its descriptors, reads, works, answers.

use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::roundtrip::{Cell, Reply};
use stopgap_kernel::ipc::{Endpoint, Waiter};
use stopgap_kernel::{Error, System};

use super::meter::{Meter, Window};

/// Bytes of a request and of a reply: an X request with a few arguments, an X reply.
pub(super) const MESSAGE: usize = 32;

/// A request, by its first byte.
pub(super) mod command {
    /// Work, then answer.
    pub(in super::super) const WORK: u8 = 0;
    /// Open a window when the next request arrives.
    pub(in super::super) const OPEN: u8 = 1;
    /// The same, with records of switches.
    pub(in super::super) const OPEN_RECORDED: u8 = 2;
    /// Close the window.
    pub(in super::super) const CLOSE: u8 = 3;
}

/// Figures that the server measured.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Served {
    /// In the order in which the client had them opened.
    pub(super) windows: Vec<Window>,
    pub(super) missing: Vec<Missing>,
}

/// Serves until the client closes its end or dies. It does not look at Ctrl-C itself: the
/// client does, closes its window and goes, so that what was counted is whole.
pub(super) fn serve(system: &dyn System, cell: &Cell, client: &Endpoint) -> Result<Served, Error> {
    let idle: Vec<_> = (1..cell.descriptors)
        .map(|_| system.stream_pair())
        .collect::<Result<_, _>>()?;
    let mut watched = vec![client];
    watched.extend(idle.iter().map(|(ours, _)| ours));
    let mut waiter = Waiter::new(cell.server, &watched)?;
    let mut meter = Meter::new(system);
    let mut windows = Vec::new();
    // A window runs from the arrival of its first request to that of CLOSE: as many waits as
    // round trips, on both sides.
    let (mut opening, mut open) = (None, None);

    let reply = [0u8; MESSAGE];
    let mut buffer = vec![0u8; (cell.batch as usize * MESSAGE).max(4096)];
    let mut have = 0;
    loop {
        if waiter.wait()? == 0 {
            continue; // a signal
        }
        let count = client.read(&mut buffer[have..])?;
        if count == 0 {
            break;
        }
        if let Some(recorded) = opening.take() {
            open = Some(meter.open(recorded)?);
        }
        have += count;
        let mut answered = 0;
        for request in buffer[..have].chunks_exact(MESSAGE) {
            match request[0] {
                command::OPEN => opening = Some(false),
                command::OPEN_RECORDED => opening = Some(true),
                command::CLOSE => {
                    let closed = open.take().map(|open| meter.close(open));
                    windows.extend(closed.transpose()?);
                }
                // No work is none: spin() reads the CPU clock twice, which takes longer than the write that follows.
                _ if cell.work.0 == 0 => {}
                _ => system.spin(cell.work),
            }
            match cell.reply {
                Reply::Each => client.write_all(&reply)?,
                Reply::Together => answered += 1,
            }
        }
        if answered > 0 {
            client.write_gathered(&reply, answered)?;
        }
        // A request that came in part stays for the next read.
        let whole = have / MESSAGE * MESSAGE;
        buffer.copy_within(whole..have, 0);
        have -= whole;
        meter.drain();
    }
    Ok(Served {
        windows,
        missing: meter.missing(),
    })
}
