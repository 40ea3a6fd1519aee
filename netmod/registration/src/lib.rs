//! A cache of memory registrations that is never stale.
//!
//! A network card uses memory by its own list of pages, fixed when the memory was registered. Making that list is slow,
//! so it is kept; and it has to go as soon as the program unmaps, moves or discards the memory, or the card would go on
//! using pages that the program does not see any more. This crate keeps registrations by address and lets go of them in
//! time. How memory is registered is the caller's matter: it brings a [`Registrar`].
//!
//! ```text
//!  acquire ──► known? ──► Pinned (a guard) ──► transfer ──► guard dropped: kept, or deregistered if it left the cache
//!                │ no                                          ▲
//!                └─► watch, register, keep                     │ leaves at once, deregistered when unused
//!  munmap, mremap, madvise, brk ──► event ──► longarm-memwatch ┘
//! ```
//!
//! ```
//! use longarm_registration::{Cache, Options, RegisterError, Registrar};
//!
//! /// A card's leave to use some memory. A real one deregisters when it is dropped.
//! struct Key(u32);
//! struct Card;
//!
//! impl Registrar for Card {
//!     type Handle = Key;
//!     fn register(&self, _start: usize, _bytes: usize) -> Result<Key, RegisterError> {
//!         Ok(Key(7))
//!     }
//! }
//!
//! let cache = Cache::new(Card, Options::default())?;
//! let buffer = vec![1u8; 1 << 16];
//! let pinned = cache.acquire(buffer.as_ptr() as usize, buffer.len())?;
//! assert_eq!(pinned.handle().0, 7);
//! // The guard lives as long as the transfer that uses the key.
//! drop(pinned);
//! println!("{}", cache.statistics());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Why it is never stale
//!
//! Memory is watched by userfaultfd before it is registered. It protects nothing, so no access faults; but the kernel
//! queues an event for each `munmap`, `mremap`, shrinking `brk`, `mmap` over it and `madvise` that discards, and holds
//! the calling thread until that event was read. The thread goes on as soon as the event is *read*, not when it was
//! acted upon; therefore the event is read, and acted upon, under the one lock that every lookup takes:
//!
//! 1. The reader locks, reads, takes the registrations out, unlocks. A program that goes on after `munmap` and then
//!    looks up has to wait for that lock, and finds nothing. What happens on one thread, or in an order that the program
//!    sees to, is safe by this alone.
//! 2. The kernel unmaps *before* it queues the event. Between the two another thread can map the same addresses anew, by
//!    mere chance (`free` here, `malloc` there), and look up. The kernel counts such changes from before the addresses
//!    become free until the event is read, and tells whether there are any by a call that does nothing else. A hit asks
//!    it, under the lock, and counts only if there are none: then all events were read, and by 1 all were acted upon.
//!    [`Options::is_one_thread`] leaves this question out.
//! 3. A registration that is being made is noted before its memory is watched. An event that meets it keeps it from
//!    being kept; it serves the one request that it was made for.
//!
//! Nobody calls the allocator, or drops a handle, while holding that lock or on the reading thread: both may unmap
//! watched memory, and would wait for an event that only they could read. So the lists have room for all from the beginning, what
//! leaves the cache is put aside, and a second thread (`longarm-memfree`), or whoever registers next, drops it. Both
//! threads block all signals. For the same reason a program's handler of a signal must not unmap memory.
//!
//! The price: unmapping memory that is known takes one switch to the reading thread, and a hit takes the question of 2,
//! which costs little more than the shortest system call there is. Memory that is not known costs nothing.
//!
//! # What it does not see
//!
//! - **CacheState memory and files.** Others can take these away without an event, so they are registered for one use. So is
//!   what the kernel does not let us watch. Whoever has mapped such memory himself, and knows when it goes, says so
//!   ([`Cache::hold`]): it is kept until then, is not watched, and a hit asks nothing.
//! - **A discard at the same time.** `madvise(MADV_DONTNEED)` reports before it discards. A program that, on another
//!   thread and at that very moment, begins a transfer of *the same pages* may have these registered in between, and
//!   they stay so. Such a program races with itself; pages beside them are safe.
//! - **Two rare calls** give no event: `shmat` with `SHM_REMAP` over private memory, and `MADV_GUARD_INSTALL`.
//!   A program that uses them on buffers calls [`Cache::invalidate`] first.
//! - Interposing `munmap` and its kin is not built: the C library itself does not call them by name. Where userfaultfd is
//!   refused, or the threads cannot be started, nothing is cached, and one warning says why.
//!   [`Watch::Caller`] is there for who interposes.
//!
//! # Fork
//!
//! A child has a copy of the cache, and must not use it: the registrations are about its parent's pages, and the device's
//! descriptor is shared, so that deregistering in the child would take them from the parent. A page that the kernel wipes
//! in children tells them apart without a system call. In a child, lookups find nothing, `acquire` is refused, and what
//! is dropped deregisters nothing. The fork itself neither waits nor disturbs the parent. A child may make a cache of
//! its own, if no other thread of the parent was starting or ending when it forked: such a thread holds a lock of Rust's
//! standard library, which stays locked in the child, whose threads would wait for it. Those of a cache are past that when
//! the cache is there.
//!
//! # One cache a process
//!
//! The kernel lets one descriptor watch a mapping. A second cache of the process registers the same memory anew each
//! time; for several devices bring one [`Registrar`] whose handle holds a registration with each. The thread that reads
//! events outlives the cache if any memory was watched, because some of it may still be.
#![deny(unsafe_code)]

mod cache;
mod error;
mod extent;
mod kind;
mod map;
#[cfg(test)]
#[path = "../tests/support/mapping.rs"]
mod mapping;
mod options;
mod registrar;
mod shared;
mod statistics;
mod system;
mod threads;
mod watcher;

pub use cache::{Cache, Hold, Pinned};
pub use error::{CacheError, RegisterError};
pub use options::{Options, Watch};
pub use registrar::Registrar;
pub use statistics::{Statistics, Watched};
