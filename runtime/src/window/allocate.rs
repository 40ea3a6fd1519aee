//! Making and freeing windows, collectively.

use std::os::fd::RawFd;
use std::sync::Arc;

use longarm_client::{AttachError, ClientWindow, WindowIdentity};
use longarm_proto::{AccessKey, Generation, Rank, WindowId};
use longarm_server::door::{DoorError, DoorRequest};
use longarm_shm::NodeWindow;
use parking_lot::Mutex;

use super::kept::PartsHere;
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
    /// The window that the memory was made for.
    made_for: (WindowId, Generation),
    /// Where all ranks of the node map it. `None`: anywhere.
    address: Option<u64>,
}

/// What the lowest member of a node has had made, and mapped.
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

const OUTCOME_BYTES: usize = 24;

impl Outcome {
    fn words(self) -> [u64; OUTCOME_BYTES / 8] {
        match self {
            Outcome::Failed => [0; 3],
            Outcome::Nothing => [1, 0, 0],
            // No window starts at address 0, and no number is negative.
            Outcome::Made(Found { number, made_for: (window, generation), address }) => {
                [2 + number as u64 + (u64::from(generation.0) << 32), window.0, address.unwrap_or(0)]
            }
        }
    }

    fn read(body: &[u8]) -> Outcome {
        match words_of::<{ OUTCOME_BYTES / 8 }>(body) {
            [0, ..] => Outcome::Failed,
            [1, ..] => Outcome::Nothing,
            [number, window, address] => Outcome::Made(Found {
                number: (number as u32).wrapping_sub(2) as RawFd,
                made_for: (WindowId(window), Generation((number >> 32) as u32)),
                address: (address != 0).then_some(address),
            }),
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
        // Only the first member's is used.
        let key = if self.shared.index == 0 { random_key()? } else { 0 };
        let mine = [bytes, u64::from(fresh.0), u64::from(fresh.1), key];
        let all = self.gather_few(Signature::plain("allocate"), &bytes_of(&mine))?;
        self.note_met();
        let proposals: Vec<Proposal> = all.chunks(size_of_val(&mine)).map(proposal).collect();
        let refusal = self.refusal(&proposals);
        let parts = self.parts_here(&proposals, aligned);
        let made = match &refusal {
            Some(_) => None,
            None => Some(self.make(identity(self.shared.members[0], &proposals[0]), &parts, aligned)),
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
        let maker_here = self.maker_here();
        let found = self.shared.members.iter().zip(&outcomes).find(|(rank, _)| **rank == maker_here);
        let found = found.and_then(|(_, outcome)| outcome.found());
        let made = made.and_then(Result::ok).flatten().map(|made| made.memory);
        Ok(self.known(identity, &members, parts.1, (made, found)))
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
    fn maker_here(&self) -> Rank {
        let layout = self.inner.client.layout();
        let here = self.shared.members.iter().filter(|rank| layout.node_of(**rank) == layout.my_node());
        *here.min().expect("this rank is a member")
    }

    /// The members on this node and their parts, ascending.
    fn parts_here(&self, proposals: &[Proposal], aligned: bool) -> (Vec<u32>, PartsHere) {
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
        let (ranks, bytes): (Vec<u32>, Vec<u64>) = here.into_iter().unzip();
        // Memory that stays mapped is kept for the world's windows only: other groups are without number. The ranks of a simulation are
        // in one process, and share no mapping; a heap stays.
        let of_its_own = aligned || !self.is_world() || self.inner.is_simulated;
        let room = if of_its_own { None } else { NodeWindow::room_for(&bytes) };
        (ranks, PartsHere { bytes, room })
    }

    /// The lowest member of each node has the node's memory made.
    fn make(
        &self,
        WindowIdentity { window, generation, key }: WindowIdentity,
        (ranks, parts): &(Vec<u32>, PartsHere),
        aligned: bool,
    ) -> Result<Option<Made>, WindowError> {
        let rank = self.inner.client.layout().me();
        if ranks[0] != rank.0 {
            return Ok(None);
        }
        let request = DoorRequest::Create {
            window: window.0,
            generation: generation.0,
            key: key.0,
            parts: ranks.iter().copied().zip(parts.bytes.iter().copied()).collect(),
            aligned,
            room: parts.room,
        };
        let failed = |reason: String| WindowError::OutOfMemory { rank, reason };
        let free = || {
            // The server may have it, and nobody will have a handle by which to free it.
            let _ = self.inner.node.ask(&DoorRequest::Free { window: window.0, generation: generation.0 });
        };
        let handed = self.inner.node.ask(&request).map_err(|error| {
            if !matches!(error, DoorError::Refused { .. }) {
                free();
            }
            failed(error.to_string())
        })?;
        let handed = handed.ok_or_else(|| failed("no descriptor came".into()))?;
        let (made_for, address) = (handed.made_for, handed.address);
        let found = Found { number: handed.number, made_for, address };
        let kept = &self.inner.memory;
        let memory = kept.window(made_for, parts).map_or_else(|| kept.map(made_for, parts, (handed.file, address)), Ok);
        memory.map(|memory| Some(Made { memory, found })).map_err(|error| {
            free();
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
        parts: PartsHere,
        (made, found): (Option<NodeWindow>, Option<Found>),
    ) -> WindowInner {
        let layout = self.inner.client.layout();
        let inner = Arc::downgrade(&self.inner);
        let made = Mutex::new(made);
        let attach = move || {
            if let Some(memory) = made.lock().take() {
                return Ok(memory);
            }
            let refused = |reason: &dyn std::fmt::Display| AttachError::Refused(reason.to_string());
            let inner = inner.upgrade().ok_or_else(|| refused(&"the world is finalized"))?;
            let WindowIdentity { window, generation, .. } = identity;
            let found = found.and_then(|Found { number, made_for, address }| {
                inner.memory.window(made_for, &parts).or_else(|| {
                    let file = inner.node.window_of_server(number, made_for)?;
                    inner.memory.map(made_for, &parts, (file, address)).ok()
                })
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
            let memory = inner.memory.map(handed.made_for, &parts, (handed.file, handed.address));
            memory.map_err(|error| refused(&error))
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
        let freed = if self.maker_here() == self.inner.client.layout().me() {
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
