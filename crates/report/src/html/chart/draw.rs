//! Draws a chart as SVG.

use std::fmt::{Display, Write as _};

use super::{Axis, Chart, INKS, Layer, MOST, Point, Scale, Shape, Span};
use crate::html::write::{escaped, short};

/// Width in units of the picture; the page shows it about half as wide, so lines are fine.
const WIDTH: i32 = 960;
/// Height of a chart without rows.
const HEIGHT: i32 = 640;
/// Height of what a row shows, below its label.
pub(super) const ROW: i32 = 36;
/// The same where the marks of several series stand below each other.
pub(super) const ROW_OF_SEVERAL: i32 = 52;
/// Height of a line of a row's label.
const LABEL: i32 = 32;
/// Lines of a row's label.
const MOST_LABEL_LINES: usize = 2;
/// Room above the plot.
const ABOVE: i32 = 24;
/// Room on its right.
const RIGHT: i32 = 50;
/// Room below it, for labels and title.
const BELOW: i32 = 94;
/// Size of the letters of axis titles; labels are smaller.
const LETTERS: i32 = 31;
/// Letters that fit into a line of a row's label.
const ROW_LABEL: usize = 62;
/// Letters of an axis title that fit.
const AXIS_TITLE: usize = 44;
/// Parts of a span that two points of a line lie apart at least.
const FINE: f64 = 400.0;

/// Colours that the style sheet knows, beside [`INKS`].
const TEXT: &str = "#111111";
const MESH: &str = "#DDDDDD";
const FAINT: &str = "#EEEEEE";

/// The picture in the making: the plot's edges in units of the picture, and the spans of values between them.
struct Drawing<'c> {
    chart: &'c Chart,
    x: Span,
    y: Span,
    left: i32,
    bottom: i32,
    /// Lines of each row's label.
    labels: Vec<Vec<String>>,
    /// Share of a row's height that its label takes.
    label_share: f64,
    svg: String,
}

/// Returns the picture with a text for people who cannot see it.
pub(super) fn svg(chart: &Chart, x: Span, y: Span) -> String {
    let rows = chart.y.scale == Scale::Rows;
    let labels: Vec<Vec<String>> = chart.rows.iter().map(|label| label_lines(label)).collect();
    let label = LABEL * labels.iter().map(Vec::len).max().unwrap_or(1) as i32;
    let row = label + chart.row_height();
    let height = match rows {
        true => ABOVE + BELOW + row * chart.rows.len().max(1) as i32,
        false => HEIGHT,
    };
    let mut drawing = Drawing {
        chart,
        x,
        y,
        left: if rows { 20 } else { 162 },
        bottom: height - BELOW,
        labels,
        label_share: f64::from(label) / f64::from(row),
        svg: String::new(),
    };
    let (x_title, y_title) = drawing.axes(height);
    if let Some((value, _)) = &chart.rule
        && let Some(place) = chart.x.place(*value)
    {
        let ends = [(place, y.low), (place, y.high)];
        drawing.line(&ends, TEXT, 2, "8 8");
    }
    drawing.row_labels();
    for layer in &chart.layers {
        for shape in &layer.shapes {
            drawing.shape(layer.ink, shape);
        }
    }
    format!(
        "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {height}\" aria-label=\"{}\" data-x=\"{x_title}\" data-y=\"{y_title}\">\n{}</svg>\n",
        escaped(&format!("{}. {}", chart.title, chart.about)),
        drawing.svg,
    )
}

impl Drawing<'_> {
    /// Returns where a place lies, in units of the picture.
    fn at(&self, (x, y): Point) -> (i32, i32) {
        let across = |place: f64, span: Span, (from, to): (i32, i32)| {
            let share = (place - span.low) / (span.high - span.low);
            from + (share.clamp(-2.0, 3.0) * f64::from(to - from)).round() as i32
        };
        (
            across(x, self.x, (self.left, WIDTH - RIGHT)),
            across(y, self.y, (self.bottom, ABOVE)),
        )
    }

    fn add(&mut self, element: impl Display) {
        // A string takes what is written to it.
        let _ = writeln!(self.svg, "{element}");
    }

    /// Writes a text; `anchor` says which of its ends is at (x, y), the foot of its letters.
    fn text(&mut self, (x, y): (i32, i32), size: i32, anchor: &str, more: &str, text: &str) {
        self.add(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-family=\"sans-serif\" font-size=\"{size}\" fill=\"{TEXT}\" \
             text-anchor=\"{anchor}\"{more}>{}</text>",
            escaped(text)
        ));
    }

    /// Draws a line through places.
    fn line(&mut self, places: &[Point], colour: &str, width: i32, dashes: &str) {
        let points: Vec<(i32, i32)> = places.iter().map(|&place| self.at(place)).collect();
        self.polyline(&points, colour, width, dashes);
    }

    fn polyline(&mut self, points: &[(i32, i32)], colour: &str, width: i32, dashes: &str) {
        if points.is_empty() {
            return;
        }
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "{x},{y} ");
        }
        let dashes = match dashes {
            "" => String::new(),
            dashes => format!(" stroke-dasharray=\"{dashes}\""),
        };
        let path = path.trim_end();
        self.add(format_args!(
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}/>"
        ));
    }

    /// Draws the mesh, the axes, their labels and titles; returns the titles.
    fn axes(&mut self, height: i32) -> (String, String) {
        let (x, y) = (self.x, self.y);
        let across = |place| [(place, y.low), (place, y.high)];
        let along = |place| [(x.low, place), (x.high, place)];
        let (x_ticks, y_ticks) = (self.chart.x.ticks(x), self.chart.y.ticks(y));
        for (places, colour) in [(&x_ticks.fine, FAINT), (&x_ticks.places(), MESH)] {
            for &place in places {
                self.line(&across(place), colour, 1, "");
            }
        }
        for (places, colour) in [(&y_ticks.fine, FAINT), (&y_ticks.places(), MESH)] {
            for &place in places {
                self.line(&along(place), colour, 1, "");
            }
        }
        for edge in [across(x.low), along(y.low)] {
            self.line(&edge, MESH, 2, "");
        }
        let (left, bottom) = (self.left, self.bottom);
        for (place, label) in &x_ticks.named {
            let (at, _) = self.at((*place, y.low));
            self.text((at, bottom + LETTERS + 3), LETTERS - 2, "middle", "", label);
        }
        for (place, label) in &y_ticks.named {
            let (_, at) = self.at((x.low, *place));
            self.text((left - 10, at + LETTERS / 3), LETTERS - 2, "end", "", label);
        }
        let title = |axis: &Axis, unit: &str| {
            let comma = if unit.is_empty() { "" } else { ", " };
            crate::text::plain(&short(&format!("{}{comma}{unit}", axis.title), AXIS_TITLE))
        };
        let titles = [
            title(&self.chart.x, &x_ticks.unit),
            title(&self.chart.y, &y_ticks.unit),
        ];
        let middle = i32::midpoint(left, WIDTH - RIGHT);
        self.text((middle, height - 14), LETTERS, "middle", "", &titles[0]);
        // Rows have labels of their own.
        if self.chart.y.scale != Scale::Rows {
            let (x, y) = (LETTERS, i32::midpoint(ABOVE, bottom));
            let upright = format!(" transform=\"rotate(270, {x}, {y})\"");
            self.text((x, y), LETTERS, "middle", &upright, &titles[1]);
        }
        let [x_title, y_title] = titles.map(|title| escaped(&title));
        (x_title, y_title)
    }

    fn row_labels(&mut self) {
        for (index, lines) in std::mem::take(&mut self.labels).into_iter().enumerate() {
            let place = 0.5 - index as f64;
            let (x, y) = self.at((self.x.low, place));
            for (line, below) in lines.iter().zip(1..) {
                let foot = y + LABEL * below - 4;
                self.text((x + 8, foot), LETTERS - 3, "start", "", line);
            }
            self.line(&[(self.x.low, place), (self.x.high, place)], FAINT, 2, "");
        }
    }

    /// Draws one shape of a series.
    fn shape(&mut self, number: usize, shape: &Shape) {
        let ink = INKS[number % INKS.len()];
        let (chart, x, y) = (self.chart, self.x, self.y);
        // A row's label stands above what the row shows, which lies in the rest of its height.
        let (rest, below) = match chart.y.scale {
            Scale::Rows => (1.0 - self.label_share, self.label_share / 2.0),
            _ => (1.0, 0.0),
        };
        let within = |place: f64| match chart.y.scale {
            Scale::Rows => place.round() + (place - place.round()) * rest - below,
            _ => place,
        };
        let place = |&(a, b): &Point| Some((chart.x.place(a)?, within(chart.y.place(b)?)));
        let places = |points: &[Point]| -> Vec<Point> { points.iter().filter_map(place).collect() };
        match shape {
            Shape::Line(points) => self.line(&thinned(&places(points), x, y), ink, 4, ""),
            Shape::Dashed(points) => self.line(&thinned(&places(points), x, y), ink, 3, "6 8"),
            Shape::Marks(points) => {
                for place in places(points) {
                    let at = self.at(place);
                    self.add(mark(number, at, 8));
                }
            }
            &Shape::Upright(at, low, high) => {
                if let Some(x) = chart.x.place(at) {
                    let ends = [low, high].map(|end| (x, chart.y.end(end)));
                    self.interval(ends, false, ink);
                }
            }
            &Shape::Level(low, high, at) => {
                if let Some(y) = chart.y.place(at).map(within) {
                    let ends = [low, high].map(|end| (chart.x.end(end), y));
                    self.interval(ends, true, ink);
                }
            }
            &Shape::Bar(from, to, at) => {
                if let [(from, middle), (to, _)] = places(&[(from, at), (to, at)])[..] {
                    let half = 0.42 * rest;
                    let ((left, top), (right, foot)) =
                        (self.at((from, middle + half)), self.at((to, middle - half)));
                    let (width, height) = ((right - left).max(0), foot - top);
                    self.add(format_args!(
                        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"{ink}\"/>"
                    ));
                }
            }
            &Shape::Band(from, to) => {
                if let (Some(from), Some(to)) = (chart.x.place(from), chart.x.place(to)) {
                    let ((left, top), (right, foot)) =
                        (self.at((from, y.high)), self.at((to, y.low)));
                    // Neighbouring occasions among thousands stay visible.
                    let (width, height) = ((right - left).max(4), foot - top);
                    self.add(format_args!(
                        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"{ink}\" opacity=\".35\"/>"
                    ));
                }
            }
            &Shape::Column(at, high) => {
                if let Some((middle, high)) = place(&(at, high)) {
                    self.line(&[(middle, y.low), (middle, high)], ink, 10, "");
                }
            }
        }
    }

    /// Draws a line between two places with a stroke across each end. An end beyond the plot is cut at its edge, where an
    /// arrow points on.
    fn interval(&mut self, ends: [Point; 2], level: bool, ink: &str) {
        let cut = ends.map(|(x, y)| {
            let within = (
                x.clamp(self.x.low, self.x.high),
                y.clamp(self.y.low, self.y.high),
            );
            (within, self.x.beyond(x), self.y.beyond(y))
        });
        self.line(&cut.map(|(place, ..)| place), ink, 3, "");
        for (place, right, up) in cut {
            let (x, y) = self.at(place);
            let arrow = match (right, up) {
                (0, 0) => None,
                (0, up) => Some(format!("M{x} {}l-9 {}h18Z", y - 8 * up, 16 * up)),
                (right, _) => Some(format!("M{} {y}l{} -9v18Z", x + 8 * right, -16 * right)),
            };
            match arrow {
                Some(path) => {
                    self.add(format_args!(
                        "<path class=\"cut\" d=\"{path}\" fill=\"{ink}\"/>"
                    ));
                }
                None if level => self.polyline(&[(x, y - 8), (x, y + 8)], ink, 3, ""),
                None => self.polyline(&[(x - 8, y), (x + 8, y)], ink, 3, ""),
            }
        }
    }
}

/// Returns a row's label in lines that fit; what does not fit into the last line is shown as cut.
fn label_lines(label: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in label.split_whitespace() {
        let fits = |line: &String| line.chars().count() + 1 + word.chars().count() <= ROW_LABEL;
        let last = lines.len() == MOST_LABEL_LINES;
        match lines.last_mut() {
            Some(line) if last || fits(line) => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| short(line, ROW_LABEL)).collect()
}

/// Returns the mark that goes with an ink, `r` wide to each side: who cannot tell inks apart can tell these.
fn mark(number: usize, (x, y): (i32, i32), r: i32) -> String {
    let ink = INKS[number % INKS.len()];
    let (fill, stroke) = (
        format!("fill=\"{ink}\""),
        format!("fill=\"none\" stroke=\"{ink}\" stroke-width=\"{}\"", r / 2),
    );
    let wide = r + r / 4;
    match number % MOST {
        0 => format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" {fill}/>"),
        1 => format!(
            "<path d=\"M{x} {}l{wide} {}h-{}Z\" {fill}/>",
            y - wide,
            wide + r,
            2 * wide
        ),
        2 => format!(
            "<path d=\"M{} {}h{}v{3}h-{3}Z\" {fill}/>",
            x - r,
            y - r,
            2 * r,
            2 * r
        ),
        3 => format!(
            "<path d=\"M{x} {}l{wide} {wide}l-{wide} {wide}l-{wide} -{wide}Z\" {fill}/>",
            y - wide
        ),
        4 => format!(
            "<path d=\"M{} {}l{2} {2}m0 -{2}l-{2} {2}\" {stroke}/>",
            x - r,
            y - r,
            2 * r
        ),
        _ => format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" {stroke}/>"),
    }
}

/// Drops points that lie too near the point before them to be seen apart, but for the last one.
fn thinned(points: &[Point], x: Span, y: Span) -> Vec<Point> {
    let near = |a: Point, b: Point| {
        let apart = |a: f64, b: f64, span: Span| (a - b).abs() / (span.high - span.low);
        apart(a.0, b.0, x) < 1.0 / FINE && apart(a.1, b.1, y) < 1.0 / FINE
    };
    let mut kept: Vec<Point> = Vec::new();
    for (index, &point) in points.iter().enumerate() {
        let last = index + 1 == points.len();
        if last || kept.last().is_none_or(|&before| !near(before, point)) {
            kept.push(point);
        }
    }
    kept
}

/// Returns a series' sign for the legend.
pub(super) fn sign(layer: &Layer) -> String {
    let ink = INKS[layer.ink % INKS.len()];
    let has = |which: fn(&Shape) -> bool| layer.shapes.iter().any(which);
    let mut inner = String::new();
    if has(|shape| matches!(shape, Shape::Bar(..) | Shape::Column(..))) {
        inner += &format!("<rect x=\"2\" y=\"2\" width=\"20\" height=\"8\" fill=\"{ink}\"/>");
    }
    if has(|shape| matches!(shape, Shape::Band(..))) {
        inner +=
            &format!("<rect x=\"2\" width=\"20\" height=\"12\" fill=\"{ink}\" opacity=\".35\"/>");
    }
    if has(|shape| matches!(shape, Shape::Line(_) | Shape::Dashed(_))) {
        inner += &format!("<path d=\"M0 6H24\" stroke=\"{ink}\" stroke-width=\"2\"/>");
    }
    if has(|shape| matches!(shape, Shape::Marks(_))) {
        inner += &mark(layer.ink, (12, 6), 4);
    }
    legend_sign(&inner)
}

/// Returns the sign of a rule for the legend.
pub(super) fn rule_sign() -> String {
    legend_sign(&format!(
        "<path d=\"M12 0V12\" stroke=\"{TEXT}\" stroke-width=\"2\" stroke-dasharray=\"3 2\"/>"
    ))
}

fn legend_sign(inner: &str) -> String {
    format!(
        "<svg class=\"sign\" viewBox=\"0 0 24 12\" width=\"24\" height=\"12\" aria-hidden=\"true\">{inner}</svg>"
    )
}
