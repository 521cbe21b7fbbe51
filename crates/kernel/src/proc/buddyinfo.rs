use stopgap_events::machine::OrderIndex;

use crate::error::{Error, Result};

const FILE: &str = "/proc/buddyinfo";
/// More than any address has bits: no kernel has as many.
const MOST_ORDERS: usize = 64;

/// The unusable-free-space index of each order, over all zones of all nodes together.
///
/// `index = (free pages - sum over k >= order of blocks(k) * 2^k) / free pages`, as
/// `unusable_free_index()` of `mm/vmstat.c` computes it for one zone; summed over zones before
/// the division, so each zone counts by its free pages. No free memory at all is an index of 1,
/// as there. How many orders there are, the file says (11 with 4 KiB pages, other kernels
/// differ). Pages on the per-CPU lists are not in the file.
pub(crate) fn unusable_index(text: &str) -> Result<Vec<OrderIndex>> {
    let mut blocks: Vec<f64> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let broken = |reason: String| Error::parse(FILE, format!("line {}: {reason}", number + 1));
        let (_, rest) = line
            .split_once("zone")
            .ok_or_else(|| broken(format!("no zone in '{line}'")))?;
        let mut words = rest.split_whitespace();
        let zone = words
            .next()
            .ok_or_else(|| broken("no zone name".to_owned()))?;
        let mut orders = 0; // of this zone
        for (order, word) in words.enumerate() {
            if order == MOST_ORDERS {
                return Err(broken(format!(
                    "zone {zone}: more than {MOST_ORDERS} orders"
                )));
            }
            let count: u64 = word
                .parse()
                .map_err(|_| broken(format!("zone {zone}: '{word}' is no number of blocks")))?;
            if blocks.len() <= order {
                blocks.push(0.0);
            }
            blocks[order] += count as f64;
            orders = order + 1;
        }
        if orders == 0 {
            return Err(broken(format!("zone {zone} has no orders")));
        }
    }
    if blocks.is_empty() {
        return Err(Error::parse(FILE, "empty"));
    }
    // Suffix sums from the top, so that order 0, of which all free memory is usable, is an
    // exact 0.
    let mut usable = vec![0.0; blocks.len() + 1];
    for order in (0..blocks.len()).rev() {
        usable[order] = usable[order + 1] + blocks[order] * (1u128 << order) as f64;
    }
    let free = usable[0];
    let index = |usable: f64| {
        if free > 0.0 {
            (free - usable) / free
        } else {
            1.0
        }
    };
    let orders = 0u32..;
    Ok(orders
        .zip(&usable[..blocks.len()])
        .map(|(order, &usable)| OrderIndex {
            order,
            index: index(usable),
        })
        .collect())
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
