//! What-if: replays of workloads through policies.

use stopgap_events::order::SortRows;
use stopgap_stats::replay::{ChunksRow, PlacementRow, ReclaimRow, Replay, Row};

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape, scale};
use super::stack;
use super::top::Row as Headline;
use super::write::{Section, escaped};
use crate::replay::{add_mail_points, grouped, grows, sentences};
use crate::table::{Table, join, known_or};
use crate::text::{number, thousands};

/// Sentences below the headline.
const MOST_SENTENCES: usize = 4;

/// Policies of a picture.
const MOST_POLICIES: usize = 24;

/// Returns the headline: the first sentence of the screen, and below it the others.
pub(super) fn top(replay: &Replay) -> Headline {
    let mut sentences = match replay.rows.is_empty() {
        true => vec!["The replay has no rows".to_owned()],
        false => sentences(replay),
    }
    .into_iter();
    let first = sentences.next();
    let first = first.unwrap_or_else(|| "One policy, and none to compare it with".to_owned());
    Headline {
        more: join(sentences.take(MOST_SENTENCES), "; "),
        first: "A model says so; nothing was measured.".to_owned(),
        ..Headline::new(None, "what if", &first)
    }
}

/// Returns the section of a replay's record.
pub(super) fn section(id: &str, name: &str, replay: &Replay) -> String {
    let mut section = Section::new(id, &format!("what if, {}: {name}", replay.question));
    if replay.interrupted {
        section.paragraph("The replay was interrupted: rows are missing.");
    }
    let reclaim = replay.reclaim.iter().flat_map(|it| {
        let why = it
            .not_validated
            .as_ref()
            .map(|why| format!("not validated: {why}"));
        [why] // the headline has the advice and the mail
    });
    let growth = replay.growth.iter().map(grows);
    section.list(
        &reclaim.flatten().chain(growth).collect::<Vec<_>>(),
        "evidence",
    );
    let mut charts = placement(replay);
    charts.extend(scanned(replay));
    charts.extend(stacks(replay));
    section.charts(&charts);
    if let Some(fit) = &replay.mail {
        let fitted = format!(
            "{} through {}: the model adds {} us per step and {} ns per visited mapping, both fitted to the mail's figures.",
            fit.workload,
            fit.policy,
            number(fit.floor_us),
            number(fit.visit_ns)
        );
        let mut table = Table::new("N | visits per step | mail 000, us | model, us | off by");
        add_mail_points(fit, &mut table);
        let title = "The model beside mail 000";
        section.fold(
            title,
            &format!("<p>{}</p>{}", escaped(&fitted), table.html(title)),
        );
    }
    section.folded_table("All rows", &table(replay));
    section.finish()
}

/// Returns cost and work by N, a line a policy.
fn placement(replay: &Replay) -> Vec<Chart> {
    let rows: Vec<&PlacementRow> = replay.rows.iter().filter_map(Row::placement).collect();
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let several = rows.iter().any(|row| row.workload != first.workload);
    let mut groups = grouped(rows.iter().map(|row| ((&row.workload, &row.policy), *row)));
    groups.sort_rows_by_key(|(names, _)| *names);
    let more = match groups.len() {
        0..=MOST => String::new(),
        all => format!(" The picture has {MOST} of {all}, the table all."),
    };
    let chart =
        |title: &str, about: &str, y, value: fn(&PlacementRow) -> Option<f64>, bars: bool| {
            let mut layers = Vec::new();
            let mut table = Table::new(&format!("workload | policy | N | {title}"));
            for ((workload, policy), rows) in &groups {
                let of = if several {
                    format!(", {workload}")
                } else {
                    String::new()
                };
                let mut layer = Layer::new(format!("{policy}{of}"), layers.len());
                let mut line = Vec::new();
                for row in rows {
                    let Some(value) = value(row) else { continue };
                    let n = row.n.unwrap_or(row.operations);
                    line.push((n as f64, value));
                    let spread = row.spread.filter(|_| bars);
                    layer
                        .shapes
                        .extend(spread.map(|all| Shape::Upright(n as f64, all.low, all.high)));
                    table.row(&[workload, policy, &thousands(n), &number(value)]);
                }
                line.sort_rows(|a, b| a.0.total_cmp(&b.0));
                layer.marked_line(line);
                layers.push(layer);
            }
            layers.truncate(MOST);
            let x = Axis::new("mappings, N (of a trace: operations)", "", Scale::Log);
            Chart {
                layers,
                table,
                ..Chart::new(title, format!("{about}{more}"), x, y)
            }
        };
    vec![
        chart(
            "Time per operation, by policy",
            "CPU time of a map, an unmap or a protection change, without the driver's own time. A bar spans the repetitions.",
            Axis::new("time per operation", "ns", Scale::Log),
            |row| row.ns_per_operation,
            true,
        ),
        chart(
            "Work per map, by policy",
            "Nodes and mappings that the policy visits and recomputes for a map, plus 1 for the call. These are exact counts.",
            Axis::new("work per map, plus 1", "visits", Scale::Log),
            |row| row.work_per_map.map(|work| work + 1.0),
            false,
        ),
    ]
}

/// Returns how many pages the kernel looks at for each that it frees, a dot a policy.
fn scanned(replay: &Replay) -> Option<Chart> {
    let rows: Vec<&ReclaimRow> = replay.rows.iter().filter_map(Row::reclaim).collect();
    let first = rows.first()?;
    let several = rows.iter().any(|row| row.workload != first.workload);
    let mut layer = Layer::new("", 0);
    let (mut labels, mut figures) = (Vec::new(), Vec::new());
    let mut table = Table::new("policy | scanned per reclaimed | reclaim, ms per GiB");
    for row in rows {
        let release = row.release.as_ref();
        let release = release.map_or_else(String::new, |how| format!(", released by {how}"));
        let of = if several {
            format!(" ({})", row.workload)
        } else {
            String::new()
        };
        let label = format!("{}{release}{of}", row.policy);
        let figure = |value: Option<f64>| known_or("unknown", value.map(number));
        table.row(&[
            &label,
            &figure(row.scanned_per_reclaimed),
            &figure(row.reclaim_ms_per_gib),
        ]);
        let Some(value) = row
            .scanned_per_reclaimed
            .filter(|_| labels.len() < MOST_POLICIES)
        else {
            continue;
        };
        layer
            .shapes
            .push(Shape::Marks(vec![(value, labels.len() as f64)]));
        labels.push(label);
        figures.push(value);
    }
    if labels.is_empty() {
        return None;
    }
    let about = "Modelled, not measured: pages that the kernel looks at for each page that it frees, while a load reads files beside \
                 held buffers. At 1 it frees every page that it looks at.";
    let x = Axis::new(
        "pages scanned",
        "per page reclaimed",
        scale(figures.into_iter()),
    );
    Some(Chart {
        layers: vec![layer],
        table,
        ..Chart::of_rows(
            "Pages scanned per page reclaimed, by policy",
            about,
            x,
            labels,
        )
    })
}

/// Returns IOMMU entries and time of chunks, and switches of round trips, taken apart.
fn stacks(replay: &Replay) -> Vec<Chart> {
    let owned = |(name, amount): (&String, &f64)| (name.clone(), *amount);
    let chunks = || replay.rows.iter().filter_map(Row::chunks);
    let several =
        chunks().any(|row| Some(&row.workload) != chunks().next().map(|row| &row.workload));
    let label = |row: &ChunksRow| match several {
        true => format!("{} ({})", row.policy, row.workload),
        false => row.policy.clone(),
    };
    let entries = chunks().map(|row| (label(row), row.entries.iter().map(owned).collect()));
    let times = chunks().map(|row| (label(row), row.time_by_cause_ms.iter().map(owned).collect()));
    let roundtrips = replay.rows.iter().filter_map(Row::roundtrip);
    let switches = roundtrips.map(|row| {
        let label = format!("{}: {}", row.policy, row.workload);
        (label, row.causes.iter().map(owned).collect())
    });
    let charts = [
        stack::Given {
            title: "IOMMU entries by policy".to_owned(),
            about: "Mean number of entries that map one buffer, by page size. Fewer entries miss the IOMMU's TLB less.",
            axis: ("IOMMU entries", "per buffer"),
            row: "policy",
            rows: entries.collect(),
        },
        stack::Given {
            title: "Time to build a buffer, by cause".to_owned(),
            about: "Modelled, not measured: the model counts what the allocator does and multiplies each count by a stated price. Means.",
            axis: ("time per buffer", "ms"),
            row: "policy",
            rows: times.collect(),
        },
        stack::Given {
            title: "Context switches per request, by cause".to_owned(),
            about: "Modelled, not measured: switch-outs of client and server from a flush to its last reply.",
            axis: ("context switches", "per request"),
            row: "policy and cell",
            rows: switches.collect(),
        },
    ];
    stack::charts(charts)
}

/// Returns every row.
fn table(replay: &Replay) -> Table {
    let figure = |value: Option<f64>| known_or("unknown", value.map(number));
    let factor = |factor: Option<f64>| known_or("", factor.map(number));
    let measured = |value: Option<f64>| known_or("not measured", value.map(number));
    let mut table = match replay.rows.first() {
        Some(Row::Reclaim(_)) => Table::new(
            "load | policy | release | scanned per reclaimed | reclaim, ms per GiB | 2 MiB, mean, us | longest unpre-empted, us | \
             measured, median | model over measured",
        ),
        Some(Row::Chunks(_)) => Table::new(
            "workload | policy | buffers | tries per buffer | failed tries per buffer | ms per buffer | TLB misses per access | \
             bystanders failed",
        ),
        Some(Row::Roundtrip(_)) => Table::new(
            "cell | policy | round trips | switches per request | measured, median | model over measured",
        ),
        Some(Row::Placement(_)) | None => Table::new(
            "workload | policy | N | operations | ns per operation | work per map | span per live byte | failures | stopped, or lacks",
        ),
    };
    for row in &replay.rows {
        match row {
            Row::Placement(row) => table.row(&[
                &row.workload,
                &row.policy,
                &known_or("", row.n.map(thousands)),
                &thousands(row.operations),
                &figure(row.ns_per_operation),
                &figure(row.work_per_map),
                &figure(row.span_over_live),
                &thousands(row.failures),
                &known_or("", row.stopped.as_ref().or(row.lacks.as_ref())),
            ]),
            Row::Chunks(row) => {
                let [failed, all] = [row.bystander_failures, row.bystander_tries].map(thousands);
                table.row(&[
                    &row.workload,
                    &row.policy,
                    &thousands(row.operations),
                    &number(row.tries_per_buffer),
                    &number(row.failed_tries_per_buffer),
                    &figure(row.time_ms),
                    &figure(row.tlb_misses_per_access),
                    &format!("{failed} of {all}"),
                ]);
            }
            Row::Roundtrip(row) => {
                let beside = row.measured.as_ref();
                table.row(&[
                    &row.workload,
                    &row.policy,
                    &thousands(row.operations),
                    &figure(row.switches_per_request),
                    &measured(beside.map(|beside| beside.switches)),
                    &factor(beside.and_then(|beside| beside.factor)),
                ]);
            }
            Row::Reclaim(row) => {
                let beside = row.measured.as_ref();
                table.row(&[
                    &row.workload,
                    &row.policy,
                    &known_or("", row.release.as_ref()),
                    &figure(row.scanned_per_reclaimed),
                    &figure(row.reclaim_ms_per_gib),
                    &known_or(
                        "",
                        row.allocation.as_ref().map(|times| number(times.mean_us)),
                    ),
                    &number(row.longest_unpreempted_us),
                    &measured(beside.map(|beside| beside.scanned_per_reclaimed)),
                    &factor(beside.and_then(|beside| beside.factor)),
                ]);
            }
        }
    }
    table
}
