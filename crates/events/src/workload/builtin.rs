use super::{
    Agua, Form, Frag, Freegap, LARGEST_PAGES, ManySizes, PAGE, Pbobench, Phases, START, Sequential,
    Tight,
};
use crate::memory::{MemoryEvent, Phase};
use crate::range::AddressRange;
use crate::words;

/// Every built-in workload by its word, with the parameters that it usually has.
///
/// ```
/// use stopgap_events::workload::Workload;
/// let workload: Workload = "frag".parse().unwrap();
/// let events = workload.events(1_000, 500, 1);
/// assert_eq!(events.count(), 1_000 + 500 + 500 + 2); // laid out, half freed, steady, two marks
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// [`Pbobench`]; a step is one operation.
    Pbobench,
    /// [`Agua`] with a ceiling of `n`.
    Agua,
    /// [`Freegap`] as posted.
    FreegapPosted,
    /// [`Freegap`], corrected: protections change.
    FreegapInnermprot,
    /// [`Freegap`], corrected: a mapping is replaced.
    FreegapInnerremap,
    /// [`Frag`].
    Frag,
    /// [`Frag::aligned`].
    Aligned,
    /// [`Frag::limits`].
    Limits,
    /// [`Tight`] in 1.03 times its bytes.
    Tight103,
    /// [`Tight`] in 1.06 times its bytes.
    Tight106,
    /// [`ManySizes`].
    ManySizes,
    /// [`Phases`].
    Phases,
    /// [`Sequential`].
    Sequential,
}

words!(
    Workload, "workload",
    Pbobench "pbobench",
    Agua "agua",
    FreegapPosted "freegap-posted",
    FreegapInnermprot "freegap-innermprot",
    FreegapInnerremap "freegap-innerremap",
    Frag "frag",
    Aligned "aligned",
    Limits "limits",
    Tight103 "tight-1.03",
    Tight106 "tight-1.06",
    ManySizes "many-sizes",
    Phases "phases",
    Sequential "sequential",
);

/// All that a process may map on x86-64 with four-level page tables, without the first 64 KiB
/// (`vm.mmap_min_addr`).
const WINDOW: AddressRange = AddressRange {
    start: START,
    end: (1 << 47) - PAGE.0,
};

impl Workload {
    /// The largest `n` that [`Workload::events`] is made for: with it the events take up to 1 GiB.
    pub const LARGEST_N: u32 = 1 << 26;

    /// The default `n`; the only one for workloads whose `n` is fixed.
    #[must_use]
    pub fn default_n(self) -> u32 {
        let of = |form| {
            let (before, after) = Freegap::neighbours(form);
            before + 1 + after
        };
        match self {
            Workload::Pbobench => 10_000,
            Workload::Agua => Agua::ORIGINAL_CEILING as u32,
            Workload::FreegapPosted => of(Form::Posted),
            Workload::FreegapInnermprot => of(Form::InnerMprotect),
            Workload::FreegapInnerremap => of(Form::InnerRemap),
            Workload::Frag | Workload::Aligned | Workload::Limits => Frag::USUAL_N,
            Workload::Tight103 | Workload::Tight106 => Tight::USUAL_N,
            Workload::ManySizes => ManySizes::USUAL_N,
            Workload::Phases => Phases::USUAL_N,
            Workload::Sequential => Sequential::USUAL_N,
        }
    }

    /// Whether `n` may be chosen: freegap's numbers are its definition.
    #[must_use]
    pub fn n_may_be_chosen(self) -> bool {
        !matches!(
            self,
            Workload::FreegapPosted | Workload::FreegapInnermprot | Workload::FreegapInnerremap
        )
    }

    /// The default number of operations after the layout. A map, an unmap and a change of
    /// protection are one each; a touch is none. Those of `tight` are 200,000 replacements, those of `agua` some
    /// 210 loops: at 80, what its holes do to an old search has hardly begun.
    #[must_use]
    pub fn default_operations(self) -> u64 {
        match self {
            Workload::Tight103 | Workload::Tight106 => 400_000,
            Workload::Agua => 4_000_000,
            _ => 1_000_000,
        }
    }

    /// Its events: the layout, then exactly `operations` operations (none where `n` is 0 and
    /// nothing is live). Freegap takes no `n` and, like agua, no seed: there is no randomness in
    /// them. Lazy: 16 bytes of memory a range at most, tens of nanoseconds an event.
    #[must_use]
    pub fn events(
        self,
        n: u32,
        operations: u64,
        seed: u64,
    ) -> Box<dyn Iterator<Item = MemoryEvent>> {
        let freegap = |form| {
            let events = Freegap::new(form, operations.div_ceil(2)).events();
            Box::new(first(events, operations))
        };
        match self {
            Workload::Pbobench => Box::new(Pbobench::new(n, operations, seed).events()),
            Workload::Agua => {
                let loops = operations.div_ceil(Agua::PER_LOOP);
                let loops = u32::try_from(loops).unwrap_or(u32::MAX);
                Box::new(first(Agua::new(loops, n).events(), operations))
            }
            Workload::FreegapPosted => freegap(Form::Posted),
            Workload::FreegapInnermprot => freegap(Form::InnerMprotect),
            Workload::FreegapInnerremap => freegap(Form::InnerRemap),
            Workload::Frag => Box::new(Frag::new(n, operations, seed).events()),
            Workload::Aligned => Box::new(Frag::aligned(n, operations, seed).events()),
            Workload::Limits => Box::new(Frag::limits(n, operations, seed).events()),
            Workload::Tight103 | Workload::Tight106 => {
                Box::new(self.tight(n, operations, seed).events())
            }
            Workload::ManySizes => Box::new(ManySizes::new(n, operations, seed).events()),
            Workload::Phases => Box::new(Phases::new(n, operations, seed).events()),
            Workload::Sequential => Box::new(Sequential::new(n, operations, seed).events()),
        }
    }

    /// The addresses that it is to be placed in, in whole pages of 4 KiB from 64 KiB on: up to
    /// 2^47 less a page; of `tight` what its factor leaves, which costs `n` random numbers.
    #[must_use]
    pub fn window(self, n: u32, operations: u64, seed: u64) -> AddressRange {
        match self {
            Workload::Tight103 | Workload::Tight106 => self.tight(n, operations, seed).window(),
            _ => WINDOW,
        }
    }

    fn tight(self, n: u32, operations: u64, seed: u64) -> Tight {
        let percent = if self == Workload::Tight103 { 103 } else { 106 };
        Tight::new(percent, n, operations, seed)
    }
}

/// `events` up to and with the given number of operations of the steady phase.
fn first(
    events: impl Iterator<Item = MemoryEvent>,
    operations: u64,
) -> impl Iterator<Item = MemoryEvent> {
    let (mut steady, mut left) = (false, operations);
    events.map_while(move |event| {
        match event {
            MemoryEvent::Begin(Phase::Layout) => steady = false,
            MemoryEvent::Begin(Phase::Steady) => steady = true,
            MemoryEvent::Map { .. } | MemoryEvent::Unmap { .. } | MemoryEvent::Protect { .. }
                if steady =>
            {
                left = left.checked_sub(1)?;
            }
            _ => {}
        }
        Some(event)
    })
}

// Every request fits the default window many times over.
const _: () = assert!(LARGEST_PAGES * PAGE.0 < WINDOW.end - WINDOW.start);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_as_many_operations_as_asked() {
        for &workload in Workload::ALL {
            for operations in [0, 1, 2, 999, 25_001] {
                let mut steady = false;
                let mut counted = 0;
                for event in workload.events(200, operations, 1) {
                    match event {
                        MemoryEvent::Begin(phase) => steady = phase != Phase::Layout,
                        MemoryEvent::Touch { .. } => {}
                        _ => counted += u64::from(steady),
                    }
                }
                assert_eq!(counted, operations, "{workload}");
                assert!(steady, "{workload} never began");
            }
        }
    }

    #[test]
    fn the_words_are_told_apart() {
        for &workload in Workload::ALL {
            assert_eq!(workload.word().parse(), Ok(workload));
            assert!(workload.default_n() <= Workload::LARGEST_N);
        }
        let chosen = |w: &&Workload| w.n_may_be_chosen();
        assert_eq!(Workload::ALL.iter().filter(chosen).count(), 10);
        assert_eq!(Workload::FreegapPosted.default_n(), 1_025);
        assert_eq!(Workload::FreegapInnerremap.default_n(), 12_289);
        let unknown = "pobench".parse::<Workload>().unwrap_err();
        assert!(unknown.contains("tight-1.06"), "{unknown}");
    }

    /// What is asked can be given: every request lies in the window, in whole pages.
    #[test]
    fn requests_fit_the_window() {
        for &workload in Workload::ALL {
            let window = workload.window(300, 2_000, 2);
            assert_eq!(window.start, 65_536);
            assert!(window.start < window.end && window.end.is_multiple_of(4_096));
            for event in workload.events(300, 2_000, 2) {
                if let MemoryEvent::Map {
                    length, placing, ..
                } = event
                {
                    let within = placing.limits.unwrap_or(window);
                    assert!(length <= within.length(), "{workload}: {event:?}");
                    assert!(window.start <= within.start && within.end <= window.end);
                }
            }
        }
    }

    #[test]
    fn a_seed_fixes_the_stream() {
        use Workload::{Agua, FreegapInnermprot, FreegapInnerremap, FreegapPosted};
        for &workload in Workload::ALL {
            let events = |seed| workload.events(50, 500, seed).collect::<Vec<_>>();
            assert_eq!(events(1), events(1), "{workload}");
            let seedless = [Agua, FreegapPosted, FreegapInnermprot, FreegapInnerremap];
            let same = events(1) == events(2);
            assert_eq!(same, seedless.contains(&workload), "{workload}");
        }
    }
}
