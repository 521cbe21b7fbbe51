//! An event of the kernel as a source of ours.

use stopgap_events::machine::Missing;

use super::Made;
use super::context::Context;
use crate::format::{Field, Format};

/// Makes kinds of the records of one event.
pub(super) trait Source: Send {
    /// What the record says; `context` knows the thread and remembers.
    fn kind(&self, record: &[u8], context: &mut Context) -> Made;
}

/// A record that ends before a field that must be there.
pub(super) struct Short;

/// The fields of an event, as this kernel has them.
pub(super) struct Fields<'f> {
    event: &'f str,
    pub(super) format: &'f Format,
    missing: &'f mut Vec<Missing>,
}

impl<'f> Fields<'f> {
    pub(super) fn new(
        event: &'f str,
        format: &'f Format,
        missing: &'f mut Vec<Missing>,
    ) -> Fields<'f> {
        Fields {
            event,
            format,
            missing,
        }
    }

    /// A field without which the event says nothing.
    pub(super) fn need(&mut self, name: &str) -> Option<Field> {
        let field = self.format.field(name).cloned();
        if field.is_none() {
            let why = format!("this kernel's has no field {name}, which says what it is about");
            let what = format!("event {}", self.event);
            self.missing.push(Missing::new(what, why));
        }
        field
    }

    /// A field without which the event says less.
    pub(super) fn may(&mut self, name: &str) -> Option<Field> {
        let field = self.format.field(name).cloned();
        if field.is_none() {
            let what = format!("field {name} of event {}", self.event);
            self.missing
                .push(Missing::new(what, "not in this kernel's format"));
        }
        field
    }
}

/// Defines a source: its fields that must be there, and those that may.
macro_rules! source {
    ($name:ident { $($need:ident)* ; $($may:ident)* }) => {
        struct $name {
            $($need: Option<crate::format::Field>,)*
            $($may: Option<crate::format::Field>,)*
        }

        impl $name {
            fn of(fields: &mut crate::decode::source::Fields<'_>) -> Option<$name> {
                Some($name {
                    $($need: Some(fields.need(stringify!($need))?),)*
                    $($may: fields.may(stringify!($may)),)*
                })
            }
        }
    };
}
pub(super) use source;

/// Numbers of fields: `None` where the kernel has no such field, the record ends before it or the
/// number does not fit.
pub(super) trait Number {
    fn u64(&self, record: &[u8]) -> Option<u64>;
    fn i64(&self, record: &[u8]) -> Option<i64>;

    fn u32(&self, record: &[u8]) -> Option<u32> {
        u32::try_from(self.i64(record)?).ok()
    }
    fn i32(&self, record: &[u8]) -> Option<i32> {
        i32::try_from(self.i64(record)?).ok()
    }
    fn flag(&self, record: &[u8]) -> Option<bool> {
        self.u64(record).map(|bits| bits != 0)
    }
}

impl Number for Option<Field> {
    fn u64(&self, record: &[u8]) -> Option<u64> {
        self.as_ref()?.unsigned(record)
    }
    fn i64(&self, record: &[u8]) -> Option<i64> {
        self.as_ref()?.signed(record)
    }
}
