//! A kernel's functions by address.

use std::collections::HashSet;

use stopgap_stats::profile::plain;

use crate::functions::UNKNOWN;

/// Functions of one kernel, from its System.map or from `/proc/kallsyms`.
///
/// An address with several names shows the one with the fewest leading underscores; among those a global one, the shortest, the
/// first: the same in two kernels that have the same names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Symbols {
    /// Where a symbol starts, ascending, each address once; the name of a function, `None` of what is none.
    starts: Vec<(u64, Option<String>)>,
}

impl Symbols {
    /// Reads lines of an address, a type and a name: `ffffffff810ebc60 T do_mmap`, and behind a module's a tab and
    /// `[name]`, which stays with it.
    ///
    /// # Errors
    /// A line that is none of these; no function at all; addresses that were hidden (all 0, as kallsyms shows them to
    /// whom `kernel.kptr_restrict` refuses them).
    pub(crate) fn parse(text: &str) -> Result<Symbols, String> {
        let mut all: Vec<(u64, Option<(Rank<'_>, String)>)> = Vec::new();
        let mut hidden = false;
        for (at, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace();
            let parts = (
                words.next(),
                words.next(),
                words.next(),
                words.next(),
                words.next(),
            );
            let (Some(address), Some(kind), Some(name), module, None) = parts else {
                return Err(format!("line {} is no symbol", at + 1));
            };
            let address = u64::from_str_radix(address, 16)
                .map_err(|_| format!("line {} has no address", at + 1))?;
            hidden |= address == 0 && matches!(kind, "T" | "t");
            // Offsets into a CPU's data, and absolute values, are no places.
            if address >> 63 == 0 || matches!(kind, "a" | "A") {
                continue;
            }
            // Where code ends, not what begins there.
            let end = matches!(name, "_etext" | "_einittext");
            let function = (!end && matches!(kind, "T" | "t" | "W" | "w")).then(|| {
                let shown = plain(name);
                let underscores = shown.len() - shown.trim_start_matches('_').len();
                let rank = (underscores, kind == "t" || kind == "w", shown.len(), name);
                let shown =
                    module.map_or_else(|| shown.to_owned(), |module| format!("{shown} {module}"));
                (rank, shown)
            });
            all.push((address, function));
        }
        // At one address functions come before what is none, and the best name first.
        all.sort_by(|(a, one), (b, other)| {
            let (one, other) = (rank(one), rank(other));
            a.cmp(b)
                .then(one.is_none().cmp(&other.is_none()))
                .then(one.cmp(&other))
        });
        all.dedup_by_key(|(address, _)| *address);
        let starts: Vec<_> = all
            .into_iter()
            .map(|(address, function)| (address, function.map(|(_, name)| name)))
            .collect();
        let names: HashSet<&str> = starts
            .iter()
            .filter_map(|(_, name)| name.as_deref())
            .collect();
        match (names.is_empty(), hidden) {
            (false, _) => Ok(Symbols { starts }),
            (true, true) => {
                Err("the addresses of symbols are hidden (kernel.kptr_restrict)".to_owned())
            }
            (true, false) => Err("no function is among the symbols".to_owned()),
        }
    }

    /// The function that an address lies in: the one whose symbol comes last before it; [`UNKNOWN`] before the first,
    /// and where data begins before it.
    ///
    /// A symbol has no end here. What lies beyond the kernel's image (modules, where only System.map is known) comes
    /// after `_etext`, and after `_end`, which is data: it has no symbol.
    pub(crate) fn name(&self, address: u64) -> &str {
        let after = self.starts.partition_point(|(start, _)| *start <= address);
        let found = after.checked_sub(1).and_then(|at| self.starts.get(at));
        found
            .and_then(|(_, name)| name.as_deref())
            .unwrap_or(UNKNOWN)
    }
}

/// The rank of a function, `None` of what is none.
fn rank<'a>(function: &Option<(Rank<'a>, String)>) -> Option<Rank<'a>> {
    function.as_ref().map(|(rank, _)| *rank)
}

/// The lower, the better a name: underscores, not global, length, the name.
type Rank<'a> = (usize, bool, usize, &'a str);

#[cfg(test)]
mod tests;
