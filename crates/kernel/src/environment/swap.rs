//! Swap, by kind.

use std::collections::BTreeSet;

use stopgap_events::units::Bytes;

use crate::budget::meminfo;
use crate::error::Result;
use crate::files::{Files, read_lossy};
use crate::proc::each_line;

const FILE: &str = "/proc/swaps";

/// All swap together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Swap {
    /// `none`, or the kinds joined by `+`.
    pub(crate) kind: String,
    pub(crate) size: Bytes,
}

pub(crate) fn read(files: &(impl Files + ?Sized)) -> Result<Swap> {
    match read_lossy(files, FILE) {
        Ok(text) => parse(&text),
        // A kernel without CONFIG_SWAP does not have the file and says that there is none.
        Err(error) if error.is_absent() && meminfo(files, "SwapTotal")? == Bytes(0) => parse(""),
        Err(error) => Err(error),
    }
}

fn parse(text: &str) -> Result<Swap> {
    let mut kinds = BTreeSet::new();
    let mut size = Bytes(0);
    let mut is_head = true;
    each_line(FILE, text, |line| {
        if std::mem::take(&mut is_head) {
            return Ok(());
        }
        // Blanks in a name are printed as \040.
        let words: Vec<&str> = line.split_whitespace().collect();
        let broken = || format!("'{line}' is no swap");
        let [name, kind, kib, ..] = words[..] else {
            return Err(broken());
        };
        let bytes: Option<u64> = kib.parse().ok().and_then(|kib: u64| kib.checked_mul(1024));
        let sum = bytes.and_then(|bytes| bytes.checked_add(size.0));
        size = Bytes(sum.ok_or_else(broken)?);
        let zram = name.starts_with("/dev/zram");
        kinds.insert(if zram { "zram" } else { kind });
        Ok(())
    })?;
    let kind = match kinds.is_empty() {
        true => "none".to_owned(),
        false => kinds.into_iter().collect::<Vec<_>>().join("+"),
    };
    Ok(Swap { kind, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

    fn swap(lines: &str) -> (String, Bytes) {
        let swap = parse(&format!("{HEAD}{lines}")).unwrap();
        (swap.kind, swap.size)
    }

    #[test]
    fn kinds_are_named_and_sizes_summed() {
        assert_eq!(swap(""), ("none".to_owned(), Bytes(0)));
        let zram = "/dev/zram0                              partition\t8388604\t\t0\t\t100\n";
        assert_eq!(swap(zram), ("zram".to_owned(), Bytes::kib(8_388_604)));
        let file = "/a\\040b/swapfile file 1024 0 -2\n/dev/sda2 partition 1024 0 -3\n";
        let all = format!("{zram}{file}");
        assert_eq!(
            swap(&all),
            ("file+partition+zram".to_owned(), Bytes::kib(8_390_652))
        );
    }

    #[test]
    fn broken_lines_are_errors_that_name_file_and_line() {
        for line in ["/dev/sda2 partition", "/dev/sda2 partition many 0 -2"] {
            let error = parse(&format!("{HEAD}{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("/proc/swaps: line 2: "), "{error}");
        }
        let much = format!("{HEAD}/a file {} 0 -2\n", u64::MAX);
        assert!(parse(&much).is_err());
    }
}
