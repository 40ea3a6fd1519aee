//! The origin's side of a transfer: bytes of this process, lent or owned until an operation lets go of them.
//!
//! Besides `exposed` this is the crate's only module with unsafe code. It turns "the caller keeps this memory" into types:
//!
//! - [`OriginBytes`] and [`OriginBytesMut`] are borrowed, or made by a C face from a pointer it vouches for;
//! - [`lend`] lets an operation keep borrowed bytes until its completion is complete, and does not return before;
//! - [`OriginBuffer`] owns its bytes: an operation in progress keeps them alive, whoever forgets the rest.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::flow::{RunSource, RunTarget};
use longarm_proto::Run;
use longarm_shm::sync::{AtomicBool, Ordering};

use crate::completion::Completion;

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
    completion: Arc<Completion>,
    /// Keeps owned memory alive; borrowed memory is kept by whoever called [`lend`].
    _owner: Option<Arc<dyn Send + Sync>>,
}

impl Held {
    /// The same memory for another part of the same operation.
    pub(crate) fn again(&self) -> Held {
        self.completion.add_part();
        Held { region: self.region, completion: Arc::clone(&self.completion), _owner: self._owner.clone() }
    }

    pub(crate) fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    /// All of it, of which some need not exist ([`Lender::vouched`]).
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

/// The right to queue borrowed memory of lifetime `'a`. Exists only inside [`lend`].
pub struct Lent<'a> {
    completion: Arc<Completion>,
    /// Invariant: a longer or shorter lifetime would be another promise.
    lifetime: PhantomData<&'a mut &'a ()>,
}

impl<'a> Lent<'a> {
    /// What has to be complete before [`lend`] returns.
    pub fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    /// The same right once more, for a face that hands it on by reference.
    ///
    /// It may outlive [`lend`]'s body only as a value that can no longer queue anything that is lent: its lifetime is
    /// that of the memory, and the completion takes no more parts once it is complete.
    pub fn again(&self) -> Lent<'a> {
        Lent { completion: Arc::clone(&self.completion), lifetime: PhantomData }
    }

    /// Bytes that operations under this completion read.
    pub fn source(&self, bytes: OriginBytes<'a>) -> Lender<'_> {
        let region = bytes.region();
        // SAFETY: the bytes are readable for `'a`, which outlives this borrow of `self`. Operations only read what
        // came through `source`: a lender is given either to a write or, from `target`, to a get.
        let region = unsafe { RegionMut::from_raw(region.as_ptr().cast_mut(), region.len()) };
        Lender { region, completion: &self.completion, owner: None }
    }

    /// Bytes that operations under this completion write.
    pub fn target(&self, bytes: OriginBytesMut<'a>) -> Lender<'_> {
        Lender { region: bytes.region(), completion: &self.completion, owner: None }
    }
}

/// Memory of the origin and the right to queue it: made by [`Lent`] or [`OriginBuffer`], or by whoever vouches
/// for it ([`Lender::vouched`]).
pub struct Lender<'l> {
    region: RegionMut<'l>,
    completion: &'l Arc<Completion>,
    owner: Option<Arc<dyn Send + Sync>>,
}

impl<'l> Lender<'l> {
    /// Memory that somebody outside vouches for: a C program whose contract says how long it stays.
    ///
    /// # Safety
    /// The bytes that the operation touches stay readable for a write, and writable for a read, until the completion
    /// is complete; for a read no reference to them is used meanwhile. Others of the region need not exist.
    pub unsafe fn vouched(region: RegionMut<'l>, completion: &'l Arc<Completion>) -> Lender<'l> {
        Lender { region, completion, owner: None }
    }

    pub(crate) fn region(&self) -> RegionMut<'l> {
        self.region
    }

    /// For a queue: one more part of the completion.
    pub(crate) fn hold(&self) -> Held {
        self.completion.add_part();
        // SAFETY: borrowed memory: `lend` does not return before the completion is complete, and a `Held` is let
        // go of before its part is done. Owned memory: the `Held` keeps its owner. Memory of `vouched`: its contract.
        let region = unsafe { RegionMut::from_raw(self.region.as_mut_ptr(), self.region.len()) };
        Held { region, completion: Arc::clone(self.completion), _owner: self.owner.clone() }
    }
}

/// Runs `body`, which may queue borrowed memory of lifetime `'a` under `completion` and has to wait for it.
///
/// If `body` returns or unwinds before the completion is complete, the process is aborted: the borrow would end
/// while a queue still uses the memory. Only a bug of ours can cause that.
pub fn lend<'a, R>(completion: Arc<Completion>, body: impl FnOnce(&Lent<'a>) -> R) -> R {
    struct Guard(Arc<Completion>);
    impl Drop for Guard {
        fn drop(&mut self) {
            if !self.0.is_complete() {
                eprintln!("longarm: an operation ended before it let go of its buffer; this is a bug of longarm");
                std::process::abort();
            }
        }
    }
    let lent = Lent { completion: Arc::clone(&completion), lifetime: PhantomData };
    let _guard = Guard(completion);
    body(&lent)
}

/// Elements that an operation owns until it is complete, and then gives back as the vector they came in.
pub struct OriginBuffer<T> {
    inner: Arc<Inner<T>>,
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
        OriginBuffer { inner: Arc::new(Inner { start, length, capacity, taken: AtomicBool::new(false) }) }
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.inner.length * size_of::<T>()
    }

    /// The memory under a completion that has parts left.
    pub fn lender<'l>(&'l self, completion: &'l Arc<Completion>) -> Lender<'l> {
        assert!(!completion.is_complete(), "the buffer may have been given back");
        let owner: Arc<dyn Send + Sync> = self.inner.clone();
        // SAFETY: the elements live as long as `Inner`, which `self` and every `Held` keep alive; `take` gives
        // them away only when the completion is complete, that is, after every `Held` was let go of.
        let region = unsafe { RegionMut::from_raw(self.inner.start.as_ptr().cast(), self.bytes()) };
        Lender { region, completion, owner: Some(owner) }
    }

    /// Gives the vector back. `None` before the completion is complete, and a second time.
    pub fn take(&self, completion: &Completion) -> Option<Vec<T>> {
        if !completion.is_complete() || self.inner.taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: the parts come from one vector, `taken` lets this happen once, and nobody uses the memory any
        // more: every `Held` was let go of before the completion became complete.
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
