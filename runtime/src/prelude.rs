//! What most programs name: `use longarm::prelude::*`.
//!
//! The types of the interface and the traits of its elements. [`init`](crate::init) and [`Error`](crate::Error) are not
//! among them: `longarm::init` and `longarm::Error` say themselves whose they are.
//!
//! ```
//! use longarm::prelude::*;
//!
//! fn total<T: Word>(window: &Window<T>, world: &World) -> longarm::Result<Vec<T>> {
//!     let mut sum = [window.get_one(world.rank(), 0)?];
//!     world.allreduce_collective(Reduction::Sum, &mut sum)?;
//!     Ok(sum.to_vec())
//! }
//!
//! let world = longarm::init()?;
//! let window = world.allocate_collective::<u64>(1)?;
//! window.put_one(world.rank(), 0, 7)?;
//! world.barrier_collective()?;
//! assert_eq!(total(&window, &world)?, [7 * u64::from(world.size())]);
//! # world.finalize()?;
//! # Ok::<(), longarm::Error>(())
//! ```

pub use crate::{
    Compare, Complex32, Complex64, Element, Extent, Group, Handle, Heap, HeapBlock, Message, MutexGuard, Mutexes,
    Number, OwnPart, Patch, Question, Reduction, Scope, Segment, Selection, Started, Update, Window, Word, World,
    wait_all, wait_any, wait_some,
};
