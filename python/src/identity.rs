//! A trace's description of itself, and its id.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stopgap_cli::library;
use stopgap_trace::{Input, Metadata, trace_id};

use crate::call::{Error, guarded, held};

/// The id of the trace at `path`, and its description of itself as JSON.
#[pyfunction]
pub(crate) fn identity(py: Python<'_>, path: PathBuf) -> PyResult<(String, String)> {
    guarded(py, move || {
        let name = path.display();
        let wrong = |why: &dyn std::fmt::Display| Error::new_err(format!("{name}: {why}"));
        let file = library::open(&path).map_err(|error| wrong(&error))?;
        of(file).map_err(|why| wrong(&why))
    })
}

/// The same of a trace that a file object of Python reads (binary, with `read` and `seek`), called `name` in errors.
#[pyfunction]
pub(crate) fn identity_of(file: Bound<'_, PyAny>, name: &str) -> PyResult<(String, String)> {
    held(|| {
        let source = io::BufReader::with_capacity(BUFFER, Object(file));
        of(source).map_err(|why| Error::new_err(format!("{name}: {why}")))
    })
}

/// Returns the process of a trace whose memory map `replay_placement` is to take where several have one; `None` where it needs none.
#[pyfunction]
pub(crate) fn busiest(py: Python<'_>, path: PathBuf) -> PyResult<Option<u32>> {
    guarded(py, move || library::busiest(&path).map_err(Error::new_err))
}

/// Bytes that are read of a file object at a time: a call may be a request to a server.
const BUFFER: usize = 64 << 10;

fn of<R: Read + Seek>(mut source: R) -> Result<(String, String), String> {
    let id = trace_id(&mut source).map_err(|error| error.to_string())?;
    source
        .seek(SeekFrom::Start(0))
        .map_err(|error| error.to_string())?;
    let input = Input::new(source).map_err(|error| error.to_string())?;
    let mut metadata: Metadata = input.metadata().clone();
    metadata.files = Vec::new(); // build ids of libraries: most of the text, and no identity
    let json = serde_json::to_string(&metadata).map_err(|error| error.to_string())?;
    Ok((id, json))
}

/// A file object of Python.
struct Object<'py>(Bound<'py, PyAny>);

impl Read for Object<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.call_method1("read", (buffer.len(),))?;
        let bytes = read
            .cast::<PyBytes>()
            .map_err(|_| io::Error::other("its read() gives no bytes; open it in binary mode"))?;
        let bytes = bytes.as_bytes();
        let room = buffer
            .get_mut(..bytes.len())
            .ok_or_else(|| io::Error::other("its read() gives more bytes than it was asked for"))?;
        room.copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

impl Seek for Object<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (offset, whence) = match to {
            SeekFrom::Start(at) => (i128::from(at), 0),
            SeekFrom::Current(by) => (i128::from(by), 1),
            SeekFrom::End(by) => (i128::from(by), 2),
        };
        // pyarrow's seek gives nothing.
        self.0.call_method1("seek", (offset, whence))?;
        Ok(self.0.call_method0("tell")?.extract()?)
    }
}
