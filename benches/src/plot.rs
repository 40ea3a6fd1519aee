//! Curves as SVG.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::line::Line;

/// One axis.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) name: String,
    pub(crate) is_log: bool,
}

impl Axis {
    pub(crate) fn log(name: &str) -> Axis {
        Axis { name: name.to_owned(), is_log: true }
    }
}

/// A picture: named curves.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Curve>,
    /// Whether the first curve is drawn thicker than the others, and above them.
    pub(crate) first_stands_out: bool,
}

/// A name and its points.
pub(crate) type Curve = (String, Vec<(f64, f64)>);

/// Points by the name that each line has, in the order in which names first come.
pub(crate) fn series(
    lines: &[&Line],
    name: impl Fn(&Line) -> String,
    point: impl Fn(&Line) -> Option<(f64, f64)>,
) -> Vec<Curve> {
    let mut all: Vec<Curve> = Vec::new();
    for line in lines {
        let (name, Some(point)) = (name(line), point(line)) else { continue };
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => all.push((name, vec![point])),
        }
    }
    for (_, points) in &mut all {
        points.sort_by(|left, right| left.0.total_cmp(&right.0));
    }
    all
}

const SIZE: (u32, u32) = (900, 540);
/// Dots for the names of the curves.
const LEGEND_DOTS: u32 = 200;
/// Curves of one picture that are told apart.
pub(crate) const CURVES_MAX: usize = 8;
/// Colours that are told apart by those who see red and green alike, too (Okabe and Ito).
const COLOURS: [RGBColor; CURVES_MAX] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 60),
];

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// Draws it.
pub(crate) fn draw(picture: &Picture) -> String {
    let mut text = String::new();
    draw_into(picture, &mut text).expect("drawing into memory does not fail");
    text
}

fn draw_into<'a>(picture: &Picture, text: &'a mut String) -> Drawn<'a> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (chart, legend) = area.split_horizontally(SIZE.0 - LEGEND_DOTS);
    // Logarithms are drawn on plain axes whose labels say the numbers: so any mixture of axes is one kind of chart.
    let place = |axis: &Axis, value: f64| if axis.is_log { value.max(1e-6).log10() } else { value };
    let points: Vec<Vec<(f64, f64)>> = picture
        .series
        .iter()
        .map(|(_, points)| points.iter().map(|(x, y)| (place(&picture.x, *x), place(&picture.y, *y))).collect())
        .collect();
    let (x, y) = (
        range(&picture.x, points.iter().flatten().map(|point| point.0)),
        range(&picture.y, points.iter().flatten().map(|point| point.1)),
    );
    let mut chart = ChartBuilder::on(&chart)
        .caption(&picture.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(Ticked::new(&picture.x, x), Ticked::new(&picture.y, y))?;
    let label = |axis: &Axis, value: f64| number(if axis.is_log { 10_f64.powf(value) } else { value });
    chart
        .configure_mesh()
        .x_desc(&picture.x.name)
        .y_desc(&picture.y.name)
        .x_label_formatter(&|value| label(&picture.x, *value))
        .y_label_formatter(&|value| label(&picture.y, *value))
        .light_line_style(TRANSPARENT)
        .draw()?;
    // What is drawn last lies above.
    for (index, points) in points.iter().enumerate().rev() {
        let colour = COLOURS[index % COLOURS.len()];
        let thicker = if picture.first_stands_out && index == 0 { 2 } else { 0 };
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2 + thicker)))?;
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3 + thicker as i32, colour.filled())))?;
    }
    draw_legend(picture, &legend)?;
    area.present()
}

fn draw_legend<'a>(picture: &Picture, area: &DrawingArea<SVGBackend<'a>, Shift>) -> Drawn<'a> {
    for (index, (name, _)) in picture.series.iter().enumerate() {
        let (colour, y) = (COLOURS[index % COLOURS.len()], 46 + 18 * index as i32);
        area.draw(&PathElement::new(vec![(0, y), (22, y)], colour.stroke_width(3)))?;
        area.draw(&Text::new(name.clone(), (28, y - 6), ("sans-serif", 13)))?;
    }
    Ok(())
}

/// An axis with its numbers where [`ticks`] says.
struct Ticked {
    values: RangedCoordf64,
    ticks: Vec<f64>,
}

impl Ticked {
    fn new(axis: &Axis, (from, to): (f64, f64)) -> Ticked {
        Ticked { values: (from..to).into(), ticks: ticks(axis, (from, to)) }
    }
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, pixels: (i32, i32)) -> i32 {
        self.values.map(value, pixels)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Those between them have lines that are not seen.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.values.range()
    }
}

/// Decades of a logarithmic axis that are cut at 1, 2 and 5; of more, each power of ten.
const FINE_DECADES_MAX: f64 = 3.0;
/// Ticks of a plain axis, about.
const TICKS: f64 = 8.0;

/// Where an axis has numbers: at 1, 2 and 5, or whole powers of ten.
fn ticks(axis: &Axis, (from, to): (f64, f64)) -> Vec<f64> {
    if !axis.is_log {
        let wanted = (to - from) / TICKS;
        let power = 10_f64.powf(wanted.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= wanted * 0.999);
        let step = step.expect("ten of the next smaller power are enough");
        return (0..).map(|index| f64::from(index) * step).take_while(|tick| *tick <= to).collect();
    }
    let digits: &[f64] = if to - from > FINE_DECADES_MAX { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = (from.floor() as i32)..=(to.ceil() as i32);
    let all = powers.flat_map(|power| digits.iter().map(move |digit| f64::from(power) + digit.log10()));
    all.filter(|tick| (from..=to).contains(tick)).collect()
}

/// From where to where an axis goes: little further than the values.
fn range(axis: &Axis, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values {
        (least, most) = (least.min(value), most.max(value));
    }
    if !axis.is_log {
        return (0.0, if most > 0.0 { most * 1.05 } else { 1.0 });
    }
    if least > most {
        return (0.0, 1.0);
    }
    // A single value has a decade around it.
    let margin = ((most - least) * 0.04).max(if most - least < 0.5 { 0.5 } else { 0.0 });
    (least - margin, most + margin)
}

/// A number as short as it can be read.
fn number(value: f64) -> String {
    match value {
        value if value >= 999_500.0 => format!("{} M", short(value / 1e6)),
        value if value >= 999.5 => format!("{} k", short(value / 1e3)),
        value => short(value),
    }
}

fn short(value: f64) -> String {
    let text = if value < 1.0 { format!("{value:.3}") } else { format!("{value:.1}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 0.001, 8.0, 12.5, 1000.0, 4e6].map(number), ["0", "0.001", "8", "12.5", "1 k", "4 M"]);
    }

    #[test]
    fn ticks_are_at_1_2_and_5_and_at_whole_powers_of_long_axes() {
        let (log, plain) = (Axis::log("bytes"), Axis { name: "MB/s".into(), is_log: false });
        let numbers = |axis: &Axis, range| -> Vec<String> {
            ticks(axis, range).iter().map(|tick| number(if axis.is_log { 10_f64.powf(*tick) } else { *tick })).collect()
        };
        assert_eq!(numbers(&log, (0.2, 2.1)), ["2", "5", "10", "20", "50", "100"]);
        assert_eq!(numbers(&log, (0.8, 6.7)), ["10", "100", "1 k", "10 k", "100 k", "1 M"]);
        assert_eq!(numbers(&plain, (0.0, 42.0)), ["0", "10", "20", "30", "40"]);
        assert_eq!(numbers(&plain, (0.0, 1600.0)), ["0", "200", "400", "600", "800", "1 k", "1.2 k", "1.4 k", "1.6 k"]);
    }

    #[test]
    fn an_axis_ends_near_its_values() {
        let log = Axis::log("bytes");
        let (from, to) = range(&log, [0.9, 6.6].into_iter());
        assert!(from > 0.6 && from < 0.9 && to > 6.6 && to < 6.9, "{from} to {to}");
        assert_eq!(range(&log, [2.0].into_iter()), (1.5, 2.5));
        assert_eq!(range(&log, std::iter::empty()), (0.0, 1.0));
    }

    #[test]
    fn a_picture_names_its_curves_and_its_axes() {
        let picture = Picture {
            title: "a title".into(),
            x: Axis::log("bytes"),
            y: Axis { name: "MB/s".into(), is_log: false },
            series: vec![("put".into(), vec![(8.0, 1.0), (64.0, 3.0)]), ("nothing".into(), Vec::new())],
            first_stands_out: false,
        };
        let text = draw(&picture);
        for word in ["a title", "bytes", "MB/s", "put", "nothing", "polyline"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(draw(&Picture { series: Vec::new(), ..picture }).contains("a title"));
    }
}
