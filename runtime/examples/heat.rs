//! Heat in a plate: halo exchange by put with signal.
//!
//! ```text
//! cargo build --release -p longarm --examples
//! longarm run -n 4 --nodes 2 target/release/examples/heat --size 384 --steps 1500 --out pictures
//! ```
//!
//! A heating wire in the form of a spiral lies in a cold plate. The plate is cut in rectangles over a grid of ranks.
//! In each step a rank puts the cells along its edges to its neighbours, each with a signal that tells the number of
//! the step. It computes its inner cells while the neighbours' edges arrive, waits for their signals, and computes
//! its own edges. There is no barrier: a rank is never more than one step ahead of its neighbours, so two inboxes a
//! side, used in turn, are enough.
//!
//! Every cell is computed by the same operations in the same order whatever the layout, so the hash of the final
//! field is always the same.

mod common;
#[path = "common/picture.rs"]
mod picture;

use std::error::Error;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use longarm::error::{RmwError, TransferError, WaitError};
use longarm::{Compare, Patch, Window, World};

use crate::common::{Shares, Verdict, grid_of, layout_of, start};

/// What a cell gets of the difference to its neighbours in a step; the scheme is stable up to a quarter.
const CONDUCTION: f64 = 0.24;
/// Temperatures of the plate's rim and of the wire.
const COLD: f64 = 20.0;
const HOT: f64 = 100.0;

/// Computes how a plate is heated, and draws it.
#[derive(Parser)]
#[command(name = "heat")]
struct Options {
    /// Rows and columns of the plate
    #[arg(long, default_value_t = 384, value_parser = clap::value_parser!(u32).range(8..=8192))]
    size: u32,
    /// Steps of time
    #[arg(long, default_value_t = 600)]
    steps: u64,
    /// Folder for the picture heat-<nodes>x<ranks of a node>.png
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    out: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum HeatError {
    #[error("a plate of {size} x {size} cells cannot be shared out to {rows} x {columns} ranks")]
    TooManyRanks { size: usize, rows: usize, columns: usize },
    #[error(transparent)]
    Send(#[from] RmwError),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error(transparent)]
    Read(#[from] TransferError),
}

fn main() -> ExitCode {
    start(run)
}

fn run(world: &World, options: Options) -> Result<Verdict, Box<dyn Error>> {
    let size = options.size as usize;
    let plate = Plate::new(size);
    let (rows, columns) = grid_of(world.size() as usize);
    if rows.max(columns) > size {
        return Ok(Verdict::Unusable(HeatError::TooManyRanks { size, rows, columns }.into()));
    }
    // The field as rank 0 wants to see it; the others have nothing there.
    let whole = world.allocate_collective::<f64>(if world.rank() == 0 { size * size } else { 0 })?;
    let mut piece = Piece::new(world, &plate)?;
    world.barrier_collective()?;
    let begin = Instant::now();
    for step in 1..=options.steps {
        piece.step(step)?;
    }
    world.barrier_collective()?;
    let elapsed = begin.elapsed();
    piece.hand_in(&whole)?;
    world.barrier_collective()?;
    if world.rank() != 0 {
        return Ok(Verdict::Right);
    }

    let field = whole.get_vec(0, 0..size * size)?;
    println!("{size} x {size} cells over a grid of {rows} x {columns}; {}", layout_of(world));
    let updates = (size * size) as f64 * options.steps as f64;
    let (seconds, steps) = (elapsed.as_secs_f64(), options.steps);
    println!("{steps} steps in {:.1} ms: {:.0} million cells a second", seconds * 1e3, updates / seconds / 1e6);
    let mean = field.iter().sum::<f64>() / field.len() as f64;
    println!("mean temperature {mean:.3}");
    std::fs::create_dir_all(&options.out)?;
    let file = options.out.join(format!("heat-{}x{}.png", world.node_count(), world.size() / world.node_count()));
    picture::write(&file, &field, size, (COLD, HOT), 512_usize.div_ceil(size))?;
    println!("picture: {}", file.display());

    let begin = Instant::now();
    let serial = plate.serial(options.steps);
    println!("serial: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    println!("hash of the field: {}", hash_of(&field));
    // To the last bit.
    if hash_of(&field) == hash_of(&serial) {
        return Ok(Verdict::Right);
    }
    let first = (0..field.len()).find(|cell| field[*cell].to_bits() != serial[*cell].to_bits()).unwrap_or(0);
    let place = (first / size, first % size);
    Ok(Verdict::Wrong(format!("the serial field has {} at {place:?}, not {}", serial[first], field[first])))
}

fn hash_of(field: &[f64]) -> String {
    let bytes: Vec<u8> = field.iter().flat_map(|value| value.to_le_bytes()).collect();
    blake3::hash(&bytes).to_hex()[..32].to_owned()
}

/// What is known of the plate from the start.
struct Plate {
    size: usize,
    /// Cells whose temperature stays: the wire and the rim.
    held: Vec<bool>,
    initial: Vec<f64>,
}

impl Plate {
    fn new(size: usize) -> Plate {
        let last = size - 1;
        let on_rim = |cell: usize| [0, last].contains(&(cell / size)) || [0, last].contains(&(cell % size));
        let mut held: Vec<bool> = (0..size * size).map(on_rim).collect();
        let mut initial = vec![COLD; size * size];
        for cell in wire(size) {
            (held[cell], initial[cell]) = (true, HOT);
        }
        Plate { size, held, initial }
    }

    /// The same by one process: what the answer has to be.
    fn serial(&self, steps: u64) -> Vec<f64> {
        let (mut field, mut fresh) = (self.initial.clone(), self.initial.clone());
        for _ in 0..steps {
            // The rim is held, so every other cell has four neighbours.
            for row in 1..self.size - 1 {
                sweep(&field, &mut fresh, self.size, row * self.size + 1..(row + 1) * self.size - 1);
                keep(&mut fresh, &field, &self.held, row * self.size..(row + 1) * self.size);
            }
            std::mem::swap(&mut field, &mut fresh);
        }
        field
    }
}

/// The cells under the wire: a spiral of three turns.
fn wire(size: usize) -> Vec<usize> {
    let centre = (size as f64 - 1.0) / 2.0;
    let thick = (size / 256) as isize;
    let points = 64 * size;
    let mut cells = Vec::new();
    for point in 0..points {
        let part = point as f64 / points as f64;
        let (angle, radius) = (part * 6.0 * std::f64::consts::PI, size as f64 * (0.03 + 0.37 * part));
        let (row, column) = (centre + radius * angle.sin(), centre + radius * angle.cos());
        for (down, right) in (-thick..=thick).flat_map(|down| (-thick..=thick).map(move |right| (down, right))) {
            let row = row.round() as isize + down;
            let column = column.round() as isize + right;
            cells.push(row as usize * size + column as usize);
        }
    }
    cells
}

/// One step for a run of cells in a field whose rows have `width` cells.
fn sweep(old: &[f64], new: &mut [f64], width: usize, cells: Range<usize>) {
    let above = &old[cells.start - width..cells.end - width];
    let below = &old[cells.start + width..cells.end + width];
    let middle = &old[cells.start - 1..cells.end + 1];
    for (place, fresh) in new[cells].iter_mut().enumerate() {
        let own = middle[place + 1];
        let around = (above[place] + below[place]) + (middle[place] + middle[place + 2]);
        *fresh = own + CONDUCTION * (around - 4.0 * own);
    }
}

/// Takes back what a step did to cells that are held.
fn keep(new: &mut [f64], old: &[f64], held: &[bool], cells: Range<usize>) {
    for cell in cells.filter(|cell| held[*cell]) {
        new[cell] = old[cell];
    }
}

/// A side of a rectangle. Its number is that of its inbox and of its signal.
#[derive(Clone, Copy)]
enum Side {
    Above,
    Below,
    Left,
    Right,
}

impl Side {
    const ALL: [Side; 4] = [Side::Above, Side::Below, Side::Left, Side::Right];

    fn opposite(self) -> Side {
        match self {
            Side::Above => Side::Below,
            Side::Below => Side::Above,
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// The rectangle of one rank, with one more cell on each side for what the neighbours tell.
struct Piece<'a> {
    world: &'a World,
    /// How the plate's rows and columns are shared out over the grid of ranks.
    grid: (Shares, Shares),
    rows: Range<usize>,
    columns: Range<usize>,
    old: Vec<f64>,
    new: Vec<f64>,
    held: Vec<bool>,
    neighbours: Vec<(Side, u32)>,
    /// Two inboxes a side, each of `inbox_cells`.
    inboxes: Window<f64>,
    inbox_cells: usize,
    /// One word a side: the last step whose edge has arrived there.
    signals: Window<u64>,
}

impl<'a> Piece<'a> {
    /// Collective.
    fn new(world: &'a World, plate: &Plate) -> Result<Piece<'a>, Box<dyn Error>> {
        let size = plate.size;
        let (grid_rows, grid_columns) = grid_of(world.size() as usize);
        let grid = (Shares { total: size, parts: grid_rows }, Shares { total: size, parts: grid_columns });
        let (row, column) = (world.rank() as usize / grid_columns, world.rank() as usize % grid_columns);
        let (rows, columns) = (grid.0.range(row), grid.1.range(column));

        let width = columns.len() + 2;
        let mut old = vec![COLD; (rows.len() + 2) * width];
        // The cells around the rectangle are not this rank's to compute.
        let mut held = vec![true; old.len()];
        for row in rows.clone() {
            let from = row * size + columns.start..row * size + columns.end;
            let to = (row - rows.start + 1) * width + 1;
            old[to..to + columns.len()].copy_from_slice(&plate.initial[from.clone()]);
            held[to..to + columns.len()].copy_from_slice(&plate.held[from]);
        }
        let mut neighbours = Vec::new();
        let at = |row: usize, column: usize| (row * grid_columns + column) as u32;
        if row > 0 {
            neighbours.push((Side::Above, at(row - 1, column)));
        }
        if row + 1 < grid_rows {
            neighbours.push((Side::Below, at(row + 1, column)));
        }
        if column > 0 {
            neighbours.push((Side::Left, at(row, column - 1)));
        }
        if column + 1 < grid_columns {
            neighbours.push((Side::Right, at(row, column + 1)));
        }
        let inbox_cells = size.div_ceil(grid_rows.min(grid_columns));
        let inboxes = world.allocate_collective(2 * Side::ALL.len() * inbox_cells)?;
        let signals = world.allocate_collective(Side::ALL.len())?;
        let new = old.clone();
        Ok(Piece { world, grid, rows, columns, old, new, held, neighbours, inboxes, inbox_cells, signals })
    }

    /// Cells from one row to the next, with those of the neighbours.
    fn width(&self) -> usize {
        self.columns.len() + 2
    }

    /// The step of this number, from 1.
    fn step(&mut self, step: u64) -> Result<(), HeatError> {
        for (side, rank) in &self.neighbours {
            let there = side.opposite();
            let signal = (&self.signals, there as usize);
            self.inboxes.put_signal_set(*rank, self.inbox(there, step), &self.edge(*side), signal, step)?;
        }
        let (height, width) = (self.rows.len(), self.columns.len());
        // Cells that need nothing from the neighbours.
        for row in 2..height {
            self.compute(row, 2..width);
        }
        let sides: Vec<usize> = self.neighbours.iter().map(|(side, _)| *side as usize).collect();
        self.signals.wait_until_all(&sides, Compare::GreaterOrEqual, step)?;
        for (side, _) in self.neighbours.clone() {
            self.take_in(side, step)?;
        }
        self.compute(1, 1..width + 1);
        if height > 1 {
            self.compute(height, 1..width + 1);
        }
        for row in 2..height {
            self.compute(row, 1..2);
            if width > 1 {
                self.compute(row, width..width + 1);
            }
        }
        std::mem::swap(&mut self.old, &mut self.new);
        Ok(())
    }

    /// Computes some cells of a row.
    fn compute(&mut self, row: usize, columns: Range<usize>) {
        if columns.is_empty() {
            return;
        }
        let width = self.width();
        let cells = row * width + columns.start..row * width + columns.end;
        sweep(&self.old, &mut self.new, width, cells.clone());
        keep(&mut self.new, &self.old, &self.held, cells);
    }

    /// Where the inbox of a side begins; steps use its two inboxes in turn.
    fn inbox(&self, side: Side, step: u64) -> usize {
        ((step % 2) as usize * Side::ALL.len() + side as usize) * self.inbox_cells
    }

    /// This rank's cells along a side.
    fn edge(&self, side: Side) -> Vec<f64> {
        self.line(side, 1).map(|cell| self.old[cell]).collect()
    }

    /// Puts what a neighbour has sent into the cells beyond a side.
    fn take_in(&mut self, side: Side, step: u64) -> Result<(), TransferError> {
        let count = self.line(side, 0).count();
        let told = self.inboxes.get_vec(self.world.rank(), self.inbox(side, step)..self.inbox(side, step) + count)?;
        for (cell, value) in self.line(side, 0).zip(told) {
            self.old[cell] = value;
        }
        Ok(())
    }

    /// The cells of the line along a side: the one outside of it at depth 0, this rank's own at depth 1.
    fn line(&self, side: Side, depth: usize) -> impl Iterator<Item = usize> + use<> {
        let (height, columns, width) = (self.rows.len(), self.columns.len(), self.width());
        let (first, stride, count) = match side {
            Side::Above => (depth * width + 1, 1, columns),
            Side::Below => ((height + 1 - depth) * width + 1, 1, columns),
            Side::Left => (width + depth, width, height),
            Side::Right => (width + columns + 1 - depth, width, height),
        };
        (0..count).map(move |place| first + place * stride)
    }

    /// Puts this rank's cells where rank 0 wants them.
    fn hand_in(&self, whole: &Window<f64>) -> Result<(), TransferError> {
        let counts = [self.rows.len(), self.columns.len()];
        let from = Patch::block(&counts, &[1, 1], &[self.width()]);
        let to = Patch::block(&counts, &[self.rows.start, self.columns.start], &[self.grid.1.total]);
        whole.put(0, to.with_buffer(&from), &self.old)
    }
}
