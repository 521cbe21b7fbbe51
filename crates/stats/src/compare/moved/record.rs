//! The record of a comparison of traces, JSON `stopgap.moved/1`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;

use super::super::record::Difference;
use super::Account;

/// Name and version of the record's format.
pub const SCHEMA: &str = "stopgap.moved/1";

/// Kinds of figures.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// The whole trace.
    Total,
    /// Time lost by the last cause of chains of waits.
    Cause,
    /// Time lost by thread, wait, and each hop behind it.
    Chain,
    /// Time lost by the thread for which others waited.
    Blame,
    /// Time in system calls by name, waits for work included.
    Call,
    /// Number of system calls by name.
    Count,
    /// Time lost by the program's innermost function that waited.
    Waits,
    /// CPU time of a function itself.
    Own,
    /// CPU time of a function and of the functions that it called.
    Below,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 9] = [
        Family::Total,
        Family::Cause,
        Family::Chain,
        Family::Blame,
        Family::Call,
        Family::Count,
        Family::Waits,
        Family::Own,
        Family::Below,
    ];

    /// Families that need scheduling events.
    pub(super) const OF_WAITS: [Family; 4] =
        [Family::Total, Family::Cause, Family::Chain, Family::Blame];

    /// Returns the word for a column.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Family::Total => "total",
            Family::Cause => "in the end",
            Family::Chain => "lost",
            Family::Blame => "blamed",
            Family::Call => "time in call",
            Family::Count => "calls",
            Family::Waits => "waits in function",
            Family::Own => "CPU, own",
            Family::Below => "CPU, with calls",
        }
    }

    /// Returns the name of a figure in words.
    pub(super) fn told(self, path: &[String]) -> String {
        match (self, path) {
            (Family::Chain, [task]) => format!("{task}, all waits"),
            (Family::Chain, [task, wait]) => format!("{task} {wait}"),
            // A wait for a CPU, and the thread that had the CPU.
            (Family::Chain, [task, wait, rest @ ..]) if rest[0].starts_with(&**wait) => {
                format!("{task} {}", rest.join(", "))
            }
            (Family::Chain, [task, wait, rest @ ..]) => {
                format!("{task} {wait}: {}", rest.join(", "))
            }
            _ => path.concat(),
        }
    }
}

/// The unit of figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Per {
    /// A run of the recorded program, from its begin to its end.
    Run,
    /// A second of the trace.
    Second,
    /// A round trip.
    Roundtrip,
    /// A request, by the words of `--request`.
    Request(String),
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Per::Run => "run",
            Per::Second => "second",
            Per::Roundtrip => "round trip",
            Per::Request(request) => request,
        })
    }
}

/// Answer for one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FigureWord {
    /// More after than before; the rate of false discoveries is at most [`Moved::level`].
    More,
    /// Less after than before, likewise.
    Less,
    /// No move beyond the scatter, or too few traces.
    NotProven,
    /// One trace per side, which proves nothing.
    SeenOnce,
    /// Unknown: some trace does not show it.
    Unknown,
}

impl FigureWord {
    /// Returns whether it moved.
    #[must_use]
    pub fn is_proven(self) -> bool {
        matches!(self, FigureWord::More | FigureWord::Less)
    }
}

impl fmt::Display for FigureWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FigureWord::More => "more",
            FigureWord::Less => "less",
            FigureWord::NotProven => "not proven",
            FigureWord::SeenOnce => "seen once",
            FigureWord::Unknown => "unknown",
        })
    }
}

/// The answer in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Word {
    /// At least one figure moved.
    #[serde(rename = "moved")]
    Moved,
    /// No figure moved beyond its scatter. This does not prove that there is no difference.
    #[serde(rename = "no difference proven")]
    NoDifferenceProven,
    /// There are too few traces, or they show too little.
    #[serde(rename = "inconclusive")]
    Inconclusive,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// In a word.
    pub word: Word,
    /// In a sentence.
    pub text: String,
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SideOf {
    /// Its name.
    pub name: String,
    /// Its traces.
    pub traces: Vec<String>,
}

impl SideOf {
    pub(super) fn new(name: &str, accounts: &[Account]) -> SideOf {
        SideOf {
            name: name.to_owned(),
            traces: accounts.iter().map(|one| one.name.clone()).collect(),
        }
    }
}

/// One figure of both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Kind of the figure.
    pub family: Family,
    /// Its name. Numbers that differ from run to run are `*`.
    pub name: String,
    /// The name in parts: for a chain thread, wait and hops.
    pub path: Vec<String>,
    /// Its unit: `ms a run`, `calls/s`.
    pub unit: String,
    /// Median over the earlier traces; null where some trace does not show it.
    pub before: Option<f64>,
    /// Median over the later traces.
    pub after: Option<f64>,
    /// Median of all differences between a later and an earlier trace; for untested figures the difference of the
    /// medians.
    pub difference: Option<f64>,
    /// Lower end of the difference's interval over traces; null where there are too few traces.
    pub low: Option<f64>,
    /// Upper end. 95 % of the intervals of figures that moved contain the truth; those of other figures are wider.
    pub high: Option<f64>,
    /// Two-sided probability of a permutation of the traces.
    pub p: Option<f64>,
    /// The same probability, adjusted by Benjamini and Hochberg over all tested figures.
    pub p_adjusted: Option<f64>,
    /// The answer.
    pub word: FigureWord,
    /// Whether at least half of a call's time is waits for work. Then more of it is no loss.
    pub idle: bool,
    /// Value of each earlier trace.
    pub before_traces: Vec<Option<f64>>,
    /// Value of each later trace.
    pub after_traces: Vec<Option<f64>>,
}

/// A differential flame graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Picture {
    /// `chain`: lost time; `below`: CPU time.
    pub family: Family,
    /// Its frames in the order of their paths. Frames below the least share are left out.
    pub frames: Vec<Frame>,
}

/// A frame, such as a thread, a wait or a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frame {
    /// Names of the frames above it, and its own name last.
    pub path: Vec<String>,
    /// Milliseconds per unit of the earlier side, mean over traces, without the frames below.
    pub before: f64,
    /// The same for the later side.
    pub after: f64,
    /// The answer for the frame including all frames below.
    pub word: FigureWord,
}

/// Comparison of two sides of traces: the figures that moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// Seed of the arrangements.
    pub seed: u64,
    /// Largest share of false discoveries among the figures that moved, on average.
    pub level: f64,
    /// Unit by which figures are divided: `run`, `second`, `round trip`, or the words of a request.
    pub per: String,
    /// The earlier side.
    pub before: SideOf,
    /// The later side.
    pub after: SideOf,
    /// The answer.
    pub verdict: Verdict,
    /// Figures that were tested together.
    pub tested: usize,
    /// Figures that moved.
    pub moved: usize,
    /// Figures that were left out because their family has too many.
    pub left_out: usize,
    /// Least number of figures that must move together to be proven with so few traces; 1 where a single figure can
    /// be proven. Null where none can.
    pub together: Option<usize>,
    /// Traces per side that prove a move of a single figure.
    pub alone_at: usize,
    /// Figures that moved come first, the largest difference first. Counts follow times.
    pub figures: Vec<Figure>,
    /// Pictures.
    pub pictures: Vec<Picture>,
    /// Differences between the machines and recordings.
    pub environment: Vec<Difference>,
    /// Reasons to doubt the result, most important first.
    pub warnings: Vec<String>,
    /// Unknown figures, and why.
    pub missing: Vec<Missing>,
}

impl Figure {
    /// Returns by how much the figure moved at least, if there is an interval; else by how much it moved.
    fn surely(&self) -> f64 {
        let least = self
            .low
            .zip(self.high)
            .map(|(low, high)| low.abs().min(high.abs()));
        let seen = self.difference.map(f64::abs);
        least
            .filter(|_| self.word.is_proven())
            .or(seen)
            .unwrap_or(0.0)
    }
}

impl Moved {
    /// Returns the leading figure: the wait or call that certainly moved by most. Counts come next. Waits for work
    /// and sums come last.
    #[must_use]
    pub fn leading(&self) -> Option<&Figure> {
        let place = |figure: &&Figure| match figure.family {
            Family::Call if figure.idle => 5,
            Family::Call => 0,
            Family::Chain if figure.path.len() == 2 => 0,
            Family::Count => 1,
            Family::Cause | Family::Own => 2,
            Family::Chain | Family::Blame | Family::Waits => 3,
            Family::Below => 4,
            Family::Total => 6,
        };
        let told = |one: &&Figure| match self.moved {
            0 => one.difference.is_some(),
            _ => one.word.is_proven(),
        };
        self.figures.iter().filter(told).min_by(|a, b| {
            (place(a).cmp(&place(b))).then_with(|| b.surely().total_cmp(&a.surely()))
        })
    }

    /// Returns the last cause of chains that moved the same way as the leading figure, and by most.
    #[must_use]
    pub fn in_the_end(&self) -> Option<&Figure> {
        let word = self.leading()?.word;
        let causes = self
            .figures
            .iter()
            .filter(|one| one.family == Family::Cause);
        let same = causes.filter(|one| one.word == word && word.is_proven());
        same.max_by(|a, b| a.surely().total_cmp(&b.surely()))
    }

    pub(super) fn judged(&self, once: bool) -> Verdict {
        let (before, after) = (self.before.traces.len(), self.after.traces.len());
        let alone = self.alone_at;
        let verdict = |word, text: String| Verdict { word, text };
        if self.moved > 0 {
            let others = self.tested - self.moved;
            return verdict(
                Word::Moved,
                format!(
                    "{} of {} tested figures moved, {others} did not beyond their scatter",
                    self.moved, self.tested
                ),
            );
        }
        let together = self.together;
        match together {
            None if once => verdict(
                Word::Inconclusive,
                format!(
                    "measured once a side; {alone} traces a side, recorded in turn, can prove it"
                ),
            ),
            None if self
                .figures
                .iter()
                .all(|one| one.word == FigureWord::Unknown) =>
            {
                verdict(
                    Word::Inconclusive,
                    "no figure is known of all traces".to_owned(),
                )
            }
            None => verdict(
                Word::Inconclusive,
                format!(
                    "{before} and {after} traces are too few; {alone} a side, recorded in turn, tell one figure that moves"
                ),
            ),
            Some(1) => verdict(
                Word::NoDifferenceProven,
                format!("none of {} figures moved beyond its scatter", self.tested),
            ),
            Some(together) => verdict(
                Word::Inconclusive,
                format!(
                    "none of {} figures moved beyond its scatter, but {before} and {after} traces tell a change only where it moves \
                     {together} figures or more; {alone} traces a side tell one",
                    self.tested
                ),
            ),
        }
    }
}
