//! Drawing a chart with `plotters`, as SVG.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::element::EmptyElement;
use plotters::prelude::{
    Cartesian2d, ChartBuilder, ChartContext, Circle, Color, Cross, DashedLineSeries,
    DrawingAreaErrorKind, IntoDrawingArea, IntoFont, LineSeries, PathElement, Polygon, RGBColor,
    Rectangle, SVGBackend, ShapeStyle, Text, TriangleMarker,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Ticks;
use super::{Axis, Chart, INKS, Layer, Scale, Shape, Span};
use crate::html::write::{attribute, escaped, short};

/// Width in units of the picture; the page shows it about half as wide, so lines are fine.
const WIDTH: u32 = 960;
/// Height of a chart without rows.
const HEIGHT: u32 = 640;
/// Height of a row: its label, and what it shows below that.
const ROW: u32 = 80;
/// What rows have around them.
const AROUND_ROWS: u32 = 118;
/// Size of letters.
const LETTERS: u32 = 31;
/// `plotters` writes sizes divided by this.
const LETTER_FACTOR: f64 = 1.24;
/// Letters of a row's label that fit.
const ROW_LABEL: usize = 56;
/// Letters of an axis title that fit.
const AXIS_TITLE: usize = 44;
/// Parts of a span that two points of a line lie apart at least.
const FINE: f64 = 400.0;

/// Colours that the style sheet knows, beside [`INKS`].
const TEXT: RGBColor = RGBColor(0x11, 0x11, 0x11);
const MESH: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
const FAINT: RGBColor = RGBColor(0xEE, 0xEE, 0xEE);

/// An axis as `plotters` asks for it: places, and marks of our choice.
struct Laid {
    span: Span,
    ticks: Ticks,
}

impl Ranged for Laid {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (value - self.span.low) / (self.span.high - self.span.low);
        from + (share.clamp(-2.0, 3.0) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => self.ticks.fine.clone(),
            false => self.ticks.named.iter().map(|(place, _)| *place).collect(),
        }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.span.low..self.span.high
    }
}

impl ValueFormatter<f64> for Laid {
    fn format_ext(&self, value: &f64) -> String {
        let near = |place: f64| (place - value).abs() < 1e-9 * value.abs().max(1.0);
        let named = self.ticks.named.iter().find(|(place, _)| near(*place));
        named.map_or_else(String::new, |(_, label)| label.clone())
    }
}

type Coordinates = Cartesian2d<Laid, Laid>;
type Context<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Coordinates>;
type Error = DrawingAreaErrorKind<std::io::Error>;

/// The picture, with its words for who cannot see it.
pub(super) fn svg(chart: &Chart, x: Span, y: Span) -> String {
    let height = match chart.y.scale {
        Scale::Rows => AROUND_ROWS + ROW * chart.rows.len().max(1) as u32,
        Scale::Linear | Scale::Log | Scale::Tail => HEIGHT,
    };
    let (x_ticks, y_ticks) = (chart.x.ticks(x), chart.y.ticks(y));
    let titles = [
        title(&chart.x.title, &x_ticks.unit),
        title(&chart.y.title, &y_ticks.unit),
    ];
    let mut picture = String::new();
    if let Err(error) = paint(&mut picture, height, chart, (x, y), &titles) {
        return format!(
            "<p>this picture could not be drawn: {}</p>",
            escaped(&error.to_string())
        );
    }
    // The page's own frame instead of plotters': it scales, and says what it is.
    let inner = picture.split_once('>').map_or("", |(_, rest)| rest);
    format!(
        "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {height}\" aria-label=\"{}\" data-x=\"{}\" data-y=\"{}\">{inner}",
        attribute(&format!("{}. {}", chart.title, chart.about)),
        attribute(&titles[0]),
        attribute(&titles[1]),
    )
}

fn title(words: &str, unit: &str) -> String {
    let all = match unit {
        "" => words.to_owned(),
        unit => format!("{words}, {unit}"),
    };
    crate::text::plain(&short(&all, AXIS_TITLE))
}

fn letters(colour: RGBColor, size: u32) -> plotters::style::TextStyle<'static> {
    let font = ("sans-serif", f64::from(size) * LETTER_FACTOR).into_font();
    font.color(&colour)
}

fn paint(
    picture: &mut String,
    height: u32,
    chart: &Chart,
    (x, y): (Span, Span),
    titles: &[String; 2],
) -> Result<(), Error> {
    let root = SVGBackend::with_string(picture, (WIDTH, height)).into_drawing_area();
    let rows = chart.y.scale == Scale::Rows;
    let laid = |axis: &Axis, span: Span| Laid {
        span,
        ticks: axis.ticks(span),
    };
    let mut context = ChartBuilder::on(&root)
        .margin_top(24)
        .margin_right(50)
        .margin_left(4)
        .x_label_area_size(92)
        .y_label_area_size(if rows { 48 } else { 158 })
        .build_cartesian_2d(laid(&chart.x, x), laid(&chart.y, y))?;
    let mut mesh = context.configure_mesh();
    mesh.x_desc(titles[0].clone())
        .y_desc(titles[1].clone())
        .label_style(letters(TEXT, LETTERS - 2))
        .axis_desc_style(letters(TEXT, LETTERS))
        .axis_style(stroke(MESH, 2))
        .bold_line_style(stroke(MESH, 1))
        .light_line_style(stroke(FAINT, 1));
    if rows {
        mesh.disable_y_mesh();
    }
    mesh.draw()?;
    if let Some((at, _)) = &chart.rule
        && let Some(at) = chart.x.place(*at)
    {
        let line = vec![(at, y.low), (at, y.high)];
        context.draw_series(DashedLineSeries::new(line, 8, 8, stroke(TEXT, 2)))?;
    }
    for (index, label) in chart.rows.iter().enumerate() {
        let place = -(index as f64) + 0.5;
        let style = letters(TEXT, LETTERS - 3).pos(Pos::new(HPos::Left, VPos::Top));
        let label = crate::text::plain(&short(label, ROW_LABEL));
        context
            .draw_series([EmptyElement::at((x.low, place)) + Text::new(label, (8, 6), style)])?;
        let line = vec![(x.low, place), (x.high, place)];
        context.draw_series([PathElement::new(line, stroke(FAINT, 2))])?;
    }
    for layer in &chart.layers {
        for shape in &layer.shapes {
            self::shape(&mut context, chart, layer.ink, shape, (x, y))?;
        }
    }
    root.present()
}

fn stroke(colour: RGBColor, width: u32) -> ShapeStyle {
    ShapeStyle {
        color: colour.to_rgba(),
        filled: false,
        stroke_width: width,
    }
}

fn ink(number: usize) -> RGBColor {
    let digits = INKS[number % INKS.len()].trim_start_matches('#');
    let number = u32::from_str_radix(digits, 16).unwrap_or_default();
    let [_, red, green, blue] = number.to_be_bytes();
    RGBColor(red, green, blue)
}

/// Draws one shape of a series.
fn shape(
    context: &mut Context<'_, '_>,
    chart: &Chart,
    number: usize,
    shape: &Shape,
    (x, y): (Span, Span),
) -> Result<(), Error> {
    let colour = ink(number);
    let below = if chart.y.scale == Scale::Rows {
        0.18
    } else {
        0.0
    };
    let at = |(a, b): (f64, f64)| Some((chart.x.place(a)?, chart.y.place(b)? - below));
    // Beyond the edge nothing is drawn.
    let cut = |(a, b): (f64, f64)| (a.clamp(x.low, x.high), b.clamp(y.low, y.high));
    let thin = |points: &[(f64, f64)]| thinned(points.iter().filter_map(|&p| at(p)), x, y);
    match shape {
        Shape::Line(points) => {
            context.draw_series(LineSeries::new(thin(points), stroke(colour, 4)))?;
        }
        Shape::Dashed(points) => {
            context.draw_series(DashedLineSeries::new(thin(points), 6, 8, stroke(colour, 3)))?;
        }
        Shape::Marks(points) => {
            for place in points.iter().filter_map(|&point| at(point)) {
                mark(context, number, place)?;
            }
        }
        &Shape::Upright(place, low, high) => {
            if let (Some(low), Some(high)) = (at((place, low)), at((place, high))) {
                interval(context, colour, cut(low), cut(high), (8, 0))?;
            }
        }
        &Shape::Level(low, high, place) => {
            if let (Some(low), Some(high)) = (at((low, place)), at((high, place))) {
                interval(context, colour, cut(low), cut(high), (0, 8))?;
            }
        }
        &Shape::Bar(from, to, place) => {
            if let (Some((from, middle)), Some((to, _))) = (at((from, place)), at((to, place))) {
                let corners = [(from, middle + 0.17), (to, middle - 0.17)];
                context.draw_series([Rectangle::new(corners, colour.filled())])?;
            }
        }
        &Shape::Column(place, high) => {
            if let Some((middle, high)) = at((place, high)) {
                let column = vec![(middle, y.low), (middle, high)];
                context.draw_series([PathElement::new(column, stroke(colour, 10))])?;
            }
        }
    }
    Ok(())
}

/// A line between two places with a stroke of `cap` pixels to either side at its ends.
fn interval(
    context: &mut Context<'_, '_>,
    colour: RGBColor,
    low: (f64, f64),
    high: (f64, f64),
    cap: (i32, i32),
) -> Result<(), Error> {
    context.draw_series([PathElement::new(vec![low, high], stroke(colour, 3))])?;
    for end in [low, high] {
        let caps = vec![(-cap.0, -cap.1), cap];
        context.draw_series([EmptyElement::at(end) + PathElement::new(caps, stroke(colour, 3))])?;
    }
    Ok(())
}

/// The mark that goes with an ink: who cannot tell inks apart can tell these.
fn mark(context: &mut Context<'_, '_>, number: usize, place: (f64, f64)) -> Result<(), Error> {
    let colour = ink(number);
    let on = || EmptyElement::at(place);
    match number % INKS.len() {
        0 => context
            .draw_series([on() + Circle::new((0, 0), 8, colour.filled())])
            .map(drop),
        1 => context
            .draw_series([on() + TriangleMarker::new((0, 0), 11, colour.filled())])
            .map(drop),
        2 => context
            .draw_series([on() + Rectangle::new([(-7, -7), (7, 7)], colour.filled())])
            .map(drop),
        3 => {
            let diamond = vec![(0, -10), (10, 0), (0, 10), (-10, 0)];
            context
                .draw_series([on() + Polygon::new(diamond, colour.filled())])
                .map(drop)
        }
        4 => context
            .draw_series([on() + Cross::new((0, 0), 8, stroke(colour, 4))])
            .map(drop),
        _ => context
            .draw_series([on() + Circle::new((0, 0), 8, stroke(colour, 4))])
            .map(drop),
    }
}

/// Points that are too near the one before to be told apart are left out; the last one stays.
fn thinned(points: impl Iterator<Item = (f64, f64)>, x: Span, y: Span) -> Vec<(f64, f64)> {
    let near = |a: (f64, f64), b: (f64, f64)| {
        let apart = |a: f64, b: f64, span: Span| (a - b).abs() / (span.high - span.low);
        apart(a.0, b.0, x) < 1.0 / FINE && apart(a.1, b.1, y) < 1.0 / FINE
    };
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut last = None;
    for point in points {
        last = Some(point);
        if kept.last().is_none_or(|&before| !near(before, point)) {
            kept.push(point);
        }
    }
    if let Some(last) = last
        && kept.last() != Some(&last)
    {
        kept.push(last);
    }
    kept
}

/// A series' sign for the legend.
pub(super) fn sign(layer: &Layer) -> String {
    let colour = INKS[layer.ink % INKS.len()];
    let bars = layer
        .shapes
        .iter()
        .any(|s| matches!(s, Shape::Bar(..) | Shape::Column(..)));
    let lines = layer
        .shapes
        .iter()
        .any(|s| matches!(s, Shape::Line(_) | Shape::Dashed(_)));
    let marks = layer.shapes.iter().any(|s| matches!(s, Shape::Marks(_)));
    let mut inner = String::new();
    if bars {
        inner.push_str(&format!(
            "<rect x=\"2\" y=\"2\" width=\"20\" height=\"8\" fill=\"{colour}\"/>"
        ));
    }
    if lines {
        inner.push_str(&format!(
            "<path d=\"M0 6H24\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        ));
    }
    if marks {
        let (fill, open) = (
            format!("fill=\"{colour}\""),
            format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\""),
        );
        inner.push_str(&match layer.ink % INKS.len() {
            0 => format!("<circle cx=\"12\" cy=\"6\" r=\"4\" {fill}/>"),
            1 => format!("<path d=\"M12 1L17 10H7Z\" {fill}/>"),
            2 => format!("<path d=\"M8 2H16V10H8Z\" {fill}/>"),
            3 => format!("<path d=\"M12 1L17 6L12 11L7 6Z\" {fill}/>"),
            4 => format!("<path d=\"M8 2L16 10M16 2L8 10\" {open}/>"),
            _ => format!("<circle cx=\"12\" cy=\"6\" r=\"4\" {open}/>"),
        });
    }
    format!(
        "<svg class=\"sign\" viewBox=\"0 0 24 12\" width=\"24\" height=\"12\" aria-hidden=\"true\">{inner}</svg>"
    )
}

/// The sign of a rule for the legend.
pub(super) fn rule_sign() -> &'static str {
    "<svg class=\"sign\" viewBox=\"0 0 24 12\" width=\"24\" height=\"12\" aria-hidden=\"true\"><path d=\"M12 0V12\" \
     stroke=\"#111111\" stroke-width=\"2\" stroke-dasharray=\"3 2\"/></svg>"
}
