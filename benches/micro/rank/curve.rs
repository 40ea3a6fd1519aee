//! Put and get over the whole range of sizes, one at a time and many at once: the points of the curves.

use std::hint::black_box;

use super::Job;
use super::ops::{NB_WINDOW_BYTES, gets_together, puts_together};
use crate::Failure;
use crate::micro::buffer;

/// Powers of two up to this.
const BYTES_MAX: usize = 4 << 20;

/// `together`: the rate of many that are under way at once instead of the time of one.
pub(super) fn run(job: &Job<'_>, together: bool) -> Result<(), Failure> {
    let (world, target) = (job.world, job.arguments.target);
    let window = world.allocate_collective::<u8>(if world.rank() == target { NB_WINDOW_BYTES } else { 0 })?;
    if job.measures() {
        let mut near = buffer::private(NB_WINDOW_BYTES)?;
        near.fill(1);
        let step = if job.arguments.quick { 2 } else { 1 };
        let sizes = (0..).step_by(step).map(|power| 1_usize << power).take_while(|bytes| *bytes <= BYTES_MAX);
        for bytes in sizes {
            let (puts, gets) = if together { (puts_together(bytes), gets_together(bytes)) } else { (1, 1) };
            let names = if together { ["nbput", "nbget"] } else { ["put", "get"] };
            let put = job.effort.measure(|count| {
                for _ in 0..count {
                    if !together {
                        window.put(target, 0, black_box(&near[..bytes]))?;
                        world.quiet()?;
                        continue;
                    }
                    world.scope(|scope| {
                        for (place, part) in near[..puts * bytes].chunks_exact(bytes).enumerate() {
                            scope.put(&window, target, place * bytes, part);
                        }
                    })?;
                }
                Ok(())
            })?;
            job.tell_window(names[0], bytes, puts, &put.divided_by(puts));
            let get = job.effort.measure(|count| {
                for _ in 0..count {
                    if !together {
                        window.get(target, 0, black_box(&mut near[..bytes]))?;
                        continue;
                    }
                    let near = &mut near[..gets * bytes];
                    world.scope(|scope| {
                        for (place, part) in near.chunks_exact_mut(bytes).enumerate() {
                            scope.get(&window, target, place * bytes, part);
                        }
                    })?;
                }
                Ok(())
            })?;
            job.tell_window(names[1], bytes, gets, &get.divided_by(gets));
        }
    }
    world.barrier_collective()?;
    window.free_collective()?;
    Ok(())
}
