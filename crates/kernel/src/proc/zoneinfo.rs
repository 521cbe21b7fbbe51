use stopgap_events::snapshot::{Watermarks, Zone};
use stopgap_events::units::Pages;

use super::{each_line, zone_of_line};
use crate::error::{Error, Result};

const FILE: &str = "/proc/zoneinfo";

/// Returns the zones that have memory, without what other files say of them. Kernels since 4.12 do not print where an empty one starts.
pub(crate) fn zones(text: &str) -> Result<Vec<Zone>> {
    let mut found: Vec<Fields> = Vec::new();
    each_line(FILE, text, |line| {
        if line.starts_with("Node") {
            let (node, name, _) = zone_of_line(line)?;
            found.push(Fields {
                node,
                name: name.to_owned(),
                pages: [None; FIELDS.len()],
            });
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let (Some(zone), Some(key), Some(word)) = (found.last_mut(), words.next(), words.next())
        else {
            return Ok(());
        };
        let Some(field) = FIELDS.iter().position(|field| *field == key) else {
            return Ok(());
        };
        let value = word.parse::<u64>();
        let value = value.map_err(|_| format!("'{word}' is no number of pages"))?;
        // `count:` has a line for each CPU; of the others there is one.
        let before = zone.pages[field].filter(|_| key == "count:").unwrap_or(0);
        zone.pages[field] = Some(before.saturating_add(value));
        Ok(())
    })?;
    let zones: Result<Vec<Option<Zone>>> = found.into_iter().map(Fields::finish).collect();
    let zones: Vec<Zone> = zones?.into_iter().flatten().collect();
    if zones.is_empty() {
        return Err(Error::parse(FILE, "has no zone with memory"));
    }
    Ok(zones)
}

/// Words before the numbers. Those of the lists of a CPU end with a colon, as `high:`.
const FIELDS: [&str; 8] = [
    "start_pfn:",
    "spanned",
    "present",
    "managed",
    "min",
    "low",
    "high",
    "count:",
];

/// A zone's lines as far as they were read.
struct Fields {
    node: u32,
    name: String,
    pages: [Option<u64>; FIELDS.len()],
}

impl Fields {
    fn finish(self) -> Result<Option<Zone>> {
        let Fields { node, name, pages } = self;
        let need = |field: usize| {
            let what = FIELDS[field].trim_end_matches(':');
            let lacks = || Error::parse(FILE, format!("node {node}, zone {name} has no '{what}'"));
            pages[field].map(Pages).ok_or_else(lacks)
        };
        if need(2)? == Pages(0) {
            return Ok(None);
        }
        Ok(Some(Zone {
            node,
            start_frame: need(0)?.0,
            pages: need(1)?,
            present: need(2)?,
            managed: need(3)?,
            watermarks: Watermarks {
                min: need(4)?,
                low: need(5)?,
                high: need(6)?,
            },
            per_cpu: pages[7].map(Pages),
            free_blocks: Vec::new(),
            by_type: None,
            layout: None,
            mapped: None,
            name,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: &str = "\
Node 0, zone   Normal
  per-node stats
      nr_inactive_anon 1999
  pages free     3840
        boost    0
        min      18
        low      22
        high     26
        spanned  4095
        present  3998
        managed  3840
        protection: (0, 3019)
      nr_free_pages 3840
  pagesets
    cpu: 0
              count:    5
              high:     378
    cpu: 1
              count:    7
              high:     378
  node_unreclaimable:  0
  start_pfn:           1
";
    const EMPTY: &str = "\
Node 1, zone  Movable
  pages free     0
        min      0
        low      0
        high     0
        spanned  0
        present  0
        managed  0
";

    #[test]
    fn zones_with_memory_are_read() {
        let text = format!("{EMPTY}{NORMAL}{EMPTY}");
        let expected = Zone {
            node: 0,
            name: "Normal".to_owned(),
            start_frame: 1,
            pages: Pages(4095),
            present: Pages(3998),
            managed: Pages(3840),
            watermarks: Watermarks {
                min: Pages(18),
                low: Pages(22),
                high: Pages(26),
            },
            per_cpu: Some(Pages(12)),
            free_blocks: Vec::new(),
            by_type: None,
            layout: None,
            mapped: None,
        };
        assert_eq!(zones(&text).unwrap(), [expected]);
    }

    #[test]
    fn what_lacks_is_named() {
        for (text, why) in [
            (String::new(), "no zone with memory"),
            (EMPTY.to_owned(), "no zone with memory"),
            ("Node 0\n".to_owned(), "line 1: no zone"),
            (
                NORMAL.replace("start_pfn", "x"),
                "zone Normal has no 'start_pfn'",
            ),
            (
                NORMAL.replace("  managed", "  x"),
                "zone Normal has no 'managed'",
            ),
            (
                NORMAL.replace("3998", "many"),
                "line 10: 'many' is no number",
            ),
            (NORMAL.replace("3998", "-1"), "line 10: '-1' is no number"),
        ] {
            let error = zones(&text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(FILE), "{error}");
        }
    }
}
