//! In what the machines of two sides differ, as their records say.

use std::collections::BTreeSet;

use serde_json::Value;
use stopgap_events::machine::Environment;
use stopgap_events::order::Inserted as _;
use stopgap_stats::compare::Difference;

/// Fields that differ from run to run of one machine, or are no property of it.
const PASSING: [&str; 7] = [
    "memory_available",
    "uptime_s",
    "boot_id",
    "pressure_before",
    "pressure_after",
    "conditions",
    "missing",
];

/// In what the machines of two sides differ: nothing where one side's are not known.
pub(super) fn differences(before: &[Environment], after: &[Environment]) -> Vec<Difference> {
    if before.is_empty() || after.is_empty() {
        return Vec::new();
    }
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
    let names: BTreeSet<&String> = sides.iter().flatten().flat_map(|one| one.keys()).inserted();
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
        .inserted();
    each.into_iter().collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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

    fn told(after: &[Environment]) -> Vec<String> {
        let differences = differences(&[machine(&[])], after);
        let told = differences.iter();
        told.map(|of| format!("{} {} -> {}", of.what, of.before, of.after))
            .collect()
    }

    #[test]
    fn what_differs_is_told_and_what_passes_is_not() {
        assert!(told(&[machine(&[("boot_id", json!("b")), ("uptime_s", json!(9))])]).is_empty());
        assert_eq!(
            told(&[machine(&[("kernel", json!("6.12"))])]),
            ["kernel 6.1 -> 6.12"]
        );
        let other = [
            machine(&[("cpu", json!("y")), ("cpus", json!([0]))]),
            machine(&[("cpu", Value::Null)]),
        ];
        assert_eq!(
            told(&other),
            ["cpu x -> unknown or y", "cpus 0,1 -> 0 or 0,1"]
        );
        assert!(told(&[]).is_empty());
    }
}
