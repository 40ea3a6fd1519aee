//! Making and freeing windows, collectively.

use std::os::fd::RawFd;
use std::sync::Arc;

use longarm_client::{AttachError, ClientWindow, WindowIdentity};
use longarm_proto::{AccessKey, Generation, Rank, WindowId};
use longarm_server::door::DoorRequest;
use longarm_shm::NodeWindow;
use parking_lot::Mutex;

use super::map::map;
use super::shared::{Window, WindowInner};
use crate::collective::Signature;
use crate::element::Element;
use crate::error::{CollectiveError, WindowError};
use crate::group::{Group, bytes_of, words_of};
use crate::started::Started;

/// What every member tells of a window that is being made. Only the first member's identity is used.
struct Proposal {
    bytes: u64,
    number: u32,
    generation: u32,
    key: u64,
}

/// Where the memory of a node's parts is found, by processes of that node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Found {
    /// The descriptor's number in the process of the node's server.
    number: RawFd,
    /// Where all ranks of the node map it. `None`: anywhere.
    address: Option<u64>,
}

/// What a node's first member has had made, and mapped.
struct Made {
    memory: NodeWindow,
    found: Found,
}

/// What a member tells of its part in making a window.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// It could not have its node's memory made.
    Failed,
    /// It had nothing to do.
    Nothing,
    Made(Found),
}

const OUTCOME_BYTES: usize = 16;

impl Outcome {
    fn words(self) -> [u64; OUTCOME_BYTES / 8] {
        match self {
            Outcome::Failed => [0, 0],
            Outcome::Nothing => [1, 0],
            // No window starts at address 0, and no number is negative.
            Outcome::Made(Found { number, address }) => [2 + number as u64, address.unwrap_or(0)],
        }
    }

    fn read(body: &[u8]) -> Outcome {
        match words_of(body) {
            [0, _] => Outcome::Failed,
            [1, _] => Outcome::Nothing,
            [number, address] => {
                Outcome::Made(Found { number: (number - 2) as RawFd, address: (address != 0).then_some(address) })
            }
        }
    }

    fn found(self) -> Option<Found> {
        match self {
            Outcome::Made(found) => Some(found),
            Outcome::Failed | Outcome::Nothing => None,
        }
    }
}

impl Group {
    /// Allocates a window with `count` elements at this rank; other members may ask for other numbers, 0 included.
    /// All bytes are zero. Memory is used where it is touched. Collective.
    ///
    /// `ARMCI_Malloc_group`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<f64>(1000)?; // at every rank, all zero
    /// assert_eq!(window.len_at(world.rank()), Some(1000));
    /// window.free_collective()?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The same on all members: [`WindowError::TooLarge`], [`WindowError::OutOfMemory`], or that of the collective.
    pub fn allocate_collective<T: Element>(&self, count: usize) -> Result<Window<T>, WindowError> {
        let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
        Ok(Window::from_shared(Arc::new(self.allocate(bytes)?)))
    }

    /// Starts [`Group::allocate_collective`], behind the collectives of this group that were started before.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// # futures_lite::future::block_on(async {
    /// let window = world.start_allocate_collective::<f64>(1000).await?;
    /// window.put_one(world.rank(), 7, 1.5)?;
    /// window.start_free_collective().await?;
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`Group::allocate_collective`] returns.
    pub fn start_allocate_collective<T: Element>(&self, count: usize) -> Started<Window<T>, WindowError> {
        self.start(move |group| group.allocate_collective(count))
    }

    pub(crate) fn allocate(&self, bytes: u64) -> Result<WindowInner, WindowError> {
        self.allocate_at(bytes, false)
    }

    /// `aligned`: where it starts is a multiple of as large a power of two as fits into it.
    pub(crate) fn allocate_at(&self, bytes: u64, aligned: bool) -> Result<WindowInner, WindowError> {
        let fresh = self.inner.numbers.take();
        let key = random_key()?;
        let mine = [bytes, u64::from(fresh.0), u64::from(fresh.1), key];
        let all = self.gather_few(Signature::plain("allocate"), &bytes_of(&mine))?;
        self.note_met();
        let proposals: Vec<Proposal> = all.chunks(size_of_val(&mine)).map(proposal).collect();
        let refusal = self.refusal(&proposals);
        let made = match &refusal {
            Some(_) => None,
            None => Some(self.make(&proposals, aligned)),
        };
        let outcome = match &made {
            Some(Err(_)) => Outcome::Failed,
            Some(Ok(Some(made))) => Outcome::Made(made.found),
            Some(Ok(None)) | None => Outcome::Nothing,
        };
        let outcomes = self.gather_few(Signature::plain("allocated"), &bytes_of(&outcome.words()))?;
        let outcomes: Vec<Outcome> = outcomes.chunks(OUTCOME_BYTES).map(Outcome::read).collect();
        let failed = outcomes.iter().position(|outcome| *outcome == Outcome::Failed);
        let creator = self.shared.members[0];
        if self.shared.index != 0 {
            self.inner.numbers.give_back(fresh.0, fresh.1 - 1);
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let identity = identity(creator, &proposals[0]);
        if let Some(place) = failed {
            return Err(self.undo(identity, made, self.shared.members[place]));
        }
        let members: Vec<(Rank, u64)> =
            self.shared.members.iter().copied().zip(proposals.iter().map(|proposal| proposal.bytes)).collect();
        let first_here = self.first_here();
        let found = self.shared.members.iter().zip(&outcomes).find(|(rank, _)| **rank == first_here);
        let found = found.and_then(|(_, outcome)| outcome.found());
        let made = made.and_then(Result::ok).flatten().map(|made| made.memory);
        Ok(self.known(identity, &members, made, found))
    }

    /// Why the window cannot be, for reasons that all members see alike.
    fn refusal(&self, proposals: &[Proposal]) -> Option<WindowError> {
        let bytes_max = self.inner.config.window_bytes_max;
        let (rank, proposal) =
            self.shared.members.iter().zip(proposals).find(|(_, proposal)| proposal.bytes > bytes_max)?;
        Some(WindowError::TooLarge { rank: *rank, bytes: proposal.bytes, bytes_max })
    }

    /// All members have come to a collective about a window: each did before what it had to do for those before it.
    fn note_met(&self) {
        if self.is_world() {
            self.inner.numbers.have_met();
        }
    }

    /// The member that has this node's memory made and freed.
    fn first_here(&self) -> Rank {
        let layout = self.inner.client.layout();
        let here = self.shared.members.iter().filter(|rank| layout.node_of(**rank) == layout.my_node());
        *here.min().expect("this rank is a member")
    }

    /// The first member of each node has the node's memory made.
    fn make(&self, proposals: &[Proposal], aligned: bool) -> Result<Option<Made>, WindowError> {
        let layout = self.inner.client.layout();
        let mut here: Vec<(u32, u64)> = self
            .shared
            .members
            .iter()
            .zip(proposals)
            .filter(|(rank, _)| layout.node_of(**rank) == layout.my_node())
            .map(|(rank, proposal)| (rank.0, proposal.bytes))
            .collect();
        here.sort_unstable();
        if here[0].0 != layout.me().0 {
            return Ok(None);
        }
        let part_bytes: Vec<u64> = here.iter().map(|part| part.1).collect();
        let WindowIdentity { window, generation, key } = identity(self.shared.members[0], &proposals[0]);
        let request =
            DoorRequest::Create { window: window.0, generation: generation.0, key: key.0, parts: here, aligned };
        let rank = layout.me();
        let failed = |reason: String| WindowError::OutOfMemory { rank, reason };
        let handed = self.inner.node.ask(&request).map_err(|error| failed(error.to_string()))?;
        let handed = handed.ok_or_else(|| failed("no descriptor came".into()))?;
        let found = Found { number: handed.number, address: handed.address };
        map(handed.file, handed.address, &part_bytes).map(|memory| Some(Made { memory, found })).map_err(|error| {
            // The server has it, and nobody will have a handle by which to free it.
            let _ = self.inner.node.ask(&DoorRequest::Free { window: window.0, generation: generation.0 });
            failed(error.to_string())
        })
    }

    /// Some node has failed: what this rank has made is taken back.
    fn undo(
        &self,
        identity: WindowIdentity,
        made: Option<Result<Option<Made>, WindowError>>,
        failed: Rank,
    ) -> WindowError {
        match made {
            Some(Err(mine)) => mine,
            made => {
                if let Some(Ok(Some(_))) = made {
                    let (window, generation) = (identity.window.0, identity.generation.0);
                    let _ = self.inner.node.ask(&DoorRequest::Free { window, generation });
                }
                WindowError::OutOfMemory { rank: failed, reason: "see the message of that rank".into() }
            }
        }
    }

    fn known(
        &self,
        identity: WindowIdentity,
        members: &[(Rank, u64)],
        made: Option<NodeWindow>,
        found: Option<Found>,
    ) -> WindowInner {
        let layout = self.inner.client.layout();
        let mut here: Vec<(Rank, u64)> =
            members.iter().copied().filter(|(rank, _)| layout.node_of(*rank) == layout.my_node()).collect();
        here.sort_unstable();
        let part_bytes: Vec<u64> = here.iter().map(|part| part.1).collect();
        let inner = Arc::downgrade(&self.inner);
        let made = Mutex::new(made);
        let attach = move || {
            if let Some(memory) = made.lock().take() {
                return Ok(memory);
            }
            let refused = |reason: &dyn std::fmt::Display| AttachError::Refused(reason.to_string());
            let inner = inner.upgrade().ok_or_else(|| refused(&"the world is finalized"))?;
            let WindowIdentity { window, generation, .. } = identity;
            let found = found.and_then(|Found { number, address }| {
                let file = inner.node.window_of_server(number, window, generation)?;
                map(file, address, &part_bytes).ok()
            });
            if let Some(memory) = found {
                return Ok(memory);
            }
            let request = DoorRequest::Attach { window: window.0, generation: generation.0 };
            let handed = inner.node.ask(&request).map_err(|error| match inner.lost_at_door(&error) {
                Some((rank, node, how)) => AttachError::Lost(rank, node, how),
                None => refused(&error),
            })?;
            let handed = handed.ok_or_else(|| refused(&"no descriptor came"))?;
            map(handed.file, handed.address, &part_bytes).map_err(|error| refused(&error))
        };
        let client = ClientWindow::new(layout, identity, members, attach);
        let client = self.inner.client.show(client.held_by(self.inner.netmod.remote_memory()));
        let client = Arc::new(client);
        WindowInner { client, inner: Arc::clone(&self.inner), group: self.clone() }
    }

    /// Frees a window that was allocated over this group.
    pub(crate) fn free(&self, window: &ClientWindow) -> Result<(), WindowError> {
        let WindowIdentity { window: number, generation, .. } = window.identity();
        if window.is_freed() {
            return Err(WindowError::FreedWindow { window: number });
        }
        let quiet = self.inner.client.quiet();
        // Behind the barrier another rank may give the memory back.
        window.let_go();
        self.run(Signature::plain("free").with_count(number.0), |_| Ok(()))?;
        self.note_met();
        window.mark_freed();
        let freed = if self.first_here() == self.inner.client.layout().me() {
            // Other threads and ranks may keep the mapping for a while, which then costs only addresses.
            if let Err(error) = window.give_back() {
                tracing::debug!(%error, "the memory of a freed window goes with its last mapping");
            }
            let request = DoorRequest::Free { window: number.0, generation: generation.0 };
            self.inner.node.ask(&request).map(drop).map_err(|error| WindowError::Door { reason: error.to_string() })
        } else {
            Ok(())
        };
        // Before the number is used again every node has to have forgotten it.
        if self.is_world() {
            if self.shared.index == 0 {
                self.inner.numbers.rest(number.0 as u32, generation.0);
            }
        } else {
            self.run(Signature::plain("freed").with_count(number.0), |_| Ok(()))?;
            if self.shared.index == 0 {
                self.inner.numbers.give_back(number.0 as u32, generation.0);
            }
        }
        freed?;
        quiet.map_err(|error| CollectiveError::from(error).into())
    }
}

impl<T: Element> Window<T> {
    /// Frees the window, with all its clones: from then on every operation on it gives
    /// [`TransferError::FreedWindow`](crate::error::TransferError::FreedWindow). What was issued before is completed first.
    /// Collective over the window's group. `ARMCI_Free_group`.
    ///
    /// # Errors
    /// [`WindowError::FreedWindow`] the second time; else that of the collective.
    pub fn free_collective(&self) -> Result<(), WindowError> {
        self.shared.group.free(&self.shared.client)
    }

    /// Starts [`Window::free_collective`], behind the collectives of the window's group that were started before.
    ///
    /// # Errors
    /// The future yields what [`Window::free_collective`] returns.
    pub fn start_free_collective(&self) -> Started<(), WindowError> {
        let shared = Arc::clone(&self.shared);
        self.shared.group.start(move |group| group.free(&shared.client))
    }
}

fn proposal(body: &[u8]) -> Proposal {
    let [bytes, number, generation, key] = words_of(body);
    Proposal { bytes, number: number as u32, generation: generation as u32, key }
}

fn identity(creator: Rank, proposal: &Proposal) -> WindowIdentity {
    WindowIdentity {
        window: WindowId(u64::from(creator.0) << 32 | u64::from(proposal.number)),
        generation: Generation(proposal.generation),
        key: AccessKey(proposal.key),
    }
}

fn random_key() -> Result<u64, WindowError> {
    let mut key = [0; 8];
    getrandom::fill(&mut key).map_err(|_| WindowError::Door { reason: "no random numbers".into() })?;
    Ok(u64::from_le_bytes(key))
}
