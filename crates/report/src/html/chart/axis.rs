//! Axes: how a quantity is laid along a line, and where it is marked.

/// How values lie along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Evenly, zero included.
    Linear,
    /// Evenly by logarithm; values of 0 and below have no place.
    Log,
    /// Shares of samples, 0 to 1, by -log10(1 - share): each nine takes as much room as the one before.
    Tail,
    /// Rows from the top, at 0, 1, 2 and so on.
    Rows,
}

/// An axis: title with unit, scale.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    /// The quantity.
    pub(crate) title: String,
    /// In what unit values come; `ns` is shown in the time unit that suits. Empty for a pure number.
    pub(crate) unit: String,
    /// How values lie.
    pub(crate) scale: Scale,
}

/// Beyond this a figure is left out of pictures: it is no measurement of a machine.
const GREATEST: f64 = 1e18;

/// Room beyond the outermost values, as a share of the span.
const ROOM: f64 = 0.04;

/// Where nines end: 99.999999999 %.
const MOST_NINES: f64 = 11.0;

/// A part of an axis, in places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    /// Begin.
    pub(crate) low: f64,
    /// End, above the begin.
    pub(crate) high: f64,
}

impl Span {
    /// Returns the span that holds both.
    pub(crate) fn joined(self, other: Span) -> Span {
        Span {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }

    /// Returns on which side of the span a place lies: -1 below it, 1 above it, 0 within.
    pub(crate) fn beyond(self, place: f64) -> i32 {
        i32::from(place > self.high) - i32::from(place < self.low)
    }

    /// Returns the span stretched towards `ends`, on each side by at most half of its length or, where that is more, by one (a power
    /// of ten). An end that fits has room beyond it.
    pub(crate) fn reaching(self, ends: impl Iterator<Item = f64>) -> Span {
        let most = ((self.high - self.low) / 2.0).max(1.0);
        let all = ends.fold(self, |span, end| Span {
            low: span.low.min(end.max(self.low - most)),
            high: span.high.max(end.min(self.high + most)),
        });
        let room = (all.high - all.low) * ROOM;
        Span {
            low: if all.low < self.low && all.low > self.low - most {
                all.low - room
            } else {
                all.low
            },
            high: if all.high > self.high && all.high < self.high + most {
                all.high + room
            } else {
                all.high
            },
        }
    }
}

/// Marks of an axis: places with labels, and places of the fine mesh.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ticks {
    /// Place and label.
    pub(crate) named: Vec<(f64, String)>,
    /// Places.
    pub(crate) fine: Vec<f64>,
    /// The unit that labels are in.
    pub(crate) unit: String,
}

impl Ticks {
    /// Returns the places that have labels.
    pub(crate) fn places(&self) -> Vec<f64> {
        self.named.iter().map(|(place, _)| *place).collect()
    }
}

impl Axis {
    pub(crate) fn new(title: &str, unit: &str, scale: Scale) -> Axis {
        Axis {
            title: title.to_owned(),
            unit: unit.to_owned(),
            scale,
        }
    }

    /// Where `value` lies; `None` where it has no place.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => value,
            Scale::Log if value > 0.0 => value.log10(),
            Scale::Log => return None,
            Scale::Tail => -(1.0 - value).max(10_f64.powf(-MOST_NINES)).log10(),
            Scale::Rows => -value,
        };
        let sound = value.is_finite() && value.abs() <= GREATEST && place.is_finite();
        sound.then_some(place)
    }

    /// Returns where an end of an interval lies: beyond every span where it has no place.
    pub(crate) fn end(&self, value: f64) -> f64 {
        let beyond = if value > 0.0 { GREATEST } else { -GREATEST };
        self.place(value).unwrap_or(beyond)
    }

    /// The span of `places`, with some room; `None` where there is none.
    pub(crate) fn span(&self, places: impl Iterator<Item = f64>) -> Option<Span> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for place in places {
            low = low.min(place);
            high = high.max(place);
        }
        if low > high {
            return None;
        }
        if self.scale == Scale::Rows {
            return Some(Span {
                low: low.min(high) - 0.5,
                high: 0.5,
            });
        }
        if self.scale == Scale::Linear {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if high - low < 1e-9_f64.max(high.abs() * 1e-9) {
            high = low
                + if self.scale == Scale::Linear {
                    1.0
                } else {
                    0.3
                };
            low -= if self.scale == Scale::Log { 0.3 } else { 0.0 };
        }
        let room = (high - low) * ROOM;
        let begins_at_zero = self.scale == Scale::Linear && low == 0.0 || self.scale == Scale::Tail;
        Some(Span {
            low: if begins_at_zero { low } else { low - room },
            high: high + room,
        })
    }

    /// Returns the marks within `span`.
    pub(crate) fn ticks(&self, span: Span) -> Ticks {
        let mut ticks = Ticks {
            named: Vec::new(),
            fine: Vec::new(),
            unit: self.unit.clone(),
        };
        match self.scale {
            Scale::Rows => {}
            Scale::Tail => ticks.named = nines(span),
            Scale::Linear => {
                let (unit, of_one) = self.shown(span.high.abs().max(span.low.abs()));
                let within = even(span.low / of_one, span.high / of_one);
                ticks.named = within.map(|v| (v * of_one, label(v))).collect();
                ticks.unit = unit;
            }
            Scale::Log => {
                let middle = 10_f64.powf(f64::midpoint(span.low, span.high));
                let (unit, of_one) = self.shown(middle);
                let shift = of_one.log10();
                let (named, fine) = decades(span.low - shift, span.high - shift);
                ticks.named = named
                    .into_iter()
                    .map(|v| (v.log10() + shift, label(v)))
                    .collect();
                ticks.fine = fine.into_iter().map(|v| v.log10() + shift).collect();
                ticks.unit = unit;
            }
        }
        ticks
    }

    /// The unit for values like `typical`, and how many of the axis's own unit it is.
    fn shown(&self, typical: f64) -> (String, f64) {
        if self.unit != "ns" {
            return (self.unit.clone(), 1.0);
        }
        let (unit, of_one) = match typical {
            t if t < 2e3 => ("ns", 1.0),
            t if t < 2e6 => ("us", 1e3),
            t if t < 2e9 => ("ms", 1e6),
            _ => ("s", 1e9),
        };
        (unit.to_owned(), of_one)
    }
}

/// Up to six even marks from `low` to `high`.
fn even(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let rough = (high - low) / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|&step| step >= rough)
        .unwrap_or(power * 10.0);
    let first = (low / step).ceil();
    (0..8)
        .map(move |index| (first + f64::from(index)) * step)
        .take_while(move |&value| value <= high + step * 1e-6)
}

/// Marks of a logarithmic axis between two powers of ten: named ones and fine ones.
fn decades(low: f64, high: f64) -> (Vec<f64>, Vec<f64>) {
    let inside = |value: &f64| (low..=high).contains(&value.log10());
    if high - low < 0.6 {
        let named = even(10_f64.powf(low), 10_f64.powf(high));
        return (named.filter(inside).collect(), Vec::new());
    }
    let (first, last) = (low.floor() as i32, high.ceil() as i32);
    let every = ((last - first) / 6).max(1);
    let of = |digits: &'static [f64]| {
        (first..=last)
            .flat_map(move |power| digits.iter().map(move |d| d * 10_f64.powi(power)))
            .filter(inside)
    };
    if high - low < 1.8 {
        return (of(&[1.0, 2.0, 5.0]).collect(), Vec::new());
    }
    let named = (first..=last)
        .filter(|power| power.rem_euclid(every) == 0)
        .map(|power| 10_f64.powi(power))
        .filter(inside)
        .collect();
    let fine = match every {
        1 => of(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]).collect(),
        _ => Vec::new(),
    };
    (named, fine)
}

/// 0, 50, 90, 99, 99.9 per cent and on.
fn nines(span: Span) -> Vec<(f64, String)> {
    let all = [
        (0.0, "0"),
        (std::f64::consts::LOG10_2, "50"),
        (1.0, "90"),
        (2.0, "99"),
        (3.0, "99.9"),
        (4.0, "99.99"),
        (5.0, "99.999"),
        (6.0, "six 9s"),
        (7.0, "seven 9s"),
        (8.0, "eight 9s"),
    ];
    let wide = span.high > 4.5;
    all.into_iter()
        .filter(|(place, _)| (span.low..=span.high).contains(place))
        .filter(|(_, label)| !(wide && *label == "50"))
        .map(|(place, label)| (place, label.to_owned()))
        .collect()
}

/// A mark's number: short, without an exponent where people would not write one.
fn label(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 || (size < 1e-4 && size > 0.0) {
        return format!("{value:e}");
    }
    let text = format!("{value:.5}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let Some((whole, rest)) = text.split_once('.') else {
        return text.parse().map_or(text.to_owned(), crate::text::thousands);
    };
    format!("{whole}.{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, low: f64, high: f64) -> (Vec<String>, String) {
        let places = [low, high].into_iter().filter_map(|v| axis.place(v));
        let ticks = axis.ticks(axis.span(places).expect("two places"));
        let named = ticks.named.into_iter().map(|(_, label)| label);
        (named.collect(), ticks.unit)
    }

    #[test]
    fn marks_are_round_and_times_have_the_unit_that_suits() {
        let axis = Axis::new("latency", "ns", Scale::Log);
        let (named, unit) = labels(&axis, 200.0, 30_000_000.0);
        assert_eq!(
            (named.join(" "), unit),
            ("1 10 100 1,000 10,000".to_owned(), "us".to_owned())
        );
        let (named, unit) = labels(&axis, 1_000_000.0, 9_000_000.0);
        assert_eq!(
            (named.join(" "), unit),
            ("1 2 5".to_owned(), "ms".to_owned())
        );
        let axis = Axis::new("switches", "switches/rt", Scale::Linear);
        assert_eq!(labels(&axis, 1.9, 4.1).0.join(" "), "0 1 2 3 4");
        let axis = Axis::new("share", "%", Scale::Tail);
        assert_eq!(labels(&axis, 0.0, 0.9995).0.join(" "), "0 50 90 99 99.9");
    }

    #[test]
    fn what_no_axis_can_hold_has_no_place() {
        let log = Axis::new("", "", Scale::Log);
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(log.place(value), None, "{value}");
        }
        let linear = Axis::new("", "", Scale::Linear);
        assert_eq!(linear.place(f64::NEG_INFINITY), None);
        assert_eq!(linear.place(-2.0), Some(-2.0));
        assert!(log.span(std::iter::empty()).is_none());
    }

    #[test]
    fn one_value_alone_still_spans_something() {
        for scale in [Scale::Linear, Scale::Log, Scale::Tail, Scale::Rows] {
            let axis = Axis::new("", "ns", scale);
            for value in [0.0, 1e-9, 0.5, 7.0, 1e17] {
                let Some(place) = axis.place(value) else {
                    continue;
                };
                let span = axis.span(std::iter::once(place)).expect("one place");
                assert!(span.low < span.high, "{scale:?} {value} {span:?}");
                assert!(axis.ticks(span).named.len() <= 30);
            }
        }
    }
}
