//! Threads, names and mappings, as the records show them on the way.

use std::collections::HashMap;
use std::rc::Rc;

use stopgap_trace::Text;

use super::description::PerfDescription;
use super::mappings::{File, Mappings};
use super::record::{Body, Mapped, Record};
use crate::description::TaskName;

#[derive(Debug, Clone)]
struct Task {
    pid: u32,
    comm: Option<Text>,
}

#[derive(Debug, Default)]
struct Process {
    /// Its known threads that have not ended.
    threads: u64,
    /// Shared with those that were forked, until either maps something.
    mappings: Rc<Mappings>,
}

/// Threads and processes.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    tasks: HashMap<u32, Task>,
    processes: HashMap<u32, Process>,
    files: HashMap<(String, u64), Rc<File>>,
}

impl Tasks {
    pub(super) fn new(tasks: &[TaskName], description: &PerfDescription) -> Tasks {
        let mut all = Tasks::default();
        for task in tasks {
            all.begins(task.tid, task.pid, task.comm.as_deref().map(Text::from));
        }
        for mapping in &description.mappings {
            all.maps(&Mapped {
                pid: mapping.pid,
                start: mapping.start,
                length: mapping.end.saturating_sub(mapping.start),
                offset: mapping.offset,
                inode: mapping.inode,
                name: mapping.name.clone(),
            });
        }
        all
    }

    pub(super) fn comm(&self, tid: Option<u32>) -> Option<Text> {
        self.tasks.get(&tid?)?.comm.clone()
    }

    /// Returns what a process has mapped.
    pub(super) fn mappings(&self, pid: Option<u32>) -> Option<&Mappings> {
        Some(&*self.processes.get(&pid?)?.mappings)
    }

    /// Learns what a record says.
    pub(super) fn learn(&mut self, record: &Record) {
        match &record.body {
            Body::Comm { comm, exec } => {
                let (Some(pid), Some(tid)) = (record.pid, record.tid) else {
                    return;
                };
                if !self.tasks.contains_key(&tid) {
                    self.begins(tid, pid, None);
                }
                if let Some(task) = self.tasks.get_mut(&tid) {
                    task.comm = Some(Text::from(comm.as_str()));
                }
                if *exec && let Some(process) = self.processes.get_mut(&pid) {
                    process.mappings = Rc::default();
                }
            }
            Body::Fork {
                pid,
                tid,
                parent_pid,
                parent_tid,
            } => {
                let comm = self.comm(Some(*parent_tid));
                self.ends(*tid); // an id that is given again
                self.begins(*tid, *pid, comm);
                if pid != parent_pid {
                    let parent = self.processes.get(parent_pid);
                    let mappings = parent.map(|parent| Rc::clone(&parent.mappings));
                    if let (Some(child), Some(mappings)) = (self.processes.get_mut(pid), mappings) {
                        child.mappings = mappings;
                    }
                }
            }
            Body::Exit { tid, .. } => self.ends(*tid),
            Body::Mapped(mapped) => self.maps(mapped),
            _ => {}
        }
    }

    fn begins(&mut self, tid: u32, pid: u32, comm: Option<Text>) {
        self.tasks.insert(tid, Task { pid, comm });
        self.processes.entry(pid).or_default().threads += 1;
    }

    fn ends(&mut self, tid: u32) {
        let Some(task) = self.tasks.remove(&tid) else {
            return;
        };
        if let Some(process) = self.processes.get_mut(&task.pid) {
            process.threads = process.threads.saturating_sub(1);
            if process.threads == 0 {
                self.processes.remove(&task.pid);
            }
        }
    }

    fn maps(&mut self, mapped: &Mapped) {
        let key = (mapped.name.clone(), mapped.inode);
        let file = self.files.entry(key).or_insert_with(|| {
            Rc::new(File {
                name: mapped.name.clone(),
                inode: mapped.inode,
            })
        });
        let process = self.processes.entry(mapped.pid).or_default();
        let end = mapped.start.saturating_add(mapped.length);
        Rc::make_mut(&mut process.mappings).map(mapped.start, end, mapped.offset, file);
    }
}
