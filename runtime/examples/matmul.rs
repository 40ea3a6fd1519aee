//! C = A · B by blocks: the pattern of NWChem and Global Arrays, where ranks fetch work instead of being given it.
//!
//! ```text
//! cargo build --release -p longarm --examples
//! longarm run -n 4 --nodes 2 target/release/examples/matmul --n 512 --block 64
//! longarm run -n 4 --nodes 2 target/release/examples/matmul --a A.mtx --b B.mtx
//! ```
//!
//! The matrices lie in windows, cut in blocks over a grid of ranks. A task is one product of two blocks. A counter at
//! rank 0 gives out the numbers of the tasks by fetch-and-add. For each, a rank gets the block of A and that of B
//! from their owners, multiplies them, and accumulates the product into the block of C at its owner. While it
//! multiplies, the blocks of its next task are on their way.

mod common;
#[path = "common/matrix.rs"]
mod matrix;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use longarm::error::TransferError;
use longarm::{Handle, Patch, Update, Window, World};

use crate::common::{Shares, Verdict, grid_of, layout_of, start};
use crate::matrix::Matrix;

/// Largest difference of an element from the serial one, in parts of the largest that the sizes of A and B allow.
/// Products are added in another order, so a few bits may differ.
const DIFFERENCE_MAX: f64 = 1e-13;

/// Multiplies two matrices, of files or generated.
#[derive(Parser)]
#[command(name = "matmul")]
struct Options {
    /// A in Matrix Market format
    #[arg(long, value_name = "FILE", requires = "b")]
    a: Option<PathBuf>,
    /// B in Matrix Market format
    #[arg(long, value_name = "FILE", requires = "a")]
    b: Option<PathBuf>,
    /// Rows and columns of generated matrices
    #[arg(long, default_value_t = 512, conflicts_with = "a", value_parser = clap::value_parser!(u32).range(1..=16384))]
    n: u32,
    /// Rows and columns of a block
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    block: u32,
}

#[derive(Debug, thiserror::Error)]
enum SizeError {
    #[error("A has {columns} columns, but B has {rows} rows: they cannot be multiplied")]
    Mismatch { columns: usize, rows: usize },
}

fn main() -> ExitCode {
    start(run)
}

fn run(world: &World, options: Options) -> Result<Verdict, Box<dyn Error>> {
    let (a, b) = match factors(&options) {
        Ok(factors) => factors,
        Err(error) => return Ok(Verdict::Unusable(error)),
    };
    let block = options.block as usize;
    let product = Product {
        world,
        a: Distributed::of(world, &a, block)?,
        b: Distributed::of(world, &b, block)?,
        c: Distributed::new(world, a.rows, b.columns, block)?,
        counter: world.allocate_collective::<u64>(usize::from(world.rank() == 0))?,
    };
    // Everybody has filled its part of A and B.
    world.barrier_collective()?;
    let begin = Instant::now();
    let share = product.work()?;
    world.barrier_collective()?;
    let elapsed = begin.elapsed();

    let shares = world.allgather_collective(&share.as_numbers())?;
    if world.rank() != 0 {
        return Ok(Verdict::Right);
    }
    println!("A {} x {}, B {} x {}; {}", a.rows, a.columns, b.rows, b.columns, layout_of(world));
    let flops = 2.0 * a.rows as f64 * a.columns as f64 * b.columns as f64;
    let tasks = product.tasks();
    println!("{tasks} tasks of {block} x {block} blocks in {:.1} ms: {}", milliseconds(elapsed), rate(flops, elapsed));
    print_shares(&shares);

    let c = product.c.gather()?;
    print_largest(&c);
    let begin = Instant::now();
    let serial = serial(&a, &b);
    println!("serial: {:.1} ms, {}", milliseconds(begin.elapsed()), rate(flops, begin.elapsed()));
    let bound = a.columns as f64 * a.largest() * b.largest();
    let difference = c.difference(&serial) / bound.max(f64::MIN_POSITIVE);
    println!("largest difference from the serial product, relative: {difference:.1e}");
    // Asked this way round, an element that is no number is wrong too.
    if difference <= DIFFERENCE_MAX {
        return Ok(Verdict::Right);
    }
    Ok(Verdict::Wrong(format!("an element differs by {difference:e}; {DIFFERENCE_MAX:e} is allowed")))
}

/// A and B as a whole. Every rank has them, to keep this program short, and puts its part into the windows.
fn factors(options: &Options) -> Result<(Matrix, Matrix), Box<dyn Error>> {
    let (a, b) = match (&options.a, &options.b) {
        (Some(a), Some(b)) => (Matrix::read(a)?, Matrix::read(b)?),
        _ => (Matrix::generate(options.n as usize, 1), Matrix::generate(options.n as usize, 2)),
    };
    if a.columns == b.rows {
        return Ok((a, b));
    }
    Err(SizeError::Mismatch { columns: a.columns, rows: b.rows }.into())
}

/// A matrix whose blocks lie with the ranks of a grid. Each has a rectangle of whole blocks, row by row.
struct Distributed {
    window: Window<f64>,
    rows: usize,
    columns: usize,
    block: usize,
    /// Rows and columns of blocks, and how the grid of ranks shares them.
    row_shares: Shares,
    column_shares: Shares,
}

impl Distributed {
    /// All zero. Collective.
    fn new(world: &World, rows: usize, columns: usize, block: usize) -> Result<Distributed, Box<dyn Error>> {
        let (grid_rows, grid_columns) = grid_of(world.size() as usize);
        let row_shares = Shares { total: rows.div_ceil(block), parts: grid_rows };
        let column_shares = Shares { total: columns.div_ceil(block), parts: grid_columns };
        let me = world.rank() as usize;
        let own_rows = elements(row_shares.range(me / grid_columns), block, rows);
        let own_columns = elements(column_shares.range(me % grid_columns), block, columns);
        let window = world.allocate_collective(own_rows.len() * own_columns.len())?;
        Ok(Distributed { window, rows, columns, block, row_shares, column_shares })
    }

    /// With the elements of a matrix; each rank writes its own part. Collective.
    fn of(world: &World, matrix: &Matrix, block: usize) -> Result<Distributed, Box<dyn Error>> {
        let made = Distributed::new(world, matrix.rows, matrix.columns, block)?;
        let (rows, columns) = made.part_of(world.rank() as usize);
        let own: Vec<f64> = rows.flat_map(|row| &matrix.row(row)[columns.clone()]).copied().collect();
        made.window.put(world.rank(), 0, &own)?;
        Ok(made)
    }

    /// The rows and columns that a rank has.
    fn part_of(&self, rank: usize) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let (row, column) = (rank / self.column_shares.parts, rank % self.column_shares.parts);
        let rows = elements(self.row_shares.range(row), self.block, self.rows);
        (rows, elements(self.column_shares.range(column), self.block, self.columns))
    }

    /// Where a block lies: its owner, its patch of the owner's part, its rows and its columns.
    fn locate(&self, block_row: usize, block_column: usize) -> (u32, Patch, [usize; 2]) {
        let (row, column) = (self.row_shares.part_of(block_row), self.column_shares.part_of(block_column));
        let rank = row * self.column_shares.parts + column;
        let (rows, columns) = self.part_of(rank);
        let (first_row, first_column) = (block_row * self.block, block_column * self.block);
        let counts = [self.block.min(self.rows - first_row), self.block.min(self.columns - first_column)];
        let origin = [first_row - rows.start, first_column - columns.start];
        (rank as u32, Patch::block(&counts, &origin, &[columns.len()]), counts)
    }

    /// Starts getting a block into a buffer, which it fills.
    fn start_get(
        &self,
        (block_row, block_column): (usize, usize),
        mut buffer: Vec<f64>,
    ) -> Result<Handle<Vec<f64>>, TransferError> {
        let (rank, from, counts) = self.locate(block_row, block_column);
        buffer.resize(counts[0] * counts[1], 0.0);
        self.window.start_get(rank, &from, buffer)
    }

    /// Reads all of it.
    fn gather(&self) -> Result<Matrix, TransferError> {
        let mut whole = Matrix::zero(self.rows, self.columns);
        for rank in 0..self.row_shares.parts * self.column_shares.parts {
            let (rows, columns) = self.part_of(rank);
            let to = Patch::block(&[rows.len(), columns.len()], &[rows.start, columns.start], &[self.columns]);
            let from = Patch::packed(&[rows.len(), columns.len()]);
            self.window.get(rank as u32, from.with_buffer(&to), whole.elements_mut())?;
        }
        Ok(whole)
    }
}

/// From blocks to elements.
fn elements(blocks: std::ops::Range<usize>, block: usize, total: usize) -> std::ops::Range<usize> {
    (blocks.start * block).min(total)..(blocks.end * block).min(total)
}

struct Product<'a> {
    world: &'a World,
    a: Distributed,
    b: Distributed,
    c: Distributed,
    /// One word at rank 0: the next task that nobody has.
    counter: Window<u64>,
}

/// One product of two blocks: C(row, column) += A(row, inner) · B(inner, column).
struct Task {
    row: usize,
    inner: usize,
    column: usize,
}

/// A task whose blocks are on their way.
struct Fetched {
    task: Task,
    a: Handle<Vec<f64>>,
    b: Handle<Vec<f64>>,
}

/// What one rank did.
#[derive(Default)]
struct Share {
    tasks: u64,
    computing: Duration,
    communicating: Duration,
}

impl Share {
    fn as_numbers(&self) -> [f64; 3] {
        [self.tasks as f64, self.computing.as_secs_f64(), self.communicating.as_secs_f64()]
    }
}

impl Product<'_> {
    fn tasks(&self) -> u64 {
        (self.a.row_shares.total * self.a.column_shares.total * self.b.column_shares.total) as u64
    }

    /// Does tasks until there are none left. Three things are under way at any time: the number of the task after the
    /// next, the blocks of the next, and the product of the last.
    fn work(&self) -> Result<Share, Box<dyn Error>> {
        let mut share = Share::default();
        let begin = Instant::now();
        // Buffers that are not in use.
        let mut spare: Vec<Vec<f64>> = Vec::new();
        let mut storing: Option<Handle<Vec<f64>>> = None;
        let mut number = self.counter.fetch_add(0, 0, 1)?;
        let mut claim = self.counter.start_fetch_add(0, 0, 1)?;
        let mut next = self.fetch(number, &mut spare)?;
        while let Some(Fetched { task, a, b }) = next {
            let (a, b) = (a.wait()?, b.wait()?);
            number = claim.wait()?;
            claim = self.counter.start_fetch_add(0, 0, 1)?;
            next = self.fetch(number, &mut spare)?;

            let multiplying = Instant::now();
            let (rank, to, counts) = self.c.locate(task.row, task.column);
            let mut product = spare.pop().unwrap_or_default();
            product.clear();
            product.resize(counts[0] * counts[1], 0.0);
            multiply_add(&a, &b, &mut product, counts[1]);
            share.computing += multiplying.elapsed();
            share.tasks += 1;

            let from = Patch::packed(&counts);
            let started = self.c.window.start_accumulate(rank, to.with_buffer(&from), Update::Sum, product)?;
            spare.extend([a, b]);
            if let Some(before) = storing.replace(started) {
                spare.push(before.wait()?);
            }
        }
        // What is still under way is completed here; nobody needs its buffers or its number.
        self.world.quiet()?;
        share.communicating = begin.elapsed() - share.computing;
        Ok(share)
    }

    /// Asks for the blocks of a task; `None` if there is no task of this number.
    fn fetch(&self, number: u64, spare: &mut Vec<Vec<f64>>) -> Result<Option<Fetched>, TransferError> {
        if number >= self.tasks() {
            return Ok(None);
        }
        let (inner, columns) = (self.a.column_shares.total, self.b.column_shares.total);
        let number = number as usize;
        let task = Task { row: number / inner / columns, column: number / inner % columns, inner: number % inner };
        let a = self.a.start_get((task.row, task.inner), spare.pop().unwrap_or_default())?;
        let b = self.b.start_get((task.inner, task.column), spare.pop().unwrap_or_default())?;
        Ok(Some(Fetched { task, a, b }))
    }
}

/// `c += a · b` for packed blocks with `columns` columns of b and c.
fn multiply_add(a: &[f64], b: &[f64], c: &mut [f64], columns: usize) {
    let inner = b.len() / columns;
    for (a_row, c_row) in a.chunks_exact(inner).zip(c.chunks_exact_mut(columns)) {
        for (factor, b_row) in a_row.iter().zip(b.chunks_exact(columns)) {
            for (sum, element) in c_row.iter_mut().zip(b_row) {
                *sum += factor * element;
            }
        }
    }
}

/// The same by one process, without blocks: what the answer has to be.
fn serial(a: &Matrix, b: &Matrix) -> Matrix {
    let mut c = Matrix::zero(a.rows, b.columns);
    multiply_add(a.elements(), b.elements(), c.elements_mut(), b.columns);
    c
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn rate(flops: f64, duration: Duration) -> String {
    format!("{:.2} GFLOP/s", flops / duration.as_secs_f64() / 1e9)
}

fn print_shares(shares: &[f64]) {
    println!();
    println!("  rank  tasks  computing  communicating  share of communication");
    let mut most: f64 = 0.0;
    let mut sum = 0.0;
    for (rank, share) in shares.chunks_exact(3).enumerate() {
        let [tasks, computing, communicating] = [share[0], share[1] * 1e3, share[2] * 1e3];
        let part = communicating / (computing + communicating) * 100.0;
        println!("  {rank:>4}  {tasks:>5}  {computing:>6.1} ms  {communicating:>10.1} ms  {part:>20.0} %");
        (most, sum) = (most.max(tasks), sum + tasks);
    }
    let mean = sum / (shares.len() / 3) as f64;
    println!("  load balance: the busiest rank did {:.2} times the mean", most / mean);
    println!();
}

fn print_largest(c: &Matrix) {
    let place = c.place_of_largest();
    let (row, column) = (place / c.columns, place % c.columns);
    let norm = c.elements().iter().map(|element| element * element).sum::<f64>().sqrt();
    println!(
        "C: norm {norm:.6e}, largest element {:.6e} at row {}, column {}",
        c.elements()[place],
        row + 1,
        column + 1
    );
}
