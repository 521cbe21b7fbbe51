//! Decoding a trace's columns in a thread of its own: with a second CPU, rows are ready when the explanation of those before is.

use std::io::{Read, Seek};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use stopgap_trace::file::{Ahead, Batch, Columns};
use stopgap_trace::{Error, Input, Place};

use crate::library;

/// Batches that are decoded and not explained yet. Each has some 200 KiB.
const READY: usize = 4;

/// Batches from the thread that decodes, which ends with this.
struct Decoder {
    /// `None` once nobody wants more.
    ready: Option<Receiver<Option<Result<Batch, Error>>>>,
    spent: Sender<Batch>,
    thread: Option<JoinHandle<()>>,
}

/// Reads `input` with its columns decoded in another thread. Where there is one CPU to use, or no thread can be made, this one
/// decodes.
pub(crate) fn decoded<R: Read + Seek + Send + 'static>(input: Input<R>) -> Input<R> {
    let has_two = thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if !has_two || !library::may_use_two_cpus() {
        return input;
    }
    let (begin, begins) = mpsc::channel::<Columns<R>>();
    let (sends, ready) = mpsc::sync_channel(READY);
    let (spent, returned) = mpsc::channel();
    let decodes = move || {
        let Ok(mut columns) = begins.recv() else {
            return; // not a file of columns
        };
        loop {
            let batch = columns.next(returned.try_recv().unwrap_or_default());
            let over = !matches!(batch, Some(Ok(_)));
            if sends.send(batch).is_err() || over {
                return;
            }
        }
    };
    let Ok(thread) = thread::Builder::new()
        .name("decode".to_owned())
        .spawn(decodes)
    else {
        return input;
    };
    input.ahead(|columns| -> Ahead {
        let _ = begin.send(columns); // it waits for them
        let mut decoder = Decoder {
            ready: Some(ready),
            spent,
            thread: Some(thread),
        };
        Box::new(move |batch| decoder.next(batch))
    })
}

impl Decoder {
    /// Takes a batch whose rows are read, and returns the next one.
    fn next(&mut self, read: Batch) -> Option<Result<Batch, Error>> {
        let _ = self.spent.send(read); // a thread that has ended needs none
        match self.ready.as_ref()?.recv() {
            Ok(next) => next,
            Err(_) => Some(Err(Error::new(
                Place::File,
                "the thread that decodes it has ended; this is a fault of stopgap",
            ))),
        }
    }
}

impl Drop for Decoder {
    /// Waits until the thread has closed the file and taken away the progress bar.
    fn drop(&mut self) {
        self.ready = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has been printed, and is an error of the reader
        }
    }
}
