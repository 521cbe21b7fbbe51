//! The picture: a column of symbols a value, and bars of mean, median and standard deviation.
//!
//! Where the values of several sets share a cell, its symbol is that of the sets' numbers joined by *or*: with three sets `*`
//! is the third, or the first and the second together. Only the heights of columns are kept, so a picture of a million
//! equal values takes no more memory than one of ten.

use std::fmt;

use super::set::Set;

/// By the sets' numbers joined by *or*.
const SYMBOLS: [char; 8] = [' ', 'x', '+', '*', '%', '#', '@', 'O'];

/// The symbol of set number `number`, from 1 to 7.
pub(super) fn symbol(number: usize) -> char {
    SYMBOLS[number % SYMBOLS.len()]
}

/// A picture of some sets.
pub(super) struct Plot {
    width: usize,
    /// How many values each set has in each column.
    heights: Vec<Vec<usize>>,
    /// Lines of bars: one of all sets, or one a set.
    bars: Vec<Vec<char>>,
}

/// Where values fall. Only made where the span is a number more than 0.
struct Scale {
    origin: f64,
    step: f64,
    width: usize,
}

impl Scale {
    /// Over the values and mean +- standard deviation of every set.
    fn new(sets: &[Set], width: usize) -> Result<Scale, &'static str> {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for set in sets {
            let (mean, deviation) = (set.mean(), set.deviation());
            for value in [set.min(), set.max(), mean - deviation, mean + deviation] {
                // A deviation that is NaN is passed over.
                least = least.min(value);
                most = most.max(value);
            }
        }
        let span = most - least;
        if span == 0.0 {
            return Err("[no plot, span is zero width]\n");
        }
        let step = span / (width as f64 - 1.0);
        let origin = least - 0.5 * step;
        if !origin.is_finite() || step == 0.0 {
            return Err("[no plot, values are too far apart or too close for a scale]\n");
        }
        Ok(Scale {
            origin,
            step,
            width,
        })
    }

    fn column(&self, value: f64) -> usize {
        (((value - self.origin) / self.step) as usize).min(self.width - 1)
    }
}

impl Plot {
    /// A picture `width` columns wide, at least 2; where there can be none, the line that says why.
    pub(super) fn new(sets: &[Set], width: usize, separate: bool) -> Result<Plot, &'static str> {
        let scale = Scale::new(sets, width)?;
        let mut plot = Plot {
            width,
            heights: vec![vec![0; width]; sets.len()],
            bars: vec![vec![' '; width]; if separate { sets.len() } else { 1 }],
        };
        for (number, set) in sets.iter().enumerate() {
            for value in set.values() {
                plot.heights[number][scale.column(*value)] += 1;
            }
            let bar = &mut plot.bars[if separate { number } else { 0 }];
            let (mean, deviation) = (set.mean(), set.deviation());
            if !deviation.is_nan() {
                let left = scale.column(mean - deviation);
                let right = scale.column(mean + deviation);
                bar[right] = '|';
                bar[left] = '|';
                let between = bar.iter_mut().take(right).skip(left + 1);
                between
                    .filter(|cell| **cell == ' ')
                    .for_each(|cell| *cell = '_');
            }
            bar[scale.column(set.median())] = 'M';
            bar[scale.column(mean)] = 'A';
        }
        Ok(plot)
    }
}

impl fmt::Display for Plot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frame = "-".repeat(self.width);
        writeln!(f, "+{frame}+")?;
        let all = self.heights.iter().flatten();
        let mut line = String::with_capacity(self.width);
        for height in (1..=all.copied().max().unwrap_or(0)).rev() {
            line.clear();
            for column in 0..self.width {
                let with = self.heights.iter().zip(1..);
                let with = with.filter(|(set, _)| set[column] >= height);
                line.push(symbol(with.fold(0, |cell, (_, number)| cell | number)));
            }
            writeln!(f, "|{line}|")?;
        }
        for bar in &self.bars {
            writeln!(f, "|{}|", bar.iter().collect::<String>())?;
        }
        writeln!(f, "+{frame}+")
    }
}
