//! Charts as data; [`draw`] makes pictures of them.
//!
//! A chart is an SVG in the page. Its colours are *inks*: the page's style sheet says what each looks like on light
//! and on dark paper, by the colour that stands in the SVG.

mod axis;
mod draw;

use super::write::escaped;
use crate::table::Table;

pub(super) use axis::{Axis, Scale, Span};

/// Inks of series, by number: Okabe and Ito's colours, which people with any kind of colour vision can tell apart, those
/// first that stand out on white.
/// Brown and grey are for bars only, which stand beside each other: as lines they are too near the others.
pub(super) const INKS: [&str; 8] = [
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#010101", "#8C5A2B", "#8A8F98",
];

/// Series that a chart of lines or marks can hold.
pub(super) const MOST: usize = 6;

/// An axis is logarithmic where the largest figure is this many times the least.
const WIDE: f64 = 8.0;

/// A place in a chart, in values: x and y.
pub(super) type Point = (f64, f64);

/// Something drawn. Coordinates are values, x first.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    /// A line through points.
    Line(Vec<Point>),
    /// A broken line through points.
    Dashed(Vec<Point>),
    /// The series' mark at points.
    Marks(Vec<Point>),
    /// An interval along y: x, low, high.
    Upright(f64, f64, f64),
    /// An interval along x: low, high, y.
    Level(f64, f64, f64),
    /// A bar of a row along x: from, to, y.
    Bar(f64, f64, f64),
    /// A column along y, whose foot is the axis: x, height.
    Column(f64, f64),
    /// The whole height between two places along x, shaded.
    Band(f64, f64),
}

/// Shapes with one ink, one mark and one entry in the legend.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// Name in the legend; a layer without a name has no entry.
    pub(super) name: String,
    /// Index of the ink, and of the mark; from [`MOST`] on they begin again.
    pub(super) ink: usize,
    /// The shapes, drawn in this order.
    pub(super) shapes: Vec<Shape>,
}

/// A chart with its words and its figures.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    /// Heading.
    pub(super) title: String,
    /// A sentence or two on what the picture shows: below it, and its text for people who cannot see it.
    pub(super) about: String,
    /// Along the bottom.
    pub(super) x: Axis,
    /// Along the left side.
    pub(super) y: Axis,
    /// Labels of rows, where y has rows; from the top.
    pub(super) rows: Vec<String>,
    /// The series, drawn in this order.
    pub(super) layers: Vec<Layer>,
    /// A broken line at this x, with its name in the legend.
    pub(super) rule: Option<(f64, String)>,
    /// The same figures to read.
    pub(super) table: Table,
    /// Spans of both axes, where other charts have the same.
    pub(super) spans: Option<(Span, Span)>,
}

impl Chart {
    /// Returns a chart in which nothing is drawn yet.
    pub(super) fn new(
        title: impl Into<String>,
        about: impl Into<String>,
        x: Axis,
        y: Axis,
    ) -> Chart {
        Chart {
            title: title.into(),
            about: about.into(),
            x,
            y,
            rows: Vec::new(),
            layers: Vec::new(),
            rule: None,
            table: Table::default(),
            spans: None,
        }
    }

    /// Returns a chart of rows in which nothing is drawn yet.
    pub(super) fn of_rows(
        title: impl Into<String>,
        about: impl Into<String>,
        x: Axis,
        rows: Vec<String>,
    ) -> Chart {
        let y = Axis::new("", "", Scale::Rows); // each row has a label
        Chart {
            rows,
            ..Chart::new(title, about, x, y)
        }
    }

    /// Returns the spans of both axes that hold all that is drawn; `None` where nothing can be. An interval that few runs leave
    /// very wide does not press all else together: it is cut at the edge, with an arrow.
    fn needs(&self) -> Option<(Span, Span)> {
        let places = |ends: bool| -> Vec<Point> {
            let points = self.layers.iter().flat_map(|layer| layer.points(ends));
            points
                .filter_map(|(x, y)| Some((self.x.place(x)?, self.y.place(y)?)))
                .collect()
        };
        let (data, ends) = (places(false), places(true));
        let rule = self.rule.as_ref().and_then(|(x, _)| self.x.place(*x));
        let x = data.iter().map(|place| place.0).chain(rule);
        let y = data.iter().map(|place| place.1);
        Some((
            self.x.span(x)?.reaching(ends.iter().map(|place| place.0)),
            self.y.span(y)?.reaching(ends.iter().map(|place| place.1)),
        ))
    }

    /// Returns the height of what a row shows, in units of the picture.
    fn row_height(&self) -> i32 {
        let marks = |layer: &&Layer| {
            let mut shapes = layer.shapes.iter();
            shapes.any(|shape| matches!(shape, Shape::Marks(_)))
        };
        match self.layers.iter().filter(marks).count() {
            0 | 1 => draw::ROW,
            _ => draw::ROW_OF_SEVERAL,
        }
    }

    /// Returns whether an interval goes on beyond the spans.
    fn cuts(&self, x: Span, y: Span) -> bool {
        let cut = |shape: &Shape| match *shape {
            Shape::Upright(_, low, high) => {
                [low, high].iter().any(|&v| y.beyond(self.y.end(v)) != 0)
            }
            Shape::Level(low, high, _) => [low, high].iter().any(|&v| x.beyond(self.x.end(v)) != 0),
            _ => false,
        };
        self.layers.iter().flat_map(|layer| &layer.shapes).any(cut)
    }

    /// Returns the chart as part of a page; empty where there is nothing to draw.
    pub(super) fn html(&self) -> String {
        let Some(needs) = self.needs() else {
            return String::new();
        };
        let (x, y) = self.spans.unwrap_or(needs);
        let title = escaped(&self.title);
        let cut = match self.cuts(x, y) {
            true => " An arrow at the edge means that the interval goes on; Figures has its end.",
            false => "",
        };
        format!(
            "<figure class=\"chart\"><figcaption><b>{title}</b></figcaption>\n{}{}<p class=\"about\">{}{cut}</p>\n\
             <details><summary>Figures<span class=\"away\"> of {title}</span></summary>{}</details></figure>\n",
            draw::svg(self, x, y),
            self.legend(),
            escaped(&self.about),
            self.table.html(&self.title),
        )
    }

    /// Returns names beside marks; empty where no layer has a name.
    fn legend(&self) -> String {
        let named = self.layers.iter().filter(|layer| !layer.name.is_empty());
        let named = named.map(|layer| (draw::sign(layer), &layer.name));
        let rule = self.rule.iter().map(|(_, name)| (draw::rule_sign(), name));
        let entry = |(sign, name): (String, &String)| format!("<li>{sign}{}</li>", escaped(name));
        let entries: String = named.chain(rule).map(entry).collect();
        match entries.is_empty() {
            true => entries,
            false => format!("<ul class=\"legend\" aria-label=\"Legend\">{entries}</ul>\n"),
        }
    }
}

/// Gives all charts the spans that hold each of them, so that they can be compared by eye.
pub(super) fn alike(charts: &mut [Chart]) {
    let needs = charts.iter().filter_map(Chart::needs);
    let all = needs.reduce(|(ax, ay), (bx, by)| (ax.joined(bx), ay.joined(by)));
    for chart in charts {
        chart.spans = all;
    }
}

/// Returns the scale that keeps figures apart: logarithmic where they differ much.
pub(super) fn scale(figures: impl Iterator<Item = f64> + Clone) -> Scale {
    let least = figures.clone().fold(f64::INFINITY, f64::min);
    let most = figures.fold(0.0, f64::max);
    match least > 0.0 && most / least > WIDE {
        true => Scale::Log,
        false => Scale::Linear,
    }
}

impl Layer {
    /// Returns a series of no shape yet.
    pub(super) fn new(name: impl Into<String>, ink: usize) -> Layer {
        let (name, shapes) = (name.into(), Vec::new());
        Layer { name, ink, shapes }
    }

    /// Adds a line through points, each of them marked.
    pub(super) fn marked_line(&mut self, points: Vec<Point>) {
        let marks = Shape::Marks(points.clone());
        self.shapes.extend([Shape::Line(points), marks]);
    }

    /// Returns corners of what is drawn: ends of intervals, or of all else.
    fn points(&self, ends: bool) -> Vec<Point> {
        let corners = |shape: &Shape| match shape {
            &Shape::Upright(x, low, high) if ends => vec![(x, low), (x, high)],
            &Shape::Level(low, high, y) if ends => vec![(low, y), (high, y)],
            Shape::Upright(..) | Shape::Level(..) => Vec::new(),
            _ if ends => Vec::new(),
            Shape::Band(..) => Vec::new(),
            Shape::Line(points) | Shape::Dashed(points) | Shape::Marks(points) => points.clone(),
            &Shape::Bar(low, high, y) => vec![(low, y), (high, y)],
            &Shape::Column(x, high) => vec![(x, high)],
        };
        self.shapes.iter().flat_map(corners).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(low: f64, high: f64, scale: Scale) -> String {
        let x = Axis::new("time", "ns", scale);
        let mut layer = Layer::new("", 0);
        layer.shapes = vec![
            Shape::Level(low, high, 0.0),
            Shape::Marks(vec![(10.0, 0.0), (12.0, 0.0)]),
        ];
        let mut chart = Chart::of_rows("t", "a", x, vec!["row".to_owned()]);
        chart.layers = vec![layer];
        chart.html()
    }

    #[test]
    fn an_interval_that_is_cut_has_an_arrow_and_a_sentence() {
        for (low, high, scale, arrows) in [
            (9.0, 13.0, Scale::Linear, 0),
            (9.0, 1e6, Scale::Linear, 1),
            (-1e6, 1e6, Scale::Linear, 2),
            (9.0, 13.0, Scale::Log, 0),
            // No logarithmic axis has a place for 0.
            (0.0, 13.0, Scale::Log, 1),
            (1e-9, 1e9, Scale::Log, 2),
        ] {
            let html = drawn(low, high, scale);
            let found = html.matches("class=\"cut\"").count();
            assert_eq!(found, arrows, "{low}..{high} {scale:?}: {html}");
            assert_eq!(html.contains("An arrow at the edge"), arrows > 0, "{html}");
        }
    }

    #[test]
    fn a_long_label_takes_two_lines() {
        let x = Axis::new("time", "ns", Scale::Linear);
        let label = "blocking-read client, poll server, 50 us of work, two CPUs, a write per reply";
        let mut chart = Chart::of_rows("t", "a", x, vec![label.to_owned()]);
        let mut layer = Layer::new("", 0);
        layer.shapes = vec![Shape::Marks(vec![(1.0, 0.0)])];
        chart.layers = vec![layer];
        let html = chart.html();
        assert!(html.contains(">write per reply</text>"), "{html}");
        assert!(
            !html.contains(label) && !html.contains('\u{2026}'),
            "{html}"
        );
    }
}
