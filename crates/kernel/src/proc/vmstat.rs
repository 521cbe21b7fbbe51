use stopgap_events::machine::Counter;

use super::each_line;
use crate::error::Result;

const FILE: &str = "/proc/vmstat";

/// Direct reclaim and compaction since boot: `allocstall`, summed over the zones into which
/// 4.8 split it, where the kernel has it; then every `compact_*`, in the kernel's order.
pub(crate) fn since_boot(text: &str) -> Result<Vec<Counter>> {
    let mut stalls: Option<u64> = None;
    let mut compaction = Vec::new();
    each_line(FILE, text, |line| {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let stall = name == "allocstall" || name.starts_with("allocstall_");
        if !stall && !name.starts_with("compact_") {
            return Ok(());
        }
        let value: u64 = value
            .trim()
            .parse()
            .map_err(|_| format!("'{line}' has no count"))?;
        if stall {
            stalls = Some(stalls.unwrap_or(0).saturating_add(value));
        } else {
            let name = name.to_owned();
            compaction.push(Counter { name, value });
        }
        Ok(())
    })?;
    let name = "allocstall".to_owned();
    let stalls = stalls.map(|value| Counter { name, value });
    Ok(stalls.into_iter().chain(compaction).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_testing::assert_contains;

    fn rows(text: &str) -> Vec<(String, u64)> {
        since_boot(text)
            .unwrap()
            .into_iter()
            .map(|c| (c.name, c.value))
            .collect()
    }

    #[test]
    fn zones_are_summed_and_old_kernels_have_one_counter() {
        let text = "nr_free_pages 5\nallocstall_dma 1\nallocstall_movable 41\ncompact_stall 7\n";
        let row = |name: &str, value| (name.to_owned(), value);
        assert_eq!(rows(text), [row("allocstall", 42), row("compact_stall", 7)]);
        assert_eq!(rows("allocstall 9\n"), [row("allocstall", 9)]);
        assert_eq!(rows("pgfault 9\n"), []);
    }

    #[test]
    fn a_broken_count_is_an_error_that_names_file_and_line() {
        let error = since_boot("pgfault 9\ncompact_fail x\n")
            .unwrap_err()
            .to_string();
        assert_contains(&error, &["/proc/vmstat: line 2: 'compact_fail x'"]);
    }
}
