//! Words that RDMA devices update, and nobody else touches.
//!
//! There is no put, get or accumulate of them, and no view as a window, so that what devices do not do cannot be asked for on any
//! network.

use std::sync::Arc;

use longarm_client::DeviceRmwError;
use longarm_netmod::{DeviceRmw, NoDeviceRmw};
use longarm_proto::Rank;
use longarm_shm::sync::{Ordering, fence};

use crate::collective::Signature;
use crate::element::length_of;
use crate::error::WindowError;
use crate::group::Group;
use crate::started::lane::Lane;
use crate::started::{Started, promise};
use crate::window::WindowInner;

/// Words of 64 bits at every member of a group, zero at first, that are updated by RDMA devices: the target's processors take no
/// part, and neither does its server. Each word is updated by the device of the node where it lies, also on behalf of the ranks of that
/// node, by `IBV_WR_ATOMIC_FETCH_AND_ADD` and `IBV_WR_ATOMIC_CMP_AND_SWP` of the verbs interface.
///
/// Devices add, and compare and swap. Other updates, the minimum and maximum of a [`Window`](crate::Window) among them, are not
/// supported here and have no method; a loop around [`DeviceWords::compare_swap`] does them.
///
/// An update is atomic with respect to all others of the word, from everywhere. It comes behind all that this rank has issued
/// towards that node before, and is complete when its call returns: a rank that reads the word from then on sees it.
///
/// Cheap to clone; every clone is the same words.
///
/// ```
/// use longarm::error::WindowError;
///
/// let world = longarm::init()?;
/// match world.device_words_collective(2) {
///     Ok(words) => {
///         assert_eq!((words.len_at(0), words.group().size()), (Some(2), world.size()));
///         let task = words.fetch_add(0, 0, 1)?; // a task counter at rank 0
///         assert!(task < u64::from(world.size()));
///         while words.compare_swap(0, 1, 0, 1)? != 0 {} // a lock
///         words.compare_swap(0, 1, 1, 0)?;
///         world.sync_collective()?;
///         assert_eq!(words.load(0, 0)?, u64::from(world.size()));
///         words.free_collective()?;
///     }
///     Err(WindowError::NoDeviceRmw { rank, reason, .. }) => println!("a window has to do: rank {rank} {reason}"),
///     Err(other) => return Err(other.into()),
/// }
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone)]
pub struct DeviceWords {
    shared: Arc<WindowInner>,
    /// Updates that were started.
    started: Arc<Lane>,
}

impl Group {
    /// Makes `count` words of 8 bytes at this rank; other members may make other numbers, 0 included. Collective.
    ///
    /// # Errors
    /// The same on all members: [`WindowError::NoDeviceRmw`] where some member has no RDMA device that does such updates; else as
    /// [`Group::allocate_collective`].
    pub fn device_words_collective(&self, count: u64) -> Result<DeviceWords, WindowError> {
        let mine = self.inner.device_rmw().map_or_else(code_of, |()| 0);
        let all = self.gather_few(Signature::plain("device words"), &[mine])?;
        let refused = all.iter().enumerate().find_map(|(place, code)| Some((place, reason_of(*code)?)));
        if let Some((place, reason)) = refused {
            let rank = self.shared.members[place];
            return Err(WindowError::NoDeviceRmw { rank, node: self.inner.client.layout().node_of(rank), reason });
        }
        let bytes = count.saturating_mul(size_of::<u64>() as u64);
        Ok(DeviceWords { shared: Arc::new(self.allocate(bytes)?), started: Lane::new() })
    }

    /// Starts [`Group::device_words_collective`], behind the collectives of this group that were started before.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// # futures_lite::future::block_on(async {
    /// match world.start_device_words_collective(1).await {
    ///     Ok(words) => {
    ///         words.start_fetch_add(0, 0, 1).await?;
    ///         while words.start_load(0, 0).await? < u64::from(world.size()) {}
    ///         words.start_compare_swap(0, 0, u64::from(world.size()), 0).await?; // one of them
    ///         words.start_free_collective().await?;
    ///     }
    ///     Err(error) => println!("a window has to do: {error}"),
    /// }
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`Group::device_words_collective`] returns.
    pub fn start_device_words_collective(&self, count: u64) -> Started<DeviceWords, WindowError> {
        self.start(move |group| group.device_words_collective(count))
    }
}

/// How a member tells why it cannot; 0 says that it can.
fn code_of(reason: NoDeviceRmw) -> u8 {
    let place = NoDeviceRmw::ALL.iter().position(|other| *other == reason);
    1 + place.expect("all reasons are listed") as u8
}

fn reason_of(code: u8) -> Option<NoDeviceRmw> {
    let place = usize::from(code).checked_sub(1)?;
    Some(NoDeviceRmw::ALL.get(place).copied().unwrap_or(NoDeviceRmw::Network))
}

impl DeviceWords {
    /// How many words a rank has; `None` for ranks that are not in the group.
    pub fn len_at(&self, rank: u32) -> Option<usize> {
        length_of::<u64>(self.shared.window.bytes_of(Rank(rank)))
    }

    /// The group over which they were made.
    pub fn group(&self) -> &Group {
        &self.shared.group
    }

    /// Adds `value` to word `index` of a rank of the world, wrapping around, and gives the old value. Blocks until it is complete.
    /// `IBV_WR_ATOMIC_FETCH_AND_ADD`.
    ///
    /// # Errors
    /// [`DeviceRmwError`]: after [`DeviceRmwError::NotReached`] nothing was done. Only [`DeviceRmwError::ValueLost`] says that it was done; of [`DeviceRmwError::Unknown`], and of a
    /// target that is lost, nobody can say.
    pub fn fetch_add(&self, rank: u32, index: u64, value: u64) -> Result<u64, DeviceRmwError> {
        self.update(rank, index, DeviceRmw::FetchAdd(value))
    }

    /// Replaces word `index` of a rank by `new` if it is `expected`; gives the old value in any case. `IBV_WR_ATOMIC_CMP_AND_SWP`.
    ///
    /// # Errors
    /// As [`DeviceWords::fetch_add`].
    pub fn compare_swap(&self, rank: u32, index: u64, expected: u64, new: u64) -> Result<u64, DeviceRmwError> {
        self.update(rank, index, DeviceRmw::CompareSwap { expected, new })
    }

    /// Reads word `index` of a rank, as an addition of 0, which takes as long as any other.
    ///
    /// # Errors
    /// As [`DeviceWords::fetch_add`], but for a value that is lost: it is read again.
    pub fn load(&self, rank: u32, index: u64) -> Result<u64, DeviceRmwError> {
        loop {
            match self.fetch_add(rank, index, 0) {
                // To read once more harms nothing. Each time a connection has broken, and been made anew.
                Err(DeviceRmwError::ValueLost { .. } | DeviceRmwError::Unknown { .. }) => {}
                read => return read,
            }
        }
    }

    fn update(&self, rank: u32, index: u64, rmw: DeviceRmw) -> Result<u64, DeviceRmwError> {
        self.shared.client.device_rmw(&self.shared.window, Rank(rank), index, rmw)
    }

    /// Starts [`DeviceWords::fetch_add`], behind the updates of these words that this rank has started before. One that is dropped is
    /// done all the same.
    ///
    /// # Errors
    /// The future yields what [`DeviceWords::fetch_add`] returns.
    pub fn start_fetch_add(&self, rank: u32, index: u64, value: u64) -> Started<u64, DeviceRmwError> {
        self.start(move |words| words.fetch_add(rank, index, value))
    }

    /// Starts [`DeviceWords::compare_swap`], as [`DeviceWords::start_fetch_add`].
    ///
    /// # Errors
    /// The future yields what [`DeviceWords::compare_swap`] returns.
    pub fn start_compare_swap(&self, rank: u32, index: u64, expected: u64, new: u64) -> Started<u64, DeviceRmwError> {
        self.start(move |words| words.compare_swap(rank, index, expected, new))
    }

    /// Starts [`DeviceWords::load`], as [`DeviceWords::start_fetch_add`].
    ///
    /// # Errors
    /// The future yields what [`DeviceWords::load`] returns.
    pub fn start_load(&self, rank: u32, index: u64) -> Started<u64, DeviceRmwError> {
        self.start(move |words| words.load(rank, index))
    }

    /// On a worker: an update waits until the server of its node has done what it has still to do.
    fn start(
        &self,
        update: impl FnOnce(&DeviceWords) -> Result<u64, DeviceRmwError> + Send + 'static,
    ) -> Started<u64, DeviceRmwError> {
        let (started, promised) = promise();
        let words = self.clone();
        // SeqCst fence: as in an update, for what this thread has stored on this node; the worker's own comes later.
        fence(Ordering::SeqCst);
        self.shared.inner.workers.start(&self.started, move || promised.keep(update(&words)));
        started
    }

    /// Frees the words, when the updates that were started are over. Collective over their group.
    ///
    /// # Errors
    /// As [`Window::free_collective`](crate::Window::free_collective).
    pub fn free_collective(&self) -> Result<(), WindowError> {
        self.started.finish_before();
        self.shared.group.free(&self.shared.window)
    }

    /// Starts [`DeviceWords::free_collective`], behind the collectives of the words' group that were started before.
    ///
    /// # Errors
    /// The future yields what [`DeviceWords::free_collective`] returns.
    pub fn start_free_collective(&self) -> Started<(), WindowError> {
        let words = self.clone();
        self.shared.group.start(move |_| words.free_collective())
    }
}

impl std::fmt::Debug for DeviceWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceWords({})", self.shared.window.identity().window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_told_and_none_says_that_all_is_well() {
        assert_eq!(reason_of(0), None);
        for reason in NoDeviceRmw::ALL {
            assert_eq!(reason_of(code_of(reason)), Some(reason));
        }
        assert_eq!(reason_of(200), Some(NoDeviceRmw::Network), "of another release");
    }
}
