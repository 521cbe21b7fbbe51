//! From an event's name and fields to what happened: the same as `stopgap-tracer` makes of the kernel's records.

use super::context::Context;
use super::fields::Fields;
use super::{memory, sched, waits};
use crate::Kind;

/// What is made of a line: `None` where it is of use to the reader alone. The error names the field.
pub(super) type Made = Result<Option<Kind>, String>;

/// What a line says, and `None` of an event that is not known here.
pub(super) fn make(event: &str, fields: &str, context: &mut Context) -> Option<Made> {
    let fields = Fields(fields);
    sched::make(event, fields, context)
        .or_else(|| memory::make(event, fields, context))
        .or_else(|| waits::make(event, fields, context))
}

/// Whether it is a sample of a clock or of cycles: where a thread was.
pub(super) fn is_sample(event: &str) -> bool {
    matches!(
        event,
        "cpu-clock" | "task-clock" | "cycles" | "cpu-cycles" | "instructions"
    )
}
