//! The oracle is a kernel in miniature: it knows the true spans and writes the rows at their ends.

use std::collections::HashSet;

use stopgap_events::random::Random;

use super::*;
use crate::Waits;

const SEEDS: u64 = 60;
const STEPS: u64 = 200;
const THREADS: usize = 5;

/// A span, and the rows by which it shows.
#[derive(Debug, Clone)]
struct Truth {
    tid: u32,
    key: Key,
    begins: Vec<usize>,
    end: Option<usize>,
    /// As it comes out where every row is there.
    row: Event,
}

#[derive(Default)]
struct Thread {
    in_call: bool,
    /// Indices of its open spans in the truth.
    open: Vec<usize>,
}

struct Kernel {
    random: Random,
    now: u64,
    threads: Vec<Thread>,
    requests: Vec<usize>,
    rows: Vec<Event>,
    truth: Vec<Truth>,
}

fn comm(tid: u32) -> Option<Text> {
    Some(format!("t{tid}").into())
}

impl Kernel {
    fn run(seed: u64) -> Kernel {
        let mut kernel = Kernel {
            random: Random::new(seed),
            now: 100,
            threads: (0..THREADS).map(|_| Thread::default()).collect(),
            requests: Vec::new(),
            rows: Vec::new(),
            truth: Vec::new(),
        };
        for _ in 0..STEPS {
            let at = kernel.random.index(THREADS);
            kernel.step(at);
        }
        for truth in &mut kernel.truth {
            if truth.end.is_none()
                && let Kind::Span(span) = &mut truth.row.kind
            {
                span.open = true;
                truth.row.time = Nanos(kernel.now);
                truth.row.cpu = None;
            }
        }
        kernel
    }

    /// Writes a row and returns its index.
    fn row(&mut self, tid: u32, kind: Kind) -> usize {
        self.now += 1 + self.random.below(9);
        self.rows.push(Event {
            time: Nanos(self.now),
            cpu: Some(tid % 2),
            pid: Some(tid + 100),
            tid: Some(tid),
            comm: comm(tid),
            kind,
        });
        self.rows.len() - 1
    }

    fn step(&mut self, at: usize) {
        let tid = 20 + at as u32;
        if !self.threads[at].in_call {
            self.threads[at].in_call = true;
            self.row(tid, crate::tests::enter("write", &[]));
            return;
        }
        match self.random.below(10) {
            0..4 if self.threads[at].open.len() < 4 => self.begins(at, tid),
            4..7 => self.ends(at, tid),
            7 => self.submits(tid),
            8 => self.request_goes_on(tid),
            _ if self.threads[at].open.is_empty() => {
                self.threads[at].in_call = false;
                self.row(tid, crate::tests::leave("write", 0));
            }
            _ => self.goes_on(at, tid),
        }
    }

    fn begins(&mut self, at: usize, tid: u32) {
        let number = self.random.below(3);
        let write = Some(number == 0);
        let lock = |kind: &str, address| {
            let lock = Some(Text::from(kind));
            let kind = Kind::LockBegin {
                lock: lock.clone(),
                address: Some(address),
                write,
            };
            (kind, lock)
        };
        let (kind, key, span) = match self.random.below(6) {
            0 => (
                Kind::ReclaimBegin {
                    by: Reclaimer::Direct,
                    order: Some(3),
                    gfp: Some("GFP_KERNEL".into()),
                    node: None,
                    shrinker: None,
                },
                Key::Plain(Activity::DirectReclaim),
                Span {
                    order: Some(3),
                    gfp: Some("GFP_KERNEL".into()),
                    ..Span::new(Activity::DirectReclaim, Nanos(0))
                },
            ),
            1 => {
                let shrinker = Some(Text::from(format!("scan{number}")));
                (
                    Kind::ReclaimBegin {
                        by: Reclaimer::Shrinker,
                        order: None,
                        gfp: None,
                        node: Some(1),
                        shrinker: shrinker.clone(),
                    },
                    Key::Shrinker(shrinker.clone()),
                    Span {
                        node: Some(1),
                        shrinker,
                        ..Span::new(Activity::Shrinker, Nanos(0))
                    },
                )
            }
            2 => (
                Kind::CompactionBegin {
                    order: Some(9),
                    gfp: None,
                    node: None,
                    synchronous: Some(true),
                },
                Key::Plain(Activity::Compaction),
                Span {
                    order: Some(9),
                    synchronous: Some(true),
                    ..Span::new(Activity::Compaction, Nanos(0))
                },
            ),
            3 => {
                let (kind, lock) = lock(MUTEX[0], number);
                (
                    kind,
                    Key::Lock(Activity::Lock, Some(number)),
                    Span {
                        lock,
                        address: Some(number),
                        write,
                        ..Span::new(Activity::Lock, Nanos(0))
                    },
                )
            }
            4 => {
                let (kind, lock) = lock("mmap", number);
                (
                    kind,
                    Key::Lock(Activity::MmapLock, Some(number)),
                    Span {
                        lock,
                        address: Some(number),
                        write,
                        ..Span::new(Activity::MmapLock, Nanos(0))
                    },
                )
            }
            _ => {
                let (context, seqno) = (Some(number), Some(7));
                (
                    Kind::FenceWaitBegin {
                        driver: Some("drv".into()),
                        timeline: None,
                        context,
                        seqno,
                    },
                    Key::Fence(context, seqno),
                    Span {
                        driver: Some("drv".into()),
                        context,
                        seqno,
                        ..Span::new(Activity::Fence, Nanos(0))
                    },
                )
            }
        };
        let is_open = |&open: &usize| self.truth[open].key == key;
        if self.threads[at].open.iter().any(is_open) {
            return; // nothing lies in itself
        }
        let row = self.row(tid, kind);
        self.threads[at].open.push(self.truth.len());
        self.add(tid, key, row, span);
    }

    fn add(&mut self, tid: u32, key: Key, row: usize, span: Span) {
        let begin = self.rows[row].time;
        let is_issue = matches!(self.rows[row].kind, Kind::BlockIssue { .. });
        let span = Span {
            begin,
            issued: is_issue.then_some(begin),
            ..span
        };
        self.truth.push(Truth {
            tid,
            key,
            begins: vec![row],
            end: None,
            row: Event {
                kind: Kind::Span(Box::new(span)),
                ..self.rows[row].clone()
            },
        });
    }

    fn span(&mut self, truth: usize) -> &mut Span {
        match &mut self.truth[truth].row.kind {
            Kind::Span(span) => span,
            _ => unreachable!(),
        }
    }

    /// A thread that waits for a mutex waits for it in another way.
    fn goes_on(&mut self, at: usize, tid: u32) {
        let Some(&truth) = self.threads[at].open.last() else {
            return;
        };
        let Key::Lock(Activity::Lock, address) = self.truth[truth].key else {
            return;
        };
        let times = self.truth[truth].begins.len();
        let write = self.span(truth).write;
        let lock = Some(Text::from(MUTEX[times % 2]));
        let row = self.row(
            tid,
            Kind::LockBegin {
                lock,
                address,
                write,
            },
        );
        self.truth[truth].begins.push(row);
        self.span(truth).lock = Some(MUTEX[1].into());
    }

    fn ends(&mut self, at: usize, tid: u32) {
        let Some(truth) = self.threads[at].open.pop() else {
            return;
        };
        let key = self.truth[truth].key.clone();
        let reclaims = |by, shrinker, reclaimed| Kind::ReclaimEnd {
            by,
            order: None,
            node: None,
            scanned: None,
            reclaimed,
            shrinker,
            reason: None,
            duration: None,
        };
        let amount = Some(self.random.below(99));
        let kind = match key {
            Key::Plain(Activity::Compaction) => Kind::CompactionEnd {
                order: None,
                node: None,
                status: Some("success".into()),
            },
            Key::Plain(_) => reclaims(Reclaimer::Direct, None, amount),
            Key::Shrinker(shrinker) => reclaims(Reclaimer::Shrinker, shrinker, amount),
            Key::Lock(what, address) => Kind::LockEnd {
                lock: (what == Activity::MmapLock).then(|| "mmap".into()),
                address,
                write: None,
                result: Some(0),
            },
            Key::Fence(context, seqno) => Kind::FenceWaitEnd {
                driver: None,
                timeline: Some("line".into()),
                context,
                seqno,
            },
            Key::Request(..) => unreachable!(),
        };
        let span = self.span(truth);
        match span.what {
            Activity::Compaction => span.status = Some("success".into()),
            Activity::Lock | Activity::MmapLock => span.result = Some(0),
            Activity::Fence => span.timeline = Some("line".into()),
            _ => span.reclaimed = amount,
        }
        let row = self.row(tid, kind);
        self.over(truth, row);
    }

    fn over(&mut self, truth: usize, row: usize) {
        let end = &self.rows[row];
        let truth = &mut self.truth[truth];
        (truth.row.time, truth.row.cpu) = (end.time, end.cpu);
        truth.end = Some(row);
    }

    fn submits(&mut self, tid: u32) {
        let (device, sector) = (Text::from("8:0"), self.random.below(5));
        let key = Key::Request(Text::clone(&device), sector);
        if self.requests.iter().any(|&at| self.truth[at].key == key) {
            return;
        }
        let (length, operation) = (Some(Bytes(4_096)), Some(Text::from("R")));
        let span = Span {
            device: Some(Text::clone(&device)),
            sector: Some(sector),
            length,
            operation: operation.clone(),
            ..Span::new(Activity::Block, Nanos(0))
        };
        let kind = match self.random.below(2) {
            0 => Kind::BlockInsert {
                device,
                sector,
                length,
                operation,
            },
            _ => Kind::BlockIssue {
                device,
                sector,
                length,
                operation,
            },
        };
        let row = self.row(tid, kind);
        self.requests.push(self.truth.len());
        self.add(tid, key, row, span);
    }

    /// A request is issued or done, while any thread has the CPU.
    fn request_goes_on(&mut self, tid: u32) {
        if self.requests.is_empty() {
            return;
        }
        let at = self.random.index(self.requests.len());
        let truth = self.requests[at];
        let Key::Request(device, sector) = self.truth[truth].key.clone() else {
            unreachable!()
        };
        let (length, operation) = (Some(Bytes(4_096)), Some(Text::from("R")));
        if self.span(truth).issued.is_none() {
            let row = self.row(
                tid,
                Kind::BlockIssue {
                    device,
                    sector,
                    length,
                    operation,
                },
            );
            self.truth[truth].begins.push(row);
            self.span(truth).issued = Some(Nanos(self.now));
            return;
        }
        self.requests.remove(at);
        self.span(truth).result = Some(-5);
        let row = self.row(
            tid,
            Kind::BlockComplete {
                device,
                sector,
                length: None,
                operation: None,
                result: Some(-5),
            },
        );
        self.over(truth, row);
    }

    /// The true spans as they come out: by their ends, and then the open ones by their begin.
    fn expected(&self) -> Vec<Event> {
        let begin = |event: &Event| match &event.kind {
            Kind::Span(span) => span.begin,
            _ => unreachable!(),
        };
        let mut all: Vec<&Truth> = self.truth.iter().collect();
        all.sort_by_key(|truth| (truth.end.is_none(), truth.end, begin(&truth.row)));
        all.into_iter().map(|truth| truth.row.clone()).collect()
    }
}

/// The words of a mutex that a thread spins and sleeps for.
const MUTEX: [&str; 2] = ["SPIN|MUTEX", "MUTEX"];

/// The spans that are made of the rows that are not in `lost`, and how many ends had no partner.
fn made(kernel: &Kernel, lost: &HashSet<usize>) -> (Vec<Event>, u64) {
    let (mut waits, mut out) = (Waits::default(), VecDeque::new());
    for (index, row) in kernel.rows.iter().enumerate() {
        if !lost.contains(&index) {
            waits.event(row.clone(), &mut out);
        }
    }
    let halves = waits.halves();
    waits.finish(Nanos(kernel.now), &mut out);
    assert!(out.iter().is_sorted_by_key(|event| event.time));
    let spans = out.into_iter().filter(|event| match &event.kind {
        Kind::Span(_) => true,
        kind => {
            assert!(
                matches!(kind.word(), "syscall-enter" | "syscall-exit"),
                "{kind:?}"
            );
            false
        }
    });
    (spans.collect(), halves)
}

/// Panics at the first difference.
fn same(made: &[Event], expected: &[Event], what: &str) {
    for (made, expected) in made.iter().zip(expected) {
        assert_eq!(made, expected, "{what}");
    }
    assert_eq!(made.len(), expected.len(), "{what}");
}

fn is_end_of_a_span(row: &Event) -> bool {
    !row.kind.word().starts_with("syscall")
}

#[test]
fn the_spans_are_those_of_the_kernel() {
    let (mut spans, mut open) = (0, 0);
    for seed in 0..SEEDS {
        let kernel = Kernel::run(seed);
        let (made, halves) = made(&kernel, &HashSet::new());
        same(&made, &kernel.expected(), &format!("seed {seed}"));
        assert_eq!(halves, 0, "seed {seed}");
        spans += kernel.truth.len();
        open += kernel.truth.iter().filter(|one| one.end.is_none()).count();
    }
    assert!(spans > 1_500 && open > 150, "{spans} {open}");
}

/// A lost row costs its own span at most: what else comes out is as if nothing had been lost.
#[test]
fn one_row_that_is_missing_changes_one_span() {
    for seed in 0..SEEDS {
        let kernel = Kernel::run(seed);
        let mut random = Random::new(seed ^ 0x51);
        let lost = loop {
            let row = random.index(kernel.rows.len());
            if is_end_of_a_span(&kernel.rows[row]) {
                break row;
            }
        };
        let has = |truth: &&Truth| truth.begins.contains(&lost) || truth.end == Some(lost);
        let truth = kernel.truth.iter().find(has).expect("a row of a span");
        let (made, halves) = made(&kernel, &HashSet::from([lost]));
        let of_others = |event: &&Event| !is_of(event, truth);
        let others: Vec<Event> = made.iter().filter(of_others).cloned().collect();
        let mut expected = kernel.expected();
        expected.retain(|event| *event != truth.row);
        same(&others, &expected, &format!("seed {seed}, row {lost}"));
        let own = made.iter().find(|event| is_of(event, truth));
        match own.map(|event| &event.kind) {
            // Its begin is another row of the same span, or its end is open.
            Some(Kind::Span(span)) => {
                let is_begin = |&row: &usize| kernel.rows[row].time == span.begin && row != lost;
                assert!(truth.begins.iter().any(is_begin), "seed {seed}: {span:?}");
                let ends = truth.end.is_some_and(|end| end != lost);
                assert_eq!(span.open, !ends, "seed {seed}: {span:?}");
            }
            _ => {
                let is_trylock = matches!(truth.key, Key::Lock(Activity::MmapLock, _));
                let told = halves > 0 || truth.end.is_none() || is_trylock;
                assert!(told, "seed {seed}: {truth:?}");
            }
        }
    }
}

/// Whether a row can be only of this span: of its thread or, of a request, its sector, and begun when it was.
fn is_of(event: &Event, truth: &Truth) -> bool {
    let Kind::Span(span) = &event.kind else {
        return false;
    };
    let Kind::Span(own) = &truth.row.kind else {
        return false;
    };
    let same = match &truth.key {
        Key::Request(_, sector) => span.sector == Some(*sector),
        _ => event.tid == Some(truth.tid) && span.address == own.address,
    };
    same && span.what == own.what
        && span.begin >= own.begin
        && (event.time == truth.row.time || span.begin == own.begin)
}

/// However many rows are lost: a span begins and ends where its thread began and ended such a thing, and no row in
/// between that shows something else was seen.
#[test]
fn rows_that_are_missing_make_no_span_up() {
    let (mut exact, mut all) = (0_u64, 0_u64);
    for seed in 0..SEEDS {
        let kernel = Kernel::run(seed);
        let mut random = Random::new(seed ^ 0xd20);
        let one_in = 2 + random.below(20);
        let lost: HashSet<usize> = (0..kernel.rows.len())
            .filter(|_| random.below(one_in) == 0)
            .collect();
        let expected = kernel.expected();
        for event in made(&kernel, &lost).0 {
            let Kind::Span(span) = &event.kind else {
                unreachable!()
            };
            all += 1;
            exact += u64::from(expected.contains(&event));
            let what = format!("seed {seed}: {event:?}");
            let at = |row: &usize| kernel.rows[*row].time;
            let begun = kernel
                .truth
                .iter()
                .find(|truth| truth.begins.iter().any(|row| at(row) == span.begin));
            let begun = begun.expect(&what);
            let same = |truth: &&Truth| {
                let tid = matches!(truth.key, Key::Request(..)) || truth.tid == begun.tid;
                tid && truth.key == begun.key
            };
            let mut of_it = kernel.truth.iter().filter(same);
            if span.open {
                assert!(begun.end.is_none_or(|end| lost.contains(&end)), "{what}");
            } else {
                let ends = |truth: &Truth| truth.end.is_some_and(|end| at(&end) == event.time);
                assert!(of_it.any(ends), "{what}");
            }
            let is_request = matches!(begun.key, Key::Request(..));
            let shows = kernel.rows.iter().enumerate().filter(|(index, row)| {
                let inside = span.begin < row.time && row.time < event.time;
                let call = !is_end_of_a_span(row) && row.tid == event.tid && !is_request;
                let end = kernel
                    .truth
                    .iter()
                    .filter(same)
                    .any(|one| one.end == Some(*index));
                inside && (call || end) && !lost.contains(index)
            });
            assert_eq!(shows.count(), 0, "{what}");
        }
    }
    assert!(exact > 1_000 && exact * 10 > all * 9, "{exact} of {all}");
}

fn row(time: u64, cpu: u32, tid: Option<u32>, kind: Kind) -> Event {
    Event {
        time: Nanos(time),
        cpu: Some(cpu),
        pid: None,
        tid,
        comm: None,
        kind,
    }
}

fn lock(begins: bool, words: Option<&str>) -> Kind {
    let (lock, address, write) = (words.map(Text::from), Some(9), None);
    match begins {
        true => Kind::LockBegin {
            lock,
            address,
            write,
        },
        false => Kind::LockEnd {
            lock,
            address,
            write,
            result: Some(0),
        },
    }
}

/// Begin and end of each span, and whether it is open, and the ends that had no partner.
fn told(rows: Vec<Event>) -> (Vec<(u64, u64, bool)>, u64) {
    let (mut waits, mut out) = (Waits::default(), VecDeque::new());
    rows.into_iter().for_each(|row| waits.event(row, &mut out));
    let halves = waits.halves();
    waits.finish(Nanos(100), &mut out);
    let span = |event: &Event| match &event.kind {
        Kind::Span(span) => Some((span.begin.0, event.time.0, span.open)),
        _ => None,
    };
    (out.iter().filter_map(span).collect(), halves)
}

/// Idle tasks have one number; each CPU has its own.
#[test]
fn idle_tasks_of_two_cpus_do_not_share_a_span() {
    let rows = vec![
        row(10, 0, Some(0), lock(true, Some("SPIN"))),
        row(20, 1, Some(0), lock(true, Some("SPIN"))),
        row(30, 0, Some(0), lock(false, None)),
        row(40, 1, Some(0), lock(false, None)),
    ];
    assert_eq!(told(rows), (vec![(10, 30, false), (20, 40, false)], 0));
}

#[test]
fn what_makes_no_span() {
    let throttled = |duration| Kind::ReclaimEnd {
        by: Reclaimer::Throttled,
        order: None,
        node: None,
        scanned: None,
        reclaimed: None,
        shrinker: None,
        reason: None,
        duration,
    };
    let rows = vec![
        // It is told when it is over, with its length.
        row(50, 0, Some(7), throttled(Some(Nanos(20)))),
        row(51, 0, Some(7), throttled(None)),
        // The thread is unknown.
        row(52, 0, None, lock(true, None)),
        row(53, 0, None, lock(false, None)),
        // It ends, and another gets its number.
        row(54, 0, Some(7), lock(true, None)),
        row(55, 0, Some(7), Kind::Exit { priority: None }),
        row(56, 0, Some(7), lock(false, None)),
        // It only tried to take an mmap_lock.
        row(57, 0, Some(7), lock(false, Some("mmap"))),
        row(60, 0, Some(8), lock(true, None)),
    ];
    assert_eq!(told(rows), (vec![(30, 50, false), (60, 100, true)], 5));
}

/// Rows out of order: a span does not end before it begins, which a file demands.
#[test]
fn disorder_makes_no_span_that_ends_before_it_begins() {
    for seed in 0..SEEDS {
        let mut kernel = Kernel::run(seed);
        let mut random = Random::new(seed);
        for _ in 0..20 {
            let [one, other] = [0; 2].map(|_| random.index(kernel.rows.len()));
            kernel.rows.swap(one, other);
        }
        let (mut waits, mut out) = (Waits::default(), VecDeque::new());
        kernel
            .rows
            .into_iter()
            .for_each(|row| waits.event(row, &mut out));
        waits.finish(Nanos(0), &mut out);
        for event in &out {
            if let Kind::Span(span) = &event.kind {
                let issued = span.issued.unwrap_or(span.begin);
                assert!(
                    span.begin <= issued && issued <= event.time,
                    "seed {seed}: {event:?}"
                );
            }
        }
    }
}

/// Rows of one disk, each `(time, tid, kind)`; gives `(tid, begin, issued, end, sector, open)` of each span.
type Told = (u32, u64, Option<u64>, u64, u64, bool);
fn of_disk(rows: &[(u64, u32, Kind)]) -> Vec<Told> {
    let (mut spans, mut out) = (Spans::default(), VecDeque::new());
    for (time, tid, kind) in rows {
        let event = Event {
            time: Nanos(*time),
            cpu: Some(0),
            pid: None,
            tid: Some(*tid),
            comm: None,
            kind: kind.clone(),
        };
        assert!(spans.takes(&event, event.time, &mut out), "{event:?}");
    }
    spans.finish(Nanos(1_000), &mut out);
    let told = |event: Event| match event.kind {
        Kind::Span(span) => (
            event.tid.unwrap(),
            span.begin.0,
            span.issued.map(|issued| issued.0),
            event.time.0,
            span.sector.unwrap(),
            span.open,
        ),
        other => panic!("{other:?}"),
    };
    out.into_iter().map(told).collect()
}

fn of_request(what: &str, sector: u64, pages: u64) -> Kind {
    let (device, operation) = (Text::from("8:0"), Some(Text::from("W")));
    let length = Some(Bytes(pages * 4_096));
    match what {
        "insert" => Kind::BlockInsert {
            device,
            sector,
            length,
            operation,
        },
        "issue" => Kind::BlockIssue {
            device,
            sector,
            length,
            operation,
        },
        "merge" => Kind::BlockMerge {
            device,
            sector,
            length,
            operation,
        },
        _ => Kind::BlockComplete {
            device,
            sector,
            length,
            operation,
            result: Some(0),
        },
    }
}

/// What a thread adds to another thread's request ends with that; what it adds to its own is in its own span.
#[test]
fn parts_of_a_request_end_with_it() {
    let told = of_disk(&[
        (10, 7, of_request("insert", 800, 1)),
        (11, 7, of_request("merge", 808, 1)),
        (12, 8, of_request("merge", 816, 1)),
        (13, 9, of_request("merge", 9_000, 1)),
        (20, 5, of_request("issue", 800, 3)),
        (30, 0, of_request("complete", 800, 3)),
    ]);
    assert_eq!(
        told,
        [
            (7, 10, Some(20), 30, 800, false),
            (8, 12, Some(20), 30, 816, false),
            (9, 13, None, 1_000, 9_000, true),
        ]
    );
}

/// A request to which something is added at its front goes to the disk under another first sector.
#[test]
fn a_request_grows_at_its_front() {
    let told = of_disk(&[
        (10, 7, of_request("insert", 808, 1)),
        (11, 8, of_request("merge", 800, 1)),
        (20, 5, of_request("issue", 800, 2)),
        (30, 0, of_request("complete", 800, 2)),
    ]);
    let own = (7, 10, Some(20), 30, 800, false);
    assert_eq!(told, [own, (8, 11, Some(20), 30, 800, false)]);
}

/// A request in the queue becomes a part of the one before it: it has no end of its own.
#[test]
fn two_requests_become_one() {
    let told = of_disk(&[
        (10, 7, of_request("insert", 800, 1)),
        (11, 8, of_request("insert", 808, 1)),
        (12, 8, of_request("merge", 808, 1)),
        (20, 5, of_request("issue", 800, 2)),
        (30, 0, of_request("complete", 800, 2)),
    ]);
    let own = (7, 10, Some(20), 30, 800, false);
    assert_eq!(told, [own, (8, 11, Some(20), 30, 808, false)]);
}

/// Who made a fence submitted the work that another thread waits for.
#[test]
fn a_wait_for_a_fence_has_who_submitted_its_work() {
    let (driver, timeline) = (Some("vgem".into()), Some("unbound".into()));
    let init = |seqno| Kind::FenceInit {
        driver: driver.clone(),
        timeline: timeline.clone(),
        context: 7,
        seqno,
    };
    let begin = Kind::FenceWaitBegin {
        driver: driver.clone(),
        timeline: timeline.clone(),
        context: Some(7),
        seqno: Some(2),
    };
    let end = Kind::FenceWaitEnd {
        driver: driver.clone(),
        timeline: timeline.clone(),
        context: Some(7),
        seqno: Some(2),
    };
    let rows = [
        row(1, 0, Some(3), init(1)),
        row(2, 0, Some(4), init(2)),
        row(10, 1, Some(9), begin),
        row(510, 1, Some(9), end),
    ];
    let (mut waits, mut out) = (Waits::default(), VecDeque::new());
    rows.into_iter().for_each(|row| waits.event(row, &mut out));
    let [event] = out.make_contiguous() else {
        panic!("{out:?}");
    };
    let Kind::Span(span) = &event.kind else {
        panic!("{event:?}");
    };
    assert_eq!((event.tid, span.holder), (Some(9), Some(4)));
    assert_eq!((span.begin, &span.timeline), (Nanos(10), &timeline));
}
