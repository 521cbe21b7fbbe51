use stopgap_events::machine::OrderIndex;
use stopgap_events::snapshot;

use super::{OfZone, each_line, zone_of_line};
use crate::error::{Error, Result};

const FILE: &str = "/proc/buddyinfo";
/// More than any address has bits: no kernel has as many.
const MOST_ORDERS: usize = 64;

/// The free blocks of each zone by order, at least one order each; pages on the per-CPU lists are not among them. How many orders there are, the file
/// says (11 with 4 KiB pages, other kernels differ).
pub(crate) fn zones(text: &str) -> Result<Vec<OfZone<Vec<u64>>>> {
    let mut zones = Vec::new();
    each_line(FILE, text, |line| {
        let (node, zone, words) = zone_of_line(line)?;
        let mut blocks = Vec::new();
        for word in words.split_whitespace() {
            if blocks.len() == MOST_ORDERS {
                return Err(format!("zone {zone}: more than {MOST_ORDERS} orders"));
            }
            let count = word.parse::<u64>();
            blocks
                .push(count.map_err(|_| format!("zone {zone}: '{word}' is no number of blocks"))?);
        }
        if blocks.is_empty() {
            return Err(format!("zone {zone} has no orders"));
        }
        zones.push((node, zone.to_owned(), blocks));
        Ok(())
    })?;
    if zones.is_empty() {
        return Err(Error::parse(FILE, "empty"));
    }
    Ok(zones)
}

/// The unusable-free-space index of each order, over all zones of all nodes together:
/// blocks are summed over zones before the division, so each zone counts by its free pages.
/// No free memory at all is an index of 1.
pub(crate) fn unusable_index(text: &str) -> Result<Vec<OrderIndex>> {
    let zones = zones(text)?;
    let orders = zones.iter().map(|(.., blocks)| blocks.len()).max();
    let mut sum = vec![0u64; orders.unwrap_or(0)];
    for (.., blocks) in &zones {
        for (sum, blocks) in sum.iter_mut().zip(blocks) {
            *sum = sum.saturating_add(*blocks);
        }
    }
    Ok(snapshot::unusable_index(&sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(text: &str) -> Vec<f64> {
        unusable_index(text)
            .unwrap()
            .iter()
            .map(|o| o.index)
            .collect()
    }

    #[test]
    #[allow(clippy::float_cmp)] // powers of two: exact
    fn all_zones_of_all_nodes_count_by_their_free_pages() {
        // 8 + 4 pages in blocks of 1 and 4; 4 pages in one block of 4: 16 free pages.
        let text = "Node 0, zone   DMA      8      0      1\nNode 1, zone Normal 0 0 1\n";
        assert_eq!(indices(text), [0.0, 0.5, 0.5]);
    }

    #[test]
    #[allow(clippy::float_cmp)] // written by the code, not computed
    fn no_free_memory_is_all_unusable() {
        assert_eq!(indices("Node 0, zone Normal 0 0\n"), [1.0, 1.0]);
    }

    #[test]
    fn the_number_of_orders_comes_from_the_file() {
        let fourteen = format!("Node 0, zone Normal{}\n", " 1".repeat(14));
        let all = unusable_index(&fourteen).unwrap();
        assert_eq!(all.len(), 14);
        assert_eq!(all[13].order, 13);
        // 2^14 - 1 free pages, 2^13 of them in the largest block.
        let expected = 1.0 - f64::from(1 << 13) / f64::from((1 << 14) - 1);
        assert!((all[13].index - expected).abs() < 1e-12);
    }

    #[test]
    fn broken_lines_are_errors_that_name_file_and_line() {
        for (text, reason) in [
            ("", "empty"),
            ("Node 0\n", "line 1: no zone"),
            ("Node 0, zone\n", "no zone name"),
            ("Node x, zone DMA 1\n", "no node number"),
            ("Node 0, zone Normal\n", "no orders"),
            (
                "Node 0, zone DMA 1 2\nNode 0, zone Normal 3 x\n",
                "line 2: zone Normal: 'x'",
            ),
            ("Node 0, zone Normal -1\n", "'-1'"),
        ] {
            let error = unusable_index(text).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(FILE), "{error}");
        }
    }
}
