//! The traffic matrix as a picture: one square a pair, the darker the more bytes, on a logarithmic scale.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Matrix, Report};
use crate::units;

/// More ranks than this are drawn by node: their squares would be smaller than a dot.
const RANKS_MAX: usize = 256;
/// Side of the whole matrix in dots, about.
const SIDE_DOTS: i32 = 640;
/// Space for labels on the left, and for the titles above.
const MARGIN_DOTS: i32 = 80;
/// Space for the scale on the right.
const SCALE_DOTS: i32 = 130;
/// About how many labels fit along a side.
const LABELS_MAX: usize = 32;

/// The lightest and the darkest colour of traffic. No traffic is almost white.
const LIGHT: RGBColor = RGBColor(198, 219, 239);
const DARK: RGBColor = RGBColor(8, 48, 107);
const NOTHING: RGBColor = RGBColor(247, 247, 247);
const INK: RGBColor = RGBColor(40, 40, 40);

/// Draws the picture as SVG.
pub fn draw(report: &Report) -> String {
    let matrix = report.matrix(RANKS_MAX);
    let mut picture = String::new();
    let drawn = Picture::new(&matrix).draw(&mut picture);
    drawn.expect("drawing into memory does not fail");
    picture
}

/// Where things stand, in dots.
struct Picture<'a> {
    matrix: &'a Matrix,
    square: i32,
    side: i32,
    least: u64,
    most: u64,
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Picture<'_> {
    fn new(matrix: &Matrix) -> Picture<'_> {
        let size = matrix.bytes.len().max(1) as i32;
        let square = (SIDE_DOTS / size).clamp(2, 64);
        let busy = || matrix.bytes.iter().flatten().copied().filter(|bytes| *bytes > 0);
        let (least, most) = (busy().min().unwrap_or(0), busy().max().unwrap_or(0));
        Picture { matrix, square, side: square * size, least, most }
    }

    fn draw<'a>(&self, picture: &'a mut String) -> Drawn<'a> {
        // The title needs some room even where the matrix is tiny.
        let width = (MARGIN_DOTS + self.side + SCALE_DOTS).max(420);
        let height = MARGIN_DOTS + self.side.max(160) + 20;
        let area = SVGBackend::with_string(picture, (width as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE)?;
        let unit = self.matrix.unit;
        let title = format!("bytes between {unit}s: row asked, column owns the memory");
        area.draw(&Text::new(title, (16, 14), text(16)))?;
        self.draw_squares(&area)?;
        self.draw_labels(&area)?;
        self.draw_scale(&area)?;
        area.present()
    }

    fn draw_squares<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        let (left, top) = (MARGIN_DOTS, MARGIN_DOTS);
        area.draw(&Rectangle::new([(left, top), (left + self.side, top + self.side)], NOTHING.filled()))?;
        for (row, line) in self.matrix.bytes.iter().enumerate() {
            for (column, bytes) in line.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
                let (x, y) = (left + column as i32 * self.square, top + row as i32 * self.square);
                // A gap between squares where there is room for one.
                let gap = i32::from(self.square > 6);
                let corners = [(x, y), (x + self.square - gap, y + self.square - gap)];
                area.draw(&Rectangle::new(corners, self.colour(*bytes).filled()))?;
            }
        }
        Ok(())
    }

    fn draw_labels<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        let unit = self.matrix.unit;
        let step = self.matrix.bytes.len().div_ceil(LABELS_MAX).max(1);
        let right_aligned = text(12).pos(Pos::new(HPos::Right, VPos::Center));
        let centred = text(12).pos(Pos::new(HPos::Center, VPos::Bottom));
        for index in (0..self.matrix.bytes.len()).step_by(step) {
            let middle = MARGIN_DOTS + index as i32 * self.square + self.square / 2;
            area.draw(&Text::new(index.to_string(), (MARGIN_DOTS - 6, middle), right_aligned.clone()))?;
            area.draw(&Text::new(index.to_string(), (middle, MARGIN_DOTS - 6), centred.clone()))?;
        }
        area.draw(&Text::new(unit, (16, MARGIN_DOTS - 18), text(12)))
    }

    fn draw_scale<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        const STEPS: i32 = 24;
        const STEP_DOTS: i32 = 5;
        let (left, top) = (MARGIN_DOTS + self.side + 20, MARGIN_DOTS);
        for step in 0..STEPS {
            let colour = shade(1.0 - f64::from(step) / f64::from(STEPS - 1));
            let y = top + step * STEP_DOTS;
            area.draw(&Rectangle::new([(left, y), (left + 16, y + STEP_DOTS)], colour.filled()))?;
        }
        let bottom = top + STEPS * STEP_DOTS;
        area.draw(&Text::new(units::bytes(self.most), (left + 22, top), text(12)))?;
        area.draw(&Text::new(units::bytes(self.least), (left + 22, bottom - 12), text(12)))?;
        area.draw(&Rectangle::new([(left, bottom + 12), (left + 16, bottom + 24)], NOTHING.filled()))?;
        area.draw(&Text::new("nothing", (left + 22, bottom + 12), text(12)))
    }

    fn colour(&self, bytes: u64) -> RGBColor {
        let range = (self.most as f64).ln() - (self.least as f64).ln();
        let above = (bytes as f64).ln() - (self.least as f64).ln();
        shade(if range > 0.0 { above / range } else { 1.0 })
    }
}

/// The colour at `part` of the way from light to dark.
fn shade(part: f64) -> RGBColor {
    let mix = |light: u8, dark: u8| (f64::from(light) + (f64::from(dark) - f64::from(light)) * part).round() as u8;
    RGBColor(mix(LIGHT.0, DARK.0), mix(LIGHT.1, DARK.1), mix(LIGHT.2, DARK.2))
}

fn text(dots: i32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", dots).into_font()).color(&INK)
}

#[cfg(test)]
mod tests {
    use super::super::tests::ring;
    use super::*;

    #[test]
    fn the_picture_has_a_dark_square_for_each_pair_that_talked() {
        let picture = draw(&ring(4));
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
        // All pairs moved the same, so all four have the darkest colour, and so has the top of the scale.
        assert_eq!(picture.matches("#08306B").count(), 5, "{picture}");
    }

    #[test]
    fn more_traffic_is_darker() {
        let matrix = Matrix { unit: "rank", bytes: vec![vec![1, 1000], vec![1_000_000, 0]] };
        let picture = Picture::new(&matrix);
        let green = |bytes| picture.colour(bytes).1;
        assert!(green(1) > green(1000) && green(1000) > green(1_000_000));
        assert_eq!((picture.colour(1), picture.colour(1_000_000)), (LIGHT, DARK));
    }

    #[test]
    fn a_job_without_traffic_and_a_very_large_one_can_be_drawn() {
        let mut quiet = ring(2);
        quiet.flows.clear();
        assert!(draw(&quiet).contains("nothing"));
        assert!(draw(&ring(300)).contains("bytes between nodes"));
    }
}
