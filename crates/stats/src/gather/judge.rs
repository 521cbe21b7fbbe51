//! Judges the units so far, as a comparison.

use stopgap_events::units::Nanos;

use super::{COMPARED, Label, Measured, Number, Plan, number};
use crate::anytime::{self, Look, NotSame, Sequence};
use crate::compare::{
    Comparison, Effect, Looked, Row, RowWord, Scale, Summary, Verdict, Word, effect_text,
};
use crate::quantile::median;

/// Share by which the level must move for a new margin.
const LEVEL_MOVED: f64 = 0.1;

/// Judges units as they come.
#[derive(Debug)]
pub struct Judge {
    plan: Plan,
    each: Vec<Judged>,
    units: usize,
}

/// One endpoint. Its number is `None` if no number has the name.
#[derive(Debug)]
struct Judged {
    name: String,
    number: Option<&'static Number>,
    options: anytime::Options,
    /// Ratios, unless a figure is 0.
    scale: Scale,
    /// The level of which the margin of differences is a share.
    margin_of: f64,
    sequence: Sequence,
    /// The figures of each unit, the earlier side's first.
    figures: Vec<[Vec<f64>; 2]>,
}

impl Judge {
    /// Creates a judge without units.
    #[must_use]
    pub fn new(plan: &Plan) -> Judge {
        let options = anytime::Options {
            alpha: plan.level,
            endpoints: plan.endpoints.len().max(1),
            margin: anytime::log_margin(plan.margin),
        };
        let judged = |name: &String| Judged {
            name: name.clone(),
            number: number(name),
            options,
            scale: Scale::Ratio,
            margin_of: 0.0,
            sequence: Sequence::new(options),
            figures: Vec::new(),
        };
        Judge {
            plan: plan.clone(),
            each: plan.endpoints.iter().map(judged).collect(),
            units: 0,
        }
    }

    /// Takes the runs of the next unit. A unit without one of the sides does not count.
    pub fn push(&mut self, unit: &[Measured]) {
        let has = |label| unit.iter().filter(|run| run.label == label).count();
        if has(Label::Before) == 0 || has(Label::Before) != has(Label::After) {
            return;
        }
        self.units += 1;
        for judged in &mut self.each {
            judged.push(unit);
        }
    }

    /// Returns the units so far.
    #[must_use]
    pub fn units(&self) -> usize {
        self.units
    }

    /// Returns whether more units would change nothing: one endpoint is worse, or all are decided.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        let words = || self.each.iter().map(|judged| judged.look().word);
        words().any(|word| word == anytime::Word::Worse)
            || words().all(|word| word != anytime::Word::Undecided)
    }

    /// Returns the expected number of further units; `None` if it is unknown.
    #[must_use]
    pub fn more(&self) -> Option<usize> {
        let looks = self.each.iter().map(Judged::look);
        let open = looks.filter(|look| look.word == anytime::Word::Undecided);
        open.map(|look| look.more)
            .try_fold(0, |most, more| Some(most.max(more?)))
    }

    /// Returns the interval of the first endpoint that is open, as `CPU time 0.98..1.05`.
    #[must_use]
    pub fn so_far(&self) -> Option<String> {
        let mut open = self
            .each
            .iter()
            .filter(|judged| judged.look().word == anytime::Word::Undecided);
        let judged = open.next()?;
        let effect = judged.effect(&judged.look())?;
        Some(format!(
            "{} {}",
            judged.name,
            effect_text(&effect, judged.unit())
        ))
    }

    /// Returns the comparison of both sides, which are called `names`.
    #[must_use]
    pub fn comparison(&self, names: [&str; 2], interrupted: bool) -> Comparison {
        let rows: Vec<Row> = self.each.iter().map(Judged::row).collect();
        let runs = |side: usize| {
            rows.first()
                .map_or(0, |row| [&row.before_runs, &row.after_runs][side].len())
        };
        let summary = |side: usize| Summary {
            name: names[side].to_owned(),
            runs: runs(side),
            within: None,
            max: None,
        };
        let (before, after) = (summary(0), summary(1));
        let warnings = self.each.iter().filter_map(Judged::warning).collect();
        Comparison {
            schema: COMPARED.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: Vec::new(),
            seed: 0,
            permutations: 0,
            resamples: 0,
            level: self.plan.level,
            margin: self.plan.margin,
            series: None,
            unit: String::new(),
            stall_threshold_ns: None,
            before,
            after,
            verdict: self.verdict(&rows, interrupted),
            endpoints: rows,
            deciles: Vec::new(),
            environment: Vec::new(),
            conditions: Vec::new(),
            warnings,
            missing: Vec::new(),
            pairs: None,
            looked: Some(Looked {
                units: self.units,
                cpu: self.plan.cpu,
                more: self.more().filter(|_| !self.is_decided()),
                least: anytime::least_units(self.plan.level, self.each.len()),
            }),
        }
    }

    fn verdict(&self, rows: &[Row], interrupted: bool) -> Verdict {
        let with = |word: RowWord| -> Vec<String> {
            let of = rows.iter().filter(|row| row.word == word);
            of.map(|row| format!("{} {}", row.name, row.text)).collect()
        };
        let [worse, better, same, open, untold] = [
            RowWord::Worse,
            RowWord::Better,
            RowWord::Same,
            RowWord::NoDifferenceProven,
            RowWord::Inconclusive,
        ]
        .map(with);
        let verdict = |word: Word, text: String| Verdict {
            word,
            text: format!("{word}: {text}"),
        };
        if !worse.is_empty() {
            return verdict(Word::Regression, worse.join(", "));
        }
        let so_far = match interrupted {
            true => format!("interrupted after {} pairs; ", self.units),
            false => String::new(),
        };
        if let Some(first) = untold.first() {
            return verdict(Word::Inconclusive, so_far + first);
        }
        let per_cent = (self.plan.margin * 1e5).round() / 1e3;
        match (better.is_empty(), open.is_empty()) {
            (false, _) if open.is_empty() || !interrupted => {
                verdict(Word::Improvement, better.join(", "))
            }
            (true, true) if !same.is_empty() => verdict(
                Word::Same,
                format!("within {per_cent} %: {}", same.join(", ")),
            ),
            (_, false) if interrupted => verdict(Word::Inconclusive, so_far + &open.join(", ")),
            _ => verdict(
                Word::NoDifferenceProven,
                format!("nor that there is none: {}", open.join(", ")),
            ),
        }
    }
}

impl Judged {
    fn push(&mut self, unit: &[Measured]) {
        let Some(number) = self.number else { return };
        let side = |label| -> Vec<f64> {
            let of = unit.iter().filter(|run| run.label == label);
            of.filter_map(number.of).collect()
        };
        let figures = [side(Label::Before), side(Label::After)];
        if figures.iter().any(Vec::is_empty) {
            return; // what is not asked for is not counted
        }
        self.figures.push(figures);
        let Some([before, after]) = self.figures.last() else {
            return;
        };
        let ratio = anytime::ratio(before, after).filter(|_| self.scale == Scale::Ratio);
        match ratio {
            Some(ratio) => {
                let typical = self
                    .level(0)
                    .unwrap_or(f64::NAN)
                    .min(self.level(1).unwrap_or(f64::NAN));
                self.sequence.set_resolution(number.step / typical);
                // Times and counts are finite.
                let _ = self.sequence.push(ratio);
            }
            None => self.push_difference(number),
        }
    }

    /// Takes the last unit as a difference, because a figure of 0 has no ratio. If the level of which the margin is a
    /// share has moved, all units are taken again.
    fn push_difference(&mut self, number: &Number) {
        let level = self.level(0).unwrap_or(0.0).abs();
        let moved = (level - self.margin_of).abs() > LEVEL_MOVED * level.max(self.margin_of);
        let from = if self.scale == Scale::Ratio || moved {
            self.scale = Scale::Difference;
            self.margin_of = level;
            let margin = self.options.margin.exp_m1() * level;
            // Counts and times that differ by less than half a step count as equal.
            let margin = margin.max(number.step / 2.0);
            self.sequence = Sequence::new(anytime::Options {
                margin,
                ..self.options
            });
            self.sequence
                .set_resolution(if level > 0.0 { number.step } else { 0.0 });
            0
        } else {
            self.figures.len() - 1
        };
        for [before, after] in &self.figures[from..] {
            if let Some(difference) = anytime::difference(before, after) {
                let _ = self.sequence.push(difference);
            }
        }
    }

    fn look(&self) -> Look {
        self.sequence.look()
    }

    fn unit(&self) -> &'static str {
        self.number.map_or("", |number| number.unit)
    }

    fn runs(&self, side: usize) -> Vec<f64> {
        let units = self.figures.iter();
        units.flat_map(|unit| unit[side].iter().copied()).collect()
    }

    fn level(&self, side: usize) -> Option<f64> {
        median(self.runs(side))
    }

    fn effect(&self, look: &Look) -> Option<Effect> {
        let back = |value: f64| match self.scale {
            Scale::Ratio => value.exp(),
            // Halving finds an end that is never exactly 0.
            Scale::Difference if value.abs() < 1e-9 => 0.0,
            Scale::Difference => value,
        };
        Some(Effect {
            value: Some(back(look.estimate?)),
            low: look.low.map(back),
            high: look.high.map(back),
            scale: self.scale,
            infinite: false,
        })
    }

    fn row(&self) -> Row {
        let look = self.look();
        let p = (1.0 / look.e).min(1.0);
        let endpoints = self.options.endpoints as f64;
        let effect = self.effect(&look);
        let mut row = Row {
            name: self.name.clone(),
            unit: self.unit().to_owned(),
            before: self.level(0),
            before_interval: None,
            after: self.level(1),
            after_interval: None,
            before_runs: self.runs(0),
            after_runs: self.runs(1),
            effect,
            p: Some(p),
            p_holm: Some((p * endpoints).min(1.0)),
            p_westfall_young: None,
            p_bh: None,
            arrangements: None,
            exact: false,
            word: match look.word {
                anytime::Word::Worse => RowWord::Worse,
                anytime::Word::Better => RowWord::Better,
                anytime::Word::Same => RowWord::Same,
                anytime::Word::Undecided => RowWord::NoDifferenceProven,
            },
            text: String::new(),
        };
        match &row.effect {
            Some(effect) if look.low.is_some() || look.high.is_some() => {
                row.text = effect_text(effect, &row.unit);
            }
            _ => {
                row.word = RowWord::Inconclusive;
                row.p = None;
                row.p_holm = None;
                row.text = match self.number {
                    None => "is no number of a run".to_owned(),
                    Some(_) => {
                        let least =
                            anytime::least_units(self.options.alpha, self.options.endpoints);
                        format!(
                            "n too small: {} pairs prove nothing, it takes {least}",
                            look.units
                        )
                    }
                };
            }
        }
        row
    }

    fn warning(&self) -> Option<String> {
        let look = self.look();
        let name = &self.name;
        if !look.one_shift {
            return Some(format!(
                "{name}: the runs did not all change by one factor: some change much more than others"
            ));
        }
        match look.not_same? {
            NotSame::Resolution if self.options.margin > 0.0 => {
                let number = self.number?;
                let step = match number.unit {
                    "s" => Nanos((number.step * 1e9) as u64).to_string(),
                    unit => format!("{} {unit}", number.step),
                };
                Some(format!(
                    "{name}: it is known in steps of {step}, too coarse for this margin"
                ))
            }
            NotSame::Resolution => None,
            NotSame::Mean => Some(format!(
                "{name}: the typical run is the same, but rare slow runs leave the mean open"
            )),
        }
    }
}
