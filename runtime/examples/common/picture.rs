//! A field of numbers as a PNG file.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// From cold to hot: dark blue, violet, red, orange, pale yellow. The lightness rises evenly, so that the picture
/// reads in grey too.
const COLOURS: [[f64; 3]; 9] = [
    [4.0, 4.0, 22.0],
    [29.0, 17.0, 71.0],
    [81.0, 18.0, 124.0],
    [130.0, 37.0, 129.0],
    [182.0, 54.0, 121.0],
    [229.0, 80.0, 100.0],
    [251.0, 135.0, 97.0],
    [254.0, 194.0, 135.0],
    [252.0, 253.0, 191.0],
];

/// Writes a field of `columns` columns, drawn from `coldest` to `hottest`, each cell as a square of `scale` pixels.
pub fn write(
    file: &Path,
    field: &[f64],
    columns: usize,
    (coldest, hottest): (f64, f64),
    scale: usize,
) -> Result<(), png::EncodingError> {
    let rows = field.len() / columns;
    let mut encoder =
        png::Encoder::new(BufWriter::new(File::create(file)?), (columns * scale) as u32, (rows * scale) as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut pixels = Vec::with_capacity(field.len() * scale * scale * 3);
    for row in field.chunks_exact(columns) {
        let line: Vec<u8> = row
            .iter()
            .flat_map(|value| [colour((value - coldest) / (hottest - coldest))].repeat(scale))
            .flatten()
            .collect();
        pixels.extend(line.repeat(scale));
    }
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()
}

/// The colour of a value from 0 to 1.
fn colour(value: f64) -> [u8; 3] {
    let place = value.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f64;
    let below = (place as usize).min(COLOURS.len() - 2);
    let part = place - below as f64;
    std::array::from_fn(|channel| {
        let (low, high) = (COLOURS[below][channel], COLOURS[below + 1][channel]);
        (low + (high - low) * part).round() as u8
    })
}
