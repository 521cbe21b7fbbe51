//! Which code added mappings to a process: the stacks of its calls that did, counted.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::rc::Rc;

use stopgap_capture::{Record, UserStack};
use stopgap_events::order::SortRows;
use stopgap_trace::{Stack, Text};

use super::unwind::Chains;
use super::{MAPS, Mapped, waits_of};
use crate::error::{Error, Result};
use crate::perf::{File, Mappings, Names, Stacks};
use crate::spool::Spool;
use crate::symbols::Symbols;

/// A record of a spool is no longer than that.
const LARGEST: usize = 1 << 16;

/// Calls that added mappings by one stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapper {
    /// Number of calls.
    pub calls: u64,
    /// Their stack in the program.
    pub stack: Stack,
}

/// Returns the stacks of calls that added mappings to the process `pid`, most calls first. `names` are those of functions of files.
///
/// # Errors
/// Where a file of the spool cannot be read.
pub fn mappers(spool: &Spool, pid: u32, names: Box<dyn Names>) -> Result<Vec<Mapper>> {
    let mappings = mappings(spool, pid)?;
    let mut chains = Chains::default();
    let mut stacks = Stacks::new(Symbols::parse(""), names);
    let mut counts: HashMap<Text, u64> = HashMap::new();
    for number in spool.waits() {
        let mut file = BufReader::new(spool.file(&waits_of(number))?);
        while let Some(record) = next(&mut file) {
            let Some(stack) = of_mapper(&record, pid) else {
                continue;
            };
            let chain = chains.chain(&stack, Some(&mappings), 0);
            let stack = stacks.user_stack(Some(&mappings), &chain, |_| None);
            *counts.entry(stack.0).or_default() += 1;
        }
    }
    let all = counts.into_iter().map(|(stack, calls)| Mapper {
        calls,
        stack: Stack(stack),
    });
    let mut all: Vec<Mapper> = all.collect();
    all.sort_rows(|a, b| {
        b.calls
            .cmp(&a.calls)
            .then_with(|| a.stack.0.cmp(&b.stack.0))
    });
    Ok(all)
}

fn of_mapper(record: &[u8], pid: u32) -> Option<Box<UserStack>> {
    Record::place_of_stack(record).filter(|&(process, ..)| process == pid)?;
    match Record::parse(record) {
        Ok(Record::UserStack(stack)) if stack.maps => Some(stack),
        _ => None,
    }
}

/// The next record of a file; `None` at its end, and where it is damaged.
fn next(file: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    file.read_exact(&mut length).ok()?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LARGEST {
        return None;
    }
    let mut record = vec![0; length];
    file.read_exact(&mut record).ok()?;
    Some(record)
}

/// The mappings of the process that the spool has.
fn mappings(spool: &Spool, pid: u32) -> Result<Mappings> {
    let mut mappings = Mappings::default();
    let mut files: BTreeMap<(String, u64), Rc<File>> = BTreeMap::new();
    let lines = BufReader::new(spool.file(MAPS)?).lines();
    for line in lines {
        let line = line.map_err(|error| Error::file(&spool.folder().join(MAPS), error))?;
        let Ok(Mapped { mapping, .. }) = serde_json::from_str::<Mapped>(&line) else {
            continue;
        };
        if mapping.pid == pid {
            let (name, inode) = (mapping.name, mapping.inode);
            let key = (name.clone(), inode);
            let file = files
                .entry(key)
                .or_insert_with(|| Rc::new(File { name, inode }));
            mappings.map(mapping.start, mapping.end, mapping.offset, file);
        }
    }
    Ok(mappings)
}
