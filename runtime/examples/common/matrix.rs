//! Dense matrices of one process, from Matrix Market files or generated.
//!
//! Reads `matrix coordinate|array real|integer|pattern general|symmetric|skew-symmetric`; complex ones are refused.
//! The format: <https://math.nist.gov/MatrixMarket/formats.html>.

use std::io;
use std::path::{Path, PathBuf};

/// More elements than this are refused, before memory for them is asked for.
const ELEMENTS_MAX: usize = 1 << 28;

/// A dense matrix, row by row.
#[derive(Debug)]
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    elements: Vec<f64>,
}

/// Why a Matrix Market file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    #[error("{}: {error}", file.display())]
    Unreadable { file: PathBuf, error: io::Error },
    #[error("{}: its first line is not that of a Matrix Market file with a real matrix", file.display())]
    BadHeader { file: PathBuf },
    #[error("{}: the line of sizes is missing, makes no sense, or asks for too large a matrix", file.display())]
    BadSizes { file: PathBuf },
    #[error("{}: line {line} is not an entry of this matrix", file.display())]
    BadEntry { file: PathBuf, line: usize },
    #[error("{}: there are {found} entries, not {expected}", file.display())]
    WrongCount { file: PathBuf, found: usize, expected: usize },
}

/// What stands in the first line.
#[derive(Clone, Copy)]
struct Header {
    coordinate: bool,
    pattern: bool,
    /// By what an element is multiplied to give the one across the diagonal; `None` if both are in the file.
    mirror: Option<f64>,
}

impl Matrix {
    /// All elements zero.
    pub fn zero(rows: usize, columns: usize) -> Matrix {
        Matrix { rows, columns, elements: vec![0.0; rows * columns] }
    }

    /// A square one with whole numbers from -8 to 8, the same for the same seed everywhere.
    pub fn generate(size: usize, seed: u64) -> Matrix {
        let number = |place: usize| {
            // The finalizer of splitmix64: neighbours get unlike numbers.
            let mut bits = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed << 32);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((bits ^ (bits >> 31)) % 17) as f64 - 8.0
        };
        Matrix { rows: size, columns: size, elements: (0..size * size).map(number).collect() }
    }

    /// Reads a Matrix Market file.
    pub fn read(file: &Path) -> Result<Matrix, MatrixError> {
        let unreadable = |error| MatrixError::Unreadable { file: file.to_owned(), error };
        Matrix::parse(&std::fs::read_to_string(file).map_err(unreadable)?, file)
    }

    fn parse(text: &str, file: &Path) -> Result<Matrix, MatrixError> {
        let mut lines = text.lines().enumerate();
        let header = lines.next().and_then(|(_, line)| Header::parse(line));
        let header = header.ok_or_else(|| MatrixError::BadHeader { file: file.to_owned() })?;
        let mut lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('%'));
        let sizes = lines.next().and_then(|(_, line)| header.sizes(line));
        let (mut matrix, expected) = sizes.ok_or_else(|| MatrixError::BadSizes { file: file.to_owned() })?;
        let mut places = header.array_places(matrix.rows, matrix.columns);
        let mut found = 0;
        for (number, line) in lines {
            let entry = if found < expected { header.entry(line, places.next()) } else { None };
            let inside = entry.filter(|(row, column, _)| *row < matrix.rows && *column < matrix.columns);
            let bad = || MatrixError::BadEntry { file: file.to_owned(), line: number + 1 };
            let (row, column, value) = inside.ok_or_else(bad)?;
            found += 1;
            // Entries that stand twice are added up, as finite elements want it.
            matrix.elements[row * matrix.columns + column] += value;
            if let Some(sign) = header.mirror.filter(|_| row != column) {
                matrix.elements[column * matrix.columns + row] += sign * value;
            }
        }
        if found == expected {
            return Ok(matrix);
        }
        Err(MatrixError::WrongCount { file: file.to_owned(), found, expected })
    }

    pub fn elements(&self) -> &[f64] {
        &self.elements
    }

    pub fn elements_mut(&mut self) -> &mut [f64] {
        &mut self.elements
    }

    pub fn row(&self, row: usize) -> &[f64] {
        &self.elements[row * self.columns..(row + 1) * self.columns]
    }

    /// The largest absolute value.
    pub fn largest(&self) -> f64 {
        self.elements.iter().fold(0.0, |largest, element| largest.max(element.abs()))
    }

    /// Where the element with the largest absolute value stands.
    pub fn place_of_largest(&self) -> usize {
        let size = |place: &usize| self.elements[*place].abs();
        (0..self.elements.len()).max_by(|left, right| size(left).total_cmp(&size(right))).unwrap_or(0)
    }

    /// The largest difference of two elements; not a number if one of them is none.
    pub fn difference(&self, other: &Matrix) -> f64 {
        let pairs = self.elements.iter().zip(&other.elements);
        let differences = pairs.map(|(left, right)| (left - right).abs());
        differences.fold(0.0, |largest, next| if next > largest || next.is_nan() { next } else { largest })
    }
}

impl Header {
    fn parse(line: &str) -> Option<Header> {
        let words: Vec<String> = line.split_whitespace().map(str::to_lowercase).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let [banner, "matrix", format, field, symmetry] = words[..] else { return None };
        let coordinate = match format {
            "coordinate" => true,
            "array" => false,
            _ => return None,
        };
        let pattern = match field {
            "real" | "integer" => false,
            // Only a list of places can be without values.
            "pattern" if coordinate => true,
            _ => return None,
        };
        let mirror = match symmetry {
            "general" => None,
            "symmetric" => Some(1.0),
            "skew-symmetric" => Some(-1.0),
            _ => return None,
        };
        (banner == "%%matrixmarket").then_some(Header { coordinate, pattern, mirror })
    }

    /// The empty matrix, and how many entries there will be.
    fn sizes(self, line: &str) -> Option<(Matrix, usize)> {
        let numbers: Vec<usize> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let (rows, columns, count) = match numbers[..] {
            [rows, columns, count] if self.coordinate => (rows, columns, count),
            [rows, columns] if !self.coordinate => (rows, columns, self.array_entries(rows, columns)?),
            _ => return None,
        };
        let elements = rows.checked_mul(columns).filter(|elements| (1..=ELEMENTS_MAX).contains(elements))?;
        let fits = count <= elements && (self.mirror.is_none() || rows == columns);
        fits.then(|| (Matrix::zero(rows, columns), count))
    }

    /// How many entries an array has: where it is symmetric, those on and below the diagonal.
    fn array_entries(self, rows: usize, columns: usize) -> Option<usize> {
        match self.mirror {
            None => rows.checked_mul(columns),
            Some(sign) if sign > 0.0 => rows.checked_mul(rows.checked_add(1)?).map(|entries| entries / 2),
            Some(_) => rows.checked_mul(rows.checked_sub(1)?).map(|entries| entries / 2),
        }
    }

    /// Row, column and value of an entry, from 0. Those of an array have only values: `place` says where.
    fn entry(self, line: &str, place: Option<(usize, usize)>) -> Option<(usize, usize, f64)> {
        let mut words = line.split_whitespace();
        let (row, column) = if self.coordinate {
            let mut index = || words.next()?.parse::<usize>().ok()?.checked_sub(1);
            (index()?, index()?)
        } else {
            place?
        };
        let value = if self.pattern { 1.0 } else { words.next()?.parse().ok()? };
        words.next().is_none().then_some((row, column, value))
    }

    /// The places of an array in the order of its entries: column by column, from the diagonal if it is symmetric.
    fn array_places(self, rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
        let first = move |column: usize| match self.mirror {
            None => 0,
            Some(sign) if sign > 0.0 => column,
            Some(_) => column + 1,
        };
        (0..columns).flat_map(move |column| (first(column)..rows).map(move |row| (row, column)))
    }
}
