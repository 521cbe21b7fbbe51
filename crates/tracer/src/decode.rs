//! From records of the kernel to events of a trace.
//!
//! Each event of the kernel is a *source*: the fields that it must have and those that it may have,
//! found by name in this kernel's format when the decoder is made, and what they mean together. A
//! field that is gone is a `missing` with its name; without one that it must have, the whole event is.

mod context;
mod io;
mod locks;
mod memory;
mod reclaim;
mod sched;
mod source;
mod syscalls;

use std::collections::HashMap;

use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_trace::{Event, Kind};

use crate::description::Description;
use crate::error::{Error, Result};
use crate::events::{EventSet, STACK, SWITCH};
use crate::format::{Field, Format};
use crate::symbols::Symbols;
use context::Context;
use source::{Fields, Number, Short, Source};

/// Makes events of records. They must come in the order of time over all CPUs: names and processes
/// of threads are learned on the way.
pub struct Decoder {
    sources: HashMap<u16, Known>,
    /// The ids of a switch and of a stack.
    switch: Option<u16>,
    stack: Option<StackFormat>,
    context: Context,
}

struct Known {
    name: String,
    common_pid: Option<Field>,
    source: Box<dyn Source>,
}

/// Where a stack is in its record.
struct StackFormat {
    id: u16,
    common_pid: Option<Field>,
    size: Option<Field>,
    caller: Field,
}

/// The most frames that are taken of a stack; the kernel writes fewer.
const DEEPEST: u64 = 512;

impl Decoder {
    /// A decoder of what `description` describes, with what it will not be able to decode.
    /// An event whose format is not there is not spoken of: whoever captured says why.
    ///
    /// # Errors
    /// Where a format cannot be understood.
    pub fn new(description: &Description, symbols: Symbols) -> Result<(Decoder, Vec<Missing>)> {
        let mut missing = Vec::new();
        let mut sources = HashMap::new();
        let format = |name: &str| -> Result<Option<Format>> {
            let text = description.formats.get(name);
            text.map(|text| Format::parse(&format!("format of {name}"), text))
                .transpose()
        };
        for event in EventSet::All.events() {
            let name = event.to_string();
            let Some(format) = format(&name)? else {
                continue;
            };
            let mut fields = Fields::new(&name, &format, &mut missing);
            if let Some(source) = make(event.event, &mut fields) {
                let common_pid = fields.may("common_pid");
                let known = Known {
                    name: name.clone(),
                    common_pid,
                    source,
                };
                if let Some(other) = sources.insert(format.id, known) {
                    let why = format!("it has the ID {} of {}", format.id, other.name);
                    return Err(Error::description(format!("format of {name}"), why));
                }
            }
        }
        let mut stack = None;
        if let Some(format) = format(&STACK.to_string())? {
            let name = STACK.to_string();
            let mut fields = Fields::new(&name, &format, &mut missing);
            if let Some(caller) = fields.need("caller") {
                stack = Some(StackFormat {
                    id: format.id,
                    common_pid: fields.may("common_pid"),
                    size: fields.may("size"),
                    caller,
                });
            }
        }
        let switch = format(&SWITCH.to_string())?.map(|format| format.id);
        let decoder = Decoder {
            sources,
            switch,
            stack,
            context: Context::new(description, symbols),
        };
        Ok((decoder, missing))
    }

    /// Whether the record `stack` is the kernel stack of the record `switch` just before it.
    #[must_use]
    pub fn belongs(&self, switch: &[u8], stack: &[u8]) -> bool {
        let id = |record: &[u8]| record.first_chunk().map(|&id| u16::from_le_bytes(id));
        let Some(format) = &self.stack else {
            return false;
        };
        let pid = |record: &[u8]| format.common_pid.as_ref()?.unsigned(record);
        id(stack) == Some(format.id)
            && self.switch.is_some()
            && id(switch) == self.switch
            && pid(switch) == pid(stack)
    }

    /// Whether a record is a switch, after which its stack may come.
    #[must_use]
    pub fn is_switch(&self, record: &[u8]) -> bool {
        let id = record.first_chunk().map(|&id| u16::from_le_bytes(id));
        id.is_some() && id == self.switch
    }

    /// The event in a record, `stack` being the record of its stack; `None` for one that says nothing
    /// to anybody else (of another event, or of use to the decoder alone).
    ///
    /// # Errors
    /// A line that names the event, where the record ends before one of its fields.
    pub fn decode(
        &mut self,
        cpu: u32,
        time: u64,
        record: &[u8],
        stack: Option<&[u8]>,
    ) -> std::result::Result<Option<Event>, String> {
        let Some(&id) = record.first_chunk() else {
            return Err(format!("a record of {} bytes", record.len()));
        };
        let Some(known) = self.sources.get(&u16::from_le_bytes(id)) else {
            return Ok(None);
        };
        let tid = known.common_pid.u32(record);
        self.context.tid = tid;
        self.context.stack.clear();
        if let (Some(format), Some(stack)) = (&self.stack, stack) {
            format.read(stack, &mut self.context.stack);
        }
        let kind = known.source.kind(record, &mut self.context);
        let kind = kind.map_err(|Short| {
            let (name, length) = (&known.name, record.len());
            format!("event {name}: a record of {length} bytes ends before its fields")
        })?;
        Ok(kind.map(|kind| {
            let task = tid.and_then(|tid| self.context.task(tid));
            Event {
                time: Nanos(time),
                cpu: Some(cpu),
                pid: task.and_then(|task| task.pid),
                tid,
                comm: task.and_then(|task| task.comm.clone()),
                kind,
            }
        }))
    }
}

impl StackFormat {
    fn read(&self, record: &[u8], to: &mut Vec<u64>) {
        const WORD: usize = 8;
        let declared = self.size.as_ref().map_or(Some(DEEPEST), |size| {
            let size = size.signed(record)?;
            u64::try_from(size).ok()
        });
        let count = declared.unwrap_or(0).min(DEEPEST);
        let frames = (0..count).map_while(|index| {
            let index = usize::try_from(index).ok()?;
            self.caller.element(record, WORD, index)
        });
        // Older kernels end a stack by all ones.
        to.extend(frames.take_while(|&frame| frame != u64::MAX && frame != 0));
    }
}

/// The source for the event of that name.
fn make(event: &str, fields: &mut Fields<'_>) -> Option<Box<dyn Source>> {
    sched::make(event, fields)
        .or_else(|| syscalls::make(event, fields))
        .or_else(|| memory::make(event, fields))
        .or_else(|| reclaim::make(event, fields))
        .or_else(|| locks::make(event, fields))
        .or_else(|| io::make(event, fields))
}

/// What a source makes of a record.
type Made = std::result::Result<Option<Kind>, Short>;

#[cfg(test)]
mod tests;
