//! What was mapped when the capture began: read from `/proc/PID/maps`, and as events at the head of the
//! trace.

use std::ops::RangeFrom;

use procfs_core::FromBufRead;
use procfs_core::process::{MMPermissions, MMapPath, MemoryMap, MemoryMaps};
use stopgap_events::machine::Missing;
use stopgap_events::memory::{MapId, MemoryEvent, Merge, Placing, Protection};
use stopgap_events::range::AddressRange;
use stopgap_events::units::Nanos;
use stopgap_kernel::System;
use stopgap_kernel::files::read_lossy;
use stopgap_trace::{Event, HEAP_END, Kind, Text};

use crate::description::{Description, Layout};
use crate::error::Result;

/// Reads what the process has mapped now. About 1 us a mapping.
///
/// # Errors
/// Where `/proc/PID/maps` cannot be read: another user's process.
pub fn read(system: &dyn System, pid: u32) -> Result<Layout> {
    let maps = read_lossy(system, format!("/proc/{pid}/maps"))?;
    Ok(Layout {
        pid,
        maps,
        time_ns: system.now().0,
    })
}

/// The layouts of the description as `map` events, each at its address, and a counter of the heap's end.
/// Their time is that of the `first` event of the trace, or where there is none, when they were read.
/// Layouts that cannot be understood are missing.
///
/// What the kernel maps for everybody at the end of all addresses (`[vsyscall]`) is not of the process.
#[must_use]
pub fn events(description: &Description, first: Option<u64>) -> (Vec<Event>, Vec<Missing>) {
    let (mut events, mut missing) = (Vec::new(), Vec::new());
    let mut ids = 0..;
    for layout in &description.layouts {
        let name = description.tasks.iter().find(|task| task.tid == layout.pid);
        let comm = name.and_then(|task| task.comm.as_deref()).map(Text::from);
        let time = first.map_or(layout.time_ns, |first| first.min(layout.time_ns));
        match rows(layout, comm.as_ref(), Nanos(time), &mut ids) {
            Ok(rows) => events.extend(rows),
            Err(lacks) => missing.push(lacks),
        }
    }
    (events, missing)
}

/// A layout as `map` events at `time`, with names that `ids` gives, and a counter of the heap's end.
///
/// # Errors
/// What is missing where the layout cannot be understood.
pub(crate) fn rows(
    layout: &Layout,
    comm: Option<&Text>,
    time: Nanos,
    ids: &mut RangeFrom<u32>,
) -> std::result::Result<Vec<Event>, Missing> {
    let pid = layout.pid;
    let maps = MemoryMaps::from_buf_read(layout.maps.as_bytes()).map_err(|_| {
        let what = format!("what process {pid} had mapped before");
        let why = format!("/proc/{pid}/maps: not of the form that proc_pid_maps(5) tells");
        Missing::new(what, why)
    })?;
    let event = |kind| Event {
        time,
        cpu: None,
        pid: Some(pid),
        tid: Some(pid),
        comm: comm.cloned(),
        kind,
    };
    let (mut events, mut heap) = (Vec::new(), None);
    for map in maps {
        let (start, end) = map.address;
        if map.pathname == MMapPath::Heap {
            heap = heap.max(i64::try_from(end).ok());
        }
        if let Some(id) = ids.next()
            && start < end
            && map.pathname != MMapPath::Vsyscall
        {
            let range = AddressRange { start, end };
            let memory = MemoryEvent::Map {
                id: MapId(id),
                length: range.length(),
                protection: protection(&map),
                merge: merge(&map),
                placing: Placing::ANYWHERE,
            };
            events.push(event(Kind::Memory {
                event: memory,
                range: Some(range),
            }));
        }
    }
    if let Some(value) = heap {
        let name = HEAP_END.into();
        events.push(event(Kind::Counter { name, value }));
    }
    Ok(events)
}

fn protection(map: &MemoryMap) -> Protection {
    if map.perms.contains(MMPermissions::WRITE) {
        Protection::Write
    } else if map
        .perms
        .intersects(MMPermissions::READ | MMPermissions::EXECUTE)
    {
        Protection::Read
    } else {
        Protection::None
    }
}

/// Private anonymous memory may join its neighbours.
fn merge(map: &MemoryMap) -> Merge {
    let anonymous = matches!(map.pathname, MMapPath::Anonymous | MMapPath::Heap);
    if anonymous && map.inode == 0 && map.perms.contains(MMPermissions::PRIVATE) {
        Merge::May
    } else {
        Merge::Never
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::TaskName;

    const MAPS: &str = "\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 131 /usr/bin/a b (deleted)
55d0c0001000-55d0c0003000 r-xp 00001000 fe:00 131 /usr/bin/a b (deleted)
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 
7f0000001000-7f0000002000 ---p 00000000 00:00 0 
7f0000003000-7f0000004000 rw-s 100000000 00:06 77                        /dev/dri/card0
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    fn description(maps: &str) -> Description {
        Description {
            layouts: vec![Layout {
                pid: 7,
                maps: maps.to_owned(),
                time_ns: 90,
            }],
            tasks: vec![TaskName {
                tid: 7,
                pid: 7,
                comm: Some("a b".to_owned()),
            }],
            ..Description::default()
        }
    }

    #[test]
    fn each_mapping_is_a_row_before_the_first_event() {
        let (events, missing) = events(&description(MAPS), Some(50));
        assert_eq!(missing, []);
        let said: Vec<String> = events
            .iter()
            .map(|event| {
                assert_eq!((event.time, event.pid), (Nanos(50), Some(7)));
                assert_eq!(event.comm.as_deref(), Some("a b"));
                match &event.kind {
                    Kind::Memory {
                        event:
                            MemoryEvent::Map {
                                id,
                                protection,
                                merge,
                                ..
                            },
                        range: Some(range),
                    } => format!("{} {range} {} {}", id.0, protection.word(), merge.word()),
                    Kind::Counter { name, value } => format!("{name} {value:x}"),
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        assert_eq!(
            said,
            [
                "0 55d0c0000000-55d0c0001000 read never",
                "1 55d0c0001000-55d0c0003000 read never",
                "2 55d0c1000000-55d0c1021000 write may",
                "3 7f0000000000-7f0000001000 write may",
                "4 7f0000001000-7f0000002000 none may",
                "5 7f0000003000-7f0000004000 write never",
                "6 7ffc00000000-7ffc00021000 write never",
                "heap end 55d0c1021000",
            ]
        );
    }

    #[test]
    fn without_events_the_time_is_when_it_was_read() {
        let (events, _) = events(&description(MAPS), None);
        assert!(events.iter().all(|event| event.time == Nanos(90)));
    }

    #[test]
    fn what_is_no_maps_file_is_missing_with_its_reason() {
        for broken in ["nonsense\n", "2000-1000\n", "1000-2000 rw-p x 00:00 0\n"] {
            let (events, missing) = events(&description(broken), None);
            assert!(events.is_empty(), "{broken}");
            assert!(missing[0].why.contains("/proc/7/maps"), "{missing:?}");
        }
        // Backwards: no range.
        assert!(events_of("2000-1000 rw-p 0 00:00 0 \n").is_empty());
    }

    fn events_of(maps: &str) -> Vec<Event> {
        events(&description(maps), None).0
    }
}
