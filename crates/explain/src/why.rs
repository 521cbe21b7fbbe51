//! Why time passes inside an operation: one cause at any moment, so that the parts add up to the whole.

use stopgap_stats::explain::Part;
use stopgap_trace::Text;

/// A cause. In order of precedence, where several hold at once:
///
/// 1. [`Why::RunQueue`]: a thread that is not given a CPU makes no progress whatever it does.
/// 2. [`Why::Throttled`]: made to wait on purpose.
/// 3. The innermost of shrinker, compaction and reclaim: memory is *why*, and whether the CPU, a lock or a disk
///    was needed for it is *how*.
/// 4. [`Why::Fence`], [`Why::MmapLock`], [`Why::Lock`], [`Why::Io`].
/// 5. [`Why::Event`]: the wait that the call was made for.
/// 6. [`Why::OnCpu`] where it runs, else [`Why::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Why {
    OnCpu,
    RunQueue,
    DirectReclaim,
    MemcgReclaim,
    Compaction,
    Shrinker(Option<Text>),
    Throttled,
    MmapLock,
    Lock,
    Io,
    Fence,
    Event,
    Unknown,
}

impl Why {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Why::OnCpu => "on-cpu",
            Why::RunQueue => "run-queue",
            Why::DirectReclaim => "direct-reclaim",
            Why::MemcgReclaim => "memcg-reclaim",
            Why::Compaction => "compaction",
            Why::Shrinker(_) => "shrinker",
            Why::Throttled => "throttled",
            Why::MmapLock => "mmap_lock",
            Why::Lock => "lock",
            Why::Io => "io",
            Why::Fence => "fence",
            Why::Event => "event",
            Why::Unknown => "unknown",
        }
    }

    /// A shrinker's function, where it is known.
    pub(crate) fn function(&self) -> Option<&Text> {
        match self {
            Why::Shrinker(function) => function.as_ref(),
            _ => None,
        }
    }

    /// Freeing memory or moving it together.
    pub(crate) fn is_reclaim(&self) -> bool {
        matches!(
            self,
            Why::DirectReclaim | Why::MemcgReclaim | Why::Compaction | Why::Shrinker(_)
        )
    }
}

/// Time by cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parts(Vec<(Why, u64)>);

impl Parts {
    pub(crate) fn add(&mut self, why: &Why, ns: u64) {
        if ns == 0 {
            return;
        }
        match self.0.iter_mut().find(|(there, _)| there == why) {
            Some((_, sum)) => *sum = sum.saturating_add(ns),
            None => self.0.push((why.clone(), ns)),
        }
    }

    pub(crate) fn of(&self, why: &Why) -> u64 {
        let found = self.0.iter().find(|(there, _)| there == why);
        found.map_or(0, |(_, ns)| *ns)
    }

    /// Moves up to `ns` from one cause to another; the sum stays.
    pub(crate) fn shift(&mut self, from: &Why, to: &Why, ns: u64) {
        let Some((_, sum)) = self.0.iter_mut().find(|(there, _)| there == from) else {
            return;
        };
        let ns = ns.min(*sum);
        *sum -= ns;
        self.0.retain(|(_, sum)| *sum > 0);
        self.add(to, ns);
    }

    /// Adds all of `other`, which becomes empty.
    pub(crate) fn absorb(&mut self, other: &mut Parts) {
        for (why, ns) in other.0.drain(..) {
            self.add(&why, ns);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|(_, ns)| ns).sum()
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&Why, u64)> {
        self.0.iter().map(|(why, ns)| (why, *ns))
    }

    /// Largest first, with their shares.
    pub(crate) fn to_record(&self) -> Vec<Part> {
        let sum = self.sum() as f64;
        let mut parts: Vec<&(Why, u64)> = self.0.iter().collect();
        parts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let part = |(why, ns): &(Why, u64)| Part {
            cause: why.word().to_owned(),
            function: why.function().map(ToString::to_string),
            ns: *ns,
            share: *ns as f64 / sum,
        };
        parts.into_iter().map(part).collect()
    }
}
