//! Which windows this node serves, and what a request has to match before it may touch one.

use std::collections::HashMap;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::RemoteMemory;
use longarm_netmod::flow::{RunSource, RunTarget};
use longarm_proto::{AccessKey, Generation, JobId, Mutation, Rank, Refusal, Run, WindowId, WindowRef, mutation};
use longarm_shm::{NodeWindow, Window};

use crate::address::AddressSpace;
use crate::door::window_name;

/// What memory a window is to have.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryWanted {
    /// Its addresses start at a multiple of as large a power of two as fits into it.
    pub aligned: bool,
    /// How much room each part has, so that other windows can follow in the memory: [`NodeWindow::room_for`].
    pub room: Option<u64>,
}

/// This node's parts of one window: the memory, and whose part is which.
#[derive(Debug)]
pub struct WindowParts {
    /// The memfd with all parts of this node.
    pub memory: NodeWindow,
    /// The rank of each part, ascending.
    pub ranks: Vec<Rank>,
    /// The window that the memory was made for: this one, or one before it. Tells memory from all other.
    pub made_for: (WindowId, Generation),
}

impl WindowParts {
    /// The part that `rank` exposes, if it has one on this node.
    pub fn part(&self, rank: Rank) -> Option<Window<'_>> {
        let index = self.ranks.binary_search(&rank).ok()?;
        Some(self.memory.part(index))
    }
}

struct Entry {
    /// While they are there, peers reach the parts without us. First, so that they go before the memory does.
    _published: Vec<Box<dyn Send + Sync>>,
    generation: Generation,
    key: AccessKey,
    parts: Arc<WindowParts>,
    /// Where the ranks of this node map it, if there was room.
    address: Option<u64>,
}

/// Memory that a freed window had, and the next one of the same ranks and room may have. It is zeros.
struct Spare {
    memory: NodeWindow,
    made_for: (WindowId, Generation),
    address: Option<u64>,
    /// It has pages since then, which the next window finds in the processor's caches.
    warm_since_ms: Option<u64>,
}

/// How long memory that no window has keeps its pages, at least; at most twice that.
pub(crate) const WARM_MS: u64 = 500;

/// Whose parts memory has, and how much room each.
type SpareKind = (Vec<Rank>, u64);

/// The windows of this node by identity.
///
/// A freed window leaves only the generation behind, so that a late request is told the truth.
pub struct Windows {
    live: HashMap<WindowId, Entry>,
    freed: HashMap<WindowId, Generation>,
    /// Never given up while the job lasts, for the ranks keep it mapped. Of each kind as much as windows had at one time.
    spare: HashMap<SpareKind, Vec<Spare>>,
    /// Memory of freed windows from which something is still sent, or into which something still comes: it becomes spare afterwards. A get
    /// is over here when its origin has said so, which may be long after it has all. Nobody wants its bytes, so it has no pages meanwhile.
    busy: Vec<(Arc<WindowParts>, Option<u64>)>,
    addresses: AddressSpace,
    remote: Option<Arc<dyn RemoteMemory>>,
}

impl Windows {
    /// None yet.
    pub fn of_job(job: JobId) -> Windows {
        Windows {
            live: HashMap::new(),
            freed: HashMap::new(),
            spare: HashMap::new(),
            busy: Vec::new(),
            addresses: AddressSpace::of_job(job),
            remote: None,
        }
    }

    /// From now on windows are also published there.
    pub fn publish_to(&mut self, remote: Option<Arc<dyn RemoteMemory>>) {
        self.remote = remote;
    }

    fn publish(
        &self,
        (window, generation, key): (WindowId, Generation, AccessKey),
        parts: &WindowParts,
    ) -> Vec<Box<dyn Send + Sync>> {
        let Some(remote) = &self.remote else { return Vec::new() };
        let each = parts.ranks.iter().enumerate();
        each.map(|(index, rank)| {
            let part = WindowRef { rank: *rank, window, generation, key };
            remote.publish(part, parts.memory.part(index).whole())
        })
        .collect()
    }

    /// Starts to serve a window with parts of these ranks, ascending, and sizes: in memory that a window had before, if it is to have room
    /// in which others follow it, and there is some.
    ///
    /// # Errors
    /// Why not, as text for who asked at the door.
    pub fn create(
        &mut self,
        job: JobId,
        identity: (WindowId, Generation, AccessKey),
        (ranks, part_bytes): (Vec<Rank>, &[u64]),
        memory: MemoryWanted,
        now_ms: u64,
    ) -> Result<(), String> {
        let (window, generation, _) = identity;
        if self.live.contains_key(&window) {
            return Err("a window of this identity exists".into());
        }
        let MemoryWanted { aligned, room } = memory;
        if let Some(room) = room
            && self.create_in_spare(identity, (&ranks, part_bytes), room, now_ms).is_some()
        {
            return Ok(());
        }
        let name = window_name(job, window, generation);
        let memory = NodeWindow::create_with_room(&name, part_bytes, room).map_err(|error| error.to_string())?;
        let address = self.addresses.take(memory.bytes(), aligned);
        self.insert(identity, WindowParts { memory, ranks, made_for: (window, generation) }, address);
        Ok(())
    }

    /// Starts to serve a window before its ranks have told how large their parts are, in memory that a window of the same ranks had before:
    /// each part is served as large as its room, and stays so. Gives the window that the memory was made for. `None`: there is
    /// no such memory, or devices would hold on to all of the room.
    pub(crate) fn create_ahead(
        &mut self,
        identity: (WindowId, Generation, AccessKey),
        ranks: &[Rank],
        room: u64,
        now_ms: u64,
    ) -> Option<(WindowId, Generation)> {
        if self.live.contains_key(&identity.0) || self.remote.is_some() {
            return None;
        }
        self.create_in_spare(identity, (ranks, &vec![room; ranks.len()]), room, now_ms)
    }

    fn create_in_spare(
        &mut self,
        identity: (WindowId, Generation, AccessKey),
        (ranks, part_bytes): (&[Rank], &[u64]),
        room: u64,
        now_ms: u64,
    ) -> Option<(WindowId, Generation)> {
        self.look_at_busy(now_ms);
        let ranks = ranks.to_vec();
        let spares = self.spare.get_mut(&(ranks.clone(), room))?;
        let spare = spares.pop_if(|spare| spare.memory.again(part_bytes).is_some())?;
        let memory = spare.memory.again(part_bytes).expect("asked just now");
        self.insert(identity, WindowParts { memory, ranks, made_for: spare.made_for }, spare.address);
        Some(spare.made_for)
    }

    fn insert(
        &mut self,
        (window, generation, key): (WindowId, Generation, AccessKey),
        parts: WindowParts,
        address: Option<u64>,
    ) {
        self.freed.remove(&window);
        let published = self.publish((window, generation, key), &parts);
        self.live.insert(window, Entry { _published: published, generation, key, parts: Arc::new(parts), address });
    }

    /// The parts of a live window, and where the ranks of this node map them: no address if it has no bytes or there was
    /// no room for it.
    pub fn get(&self, window: WindowId, generation: Generation) -> Result<(&Arc<WindowParts>, Option<u64>), Refusal> {
        match self.live.get(&window) {
            Some(entry) if entry.generation == generation => Ok((&entry.parts, entry.address)),
            Some(_) => Err(Refusal::FreedWindow),
            None if self.freed.contains_key(&window) => Err(Refusal::FreedWindow),
            None => Err(Refusal::UnknownWindow),
        }
    }

    /// Stops serving a window. Requests in progress keep its memory until they end, which is mapped elsewhere. Memory in which other windows
    /// may follow it becomes zeros.
    ///
    /// # Errors
    /// It is not served.
    pub fn remove(&mut self, window: WindowId, generation: Generation, now_ms: u64) -> Result<(), Refusal> {
        self.get(window, generation)?;
        let Some(Entry { _published: published, parts, address, .. }) = self.live.remove(&window) else {
            return Err(Refusal::UnknownWindow);
        };
        // Before the memory is another window's.
        drop(published);
        self.freed.insert(window, generation);
        match (parts.memory.room(), address) {
            (None, None) => {}
            (None, Some(address)) => self.addresses.give_back(address, parts.memory.bytes()),
            (Some(_), address) => {
                let before = self.busy.len();
                self.spare_or_busy(parts, address, now_ms);
                self.busy[before..].iter().for_each(|(busy, _)| give_back(&busy.memory));
            }
        }
        Ok(())
    }

    fn spare_or_busy(&mut self, parts: Arc<WindowParts>, address: Option<u64>, now_ms: u64) {
        match Arc::try_unwrap(parts) {
            Err(busy) => self.busy.push((busy, address)),
            Ok(WindowParts { memory, ranks, made_for }) => {
                let room = memory.room().expect("only such memory is kept");
                let warm_since_ms = memory.wipe().then_some(now_ms);
                let spare = Spare { memory, made_for, address, warm_since_ms };
                self.spare.entry((ranks, room)).or_default().push(spare);
            }
        }
    }

    /// What is busy no longer becomes spare.
    fn look_at_busy(&mut self, now_ms: u64) {
        for (parts, address) in std::mem::take(&mut self.busy) {
            self.spare_or_busy(parts, address, now_ms);
        }
    }

    /// Whether memory that no window has keeps pages, which are to be given back soon.
    pub(crate) fn are_warm(&self) -> bool {
        self.spare.values().flatten().any(|spare| spare.warm_since_ms.is_some())
    }

    /// Gives the pages back that no window has wanted for a while.
    pub(crate) fn give_back_idle(&mut self, now_ms: u64) {
        for spare in self.spare.values_mut().flatten() {
            if spare.warm_since_ms.is_some_and(|since| now_ms >= since + WARM_MS) {
                spare.warm_since_ms = None;
                give_back(&spare.memory);
            }
        }
    }

    /// Everything about a request's target that can be wrong, except the offsets.
    pub(crate) fn resolve(&self, target: &WindowRef) -> Result<TargetPart, Refusal> {
        let entry = match self.live.get(&target.window) {
            Some(entry) => entry,
            None => return Err(self.get(target.window, target.generation).err().unwrap_or(Refusal::UnknownWindow)),
        };
        if entry.generation != target.generation && !mutation(Mutation::GenerationNotChecked) {
            return Err(Refusal::FreedWindow);
        }
        if entry.key != target.key && !mutation(Mutation::KeyNotChecked) {
            return Err(Refusal::WrongKey);
        }
        let index = entry.parts.ranks.binary_search(&target.rank).map_err(|_| Refusal::NotThisNode)?;
        Ok(TargetPart { parts: Arc::clone(&entry.parts), index })
    }

    /// The part of a rank in a window that is served, for what this server does by itself.
    pub(crate) fn place(&self, window: WindowId, rank: Rank) -> Option<TargetPart> {
        let parts = &self.live.get(&window)?.parts;
        let index = parts.ranks.binary_search(&rank).ok()?;
        Some(TargetPart { parts: Arc::clone(parts), index })
    }

    /// How many windows are served.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether no window is served.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

fn give_back(memory: &NodeWindow) {
    if let Err(error) = memory.give_back() {
        tracing::debug!(%error, "pages of freed windows stay until the job ends");
    }
}

/// A target that was found: keeps the memory alive while bytes stream into or out of it.
#[derive(Clone)]
pub(crate) struct TargetPart {
    parts: Arc<WindowParts>,
    index: usize,
}

impl TargetPart {
    pub(crate) fn window(&self) -> Window<'_> {
        self.parts.memory.part(self.index)
    }
}

impl RunSource for TargetPart {
    fn region(&self, run: Run) -> Region<'_> {
        self.window().region(run.offset, run.bytes).expect("checked when the get was taken up")
    }
}

impl RunTarget for TargetPart {
    fn region_mut(&self, run: Run) -> RegionMut<'_> {
        self.window().region_mut(run.offset, run.bytes).expect("checked when the put was taken up")
    }
}
