//! Charts: what is to be seen, as data; [`draw`] makes a picture of it.
//!
//! A chart is an SVG in the page. Its colours are *inks*: the page's style sheet says what each looks like on light
//! and on dark paper, by the colour that stands in the SVG.

mod axis;
mod draw;

use super::write::{Table, attribute, escaped};

pub(super) use axis::{Axis, Scale, Span};

/// Inks of series, by number: Okabe and Ito's colours, which people with any kind of colour vision can tell apart, those
/// first that stand out on white.
pub(super) const INKS: [&str; 6] = [
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#010101",
];

/// Series that a chart can hold.
pub(super) const MOST: usize = INKS.len();

/// Something drawn. Coordinates are values, x first.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// A line through points.
    Line(Vec<(f64, f64)>),
    /// A broken line through points.
    Dashed(Vec<(f64, f64)>),
    /// The series' mark at points.
    Marks(Vec<(f64, f64)>),
    /// An interval along y: x, low, high.
    Upright(f64, f64, f64),
    /// An interval along x: low, high, y.
    Level(f64, f64, f64),
    /// A bar of a row along x: from, to, y.
    Bar(f64, f64, f64),
    /// A column along y, whose foot is the axis: x, height.
    Column(f64, f64),
}

/// What belongs together: one ink, one mark, one entry of the legend.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// Its name in the legend.
    pub(super) name: String,
    /// Index of its ink, and of its mark; beyond [`MOST`] they begin again.
    pub(super) ink: usize,
    /// What is drawn.
    pub(super) shapes: Vec<Shape>,
}

/// A chart with its words and its figures.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    /// Heading.
    pub(super) title: String,
    /// What is to be seen, in a sentence or two: under the picture, and instead of it for who cannot see it.
    pub(super) about: String,
    /// Along the bottom.
    pub(super) x: Axis,
    /// Along the left side.
    pub(super) y: Axis,
    /// Labels of rows, where y has rows; from the top.
    pub(super) rows: Vec<String>,
    /// What is drawn, in this order.
    pub(super) layers: Vec<Layer>,
    /// A broken line at this x, with its name in the legend.
    pub(super) rule: Option<(f64, String)>,
    /// The same figures to read.
    pub(super) table: Table,
    /// Spans of both axes, where other charts are to have the same.
    pub(super) spans: Option<(Span, Span)>,
}

impl Chart {
    /// Spans of both axes that hold all that is drawn; `None` where nothing can be. An interval that few runs leave very
    /// wide does not press all else together: it is cut at the edge.
    fn needs(&self) -> Option<(Span, Span)> {
        let places = |ends: bool| -> Vec<(f64, f64)> {
            self.layers
                .iter()
                .flat_map(|layer| layer.points(ends))
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

    /// The chart as part of a page; empty where there is nothing to draw.
    pub(super) fn html(&self) -> String {
        let Some(needs) = self.needs() else {
            return String::new();
        };
        let (x, y) = self.spans.unwrap_or(needs);
        let picture = draw::svg(self, x, y);
        format!(
            "<figure class=\"chart\"><figcaption><b>{}</b></figcaption>\n{picture}{}<p class=\"about\">{}</p>\n\
             <details><summary>Figures<span class=\"away\"> of {0}</span></summary>{}</details></figure>\n",
            escaped(&self.title),
            self.legend(),
            escaped(&self.about),
            self.table.html(&self.title),
        )
    }

    /// Names beside marks; empty where there is one without a name.
    fn legend(&self) -> String {
        let named: Vec<&Layer> = self.layers.iter().filter(|l| !l.name.is_empty()).collect();
        if named.is_empty() && self.rule.is_none() {
            return String::new();
        }
        let entry = |layer: &&Layer| {
            let sign = draw::sign(layer);
            format!("<li>{sign}{}</li>", escaped(&layer.name))
        };
        let mut entries: String = named.iter().map(entry).collect();
        if let Some((_, label)) = &self.rule {
            entries.push_str(&format!("<li>{}{}</li>", draw::rule_sign(), escaped(label)));
        }
        format!(
            "<ul class=\"legend\" aria-label=\"{}\">{entries}</ul>\n",
            attribute("Legend")
        )
    }
}

/// Gives all charts the spans that hold each of them, so that they can be compared by eye.
pub(super) fn alike(charts: &mut [Chart]) {
    let join = |a: Span, b: Span| Span {
        low: a.low.min(b.low),
        high: a.high.max(b.high),
    };
    let all = charts
        .iter()
        .filter_map(Chart::needs)
        .reduce(|(ax, ay), (bx, by)| (join(ax, bx), join(ay, by)));
    for chart in charts {
        chart.spans = all;
    }
}

impl Layer {
    /// A series of no shape yet.
    pub(super) fn new(name: impl Into<String>, ink: usize) -> Layer {
        Layer {
            name: name.into(),
            ink,
            shapes: Vec::new(),
        }
    }

    /// Corners of what is drawn: ends of intervals, or of all else.
    fn points(&self, ends: bool) -> Vec<(f64, f64)> {
        let corners = |shape: &Shape| match shape {
            &Shape::Upright(x, low, high) if ends => vec![(x, low), (x, high)],
            &Shape::Level(low, high, y) if ends => vec![(low, y), (high, y)],
            Shape::Upright(..) | Shape::Level(..) => Vec::new(),
            _ if ends => Vec::new(),
            Shape::Line(points) | Shape::Dashed(points) | Shape::Marks(points) => points.clone(),
            &Shape::Bar(low, high, y) => vec![(low, y), (high, y)],
            &Shape::Column(x, high) => vec![(x, high)],
        };
        self.shapes.iter().flat_map(corners).collect()
    }
}
