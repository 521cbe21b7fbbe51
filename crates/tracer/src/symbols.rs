//! Names of kernel functions by address: `/proc/kallsyms`.

use std::collections::HashMap;
use std::sync::Arc;

use stopgap_events::order::SortRows as _;
use stopgap_trace::{Stack, Text};

/// Kernel functions, sorted by address.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    functions: Arc<[(u64, Text)]>,
    stacks: HashMap<Vec<u64>, Stack>,
}

/// Different stacks that are kept as text; beyond that they are made anew each time.
const STACKS: usize = 1 << 16;
/// How far into a function an address may lie: what is beyond the last one is in none.
const LONGEST: u64 = 1 << 20;

impl Symbols {
    /// Reads lines `address type name [module]`. Lines of another form and what is no function are
    /// passed over. Where the kernel hides the addresses (`kernel.kptr_restrict`), all are 0 and
    /// [`Symbols::is_empty`].
    #[must_use]
    pub fn parse(text: &str) -> Symbols {
        let mut functions: Vec<(u64, Text)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let function = matches!(words.next()?, "t" | "T" | "w" | "W");
                let name = words.next()?;
                (function && address != 0).then(|| (address, Text::from(name)))
            })
            .collect();
        functions.sort_rows_by_key(|&(address, _)| address);
        functions.dedup_by_key(|&mut (address, _)| address);
        Symbols {
            functions: functions.into(),
            stacks: HashMap::new(),
        }
    }

    /// Whether no address has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function in which `address` lies.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<&Text> {
        let after = self
            .functions
            .partition_point(|&(start, _)| start <= address);
        let (start, name) = self.functions.get(after.checked_sub(1)?)?;
        (address - start < LONGEST).then_some(name)
    }

    /// A stack of kernel addresses, innermost first, as text; an address without a name stays one.
    pub fn stack(&mut self, addresses: &[u64]) -> Stack {
        if let Some(stack) = self.stacks.get(addresses) {
            return stack.clone();
        }
        let frames: Vec<String> = addresses
            .iter()
            .rev()
            .map(|&address| match self.function(address) {
                Some(name) => format!("{name}_[k]"),
                None => format!("{address:#x}_[k]"),
            })
            .collect();
        let stack = Stack::new(frames.iter().map(String::as_str));
        if self.stacks.len() < STACKS {
            self.stacks.insert(addresses.to_vec(), stack.clone());
        }
        stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let text = "ffffffff81000000 T _stext\nffffffff81000100 t schedule\n\
                    ffffffff81000200 D data\nffffffff81000300 t late [mod]\nnonsense\n\n0 T zero";
        let mut symbols = Symbols::parse(text);
        let name = |address| symbols.function(address).map(ToString::to_string);
        assert_eq!(name(0xffff_ffff_8100_0100).as_deref(), Some("schedule"));
        assert_eq!(name(0xffff_ffff_8100_02ff).as_deref(), Some("schedule"));
        assert_eq!(name(0xffff_ffff_8100_0301).as_deref(), Some("late"));
        assert_eq!(name(0xffff_ffff_9100_0000), None);
        assert_eq!(name(5), None);
        let stack = symbols.stack(&[0xffff_ffff_8100_0110, 5, 0xffff_ffff_8100_0001]);
        assert_eq!(&*stack.0, "_stext_[k];0x5_[k];schedule_[k]");
        assert!(Symbols::parse("0 T schedule\n0 t other").is_empty());
    }
}
