//! What-if: replays of workloads through policies.

use stopgap_events::question::Question;
use stopgap_stats::replay::{ChunksRow, PlacementRow, Quantity, Replay, RoundtripRow};

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape};
use super::stack;
use super::write::{Table, escaped, list};
use crate::text::{number, thousands};

/// The section of a replay's record.
pub(super) fn section(id: &str, name: &str, replay: &Replay) -> String {
    let mut html = format!(
        "<section id=\"{id}\"><h2>what if, {}: {}</h2>\n",
        replay.question,
        escaped(name)
    );
    if replay.interrupted {
        html.push_str("<p>Interrupted: less was carried out than was planned.</p>");
    }
    let growth: Vec<String> = replay
        .growth
        .iter()
        .map(|growth| {
            let quantity = match growth.quantity {
                Quantity::WorkPerMap => "work a map",
                Quantity::Time => "time",
            };
            format!(
                "{}, {}, {quantity}: {}",
                growth.workload, growth.policy, growth.text
            )
        })
        .collect();
    let reclaim = replay.reclaim.iter();
    let told: Vec<String> = reclaim
        .flat_map(|it| {
            let why = it.not_validated.as_ref();
            let why = why.map(|why| format!("not validated: {why}"));
            [it.mail.clone(), it.advice.clone(), why]
        })
        .flatten()
        .chain(growth)
        .collect();
    html.push_str(&list(&told, "evidence"));
    let charts = match replay.question {
        Question::Placement => placement(replay),
        Question::Chunks => chunks(replay),
        Question::Roundtrip => roundtrip(replay),
        Question::Reclaim | Question::Wakeup => Vec::new(),
    };
    html.push_str("<div class=\"charts\">");
    html.extend(charts.iter().map(Chart::html));
    html.push_str("</div>\n");
    if let Some(mail) = &replay.mail {
        html.push_str(&beside_mail(mail));
    }
    html.push_str(&table(replay));
    html.push_str("</section>\n");
    html
}

fn beside_mail(mail: &stopgap_stats::replay::MailFit) -> String {
    let mut table = Table::new(&["N", "visits a step", "mail 000, us", "model, us", "off by"]);
    for point in &mail.points {
        table.rows.push(vec![
            thousands(point.n),
            number(point.visits_per_step),
            number(point.mail_us),
            number(point.model_us),
            format!("{:+.0} %", point.deviation * 100.0),
        ]);
    }
    let words = format!(
        "{} through {}: a floor of {} us a step and {} ns a visit, both fitted to the mail's figures.",
        mail.workload,
        mail.policy,
        number(mail.floor_us),
        number(mail.visit_ns)
    );
    format!(
        "<div class=\"mails\"><h3>The model beside mail 000</h3><p>{}</p>{}</div>\n",
        escaped(&words),
        table.html("The model beside mail 000")
    )
}

/// Cost and work by N, a line a policy.
fn placement(replay: &Replay) -> Vec<Chart> {
    let rows: Vec<&PlacementRow> = replay
        .rows
        .iter()
        .filter_map(|row| row.placement())
        .collect();
    let mut names: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row.workload.as_str(), row.policy.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    let several = names.iter().any(|(workload, _)| *workload != names[0].0);
    let quantity = |title: &str,
                    about: &str,
                    axis: Axis,
                    of: &dyn Fn(&PlacementRow) -> Option<f64>,
                    bars: bool| {
        let mut layers = Vec::new();
        let mut table = Table::new(&["workload", "policy", "N", title]);
        for (ink, (workload, policy)) in names.iter().enumerate() {
            let name = if several {
                format!("{policy}, {workload}")
            } else {
                (*policy).to_owned()
            };
            let mut layer = Layer::new(name, ink);
            let mut line = Vec::new();
            for row in rows
                .iter()
                .filter(|row| row.workload == *workload && row.policy == *policy)
            {
                let Some(value) = of(row) else { continue };
                let n = row.n.unwrap_or(row.operations);
                line.push((n as f64, value));
                if let (true, Some(spread)) = (bars, row.spread) {
                    layer
                        .shapes
                        .push(Shape::Upright(n as f64, spread.low, spread.high));
                }
                table.rows.push(vec![
                    (*workload).to_owned(),
                    (*policy).to_owned(),
                    thousands(n),
                    number(value),
                ]);
            }
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
            layer.shapes.push(Shape::Line(line.clone()));
            layer.shapes.push(Shape::Marks(line));
            if ink < MOST {
                layers.push(layer);
            }
        }
        let mut about = about.to_owned();
        if names.len() > MOST {
            about.push_str(&format!(
                " The first {MOST} of {}; the table has all.",
                names.len()
            ));
        }
        Chart {
            title: title.to_owned(),
            about,
            x: Axis::new("mappings, N (of a trace: operations)", "", Scale::Log),
            y: axis,
            rows: Vec::new(),
            layers,
            rule: None,
            table,
            spans: None,
        }
    };
    vec![
        quantity(
            "Time an operation, by policy",
            "CPU time of a map, unmap or protection, the driver's taken off; bars from the least to the greatest repetition.",
            Axis::new("time an operation", "ns", Scale::Log),
            &|row| row.ns_per_operation,
            true,
        ),
        quantity(
            "Work a map, by policy",
            "What was looked at and recomputed for a map, the call itself counted as one; exact counts.",
            Axis::new("work a map, plus 1", "units", Scale::Log),
            &|row| row.work_per_map.map(|work| work + 1.0),
            false,
        ),
    ]
}

/// IOMMU entries and time by policy.
fn chunks(replay: &Replay) -> Vec<Chart> {
    let rows: Vec<&ChunksRow> = replay.rows.iter().filter_map(|row| row.chunks()).collect();
    let label = |row: &&ChunksRow| format!("{} ({})", row.policy, row.workload);
    let entries: Vec<stack::Row> = rows
        .iter()
        .map(|row| {
            (
                label(row),
                row.entries
                    .iter()
                    .map(|(size, count)| (size.clone(), *count))
                    .collect(),
            )
        })
        .collect();
    let times: Vec<stack::Row> = rows
        .iter()
        .map(|row| {
            let parts = row.time_by_cause_ms.iter();
            (
                label(row),
                parts.map(|(cause, ms)| (cause.clone(), *ms)).collect(),
            )
        })
        .collect();
    let entries_words = stack::Words {
        title: "IOMMU entries by policy",
        about: "Entries that map one buffer, by page size; means. Fewer miss the IOMMU's TLB less.",
        axis: "entries a buffer",
        unit: "entries",
        row: "a row a policy",
    };
    let times_words = stack::Words {
        title: "Time to build a buffer, by cause",
        about: "Modelled, not measured: counts of what the allocator did, each at a stated price; means.",
        axis: "time a buffer",
        unit: "ms",
        row: "a row a policy",
    };
    [
        stack::chart(&entries_words, &entries),
        stack::chart(&times_words, &times),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Switches a request by cause.
fn roundtrip(replay: &Replay) -> Vec<Chart> {
    let rows = replay.rows.iter().filter_map(|row| row.roundtrip());
    let stacked: Vec<stack::Row> = rows
        .map(|row: &RoundtripRow| {
            let parts = row
                .causes
                .iter()
                .map(|(cause, count)| (cause.clone(), *count));
            (format!("{}: {}", row.policy, row.workload), parts.collect())
        })
        .collect();
    let words = stack::Words {
        title: "Switches a request, by cause",
        about: "Modelled switch-outs of client and server from a flush to its last reply.",
        axis: "switch-outs",
        unit: "switches/request",
        row: "a row a policy and a cell",
    };
    stack::chart(&words, &stacked).into_iter().collect()
}

/// Every row.
fn table(replay: &Replay) -> String {
    let optional = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), number);
    let mut table = match replay.question {
        Question::Reclaim => Table::new(&[
            "load",
            "policy",
            "release",
            "scanned/reclaimed",
            "reclaim, ms a GiB",
            "2 MiB, mean, us",
            "longest unpre-empted, us",
            "measured, median",
            "model over measured",
        ]),
        Question::Placement | Question::Wakeup => Table::new(&[
            "workload",
            "policy",
            "N",
            "operations",
            "ns an operation",
            "work a map",
            "span/live",
            "failures",
            "stopped, or lacks",
        ]),
        Question::Chunks => Table::new(&[
            "workload",
            "policy",
            "buffers",
            "tries a buffer",
            "failed tries a buffer",
            "ms a buffer",
            "TLB misses an access",
            "bystanders failed",
        ]),
        Question::Roundtrip => Table::new(&[
            "cell",
            "policy",
            "round trips",
            "switches a request",
            "measured, median",
            "model over measured",
        ]),
    };
    for row in &replay.rows {
        let cells = if let Some(row) = row.placement() {
            let why = row.stopped.clone().or_else(|| row.lacks.clone());
            vec![
                row.workload.clone(),
                row.policy.clone(),
                row.n.map_or_else(String::new, thousands),
                thousands(row.operations),
                optional(row.ns_per_operation),
                optional(row.work_per_map),
                optional(row.span_over_live),
                thousands(row.failures),
                why.unwrap_or_default(),
            ]
        } else if let Some(row) = row.chunks() {
            vec![
                row.workload.clone(),
                row.policy.clone(),
                thousands(row.operations),
                number(row.tries_per_buffer),
                number(row.failed_tries_per_buffer),
                optional(row.time_ms),
                optional(row.tlb_misses_per_access),
                format!(
                    "{} of {}",
                    thousands(row.bystander_failures),
                    thousands(row.bystander_tries)
                ),
            ]
        } else if let Some(row) = row.roundtrip() {
            let measured = row.measured.as_ref();
            vec![
                row.workload.clone(),
                row.policy.clone(),
                thousands(row.operations),
                optional(row.switches_per_request),
                measured.map_or_else(
                    || "not measured".to_owned(),
                    |beside| number(beside.switches),
                ),
                measured
                    .and_then(|beside| beside.factor)
                    .map_or_else(String::new, number),
            ]
        } else if let Some(row) = row.reclaim() {
            let measured = row.measured.as_ref();
            vec![
                row.workload.clone(),
                row.policy.clone(),
                row.release.clone().unwrap_or_default(),
                optional(row.scanned_per_reclaimed),
                optional(row.reclaim_ms_per_gib),
                row.allocation
                    .as_ref()
                    .map_or_else(String::new, |times| number(times.mean_us)),
                number(row.longest_unpreempted_us),
                measured.map_or_else(
                    || "not measured".to_owned(),
                    |beside| number(beside.scanned_per_reclaimed),
                ),
                measured
                    .and_then(|beside| beside.factor)
                    .map_or_else(String::new, number),
            ]
        } else {
            continue;
        };
        table.rows.push(cells);
    }
    format!(
        "<details><summary>All rows</summary>{}</details>\n",
        table.html("All rows of the replay")
    )
}
