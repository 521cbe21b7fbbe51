//! Scheduling, and the life of threads (`include/trace/events/sched.h`, `task.h`).

use stopgap_trace::Kind;

use super::Made;
use super::context::Context;
use super::source::{Fields, Number, Short, Source, source};
use crate::print::Names;

pub(super) fn make(event: &str, fields: &mut Fields<'_>) -> Option<Box<dyn Source>> {
    Some(match event {
        "sched_switch" => {
            let states = Names::of(&fields.format.print, "prev_state");
            let fields = SwitchFields::of(fields)?;
            Box::new(Switch { fields, states })
        }
        "sched_waking" => Box::new(Waking(WakeFields::of(fields)?)),
        "sched_wakeup_new" => Box::new(New(WakeFields::of(fields)?)),
        "task_newtask" => Box::new(NewTask::of(fields)?),
        "sched_process_fork" => Box::new(Fork::of(fields)?),
        "sched_process_exec" => Box::new(Exec::of(fields)?),
        "sched_process_exit" => Box::new(Exit::of(fields)?),
        _ => return None,
    })
}

source!(SwitchFields { prev_pid next_pid; prev_comm prev_prio prev_state next_comm next_prio });
source!(WakeFields { pid; comm prio target_cpu });
source!(NewTask { pid clone_flags; });
source!(Fork { child_pid; child_comm });
source!(Exec { pid; filename old_pid });
source!(Exit { ; comm prio });

struct Switch {
    fields: SwitchFields,
    /// Names of the bits of `prev_state`, the highest of them the last before the flag that says
    /// "pre-empted" (`TASK_REPORT_MAX`, since Linux 4.14).
    states: Names,
}

impl Source for Switch {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let fields = &self.fields;
        let comm = context.text(&fields.prev_comm, record);
        if let Some(tid) = fields.prev_pid.u32(record) {
            context.name(tid, comm.as_ref());
        }
        let next_tid = fields.next_pid.u32(record).ok_or(Short)?;
        let next_comm = context.text(&fields.next_comm, record);
        context.name(next_tid, next_comm.as_ref());
        let bits = fields.prev_state.u64(record);
        let preempted_bit = self.states.largest().and_then(|bit| bit.checked_mul(2));
        let state = bits.map(|bits| {
            let states = bits & preempted_bit.unwrap_or(1 << 8).wrapping_sub(1);
            let words = self.states.flags(states);
            context.keep(words.as_deref().unwrap_or("R"))
        });
        Ok(Some(Kind::Switch {
            state,
            preempted: bits.zip(preempted_bit).map(|(bits, flag)| bits & flag != 0),
            priority: fields.prev_prio.i32(record),
            next_tid: Some(next_tid),
            next_comm,
            next_priority: fields.next_prio.i32(record),
            stack: context.stack(),
        }))
    }
}

struct Waking(WakeFields);
struct New(WakeFields);

impl Source for Waking {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let fields = &self.0;
        let target_tid = fields.pid.u32(record).ok_or(Short)?;
        let target_comm = context.text(&fields.comm, record);
        context.name(target_tid, target_comm.as_ref());
        Ok(Some(Kind::Waking {
            target_tid,
            target_comm,
            target_priority: fields.prio.i32(record),
            target_cpu: fields.target_cpu.u32(record),
        }))
    }
}

impl Source for New {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let fields = &self.0;
        let target_tid = fields.pid.u32(record).ok_or(Short)?;
        let target_comm = context.text(&fields.comm, record);
        context.name(target_tid, target_comm.as_ref());
        Ok(Some(Kind::New {
            target_tid,
            target_comm,
            target_priority: fields.prio.i32(record),
            target_cpu: fields.target_cpu.u32(record),
        }))
    }
}

impl Source for NewTask {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        const CLONE_THREAD: u64 = 0x10000;
        let flags = self.clone_flags.u64(record).ok_or(Short)?;
        let tid = self.pid.u32(record).ok_or(Short)?;
        context.threads.insert(tid, flags & CLONE_THREAD != 0);
        Ok(None)
    }
}

impl Source for Fork {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let target_tid = self.child_pid.u32(record).ok_or(Short)?;
        let target_comm = context.text(&self.child_comm, record);
        let target_pid = match context.threads.remove(&target_tid) {
            Some(true) => context
                .tid
                .and_then(|tid| context.task(tid))
                .and_then(|task| task.pid),
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
}

impl Source for Exec {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let tid = self.pid.u32(record).ok_or(Short)?;
        let filename = context.text(&self.filename, record);
        if let Some(filename) = &filename {
            let comm = context.comm_of(filename);
            context.name(tid, Some(&comm));
        }
        context.process(tid, Some(tid)); // who execs leads its process
        let old = self.old_pid.u32(record);
        Ok(Some(Kind::Exec {
            filename,
            old_tid: old.filter(|&old| old != tid),
        }))
    }
}

impl Source for Exit {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let comm = context.text(&self.comm, record);
        if let Some(tid) = context.tid {
            context.name(tid, comm.as_ref());
            context.compacts.remove(&tid); // another thread may get its number
        }
        Ok(Some(Kind::Exit {
            priority: self.prio.i32(record),
        }))
    }
}
