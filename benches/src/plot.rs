//! Curves as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;

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
    pub(crate) series: Vec<(String, Vec<(f64, f64)>)>,
}

const SIZE: (u32, u32) = (900, 540);
/// Dots for the names of the curves.
const LEGEND_DOTS: u32 = 200;
/// Colours that are told apart by those who see red and green alike, too (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
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
        .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
    let label = |axis: &Axis, value: f64| number(if axis.is_log { 10_f64.powf(value) } else { value });
    chart
        .configure_mesh()
        .x_desc(&picture.x.name)
        .y_desc(&picture.y.name)
        .x_label_formatter(&|value| label(&picture.x, *value))
        .y_label_formatter(&|value| label(&picture.y, *value))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (index, points) in points.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
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

/// From where to where an axis goes.
fn range(axis: &Axis, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values {
        (least, most) = (least.min(value), most.max(value));
    }
    if !axis.is_log {
        return (0.0, if most > 0.0 { most * 1.05 } else { 1.0 });
    }
    if least > most { (0.0, 1.0) } else { (least.floor(), most.ceil().max(least.floor() + 1.0)) }
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
    fn a_picture_names_its_curves_and_its_axes() {
        let picture = Picture {
            title: "a title".into(),
            x: Axis::log("bytes"),
            y: Axis { name: "MB/s".into(), is_log: false },
            series: vec![("put".into(), vec![(8.0, 1.0), (64.0, 3.0)]), ("nothing".into(), Vec::new())],
        };
        let text = draw(&picture);
        for word in ["a title", "bytes", "MB/s", "put", "nothing", "polyline"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(draw(&Picture { series: Vec::new(), ..picture }).contains("a title"));
    }
}
