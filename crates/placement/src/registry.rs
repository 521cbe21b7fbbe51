//! The policies by name.

use core::fmt;
use core::str::FromStr;

use alloc::format;
use alloc::string::String;

use crate::best_fit::BestFit;
use crate::contract::{Direction, Policy, Space};
use crate::gap_tree;
use crate::linux_2_6_35::Linux2_6_35;
use crate::linux_3_4::Linux3_4;
use crate::linux_6::Linux6;
use crate::stopgap::Stopgap;

/// Work on a policy of any type: a trait object would make every call of a
/// policy that takes some nanoseconds an indirect one.
pub trait Visit {
    /// Result of the work.
    type Output;

    /// Does it with `policy`, which is fresh.
    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Output;
}

/// Gives [`Name`] its variants, each with its word and how the policy is made from a space and a
/// direction. The direction is that of the whole address space (`mmap_base`'s layout), which only
/// policies that had one at a time look at.
macro_rules! policies {
    ($($(#[$doc:meta])* $variant:ident $word:literal $make:expr;)*) => {
        /// A policy's name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Name {
            $($(#[$doc])* $variant,)*
        }

        impl Name {
            /// All of them: the kernels' from the oldest on, then the others.
            pub const ALL: &'static [Name] = &[$(Name::$variant),*];

            /// Its one word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Name::$variant => $word,)*
                }
            }

            /// Makes the policy for `space` and hands it to `visit`.
            pub fn visit<V: Visit>(self, space: Space, direction: Direction, visit: V) -> V::Output {
                match self {
                    $(Name::$variant => {
                        let make: fn(Space, Direction) -> _ = $make;
                        visit.visit(make(space, direction))
                    })*
                }
            }
        }
    };
}

policies! {
    /// Linux 2.6.13 to 3.3: one probe under the cache, then a scan from the base.
    Linux2_6_35 "linux-2.6.35" Linux2_6_35::new;
    /// Linux 3.4 to 3.7: a scan from the cache.
    Linux3_4 "linux-3.4" Linux3_4::new;
    /// Linux 3.8 to 6.0: a tree that knows the largest gap below each node.
    Linux3_8 "linux-3.8" |space, _| gap_tree::Linux3_8::new(space);
    /// The tree's first form, June 2012: every change climbs to the root.
    VanRielV1 "van-riel-v1" |space, _| gap_tree::VanRielV1::new(space);
    /// The tree with lazy propagation, proposed in mail 003.
    WeinerLazy "weiner-lazy" |space, _| gap_tree::WeinerLazy::new(space);
    /// Linux 6.1: first fit over a B-tree of ranges.
    Linux6_1 "linux-6.1" |space, _| Linux6::v6_1(space);
    /// Linux 6.7: as 6.1, and what is as long as a PMD is aligned to one.
    Linux6_7 "linux-6.7" |space, _| Linux6::v6_7(space);
    /// Linux 6.12: as 6.1, and whole PMDs are aligned to one.
    Linux6_12 "linux-6.12" |space, _| Linux6::v6_12(space);
    /// Best fit of mail 000, joining what is freed with its neighbours.
    BestFit "best-fit" BestFit::new;
    /// Best fit of mail 000 as its author's libdrm had it: nothing is joined.
    BestFitNoCoalesce "best-fit-no-coalesce" BestFit::without_coalescing;
    /// Ours: best fit in a packed zone.
    Stopgap "stopgap" |space, _| Stopgap::new(space);
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(word: &str) -> Result<Name, String> {
        let named = Name::ALL.iter().copied().find(|name| name.word() == word);
        named.ok_or_else(|| {
            let mut words = String::new();
            for name in Name::ALL {
                words += if words.is_empty() { "" } else { ", " };
                words += name.word();
            }
            format!("unknown policy '{word}'; there are {words}")
        })
    }
}
