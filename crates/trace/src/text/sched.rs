//! Scheduling, the life of threads and system calls (`include/trace/events/sched.h`, `task.h`, `syscalls.h`).

use super::context::{Context, Traced, syscall_number};
use super::fields::{Fields, hexadecimal};
use super::kinds::Made;
use crate::{Kind, Text};

pub(super) fn make(event: &str, fields: Fields<'_>, context: &mut Context) -> Option<Made> {
    Some(match event {
        "sched_switch" => switch(fields, context),
        "sched_waking" => wake(fields, context).map(|wake| {
            Some(Kind::Waking {
                target_tid: wake.tid,
                target_comm: wake.comm,
                target_priority: wake.priority,
                target_cpu: wake.cpu,
            })
        }),
        "sched_wakeup_new" => wake(fields, context).map(|wake| {
            Some(Kind::New {
                target_tid: wake.tid,
                target_comm: wake.comm,
                target_priority: wake.priority,
                target_cpu: wake.cpu,
            })
        }),
        "task_newtask" => new_task(fields, context),
        "sched_process_fork" => fork(fields, context),
        "sched_process_exec" => exec(fields, context),
        "sched_process_exit" => exit(fields, context),
        "sys_enter" => enter(fields, context),
        "sys_exit" => leave(fields, context),
        _ => return named(event, fields, context),
    })
}

/// A thread as libtraceevent's plug-in prints it: `name:tid [priority]`, and what follows.
struct Task<'l> {
    comm: &'l str,
    tid: u32,
    priority: Option<i32>,
    rest: &'l str,
}

impl<'l> Task<'l> {
    fn parse(text: &'l str) -> Option<Task<'l>> {
        let (name, rest) = text.rsplit_once('[')?;
        let (priority, rest) = rest.split_once(']')?;
        let (comm, tid) = name.trim_end().rsplit_once(':')?;
        Some(Task {
            comm: comm.trim_start(),
            tid: tid.parse().ok()?,
            priority: priority.parse().ok(),
            rest: rest.trim(),
        })
    }
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
        let tid = Fields::need("next_pid", next.u32("next_pid"))?;
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
    // The kernel prints a `+` for who could have run on; libtraceevent's plug-in and old kernels do not.
    let plus = state.map(|state| state.ends_with('+'));
    let says = prev.word("prev_state").is_some();
    let preempted = plus.filter(|&plus| plus || says);
    let prev_comm = prev_comm.map(|comm| context.keep(comm));
    let next_comm = next_comm.map(|comm| context.keep(comm));
    if let Some(tid) = prev_tid {
        context.name(tid, prev_comm.as_ref());
    }
    context.name(next_tid, next_comm.as_ref());
    Ok(Some(Kind::Switch {
        state: state.map(|state| context.keep(state.trim_end_matches('+'))),
        preempted,
        priority,
        next_tid: Some(next_tid),
        next_comm,
        next_priority,
        stack: None,
    }))
}

struct Wake {
    tid: u32,
    comm: Option<Text>,
    priority: Option<i32>,
    cpu: Option<u32>,
}

/// `comm=a pid=1 prio=120 target_cpu=000`, or `a:1 [120] CPU:000`.
fn wake(fields: Fields<'_>, context: &mut Context) -> Result<Wake, String> {
    if fields.word("pid").is_some() {
        let tid = Fields::need("pid", fields.u32("pid"))?;
        let comm = fields.until("comm", "pid").map(|comm| context.keep(comm));
        context.name(tid, comm.as_ref());
        return Ok(Wake {
            tid,
            comm,
            priority: fields.i32("prio"),
            cpu: fields.u32("target_cpu"),
        });
    }
    let task = Task::parse(fields.0).ok_or("neither pid nor 'name:tid [priority]'")?;
    let comm = Some(context.keep(task.comm));
    context.name(task.tid, comm.as_ref());
    let cpu = task.rest.split_once("CPU:").map(|(_, cpu)| cpu.trim());
    Ok(Wake {
        tid: task.tid,
        comm,
        priority: task.priority,
        cpu: cpu.and_then(|cpu| cpu.parse().ok()),
    })
}

fn new_task(fields: Fields<'_>, context: &mut Context) -> Made {
    const CLONE_THREAD: u64 = 0x10000;
    const MOST: usize = 1 << 16;
    let tid = Fields::need("pid", fields.u32("pid"))?;
    let flags = Fields::need("clone_flags", fields.address("clone_flags"))?;
    if context.threads.len() < MOST {
        context.threads.insert(tid, flags & CLONE_THREAD != 0);
    }
    Ok(None)
}

fn fork(fields: Fields<'_>, context: &mut Context) -> Made {
    let target_tid = Fields::need("child_pid", fields.u32("child_pid"))?;
    let comm = fields.until("child_comm", "child_pid");
    let target_comm = comm.map(|comm| context.keep(comm));
    let target_pid = match context.threads.remove(&target_tid) {
        Some(true) => context.tid.and_then(|tid| context.process_of(tid)),
        Some(false) => Some(target_tid),
        None => None,
    };
    context.name(target_tid, target_comm.as_ref());
    context.process(target_tid, target_pid);
    Ok(Some(Kind::Fork {
        target_tid,
        target_pid,
        target_comm,
    }))
}

fn exec(fields: Fields<'_>, context: &mut Context) -> Made {
    let tid = Fields::need("pid", fields.u32("pid"))?;
    let filename = fields.until("filename", "pid");
    if let Some(filename) = filename {
        let comm = context.comm_of(filename);
        context.name(tid, Some(&comm));
    }
    context.process(tid, Some(tid)); // who execs leads its process
    Ok(Some(Kind::Exec {
        filename: filename.map(|filename| context.keep(filename)),
        old_tid: fields.u32("old_pid").filter(|&old| old != tid),
    }))
}

fn exit(fields: Fields<'_>, context: &mut Context) -> Made {
    if let (Some(tid), Some(comm)) = (context.tid, fields.until("comm", "pid")) {
        let comm = context.keep(comm);
        context.name(tid, Some(&comm));
    }
    Ok(Some(Kind::Exit {
        priority: fields.i32("prio"),
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
    // Of a call that this machine does not have, there is no number to tell it by.
    let number = syscall_number(name)?;
    if !context.call(Traced::Named, begins) {
        return Some(Ok(None));
    }
    let name = Some(context.keep(name));
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
