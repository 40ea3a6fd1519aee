//! Large messages between two ranks of a node, from the memory of one to the memory of the other, by every way there is
//! (Buntinas and others 2009): which one is best from which size on depends on the machine.
//!
//! | way | copies | how |
//! | --- | --- | --- |
//! | copy | 1 | the sender's data lies in a window; the receiver copies it |
//! | double | 2 | through two small buffers that both see, the halves of the work overlapping |
//! | cma | 1 | the receiver's kernel reads the sender's private memory (process_vm_readv) |
//! | vmsplice | 1 | the sender gives its pages to a pipe, the receiver reads them from there |
//!
//! Where the machine counts cache misses, those of both ranks and of the kernel's copies for them stand beside each time.
//!
//! Then both send at once, which is what an all-to-all of two ranks is (`lmt_both_...`). Where a way needs the other rank all the
//! while, through buffers and pipes, that goes in turn.
//!
//! With `LONGARM_NONTEMPORAL_BYTES` low, `copy` goes around the caches: that is the fifth way.

use std::hint::black_box;
use std::io::{IoSlice, IoSliceMut, Read};

use longarm::{Compare, Reduction, Window};
use nix::fcntl::{SpliceFFlags, vmsplice};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::Job;
use super::misses::Misses;
use crate::Failure;
use crate::line::{Key, LONGARM, Line};
use crate::micro::buffer;

const BYTES_MIN: usize = 4 << 10;
const BYTES_MAX: usize = 16 << 20;
/// One of the two small buffers, as large as the cells of MPICH.
const CHUNK_BYTES: usize = 64 << 10;
/// What a pipe holds, if the system lets it.
const PIPE_BYTES: usize = 1 << 20;

/// Words by which the two tell each other how far they are.
const SENT: usize = 0;
const TAKEN: usize = 1;
const FULL: usize = 2;
const FREE: usize = 3;
const ADDRESS: usize = 4;
const PROCESS: usize = 5;
const PIPE: usize = 6;
/// Cache misses of the receiver and one more; 0: they are not counted.
const MISSES: usize = 7;
const WORDS: usize = 8;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let world = job.world;
    if world.size() != 2 || world.node_count() != 1 {
        return Err("large messages are measured between two ranks of one node".into());
    }
    let lmt = Lmt {
        job,
        other: 1 - world.rank(),
        words: world.allocate_collective::<u64>(WORDS)?,
        data: world.allocate_collective::<u8>(BYTES_MAX)?,
        near: buffer::private(BYTES_MAX)?,
    };
    lmt.run()?;
    world.barrier_collective()?;
    Ok(())
}

struct Lmt<'a> {
    job: &'a Job<'a>,
    other: u32,
    words: Window<u64>,
    data: Window<u8>,
    near: memmap2::MmapMut,
}

impl Lmt<'_> {
    fn run(mut self) -> Result<(), Failure> {
        let sends = self.job.measures();
        self.near.fill(if sends { 7 } else { 0 });
        self.data.put(self.job.world.rank(), 0, &self.near)?;
        let (pipe_reader, pipe_writer) = rustix::pipe::pipe()?;
        // The system may allow less; then it is what it is.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe_writer, PIPE_BYTES);
        use std::os::fd::AsRawFd;
        let told = [
            (ADDRESS, self.near.as_ptr().addr() as u64),
            (PROCESS, u64::from(std::process::id())),
            (PIPE, pipe_reader.as_raw_fd() as u64),
        ];
        for (word, value) in told {
            self.words.set(self.other, word, value)?;
        }
        self.job.world.barrier_collective()?;
        let [address, process, pipe] = [ADDRESS, PROCESS, PIPE].map(|word| self.words.get_one(1 - self.other, word));
        let (address, process) = (address? as usize, Pid::from_raw(process? as i32));
        let theirs = std::fs::File::open(format!("/proc/{process}/fd/{}", pipe?));
        let mut near = std::mem::replace(&mut self.near, buffer::private(1)?);

        let mut out = vec![0; BYTES_MAX];
        self.copies(sends, &near, &mut out)?;
        let attach = |out: &mut [u8]| -> Result<(), Failure> {
            let mut done = 0;
            while done < out.len() {
                let remote = RemoteIoVec { base: address + done, len: out.len() - done };
                done += process_vm_readv(process, &mut [IoSliceMut::new(&mut out[done..])], &[remote])?;
            }
            Ok(())
        };
        let allowed = attach(&mut out[..8]).is_ok();
        if self.both(allowed, "lmt_cma", "the system lets no process read another one's memory")? {
            self.way("lmt_cma", |_, bytes| if sends { Ok(()) } else { attach(&mut out[..bytes]) })?;
            self.check(&mut out)?;
            self.way("lmt_both_cma", |_, bytes| attach(&mut out[..bytes]))?;
            self.check(&mut out)?;
        }
        if self.both(theirs.is_ok(), "lmt_vmsplice", "the pipe of the other process cannot be opened")? {
            let mut theirs = theirs.expect("both have it");
            let give = |bytes: usize| -> Result<(), Failure> {
                let mut done = 0;
                while done < bytes {
                    done += vmsplice(&pipe_writer, &[IoSlice::new(&near[done..bytes])], SpliceFFlags::empty())?;
                }
                Ok(())
            };
            self.way(
                "lmt_vmsplice",
                |_, bytes| {
                    if sends { give(bytes) } else { Ok(theirs.read_exact(&mut out[..bytes])?) }
                },
            )?;
            self.check(&mut out)?;
            self.way("lmt_both_vmsplice", |_, bytes| {
                if sends {
                    give(bytes)?;
                }
                theirs.read_exact(&mut out[..bytes])?;
                if sends { Ok(()) } else { give(bytes) }
            })?;
            self.check(&mut out)?;
        }
        near.fill(0);
        Ok(())
    }

    /// By one copy, and by two through memory that both have.
    fn copies(&mut self, sends: bool, near: &memmap2::MmapMut, out: &mut [u8]) -> Result<(), Failure> {
        self.way("lmt_copy", |lmt, bytes| {
            if sends { Ok(()) } else { Ok(lmt.data.get(lmt.other, 0, black_box(&mut out[..bytes]))?) }
        })?;
        self.check(out)?;
        self.way("lmt_both_copy", |lmt, bytes| Ok(lmt.data.get(lmt.other, 0, black_box(&mut out[..bytes]))?))?;
        self.check(out)?;
        self.way("lmt_double", |lmt, bytes| lmt.through_chunks(sends, bytes, near, out))?;
        self.check(out)?;
        self.way("lmt_both_double", |lmt, bytes| {
            lmt.through_chunks(sends, bytes, near, out)?;
            lmt.through_chunks(!sends, bytes, near, out)
        })?;
        self.check(out)?;
        Ok(())
    }

    /// What arrived by one way is what was sent, and is forgotten before the next one.
    fn check(&self, out: &mut [u8]) -> Result<(), Failure> {
        if !self.job.measures() && out.iter().any(|byte| *byte != 7) {
            return Err("what arrived is not what was sent".into());
        }
        out.fill(0);
        Ok(())
    }

    /// Whether both can do it; if not, it is said.
    fn both(&self, allowed: bool, op: &str, why: &str) -> Result<bool, Failure> {
        let mut refused = [i64::from(!allowed)];
        self.job.world.allreduce_collective(Reduction::Sum, &mut refused)?;
        let refused = refused[0] > 0;
        if refused && self.job.measures() {
            eprintln!("longarm perf: {op} is left out: {why}");
        }
        Ok(!refused)
    }

    /// Times one way over all sizes: `once` is the sender's or the receiver's part of one message.
    fn way(&self, op: &str, mut once: impl FnMut(&Self, usize) -> Result<(), Failure>) -> Result<(), Failure> {
        let (me, sends) = (self.job.world.rank(), self.job.measures());
        let mut misses = Misses::of_caches();
        let step = if self.job.arguments.quick { 2 } else { 1 };
        for bytes in (0..).step_by(step).map(|power| BYTES_MIN << power).take_while(|bytes| *bytes <= BYTES_MAX) {
            self.job.world.barrier_collective()?;
            self.words.set(me, SENT, 0)?;
            self.words.set(me, TAKEN, 0)?;
            self.job.world.barrier_collective()?;
            let mut number = 0;
            misses.start();
            if !sends {
                // Until the sender says that it was the last one.
                loop {
                    number += 1;
                    if self.words.wait_until(SENT, Compare::GreaterOrEqual, number)? == u64::MAX {
                        break;
                    }
                    once(self, bytes)?;
                    self.words.set(self.other, TAKEN, number)?;
                }
                self.words.set(self.other, MISSES, misses.stop().map_or(0, |count| count + 1))?;
                self.words.set(self.other, TAKEN, u64::MAX)?;
                continue;
            }
            let time = self.job.effort.measure(|count| {
                for _ in 0..count {
                    number += 1;
                    self.words.set(self.other, SENT, number)?;
                    once(self, bytes)?;
                    self.words.wait_until(TAKEN, Compare::GreaterOrEqual, number)?;
                }
                Ok(())
            })?;
            let mine = misses.stop();
            self.words.set(self.other, SENT, u64::MAX)?;
            self.words.wait_until(TAKEN, Compare::Equal, u64::MAX)?;
            let theirs = self.words.get_one(me, MISSES)?.checked_sub(1);
            let cache_misses = mine.zip(theirs).map(|(mine, theirs)| (mine + theirs) as f64 / number as f64);
            let key = Key { transport: &self.job.arguments.transport, op, bytes: bytes as u64 };
            let line = Line { np: self.job.world.size(), cache_misses, ..Line::new(LONGARM, key, &time) };
            println!("{}", line.to_json());
        }
        Ok(())
    }

    /// One message through the two small buffers, which lie in the receiver's part.
    fn through_chunks(&self, sends: bool, bytes: usize, source: &[u8], out: &mut [u8]) -> Result<(), Failure> {
        let (me, chunk) = (self.job.world.rank(), CHUNK_BYTES.min(bytes / 2));
        for (number, from) in (0..bytes).step_by(chunk).enumerate() {
            let part = from..(from + chunk).min(bytes);
            let (number, place) = (number as u64, number % 2 * CHUNK_BYTES);
            if sends {
                if number >= 2 {
                    self.words.wait_until(FREE, Compare::GreaterOrEqual, number - 1)?;
                }
                self.data.put(self.other, place, &source[part])?;
                self.words.set(self.other, FULL, number + 1)?;
            } else {
                self.words.wait_until(FULL, Compare::GreaterOrEqual, number + 1)?;
                self.data.get(me, place, &mut out[part])?;
                self.words.set(self.other, FREE, number + 1)?;
            }
        }
        // Both start from nothing at the next message; the receiver says when it has taken this one.
        if sends {
            let last = (bytes.div_ceil(chunk)) as u64;
            self.words.wait_until(FREE, Compare::GreaterOrEqual, last)?;
            self.words.set(me, FREE, 0)?;
        } else {
            self.words.set(me, FULL, 0)?;
        }
        Ok(())
    }
}
