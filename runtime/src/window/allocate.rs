//! Making and freeing windows, collectively.

use std::sync::Arc;

use longarm_client::{AttachError, ClientWindow, Parts, WindowIdentity};
use longarm_proto::{Generation, Rank, WindowId};
use longarm_server::door::{DoorError, DoorRequest};
use longarm_shm::NodeWindow;
use longarm_shm::sync::Ordering;
use parking_lot::Mutex;

use super::ahead::MemoryOfNodes;
use super::kept::PartsHere;
use super::merged;
use super::name::{FreshName, Name};
use super::proposal::{FileOfServer, Found, Made, Outcome, Outcomes, Proposal, Proposals};
use super::shared::{Window, WindowInner};
use crate::collective::Signature;
use crate::element::Element;
use crate::error::{CollectiveError, WindowError};
use crate::group::{Group, bytes_of};
use crate::started::Started;

/// So many members on several nodes tell each other only what they come to, if that is enough; fewer all that each wants. Measured, by
/// `longarm-scale measure --only window`: with 16 over 4 nodes it takes 0.85 of the time, with 128 over 8 0.73.
const MERGE_MEMBERS_MIN: u32 = 32;

/// What the lowest member of a node has had made, and mapped.
struct Mapped {
    memory: NodeWindow,
    made_for: (WindowId, Generation),
    file: FileOfServer,
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
        let window = self.allocate_at(bytes, false)?;
        self.inner.take_huge_pages(&window.window, 0..bytes);
        Ok(window)
    }

    /// `aligned`: where it starts is a multiple of as large a power of two as fits into it.
    pub(crate) fn allocate_at(&self, bytes: u64, aligned: bool) -> Result<WindowInner, WindowError> {
        // Those that were started before may take the announced name, and tell of another one.
        self.finish_started();
        let numbers = &self.inner.numbers;
        let announced = if self.is_world() { numbers.take_announced() } else { None };
        let is_first = self.shared.index == 0;
        let fresh = is_first.then(|| FreshName::with_random_key(numbers.take())).transpose()?;
        let made_for = announced.filter(|_| !aligned).and_then(|announced| self.serve_ahead(announced, bytes));
        let mine = Proposal { bytes, fresh, announced: announced.map(|announced| announced.name), made_for };
        let proposals = self.propose(&mine);
        if let (Ok(proposals), Some(announced)) = (&proposals, announced)
            && let Some(memory) = self.memory_served_ahead(proposals)
            && self.refusal(proposals).is_none()
        {
            self.note_met();
            numbers.announce(proposals.fresh());
            let made_for = self.memory_here(&memory);
            let parts = self.parts_here(proposals, aligned).1;
            let found = Some(Found { made_for, file: None });
            return Ok(self.known(announced.identity(Rank(0)), proposals, parts, (None, found), Some(memory)));
        }
        // After a death the others may have heard of all that all have told, and have the window.
        let nobody_has_it = matches!(&proposals, Ok(_) | Err(CollectiveError::Mismatch { .. }));
        if let (Some(announced), Some(_)) = (announced, made_for)
            && nobody_has_it
        {
            self.withdraw(announced);
        }
        let proposals = proposals?;
        self.note_met();
        self.make_together(&proposals, aligned, announced)
    }

    /// Whether each member tells all others what it wants. On one node that costs nothing, and tells where the memory is. After a window for
    /// which not all said the same the next one probably is such a window, too. All members see the same.
    fn tells_all(&self) -> bool {
        // Relaxed: one thread of a member at a time makes windows over a group.
        let differed = self.shared.proposals_differed.load(Ordering::Relaxed);
        self.size() < MERGE_MEMBERS_MIN || self.nodes().count() == 1 || differed
    }

    /// All hear what each wants, or what they come to.
    fn propose(&self, mine: &Proposal) -> Result<Proposals, CollectiveError> {
        let of_world = self.is_world();
        if !self.tells_all() {
            let mine = merged::say_proposal(mine, of_world, self.is_maker());
            let all = self.merge_few(Signature::plain("allocate alike"), mine, merged::merge)?;
            if let Some(all) = merged::read_proposal(&all) {
                return Ok(Proposals::Alike(all));
            }
        }
        let mine = mine.words(of_world);
        let all = self.gather_few(Signature::plain("allocate"), &bytes_of(mine.as_slice()))?;
        let all: Vec<Proposal> = all.chunks(8 * mine.len()).map(Proposal::read).collect();
        let of_nodes = (0..self.nodes().count()).map(|node| all[self.nodes().leader(node) as usize].made_for);
        let differ = all.iter().any(|one| one.bytes != all[0].bytes)
            || of_nodes.into_iter().any(|made_for| made_for != all[0].made_for);
        self.shared.proposals_differed.store(differ, Ordering::Relaxed);
        Ok(Proposals::Each(all))
    }

    /// All hear whether each has done its part, and where the memory is.
    fn conclude(&self, mine: &Outcome, tells_all: bool) -> Result<Outcomes, CollectiveError> {
        let of_world = self.is_world();
        if !tells_all {
            let all = self.merge_few(
                Signature::plain("allocated alike"),
                merged::say_outcome(mine, of_world),
                merged::merge,
            )?;
            if let Some(all) = merged::read_outcome(&all) {
                return Ok(Outcomes::Alike(all));
            }
        }
        let mine = mine.words(of_world);
        let all = self.gather_few(Signature::plain("allocated"), &bytes_of(mine.as_slice()))?;
        Ok(Outcomes::Each(all.chunks(8 * mine.len()).map(Outcome::read).collect()))
    }

    /// The memory is made now that all know how large the parts are, and all learn whether every node has it.
    fn make_together(
        &self,
        proposals: &Proposals,
        aligned: bool,
        announced: Option<FreshName>,
    ) -> Result<WindowInner, WindowError> {
        let fresh = proposals.fresh().ok_or_else(|| self.names_nothing())?;
        let identity = fresh.identity(self.shared.members[0]);
        let refusal = self.refusal(proposals);
        let parts = self.parts_here(proposals, aligned);
        let made = match &refusal {
            Some(_) => None,
            None => Some(self.make(identity, &parts, aligned)),
        };
        let told = match &made {
            Some(Err(_)) => Made::Failed,
            Some(Ok(Some(mapped))) => Made::Memory(mapped.made_for, mapped.file),
            Some(Ok(None)) | None => Made::Nothing,
        };
        let tells_all = matches!(proposals, Proposals::Each(_));
        let outcomes = self.conclude(&Outcome { made: told, next: self.next_name(announced) }, tells_all)?;
        if self.is_world() {
            self.inner.numbers.announce(outcomes.next());
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        if let Some(place) = outcomes.failed() {
            return Err(self.undo(identity, made, self.shared.members[place as usize]));
        }
        let found = outcomes.found(self.maker_here());
        let memory = if parts.1.room.is_some() { self.memory_of_nodes(proposals, &outcomes) } else { None };
        let made = made.and_then(Result::ok).flatten().map(|mapped| mapped.memory);
        Ok(self.known(identity, proposals, parts.1, (made, found), memory))
    }

    /// The first member names every window: one that does not is broken.
    fn names_nothing(&self) -> CollectiveError {
        let rank = self.shared.members[0];
        let node = self.inner.client.layout().node_of(rank);
        let due = "what a new window is called".into();
        CollectiveError::BadMessage { rank, node, operation: "allocate".into(), found: 0, due }
    }

    /// What rank 0 says the next window of the world is called: the announced name, if this window has not taken it. `None` from all others, and
    /// where there are no random numbers: the next window is then made together.
    fn next_name(&self, unused: Option<FreshName>) -> Option<FreshName> {
        if !self.is_world() || self.shared.index != 0 {
            return None;
        }
        unused.or_else(|| FreshName::with_random_key(self.inner.numbers.take()).ok())
    }

    /// Why the window cannot be, for reasons that all members see alike.
    fn refusal(&self, proposals: &Proposals) -> Option<WindowError> {
        let bytes_max = self.inner.config.window_bytes_max;
        let (place, bytes) = proposals.first_above(bytes_max)?;
        Some(WindowError::TooLarge { rank: self.shared.members[place as usize], bytes, bytes_max })
    }

    /// All members have come to a collective about a window: each did before what it had to do for those before it.
    fn note_met(&self) {
        if self.is_world() {
            self.inner.numbers.have_met();
        }
    }

    /// The place of the member that has this node's memory made and freed: the lowest rank.
    fn maker_here(&self) -> u32 {
        let here = self.nodes().here().iter().copied();
        here.min_by_key(|place| self.shared.members[*place as usize]).expect("this rank is a member")
    }

    /// Whether that is this rank.
    fn is_maker(&self) -> bool {
        self.maker_here() == self.shared.index
    }

    /// The members on this node and their parts, ascending.
    fn parts_here(&self, proposals: &Proposals, aligned: bool) -> (Vec<u32>, PartsHere) {
        let here = self.nodes().here().iter();
        let mut here: Vec<(u32, u64)> =
            here.map(|place| (self.shared.members[*place as usize].0, proposals.bytes_at(*place))).collect();
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
    ) -> Result<Option<Mapped>, WindowError> {
        let rank = self.inner.client.layout().me();
        if !self.is_maker() {
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
        let file = FileOfServer { number: handed.number, address };
        let kept = &self.inner.memory;
        let memory = kept.window(made_for, parts).map_or_else(|| kept.map(made_for, parts, (handed.file, address)), Ok);
        memory.map(|memory| Some(Mapped { memory, made_for, file })).map_err(|error| {
            free();
            failed(error.to_string())
        })
    }

    /// Some node has failed: what this rank has made is taken back.
    fn undo(
        &self,
        identity: WindowIdentity,
        made: Option<Result<Option<Mapped>, WindowError>>,
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

    /// The window as its members know it. Its memory here is `made`, if this rank has just had it made; else it is opened at the first access, as `found`
    /// says, or asked for at the door.
    fn known(
        &self,
        identity: WindowIdentity,
        proposals: &Proposals,
        parts: PartsHere,
        (made, found): (Option<NodeWindow>, Option<Found>),
        memory_of_nodes: Option<MemoryOfNodes>,
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
            let found = found.and_then(|Found { made_for, file }| {
                inner.memory.window(made_for, &parts).or_else(|| {
                    let FileOfServer { number, address } = file?;
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
            let made_for = handed.made_for;
            let map = || inner.memory.map(made_for, &parts, (handed.file, handed.address));
            inner.memory.window(made_for, &parts).map_or_else(map, Ok).map_err(|error| refused(&error))
        };
        let client = match proposals {
            Proposals::Alike(all) if self.is_world() => {
                ClientWindow::new(layout, identity, Parts::Alike(all.bytes), attach)
            }
            _ => {
                let bytes = (0..self.size()).map(|place| proposals.bytes_at(place));
                let members: Vec<(Rank, u64)> = self.shared.members.iter().copied().zip(bytes).collect();
                ClientWindow::new(layout, identity, Parts::Each(&members), attach)
            }
        };
        let client = self.inner.client.show(client.held_by(self.inner.netmod.remote_memory()));
        WindowInner::new(Arc::new(client), self.clone(), memory_of_nodes)
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
        let freed = if self.is_maker() {
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
                self.inner.numbers.rest(Name::of(number, generation));
            }
        } else {
            self.run(Signature::plain("freed").with_count(number.0), |_| Ok(()))?;
            if self.shared.index == 0 {
                let name = Name { number: number.0 as u32, generation: generation.0 };
                self.inner.numbers.give_back(name);
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
        self.shared.group.free(&self.shared.window)
    }

    /// Starts [`Window::free_collective`], behind the collectives of the window's group that were started before.
    ///
    /// # Errors
    /// The future yields what [`Window::free_collective`] returns.
    pub fn start_free_collective(&self) -> Started<(), WindowError> {
        let shared = Arc::clone(&self.shared);
        self.shared.group.start(move |group| group.free(&shared.window))
    }
}
