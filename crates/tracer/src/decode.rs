//! From records of the kernel to events of a trace.
//!
//! What an event's fields mean, [`stopgap_trace::kernel_event`] says; `record` finds them by name in this kernel's format,
//! and has the events that texts print in other ways. A field that is gone is a `missing` with its name; without one
//! that it must have, the whole event is.

mod record;

use std::collections::{BTreeSet, HashMap};

use stopgap_events::machine::Missing;
use stopgap_events::order::Inserted as _;
use stopgap_events::units::Nanos;
use stopgap_trace::kernel_event::{KERNEL_EVENTS, Made, Tasks};
use stopgap_trace::{Event, Kind, Stack, Text};

use crate::description::Description;
use crate::error::{Error, Result};
use crate::events::{EventName, EventSet, STACK, SWITCH};
use crate::format::{Field, Format};
use crate::print::Names;
use crate::symbols::Symbols;
use record::{Meanings, NamedField, OWN_EVENTS, Record};

/// Makes events of records. They must come in the order of time over all CPUs: names and processes
/// of threads are learned on the way.
pub struct Decoder {
    sources: HashMap<u16, Source>,
    /// The ids of a switch and of a stack.
    switch: Option<u16>,
    stack: Option<StackFormat>,
    meanings: Meanings,
    tasks: Tasks,
}

/// How records with one id are decoded.
struct Source {
    /// The event's name, with its system.
    event: String,
    common_pid: Option<Field>,
    common_flags: Option<Field>,
    fields: Vec<NamedField>,
    make: Make,
}

type Make = Box<dyn Fn(&Record<'_>, &mut Tasks) -> Made + Send>;

/// Where a stack is in its record.
struct StackFormat {
    id: u16,
    common_pid: Option<Field>,
    size: Option<Field>,
    caller: Field,
}

/// `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_SOFTIRQ` of `common_flags`.
const IN_INTERRUPT: u64 = 0x08 | 0x10;
/// The most frames that are read of a stack; the kernel writes fewer.
const DEEPEST: u64 = 512;

impl Decoder {
    /// A decoder of what `description` describes, with what it will not be able to decode.
    /// Events without a format are left out: the capture has the reason.
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
        let all = EventSet::All;
        let names: BTreeSet<EventName> = all.events().chain(all.of_machine()).inserted();
        for name in names {
            let event = name.to_string();
            let Some(format) = format(&event)? else {
                continue;
            };
            let Some((need, may, make)) = meaning(name.event) else {
                continue;
            };
            let Some(fields) = fields(&event, &format, need, may, &mut missing) else {
                continue;
            };
            let source = Source {
                event: event.clone(),
                common_pid: field(&event, &format, "common_pid", &mut missing),
                common_flags: format.field("common_flags").cloned(),
                fields,
                make,
            };
            if let Some(other) = sources.insert(format.id, source) {
                let why = format!("it has the ID {} of {}", format.id, other.event);
                return Err(Error::description(format!("format of {event}"), why));
            }
        }
        let mut stack = None;
        let name = STACK.to_string();
        if let Some(format) = format(&name)?
            && let Some(caller) = needed(&name, &format, "caller", &mut missing)
        {
            stack = Some(StackFormat {
                id: format.id,
                common_pid: field(&name, &format, "common_pid", &mut missing),
                size: field(&name, &format, "size", &mut missing),
                caller,
            });
        }
        let switch = format(&SWITCH.to_string())?.map(|format| format.id);
        let mut decoder = Decoder {
            sources,
            switch,
            stack,
            meanings: Meanings {
                symbols,
                syscalls: description.syscalls.clone(),
                migrate_types: description.migrate_types.clone(),
            },
            tasks: Tasks::default(),
        };
        for task in description.others.iter().chain(&description.tasks) {
            let comm = task.comm.as_deref().map(Text::from);
            decoder.tasks.name(task.tid, comm.as_ref());
            decoder.tasks.process(task.tid, Some(task.pid));
        }
        Ok((decoder, missing))
    }

    /// Returns whether the record `stack` is the kernel stack of the record `switch` just before it.
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

    /// Returns whether a record is a switch, after which its stack may come.
    #[must_use]
    pub fn is_switch(&self, record: &[u8]) -> bool {
        let id = record.first_chunk().map(|&id| u16::from_le_bytes(id));
        id.is_some() && id == self.switch
    }

    /// Returns the event in a record, `stack` being the record of its stack; `None` for a record of another event, or one
    /// that only tells the decoder something.
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
        let Some(source) = self.sources.get(&u16::from_le_bytes(id)) else {
            return Ok(None);
        };
        let number = |field: &Option<Field>| field.as_ref()?.signed(record);
        let tid = number(&source.common_pid).and_then(|tid| u32::try_from(tid).ok());
        self.tasks.tid = tid;
        let fields = Record {
            bytes: record,
            fields: &source.fields,
            meanings: &self.meanings,
        };
        let made = (source.make)(&fields, &mut self.tasks).map_err(|_| {
            let (name, length) = (&source.event, record.len());
            format!("event {name}: a record of {length} bytes ends before its fields")
        })?;
        let Some(mut kind) = made else {
            return Ok(None);
        };
        if let Kind::Switch { stack: at, .. } = &mut kind
            && let (Some(format), Some(stack)) = (&self.stack, stack)
        {
            *at = format.read(stack, &mut self.meanings.symbols);
        }
        // An interrupt, such as that of a timer, sends nothing for the thread that it interrupts.
        let interrupt = || {
            let flags = source.common_flags.as_ref()?.unsigned(record)?;
            Some(flags & IN_INTERRUPT != 0)
        };
        let nobody = matches!(kind, Kind::Signal { .. }) && interrupt() == Some(true);
        let tid = tid.filter(|_| !nobody);
        let task = tid.and_then(|tid| self.tasks.task(tid));
        Ok(Some(Event {
            time: Nanos(time),
            cpu: Some(cpu),
            pid: task.and_then(|task| task.pid),
            tid,
            comm: task.and_then(|task| task.comm.clone()),
            kind,
        }))
    }
}

impl StackFormat {
    /// Returns the stack in a record, without the functions that wrote it.
    fn read(&self, record: &[u8], symbols: &mut Symbols) -> Option<Stack> {
        const WORD: usize = 8;
        /// Function below which a stack at a switch is of interest.
        const SCHEDULE: &str = "__schedule";
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
        let frames = frames.take_while(|&frame| frame != u64::MAX && frame != 0);
        let frames: Vec<u64> = frames.collect();
        let own = frames.iter().position(|&address| {
            let name = symbols.function(address);
            name.is_some_and(|name| &**name == SCHEDULE)
        });
        (!frames.is_empty()).then(|| symbols.stack(&frames[own.unwrap_or(0)..]))
    }
}

type FieldNames = &'static [&'static str];

/// Returns the fields that an event must and may have, and what they mean; `None` for an event that has no kind.
fn meaning(event: &str) -> Option<(FieldNames, FieldNames, Make)> {
    if let Some(known) = KERNEL_EVENTS.iter().find(|known| known.name == event) {
        let make = known.make;
        let make: Make = Box::new(move |record, tasks| make(record, tasks));
        return Some((known.need, known.may, make));
    }
    let &(_, need, may, make) = OWN_EVENTS.iter().find(|(name, ..)| *name == event)?;
    Some((need, may, Box::new(make)))
}

/// Finds the fields of an event; `None` where one is gone that it must have.
fn fields(
    event: &str,
    format: &Format,
    need: FieldNames,
    may: FieldNames,
    missing: &mut Vec<Missing>,
) -> Option<Vec<NamedField>> {
    let named = |name, field| NamedField {
        name,
        field,
        names: Names::parse(&format.print, name),
    };
    let mut fields = Vec::new();
    for &name in need {
        fields.push(named(name, Some(needed(event, format, name, missing)?)));
    }
    for &name in may {
        fields.push(named(name, field(event, format, name, missing)));
    }
    Some(fields)
}

/// Finds a field without which the event says nothing.
fn needed(event: &str, format: &Format, name: &str, missing: &mut Vec<Missing>) -> Option<Field> {
    let field = format.field(name).cloned();
    if field.is_none() {
        let why = format!("this kernel's has no field {name}, which says what it is about");
        missing.push(Missing::new(format!("event {event}"), why));
    }
    field
}

/// Finds a field without which the event says less.
fn field(event: &str, format: &Format, name: &str, missing: &mut Vec<Missing>) -> Option<Field> {
    let field = format.field(name).cloned();
    if field.is_none() {
        let what = format!("field {name} of event {event}");
        missing.push(Missing::new(what, "not in this kernel's format"));
    }
    field
}

#[cfg(test)]
mod tests;
