use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use super::{BuildError, Built, Effort, Request, Source, Steps, fold, iommu_dma, old, sorted};
use crate::iommu::{self, Alignment, MapError};

/// Gives [`Name`] its variants, each with its word and how it builds a buffer of a request that makes sense.
macro_rules! policies {
    ($($(#[$doc:meta])* $variant:ident $word:literal $build:expr;)*) => {
        /// A policy's name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Name {
            $($(#[$doc])* $variant,)*
        }

        impl Name {
            /// All of them: first those of mail 001, then those of kernels since, then ours.
            pub const ALL: &'static [Name] = &[$(Name::$variant),*];

            /// Its one word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Name::$variant => $word,)*
                }
            }

            /// Builds a buffer.
            ///
            /// # Errors
            /// Those of a request that makes no sense, and [`BuildError::Exhausted`].
            pub fn build(self, request: &Request, source: &mut dyn Source) -> Result<Built, BuildError> {
                request.check()?;
                match self {
                    $(Name::$variant => {
                        let build: fn(&Request, &mut dyn Source) -> Result<Built, BuildError> = $build;
                        build(request, source)
                    })*
                }
            }
        }
    };
}

policies! {
    /// Linux up to 4.5 (Arm): every order again for every chunk.
    Old "old" old::build;
    /// Doug Anderson's first patch: one page at a time.
    OnePage "one-page" |request, source| Steps::single().build(request, source);
    /// Robin Murphy: an order that failed is not tried again.
    Sticky "sticky" |request, source| Steps::all().build(request, source);
    /// Marek Szyprowski: the same from 64 KiB on.
    Start64k "start-64k" |request, source| Steps::from_64k(request).build(request, source);
    /// Doug Anderson: 64 KiB, at the first failure two pages, then one.
    Fold "fold" fold::build;
    /// Robin Murphy: 2 MiB, 1 MiB, 64 KiB, one page.
    List "list" |request, source| Steps::list(request, Effort::NoRetry).build(request, source);
    /// Robin Murphy: the same, and the large ones only from what is free.
    ListNoReclaim "list-noreclaim" |request, source| {
        Steps::list(request, Effort::NoReclaim).build(request, source)
    };
    /// Doug Anderson: one page at a time, then by frame number.
    Sorted "sorted" sorted::build;
    /// Laurent Pinchart: chunks as `old` has them, and the device address begins where the large ones
    /// become aligned.
    IovaOffset "iova-offset" old::build;
    /// Linux 4.6 and later (Arm): the list, or single pages where the driver asks for them.
    Landed "landed" |request, source| match request.single_pages {
        true => Steps::single().build(request, source),
        false => Steps::list(request, Effort::NoRetry).build(request, source),
    };
    /// Linux 6.12 `iommu-dma`: the orders of the IOMMU's pages.
    IommuDma "iommu-dma" iommu_dma::build;
    /// Linux 6.12 `drivers/gpu/drm/ttm/ttm_pool.c`, `ttm_pool_alloc`, with empty pools: the tries of `sticky`.
    Ttm "ttm" |request, source| Steps::all().build(request, source);
    /// What the device needs: single pages where it asked for them or maps nothing larger, else the list.
    PerDevice "per-device" |request, source| match request.single_pages || !request.maps_larger() {
        true => Steps::single().build(request, source),
        false => Steps::list(request, Effort::NoRetry).build(request, source),
    };
}

impl Name {
    /// Where this policy begins the mapping of what it built: a device address that is aligned as `rule`
    /// says and no better, because more would be luck. `iova-offset` begins behind a multiple of the
    /// largest page, at the offset that needs fewest entries; so it takes up to a largest page more of the
    /// device's addresses.
    ///
    /// # Errors
    /// [`MapError::TooLong`] where there is no such 64-bit address; for `iova-offset` those of
    /// [`iommu::best_offset`].
    pub fn iova(self, request: &Request, built: &Built, rule: Alignment) -> Result<u64, MapError> {
        let length = built
            .pages()
            .checked_mul(request.page)
            .ok_or(MapError::TooLong)?;
        let aligned = rule.bytes(length, request.page).ok_or(MapError::TooLong)?;
        match self {
            Name::IovaOffset => {
                let runs = built.runs(request.page)?;
                let offset = iommu::best_offset(&runs, request.sizes)?;
                let base = aligned.max(request.sizes.largest());
                base.checked_add(offset).ok_or(MapError::TooLong)
            }
            _ => Ok(aligned),
        }
    }
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
