use stopgap_events::snapshot::TypeBlocks;

use super::{OfZone, each_line, zone_of_line};
use crate::error::{Error, Result};

const FILE: &str = "/proc/pagetypeinfo";

/// Content of the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageTypes {
    /// Order of the blocks that have one migrate type each.
    pub(crate) pageblock_order: u32,
    /// Migrate types of each zone.
    pub(crate) zones: Vec<OfZone<Vec<TypeBlocks>>>,
}

/// Reads the two tables: free blocks by zone, type and order, where `>100000` is a list that the
/// kernel did not count to its end (since 5.5); and how many pageblocks of each type a zone has.
pub(crate) fn read(text: &str) -> Result<PageTypes> {
    let mut order = None;
    let mut found = PageTypes {
        pageblock_order: 0,
        zones: Vec::new(),
    };
    // The types in the order of the second table's columns; `None` before it.
    let mut columns: Option<Vec<&str>> = None;
    each_line(FILE, text, |line| {
        if let Some(value) = line.strip_prefix("Page block order:") {
            let value: Option<u32> = value.trim().parse().ok();
            order = Some(value.ok_or_else(|| format!("'{line}' has no order"))?);
        } else if let Some(names) = line.strip_prefix("Number of blocks type") {
            columns = Some(names.split_whitespace().collect());
        } else if line.starts_with("Node") {
            let (node, zone, rest) = zone_of_line(line)?;
            let types = types_of(&mut found, node, zone);
            match &columns {
                None => types.push(free_blocks(rest)?),
                Some(columns) => pageblocks(rest, columns, types)?,
            }
        }
        Ok(())
    })?;
    found.pageblock_order = order.ok_or_else(|| Error::parse(FILE, "has no 'Page block order'"))?;
    if columns.is_none() {
        return Err(Error::parse(FILE, "has no 'Number of blocks type'"));
    }
    Ok(found)
}

/// The types of a zone, none so far where it is new.
fn types_of<'a>(found: &'a mut PageTypes, node: u32, zone: &str) -> &'a mut Vec<TypeBlocks> {
    let same = |one: &OfZone<_>| one.0 == node && one.1 == zone;
    let place = found.zones.iter().position(same).unwrap_or_else(|| {
        found.zones.push((node, zone.to_owned(), Vec::new()));
        found.zones.len() - 1
    });
    &mut found.zones[place].2
}

/// `, type    Unmovable      0      0 >100000`.
fn free_blocks(rest: &str) -> std::result::Result<TypeBlocks, String> {
    let rest = rest.trim_start_matches(',').trim_start();
    let mut words = rest
        .strip_prefix("type")
        .ok_or_else(|| format!("no migrate type in '{rest}'"))?
        .split_whitespace();
    let name = words.next().ok_or("no migrate type's name")?;
    let count = |word: &str| match word.strip_prefix('>') {
        Some(_) => Ok(None),
        None => word
            .parse()
            .map(Some)
            .map_err(|_| format!("type {name}: '{word}' is no number of blocks")),
    };
    Ok(TypeBlocks {
        name: name.to_owned(),
        free_blocks: words.map(count).collect::<std::result::Result<_, _>>()?,
        pageblocks: 0,
    })
}

/// `      150         4804          230`.
fn pageblocks(
    rest: &str,
    columns: &[&str],
    types: &mut [TypeBlocks],
) -> std::result::Result<(), String> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    if words.len() != columns.len() {
        return Err(format!(
            "{} numbers for {} types",
            words.len(),
            columns.len()
        ));
    }
    for (name, word) in columns.iter().zip(words) {
        let count = word
            .parse()
            .map_err(|_| format!("type {name}: '{word}' is no number of blocks"))?;
        let of_type = types.iter_mut().find(|one| one.name == *name);
        of_type
            .ok_or_else(|| format!("type {name} was not in the table before"))?
            .pageblocks = count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2
Node    0, zone      DMA, type    Unmovable      1      0      4
Node    0, zone      DMA, type      Movable      0 >100000     2

Number of blocks type     Unmovable      Movable
Node 0, zone      DMA            1            7
";

    #[test]
    fn both_tables_are_read() {
        let of = |name: &str, free_blocks: [Option<u64>; 3], pageblocks| TypeBlocks {
            name: name.to_owned(),
            free_blocks: free_blocks.to_vec(),
            pageblocks,
        };
        let types = vec![
            of("Unmovable", [Some(1), Some(0), Some(4)], 1),
            of("Movable", [Some(0), None, Some(2)], 7),
        ];
        let expected = PageTypes {
            pageblock_order: 9,
            zones: vec![(0, "DMA".to_owned(), types)],
        };
        assert_eq!(read(TEXT).unwrap(), expected);
    }

    #[test]
    fn broken_lines_are_named() {
        for (from, to, why) in [
            (
                "order: 9",
                "order: x",
                "line 1: 'Page block order: x' has no order",
            ),
            ("Page block order", "x", "has no 'Page block order'"),
            ("Number of", "x", "line 9: no migrate type"),
            (" type    Unm", " Unm", "line 5: no migrate type"),
            (
                "1      0      4",
                "1      y      4",
                "line 5: type Unmovable: 'y'",
            ),
            ("            7", "", "line 9: 1 numbers for 2 types"),
            ("            7", "  z", "line 9: type Movable: 'z'"),
            ("   Movable\n", "  CMA\n", "line 9: type CMA was not"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = read(&TEXT.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(FILE), "{error}");
        }
        let (first, _) = TEXT.split_once("Number").unwrap();
        let error = read(first).unwrap_err().to_string();
        assert!(error.contains("has no 'Number of blocks type'"), "{error}");
    }
}
