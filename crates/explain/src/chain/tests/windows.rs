//! Windows add up, on a simulated machine.

use proptest::prelude::*;
use stopgap_trace::Metadata;

use super::*;
use crate::{Explainer, Options};

fn sum(links: &[Link]) -> u64 {
    links.iter().map(|link| link.ns).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The parts of each window add up to it exactly, although marks come at any time, also from sleeping threads.
    #[test]
    fn parts_add_up_to_their_windows(
        seed in 0..10_000_u64,
        marks in prop::collection::vec((100..108_u32, 0..400_000_000_u64), 2..60),
    ) {
        let mut rows = by_chance(seed).rows;
        let is_end = |row: &&Event| matches!(&row.kind, Kind::Wait(wait) if wait.state == Some(State::Dead));
        let end = |row: &Event| (row.tid.unwrap(), row.time.0);
        let ends: HashMap<u32, u64> = rows.iter().filter(is_end).map(end).collect();
        let mut lengths: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for &(tid, at) in &marks {
            let (time, cpu) = (Nanos(at), None);
            let kind = Kind::Mark { name: "frame".into() };
            let comm = Some(format!("t{tid}").into());
            rows.push(Event { time, cpu, pid: Some(7), tid: Some(tid), comm, kind });
            lengths.entry(tid).or_default().push(at);
        }
        rows.sort_by_key(|row| row.time);
        let options = Options { top: 10, frame_marker: Some("frame".to_owned()), request: None };
        let mut explainer = Explainer::new(&Metadata::default(), options);
        rows.iter().for_each(|row| explainer.event(row));
        let chains = explainer.finish().chains.unwrap();
        let mut counted = 0;
        for windows in &chains.windows {
            prop_assert_eq!(sum(&windows.parts), windows.total_ns, "{:?}", windows);
            let Some(longest) = &windows.longest else { continue };
            prop_assert_eq!(sum(&longest.parts), longest.length_ns);
            let mut at = longest.at_ns;
            for step in &longest.steps {
                prop_assert_eq!(step.at_ns, at);
                at += step.ns;
            }
            if longest.steps.len() < 256 {
                prop_assert_eq!(at, longest.at_ns + longest.length_ns);
            }
            if windows.kind == stopgap_stats::explain::WindowKind::Frame {
                counted += windows.total_ns;
            }
        }
        let mut truth = 0;
        for (tid, times) in &mut lengths {
            times.sort_unstable();
            // A thread that has ended makes no frame with later marks under its number.
            let end = ends.get(tid).copied().unwrap_or(u64::MAX);
            let (before, after) = times.split_at(times.partition_point(|&at| at < end));
            for life in [before, after] {
                truth += life.last().zip(life.first()).map_or(0, |(last, first)| last - first);
            }
        }
        prop_assert_eq!(counted, truth);
    }
}

/// A frame with many waits: the past of its thread is merged long before the frame ends.
#[test]
fn a_long_window_keeps_all_its_chains() {
    let mut machine = Machine::new(2, 1);
    let turn = [Op::Run(MS / 10), Op::Sync(2 * MS), Op::Sleep(MS)];
    machine.thread("game", 0, 120, turn.repeat(500));
    machine.run(10_000 * MS);
    let mut rows = machine.rows;
    let mark = |time| Event {
        time,
        cpu: None,
        pid: Some(7),
        tid: Some(100),
        comm: Some("game".into()),
        kind: Kind::Mark {
            name: "frame".into(),
        },
    };
    rows.insert(0, mark(rows[0].time));
    let last = rows.pop().unwrap(); // its end
    rows.push(mark(last.time));
    rows.push(last);
    let options = Options {
        top: 10,
        frame_marker: Some("frame".to_owned()),
        request: None,
    };
    let mut explainer = Explainer::new(&Metadata::default(), options);
    rows.iter().for_each(|row| explainer.event(row));
    let chains = explainer.finish().chains.unwrap();
    let windows = &chains.windows[0];
    assert_eq!(windows.count, 1);
    let of = |cause: &str| {
        let parts = windows.parts.iter().filter(|part| part.cause == cause);
        parts.map(|part| part.ns).sum::<u64>()
    };
    assert_eq!(of("unknown"), 0, "{:?}", windows.parts);
    let (disk, timer) = (of("disk"), of("timer"));
    assert!(disk.abs_diff(1_000 * MS) < 10 * MS, "{disk}");
    assert!(timer.abs_diff(500 * MS) < 10 * MS, "{timer}");
    let longest = windows.longest.as_ref().unwrap();
    assert_eq!(longest.steps.len(), 256);
    assert_eq!(sum(&longest.parts), longest.length_ns);
}

/// A client waits for a server, which waits for a disk that is busy with requests of another thread.
#[test]
fn what_was_lost_names_waker_culprit_and_disk() {
    let mut machine = Machine::new(3, 0);
    let client = machine.thread("client", 0, 120, Vec::new());
    let server = machine.thread("server", 1, 120, Vec::new());
    let (asks, answers) = (
        machine.channel(client, false),
        machine.channel(server, false),
    );
    let asking = [Op::Run(MS), Op::Send(asks), Op::Receive(answers)];
    let serving = [Op::Receive(asks), Op::Sync(MS), Op::Send(answers)];
    machine.set_script(client, asking.repeat(20));
    machine.set_script(server, serving.repeat(20));
    machine.thread(
        "writer",
        2,
        120,
        [Op::Write(8 * MS), Op::Sleep(9 * MS)].repeat(20),
    );
    machine.run(10_000 * MS);
    let mut graph = Graph::of(&Metadata {
        disks: BTreeMap::from([("sda".to_owned(), "the disk".to_owned())]),
        ..Metadata::default()
    });
    are_born(&mut graph, &machine.rows);
    graph.keep_lost();
    let mut lost = Vec::new();
    for row in &machine.rows {
        graph.event(row);
        lost.extend(graph.take_lost(false));
    }
    lost.extend(graph.take_lost(true));
    let of_client: Vec<_> = lost
        .iter()
        .filter(|one| one.thread.name == "client")
        .collect();
    assert!(of_client.len() >= 15, "{}", of_client.len());
    let mut by_writer = 0;
    for one in of_client {
        assert_eq!(one.waker.as_ref().unwrap().name, "server");
        assert!(one.parts.is_sorted_by_key(|part| part.begin));
        for part in &one.parts {
            assert!(part.begin.0 + part.ns <= one.ran.0, "{one:?}");
            if part.by.as_ref().is_some_and(|by| by.name == "writer") {
                assert_eq!(part.text, "disk the disk, behind requests of writer");
                by_writer += part.ns;
            }
        }
    }
    assert!(by_writer > 50 * MS, "{by_writer}");

    // Ends of chains name the disk, and nothing else does.
    fn devices<'c>(links: &'c [Link], found: &mut Vec<(&'c str, Option<&'c str>)>) {
        for link in links {
            found.push((&link.cause, link.device.as_deref()));
            devices(&link.links, found);
        }
    }
    let chains = graph.finish(&HashSet::new());
    let mut found = Vec::new();
    for waiting in &chains.waiting {
        devices(&waiting.links, &mut found);
    }
    assert!(found.contains(&("disk", Some("the disk"))), "{found:?}");
    for (cause, device) in found {
        assert_eq!(device.is_some(), cause == "disk", "{cause} {device:?}");
    }
}
