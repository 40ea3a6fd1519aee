//! Many single elements of many ranks in one call.
//!
//! ```text
//!   (rank 3, index 7, a) (rank 1, index 2, b) (rank 3, index 9, c)
//!        │ on this node: done at once, one after the other
//!        └ on other nodes: ordered by rank ──► rank 1: one request for b      rank 3: one request for a and c
//! ```
//!
//! A request's head is eight times as long as a word, and the server spends more on a request than on the word.

use longarm_client::{OriginBytes, OriginBytesMut, TransferError};
use longarm_proto::{Kernel, Rank, Scale};
use zerocopy::IntoBytes;

use super::accumulate::Update;
use super::many_handle::{Asked, ManyHandle};
use super::shared::Window;
use crate::element::{Element, Number};
use crate::error::Operation;
use crate::handle::Handle;
use crate::patch::Segment;

/// What a batch does with its elements, one of another node's rank at a time or as many as there are for one.
trait Batch<T: Element> {
    const OPERATION: Operation;

    /// On this node. False: another way has to be taken, or finds out what is wrong.
    fn at_once(&self, window: &Window<T>, rank: u32, index: usize, element: T) -> bool;

    /// A single one, together with others of other calls. False: as above.
    fn together(&self, window: &Window<T>, rank: u32, index: usize, element: T) -> bool;

    /// Several.
    fn start(
        &self,
        window: &Window<T>,
        rank: u32,
        pieces: &[Segment],
        elements: Vec<T>,
    ) -> Result<Handle<Vec<T>>, TransferError>;
}

/// Elements, each with its rank and its index there.
type List<T> = Vec<(u32, usize, T)>;

struct Puts;

impl<T: Element> Batch<T> for Puts {
    const OPERATION: Operation = Operation::Put;

    #[inline]
    fn at_once(&self, window: &Window<T>, rank: u32, index: usize, element: T) -> bool {
        let client = &window.shared.client;
        client.put_at_once(&window.shared.window, Rank(rank), Window::<T>::offset(index), bytes_of(&[element]))
    }

    fn together(&self, window: &Window<T>, rank: u32, index: usize, element: T) -> bool {
        window.put_together(rank, index, &[element])
    }

    fn start(
        &self,
        window: &Window<T>,
        rank: u32,
        pieces: &[Segment],
        elements: Vec<T>,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        window.start_put(rank, pieces, elements)
    }
}

struct Updates<T> {
    update: Update<T>,
    operator: (Kernel, Scale),
}

impl<T: Number> Updates<T> {
    fn new(update: Update<T>, operands: &[(u32, usize, T)]) -> Result<Updates<T>, TransferError> {
        let operator = update.kernel(operands.first().map_or(0, |(rank, _, _)| *rank))?;
        Ok(Updates { update, operator })
    }
}

impl<T: Number> Batch<T> for Updates<T> {
    const OPERATION: Operation = Operation::Accumulate;

    #[inline]
    fn at_once(&self, window: &Window<T>, rank: u32, index: usize, element: T) -> bool {
        let (client, part) = (&window.shared.client, &window.shared.window);
        let (offset, (kernel, scale)) = (Window::<T>::offset(index), &self.operator);
        part.part_here(Self::OPERATION, Rank(rank)).is_ok_and(|part| part.is_some())
            && client.accumulate_run(part, Rank(rank), offset, (*kernel, scale), bytes_of(&[element])).is_ok()
    }

    fn together(&self, window: &Window<T>, rank: u32, index: usize, element: T) -> bool {
        let (client, part) = (&window.shared.client, &window.shared.window);
        let (offset, (kernel, scale)) = (Window::<T>::offset(index), &self.operator);
        client.accumulate_together(part, Rank(rank), offset, (*kernel, scale), bytes_of(&[element]))
    }

    fn start(
        &self,
        window: &Window<T>,
        rank: u32,
        pieces: &[Segment],
        elements: Vec<T>,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        window.start_accumulate(rank, pieces, self.update, elements)
    }
}

/// Many elements in one call, each somewhere else. As if the calls for single elements were made in the order of the list, only in
/// fewer requests: those to another node go in one for each rank, 253 elements at most in each.
impl<T: Element> Window<T> {
    /// Writes each element to an index of a rank: a list of (rank, index, element). Completion as [`Window::put`].
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u64>(100)?;
    /// let right = (world.rank() + 1) % world.size();
    /// window.put_many(&[(right, 7, 70), (right, 3, 30), (right, 99, 990)])?;
    /// world.barrier_collective()?;
    /// assert_eq!(window.get_many(&[(world.rank(), 99), (world.rank(), 7)])?, [990, 70]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put`], of the first that cannot be done. What can be known at once is looked at for all of them first, and then
    /// nothing was written; when a target is lost meanwhile, those for other ranks were or were not.
    pub fn put_many(&self, elements: &[(u32, usize, T)]) -> Result<(), TransferError> {
        // Nobody waits for what was started: its elements are copies, which are kept until they are on their way.
        self.issue_many(&Puts, elements).map(drop)
    }

    /// Reads the element at each index of a rank: a list of (rank, index). They come in the order of the list, and show what
    /// those of [`Window::get`] would.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<i32>(10)?;
    /// window.put(0, 0..3, &[5, 6, 7])?;
    /// assert_eq!(window.get_many(&[(0, 2), (0, 0), (0, 2)])?, [7, 5, 7]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::get`], of the first that cannot be done.
    pub fn get_many(&self, places: &[(u32, usize)]) -> Result<Vec<T>, TransferError> {
        let (elements, asked) = self.ask_many(places)?;
        ManyHandle::of_places(elements, asked).wait()
    }

    /// Starts [`Window::put_many`] and gives the list back once nothing of it is in use any more. Awaited, it blocks no thread.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u64>(100)?;
    /// let right = (world.rank() + 1) % world.size();
    /// # futures_lite::future::block_on(async {
    /// let list = window.start_put_many(vec![(right, 7, 70), (right, 99, 990)])?.await?;
    /// world.start_barrier_collective().await?;
    /// let places = list.iter().map(|(_, index, _)| (world.rank(), *index)).collect();
    /// assert_eq!(window.start_get_many(places)?.await?, [70, 990]);
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// What can be known now, as [`Window::put_many`]; the list is dropped. The rest comes from the handle.
    pub fn start_put_many(&self, elements: Vec<(u32, usize, T)>) -> Result<ManyHandle<T, List<T>>, TransferError> {
        let handles = self.issue_many(&Puts, &elements)?;
        Ok(ManyHandle::of_list(elements, handles))
    }

    /// Starts [`Window::get_many`]. Awaited, it blocks no thread.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<i32>(10)?;
    /// window.put(world.rank(), 0, &[5, 6, 7])?;
    /// let get = window.start_get_many(vec![(world.rank(), 2), (world.rank(), 0)])?;
    /// // ... compute ...
    /// assert_eq!(get.wait()?, [7, 5]); // or get.await
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// What can be known now, as [`Window::get_many`]. The rest comes from the handle.
    pub fn start_get_many(&self, places: Vec<(u32, usize)>) -> Result<ManyHandle<T, Vec<T>>, TransferError> {
        let (elements, asked) = self.ask_many(&places)?;
        Ok(ManyHandle::of_places(elements, asked))
    }

    /// What is here is read. The rest has room in the list, and is asked for.
    fn ask_many(&self, places: &[(u32, usize)]) -> Result<(Vec<T>, Vec<Asked<T>>), TransferError> {
        places.iter().try_for_each(|(rank, index)| self.check_one(Operation::Get, *rank, *index))?;
        let (client, window) = (&self.shared.client, &self.shared.window);
        let mut elements = vec![T::new_zeroed(); places.len()];
        let mut away = Vec::new();
        for (place, (rank, index)) in places.iter().enumerate() {
            let target = OriginBytesMut::from(elements[place..=place].as_mut_bytes());
            if !client.get_at_once(window, Rank(*rank), Self::offset(*index), &target) {
                away.push((*rank, place));
            }
        }
        let mut asked = Vec::new();
        for of_rank in by_rank(&mut away, |(rank, _)| *rank) {
            let pieces = pieces(of_rank.iter().map(|(_, place)| places[*place].1));
            let room = vec![T::new_zeroed(); of_rank.len()];
            let handle = self.start_get(of_rank[0].0, &pieces, room)?;
            asked.push(Asked { places: of_rank.iter().map(|(_, place)| *place).collect(), handle });
        }
        Ok((elements, asked))
    }

    /// An element that can be neither there nor anywhere.
    #[inline]
    fn check_one(&self, operation: Operation, rank: u32, index: usize) -> Result<(), TransferError> {
        let offset = Self::offset(index);
        self.shared.window.check(operation, Rank(rank), offset, offset.saturating_add(size_of::<T>() as u64))
    }

    /// Gives what was started of it; the rest is done.
    fn issue_many<B: Batch<T>>(
        &self,
        batch: &B,
        elements: &[(u32, usize, T)],
    ) -> Result<Vec<Handle<Vec<T>>>, TransferError> {
        elements.iter().try_for_each(|(rank, index, _)| self.check_one(B::OPERATION, *rank, *index))?;
        let mut away = Vec::new();
        for (rank, index, element) in elements {
            if !batch.at_once(self, *rank, *index, *element) {
                away.push((*rank, *index, *element));
            }
        }
        let mut handles = Vec::new();
        for of_rank in by_rank(&mut away, |(rank, _, _)| *rank) {
            let (rank, index, element) = of_rank[0];
            if of_rank.len() == 1 && batch.together(self, rank, index, element) {
                continue;
            }
            let pieces = pieces(of_rank.iter().map(|(_, index, _)| *index));
            let elements = of_rank.iter().map(|(_, _, element)| *element).collect();
            handles.push(batch.start(self, rank, &pieces, elements)?);
        }
        Ok(handles)
    }
}

impl<T: Number> Window<T> {
    /// Updates the element at each index of a rank: a list of (rank, index, operand). Each is updated atomically, as by
    /// [`Window::accumulate`]; an index that is in the list twice is updated twice.
    ///
    /// ```
    /// use longarm::Update;
    /// let world = longarm::init()?;
    /// let histogram = world.allocate_collective::<u64>(16)?;
    /// let samples = [3_u64, 14, 3, 8];
    /// let size = u64::from(world.size());
    /// let bins: Vec<_> = samples.iter().map(|at| ((at % size) as u32, (at / size) as usize, 1)).collect();
    /// histogram.update_many(&bins, Update::Sum)?;
    /// world.barrier_collective()?;
    /// assert_eq!(histogram.get_one((3 % size) as u32, (3 / size) as usize)?, 2 * size);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put_many`], and [`TransferError::NoSuchKernel`] for an update that the type does not have.
    pub fn update_many(&self, operands: &[(u32, usize, T)], update: Update<T>) -> Result<(), TransferError> {
        self.issue_many(&Updates::new(update, operands)?, operands).map(drop)
    }

    /// Starts [`Window::update_many`] and gives the list back once nothing of it is in use any more. Awaited, it blocks no thread.
    ///
    /// ```
    /// use longarm::Update;
    /// let world = longarm::init()?;
    /// let histogram = world.allocate_collective::<u64>(16)?;
    /// # futures_lite::future::block_on(async {
    /// let ones = vec![(0, 3, 1), (0, 14, 1), (0, 3, 1)];
    /// let ones = histogram.start_update_many(ones, Update::Sum)?.await?;
    /// histogram.start_update_many(ones, Update::Sum)?.await?;
    /// world.start_barrier_collective().await?;
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// assert_eq!(histogram.get_one(0, 3)?, 4 * u64::from(world.size()));
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::start_put_many`] and [`Window::update_many`].
    pub fn start_update_many(
        &self,
        operands: Vec<(u32, usize, T)>,
        update: Update<T>,
    ) -> Result<ManyHandle<T, List<T>>, TransferError> {
        let handles = self.issue_many(&Updates::new(update, &operands)?, &operands)?;
        Ok(ManyHandle::of_list(operands, handles))
    }
}

fn bytes_of<T: Element>(element: &[T]) -> OriginBytes<'_> {
    OriginBytes::from(element.as_bytes())
}

/// Those of each rank. The order among them stays.
fn by_rank<E>(elements: &mut [E], rank_of: impl Fn(&E) -> u32) -> impl Iterator<Item = &[E]> {
    elements.sort_by_key(&rank_of);
    elements.chunk_by(move |one, other| rank_of(one) == rank_of(other))
}

/// One element at each index, from a buffer in which they follow each other.
fn pieces(indices: impl Iterator<Item = usize>) -> Vec<Segment> {
    indices.enumerate().map(|(origin, target)| Segment { target, origin, count: 1 }).collect()
}
