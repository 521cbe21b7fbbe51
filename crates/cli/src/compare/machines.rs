//! In what the machines of two sides differ, as their records say.

use std::collections::BTreeSet;

use serde_json::Value;
use stopgap_events::machine::Environment;
use stopgap_stats::compare::{Comparison, Difference};

/// What makes it another machine. A kernel or a setting is what people compare.
const MACHINE: [&str; 6] = [
    "host",
    "architecture",
    "cpu",
    "cpus",
    "memory",
    "hypervisor",
];

/// What differs from run to run of one machine, or is no property of it.
const PASSING: [&str; 6] = [
    "memory_available",
    "uptime_s",
    "boot_id",
    "pressure_before",
    "pressure_after",
    "missing",
];

/// Adds to the comparison in what the sides' machines differ; that they are different machines leads its warnings.
pub(super) fn differ(comparison: &mut Comparison, machines: &[Vec<Environment>; 2]) {
    let [before, after] = machines;
    if before.is_empty() || after.is_empty() {
        return;
    }
    let differences = differences(before, after);
    let other: Vec<String> = differences
        .iter()
        .filter(|of| MACHINE.contains(&&*of.what))
        .map(|of| format!("{} {} and {}", of.what, of.before, of.after))
        .collect();
    if !other.is_empty() {
        let warning = format!(
            "the sides were measured on different machines, which may be all the difference there is: {}",
            other.join("; ")
        );
        comparison.warnings.insert(0, warning);
    }
    comparison.environment = differences;
}

fn differences(before: &[Environment], after: &[Environment]) -> Vec<Difference> {
    let fields = |of: &[Environment]| -> Vec<serde_json::Map<String, Value>> {
        let values = of.iter().map(serde_json::to_value);
        values
            .filter_map(|value| match value {
                Ok(Value::Object(fields)) => Some(fields),
                _ => None,
            })
            .collect()
    };
    let sides = [fields(before), fields(after)];
    let names: BTreeSet<&String> = sides.iter().flatten().flat_map(|one| one.keys()).collect();
    let mut differences = Vec::new();
    for name in names {
        if PASSING.contains(&&**name) {
            continue;
        }
        let [before, after] = [&sides[0], &sides[1]].map(|side| said(side, name));
        if before != after {
            differences.push(Difference {
                what: name.clone(),
                before,
                after,
            });
        }
    }
    differences
}

/// All that the records of a side say of a property.
fn said(side: &[serde_json::Map<String, Value>], name: &str) -> String {
    let each: BTreeSet<String> = side
        .iter()
        .map(|fields| match fields.get(name) {
            None | Some(Value::Null) => "unknown".to_owned(),
            Some(Value::String(word)) => word.clone(),
            Some(Value::Array(items)) => {
                let items = items.iter().map(|item| {
                    item.as_str()
                        .map_or_else(|| item.to_string(), str::to_owned)
                });
                items.collect::<Vec<_>>().join(",")
            }
            Some(value) => value.to_string(),
        })
        .collect();
    each.into_iter().collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use stopgap_stats::compare::{Options, Side, compare};

    fn machine(with: &[(&str, Value)]) -> Environment {
        let mut fields = json!({
            "host": "box", "kernel": "6.1", "cpu": "x", "uptime_s": 7, "boot_id": "a", "memory": 1024,
            "page_size": 4096, "cpus": [0, 1], "mitigations": [], "privilege": "none",
            "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
        });
        for (name, value) in with {
            fields[*name] = value.clone();
        }
        serde_json::from_value(fields).unwrap()
    }

    fn compared(before: Environment, after: &[Environment]) -> Comparison {
        let mut comparison = compare(&Side::default(), &Side::default(), &Options::default());
        comparison.warnings.push("another".to_owned());
        differ(&mut comparison, &[vec![before], after.to_vec()]);
        comparison
    }

    #[test]
    fn another_kernel_is_told_and_another_machine_is_warned_of() {
        let same = compared(
            machine(&[]),
            &[machine(&[("boot_id", json!("b")), ("uptime_s", json!(9))])],
        );
        assert!(same.environment.is_empty());
        assert_eq!(same.warnings, ["another"]);

        let kernel = compared(machine(&[]), &[machine(&[("kernel", json!("6.12"))])]);
        let told = &kernel.environment[0];
        assert_eq!(
            (&*told.what, &*told.before, &*told.after),
            ("kernel", "6.1", "6.12")
        );
        assert_eq!(kernel.warnings, ["another"]);

        let other = [
            machine(&[("cpu", json!("y")), ("cpus", json!([0]))]),
            machine(&[("cpu", Value::Null)]),
        ];
        let other = compared(machine(&[]), &other);
        assert_eq!(other.warnings.len(), 2);
        assert!(
            other.warnings[0].ends_with("there is: cpu x and unknown or y; cpus 0,1 and 0 or 0,1"),
            "{}",
            other.warnings[0]
        );
        assert_eq!(compared(machine(&[]), &[]).environment, []);
    }
}
