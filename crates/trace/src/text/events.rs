//! From an event's name and fields to what happened: the same as `stopgap-tracer` makes of the kernel's records.

use stopgap_events::units::Bytes;

use super::context::{Context, Traced, syscall_number};
use super::fields::{Fields, Line, Task, hexadecimal};
use crate::Kind;
use crate::kernel_event::KERNEL_EVENTS;

/// What is made of a line: `None` where it is of use to the reader alone. The error names the field.
type Made = Result<Option<Kind>, String>;

/// Returns what a line says, and `None` of an event that is not known here.
pub(super) fn make(event: &str, text: &str, context: &mut Context) -> Option<Made> {
    let fields = Fields(text);
    if let Some(known) = KERNEL_EVENTS.iter().find(|known| known.name == event) {
        let line = Line::new(event, text);
        let made = (known.make)(&line, &mut context.tasks);
        return Some(made.map_err(|name| no_value(line.label(name))));
    }
    Some(match event {
        "sched_switch" => switch(fields, context),
        "sys_enter" => enter(fields, context),
        "sys_exit" => leave(fields, context),
        "block_rq_insert" | "block_rq_issue" | "block_rq_merge" | "block_rq_complete" => {
            request(event, text, context)
        }
        "block_bio_backmerge" | "block_bio_frontmerge" => merge(text, context),
        _ => return named(event, fields, context),
    })
}

fn no_value(name: &str) -> String {
    format!("no value that can be read for {name}")
}

/// Returns whether it is a sample of a clock or of cycles: where a thread was.
pub(super) fn is_sample(event: &str) -> bool {
    matches!(
        event,
        "cpu-clock" | "task-clock" | "cycles" | "cpu-cycles" | "instructions"
    )
}

/// `prev_comm=a prev_pid=1 prev_prio=120 prev_state=R+ ==> next_comm=...`, or `a:1 [120] R ==> b:2 [120]`.
fn switch(fields: Fields<'_>, context: &mut Context) -> Made {
    // A name may have an arrow in it.
    let arrow = (fields.0.find(" ==> next_comm=")).or_else(|| fields.0.find(" ==> "));
    let arrow = arrow.ok_or("no '==>' between who leaves and who comes")?;
    let (before, after) = (&fields.0[..arrow], &fields.0[arrow + " ==> ".len()..]);
    let (prev, next) = (Fields(before), Fields(after));
    let state;
    let (prev_comm, prev_tid, priority, next_comm, next_tid, next_priority);
    if prev.word("prev_pid").is_some() {
        let tid = next.u32("next_pid").ok_or_else(|| no_value("next_pid"))?;
        (prev_comm, prev_tid) = (prev.until("prev_comm", "prev_pid"), prev.u32("prev_pid"));
        (next_comm, next_tid) = (next.until("next_comm", "next_pid"), tid);
        priority = prev.i32("prev_prio");
        next_priority = next.i32("next_prio");
        state = prev.word("prev_state");
    } else {
        let no_thread = || "neither prev_pid nor 'name:tid [priority]'".to_owned();
        let prev = Task::parse(before).ok_or_else(no_thread)?;
        let next = Task::parse(after).ok_or_else(no_thread)?;
        (prev_comm, prev_tid) = (Some(prev.comm), Some(prev.tid));
        (next_comm, next_tid) = (Some(next.comm), next.tid);
        (priority, next_priority) = (prev.priority, next.priority);
        state = Some(prev.rest).filter(|state| !state.is_empty());
    }
    // The kernel prints a `+` for a pre-empted thread; libtraceevent's plug-in and old kernels do not.
    let plus = state.map(|state| state.ends_with('+'));
    let says = prev.word("prev_state").is_some();
    let preempted = plus.filter(|&plus| plus || says);
    let prev_comm = prev_comm.map(|comm| context.tasks.keep(comm));
    let next_comm = next_comm.map(|comm| context.tasks.keep(comm));
    if let Some(tid) = prev_tid {
        context.tasks.name(tid, prev_comm.as_ref());
    }
    context.tasks.name(next_tid, next_comm.as_ref());
    Ok(Some(Kind::Switch {
        state: state.map(|state| context.tasks.keep(state.trim_end_matches('+'))),
        preempted,
        priority,
        next_tid: Some(next_tid),
        next_comm,
        next_priority,
        stack: None,
    }))
}

/// `NR 59 (7ffe6a18eabb, 3, ...)`: the arguments are hexadecimal.
fn enter(fields: Fields<'_>, context: &mut Context) -> Made {
    let Some((number, rest)) = number(fields)? else {
        return Ok(None);
    };
    let list = rest.strip_prefix('(').unwrap_or(rest);
    let list = list.split(')').next().unwrap_or(list);
    let mut arguments = [None; 6];
    for (argument, word) in arguments.iter_mut().zip(list.split(',')) {
        *argument = hexadecimal(word.trim());
    }
    if !context.call(Traced::Raw, true) {
        return Ok(None);
    }
    Ok(Some(Kind::SyscallEnter {
        number,
        name: context.syscall_name(number),
        arguments,
    }))
}

/// `NR 59 = 0`.
fn leave(fields: Fields<'_>, context: &mut Context) -> Made {
    let Some((number, rest)) = number(fields)? else {
        return Ok(None);
    };
    if !context.call(Traced::Raw, false) {
        return Ok(None);
    }
    let result = rest.strip_prefix('=').map(str::trim);
    Ok(Some(Kind::SyscallExit {
        number,
        name: context.syscall_name(number),
        result: result.and_then(|result| result.parse().ok()),
    }))
}

/// The number after `NR`, and the rest. Negative is what a tracer forbade, and a return from a signal's handler.
fn number(fields: Fields<'_>) -> Result<Option<(u32, &str)>, String> {
    let rest = fields.0.strip_prefix("NR ").map(str::trim_start);
    let (number, rest) = rest
        .and_then(|rest| rest.split_once(' '))
        .ok_or("no number after NR")?;
    let number: i64 = number
        .parse()
        .map_err(|_| "no number after NR".to_owned())?;
    Ok(u32::try_from(number)
        .ok()
        .map(|number| (number, rest.trim_start())))
}

/// `sys_enter_write: fd: 0x00000003, buf: ...` and `sys_exit_write: 0x20`; of the kernel's own text
/// `sys_write(fd: 3, buf: ...)` and `sys_write -> 0x20`. All numbers are hexadecimal.
fn named(event: &str, fields: Fields<'_>, context: &mut Context) -> Option<Made> {
    let own = || event.strip_prefix("sys_");
    let (name, begins) = if let Some(name) = event.strip_prefix("sys_enter_") {
        (name, true)
    } else if let Some(name) = event.strip_prefix("sys_exit_") {
        (name, false)
    } else if fields.0.starts_with("->") {
        (own()?, false)
    } else if fields.0.starts_with("sys_") {
        (own()?, true)
    } else {
        return None;
    };
    // This machine has no number for a call of another architecture.
    let number = syscall_number(name)?;
    if !context.call(Traced::Named, begins) {
        return Some(Ok(None));
    }
    let name = Some(context.tasks.keep(name));
    Some(Ok(Some(if begins {
        Kind::SyscallEnter {
            number,
            name,
            arguments: arguments(fields.0),
        }
    } else {
        let result = fields.0.trim_start_matches("->").trim();
        Kind::SyscallExit {
            number,
            name,
            result: hexadecimal(result).map(u64::cast_signed),
        }
    })))
}

/// The values of `fd: 3, buf: 0x7ffc "text, with: commas", count: 0x20)`.
fn arguments(text: &str) -> [Option<u64>; 6] {
    let mut arguments = [None; 6];
    let mut rest = text;
    for argument in &mut arguments {
        let Some((_, value)) = rest.split_once(": ") else {
            break;
        };
        let end = value.find([',', ' ', ')']).unwrap_or(value.len());
        *argument = hexadecimal(&value[..end]);
        rest = &value[end..];
        if let Some(quoted) = rest.trim_start().strip_prefix('"') {
            rest = quoted.split_once('"').map_or("", |(_, rest)| rest);
        }
    }
    arguments
}

/// Bytes of a sector in the kernel's events of requests.
const SECTOR: u64 = 512;

/// `8,16 WS 2048 + 8 [cat]`: what becomes a part of a request.
fn merge(text: &str, context: &mut Context) -> Made {
    let mut words = text.split_ascii_whitespace();
    let mut parts = || {
        let (device, letters) = (words.next()?, words.next()?);
        let sector = words.next()?.parse().ok()?;
        let count: Option<u64> = words.nth(1).and_then(|count| count.parse().ok());
        Some((device, letters, sector, count))
    };
    let (device, letters, sector, count) =
        parts().ok_or("not 'major,minor letters sector + count ...'")?;
    Ok(Some(Kind::BlockMerge {
        device: context.tasks.keep(&device.replace(',', ":")),
        sector,
        length: count.and_then(|count| count.checked_mul(SECTOR)).map(Bytes),
        operation: Some(context.tasks.keep(letters)),
    }))
}

/// `8,0 WS 4096 () 2048 + 8 [kworker]`: device, letters, bytes before it is done, the command, the first sector and
/// how many; at its end with its result in the last brackets.
fn request(event: &str, text: &str, context: &mut Context) -> Made {
    let parts = || {
        let (device, rest) = text.trim().split_once(' ')?;
        let (letters, rest) = rest.trim_start().split_once(' ')?;
        let (bytes, rest) = rest.split_once('(')?;
        let (_, rest) = rest.split_once(')')?;
        let mut words = rest.split_ascii_whitespace();
        let sector = words.next()?.parse().ok()?;
        Some((device, letters, bytes.trim(), sector, words.nth(1), rest))
    };
    let (device, letters, bytes, sector, count, rest) =
        parts().ok_or("not 'major,minor letters [bytes] (command) sector + count ...'")?;
    let device = context.tasks.keep(&device.replace(',', ":"));
    let operation = Some(context.tasks.keep(letters));
    let length = bytes.parse().ok().map(Bytes);
    if event == "block_rq_insert" {
        return Ok(Some(Kind::BlockInsert {
            device,
            sector,
            length,
            operation,
        }));
    }
    if event == "block_rq_merge" {
        return Ok(Some(Kind::BlockMerge {
            device,
            sector,
            length,
            operation,
        }));
    }
    if event == "block_rq_issue" {
        return Ok(Some(Kind::BlockIssue {
            device,
            sector,
            length,
            operation,
        }));
    }
    let count: Option<u64> = count.and_then(|count| count.parse().ok());
    let result = rest.rsplit_once('[').map(|(_, result)| result);
    Ok(Some(Kind::BlockComplete {
        device,
        sector,
        length: count.and_then(|count| count.checked_mul(SECTOR)).map(Bytes),
        operation,
        result: result.and_then(|result| result.trim_end_matches(']').trim().parse().ok()),
    }))
}
