//! A kernel's functions by address.

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
        let mut all = Vec::new();
        let mut hidden = false;
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (address, kind, name, module) = match words[..] {
                [address, kind, name] => (address, kind, name, None),
                [address, kind, name, module] => (address, kind, name, Some(module)),
                _ => return Err(format!("line {} is no symbol", at + 1)),
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
            let is_data = end || !matches!(kind, "T" | "t" | "W" | "w");
            let shown = plain(name);
            let underscores = shown.len() - shown.trim_start_matches('_').len();
            let local = matches!(kind, "t" | "w");
            // In the order of preference at one address.
            all.push((
                address,
                is_data,
                underscores,
                local,
                shown.len(),
                name,
                module,
            ));
        }
        all.sort_unstable();
        all.dedup_by_key(|symbol| symbol.0);
        let each = all.into_iter().map(|(address, is_data, .., name, module)| {
            let module = module.map_or(String::new(), |module| format!(" {module}"));
            let function = (!is_data).then(|| format!("{}{module}", plain(name)));
            (address, function)
        });
        let starts: Vec<_> = each.collect();
        if starts.iter().any(|(_, function)| function.is_some()) {
            return Ok(Symbols { starts });
        }
        Err(match hidden {
            true => "the addresses of symbols are hidden (kernel.kptr_restrict)".to_owned(),
            false => "no function is among the symbols".to_owned(),
        })
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

#[cfg(test)]
mod tests;
