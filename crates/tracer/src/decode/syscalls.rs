//! System calls (`include/trace/events/syscalls.h`).

use stopgap_trace::Kind;

use super::Made;
use super::context::Context;
use super::source::{Fields, Number, Short, Source, source};

pub(super) fn make(event: &str, fields: &mut Fields<'_>) -> Option<Box<dyn Source>> {
    Some(match event {
        "sys_enter" => Box::new(Enter::of(fields)?),
        "sys_exit" => Box::new(Exit::of(fields)?),
        _ => return None,
    })
}

source!(Enter { id; args });
source!(Exit { id; ret });

impl Source for Enter {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let number = self.id.i64(record).ok_or(Short)?;
        let Ok(number) = u32::try_from(number) else {
            return Ok(None); // -1: what a tracer forbade
        };
        let mut arguments = [None; 6];
        if let Some(args) = &self.args {
            let size = args.size() / arguments.len();
            for (index, argument) in arguments.iter_mut().enumerate() {
                *argument = args.element(record, size, index);
            }
        }
        Ok(Some(Kind::SyscallEnter {
            number,
            name: context.syscall(number),
            arguments,
        }))
    }
}

impl Source for Exit {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let number = self.id.i64(record).ok_or(Short)?;
        let Ok(number) = u32::try_from(number) else {
            return Ok(None); // -1: a return from a signal's handler
        };
        Ok(Some(Kind::SyscallExit {
            number,
            name: context.syscall(number),
            result: self.ret.i64(record),
        }))
    }
}
