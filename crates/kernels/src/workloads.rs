//! Workloads as `--workloads` names them, and the modules and devices that they need.
//!
//! ```text
//! pbobench            all cells of the suites with that word
//! pbobench:10000      one, beside so many mappings
//! placement:pbobench  the same with the group in front; placement alone: all of the group
//! ```

use stopgap_guest::protocol::{Cell, Device, Plan, Work, chosen, devices, standard, words};

use crate::machine;

/// Words that stand for several workloads.
const GROUPS: [&str; 3] = ["standard", "placement", "devices"];

/// How a count is read from a flag.
type Count = fn(&str) -> Result<u64, String>;

/// Returns the cells that one word of `--workloads` names; `count` reads its N.
///
/// # Errors
/// A word that names none, with all that there are; an N that is none, or more than a guest may be asked for.
pub fn parse(text: &str, count: Count) -> Result<Vec<Cell>, String> {
    let cells = cells(text, count)?;
    Plan::new(cells.clone()).check()?;
    Ok(cells)
}

fn cells(text: &str, count: Count) -> Result<Vec<Cell>, String> {
    let placement = |cell: &Cell| matches!(cell.work, Work::Placement { .. });
    let group = |name: &str| match name {
        "standard" => Some(standard()),
        "placement" => Some(standard().into_iter().filter(placement).collect()),
        "devices" => Some(devices()),
        _ => None,
    };
    if let Some(cells) = group(text) {
        return Ok(cells);
    }
    let (group, rest): (Option<Vec<Cell>>, _) = match text.split_once(':') {
        Some((name @ ("placement" | "devices"), rest)) => (group(name), rest),
        _ => (None, text),
    };
    let (word, n) = match rest.split_once(':') {
        Some((word, n)) => (word, Some(n)),
        None => (rest, None),
    };
    let unknown = || {
        format!(
            "unknown workload '{text}'; there are {}, and for several of them {}",
            words().join(", "),
            GROUPS.join(", ")
        )
    };
    let cells = chosen(&[word]).map_err(|_| unknown())?;
    if group.is_some_and(|group| cells.iter().any(|cell| !group.contains(cell))) {
        return Err(unknown());
    }
    let Some(n) = n else { return Ok(cells) };
    let n = count(n)?;
    let n =
        u32::try_from(n).map_err(|_| format!("'{text}': N = {n} is more than any guest has"))?;
    let mut cell = cells.into_iter().next().ok_or_else(unknown)?;
    match &mut cell.work {
        Work::Placement {
            workload, n: of, ..
        } if workload.n_may_be_chosen() => *of = n,
        Work::Device { n: of, .. } => *of = n,
        _ => return Err(format!("'{text}': {word} has no N that may be chosen")),
    }
    cell.name = format!("{} N={n}", cell.work.word());
    Ok(vec![cell])
}

/// A driver: its module, and the option of the configuration that has it as a module or in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Driver {
    pub(crate) module: &'static str,
    pub(crate) option: &'static str,
}

const fn driver(module: &'static str, option: &'static str) -> Driver {
    Driver { module, option }
}

/// The drivers that a cell needs.
pub(crate) fn drivers(cell: &Cell) -> &'static [Driver] {
    const VGEM: [Driver; 1] = [driver("vgem", "CONFIG_DRM_VGEM")];
    const HEAP: [Driver; 1] = [driver("system_heap", "CONFIG_DMABUF_HEAPS_SYSTEM")];
    const UDMABUF: [Driver; 1] = [driver("udmabuf", "CONFIG_UDMABUF")];
    const VFIO: [Driver; 2] = [
        driver("vfio_iommu_type1", "CONFIG_VFIO_IOMMU_TYPE1"),
        driver("vfio_pci", "CONFIG_VFIO_PCI"),
    ];
    match &cell.work {
        Work::Device { device, .. } | Work::Reuse { device, .. } => match device {
            Device::Vgem => &VGEM,
            Device::DmaHeap => &HEAP,
            Device::Udmabuf => &UDMABUF,
        },
        Work::Vfio { .. } => &VFIO,
        Work::Placement { .. }
        | Work::Roundtrip { .. }
        | Work::Fork { .. }
        | Work::Command { .. } => &[],
    }
}

/// The modules that a kernel needs for these cells, where they are not built in.
pub(crate) fn modules(cells: &[Cell]) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for driver in cells.iter().flat_map(drivers) {
        if !names.contains(&driver.module) {
            names.push(driver.module);
        }
    }
    names
}

impl Driver {
    /// Why a kernel without this module has no such driver; `None` where it is built in. `option` is the kernel's own
    /// value of [`Driver::option`]. Its list of what is built in is not asked: it names only what could have been a
    /// module, which `udmabuf` could not.
    pub(crate) fn why_absent(self, option: Option<&str>) -> Option<String> {
        let name = self.option;
        match option {
            Some("y") => None,
            Some("m") => Some(format!(
                "{name}=m, and no such module came with the kernel: give its Debian package, or build it in"
            )),
            Some(_) => Some(format!(
                "the kernel was built without it ({name} is not set)"
            )),
            None => Some(format!(
                "no such module came with the kernel, and without its configuration nobody knows whether {name}=y"
            )),
        }
    }
}

/// The emulated devices that these cells need.
pub(crate) fn emulated(cells: &[Cell]) -> Vec<machine::Device> {
    use machine::Device::{Edu, Iommu};
    let dma = |cell: &Cell| matches!(cell.work, Work::Vfio { .. });
    if cells.iter().any(dma) {
        vec![Iommu, Edu]
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Cell>, String> {
        super::parse(text, |text| {
            let thousands = text.strip_suffix('k');
            let count: Result<u64, _> = thousands.unwrap_or(text).parse();
            let factor = thousands.map_or(1, |_| 1_000);
            count
                .map(|count| count * factor)
                .map_err(|_| format!("'{text}' is no count"))
        })
    }

    fn names(text: &str) -> Vec<String> {
        let cells = parse(text).unwrap();
        cells.into_iter().map(|cell| cell.name).collect()
    }

    #[test]
    fn a_word_is_all_its_cells_and_with_n_one() {
        assert_eq!(names("pbobench").len(), 3);
        for (text, name) in [
            ("pbobench:1234", "pbobench N=1234"),
            ("placement:pbobench:10k", "pbobench N=10000"),
            ("vgem:7", "vgem N=7"),
        ] {
            assert_eq!(names(text), [name]);
        }
        assert_eq!(names("placement:pbobench"), names("pbobench"));
        assert_eq!(names("fork"), ["fork", "fork-exec"]);
        assert_eq!(parse("standard"), Ok(standard()));
        let placement = names("placement");
        let has = |name: &str| placement.iter().any(|of| of == name);
        assert!(has("agua N=40000") && !has("fork"), "{placement:?}");
        // A word and its N name the suite's own cell.
        let own = parse("pbobench:10000").unwrap();
        assert!(own.iter().all(|cell| standard().contains(cell)));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_there_is() {
        let unknown = "pbobench, agua";
        for (wrong, says) in [
            ("", unknown),
            ("pbobenhc", unknown),
            ("placement:fork", unknown),
            ("devices:pbobench", unknown),
            ("a:b:c:d", unknown),
            (":", "for several of them standard, "),
            ("fork:5", "no N"),
            ("freegap-posted:5", "no N"),
            ("pbobench:x", "'x' is no count"),
            ("pbobench:9000000", "N = 9000000"),
            ("pbobench:9000000k", "N = 9000000000"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn built_in_is_not_missing() {
        let why = |option| driver("udmabuf", "CONFIG_UDMABUF").why_absent(option);
        assert_eq!(why(Some("y")), None);
        for (option, says) in [
            (Some("m"), "CONFIG_UDMABUF=m, and no such module came"),
            (Some("n"), "CONFIG_UDMABUF is not set"),
            (None, "without its configuration"),
        ] {
            assert!(why(option).unwrap().contains(says), "{option:?}");
        }
    }

    #[test]
    fn devices_bring_their_modules() {
        let cells = devices();
        assert!(modules(&cells).contains(&"vgem") && modules(&cells).contains(&"vfio_pci"));
        assert_eq!(emulated(&cells).len(), 2);
        let cells = standard();
        assert!(modules(&cells).is_empty() && emulated(&cells).is_empty());
    }
}
