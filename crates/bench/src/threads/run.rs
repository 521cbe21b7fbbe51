//! One run: a front, and one or two threads that carry their operations out on it at the same time.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use stopgap_events::workload::Frag;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::tasks::Tasks;
use stopgap_models::placement::operation::Operation;
use stopgap_models::placement::{Batch, Compiler, Contender};
use stopgap_placement::{Direction, Request, Space};

/// What a thread carries out: its own ranges, which no other thread frees.
pub(super) struct Load {
    /// Lays out and thins; not timed.
    layout: Vec<Operation>,
    /// Timed.
    steady: Vec<Operation>,
    slots: usize,
}

impl Load {
    /// The operations of `frag`, which asks nothing beside sizes.
    pub(super) fn new(space: Space, frag: &Frag) -> Result<Load, String> {
        let mut compiler = Compiler::new(space, Direction::Any);
        let (mut batch, mut events) = (Batch::default(), frag.events().map(Ok));
        let (mut layout, mut steady) = (Vec::new(), Vec::new());
        while compiler
            .fill(&mut events, &mut batch)
            .map_err(|error| error.to_string())?
        {
            let to = if batch.measured {
                &mut steady
            } else {
                &mut layout
            };
            to.extend_from_slice(&batch.operations);
        }
        Ok(Load {
            layout,
            steady,
            slots: compiler.slots(),
        })
    }
}

/// What the timed operations of all threads of a run took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    /// Operations of all threads.
    pub(super) operations: f64,
    /// From the first thread's start to the last one's end, by the wall clock, in ns.
    pub(super) wall_ns: f64,
    /// The share of its time from start to end for which a thread was not on its CPU, 0 to 1; of all
    /// threads together.
    pub(super) off_cpu: f64,
}

/// The timed part of one thread, in ns.
struct Span {
    start: u64,
    end: u64,
    cpu: u64,
}

/// Where threads meet: they start within some cycles of each other, as nobody has to be woken, and
/// none gives back its memory while another is still timed.
struct Line {
    threads: usize,
    arrived: AtomicUsize,
    end: Barrier,
}

impl Line {
    fn new(threads: usize) -> Line {
        Line {
            threads,
            arrived: AtomicUsize::new(0),
            end: Barrier::new(threads),
        }
    }

    fn start(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        while self.arrived.load(Ordering::SeqCst) < self.threads {
            spin_loop();
        }
    }
}

/// A thread for each of `loads`, bound to the CPU of the same index in `cpus`; each carries its load out
/// on what `make` gives it.
pub(super) fn run<C: Contender>(
    loads: &[Load],
    cpus: &[u32],
    make: impl Fn() -> C + Sync,
) -> Result<Took, String> {
    let line = Line::new(loads.len());
    let spans = std::thread::scope(|scope| {
        let threads: Vec<_> = loads
            .iter()
            .zip(cpus)
            .map(|(load, &cpu)| {
                let (line, make) = (&line, &make);
                scope.spawn(move || thread(make(), load, cpu, line))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| {
            let outcome = thread.join();
            outcome.unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        });
        joined.collect::<Result<Vec<Span>, String>>()
    })?;
    let start = spans.iter().map(|span| span.start).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.end).max().unwrap_or(0);
    let wall: u64 = spans.iter().map(|span| span.end - span.start).sum();
    let cpu: u64 = spans.iter().map(|span| span.cpu).sum();
    let operations: usize = loads.iter().map(|load| load.steady.len()).sum();
    Ok(Took {
        operations: operations as f64,
        wall_ns: (end - start).max(1) as f64,
        off_cpu: wall.saturating_sub(cpu) as f64 / wall.max(1) as f64,
    })
}

fn thread<C: Contender>(
    mut contender: C,
    load: &Load,
    cpu: u32,
    line: &Line,
) -> Result<Span, String> {
    let mut slots = vec![None; load.slots];
    let bound = Linux.set_cpus(&[cpu]).map_err(|error| error.to_string());
    let laid = bound.and_then(|()| carry_out(&mut contender, &load.layout, &mut slots));
    // Whatever failed: the others wait.
    line.start();
    let (start, cpu) = (Linux.now().0, Linux.thread_cpu().0);
    let done = carry_out(&mut contender, &load.steady, &mut slots);
    let (cpu, end) = (Linux.thread_cpu().0 - cpu, Linux.now().0);
    line.end.wait();
    black_box((&contender, &slots));
    laid.and(done).map(|()| Span { start, end, cpu })
}

fn carry_out<C: Contender>(
    contender: &mut C,
    operations: &[Operation],
    slots: &mut [Option<C::Handle>],
) -> Result<(), String> {
    for operation in operations {
        match *operation {
            Operation::Map { slot, size, .. } => {
                let placed = contender.place(&Request::of(size));
                slots[slot as usize] = Some(placed.map_err(|error| error.to_string())?);
            }
            Operation::Unmap { slot, size } => {
                let Some(handle) = slots[slot as usize].take() else {
                    return Err(format!("slot {slot} is empty"));
                };
                let freed = contender.free(handle, size);
                freed.map_err(|error| error.to_string())?;
            }
            Operation::Protect { .. } => return Err("frag protects nothing".to_owned()),
        }
    }
    Ok(())
}
