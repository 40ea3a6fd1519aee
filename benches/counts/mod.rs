//! Hot calls, made a given number of times: a counter of instructions around two such runs gives those of one call.
//!
//! Instructions do not depend on what else the machine does, so they show a change that a clock does not.

mod among;

use std::hint::black_box;
use std::time::Instant;

use longarm::{Patch, Update, World};
use longarm_proto::{
    AccessKey, Generation, HEADER_BYTES, Rank, Request, RequestHeader, RequestId, Run, Shape, WindowId, WindowRef,
};

use crate::Failure;
use crate::cli::CountsArguments;

const ROWS: usize = 64;
const ROW_WORDS: usize = 8;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Call {
    /// Nothing: the loop alone
    Empty,
    /// Put of 8 bytes on the same node
    Put8,
    /// Get of 8 bytes on the same node
    Get8,
    /// Fetch-and-add on the same node
    FetchAdd,
    /// Quiet with nothing outstanding
    Quiet,
    /// Accumulate of one double on the same node
    Accumulate8,
    /// Put of 64 rows of 64 bytes on the same node, one row in four taken
    PutRows,
    /// A put that is started with a handle, and waited for
    StartPut8,
    /// Encoding a get request and decoding it again
    Codec,
    /// Get of 8 bytes from the last rank, by rank 0 alone: for a profile
    FarGet8,
    /// Put of 8 bytes at the last rank and quiet, likewise
    FarPut8,
    /// Get of 1 MiB from the last rank, likewise
    FarGetMib,
    /// Put of 1 MiB at the last rank and quiet, likewise
    FarPutMib,
    /// Accumulate of one double at the last rank, started and left to a quiet after every 256, likewise
    FarAccumulate8,
    /// Fetch-and-add at the last rank, likewise
    FarFetchAdd,
    /// Lock and unlock of a mutex of the last rank, likewise
    FarLock,
    /// Get of 8 bytes by all ranks at the same time, each from the one half the ranks on
    BothGet8,
    /// Put of 8 bytes there and quiet, likewise
    BothPut8,
    /// Fetch-and-add there, likewise
    BothFetchAdd,
    /// Put of 8 bytes there that is only started, and a barrier, likewise
    BothPutBarrier,
    /// Barrier of all ranks
    Barrier,
}

impl Call {
    /// The bytes of a call between two ranks.
    fn far_bytes(self) -> Option<usize> {
        match self {
            Call::FarGet8 | Call::FarPut8 | Call::FarAccumulate8 => Some(8),
            Call::FarGetMib | Call::FarPutMib => Some(1 << 20),
            _ => None,
        }
    }
}

/// Makes the call.
pub(crate) fn run(arguments: &CountsArguments) -> Result<(), Failure> {
    if arguments.call == Call::Codec {
        return codec(arguments.times);
    }
    let world = longarm::init()?;
    if among::is_one(arguments.call) {
        among::run(&world, arguments)?;
        world.finalize()?;
        return Ok(());
    }
    if let Some(bytes) = arguments.call.far_bytes() {
        far(&world, arguments, bytes)?;
        world.finalize()?;
        return Ok(());
    }
    let window = world.allocate_collective::<u64>(4 * ROWS * ROW_WORDS)?;
    let doubles = window.cast::<f64>();
    let there = Patch::new(0, &[ROWS, ROW_WORDS], &[4 * ROW_WORDS as isize, 1]);
    let here = Patch::packed(&[ROWS, ROW_WORDS]);
    let (mut near, mut buffer, rows) = ([1_u64], vec![1_u64], vec![1_u64; ROWS * ROW_WORDS]);
    for _ in 0..arguments.times {
        match black_box(arguments.call) {
            Call::Put8 => window.put(0, 0, black_box(&near))?,
            Call::Get8 => window.get(0, 0, black_box(&mut near))?,
            Call::FetchAdd => {
                black_box(window.fetch_add(0, 0, 1)?);
            }
            Call::Quiet => world.quiet()?,
            Call::Accumulate8 => doubles.accumulate(0, 0, longarm::Update::Sum, black_box(&[1.0]))?,
            Call::PutRows => window.put(0, there.with_buffer(&here), black_box(&rows))?,
            Call::StartPut8 => buffer = window.start_put(0, 0, buffer)?.wait()?,
            // Nothing, or made above.
            _ => {}
        }
    }
    window.free_collective()?;
    world.finalize()?;
    Ok(())
}

/// Between rank 0 and the last one; the others wait.
fn far(world: &World, arguments: &CountsArguments, bytes: usize) -> Result<(), Failure> {
    let window = world.allocate_collective::<u64>(bytes / 8)?;
    let (mut buffer, target) = (vec![1_u64; bytes / 8], world.size() - 1);
    world.barrier_collective()?;
    let began = Instant::now();
    if world.rank() == 0 {
        match arguments.call {
            Call::FarPut8 | Call::FarPutMib => (0..arguments.times).try_for_each(|_| {
                window.put(target, 0, &buffer)?;
                world.quiet()
            })?,
            Call::FarAccumulate8 => {
                let (doubles, source) = (window.cast::<f64>(), [1.0; 1]);
                for _ in 0..arguments.times.div_ceil(256) {
                    world.scope(|scope| {
                        (0..256).for_each(|_| scope.accumulate(&doubles, target, 0, Update::Sum, &source));
                    })?;
                    world.quiet()?;
                }
            }
            _ => (0..arguments.times).try_for_each(|_| window.get(target, 0, &mut buffer))?,
        }
        let each_us = began.elapsed().as_secs_f64() * 1e6 / arguments.times as f64;
        eprintln!("{:?}: {each_us:.3} us each", arguments.call);
    }
    world.barrier_collective()?;
    window.free_collective()?;
    Ok(())
}

fn codec(times: u64) -> Result<(), Failure> {
    let target = WindowRef { rank: Rank(1), window: WindowId(2), generation: Generation(1), key: AccessKey(3) };
    let request = Request::Get { target, shape: Shape::Contiguous(Run { offset: 64, bytes: 8 }) };
    let mut frame = Vec::with_capacity(HEADER_BYTES);
    for number in 0..times {
        frame.clear();
        black_box(&request).encode(RequestId(number), &mut frame);
        let header = black_box(&frame).first_chunk().ok_or("a request has a whole header")?;
        black_box(RequestHeader::decode(header)?.finish(&[])?);
    }
    Ok(())
}
