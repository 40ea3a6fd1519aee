//! The origin's side of a transfer: bytes of this process, lent or owned until an operation lets go of them.
//!
//! Besides `exposed` this is the crate's only module with unsafe code. It turns "the caller keeps this memory" into types:
//!
//! - [`OriginBytes`] and [`OriginBytesMut`] are borrowed, or made by a C interface from a pointer it vouches for;
//! - [`lend`] lets an operation keep borrowed bytes until its completion is complete, and does not return before;
//! - [`OriginBuffer`] owns its bytes: an operation in progress keeps them alive, whatever becomes of the rest.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::flow::{RunSource, RunTarget};
use longarm_proto::Run;
use longarm_shm::sync::{AtomicBool, Ordering};

use crate::completion::{Completion, CompletionPart, Outcome};

/// Bytes of this process that an operation reads.
#[derive(Clone, Copy)]
pub struct OriginBytes<'a> {
    region: Region<'a>,
}

impl<'a> OriginBytes<'a> {
    /// Bytes behind a pointer.
    ///
    /// # Safety
    /// `bytes` bytes from `source` stay readable for `'a`. Other threads and processes may write them meanwhile.
    pub unsafe fn from_raw(source: *const u8, bytes: usize) -> OriginBytes<'a> {
        // SAFETY: this function's own contract.
        let region = unsafe { Region::from_raw(source, bytes) };
        OriginBytes { region }
    }

    /// Bytes of a region, whose lifetime says how long they stay.
    pub fn from_region(region: Region<'a>) -> OriginBytes<'a> {
        OriginBytes { region }
    }

    /// How many bytes.
    pub fn len(self) -> usize {
        self.region.len()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.region.is_empty()
    }

    /// The bytes, to copy out.
    #[inline]
    pub fn region(self) -> Region<'a> {
        self.region
    }
}

impl<'a> From<&'a [u8]> for OriginBytes<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> OriginBytes<'a> {
        OriginBytes { region: Region::from_slice(bytes) }
    }
}

/// Bytes of this process that an operation writes.
pub struct OriginBytesMut<'a> {
    region: RegionMut<'a>,
}

impl<'a> OriginBytesMut<'a> {
    /// Bytes behind a pointer.
    ///
    /// # Safety
    /// `bytes` bytes from `target` stay writable for `'a`, and no reference to them is used meanwhile.
    pub unsafe fn from_raw(target: *mut u8, bytes: usize) -> OriginBytesMut<'a> {
        // SAFETY: this function's own contract.
        let region = unsafe { RegionMut::from_raw(target, bytes) };
        OriginBytesMut { region }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// The bytes, to copy in.
    #[inline]
    pub fn region(&self) -> RegionMut<'a> {
        self.region
    }
}

impl<'a> From<&'a mut [u8]> for OriginBytesMut<'a> {
    #[inline]
    fn from(bytes: &'a mut [u8]) -> OriginBytesMut<'a> {
        OriginBytesMut { region: RegionMut::from_slice(bytes) }
    }
}

/// Origin memory that a queue holds on to: what is sent from it, or written into it, counts as one part of the
/// completion, which ends when this is let go of.
pub(crate) struct Held {
    region: RegionMut<'static>,
    /// Keeps owned memory alive; borrowed memory is kept by whoever called [`lend`].
    owner: Option<Arc<dyn Send + Sync>>,
    /// Last, so that it ends when the memory is let go of.
    part: CompletionPart,
}

impl Held {
    /// The same memory for another part of the same operation.
    pub(crate) fn again(&self) -> Held {
        Held { region: self.region, owner: self.owner.clone(), part: self.part.another() }
    }

    /// Lets go of the memory, then ends its part with a failure.
    pub(crate) fn fail(self, outcome: Outcome) {
        drop(self.owner);
        self.part.failed(outcome);
    }

    /// All of it, of which some need not exist ([`LenderMut::vouched`]).
    pub(crate) fn whole(&self) -> RegionMut<'_> {
        self.region
    }
}

impl RunSource for Held {
    fn region(&self, run: Run) -> Region<'_> {
        self.region.as_region().slice(run.offset as usize, run.bytes as usize)
    }
}

impl RunTarget for Held {
    fn region_mut(&self, run: Run) -> RegionMut<'_> {
        self.region.slice(run.offset as usize, run.bytes as usize)
    }
}

/// The right to queue borrowed memory of lifetime `'a`, and the issuer's part of the operation. Made by [`lend`] alone.
///
/// Once all is issued nothing more is lent under it:
///
/// ```compile_fail,E0505
/// use longarm_client::{OriginBytes, lend};
///
/// let bytes = [1, 2, 3];
/// lend(|lent| {
///     let lender = lent.source(OriginBytes::from(&bytes[..]));
///     let completion = lent.issued();
///     drop(lender); // it could still have been queued
///     completion
/// });
/// ```
///
/// A lender does not leave the call that waits for its operation:
///
/// ```compile_fail,E0515
/// use longarm_client::{OriginBytes, lend};
///
/// let bytes = [1, 2, 3];
/// let kept = lend(|lent| lent.source(OriginBytes::from(&bytes[..])));
/// ```
///
/// and what it lends lives longer than that call:
///
/// ```compile_fail,E0597
/// use longarm_client::{OriginBytes, lend};
///
/// lend(|lent| {
///     let bytes = [1, 2, 3];
///     lent.source(OriginBytes::from(&bytes[..]));
///     lent.issued()
/// });
/// ```
pub struct Lent<'a> {
    part: CompletionPart,
    /// Invariant: a longer or shorter lifetime would be another promise.
    lifetime: PhantomData<&'a mut &'a ()>,
}

impl<'a> Lent<'a> {
    /// Bytes that the operation reads.
    pub fn source(&self, bytes: OriginBytes<'a>) -> Lender<'_> {
        let region = bytes.region();
        // SAFETY: the bytes are readable for `'a`, which outlives this borrow of `self`. Operations only read what
        // a plain lender stands for: those that write take a `LenderMut`.
        let region = unsafe { RegionMut::from_raw(region.as_ptr().cast_mut(), region.len()) };
        Lender { region, part: &self.part, owner: None }
    }

    /// Bytes that the operation writes.
    pub fn target(&self, bytes: OriginBytesMut<'a>) -> LenderMut<'_> {
        LenderMut(Lender { region: bytes.region(), part: &self.part, owner: None })
    }

    /// All is issued, and nothing more is queued: what has to be waited for before [`lend`] returns.
    pub fn issued(self) -> Arc<Completion> {
        self.part.done()
    }
}

/// Memory of the origin that operations may read, and the right to queue it under an operation that is not complete: whoever
/// issues that holds its part as long as this is there. Made by [`Lent`] or [`OriginBuffer`], or by whoever vouches for it
/// ([`LenderMut::vouched`]).
///
/// Nothing is received into memory that may only be read:
///
/// ```compile_fail,E0308
/// use longarm_client::{Client, ClientWindow, Lender, Shapes};
/// use longarm_proto::{Rank, Run};
///
/// fn get(client: &Client, window: &ClientWindow, lender: &Lender<'_>) {
///     let shapes = Shapes::contiguous(Run { offset: 0, bytes: 8 });
///     client.start_get(window, Rank(0), shapes, lender).unwrap();
/// }
/// ```
pub struct Lender<'l> {
    region: RegionMut<'l>,
    part: &'l CompletionPart,
    owner: Option<Arc<dyn Send + Sync>>,
}

/// A [`Lender`] of memory that operations may also write.
pub struct LenderMut<'l>(Lender<'l>);

impl<'l> Deref for LenderMut<'l> {
    type Target = Lender<'l>;

    fn deref(&self) -> &Lender<'l> {
        &self.0
    }
}

impl<'l> LenderMut<'l> {
    /// Memory that somebody outside vouches for: a C program whose contract says how long it stays.
    ///
    /// # Safety
    /// The bytes that the operation touches stay readable for a write, and writable for a read, until the completion
    /// is complete; for a read no reference to them is used meanwhile. Others of the region need not exist.
    pub unsafe fn vouched(region: RegionMut<'l>, part: &'l CompletionPart) -> LenderMut<'l> {
        LenderMut(Lender { region, part, owner: None })
    }

    pub(crate) fn region(&self) -> RegionMut<'l> {
        self.0.region
    }
}

impl<'l> Lender<'l> {
    pub(crate) fn source(&self) -> Region<'l> {
        self.region.as_region()
    }

    /// For a queue: one more part of the operation.
    pub(crate) fn hold(&self) -> Held {
        // SAFETY: borrowed memory: `lend` does not return before the operation is complete, and a `Held` is let
        // go of before its part is done. Owned memory: the `Held` keeps its owner. Memory of `vouched`: its contract.
        let region = unsafe { RegionMut::from_raw(self.region.as_mut_ptr(), self.region.len()) };
        Held { region, owner: self.owner.clone(), part: self.part.another() }
    }
}

/// Runs `body`, which may queue borrowed memory of lifetime `'a` under one operation and has to wait for it.
///
/// If `body` returns or unwinds before the operation is complete, the process is aborted: the borrow would end
/// while a queue still uses the memory. Only a bug of ours can cause that.
pub fn lend<'a, R>(body: impl FnOnce(Lent<'a>) -> R) -> R {
    struct Guard(Arc<Completion>);
    impl Drop for Guard {
        fn drop(&mut self) {
            if !self.0.is_complete() {
                eprintln!("longarm: an operation ended before it let go of its buffer; this is a bug of longarm");
                std::process::abort();
            }
        }
    }
    let (completion, part) = Completion::begin();
    let _guard = Guard(completion);
    body(Lent { part, lifetime: PhantomData })
}

/// Elements that an operation owns until it is complete, and then gives back as the vector they came in. While it is issued.
///
/// ```
/// use longarm_client::OriginBuffer;
///
/// let buffer = OriginBuffer::new(vec![1, 2, 3]);
/// let issued = buffer.issued(); // of an operation without any request
/// assert_eq!(issued.take(), Some(vec![1, 2, 3]));
/// ```
///
/// Its vector comes back once all is issued, and not before:
///
/// ```compile_fail,E0599
/// use longarm_client::OriginBuffer;
///
/// let buffer = OriginBuffer::new(vec![1, 2, 3]);
/// buffer.take(); // more of its operation might be issued behind this
/// ```
///
/// by its own operation, whichever others are complete:
///
/// ```compile_fail,E0061
/// use longarm_client::{Completion, OriginBuffer};
///
/// let (other, part) = Completion::begin();
/// drop(part);
/// OriginBuffer::new(vec![1, 2, 3]).issued().take(&other);
/// ```
///
/// Behind that nothing is issued with its memory any more, neither by the buffer
///
/// ```compile_fail,E0382
/// use longarm_client::OriginBuffer;
///
/// let buffer = OriginBuffer::new(vec![1, 2, 3]);
/// let issued = buffer.issued();
/// buffer.lender();
/// ```
///
/// nor by a lender that it gave before:
///
/// ```compile_fail,E0505
/// use longarm_client::OriginBuffer;
///
/// let buffer = OriginBuffer::new(vec![1, 2, 3]);
/// let lender = buffer.lender();
/// let issued = buffer.issued();
/// drop(lender); // it could still have been queued
/// ```
pub struct OriginBuffer<T> {
    inner: Arc<Inner<T>>,
    part: CompletionPart,
}

/// An [`OriginBuffer`] whose operation is issued. It gives its vector back once:
///
/// ```compile_fail,E0382
/// use longarm_client::OriginBuffer;
///
/// let issued = OriginBuffer::new(vec![1, 2, 3]).issued();
/// let first = issued.take();
/// let second = issued.take();
/// ```
///
/// and has no memory to lend:
///
/// ```compile_fail,E0599
/// use longarm_client::OriginBuffer;
///
/// OriginBuffer::new(vec![1, 2, 3]).issued().lender();
/// ```
pub struct IssuedBuffer<T> {
    inner: Arc<Inner<T>>,
    completion: Arc<Completion>,
}

struct Inner<T> {
    start: NonNull<T>,
    length: usize,
    capacity: usize,
    taken: AtomicBool,
}

// SAFETY: `Inner` is a vector in parts. Its elements are reached through `Held` regions, which are raw bytes, and
// given back whole by `take`; so it may move and be shared between threads as its elements may.
unsafe impl<T: Send> Send for Inner<T> {}
// SAFETY: as above; `&Inner` gives no access to the elements.
unsafe impl<T: Send> Sync for Inner<T> {}

impl<T: Copy + Send + 'static> OriginBuffer<T> {
    /// Takes a vector.
    pub fn new(elements: Vec<T>) -> OriginBuffer<T> {
        let mut elements = ManuallyDrop::new(elements);
        let start = NonNull::new(elements.as_mut_ptr()).expect("a vector's pointer is never null");
        let (length, capacity) = (elements.len(), elements.capacity());
        let inner = Arc::new(Inner { start, length, capacity, taken: AtomicBool::new(false) });
        OriginBuffer { inner, part: Completion::begin().1 }
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.inner.length * size_of::<T>()
    }

    /// The memory, for its operation.
    pub fn lender(&self) -> LenderMut<'_> {
        let owner: Arc<dyn Send + Sync> = self.inner.clone();
        // SAFETY: the elements live as long as `Inner`, which `self` and every `Held` keep alive; `IssuedBuffer::take` gives
        // them away only when the operation is complete, that is, after every `Held` was let go of.
        let region = unsafe { RegionMut::from_raw(self.inner.start.as_ptr().cast(), self.bytes()) };
        LenderMut(Lender { region, part: &self.part, owner: Some(owner) })
    }

    /// All is issued, and nothing more is queued.
    pub fn issued(self) -> IssuedBuffer<T> {
        IssuedBuffer { inner: self.inner, completion: self.part.done() }
    }
}

impl<T: Copy + Send + 'static> IssuedBuffer<T> {
    /// What has to be complete before the vector is given back.
    pub fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    /// Gives the vector back. `None` before the operation is complete: then it goes when that is.
    pub fn take(self) -> Option<Vec<T>> {
        if !self.completion.is_complete() {
            return None;
        }
        self.inner.taken.store(true, Ordering::Release);
        // SAFETY: the parts come from one vector, which is given back once because `self` is gone, and nobody uses the memory any
        // more: every `Held` was let go of before its part of this buffer's own operation was done.
        Some(unsafe { Vec::from_raw_parts(self.inner.start.as_ptr(), self.inner.length, self.inner.capacity) })
    }
}

impl<T> Drop for Inner<T> {
    fn drop(&mut self) {
        if !*self.taken.get_mut() {
            // SAFETY: the parts come from one vector that was not given back, and this is the last owner.
            drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.length, self.capacity) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_own_operation_is_complete_and_not_before() {
        let issue = || {
            let buffer = OriginBuffer::new(vec![1_u64, 2, 3]);
            let held = buffer.lender().hold();
            (buffer.issued(), held)
        };
        let (early, held) = issue();
        assert!(early.take().is_none(), "the operation keeps it");
        drop(held);
        let (buffer, held) = issue();
        held.region_mut(Run { offset: 8, bytes: 8 }).copy_from_slice(&9_u64.to_ne_bytes());
        let again = held.again();
        drop(held);
        assert!(!buffer.completion().is_complete());
        again.fail(Outcome::Lost(crate::error::LostHow::Finalized));
        assert!(buffer.completion().failure().is_some());
        assert_eq!(buffer.take(), Some(vec![1, 9, 3]));
    }
}
