//! `stopgap-bench model-live`: every cell that a probe measures and a model predicts, as a table.
//!
//! A round is a probe of each question and the replay beside its record, on the machine as it is then. No price of a model
//! comes from the figure that it is judged by: of `roundtrip` they are of calls and of one cell, of `reclaim` they are the
//! model's own, of `chunks` those that the other strategies' buffers show.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;
use stopgap_cli::{Failure, print, progress_bar};
use stopgap_events::units::Bytes;
use stopgap_kernel::signals;
use stopgap_report::table::{join, known_or};
use stopgap_report::text::number;
use stopgap_stats::record::{Run, Series};

use crate::common::{Stopgap, failed, middle, verdict};

/// A model is right about a cell where it is within this share of what was measured.
const NEAR: f64 = 1.25;
/// The least share of cells that it has to be right about.
const MOST: f64 = 0.8;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Rounds: five take 40 minutes on a quiet machine.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Only these questions.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ["roundtrip", "reclaim", "chunks"])]
    only: Vec<String>,
    /// The page to write [default: print the table alone].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keeps the records here, and goes on from those that are here.
    #[arg(long, value_name = "DIR")]
    keep: PathBuf,
    #[command(flatten)]
    stopgap: Stopgap,
}

/// Lists what is measured and modelled: `model_live/questions.json`.
#[derive(Deserialize)]
struct Questions {
    questions: Vec<Question>,
    because: Vec<Because>,
}

/// A question, how it is measured, and how it is modelled; the chunks' probe models by itself.
#[derive(Deserialize)]
struct Question {
    name: String,
    probe: String,
    replay: Option<String>,
}

/// Why a cell is off, by the beginning of its name.
#[derive(Deserialize)]
struct Because {
    begin: String,
    because: String,
}

static QUESTIONS: LazyLock<Questions> = LazyLock::new(|| {
    let text = include_str!("model_live/questions.json");
    serde_json::from_str(text).expect("the questions are whole: a test reads them")
});

/// The figures of a cell in one round: modelled and measured.
type Pair = (f64, f64);

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let program = flags.stopgap.program()?;
    fs::create_dir_all(&flags.keep).map_err(failed(flags.keep.display()))?;
    let keep = fs::canonicalize(&flags.keep).map_err(failed(flags.keep.display()))?;
    let mut cells: BTreeMap<String, Vec<Pair>> = BTreeMap::new();
    let mut work = BTreeMap::new();
    let bar = progress_bar();
    for round in 1..=flags.rounds {
        for question in &QUESTIONS.questions {
            let name = &question.name;
            if !flags.only.is_empty() && !flags.only.iter().any(|only| only == name) {
                continue;
            }
            // Its runs lie within one probe.
            if question.replay.is_none() && round > 1 {
                continue;
            }
            bar.set_position(u64::from(round - 1) * 1_000 / u64::from(flags.rounds));
            bar.set_message(format!("round {round} of {}: {name}", flags.rounds));
            let record = keep.join(format!("{name}-{round}.json"));
            recorded(&program, &keep, &question.probe, &record)?;
            let seen = match &question.replay {
                Some(words) => {
                    let words = format!("{words} --beside {}", record.display());
                    let replayed = keep.join(format!("{name}-{round}-model.json"));
                    recorded(&program, &keep, &words, &replayed)?;
                    replayed_cells(name, &read(&replayed)?)
                }
                None => {
                    let text = fs::read_to_string(&record).map_err(failed(record.display()))?;
                    let run = Run::from_json(&text).map_err(failed(record.display()))?;
                    let (cells, counted) = chunks_cells(&run.answers[0].series);
                    work.extend(counted);
                    cells
                }
            };
            for (cell, pair) in seen {
                cells.entry(cell).or_default().push(pair);
            }
        }
    }
    bar.finish_and_clear();
    if cells.is_empty() {
        return Err(Failure::error("no cell was both measured and modelled"));
    }
    let (table, near) = table(&cells, &work);
    let enough = near as f64 >= MOST * cells.len() as f64;
    match &flags.output {
        Some(path) => {
            fs::write(path, page(&table, flags.rounds)).map_err(failed(path.display()))?;
        }
        None => print(&table)?,
    }
    Ok(verdict(enough))
}

/// Runs a command of `stopgap`, unless its record is there.
fn recorded(program: &Path, folder: &Path, words: &str, record: &Path) -> Result<(), Failure> {
    if record.exists() {
        return Ok(());
    }
    let output = Command::new(program)
        .args(words.split_whitespace())
        .arg("--json")
        .current_dir(folder)
        .env("XDG_STATE_HOME", folder)
        .stdin(Stdio::null())
        .output()
        .map_err(failed(program.display()))?;
    if signals::interrupted() {
        return Err(Failure::error("interrupted"));
    }
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::error(format!(
            "`stopgap {words}`: {}, {}",
            output.status,
            told.trim()
        )));
    }
    fs::write(record, output.stdout).map_err(failed(record.display()))
}

fn read(path: &Path) -> Result<Value, Failure> {
    let text = fs::read(path).map_err(failed(path.display()))?;
    serde_json::from_slice(&text).map_err(failed(path.display()))
}

/// The cells of a replay that stood beside a record.
fn replayed_cells(question: &str, replay: &Value) -> Vec<(String, Pair)> {
    let rows = replay["rows"].as_array().into_iter().flatten();
    let cells = rows.filter_map(|row| {
        let word = |name: &str| row[name].as_str().unwrap_or("");
        let (cell, modelled, measured) = match question {
            "roundtrip" => (
                word("workload").to_owned(),
                "switches_per_request",
                "switches",
            ),
            _ => {
                let pinned = known_or("", row["parameters"]["pinned"].as_u64().map(Bytes));
                let cell = format!("{} {pinned}", word("policy"));
                (cell, "scanned_per_reclaimed", "scanned_per_reclaimed")
            }
        };
        let pair = (row[modelled].as_f64()?, row["measured"][measured].as_f64()?);
        Some((format!("{question}: {cell}"), pair))
    });
    cells.collect()
}

/// The strategies of a probe of `chunks` that it modelled on its snapshot, a pair a run: milliseconds a buffer; and what
/// compaction did for them, in words.
fn chunks_cells(series: &[Series]) -> (Vec<(String, Pair)>, BTreeMap<String, String>) {
    let (mut cells, mut work) = (Vec::new(), BTreeMap::new());
    for by_model in series
        .iter()
        .filter(|series| series.name == "take by the model")
    {
        let same = |name: &str| {
            let same = |other: &&Series| {
                let word = |key| other.word(key) == by_model.word(key);
                other.name == name && word("size") && word("strategy")
            };
            series.iter().find(same)
        };
        let (Some(takes), Some(modelled)) = (same("take"), by_model.median()) else {
            continue;
        };
        let [size, strategy] = ["size", "strategy"].map(|key| by_model.word(key).unwrap_or(""));
        let cell = format!("chunks: {size} by {strategy}, ms");
        let pair = |measured: f64| (cell.clone(), (modelled / 1e6, measured / 1e6));
        cells.extend(takes.values().into_iter().map(pair));
        let counts = [("scanned", "scanned by compaction"), ("moved", "moved")];
        let counts = counts.into_iter().filter_map(|(word, name)| {
            let (least, most) = same(name)?.range().filter(|(_, most)| *most > 0.0)?;
            let modelled = same(&format!("{name}, by the model"))?.median()?;
            let [least, most, modelled] = [least, most, modelled].map(number);
            Some(format!(
                "{word} {least} to {most} pages, modelled {modelled}"
            ))
        });
        work.insert(cell.clone(), join(counts, "; "));
    }
    (cells, work)
}

/// The table, and how many of its cells are near.
fn table(cells: &BTreeMap<String, Vec<Pair>>, work: &BTreeMap<String, String>) -> (String, usize) {
    let mut text = String::from(
        "| cell | modelled | measured (least..most) | modelled/measured | of each round | |\n|---|---|---|---|---|---|\n",
    );
    let mut near = 0;
    for (cell, pairs) in cells {
        let measured = pairs.iter().map(|pair| pair.1);
        let least = measured.clone().fold(f64::INFINITY, f64::min);
        let most = measured.clone().fold(0.0, f64::max);
        let (modelled, measured) = (middle(pairs.iter().map(|pair| pair.0)), middle(measured));
        let ratio = modelled / measured;
        let is_near = (1.0 / NEAR..=NEAR).contains(&ratio);
        near += usize::from(is_near);
        let mut because = QUESTIONS.because.iter();
        let because = because.find(|because| cell.starts_with(&because.begin));
        let mut word = match (is_near, because) {
            (true, _) => "within 25 %".to_owned(),
            (false, Some(because)) => format!("**off**: {}", because.because),
            (false, None) => "**off**, cause unknown".to_owned(),
        };
        if let (false, Some(work)) = (is_near, work.get(cell))
            && !work.is_empty()
        {
            let _ = write!(word, " ({work})");
        }
        let _ = writeln!(
            text,
            "| {cell} | {} | {} ({}..{}) | {ratio:.2} | {} | {word} |",
            number(modelled),
            number(measured),
            number(least),
            number(most),
            join(
                pairs.iter().map(|pair| format!("{:.2}", pair.0 / pair.1)),
                " "
            )
        );
    }
    let all = cells.len();
    let share = 100.0 * near as f64 / all as f64;
    let _ = writeln!(
        text,
        "\n{near} of {all} cells ({share:.0} %) are within 25 %."
    );
    (text, near)
}

fn page(table: &str, rounds: u32) -> String {
    let commands: Vec<String> = QUESTIONS
        .questions
        .iter()
        .map(|question| match &question.replay {
            Some(replay) => format!(
                "stopgap {}\nstopgap {replay} --beside RECORD",
                question.probe
            ),
            None => format!("stopgap {}", question.probe),
        })
        .collect();
    format!(
        "# The models beside the kernel that runs\n\n`cargo run --release -p stopgap-bench -- model-live --keep DIR -o \
         docs/model-live.md` writes this page: {rounds} rounds of\n\n```\n{}\n```\n\nMedians over the rounds of `stopgap-bench model-live`; \
         *measured* with the least and the most of a round. `roundtrip`: switches a request; `reclaim`: pages scanned a page\n\
         reclaimed; `chunks`: milliseconds a buffer. A model is *within 25 %* where its median over the measured one lies \
         between 0.8 and\n1.25; the program exits with status 2 where fewer than 80 % of cells do. No price comes from the \
         figure that it is judged by.\n\n{table}",
        commands.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_off_are_counted_and_have_their_cause() {
        let cells = BTreeMap::from([
            (
                "chunks: 64M by base, ms".to_owned(),
                vec![(10.0, 9.0), (10.0, 11.0), (10.0, 30.0)],
            ),
            (
                "chunks: 64M by thp-direct, ms".to_owned(),
                vec![(10.0, 30.0)],
            ),
            ("else".to_owned(), vec![(1.0, 2.0)]),
        ]);
        let work = "scanned 5.00 to 9.00 pages, modelled 1.00".to_owned();
        let work = BTreeMap::from([("chunks: 64M by thp-direct, ms".to_owned(), work)]);
        let (table, near) = table(&cells, &work);
        assert_eq!(near, 1);
        assert!(
            table.contains("| 10.0 | 11.0 (9.00..30.0) | 0.91 | 1.11 0.91 0.33 | within 25 % |"),
            "{table}"
        );
        assert!(
            table.contains("0.33 | 0.33 | **off**: states made alike"),
            "{table}"
        );
        assert!(
            table.contains("from the first (scanned 5.00 to 9.00 pages, modelled 1.00) |"),
            "{table}"
        );
        assert!(table.contains("**off**, cause unknown"), "{table}");
        assert!(
            table.ends_with("1 of 3 cells (33 %) are within 25 %.\n"),
            "{table}"
        );
    }

    #[test]
    fn pairs_are_found_in_records() {
        let replay = serde_json::json!({"rows": [
            {"workload": "a", "switches_per_request": 2.0, "measured": {"switches": 4.0}},
            {"workload": "b", "switches_per_request": 2.0, "measured": null},
        ]});
        let cells = replayed_cells("roundtrip", &replay);
        assert_eq!(cells, [("roundtrip: a".to_owned(), (2.0, 4.0))]);
        let row = serde_json::json!({"policy": "held", "parameters": {"pinned": 33_554_432}, "scanned_per_reclaimed": 3.0,
            "measured": {"scanned_per_reclaimed": 2.0}});
        let cells = replayed_cells("reclaim", &serde_json::json!({"rows": [row]}));
        assert_eq!(cells, [("reclaim: held 32 MiB".to_owned(), (3.0, 2.0))]);
        let series = |name: &str, values: &[f64]| {
            let blocks = values.iter().map(
                |value| serde_json::json!({"run": 0, "start_ns": 0, "samples": 1, "value": value}),
            );
            let series = serde_json::json!({"name": name, "unit": "ns", "parameters": {"size": "64M", "strategy": "base"},
                "blocks": blocks.collect::<Vec<_>>()});
            serde_json::from_value::<Series>(series).unwrap()
        };
        let run = [
            series("take", &[2e6, 4e6]),
            series("take by the model", &[3e6]),
            series("moved", &[7.0, 5.0]),
            series("moved, by the model", &[6.0]),
        ];
        let cell = "chunks: 64M by base, ms".to_owned();
        let pairs = [(cell.clone(), (3.0, 2.0)), (cell, (3.0, 4.0))];
        let (cells, work) = chunks_cells(&run);
        assert_eq!(cells, pairs);
        assert_eq!(
            work["chunks: 64M by base, ms"],
            "moved 5.00 to 7.00 pages, modelled 6.00"
        );
    }
}
