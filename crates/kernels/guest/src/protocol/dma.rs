use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The file of a [`super::Work::Vfio`] cell: a [`Dma`] as JSON.
pub const DMA: &str = "vfio.json";

/// What a buffer took of the IOMMU while a device reached it, and what a transfer through it showed. One that brought
/// other data is not here: its cell failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dma {
    /// Entries of the IOMMU.
    pub entries: Known<Entries>,
    /// Physical runs: pages, but for those that continue their neighbour.
    pub physical_runs: Known<u64>,
    /// Pages that the IOMMU's tables took.
    pub table_pages: Known<u64>,
    /// Bytes that the device copied through the mapping, compared afterwards, each as it was.
    pub copied_bytes: Known<u64>,
}

/// Entries of the IOMMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entries {
    /// How many, by the bytes that each maps.
    #[serde(serialize_with = "write_sizes", deserialize_with = "read_sizes")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub by_size: BTreeMap<u64, u64>,
    /// `shown` by the kernel, `computed` from physical addresses.
    pub source: String,
}

/// Something, or why it is not known: never 0 for that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Known<T> {
    /// It is not.
    Not {
        /// Why.
        unknown: String,
    },
    /// It is.
    Is(T),
}

impl<T> Known<T> {
    /// It, or why it is not known.
    ///
    /// # Errors
    /// Why not.
    pub fn get(&self) -> Result<&T, &str> {
        match self {
            Known::Is(it) => Ok(it),
            Known::Not { unknown } => Err(unknown),
        }
    }
}

impl<T> From<Result<T, String>> for Known<T> {
    fn from(result: Result<T, String>) -> Known<T> {
        match result {
            Ok(it) => Known::Is(it),
            Err(unknown) => Known::Not { unknown },
        }
    }
}

fn write_sizes<S: Serializer>(sizes: &BTreeMap<u64, u64>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(sizes)
}

/// Names of JSON are texts, and within an untagged enum nobody makes numbers of them.
fn read_sizes<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<u64, u64>, D::Error> {
    let sizes = BTreeMap::<String, u64>::deserialize(from)?;
    let mut numbers = BTreeMap::new();
    for (size, count) in sizes {
        let wrong = |_| D::Error::custom(format!("'{size}' is no number of bytes"));
        numbers.insert(size.parse().map_err(wrong)?, count);
    }
    Ok(numbers)
}

impl Dma {
    /// As JSON, with a line break.
    ///
    /// # Panics
    /// Never: nothing in it can fail to be written.
    #[must_use]
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string(self).expect("strings and numbers");
        format!("{text}\n")
    }

    /// From its JSON.
    ///
    /// # Errors
    /// Bytes that are none, in one line.
    pub fn from_json(text: &[u8]) -> Result<Dma, String> {
        serde_json::from_slice(text).map_err(|error| format!("{DMA}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_and_what_is_not_come_back() {
        let text = "{\"copied_bytes\":32768,\"entries\":{\"by_size\":{\"2097152\":1,\"4096\":3},\"source\":\"computed\"},\
                    \"physical_runs\":4,\"table_pages\":{\"unknown\":\"this kernel does not \\\"count\\\" them\"}}\n";
        let dma = Dma::from_json(text.as_bytes()).unwrap();
        let entries = dma.entries.get().unwrap();
        assert_eq!(entries.by_size, [(4096, 3), (2 << 20, 1)].into());
        assert_eq!(dma.physical_runs, Known::Is(4));
        assert!(dma.table_pages.get().unwrap_err().contains("count"));
        assert_eq!(Dma::from_json(dma.to_json().as_bytes()).unwrap(), dma);
        let unknown = text.replace(
            "{\"by_size\":{\"2097152\":1,\"4096\":3},\"source\":\"computed\"}",
            "{\"unknown\":\"x\"}",
        );
        let dma = Dma::from_json(unknown.as_bytes()).unwrap();
        assert_eq!(dma.entries.get().unwrap_err(), "x");
        for wrong in [
            "",
            "{}",
            "[1]",
            &text.replace("\"4096\"", "\"4K\""),
            &text.replace("32768", "-1"),
        ] {
            let error = Dma::from_json(wrong.as_bytes()).unwrap_err();
            assert!(error.starts_with("vfio.json: "), "{wrong}");
        }
    }
}
