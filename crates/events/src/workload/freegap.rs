use crate::memory::{MapId, MemoryEvent, Merge, Phase, Placing, Protection};
use crate::units::Bytes;
use crate::words;

/// Which of Johannes Weiner's tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Mail 003 as posted: 1,025 one-page maps that all merge into *one* VMA; each round makes
    /// the middle page inaccessible and readable again, so it splits that VMA in three and
    /// merges it back.
    Posted,
    /// Corrected (22 June 2012): 12,289 two-page maps whose neighbours differ in protection, so
    /// none merge; each round changes the first page of one to inaccessible and back.
    InnerMprotect,
    /// Corrected: each round unmaps one of them and maps two pages again.
    InnerRemap,
}

words!(Form, "form of freegap", Posted "posted", InnerMprotect "innermprot", InnerRemap "innerremap");

/// freegap of mail 003: what keeping the gap information up to date costs, by changing one
/// mapping in the middle of many again and again. There is no randomness in it.
///
/// ```text
/// posted       RRRRRRRRRRR N RRRRRRRRRRR     one VMA becomes three and one again
/// corrected    WWRRWWRRWWR M WRRWWRRWWRR     neighbours never merge; M alone changes
/// ```
#[derive(Debug, Clone)]
pub struct Freegap {
    form: Form,
    rounds: u64,
    page_size: Bytes,
}

impl Freegap {
    /// Rounds of the posted test.
    pub const POSTED_ROUNDS: u64 = 1 << 20;
    /// Rounds of the corrected tests.
    pub const CORRECTED_ROUNDS: u64 = 1 << 23;

    /// `rounds` rounds of `form` with pages of 4 KiB.
    #[must_use]
    pub fn new(form: Form, rounds: u64) -> Freegap {
        Freegap::with_page_size(form, rounds, Bytes::kib(4))
    }

    /// `rounds` rounds of `form` with pages of `page_size` bytes: the corrected form's maps are
    /// two pages long, for any page size.
    #[must_use]
    pub fn with_page_size(form: Form, rounds: u64, page_size: Bytes) -> Freegap {
        Freegap {
            form,
            rounds,
            page_size,
        }
    }

    /// Mappings laid out before and after the one that changes.
    #[must_use]
    pub fn neighbours(form: Form) -> (u32, u32) {
        match form {
            Form::Posted => (512, 512),
            Form::InnerMprotect | Form::InnerRemap => (4_096, 8_192),
        }
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = MemoryEvent> + use<> {
        let (form, page) = (self.form, self.page_size);
        let (before, after) = Freegap::neighbours(form);
        let middle = MapId(before);
        let map = move |id: MapId| MemoryEvent::Map {
            id,
            length: if form == Form::Posted {
                page
            } else {
                Bytes(2 * page.0)
            },
            protection: if form != Form::Posted && id.0.is_multiple_of(2) {
                Protection::Write
            } else {
                Protection::Read
            },
            merge: Merge::May,
            placing: Placing::ANYWHERE,
        };
        let protect = move |protection| MemoryEvent::Protect {
            id: middle,
            length: Bytes(64), // as posted; the kernel rounds up to a page
            protection,
        };
        let back = if form == Form::Posted {
            Protection::Read
        } else {
            Protection::Write // `middle` is an even name
        };
        let round = move |_| match form {
            Form::Posted | Form::InnerMprotect => [protect(Protection::None), protect(back)],
            Form::InnerRemap => [MemoryEvent::Unmap { id: middle }, map(middle)],
        };
        std::iter::once(MemoryEvent::Begin(Phase::Layout))
            .chain((0..=before + after).map(move |i| map(MapId(i))))
            .chain(std::iter::once(MemoryEvent::Begin(Phase::Steady)))
            .chain((0..self.rounds).flat_map(round))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corrected_neighbours_never_have_equal_protection() {
        let protections: Vec<_> = Freegap::new(Form::InnerRemap, 0)
            .events()
            .filter_map(|event| match event {
                MemoryEvent::Map { protection, .. } => Some(protection),
                _ => None,
            })
            .collect();
        assert_eq!(protections.len(), 12_289);
        assert!(protections.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_round_ends_as_it_began() {
        for form in [Form::Posted, Form::InnerMprotect] {
            let (before, _) = Freegap::neighbours(form);
            let events: Vec<_> = Freegap::new(form, 1).events().collect();
            let laid_out = events.iter().find_map(|event| match event {
                MemoryEvent::Map { id, protection, .. } if id.0 == before => Some(*protection),
                _ => None,
            });
            match events.last() {
                Some(MemoryEvent::Protect { protection, .. }) => {
                    assert_eq!(Some(*protection), laid_out, "{form}");
                }
                other => panic!("{form} ends with {other:?}"),
            }
        }
    }
}
