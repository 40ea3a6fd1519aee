//! Which windows this node serves, and what a request has to match before it may touch one.

use std::collections::HashMap;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::RemoteMemory;
use longarm_netmod::flow::{RunSource, RunTarget};
use longarm_proto::{AccessKey, Generation, JobId, Mutation, Rank, Refusal, Run, WindowId, WindowRef, mutation};
use longarm_shm::{NodeWindow, Window};

use crate::address::AddressSpace;

/// This node's parts of one window: the memory, and whose part is which.
#[derive(Debug)]
pub struct WindowParts {
    /// The memfd with all parts of this node.
    pub memory: NodeWindow,
    /// The rank of each part, ascending.
    pub ranks: Vec<Rank>,
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
    _published: Vec<Box<dyn Send>>,
    generation: Generation,
    key: AccessKey,
    parts: Arc<WindowParts>,
    /// Where the ranks of this node map it, if there was room.
    address: Option<u64>,
}

/// The windows of this node by identity.
///
/// A freed window leaves only the generation behind, so that a late request is told the truth.
pub struct Windows {
    live: HashMap<WindowId, Entry>,
    freed: HashMap<WindowId, Generation>,
    addresses: AddressSpace,
    remote: Option<Arc<dyn RemoteMemory>>,
}

impl Windows {
    /// None yet.
    pub fn of_job(job: JobId) -> Windows {
        Windows { live: HashMap::new(), freed: HashMap::new(), addresses: AddressSpace::of_job(job), remote: None }
    }

    /// From now on windows are also published there.
    pub fn publish_to(&mut self, remote: Option<Arc<dyn RemoteMemory>>) {
        self.remote = remote;
    }

    fn publish(
        &self,
        (window, generation, key): (WindowId, Generation, AccessKey),
        parts: &WindowParts,
    ) -> Vec<Box<dyn Send>> {
        let Some(remote) = &self.remote else { return Vec::new() };
        let each = parts.ranks.iter().enumerate();
        each.map(|(index, rank)| {
            let part = WindowRef { rank: *rank, window, generation, key };
            remote.publish(part, parts.memory.part(index).whole())
        })
        .collect()
    }

    /// Starts to serve a window. False if one of this identity is served already.
    pub fn insert(
        &mut self,
        (window, generation, key): (WindowId, Generation, AccessKey),
        parts: WindowParts,
        aligned: bool,
    ) -> bool {
        if self.live.contains_key(&window) {
            return false;
        }
        self.freed.remove(&window);
        let address = self.addresses.take(parts.memory.bytes(), aligned);
        let published = self.publish((window, generation, key), &parts);
        self.live.insert(window, Entry { _published: published, generation, key, parts: Arc::new(parts), address });
        true
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

    /// Stops to serve a window. Requests in progress keep its memory until they end, which is mapped elsewhere.
    pub fn remove(&mut self, window: WindowId, generation: Generation) -> Result<(), Refusal> {
        let (parts, address) = self.get(window, generation)?;
        let bytes = parts.memory.bytes();
        if let Some(address) = address {
            self.addresses.give_back(address, bytes);
        }
        self.live.remove(&window);
        self.freed.insert(window, generation);
        Ok(())
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
