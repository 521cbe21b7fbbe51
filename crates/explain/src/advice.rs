//! Advice: what to try, with the evidence in the trace.
//!
//! Each rule rests on counts that are in the record, so a reader can check them. A pair whose round trips cost 2
//! switches needs no advice. Most thresholds are a fifth of a switch per round trip: less is not worth a change.

use stopgap_events::order::SortRows;
use stopgap_events::units::Nanos;
use stopgap_stats::explain::{
    Advice, Cause, CauseKind, Findings, Idleness, Link, Memory, Pair, Reclaim, Waiting,
};

use crate::verdict::{lost, named};
use crate::why;

/// Switch-outs per round trip from which a cause is worth a change.
const WORTH: f64 = 0.2;

/// Fewest round trips for a rule.
const ENOUGH: u64 = 10;

/// Calls per round trip from which a server should join its answers.
const MANY_REPLIES: f64 = 1.5;

/// Share of the lost time, or of the time in slow memory operations, from which a cause is worth advice.
const WORTH_ADVICE: f64 = 0.3;

/// Returns the advice of every rule that applies.
pub(crate) fn advise(findings: &Findings) -> Vec<Advice> {
    let mut all = Vec::new();
    for pair in &findings.switches.pairs {
        let mean = pair.per_roundtrip.mean.unwrap_or(0.0);
        if pair.roundtrips >= ENOUGH && mean >= 2.0 + WORTH {
            let causes = &findings.switches.causes;
            all.extend(sched_batch(pair, causes));
            all.extend(poll(pair, causes));
            all.extend(coalesce(pair));
            all.extend(separate_cpus(pair));
        }
    }
    all.extend(memory(findings));
    all.extend(short_calls(findings));
    all.extend(waits(findings));
    all
}

fn per_trip(count: u64, pair: &Pair) -> f64 {
    count as f64 / pair.roundtrips as f64
}

fn sum<'a>(causes: impl Iterator<Item = &'a Cause>) -> u64 {
    causes.map(|cause| cause.count).sum()
}

/// Advises SCHED_BATCH where the client that was just answered pre-empts the server. A batch task pre-empts nobody
/// when it is woken (kernel/sched/fair.c, check_preempt_wakeup_fair).
fn sched_batch(pair: &Pair, causes: &[Cause]) -> Option<Advice> {
    let mine = || {
        causes.iter().filter(|cause| {
            let by_client = cause.by_task.as_deref() == Some(&pair.client);
            let pre_empted = matches!(
                cause.kind,
                CauseKind::PreemptedOnTheWayOut | CauseKind::PreemptedInCall
            );
            cause.task == pair.server && by_client && pre_empted
        })
    };
    let count = sum(mine());
    let share = per_trip(count, pair);
    // Causes are counted by name. More of them than the pair has switches belong to other threads of these names.
    let own = pair.per_roundtrip.mean.unwrap_or(0.0);
    if share < WORTH || share > own {
        return None;
    }
    let call = mine().max_by_key(|cause| cause.count)?.call.clone();
    let (client, server) = (&pair.client, &pair.server);
    Some(Advice {
        word: "sched-batch".to_owned(),
        text: format!(
            "run {client} as SCHED_BATCH (chrt -b 0 {client}): then waking it pre-empts nobody; on a busy CPU that may not be enough: measure both"
        ),
        evidence: format!(
            "{server} was pre-empted {count} times, {share:.2} a round trip, by {client}, which it had woken in {}",
            call.as_deref().unwrap_or("a system call")
        ),
    })
}

/// Advises poll where room to write wakes a blocking read. A poll for input is not woken by it (net/unix/af_unix.c,
/// unix_write_space).
fn poll(pair: &Pair, causes: &[Cause]) -> Option<Advice> {
    let woken = causes.iter().filter(|cause| {
        let call = cause.call.as_deref().unwrap_or_default();
        cause.task == pair.client
            && cause.by_task.as_deref() == Some(&pair.server)
            && cause.kind == CauseKind::WriteSpaceWake
            && crate::call::role(call) == crate::call::Role::Receives
    });
    let count = sum(woken);
    let share = per_trip(count, pair);
    let (client, server) = (&pair.client, &pair.server);
    (share >= WORTH).then(|| Advice {
        word: "poll".to_owned(),
        text: format!("let {client} wait in poll for input before it reads, instead of in a blocking read"),
        evidence: format!(
            "{client} was woken {count} times, {share:.2} a round trip, because {server} had read (write space); it \
             found nothing and slept again"
        ),
    })
}

fn coalesce(pair: &Pair) -> Option<Advice> {
    let mean = pair.per_roundtrip.mean?;
    let replies = pair.replies_per_roundtrip;
    let (client, server) = (&pair.client, &pair.server);
    (replies >= MANY_REPLIES).then(|| Advice {
        word: "coalesce-replies".to_owned(),
        text: format!("let {server} gather its answers and write them once a flush (writev)"),
        evidence: format!(
            "{server} answered {client} with {replies:.1} calls a round trip, at {mean:.1} switches"
        ),
    })
}

fn separate_cpus(pair: &Pair) -> Option<Advice> {
    let mean = pair.per_roundtrip.mean?;
    let cpu = pair.one_cpu?;
    let (client, server) = (&pair.client, &pair.server);
    Some(Advice {
        word: "separate-cpus".to_owned(),
        text: format!("let {client} and {server} run on separate CPUs, where there are several"),
        evidence: format!("both ran on CPU {cpu} alone, at {mean:.1} switches a round trip"),
    })
}

fn memory(findings: &Findings) -> Option<Advice> {
    let explained = findings.memory.explained_by.as_ref()?;
    if explained.share < WORTH_ADVICE {
        return None;
    }
    let (word, text) = why::of_word(&explained.cause)?.advice?;
    let function = explained.function.as_deref();
    let mut evidence = format!(
        "{} is {:.0} % of the time in slow memory operations, in {} of them",
        named(&explained.cause, function),
        explained.share * 100.0,
        explained.operations
    );
    let text = match function {
        Some(function) => {
            evidence.push_str(&calls_of(function, &findings.memory));
            format!(
                "look why {function} keeps who needs memory waiting: it belongs to whoever holds what it frees \
                 (stopgap probe reclaim --shrinker times it alone); or {text}"
            )
        }
        None => text.to_owned(),
    };
    Some(Advice {
        word: word.to_owned(),
        text,
        evidence,
    })
}

/// Advises a thread that maps and unmaps all the time to keep its mappings.
fn short_calls(findings: &Findings) -> Option<Advice> {
    let short = findings.short_calls.iter().flatten().next()?;
    let most = short.kinds.first()?;
    matches!(&*most.kind, "mmap" | "munmap").then(|| Advice {
        word: "keep-mappings".to_owned(),
        text: format!(
            "let {} keep mappings and use them again (stopgap run --fix arena-keep --measure -- CMD tries it); stopgap \
             replay placement TRACE shows what the search for a hole costs by kernel",
            short.task
        ),
        evidence: format!(
            "{} calls of the mmap family, {} together, {:.0} % of its work",
            short.calls,
            Nanos(short.total_ns),
            short.share * 100.0
        ),
    })
}

/// Nanoseconds: less lost time needs no advice.
const LOST_NS: u64 = 100_000_000;

/// The end of a chain, and the cause of the wait.
#[derive(PartialEq)]
struct End<'f> {
    /// The cause of the wait that this end explains.
    what: &'f str,
    cause: &'f str,
    task: Option<&'f str>,
    ns: u64,
}

/// Returns one advice for each end of chains that has a third of the lost time or more.
fn waits(findings: &Findings) -> Vec<Advice> {
    let waiting = findings.chains.iter().flat_map(|chains| &chains.waiting);
    of_waits(&waiting.collect::<Vec<_>>(), LOST_NS)
}

/// Returns advice for these waits, if they lost at least `least_ns` together.
pub(crate) fn of_waits(waiting: &[&Waiting], least_ns: u64) -> Vec<Advice> {
    let stalled = || {
        let waiting = waiting.iter();
        waiting.filter(|waiting| waiting.idleness == Idleness::Stalled)
    };
    let whole: u64 = stalled().map(|waiting| lost(waiting)).sum();
    if whole < least_ns {
        return Vec::new();
    }
    let mut ends: Vec<End<'_>> = Vec::new();
    for waiting in stalled() {
        ends_of(&waiting.links, &waiting.cause, &waiting.task, &mut ends);
    }
    ends.sort_rows_by_key(|end| std::cmp::Reverse(end.ns));
    let share = |end: &End<'_>| end.ns as f64 / whole as f64;
    let worth = ends.iter().filter(|end| share(end) >= WORTH_ADVICE);
    let advise = |end: &End<'_>| {
        let (word, text, of) = of_end(end)?;
        Some(Advice {
            word: word.to_owned(),
            text,
            evidence: format!(
                "{of}: {:.0} % of {} that were lost",
                share(end) * 100.0,
                Nanos(whole)
            ),
        })
    };
    worth.filter_map(advise).collect()
}

fn ends_of<'f>(links: &'f [Link], what: &'f str, waiter: &'f str, ends: &mut Vec<End<'f>>) {
    for link in links {
        if !link.links.is_empty() {
            let by = link.task.as_deref().unwrap_or(waiter);
            ends_of(&link.links, &link.cause, by, ends);
            continue;
        }
        // The thread in front of the timer sleeps on purpose.
        let task = match &*link.cause {
            "timer" => Some(waiter),
            // These are its own requests. Putting them off would make it wait longer.
            "disk" if link.task.as_deref() == Some(waiter) => None,
            _ => link.task.as_deref(),
        };
        let same =
            |end: &&mut End<'f>| (end.what, end.cause, end.task) == (what, &*link.cause, task);
        match ends.iter_mut().find(same) {
            Some(end) => end.ns += link.ns,
            None => ends.push(End {
                what,
                cause: &link.cause,
                task,
                ns: link.ns,
            }),
        }
    }
}

/// Returns the word, what to do, and the evidence.
fn of_end(end: &End<'_>) -> Option<(&'static str, String, String)> {
    let unknown = end.task.is_none() && matches!(end.cause, "disk" | "run-queue");
    if unknown {
        return None;
    }
    let task = end.task.unwrap_or("an unknown thread");
    Some(match (end.cause, end.what) {
        ("disk", _) => (
            "io-priority",
            format!(
                "put what {task} writes on another disk, or let it go after others: ionice -c 3 -p PID of {task} (where the \
                 scheduler of the disk knows priorities: bfq, mq-deadline)"
            ),
            format!("waits behind requests of {task}"),
        ),
        ("priority-inversion", _) => (
            "priority-inheritance",
            format!(
                "use a lock with priority inheritance (PTHREAD_PRIO_INHERIT), so that its holder gets the CPU before {task}"
            ),
            format!("the holder of a lock waited behind {task}, which is less urgent than who wants the lock"),
        ),
        ("run-queue", _) => (
            "cpu",
            format!("let {task} go after others (nice -n 19, chrt -i 0), or on CPUs of its own (taskset)"),
            format!("waits for a CPU behind {task}"),
        ),
        ("cpu-quota", _) => (
            "cpu-quota",
            "give its cgroup more CPU time (cpu.max, or cpu.cfs_quota_us; of a real-time thread its runtime, or sched_rt_runtime_us), or run fewer threads in it".to_owned(),
            format!("{task} had used up its quota"),
        ),
        ("delayed-ack", _) => (
            "tcp-nodelay",
            "send each message with one call (writev), or set TCP_NODELAY on the sender's socket".to_owned(),
            "waits for an acknowledgement that TCP held back".to_owned(),
        ),
        ("running", "lock" | "mmap_lock") => (
            "lock",
            format!("let {task} hold the lock for less time, or split what it protects"),
            format!("{task} ran while it held the lock"),
        ),
        ("memory" | "memcg-reclaim" | "direct-reclaim", _) => ("reclaim", why::of_word("memcg-reclaim")?.advice?.1.to_owned(), format!("{task} freed memory itself")),
        _ => return None,
    })
}

/// Returns a clause about all calls of a shrinker: `; it was called 23 times, 4.60 s together, the longest 200 ms`.
fn calls_of(function: &str, memory: &Memory) -> String {
    let of_it = |one: &&Reclaim| one.function.as_deref() == Some(function);
    let rows = || memory.reclaim.iter().flatten().filter(of_it);
    let count: u64 = rows().map(|one| one.count).sum();
    let wall_ns = rows().fold(0_u64, |sum, one| sum.saturating_add(one.wall_ns));
    let most_ns = rows().map(|one| one.most_ns).max().unwrap_or(0);
    if count == 0 {
        return String::new();
    }
    let (wall, most) = (Nanos(wall_ns), Nanos(most_ns));
    format!("; it was called {count} times, {wall} together, the longest {most}")
}
