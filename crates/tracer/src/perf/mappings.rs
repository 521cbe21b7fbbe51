//! The mappings in a process's address space.

use std::collections::BTreeMap;
use std::rc::Rc;

/// A file that is mapped, or what stands in the place of its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct File {
    /// Its path as the process saw it; `//anon`, `[vdso]` or nothing where it is none.
    pub name: String,
    /// Its inode; 0 where it is none.
    pub inode: u64,
}

/// Mappings by their first address; no two overlap. perf records no unmaps, so a mapping is
/// there until another one takes its place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mappings(BTreeMap<u64, Mapping>);

#[derive(Debug, Clone)]
struct Mapping {
    end: u64,
    /// Of `file` at its first address.
    offset: u64,
    file: Rc<File>,
}

impl Mappings {
    /// `file` from `offset` on lies at `start` to `end`, in the place of what was there.
    pub(crate) fn map(&mut self, start: u64, end: u64, offset: u64, file: &Rc<File>) {
        if start >= end {
            return;
        }
        let before = self.0.range_mut(..start).next_back();
        if let Some((&first, before)) = before
            && before.end > start
        {
            let rest = (before.end > end).then(|| before.from(first, end));
            before.end = start;
            if let Some(rest) = rest {
                self.0.insert(end, rest);
            }
        }
        while let Some((&first, old)) = self.0.range(start..end).next() {
            let rest = (old.end > end).then(|| old.from(first, end));
            self.0.remove(&first);
            if let Some(rest) = rest {
                self.0.insert(end, rest);
            }
        }
        let file = Rc::clone(file);
        self.0.insert(start, Mapping { end, offset, file });
    }

    /// All mappings: first address, the one after the last, offset in the file, file.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, u64, u64, &Rc<File>)> {
        let mappings = self.0.iter();
        mappings.map(|(&start, mapping)| (start, mapping.end, mapping.offset, &mapping.file))
    }

    /// Which file is at `address`, and where in it that is.
    pub(crate) fn find(&self, address: u64) -> Option<(&Rc<File>, u64)> {
        let (start, mapping) = self.0.range(..=address).next_back()?;
        let inside = address < mapping.end;
        inside.then(|| {
            let offset = mapping.offset.wrapping_add(address - start);
            (&mapping.file, offset)
        })
    }
}

impl Mapping {
    /// Returns the part at and above `address`, `first` being its first address.
    fn from(&self, first: u64, address: u64) -> Mapping {
        Mapping {
            end: self.end,
            offset: self.offset.wrapping_add(address - first),
            file: Rc::clone(&self.file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ```text
    ///   0123456789abcdef
    ///   AAAAAAAAAAAAAAAA   A at 0
    ///     BBBB             takes a part of A
    ///       CCCCCC         takes the end of B and a part of A
    ///   AABBCCCCCCAAAAAA
    /// ```
    #[test]
    fn a_later_mapping_takes_the_place() {
        let file = |name: &str| {
            Rc::new(File {
                name: name.to_owned(),
                inode: 1,
            })
        };
        let mut mappings = Mappings::default();
        mappings.map(0x0, 0x10, 0x100, &file("A"));
        mappings.map(0x2, 0x6, 0x0, &file("B"));
        mappings.map(0x4, 0xa, 0x30, &file("C"));
        mappings.map(0x5, 0x5, 0, &file("empty"));
        let mut seen = String::new();
        for address in 0..0x10 {
            let (file, offset) = mappings.find(address).unwrap();
            seen.push_str(&file.name);
            let expected = match &*file.name {
                "A" => 0x100 + address,
                "B" => address - 2,
                _ => 0x30 + address - 4,
            };
            assert_eq!(offset, expected, "{address:#x}");
        }
        assert_eq!(seen, "AABBCCCCCCAAAAAA");
        assert!(mappings.find(0x10).is_none());
    }

    /// Against a table of pages, with pieces at random.
    #[test]
    fn as_a_table_of_pages_says() {
        let mut random = stopgap_events::random::Random::new(5);
        let mut mappings = Mappings::default();
        let mut table: Vec<Option<(u64, u64)>> = vec![None; 64];
        for inode in 0..2_000 {
            let start = random.below(64);
            let end = (start + random.below(20)).min(64);
            let file = Rc::new(File {
                name: String::new(),
                inode,
            });
            mappings.map(start, end, 1_000, &file);
            for page in start..end {
                table[usize::try_from(page).unwrap()] = Some((inode, 1_000 + page - start));
            }
            for (address, expected) in (0..).zip(&table) {
                let found = mappings.find(address);
                let found = found.map(|(file, offset)| (file.inode, offset));
                assert_eq!(found, *expected, "{inode} {address}");
            }
        }
    }
}
