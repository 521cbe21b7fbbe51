use super::zone_of_line;
use crate::error::{Error, Result};

const FILE: &str = "/proc/zoneinfo";

/// One zone that has memory, in pages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) node: u32,
    pub(crate) name: String,
    /// Frame number of the first page that it spans.
    pub(crate) start: u64,
    pub(crate) spanned: u64,
    pub(crate) present: u64,
    pub(crate) managed: u64,
    pub(crate) min: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    /// Pages on the lists of all CPUs; `None` where the kernel prints no such lists.
    pub(crate) per_cpu: Option<u64>,
}

/// The zones that have memory. Of one without, kernels since 4.12 print not even where it starts.
pub(crate) fn zones(text: &str) -> Result<Vec<Zone>> {
    let mut zones = Vec::new();
    let mut fields: Option<Fields> = None;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("Node") {
            if let Some(zone) = fields.take() {
                zones.extend(zone.finish()?);
            }
            let (node, name, _) = zone_of_line(line)
                .map_err(|why| Error::parse(FILE, format!("line {}: {why}", number + 1)))?;
            fields = Some(Fields::new(node, name));
        } else if let Some(fields) = &mut fields {
            fields
                .read(line)
                .map_err(|why| Error::parse(FILE, format!("line {}: {why}", number + 1)))?;
        }
    }
    if let Some(zone) = fields {
        zones.extend(zone.finish()?);
    }
    if zones.is_empty() {
        return Err(Error::parse(FILE, "has no zone with memory"));
    }
    Ok(zones)
}

/// A zone's lines as far as they were read.
#[derive(Default)]
struct Fields {
    node: u32,
    name: String,
    start: Option<u64>,
    spanned: Option<u64>,
    present: Option<u64>,
    managed: Option<u64>,
    min: Option<u64>,
    low: Option<u64>,
    high: Option<u64>,
    per_cpu: Option<u64>,
}

impl Fields {
    fn new(node: u32, name: &str) -> Fields {
        Fields {
            node,
            name: name.to_owned(),
            ..Fields::default()
        }
    }

    fn read(&mut self, line: &str) -> std::result::Result<(), String> {
        let mut words = line.split_whitespace();
        let (Some(key), Some(word)) = (words.next(), words.next()) else {
            return Ok(());
        };
        // Those of the lists of a CPU end with a colon, as `high:`.
        let field = match key {
            "spanned" => &mut self.spanned,
            "present" => &mut self.present,
            "managed" => &mut self.managed,
            "min" => &mut self.min,
            "low" => &mut self.low,
            "high" => &mut self.high,
            "start_pfn:" => &mut self.start,
            "count:" => &mut self.per_cpu,
            _ => return Ok(()),
        };
        let value: u64 = word
            .parse()
            .map_err(|_| format!("'{word}' is no number of pages"))?;
        // A line for each CPU; of the others there is one.
        let before = field.filter(|_| key == "count:").unwrap_or(0);
        *field = Some(before.saturating_add(value));
        Ok(())
    }

    fn finish(self) -> Result<Option<Zone>> {
        let Fields { node, name, .. } = &self;
        let zone = format!("node {node}, zone {name}");
        let need = |field: Option<u64>, what: &str| {
            field.ok_or_else(|| Error::parse(FILE, format!("{zone} has no '{what}'")))
        };
        if need(self.present, "present")? == 0 {
            return Ok(None);
        }
        Ok(Some(Zone {
            node: self.node,
            start: need(self.start, "start_pfn")?,
            spanned: need(self.spanned, "spanned")?,
            present: need(self.present, "present")?,
            managed: need(self.managed, "managed")?,
            min: need(self.min, "min")?,
            low: need(self.low, "low")?,
            high: need(self.high, "high")?,
            per_cpu: self.per_cpu,
            name: self.name,
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
            start: 1,
            spanned: 4095,
            present: 3998,
            managed: 3840,
            min: 18,
            low: 22,
            high: 26,
            per_cpu: Some(12),
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
