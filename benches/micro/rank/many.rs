//! All ranks at once: each with its neighbour, or all with one. The time is that of a batch divided by the operations
//! of all ranks together, so that its inverse is what the job does in a second.

use std::hint::black_box;
use std::time::{Duration, Instant};

use longarm::{Mutexes, Update, Window};
use memmap2::MmapMut;

use super::Job;
use crate::Failure;
use crate::micro::limits::{Ask, Client, PlainServer, Waiting};
use crate::micro::sample::Sample;
use crate::micro::{buffer, processors};

/// What a rank uses of another one's memory: its own part, behind those of the ranks before it.
const PART_BYTES: usize = 1 << 20;
/// Of the block that all add to.
const BLOCK_BYTES: usize = 64 << 10;
/// Puts of 8 bytes that are under way together.
const TOGETHER: usize = 64;
/// A batch takes at least this.
const BATCH: Duration = Duration::from_millis(40);
/// The same, for a look.
const QUICK_BATCH: Duration = Duration::from_millis(10);
/// Batches, of which the middle one counts.
const BATCHES: usize = 7;
/// The same, for a look.
const QUICK_BATCHES: usize = 3;
/// Threads of the plain servers that the one is compared with.
const PLAIN_SERVERS: [usize; 3] = [1, 2, 4];

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let world = job.world;
    let window = world.allocate_collective::<u8>(world.size() as usize * PART_BYTES)?;
    let mutexes = world.mutexes_collective(1)?;
    let near = buffer::private(PART_BYTES)?;
    let mut many = Many { job, window, mutexes, near, pattern: "next", target: 0, works: true };
    many.target = (world.rank() + 1) % world.size();
    if world.node_count() == 1 {
        many.transfers()?;
    }
    // Those of its own node do not need its server.
    let one = job.arguments.target;
    many.pattern = "one";
    many.target = one;
    many.works = world.rank() != one && (world.node_count() == 1 || world.node_of(one) != Some(world.node()));
    many.transfers()?;
    many.contended()?;
    if job.arguments.transport == "tcp" {
        for threads in PLAIN_SERVERS {
            many.plain(threads)?;
        }
    }
    many.mutexes.free_collective()?;
    many.window.free_collective()?;
    Ok(())
}

struct Many<'a> {
    job: &'a Job<'a>,
    window: Window<u8>,
    mutexes: Mutexes,
    near: MmapMut,
    /// What the lines call it.
    pattern: &'static str,
    /// Whose memory this rank uses.
    target: u32,
    /// Whether this rank does anything, or only waits for the others.
    works: bool,
}

impl Many<'_> {
    /// What does not collide: every rank has a part of its own.
    fn transfers(&self) -> Result<(), Failure> {
        let (world, window, target) = (self.job.world, &self.window, self.target);
        let mine = world.rank() as usize * PART_BYTES;
        for bytes in [8, PART_BYTES] {
            let source = &self.near[..bytes];
            self.measure("put", bytes, 1, || {
                window.put(target, mine, black_box(source))?;
                Ok(world.quiet()?)
            })?;
            let mut got = vec![0_u8; bytes];
            self.measure("get", bytes, 1, || Ok(window.get(target, mine, black_box(&mut got))?))?;
        }
        self.measure("nbput", 8, TOGETHER, || {
            Ok(world.scope(|scope| {
                for (place, part) in self.near[..TOGETHER * 8].chunks_exact(8).enumerate() {
                    scope.put(window, target, mine + place * 8, part);
                }
            })?)
        })?;
        let words = window.cast::<u64>();
        self.measure("fadd", 8, 1, || {
            black_box(words.fetch_add(target, mine / 8, 1)?);
            Ok(())
        })?;
        Ok(())
    }

    /// One word, one block, one mutex for everybody.
    fn contended(&self) -> Result<(), Failure> {
        let target = self.target;
        let words = self.window.cast::<u64>();
        let before = words.get_one(target, 0)?;
        let done = self.measure("fadd_same", 8, 1, || {
            black_box(words.fetch_add(target, 0, 1)?);
            Ok(())
        })?;
        self.expect(words.get_one(target, 0)? == before + done)?;
        let numbers = self.window.cast::<f64>();
        let ones = vec![1.0; BLOCK_BYTES / 8];
        let place = PART_BYTES / 8;
        if self.job.measures() {
            numbers.put(target, place, &vec![0.0; ones.len()])?;
        }
        let done = self.measure("accumulate_same", BLOCK_BYTES, 1, || {
            Ok(numbers.accumulate(target, place, Update::Sum, black_box(&ones))?)
        })?;
        self.expect(numbers.get_vec(target, place..place + ones.len())? == vec![done as f64; ones.len()])?;
        self.measure("lockpair_same", 0, 1, || Ok(self.mutexes.lock(target, 0)?.unlock()?))?;
        Ok(())
    }

    fn expect(&self, holds: bool) -> Result<(), Failure> {
        // Nobody goes on before everybody has looked.
        self.job.world.barrier_collective()?;
        if holds { Ok(()) } else { Err("updates of several ranks at once were lost".into()) }
    }

    /// Round trips to plain servers in the process of the one.
    fn plain(&self, threads: usize) -> Result<(), Failure> {
        let (world, one) = (self.job.world, self.job.arguments.target);
        let is_one = world.rank() == one;
        let mut told = [u64::from(self.works)];
        world.allreduce_collective(longarm::Reduction::Sum, &mut told)?;
        let clients = told[0] as usize;
        let plain = is_one.then(PlainServer::new).transpose()?;
        let mut port = [plain.as_ref().map_or(Ok(0), PlainServer::port)?];
        world.broadcast_collective(one, &mut port)?;
        let server = plain.map(|plain| std::thread::spawn(move || plain.serve(clients, threads)));
        let waiting =
            if (world.size() as usize) < processors::allowed()?.len() { Waiting::Spin } else { Waiting::Block };
        let mut client = self.works.then(|| Client::connect(port[0], waiting)).transpose()?;
        for (name, ask, bytes) in
            [("put", Ask::Put, 8), ("get", Ask::Get, 8), ("put", Ask::Put, PART_BYTES), ("get", Ask::Get, PART_BYTES)]
        {
            self.measure(&format!("plain{threads}_{name}"), bytes, 1, || {
                client.as_mut().map_or(Ok(()), |client| client.once(ask, bytes))
            })?;
        }
        drop(client);
        server.map_or(Ok(()), |server| server.join().map_err(|_| "a plain server has panicked")?)
    }

    /// Times what all working ranks do at once, equally often; gives how often it was done in all.
    fn measure(
        &self,
        op: &str,
        bytes: usize,
        together: usize,
        mut once: impl FnMut() -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        let world = self.job.world;
        let quick = self.job.arguments.quick;
        let (batch, batches) = if quick { (QUICK_BATCH, QUICK_BATCHES) } else { (BATCH, BATCHES) };
        let mut of_all = [u64::from(self.works)];
        world.allreduce_collective(longarm::Reduction::Sum, &mut of_all)?;
        let [workers] = of_all;
        let mut done = 0;
        let mut timed = |count: u64| -> Result<f64, Failure> {
            world.barrier_collective()?;
            let start = Instant::now();
            if self.works {
                for _ in 0..count {
                    once()?;
                }
            }
            world.barrier_collective()?;
            done += count * workers;
            // All decide by the same time.
            let mut taken = [start.elapsed().as_secs_f64()];
            world.broadcast_collective(0, &mut taken)?;
            Ok(taken[0])
        };
        let mut count = 1;
        loop {
            let taken = timed(count)?;
            if taken >= batch.as_secs_f64() {
                break;
            }
            count = (count as f64 * (1.2 * batch.as_secs_f64() / taken).clamp(1.5, 10.0)).ceil() as u64;
        }
        let operations = (count * workers) as f64 * together as f64;
        let seconds = (0..batches).map(|_| Ok(timed(count)? / operations)).collect::<Result<_, Failure>>()?;
        if self.job.measures() {
            self.job.tell_window(&format!("{op}_{}", self.pattern), bytes, together, &Sample::of_batches(seconds));
        }
        Ok(done)
    }
}
