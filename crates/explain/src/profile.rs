//! Adds up samples by thread, state and stack, from any source.
//!
//! ```text
//! samples -> tree: thread -> state -> outermost function -> ... -> innermost function (own samples)
//! ```
//!
//! Memory is bounded. Frames without a name become one frame per file. After [`MOST_NODES`] nodes, new frames become
//! one frame `[not kept]` below their caller.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use stopgap_events::order::SortRows;
use stopgap_stats::profile::{
    Function, Innermost, KERNEL, Mode, NO_FILE, NO_SYMBOL, NOT_KEPT, Profile, SMALLER, State,
    Thread, UNKNOWN, plain,
};
use stopgap_trace::{Stack, Text};

/// Most nodes of the tree, each of about 100 bytes.
const MOST_NODES: usize = if cfg!(test) { 1 << 12 } else { 1 << 19 };
/// Most frames of a stack that are kept, from the innermost. The kernel gives at most 127.
const MOST_FRAMES: usize = 255;
/// Most stacks whose way through the tree is remembered, and the most bytes of one of them.
const MOST_SEEN: usize = 1 << 14;
const LONGEST_SEEN: usize = 1 << 13;
/// Most bytes of a name that are kept. Names of the kernel are shorter (`KSYM_NAME_LEN`, 512).
const LONGEST_NAME: usize = 600;
/// Stacks with less than this fraction (a thousandth) of all samples are added up in the record.
const SMALLEST: u64 = 1_000;

/// Share of the samples from which a function counts as the place where most of the time went.
const LARGE: f64 = 0.4;

/// Index of the root.
const ROOT: u32 = 0;
/// Name of the root; no other node has it.
const NAMELESS: u32 = 0;

struct Node {
    name: u32,
    parent: u32,
    /// 0 for the root, 1 for a thread, 2 for a state, more for functions.
    depth: u16,
    own: u64,
}

/// The tree of samples.
pub(crate) struct Samples {
    names: Vec<Text>,
    numbers: HashMap<Text, u32>,
    nodes: Vec<Node>,
    children: HashMap<(u32, u32), u32>,
    /// Cache of leaves: the innermost node by thread, system call and stack.
    seen: HashMap<(u32, Option<Text>, Text), u32>,
    count: u64,
}

/// Kernel functions in some states of a thread.
pub(crate) struct Inside<'a> {
    /// Samples in these states.
    pub(crate) samples: u64,
    /// Innermost functions and their samples, the most first.
    pub(crate) own: Vec<(&'a str, u64)>,
    /// The innermost function that was on the stack in at least 40 % of the samples, and in how many.
    pub(crate) below: Option<(&'a str, u64)>,
}

impl Default for Samples {
    fn default() -> Samples {
        let root = Node {
            name: NAMELESS,
            parent: ROOT,
            depth: 0,
            own: 0,
        };
        Samples {
            names: vec!["".into()],
            numbers: HashMap::new(),
            nodes: vec![root],
            children: HashMap::new(),
            seen: HashMap::new(),
            count: 0,
        }
    }
}

impl Samples {
    /// Adds a sample of a thread named `thread`. `call` is its system call, if that is known. `state` returns its
    /// state by call and stack.
    pub(crate) fn add(
        &mut self,
        thread: &str,
        call: Option<&Text>,
        stack: &Stack,
        state: impl FnOnce(Option<&str>, &Stack) -> String,
    ) {
        self.count += 1;
        let thread = self.below(ROOT, thread);
        let key = (thread, call.map(Text::clone), Text::clone(&stack.0));
        if let Some(&leaf) = self.seen.get(&key) {
            self.nodes[leaf as usize].own += 1;
            return;
        }
        let state = self.below(thread, &state(call.map(|call| &**call), stack));
        let mut frames: Vec<&str> = stack.frames().rev().take(MOST_FRAMES).collect();
        if frames.is_empty() {
            frames.push(UNKNOWN);
        }
        let mut node = state;
        for frame in frames.into_iter().rev() {
            node = self.below(node, &shown(frame));
        }
        self.nodes[node as usize].own += 1;
        if self.seen.len() == MOST_SEEN {
            self.seen.clear();
        }
        if stack.0.len() <= LONGEST_SEEN {
            self.seen.insert(key, node);
        }
    }

    /// Returns the node `name` below `parent`, and creates it if there is none.
    fn below(&mut self, parent: u32, name: &str) -> u32 {
        let long = name.len() > LONGEST_NAME;
        let beyond = long
            .then(|| name.char_indices().nth(LONGEST_NAME))
            .flatten();
        let name = beyond.map_or(name, |(at, _)| &name[..at]);
        let known = self.numbers.get(name).copied();
        if let Some(number) = known
            && let Some(&node) = self.children.get(&(parent, number))
        {
            return node;
        }
        let full = self.nodes.len() >= MOST_NODES;
        if full && name != NOT_KEPT {
            let rest = self.names[self.nodes[parent as usize].name as usize].as_ref() == NOT_KEPT;
            return if rest {
                parent
            } else {
                self.below(parent, NOT_KEPT)
            };
        }
        let number = known.unwrap_or_else(|| {
            let name: Text = name.into();
            let number = self.names.len() as u32;
            self.names.push(Text::clone(&name));
            self.numbers.insert(name, number);
            number
        });
        let node = self.nodes.len() as u32;
        self.nodes.push(Node {
            name: number,
            parent,
            depth: self.nodes[parent as usize].depth.saturating_add(1),
            own: 0,
        });
        self.children.insert((parent, number), node);
        node
    }

    fn name(&self, node: u32) -> &Text {
        &self.names[self.nodes[node as usize].name as usize]
    }

    /// Returns the samples of each node with all nodes below it.
    fn totals(&self) -> Vec<u64> {
        let mut totals: Vec<u64> = self.nodes.iter().map(|node| node.own).collect();
        // A node comes after its parent.
        for index in (1..totals.len()).rev() {
            totals[self.nodes[index].parent as usize] += totals[index];
        }
        totals
    }

    /// Returns the ancestor of `node` at `depth`: its thread, its state or a frame.
    fn ancestor(&self, mut node: u32, depth: u16) -> u32 {
        while self.nodes[node as usize].depth > depth {
            node = self.nodes[node as usize].parent;
        }
        node
    }

    /// Returns the kernel functions of `thread` in states for which `wanted` returns true.
    pub(crate) fn inside(&self, thread: &str, wanted: impl Fn(&str) -> bool) -> Inside<'_> {
        let mut samples = 0;
        // Samples by function: as the innermost one, and anywhere on the stack.
        let mut functions: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (node, at) in self.nodes.iter().zip(0_u32..) {
            let its_thread = || self.name(self.ancestor(at, 1));
            let its_state = || self.name(self.ancestor(at, 2));
            if node.own == 0 || &**its_thread() != thread || !wanted(its_state()) {
                continue;
            }
            samples += node.own;
            let mut on_stack: Vec<&str> = Vec::new();
            let mut frame = at;
            while self.nodes[frame as usize].depth > 2 {
                if let Some(name) = self.name(frame).strip_suffix(KERNEL) {
                    let (own, with_calls) = functions.entry(name).or_default();
                    *own += if frame == at { node.own } else { 0 };
                    if !on_stack.contains(&name) {
                        *with_calls += node.own;
                        on_stack.push(name);
                    }
                }
                frame = self.nodes[frame as usize].parent;
            }
        }
        let large = |with_calls: u64| with_calls as f64 >= LARGE * samples.max(1) as f64;
        let below = functions.iter().filter(|(_, (_, all))| large(*all));
        let below = below.min_by_key(|(_, (_, all))| *all);
        let below = below.map(|(name, (_, all))| (*name, *all));
        let own = functions.iter().filter(|(_, (own, _))| *own > 0);
        let mut own: Vec<(&str, u64)> = own.map(|(name, (own, _))| (*name, *own)).collect();
        own.sort_rows_by_key(|(_, own)| std::cmp::Reverse(*own));
        Inside {
            samples,
            own,
            below,
        }
    }

    /// Returns the record of all samples.
    pub(crate) fn to_record(&self, period_ns: Option<u64>) -> Profile {
        let totals = self.totals();
        let mut innermost = Innermost::default();
        for (node, at) in self.nodes.iter().zip(0_u32..) {
            innermost.add(Mode::of(self.name(at)), node.own);
        }
        Profile {
            samples: self.count,
            period_ns,
            innermost,
            threads: self.threads(&totals),
            functions: self.functions(&totals),
            stacks: self.stacks(&totals),
        }
    }

    fn threads(&self, totals: &[u64]) -> Vec<Thread> {
        let mut threads: BTreeMap<u32, Thread> = BTreeMap::new();
        for (node, at) in self.nodes.iter().zip(0_u32..).skip(1) {
            let samples = totals[at as usize];
            let thread = threads
                .entry(self.ancestor(at, 1))
                .or_insert_with(|| Thread {
                    task: self.name(at).to_string(),
                    samples,
                    innermost: Innermost::default(),
                    states: Vec::new(),
                });
            thread.innermost.add(Mode::of(self.name(at)), node.own);
            // A thread beyond the bound has no states.
            let samples = if node.depth == 1 { node.own } else { samples };
            if node.depth == 2 || node.depth == 1 && samples > 0 {
                let state = self.name(at).to_string();
                let call = call_of(&state).map(str::to_owned);
                thread.states.push(State {
                    state,
                    call,
                    samples,
                });
            }
        }
        let mut threads: Vec<Thread> = threads.into_values().collect();
        for thread in &mut threads {
            thread
                .states
                .sort_rows(|a, b| b.samples.cmp(&a.samples).then(a.state.cmp(&b.state)));
        }
        threads.sort_rows(|a, b| b.samples.cmp(&a.samples).then(a.task.cmp(&b.task)));
        threads
    }

    fn functions(&self, totals: &[u64]) -> Vec<Function> {
        let mut sums: HashMap<u32, (u64, u64)> = HashMap::new();
        for (node, at) in self.nodes.iter().zip(0_u32..) {
            // In a recursion, only the outermost call counts the samples of all.
            let mut caller = node.parent;
            while self.nodes[caller as usize].depth > 2
                && self.nodes[caller as usize].name != node.name
            {
                caller = self.nodes[caller as usize].parent;
            }
            if node.depth > 2 {
                let again = self.nodes[caller as usize].depth > 2;
                let (own, with_calls) = sums.entry(node.name).or_default();
                *own += node.own;
                *with_calls += if again { 0 } else { totals[at as usize] };
            } else if node.own > 0 {
                // A thread or a state beyond the bound.
                let (own, with_calls) = sums.entry(node.name).or_default();
                *own += node.own;
                *with_calls += node.own;
            }
        }
        let mut functions: Vec<Function> = sums
            .into_iter()
            .map(|(name, (own_samples, with_calls_samples))| {
                let function = self.names[name as usize].to_string();
                Function {
                    mode: Mode::of(&function),
                    function,
                    own_samples,
                    with_calls_samples,
                }
            })
            .collect();
        functions.sort_rows(|a, b| {
            (b.own_samples, b.with_calls_samples)
                .cmp(&(a.own_samples, a.with_calls_samples))
                .then(a.function.cmp(&b.function))
        });
        functions
    }

    fn stacks(&self, totals: &[u64]) -> Vec<stopgap_stats::profile::Stack> {
        let least = (self.count / SMALLEST).max(1);
        let mut smaller: BTreeMap<u32, u64> = BTreeMap::new();
        let mut stacks = Vec::new();
        for (node, at) in self.nodes.iter().zip(0_u32..).skip(1) {
            if totals[at as usize] >= least {
                if node.own > 0 {
                    stacks.push(self.stack(at, None, node.own));
                }
            } else if totals[node.parent as usize] >= least {
                *smaller.entry(node.parent).or_default() += totals[at as usize];
            }
        }
        let smaller = smaller.into_iter();
        stacks.extend(smaller.map(|(at, samples)| self.stack(at, Some(SMALLER), samples)));
        stacks.sort_rows(|a, b| a.frames.cmp(&b.frames));
        stacks
    }

    fn stack(&self, node: u32, last: Option<&str>, samples: u64) -> stopgap_stats::profile::Stack {
        let mut frames: Vec<String> = last.map(str::to_owned).into_iter().collect();
        let mut at = node;
        while at != ROOT {
            frames.push(self.name(at).to_string());
            at = self.nodes[at as usize].parent;
        }
        frames.reverse();
        stopgap_stats::profile::Stack { frames, samples }
    }
}

/// Prefix of a state in a system call.
const IN: &str = "in ";
/// The state in an unknown system call.
const IN_A_CALL: &str = "in a system call";

/// Returns the state of a thread in the system call `call`.
pub(crate) fn in_call(call: Option<&str>) -> String {
    call.map_or_else(|| IN_A_CALL.to_owned(), |call| format!("{IN}{call}"))
}

/// Returns the system call of a state.
pub(crate) fn call_of(state: &str) -> Option<&str> {
    state.strip_prefix(IN).filter(|_| state != IN_A_CALL)
}

/// Returns a frame as the profile shows it: without suffixes of compilers, and with the file for code without a name.
fn shown(frame: &str) -> Cow<'_, str> {
    let is_address = |text: &str| {
        text.strip_prefix("0x")
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    if let Some(name) = frame.strip_suffix(KERNEL) {
        let short = plain(name);
        return if is_address(name) {
            Cow::Owned(format!("{NO_SYMBOL}{KERNEL}"))
        } else if short.len() == name.len() {
            Cow::Borrowed(frame)
        } else {
            Cow::Owned(format!("{short}{KERNEL}"))
        };
    }
    if is_address(frame) {
        return Cow::Borrowed(NO_FILE);
    }
    match frame.rfind("+0x") {
        Some(at) if is_address(&frame[at + 1..]) => {
            Cow::Owned(format!("{} {NO_SYMBOL}", &frame[..at]))
        }
        _ => Cow::Borrowed(plain(frame)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Adds one sample. `state` stands for the call, too: samples with one call and one stack have one state.
    fn add(samples: &mut Samples, thread: &str, state: &str, stack: &str) {
        let call: Text = state.into();
        let stack = Stack(stack.into());
        samples.add(thread, Some(&call), &stack, |_, _| state.to_owned());
    }

    fn samples(all: &[(&str, &str, &str)]) -> Samples {
        let mut samples = Samples::default();
        for (thread, state, stack) in all {
            add(&mut samples, thread, state, stack);
        }
        samples
    }

    #[test]
    fn frames_have_names_or_say_that_they_have_none() {
        for (frame, name, mode) in [
            ("main", "main", Mode::User),
            ("f.constprop.0", "f", Mode::User),
            ("zap.isra.0_[k]", "zap_[k]", Mode::Kernel),
            ("0xffffffff81000000_[k]", "[no symbol]_[k]", Mode::Unnamed),
            ("libc.so.6+0x16e0ba", "libc.so.6 [no symbol]", Mode::Unnamed),
            ("[anon]+0x20", "[anon] [no symbol]", Mode::Unnamed),
            ("0x7f00", "[unknown address]", Mode::Unnamed),
            ("[unknown]", "[unknown]", Mode::Unnamed),
            ("operator+0xzz", "operator+0xzz", Mode::User),
        ] {
            assert_eq!(shown(frame), name);
            assert_eq!(Mode::of(&shown(frame)), mode, "{frame}");
        }
    }

    /// Samples of a recursion count once. The innermost function has its own samples.
    #[test]
    fn functions_have_their_own_and_what_they_called() {
        let profile = samples(&[
            ("a", "user mode", "main;f;g;f"),
            ("a", "user mode", "main;f"),
            ("b", "in mmap", "main;mmap;do_mmap_[k]"),
            ("b", "unknown", ""),
        ])
        .to_record(Some(1_000));
        let told: Vec<_> = profile
            .functions
            .iter()
            .map(|f| (&*f.function, f.own_samples, f.with_calls_samples))
            .collect();
        assert_eq!(
            told,
            [
                ("f", 2, 2),
                ("[unknown]", 1, 1),
                ("do_mmap_[k]", 1, 1),
                ("main", 0, 3),
                ("g", 0, 1),
                ("mmap", 0, 1),
            ]
        );
        assert_eq!(
            profile.innermost,
            Innermost {
                user: 2,
                kernel: 1,
                unnamed: 1
            }
        );
        let threads: Vec<_> = profile
            .threads
            .iter()
            .map(|t| (&*t.task, t.samples))
            .collect();
        assert_eq!(threads, [("a", 2), ("b", 2)]);
        assert_eq!(profile.threads[1].states[0].call.as_deref(), Some("mmap"));
        let all = samples(&[("b", "in mmap", "m;x_[k]"), ("b", "user mode", "m")]);
        let inside = all.inside("b", |state| state == "in mmap");
        assert_eq!(
            (inside.samples, inside.own, inside.below),
            (1, vec![("x", 1)], Some(("x", 1)))
        );
    }

    #[test]
    fn what_is_beyond_its_bounds_is_counted_all_the_same() {
        let mut samples = Samples::default();
        for index in 0..MOST_NODES / 2 {
            add(&mut samples, "t", "user mode", &format!("main;f{index};g"));
        }
        add(&mut samples, "new", "user mode", "main");
        let deep = vec!["again"; 5_000].join(";");
        add(&mut samples, "t", "user mode", &deep);
        assert!(samples.nodes.len() < 2 * MOST_NODES);
        let profile = samples.to_record(None);
        let count = MOST_NODES as u64 / 2 + 2;
        assert_eq!(profile.samples, count);
        let own = profile.functions.iter().map(|f| f.own_samples).sum::<u64>();
        assert_eq!(own, count);
        assert_eq!(profile.stacks.iter().map(|s| s.samples).sum::<u64>(), count);
        assert!(profile.stacks.len() < 10, "{}", profile.stacks.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Samples of threads, of states, of functions and of stacks add up to all samples.
        #[test]
        fn everything_adds_up(
            all in prop::collection::vec(("[ab]", "(user mode|in mmap)", "([f-h](_\\[k\\]|\\+0x1f)?;){0,6}"), 0..50),
        ) {
            let mut samples = Samples::default();
            for (thread, state, stack) in &all {
                add(&mut samples, thread, state, stack);
            }
            let profile = samples.to_record(None);
            let count = all.len() as u64;
            let by = profile.innermost;
            prop_assert_eq!(profile.samples, count);
            prop_assert_eq!(by.user + by.kernel + by.unnamed, count);
            prop_assert_eq!(profile.threads.iter().map(|t| t.samples).sum::<u64>(), count);
            for thread in &profile.threads {
                let by = thread.innermost;
                prop_assert_eq!(by.user + by.kernel + by.unnamed, thread.samples);
                prop_assert_eq!(thread.states.iter().map(|s| s.samples).sum::<u64>(), thread.samples);
            }
            prop_assert_eq!(profile.functions.iter().map(|f| f.own_samples).sum::<u64>(), count);
            prop_assert!(profile.functions.iter().all(|f| f.own_samples <= f.with_calls_samples && f.with_calls_samples <= count));
            prop_assert_eq!(profile.stacks.iter().map(|s| s.samples).sum::<u64>(), count);
        }
    }
}
