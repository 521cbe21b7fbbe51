//! Workloads as `--workloads` names them, and the modules and devices that they need.
//!
//! ```text
//! pbobench            all cells of the suites with that word
//! pbobench:10000      one, beside so many mappings
//! placement:pbobench  the same with the group in front; placement alone: all of the group
//! ```

use stopgap_emulate as emulate;
use stopgap_events::guest::{Cell, Device, Plan, Work, chosen, devices, standard, words};

use crate::args::{Cells, count};

/// Words that stand for several workloads.
const GROUPS: [&str; 3] = ["standard", "placement", "devices"];

/// The cells of one word.
pub(crate) fn parse(text: &str) -> Result<Cells, String> {
    let cells = cells(text)?;
    Plan::new(cells.clone()).check()?;
    Ok(Cells(cells))
}

fn cells(text: &str) -> Result<Vec<Cell>, String> {
    let placement = |cell: &Cell| matches!(cell.work, Work::Placement { .. });
    let all_placement = || standard().into_iter().filter(placement).collect::<Vec<_>>();
    match text {
        "standard" => return Ok(standard()),
        "devices" => return Ok(devices()),
        "placement" => return Ok(all_placement()),
        _ => {}
    }
    let (group, rest) = match text.split_once(':') {
        Some(("placement", rest)) => (Some(all_placement()), rest),
        Some(("devices", rest)) => (Some(devices()), rest),
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

/// All cells that were asked for, each once.
pub(super) fn of(asked: &[Cells]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for cell in asked.iter().flat_map(|cells| &cells.0) {
        if !cells.contains(cell) {
            cells.push(cell.clone());
        }
    }
    cells
}

/// The modules that a kernel needs for these cells, where they are not built in.
pub(super) fn modules(cells: &[Cell]) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells {
        let of: &[&str] = match &cell.work {
            Work::Device { device, .. } => match device {
                Device::Vgem => &["vgem"],
                Device::DmaHeap => &["system_heap"],
                Device::Udmabuf => &["udmabuf"],
            },
            Work::Vfio { .. } => &["vfio_iommu_type1", "vfio_pci"],
            Work::Placement { .. }
            | Work::Roundtrip { .. }
            | Work::Fork { .. }
            | Work::Command { .. } => &[],
        };
        for name in of {
            if !names.contains(name) {
                names.push(name);
            }
        }
    }
    names
}

/// The emulated devices that these cells need.
pub(super) fn emulated(cells: &[Cell]) -> Vec<emulate::machine::Device> {
    use emulate::machine::Device::{Edu, Iommu};
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

    fn names(text: &str) -> Vec<String> {
        let cells = parse(text).unwrap().0;
        cells.into_iter().map(|cell| cell.name).collect()
    }

    #[test]
    fn a_word_is_all_its_cells_and_with_n_one() {
        assert_eq!(names("pbobench").len(), 3);
        assert_eq!(names("pbobench:1234"), ["pbobench N=1234"]);
        assert_eq!(names("placement:pbobench:10k"), ["pbobench N=10000"]);
        assert_eq!(names("placement:pbobench"), names("pbobench"));
        assert_eq!(names("vgem:7"), ["vgem N=7"]);
        assert_eq!(names("fork"), ["fork", "fork-exec"]);
        assert_eq!(names("standard").len(), standard().len());
        let placement = names("placement");
        assert!(
            placement.contains(&"agua N=40000".to_owned()),
            "{placement:?}"
        );
        assert!(!placement.contains(&"fork".to_owned()), "{placement:?}");
        // What a word and its N name is what the suite has under that name.
        assert!(
            parse("pbobench:10000")
                .unwrap()
                .0
                .iter()
                .all(|cell| standard().contains(cell))
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_what_there_is() {
        for wrong in [
            "",
            "pbobenhc",
            "placement:fork",
            "devices:pbobench",
            "a:b:c:d",
            ":",
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(
                error.contains("pbobench, agua") && error.contains("standard"),
                "{wrong}: {error}"
            );
        }
        for (wrong, says) in [
            ("fork:5", "no N"),
            ("freegap-posted:5", "no N"),
            ("pbobench:x", "'x' is no count"),
            ("pbobench:9000000", "N = 9000000"),
            ("pbobench:9g", "N = 9000000000"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn what_was_asked_twice_is_run_once() {
        let asked = ["pbobench", "pbobench:1000", "standard"].map(|text| parse(text).unwrap());
        assert_eq!(of(&asked).len(), standard().len());
    }

    #[test]
    fn devices_bring_their_modules() {
        let cells = of(&[parse("devices").unwrap()]);
        assert!(modules(&cells).contains(&"vgem") && modules(&cells).contains(&"vfio_pci"));
        assert_eq!(emulated(&cells).len(), 2);
        let cells = of(&[parse("standard").unwrap()]);
        assert!(modules(&cells).is_empty() && emulated(&cells).is_empty());
    }
}
