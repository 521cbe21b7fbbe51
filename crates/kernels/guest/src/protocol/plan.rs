use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::words;
use stopgap_events::workload::Workload;

/// Where a guest finds its plan.
pub const PLAN: &str = "/stopgap/plan.json";
/// The word on the kernel's command line before the number of the layout sample: `stopgap.seed=3`.
pub const SEED: &str = "stopgap.seed=";
/// The version of plan and lines; a guest of another one refuses the plan.
pub const VERSION: u32 = 1;
/// The largest `n` of a workload: what any kernel's `vm.max_map_count` may be raised to in a guest of 1 GiB.
const MOST_N: u32 = 200_000;
/// The most operations, round trips or children of a cell: their counts are kept in memory.
const MOST_OPERATIONS: u64 = 10_000_000;

/// What a guest does, in this order: settings, modules, settling, cells, power off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`VERSION`].
    pub version: u32,
    /// Kernel modules, as paths in the initramfs, decompressed, in the order of loading: each after
    /// those it needs. The guest reports one that does not load ([`super::Line::Missing`]) and goes on.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Parameters of modules, by the module's path: `("/stopgap/a.ko", "armed=1")`.
    #[serde(default)]
    pub parameters: Vec<(String, String)>,
    /// Whether the guest sends `/proc/kallsyms` as a file of that name (of it the lines of code: types t, T, w and
    /// W), of use where the kernel came without its System.map, as Debian's do. It takes about a second.
    #[serde(default)]
    pub symbols: bool,
    /// How long the guest does nothing before each cell, by its own clock, so that what the boot left to
    /// do is done. In emulation that takes next to no time of the host.
    #[serde(default = "settle")]
    pub settle: Nanos,
    /// What the guest counts, by names that differ.
    pub cells: Vec<Cell>,
}

/// One thing to carry out, in a process of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Its name in lines and records: one line, not empty.
    pub name: String,
    /// What to do.
    pub work: Work,
}

/// What a cell does, and which operations it counts (the words of [`super::Line::Counts`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Work {
    /// A built-in workload: `map`, `first touch`, `unmap`, `protect`, whichever it has, and `churn`: the
    /// sum of the three of one buffer's life. What is mapped with `Merge::Never` is a part of one memfd.
    Placement {
        /// Which.
        #[serde(with = "word")]
        workload: Workload,
        /// Mappings that stay; where the workload does not let it be chosen, what it is.
        n: u32,
        /// Operations after the layout, which of agua are the loops until more than `n` mappings were live.
        operations: u64,
    },
    /// Two processes on one CPU and a pair of Unix stream sockets: `round trip`, from the client's
    /// write(2) to the end of its read(2), 32 bytes each way.
    Roundtrip {
        /// How many.
        requests: u64,
    },
    /// A child's life: `fork` (the parent's call), `wait` (until it is reaped; what the child does lies in it), and
    /// their sum `fork+wait`; where `exec`, `fork+exec+wait`: the child executes a program that ends at once.
    Fork {
        /// How many children, one after the other.
        children: u64,
        /// Whether the child executes a program.
        exec: bool,
        /// Touched pages of the parent's, in one mapping.
        pages: u32,
    },
    /// pbobench on buffer objects: `create`, `map`, `first touch`, `unmap`, `destroy`, beside `n` live ones.
    Device {
        /// On which.
        #[serde(with = "word")]
        device: Device,
        /// Objects that stay.
        n: u32,
        /// Objects that come and go.
        operations: u64,
    },
    /// A mapped object that is used again, from the second use on: `map`, `first touch` and `unmap` of its descriptor; then
    /// `take`, `touch` and `give` of a cache of mapped objects ([`stopgap_arena::descriptors`]). A touch writes a byte a page.
    Reuse {
        /// Who makes it.
        #[serde(with = "word")]
        device: Device,
        /// Its bytes.
        length: Bytes,
        /// Uses of each kind.
        operations: u64,
    },
    /// Mapping a buffer for DMA by VFIO (type 1): `dma map`, `dma unmap`; then a transfer that is verified (the cell
    /// fails where its data is wrong), and a file [`super::DMA`]: entries of the IOMMU, pages of its tables.
    Vfio {
        /// Bytes of the buffer.
        length: Bytes,
        /// Pages that it is made of.
        page_size: Bytes,
        /// How often it is mapped.
        operations: u64,
    },
    /// A program of the initramfs. Its standard output and standard error, its status and the named files
    /// come back ([`super::Ran`]); nothing is counted.
    Command {
        /// Program (a path) and arguments.
        argv: Vec<String>,
        /// Files to send back when the program has ended; a missing one is a line.
        #[serde(default)]
        files: Vec<String>,
        /// How long it may take by the guest's clock; then it is killed, and what it wrote is sent.
        #[serde(default = "limit")]
        limit: Nanos,
    },
}

/// A maker of buffer objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// GEM objects of the virtual graphics device.
    Vgem,
    /// Buffers of a dma-heap.
    DmaHeap,
    /// Parts of a memfd as dma-bufs.
    Udmabuf,
}

words!(Device, "device", Vgem "vgem", DmaHeap "dma-heap", Udmabuf "udmabuf");

fn settle() -> Nanos {
    Nanos::secs(1)
}

fn limit() -> Nanos {
    Nanos::secs(60)
}

/// A thing of [`words!`] as its word.
mod word {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};
    use serde::de::Error as _;

    pub(super) fn serialize<S: Serializer>(one: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(one)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(
        from: D,
    ) -> Result<T, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Work {
    /// The word that it is chosen by: a workload's, a device's, `roundtrip`, `fork`, `reuse`, `vfio`, `command`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Work::Placement { workload, .. } => workload.word(),
            Work::Roundtrip { .. } => "roundtrip",
            Work::Fork { .. } => "fork",
            Work::Device { device, .. } => device.word(),
            Work::Reuse { .. } => "reuse",
            Work::Vfio { .. } => "vfio",
            Work::Command { .. } => "command",
        }
    }

    fn check(&self) -> Result<(), String> {
        let between = |what: &str, value: u64, most: u64| {
            if (1..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{value} {what}; from 1 to {most} may be asked for"))
            }
        };
        let mappings = |n: u32| {
            if n <= MOST_N {
                Ok(())
            } else {
                Err(format!("N = {n}; up to {MOST_N} may be asked for"))
            }
        };
        match self {
            Work::Placement {
                workload,
                n,
                operations,
            } => {
                use Workload::{Aligned, Limits, Tight103, Tight106};
                if matches!(workload, Aligned | Limits | Tight103 | Tight106) {
                    return Err(format!(
                        "{workload} asks for addresses that mmap(2) does not give"
                    ));
                }
                mappings(*n)?;
                if !workload.n_may_be_chosen() && *n != workload.default_n() {
                    let default = workload.default_n();
                    return Err(format!("N = {n}; of {workload} it is {default}"));
                }
                between("operations", *operations, MOST_OPERATIONS)
            }
            Work::Device { n, operations, .. } => {
                mappings(*n)?;
                between("operations", *operations, MOST_OPERATIONS)
            }
            Work::Reuse {
                length, operations, ..
            } => {
                between("operations", *operations, MOST_OPERATIONS)?;
                between("bytes", length.0, Bytes::mib(64).0)
            }
            Work::Roundtrip { requests } => between("requests", *requests, MOST_OPERATIONS),
            Work::Fork {
                children, pages, ..
            } => {
                between("children", *children, MOST_OPERATIONS)?;
                // 400 MiB.
                between("pages", u64::from(*pages).max(1), 100_000)
            }
            Work::Vfio {
                length,
                page_size,
                operations,
            } => {
                between("operations", *operations, MOST_OPERATIONS)?;
                between("bytes", length.0, Bytes::mib(256).0)?;
                if page_size.0.is_power_of_two() && page_size.0 >= 4_096 {
                    Ok(())
                } else {
                    Err(format!(
                        "pages of {page_size}: no power of two from 4 KiB on"
                    ))
                }
            }
            Work::Command { argv, .. } => match argv.first() {
                Some(program) if program.starts_with('/') => Ok(()),
                Some(program) => Err(format!("the program '{program}' is no full path")),
                None => Err("no program".to_owned()),
            },
        }
    }
}

impl Plan {
    /// A plan of these cells, without modules.
    #[must_use]
    pub fn new(cells: Vec<Cell>) -> Plan {
        Plan {
            version: VERSION,
            modules: Vec::new(),
            parameters: Vec::new(),
            symbols: false,
            settle: settle(),
            cells,
        }
    }

    /// Checks the plan.
    ///
    /// # Errors
    /// Another version; a name that is empty, of several lines or there twice; a number out of the range
    /// that a guest may be asked for.
    pub fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            let has = self.version;
            return Err(format!("version {has} of the plan; here it is {VERSION}"));
        }
        let mut names = BTreeSet::new();
        for Cell { name, work } in &self.cells {
            if name.is_empty() || name.chars().any(char::is_control) {
                return Err(format!("the name {name:?} of a cell is no line of text"));
            }
            if !names.insert(name) {
                return Err(format!("two cells are named '{name}'"));
            }
            work.check().map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }

    /// As JSON, for the initramfs. The same plan, the same bytes.
    ///
    /// # Panics
    /// Never: nothing in it can fail to be written.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers")
    }

    /// A plan from its JSON, checked.
    ///
    /// # Errors
    /// JSON that is no plan, and what [`Plan::check`] finds.
    pub fn from_json(text: &[u8]) -> Result<Plan, String> {
        let plan: Plan =
            serde_json::from_slice(text).map_err(|error| format!("no plan: {error}"))?;
        plan.check().map_err(|why| format!("the plan: {why}"))?;
        Ok(plan)
    }

    /// The number of the layout sample on a kernel's command line: the last `stopgap.seed=N`, as the kernel
    /// takes the last of a parameter; `None` where there is none.
    ///
    /// # Errors
    /// Where what stands there is no number.
    pub fn seed(command_line: &str) -> Result<Option<u64>, String> {
        let words = command_line.split_ascii_whitespace().rev();
        let Some(text) = words.filter_map(|word| word.strip_prefix(SEED)).next() else {
            return Ok(None);
        };
        let number = text
            .parse()
            .map_err(|_| format!("{SEED}{text}: no number"))?;
        Ok(Some(number))
    }
}
