//! Says in plain words why threads waited: who lost how much, and the chain of threads and devices behind it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use stopgap_events::order::SortRows;
use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Findings, Idleness, Link, Waiting};

use crate::table::{Screen, join};
use crate::text::count;

/// Most names of threads on the screen.
const TASKS: usize = 4;
/// Causes of one name.
const CAUSES: usize = 4;
/// Links behind one, and how deep.
const LINKS: usize = 4;
const DEPTH: usize = 6;
/// Less than this share of what a thread lost is not told.
const SMALL: f64 = 0.05;
/// So many names that differ in their last number only share a line.
const LIKE_NAMES: usize = 3;
/// From this share of what a name lost, the end of its chains has a line, unless one chain has that share of it.
const IN_THE_END: f64 = 0.3;
/// A chain with this share of what ends like it shows that end already.
const ONE_CHAIN_SHOWS_IT: f64 = 0.8;
/// Less than this in all, or in its longest wait, is no loss that anybody notices.
const LEAST_NS: u64 = 100_000_000;
const LEAST_LONGEST_NS: u64 = 10_000_000;

/// Threads of one name, or of names that differ in their last number only, and what they lost.
pub(crate) struct Loser {
    /// The name.
    pub(crate) task: String,
    /// Its waits, the most time first.
    own: Vec<Waiting>,
    lost: u64,
}

impl Loser {
    /// Returns how much they lost, in what, and what stands at the end of the longest chain.
    pub(crate) fn sentence(&self) -> String {
        let waits: u64 = self.own.iter().map(|waiting| waiting.waits).sum();
        let longest = self.own.iter().map(|waiting| waiting.longest_ns).max();
        let most = self.own.first().map_or_else(String::new, |first| {
            let mut end = None;
            let mut links = &first.links;
            // "On purpose" and "the network" follow the thread that they are about.
            while let Some(link) = links.first() {
                let told = link.task.is_some() || link.cause == "disk";
                end = told.then_some(link).or(end);
                links = &link.links;
            }
            let behind = end.filter(|end| end.text != first.text);
            let behind =
                behind.map_or_else(String::new, |end| format!("; behind it: {}", end.text));
            let share = first.total_ns as f64 / self.lost as f64 * 100.0;
            format!("; for {share:.0} % of it it {}{behind}", first.text)
        });
        format!(
            "lost {} in {}, the longest {}{most}",
            Nanos(self.lost),
            waits_text(waits),
            Nanos(longest.unwrap_or(0)),
        )
    }
}

/// Returns who lost time that somebody notices, the most time first.
pub(crate) fn losers(waiting: &[Waiting]) -> Vec<Loser> {
    let stalled: Vec<&Waiting> = (waiting.iter())
        .filter(|waiting| waiting.idleness == Idleness::Stalled)
        .collect();
    let mut losers: Vec<Loser> = Vec::new();
    for waiting in of_like_names(&stalled) {
        match losers.iter_mut().find(|loser| loser.task == waiting.task) {
            Some(loser) => {
                loser.lost += waiting.total_ns;
                loser.own.push(waiting);
            }
            None => losers.push(Loser {
                task: waiting.task.clone(),
                lost: waiting.total_ns,
                own: vec![waiting],
            }),
        }
    }
    losers.retain(|loser| {
        loser.lost >= LEAST_NS
            || (loser.own.iter()).any(|waiting| waiting.longest_ns >= LEAST_LONGEST_NS)
    });
    losers.sort_rows_by_key(|loser| Reverse(loser.lost));
    losers
}

/// Says who lost time, and why.
pub(crate) fn say(findings: &Findings, screen: &mut Screen) {
    let Some(chains) = &findings.chains else {
        return;
    };
    let losers = losers(&chains.waiting);
    say_losers(&losers, screen);
    unclear(&chains.waiting, screen);
    let sleepers = for_sleepers(&chains.waiting);
    for for_sleeper in sleepers.iter().take(CAUSES) {
        screen.say_by(
            4,
            format!("  {} {}", for_sleeper.task, for_sleeper.sentence()),
        );
    }
    let is_told = !losers.is_empty() || !sleepers.is_empty();
    if let Some(path) = chains.critical_path.as_ref().filter(|_| is_told) {
        let part = |part: &Link| format!("{:.0} % {}", part.share * 100.0, part.text);
        let parts = path
            .parts
            .iter()
            .filter(|part| part.share >= SMALL)
            .take(CAUSES);
        let parts = join(parts.map(part), "; ");
        screen.say_by(
            4,
            format!("  {}, {}: {parts}", path.of, Nanos(path.window_ns)),
        );
    }
}

/// Threads of one name that waited for a thread of another while that one slept on purpose. Nobody lost that time, but it passed.
pub(crate) struct ForSleeper {
    /// The name of those that waited.
    pub(crate) task: String,
    sleeper: String,
    ns: u64,
    waits: u64,
    longest_ns: u64,
    /// The longest of these waits, in words.
    text: String,
}

impl ForSleeper {
    /// Returns how long they waited, and for whom.
    pub(crate) fn sentence(&self) -> String {
        let another = if self.sleeper == self.task {
            "another "
        } else {
            ""
        };
        let (sleeper, text, time) = (&self.sleeper, &self.text, Nanos(self.ns));
        let waits = match self.waits {
            1 => String::new(),
            waits => format!(" in {}", waits_text(waits)),
        };
        format!(
            "waited {time}{waits} for {another}{sleeper}, which slept on purpose: not counted as lost ({text})"
        )
    }
}

/// Returns who waited for a thread that slept on purpose, the most time first. Only the first of a chain of such waits counts.
pub(crate) fn for_sleepers(waiting: &[Waiting]) -> Vec<ForSleeper> {
    let mut all: Vec<ForSleeper> = Vec::new();
    let mut between: BTreeSet<(String, String)> = BTreeSet::new();
    let idle = |waiting: &&Waiting| waiting.idleness == Idleness::Idle && waiting.cause != "time";
    for waiting in waiting.iter().filter(idle) {
        let mut sleeps = BTreeMap::new();
        let mut through = Vec::new();
        add_sleeps(&waiting.links, &mut through, &mut sleeps);
        let Some((sleeper, (ns, through))) = sleeps.into_iter().max_by_key(|(_, (ns, _))| *ns)
        else {
            continue;
        };
        let other = |name: &&String| **name != waiting.task;
        between.extend((through.iter().filter(other)).map(|name| (name.clone(), sleeper.clone())));
        let same = |one: &&mut ForSleeper| one.task == waiting.task && one.sleeper == sleeper;
        match all.iter_mut().find(same) {
            Some(one) => {
                one.ns += ns;
                one.waits += waiting.waits;
                if waiting.longest_ns > one.longest_ns {
                    one.longest_ns = waiting.longest_ns;
                    one.text.clone_from(&waiting.text);
                }
            }
            None => all.push(ForSleeper {
                task: waiting.task.clone(),
                sleeper,
                ns,
                waits: waiting.waits,
                longest_ns: waiting.longest_ns,
                text: waiting.text.clone(),
            }),
        }
    }
    // The chain behind a loss that ends with the same sleeper says it already.
    let mut told = BTreeMap::new();
    for lost in waiting.iter().filter(|w| w.idleness == Idleness::Stalled) {
        add_sleeps(&lost.links, &mut Vec::new(), &mut told);
    }
    let is_told = |one: &ForSleeper| {
        told.get(&one.sleeper)
            .is_some_and(|(ns, _)| *ns >= LEAST_NS)
    };
    all.retain(|one| {
        let noticed = one.ns >= LEAST_NS || one.longest_ns.min(one.ns) >= LEAST_LONGEST_NS;
        noticed && !is_told(one)
    });
    all.sort_rows_by_key(|one| Reverse(one.ns));
    let is_between = |one: &ForSleeper| between.contains(&(one.task.clone(), one.sleeper.clone()));
    // Threads of one name may stand at both ends of a chain. Where each is behind another, the one that waited longest is named.
    let mut first: BTreeSet<String> = BTreeSet::new();
    for one in &all {
        let of_sleeper = || all.iter().filter(|other| other.sleeper == one.sleeper);
        if of_sleeper().all(is_between) {
            first.insert(one.sleeper.clone());
        }
    }
    all.retain(|one| !is_between(one) || first.remove(&one.sleeper));
    all
}

/// Adds the time for which threads behind a wait slept on purpose, by name, and the threads that the wait reached them through.
fn add_sleeps(
    links: &[Link],
    through: &mut Vec<String>,
    sleeps: &mut BTreeMap<String, (u64, Vec<String>)>,
) {
    for link in links {
        let Some(task) = &link.task else { continue };
        let on_purpose = link.links.iter().filter(|end| end.cause == "timer");
        let ns: u64 = on_purpose.map(|end| end.ns).sum();
        if link.cause == "time" && ns > 0 {
            let known = sleeps.entry(task.clone()).or_default();
            known.0 += ns;
            known.1.extend(through.iter().cloned());
        }
        through.push(task.clone());
        add_sleeps(&link.links, through, sleeps);
        through.pop();
    }
}

/// Says who lost how much, each with the chains behind it.
pub(crate) fn say_losers(losers: &[Loser], screen: &mut Screen) {
    for Loser { task, own, lost } in losers.iter().take(TASKS) {
        let waits: u64 = own.iter().map(|waiting| waiting.waits).sum();
        let Some(longest) = own.iter().max_by_key(|waiting| waiting.longest_ns) else {
            continue;
        };
        screen.say_by(
            4,
            format!(
                "  {task} lost {} in {}, the longest {} at {} ({})",
                Nanos(*lost),
                waits_text(waits),
                Nanos(longest.longest_ns),
                Nanos(longest.longest_at_ns),
                longest.text,
            ),
        );
        in_the_end(own, *lost, screen);
        for waiting in own.iter().take(CAUSES) {
            let share = waiting.total_ns as f64 / *lost as f64;
            if share >= SMALL {
                line(
                    share,
                    &at_place(&waiting.text, waiting.place.as_deref()),
                    0,
                    screen,
                );
                links(&waiting.links, &waiting.text, share, 1, screen);
            }
        }
    }
    if losers.len() > TASKS {
        screen.say(format!(
            "  and {} more names that lost time",
            losers.len() - TASKS
        ));
    }
}

/// Returns the waits, those of names together that differ in their last number only: a pool of 32 workers has one line.
fn of_like_names(stalled: &[&Waiting]) -> Vec<Waiting> {
    let mut names: HashMap<&str, BTreeSet<&str>> = HashMap::new();
    for waiting in stalled {
        let stem = waiting.task.trim_end_matches(|c: char| c.is_ascii_digit());
        names.entry(stem).or_default().insert(&waiting.task);
    }
    let mut together: Vec<Waiting> = Vec::new();
    for waiting in stalled {
        let stem = waiting.task.trim_end_matches(|c: char| c.is_ascii_digit());
        let like = names.get(stem).map_or(0, BTreeSet::len);
        let task = match !stem.is_empty() && like >= LIKE_NAMES {
            true => format!("{stem}* ({like} names)"),
            false => waiting.task.clone(),
        };
        let same = |known: &&mut Waiting| {
            (&known.task, &known.text, &known.place) == (&task, &waiting.text, &waiting.place)
        };
        match together.iter_mut().find(same) {
            Some(known) => {
                known.waits += waiting.waits;
                known.total_ns += waiting.total_ns;
                if waiting.longest_ns > known.longest_ns {
                    known.longest_ns = waiting.longest_ns;
                    known.longest_at_ns = waiting.longest_at_ns;
                }
                add_links(&mut known.links, &waiting.links);
            }
            None => together.push(Waiting {
                task,
                ..(*waiting).clone()
            }),
        }
    }
    for waiting in &mut together {
        set_shares(&mut waiting.links, waiting.total_ns);
    }
    together.sort_rows_by_key(|waiting| Reverse(waiting.total_ns));
    together
}

fn add_links(links: &mut Vec<Link>, more: &[Link]) {
    for link in more {
        let same = |known: &&mut Link| (&known.text, &known.place) == (&link.text, &link.place);
        match links.iter_mut().find(same) {
            Some(known) => {
                known.ns += link.ns;
                add_links(&mut known.links, &link.links);
            }
            None => links.push(link.clone()),
        }
    }
}

/// The most time first, each with its share of `whole`.
fn set_shares(links: &mut [Link], whole: u64) {
    links.sort_rows_by_key(|link| Reverse(link.ns));
    for link in links {
        link.share = link.ns as f64 / whole.max(1) as f64;
        set_shares(&mut link.links, whole);
    }
}

/// Says what most chains of a name end with, where none of them alone shows that.
fn in_the_end(own: &[Waiting], lost: u64, screen: &mut Screen) {
    let mut ends: Vec<(String, u64, u64)> = Vec::new();
    for waiting in own {
        add_ends(&waiting.links, None, &mut ends);
    }
    let Some((text, whole, greatest)) = ends.into_iter().max_by_key(|(_, whole, _)| *whole) else {
        return;
    };
    let share = whole as f64 / lost as f64;
    if share >= IN_THE_END && (greatest as f64) < ONE_CHAIN_SHOWS_IT * whole as f64 {
        line(share, &format!("in the end: {text}"), 0, screen);
    }
}

/// Adds the ends of these links: what stands there, its time over all chains, the time of the greatest chain.
fn add_ends(links: &[Link], above: Option<&Link>, ends: &mut Vec<(String, u64, u64)>) {
    for link in links {
        if !link.links.is_empty() {
            add_ends(&link.links, Some(link), ends);
            continue;
        }
        if link.cause == "other" {
            continue;
        }
        // "on purpose", "the network": the line before names the thread.
        let text = match above {
            Some(above) if link.task.is_none() => format!("{}, {}", above.text, link.text),
            _ => link.text.clone(),
        };
        match ends.iter_mut().find(|(known, ..)| *known == text) {
            Some((_, whole, greatest)) => {
                *whole += link.ns;
                *greatest = (*greatest).max(link.ns);
            }
            None => ends.push((text, link.ns, link.ns)),
        }
    }
}

/// Returns what was done, and where in the program.
fn at_place(text: &str, place: Option<&str>) -> String {
    place.map_or_else(|| text.to_owned(), |place| format!("{text} ({place})"))
}

fn line(share: f64, text: &str, depth: usize, screen: &mut Screen) {
    let indent = 4 + 2 * depth;
    screen.say_by(
        indent + 8,
        format!(
            "{:indent$}{:>4} %  {text}",
            "",
            format!("{:.0}", share * 100.0)
        ),
    );
}

/// Says the links behind a wait, which is `whole` of what its thread lost.
fn links(behind: &[Link], above: &str, whole: f64, depth: usize, screen: &mut Screen) {
    if depth > DEPTH {
        return;
    }
    for link in behind.iter().take(LINKS) {
        // Shares of a link are of its own wait.
        let share = link.share * whole;
        // A link with nothing behind it is its own end.
        if share >= SMALL && link.text != above {
            line(
                share,
                &at_place(&link.text, link.place.as_deref()),
                depth,
                screen,
            );
            links(&link.links, &link.text, whole, depth + 1, screen);
        }
    }
}

fn waits_text(waits: u64) -> String {
    count(usize::try_from(waits).unwrap_or(usize::MAX), "wait")
}

/// Says the waits of which the trace does not tell whether they were for work.
fn unclear(waiting: &[Waiting], screen: &mut Screen) {
    let unclear: Vec<&Waiting> = (waiting.iter())
        .filter(|waiting| {
            waiting.idleness == Idleness::MayBeIdle && waiting.longest_ns >= LEAST_LONGEST_NS
        })
        .collect();
    for waiting in of_like_names(&unclear).iter().take(CAUSES) {
        let behind = waiting
            .links
            .first()
            .filter(|link| link.text != waiting.text);
        let behind = behind.map_or_else(String::new, |link| format!("; behind it: {}", link.text));
        screen.say_by(
            4,
            format!(
                "  may be idle: {}, {} in {}: {}{behind}",
                waiting.task,
                Nanos(waiting.total_ns),
                waits_text(waiting.waits),
                at_place(&waiting.text, waiting.place.as_deref()),
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Style;

    fn link(text: &str, task: Option<&str>, ns: u64, links: Vec<Link>) -> Link {
        Link {
            cause: "time".to_owned(),
            text: text.to_owned(),
            task: task.map(str::to_owned),
            tid: None,
            call: None,
            place: None,
            device: None,
            ns,
            share: 0.0,
            links,
        }
    }

    fn sleeps(ns: u64) -> Link {
        let end = link("on purpose", None, ns, Vec::new());
        link("pager slept", Some("pager"), ns, vec![end])
    }

    fn waiting(task: &str, links: Vec<Link>) -> Waiting {
        Waiting {
            task: task.to_owned(),
            threads: 1,
            cause: "lock".to_owned(),
            text: "waited for the lock".to_owned(),
            call: None,
            place: None,
            idleness: Idleness::Stalled,
            waits: 1,
            total_ns: 100,
            steps: Vec::new(),
            longest_ns: 100,
            longest_at_ns: 0,
            longest_tid: 1,
            links,
        }
    }

    fn said(links: Vec<Link>) -> String {
        let waiting = waiting("printer", links);
        let mut screen = Screen::new(Style {
            width: 100,
            colour: false,
            verbose: false,
        });
        in_the_end(&[waiting], 100, &mut screen);
        screen.finish()
    }

    #[test]
    fn a_loser_is_told_in_a_sentence() {
        let disk = Link {
            cause: "disk".to_owned(),
            ..link("disk vda, its own request", None, 60_000_000, Vec::new())
        };
        let wait = |task: &str, ns: u64, links| Waiting {
            total_ns: ns,
            longest_ns: ns,
            ..waiting(task, links)
        };
        let all = [
            wait("short", 9_000_000, Vec::new()),
            wait("client", 40_000_000, Vec::new()),
            wait(
                "client",
                60_000_000,
                vec![link(
                    "server was in fsync",
                    Some("server"),
                    60_000_000,
                    vec![disk],
                )],
            ),
            wait("pager", 30_000_000, vec![sleeps(30_000_000)]),
        ];
        let losers = losers(&all);
        let told: Vec<(&str, String)> = losers
            .iter()
            .map(|one| (&*one.task, one.sentence()))
            .collect();
        let client = "lost 100 ms in 2 waits, the longest 60 ms; for 100 % of it it waited for the lock; behind it: disk vda, its \
                      own request";
        let pager = "lost 30 ms in 1 wait, the longest 30 ms; for 100 % of it it waited for the lock; behind it: pager slept";
        assert_eq!(
            told,
            [("client", client.to_owned()), ("pager", pager.to_owned())]
        );
    }

    /// A program reads from a shell that waits for `sleep`: nobody lost time, and the screen must say where it went.
    #[test]
    fn waits_for_who_slept_on_purpose_are_told_without_a_loss() {
        let sleeps = |task: &str, ns| {
            let end = Link {
                cause: "timer".to_owned(),
                ..link("on purpose", None, ns, Vec::new())
            };
            link("sleep slept", Some(task), ns, vec![end])
        };
        let wait = |task: &str, cause: &str, ns: u64, links| Waiting {
            cause: cause.to_owned(),
            text: "was in read".to_owned(),
            idleness: Idleness::Idle,
            total_ns: ns,
            longest_ns: ns,
            ..waiting(task, links)
        };
        let shell = |ns| link("sh waited", Some("sh"), ns, vec![sleeps("sleep", ns)]);
        let all = [
            wait(
                "sleep",
                "time",
                500_000_000,
                vec![link("on purpose", None, 1, Vec::new())],
            ),
            wait(
                "sh",
                "child",
                500_000_000,
                vec![sleeps("sleep", 500_000_000)],
            ),
            wait("python3", "data", 400_000_000, vec![shell(390_000_000)]),
            wait("python3", "child", 101_000_000, vec![shell(100_000_000)]),
            wait(
                "worker",
                "word",
                60_000_000,
                vec![sleeps("worker", 50_000_000)],
            ),
            wait(
                "server",
                "events",
                9_000_000,
                vec![sleeps("timer", 9_000_000)],
            ),
            wait(
                "server",
                "events",
                9_000_000,
                vec![link("client ran", Some("client"), 9, Vec::new())],
            ),
        ];
        let told: Vec<String> = for_sleepers(&all)
            .iter()
            .map(|one| format!("{} {}", one.task, one.sentence()))
            .collect();
        assert_eq!(
            told,
            [
                "python3 waited 490 ms in 2 waits for sleep, which slept on purpose: not counted as lost (was in read)",
                "worker waited 50 ms for another worker, which slept on purpose: not counted as lost (was in read)"
            ]
        );
        // A loss whose chain ends with `sleep` says that one.
        let lost = Waiting {
            idleness: Idleness::Stalled,
            ..wait("client", "data", 400_000_000, vec![shell(390_000_000)])
        };
        let all = [&all[..], &[lost]].concat();
        let told: Vec<String> = for_sleepers(&all).into_iter().map(|one| one.task).collect();
        assert_eq!(told, ["worker"]);
        // `(sleep; echo) | cat`: the shell waits for its child `cat`, which reads from another shell. Each is behind the other.
        let cat = link(
            "cat read",
            Some("cat"),
            500_000_000,
            vec![shell(500_000_000)],
        );
        let all = [
            wait("sh", "child", 510_000_000, vec![cat]),
            wait("cat", "data", 500_000_000, vec![shell(500_000_000)]),
        ];
        let told: Vec<String> = for_sleepers(&all).into_iter().map(|one| one.task).collect();
        assert_eq!(told, ["sh"]);
    }

    #[test]
    fn one_end_of_several_chains_is_told_with_its_share_of_all() {
        let through = |ns| link("other waited", Some("other"), ns, vec![sleeps(ns)]);
        let ran = || link("pager ran", Some("pager"), 5, Vec::new());
        let all = said(vec![sleeps(50), through(45), ran()]);
        assert_eq!(all, "      95 % in the end: pager slept, on purpose\n");
        // One chain says it already.
        assert_eq!(said(vec![sleeps(90), through(5), ran()]), "");
    }

    #[test]
    fn names_that_differ_in_their_number_are_told_together() {
        let worker = |task: &str, links| waiting(task, links);
        let ran = || link("holder ran", Some("holder"), 40, Vec::new());
        let all = [
            worker("worker-1", vec![sleeps(60), ran()]),
            worker("worker-20", vec![sleeps(10), ran()]),
            worker("worker-3", vec![ran()]),
            worker("logger-1", vec![ran()]),
            worker("logger-2", vec![ran()]),
            worker("7", Vec::new()),
        ];
        let together = of_like_names(&all.iter().collect::<Vec<_>>());
        let tasks: Vec<&str> = together.iter().map(|w| &*w.task).collect();
        assert_eq!(tasks, ["worker-* (3 names)", "logger-1", "logger-2", "7"]);
        let links: Vec<_> = (together[0].links.iter())
            .map(|link| (&*link.text, link.ns, (link.share * 100.0).round()))
            .collect();
        assert_eq!(
            links,
            [("holder ran", 120, 40.0), ("pager slept", 70, 23.0)]
        );
        assert_eq!(together[0].total_ns, 300);
    }
}
