//! As many waits as the kernel counts switches, of every thread. `checks/counts` has servers, 5,000 threads and 2,000 processes.

use std::collections::{HashMap, HashSet};
use std::sync::Barrier;
use std::time::Duration;

use stopgap_events::wait::Within;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_testing::{Skip, skip};
use stopgap_trace::{Input, Kind, Moment, TaskCounts};

use crate::common::{Run, has, root};

/// Set where this program is the one that is recorded.
const RECORDED: &str = "STOPGAP_TEST_COUNTS";
const THREADS: usize = 200;

/// Number of this thread, and how often it left its CPU.
fn switches() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let number = |key: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim().parse().unwrap()
    };
    let both = number("voluntary_ctxt_switches:") + number("nonvoluntary_ctxt_switches:");
    (number("Pid:"), both)
}

/// No test of its own: [`THREADS`] threads that live at once. Each says what the kernel counts of it.
#[test]
fn works() {
    if std::env::var_os(RECORDED).is_none() {
        return;
    }
    let all = Barrier::new(THREADS);
    let counts = || {
        all.wait();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(1));
            std::thread::yield_now();
        }
        // On a busy machine a thread loses its CPU between the two; then it looks again.
        loop {
            let ((tid, before), now) = (switches(), Linux.now());
            let (_, after) = switches();
            if before == after {
                return format!("counted {tid} {before} {}", now.0);
            }
        }
    };
    let counted: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(counts)).collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    println!("\n{}", counted.join("\n"));
}

/// What a recording has of each thread: when its waits began, and of those that began and ended meanwhile, what the kernel had counted
/// when they ended.
struct Recorded {
    began: HashMap<u32, Vec<u64>>,
    ended: HashMap<u32, Ended>,
}

/// A thread that began and ended meanwhile.
struct Ended {
    comm: String,
    time: u64,
    counts: TaskCounts,
}

/// Records a command by BPF. `None` where this machine does not let it.
fn recorded(run: &Run, command: &str) -> Option<(Recorded, String)> {
    if !root() {
        skip(&Skip::root("record by BPF"));
        return None;
    }
    let done = run.stopgap(format!(
        "record --source bpf -o t.parquet -- env {RECORDED}=1 {command}"
    ));
    if done.status == Some(3) {
        skip(&Skip::machine(done.err));
        return None;
    }
    assert_eq!(done.status, Some(0), "{done:#?}");
    has(&done.out, &["lost      none"]);
    let file = std::fs::File::open(run.path("t.parquet")).unwrap();
    let (mut began, mut ended) = (HashMap::<u32, Vec<u64>>::new(), HashMap::new());
    let mut new = HashSet::new();
    for event in Input::new(file).unwrap().as_recorded().by_ref() {
        let event = event.unwrap();
        let Some(tid) = event.tid else { continue };
        match event.kind {
            // A thread that has not run yet leaves no CPU.
            Kind::Wait(wait) if wait.within != Some(Within::New) => {
                began.entry(tid).or_default().push(wait.left.0);
            }
            Kind::Task(counts) if counts.moment == Moment::New => {
                new.insert(tid);
            }
            Kind::Task(counts) if counts.moment == Moment::Exit && new.contains(&tid) => {
                let comm = event.comm.as_deref().unwrap_or_default().to_owned();
                let (time, counts) = (event.time.0, *counts);
                ended.insert(tid, Ended { comm, time, counts });
            }
            _ => {}
        }
    }
    Some((Recorded { began, ended }, done.out))
}

impl Recorded {
    /// Panics where the waits that began until then are not as many as `switches`, but for two at the edges.
    fn assert(&self, tid: u32, switches: u64, until: u64) {
        let began = self.began.get(&tid).map_or(&[][..], Vec::as_slice);
        let waits = began.iter().filter(|&&left| left <= until).count() as u64;
        assert!(
            waits.abs_diff(switches) <= 2,
            "thread {tid}: {waits} waits, {switches} switches"
        );
    }
}

#[test]
fn many_threads_have_as_many_waits_as_they_count_switches() {
    let run = Run::new();
    let own = std::env::current_exe().unwrap();
    let command = format!("{} --exact record_counts::works --nocapture", own.display());
    let Some((recorded, out)) = recorded(&run, &command) else {
        return;
    };
    let mut threads = 0;
    for line in out.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["counted", numbers @ ..] = &words[..] {
            let [tid, switches, until] = [0, 1, 2].map(|at| numbers[at].parse::<u64>().unwrap());
            recorded.assert(u32::try_from(tid).unwrap(), switches, until);
            threads += 1;
        }
    }
    assert_eq!(threads, THREADS, "{out}");
}

#[test]
fn short_processes_have_as_many_waits_as_the_kernel_counts_switches() {
    let run = Run::new();
    let script = run.path("many");
    std::fs::write(&script, "for i in $(seq 100); do /bin/true; done\n").unwrap();
    let Some((recorded, _)) = recorded(&run, "sh many") else {
        return;
    };
    // Threads that something else of the machine made meanwhile may be some whose switches the kernel hides.
    let of_command = |ended: &&Ended| matches!(&*ended.comm, "sh" | "seq" | "true");
    let mut processes = 0;
    for (&tid, ended) in recorded.ended.iter().filter(|(_, it)| of_command(it)) {
        let switches = ended.counts.voluntary.unwrap() + ended.counts.involuntary.unwrap();
        recorded.assert(tid, switches, ended.time);
        processes += 1;
    }
    assert!(processes >= 100, "{processes}");
}
