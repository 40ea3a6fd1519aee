//! What all ranks do together: barriers made of letters, windows made and freed at the doors of their nodes.
//!
//! ```text
//!   ranks of a node ──► its leader ──► the leader of the node above ──► … ──► rank 0, and back
//! ```

use std::rc::Rc;
use std::sync::Arc;

use longarm_client::mail::Slot;
use longarm_client::{AttachError, Client, ClientWindow, Lost, LostHow, Operation, Parts, WaitingCall, WindowIdentity};
use longarm_proto::{AccessKey, Generation, Rank, WindowId};
use longarm_server::door::{DoorError, DoorRequest};
use longarm_shm::NodeWindow;

use super::{Failed, Program, Stop, failed};
use crate::book::{self, Kind};
use crate::dice::mix;
use crate::job::{self, Job};
use crate::plan::MUTEXES;

/// Nodes below each node in the tree of a barrier.
const FAN_OUT: u32 = 4;

/// What those are told who ask for whom everybody waits.
pub(super) const CALL: WaitingCall = WaitingCall::Operation(Operation::Collective);

/// What takes part in collectives.
pub(crate) struct Starter {
    rank: Rank,
    client: Arc<Client>,
    job: Rc<Job>,
    pub(crate) barriers: u64,
}

impl Starter {
    pub(crate) fn new(rank: Rank, client: Arc<Client>, job: Rc<Job>) -> Starter {
        Starter { rank, client, job, barriers: 0 }
    }

    fn send(&self, to: u32, step: u32, flag: bool) -> Result<(), Stop> {
        let slot = Slot { group: 1, sequence: self.barriers, step };
        let sent = self.client.send_letter(Rank(to), slot, 1, &[u8::from(flag)]);
        sent.map_err(|error| failed(self.rank, Kind::Barrier, Rank(to), &error))
    }

    fn receive(&self, from: u32, step: u32) -> Result<bool, Stop> {
        let slot = Slot { group: 1, sequence: self.barriers, step };
        let got = self.client.receive_letter(Rank(from), slot, CALL, &|| self.death());
        let letter = got.map_err(|error| failed(self.rank, Kind::Barrier, Rank(from), &error))?;
        if letter.body.len() != 1 || letter.total_bytes != 1 {
            let what = format!("a letter of rank {from} to rank {} has {:?}", self.rank, letter.body);
            book::violate(&[self.rank.0, from], what);
            return Err(Stop::Violated);
        }
        Ok(letter.body[0] != 0)
    }

    fn death(&self) -> Option<Lost> {
        let death = self.client.failures().first()?;
        let node = self.client.layout().node_of(death.rank);
        Some(Lost { rank: death.rank, node, operation: Operation::Collective, how: LostHow::Died(death.how) })
    }

    /// Everyone meets. Whether anybody came with the flag.
    pub(crate) fn barrier(&mut self, flag: bool) -> Result<bool, Stop> {
        let me = self.rank.0;
        book::start(me, Kind::Barrier, self.rank, self.barriers);
        book::with(|book| book.enter_barrier(self.barriers));
        let shape = Rc::clone(&self.job.shape);
        let node = shape.node_of(me);
        let ranks = shape.ranks_of(node);
        let mut any = flag;
        if me != ranks.start {
            self.send(ranks.start, 0, flag)?;
            any = self.receive(ranks.start, 3)?;
        } else {
            for rank in ranks.clone().skip(1) {
                any |= self.receive(rank, 0)?;
            }
            let below = (FAN_OUT * node + 1..=FAN_OUT * node + FAN_OUT).filter(|below| *below < shape.nodes());
            let below: Vec<u32> = below.map(|node| shape.host_of(node)).collect();
            for rank in &below {
                any |= self.receive(*rank, 1)?;
            }
            if node > 0 {
                let above = shape.host_of((node - 1) / FAN_OUT);
                self.send(above, 1, any)?;
                any = self.receive(above, 2)?;
            }
            for rank in &below {
                self.send(*rank, 2, any)?;
            }
            for rank in ranks.skip(1) {
                self.send(rank, 3, any)?;
            }
        }
        self.barriers += 1;
        book::with(|book| book.leave_barrier(me, self.barriers));
        book::finish(me, Kind::Barrier, u64::from(any));
        Ok(any)
    }

    /// Makes a window. `None` if some node has no memory for it.
    pub(crate) fn allocate(&mut self, number: u64, generation: u32) -> Result<Option<Arc<ClientWindow>>, Stop> {
        let shape = Rc::clone(&self.job.shape);
        let node = shape.node_of(self.rank.0);
        let identity = WindowIdentity {
            window: WindowId(number),
            generation: Generation(generation),
            key: AccessKey(mix(shape.plan.seed ^ number << 32 ^ u64::from(generation))),
        };
        let ranks = shape.ranks_of(node);
        let here: Vec<(u32, u64)> = ranks.clone().map(|rank| (rank, self.bytes(number, rank))).collect();
        let mut refused = false;
        if self.rank.0 == ranks.start {
            book::start(self.rank.0, Kind::Allocate, self.rank, number);
            let mut parts = here.clone();
            if job::memory_fails(node, number, generation) {
                parts[0].1 = 1 << 62;
            }
            let create = DoorRequest::Create {
                window: number,
                generation,
                key: identity.key.0,
                parts,
                aligned: false,
                room: None,
            };
            match job::ask_door(node, &create) {
                Ok(_) => book::with(|book| book.windows += 1),
                Err(error) => {
                    refused = true;
                    self.check_refusal((number, generation), &error)?;
                }
            }
            book::finish(self.rank.0, Kind::Allocate, u64::from(refused));
        }
        if self.barrier(refused)? {
            if self.rank.0 == ranks.start && !refused {
                self.free_here(identity)?;
            }
            self.barrier(false)?;
            return Ok(None);
        }
        Ok(Some(self.known(identity, here)))
    }

    fn check_refusal(&self, (number, generation): (u64, u32), error: &DoorError) -> Result<(), Stop> {
        if job::memory_fails(self.job.shape.node_of(self.rank.0), number, generation) {
            job::count_fault(crate::fault::Fault::NoMemory);
            return Ok(());
        }
        if job::may_lose() {
            return Err(Stop::Lost);
        }
        book::violate(&[self.rank.0], format!("window {number} was not made: {error}"));
        Err(Stop::Violated)
    }

    fn bytes(&self, number: u64, rank: u32) -> u64 {
        match number {
            2 => 64 * MUTEXES,
            3 => 64 * self.job.shape.callers[rank as usize].len() as u64,
            _ => self.job.shape.part_bytes(rank),
        }
    }

    /// The window as the ranks of this node know it: one for all of them.
    fn known(&self, identity: WindowIdentity, here: Vec<(u32, u64)>) -> Arc<ClientWindow> {
        let node = self.job.shape.node_of(self.rank.0);
        self.job.window(node, identity, || {
            let ranks = 0..self.job.shape.plan.ranks;
            let members: Vec<(Rank, u64)> =
                ranks.map(|rank| (Rank(rank), self.bytes(identity.window.0, rank))).collect();
            let part_bytes: Vec<u64> = here.iter().map(|part| part.1).collect();
            let attach = move || {
                let (window, generation) = (identity.window.0, identity.generation.0);
                let refused = |error: &dyn std::fmt::Display| AttachError::Refused(error.to_string());
                let handed = job::ask_door(node, &DoorRequest::Attach { window, generation });
                // The server of this node is dead, and so is the node: its ranks are not asked for a reason.
                let handed = handed.map_err(|error| refused(&error))?;
                let handed = handed.ok_or_else(|| refused(&"no descriptor came"))?;
                NodeWindow::attach(handed.file, &part_bytes).map_err(|error| refused(&error))
            };
            ClientWindow::new(self.client.layout(), identity, Parts::Each(&members), attach)
        })
    }

    fn free_here(&self, identity: WindowIdentity) -> Result<(), Stop> {
        let node = self.job.shape.node_of(self.rank.0);
        book::start(self.rank.0, Kind::Free, self.rank, identity.window.0);
        let free = DoorRequest::Free { window: identity.window.0, generation: identity.generation.0 };
        match job::ask_door(node, &free) {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) if job::may_lose() => return Err(Stop::Lost),
            other => {
                book::violate(&[self.rank.0], format!("window {} was not freed: {other:?}", identity.window));
                return Err(Stop::Violated);
            }
        }
        book::with(|book| book.windows -= 1);
        book::finish(self.rank.0, Kind::Free, 0);
        Ok(())
    }
}

impl Program {
    fn starter(&self) -> Starter {
        Starter {
            rank: self.rank,
            client: Arc::clone(&self.client),
            job: Rc::clone(&self.job),
            barriers: self.barriers,
        }
    }

    pub(super) fn barrier(&mut self, flag: bool) -> Result<bool, Stop> {
        let mut starter = self.starter();
        let any = starter.barrier(flag);
        self.barriers = starter.barriers;
        any
    }

    /// Frees a window.
    pub(super) fn free(&mut self, window: &ClientWindow) -> Result<(), Stop> {
        self.barrier(false)?;
        window.mark_freed();
        let identity = window.identity();
        if self.rank.0 == self.shape.host_of(self.shape.node_of(self.rank.0)) {
            self.starter().free_here(identity)?;
            self.job.forget_window(self.shape.node_of(self.rank.0), identity);
        }
        self.barrier(false).map(drop)
    }

    /// A window that is there for a part of a round only. Afterwards nobody may use what he knows of it.
    pub(super) fn passing_window(&mut self, round: u32, probe: bool) -> Result<(), Stop> {
        let mut starter = self.starter();
        let window = starter.allocate(3, round + 1);
        self.barriers = starter.barriers;
        let Some(window) = window? else { return Ok(()) };
        let targets = self.shape.targets[self.rank.0 as usize].clone();
        for target in &targets {
            let offset = 64 * self.shape.place_of(*target, self.rank);
            let value = mix(u64::from(self.rank.0) << 32 | u64::from(round));
            book::start(self.rank.0, Kind::Put, *target, offset);
            let put = self.client.put(&window, *target, offset, value.to_le_bytes().as_slice().into());
            put.map_err(|error| self.failed(Kind::Put, *target, &error))?;
            book::finish(self.rank.0, Kind::Put, value);
            if probe {
                self.probe(&window, *target, offset)?;
            }
        }
        self.quiet()?;
        self.barrier(false)?;
        for (place, caller) in (0..).zip(self.shape.callers[self.rank.0 as usize].clone()) {
            let mut line = [0; 64];
            let got = self.client.get(&window, self.rank, 64 * place, line.as_mut_slice().into());
            got.map_err(|error| self.failed(Kind::Get, self.rank, &error))?;
            let expected = mix(u64::from(caller.0) << 32 | u64::from(round)).to_le_bytes();
            if line[..8] != expected || line[8..].iter().any(|byte| *byte != 0) {
                let what = format!("the line of rank {caller} in a fresh window is {line:x?}");
                return Err(self.violated(Kind::Put, caller, &what));
            }
        }
        self.free(&window)
    }

    /// Operations that carry another key, or the generation of another use: refused, and nothing is done.
    fn probe(&mut self, window: &ClientWindow, target: Rank, offset: u64) -> Result<(), Stop> {
        if self.client.same_node(target) {
            return Ok(()); // What is mapped is reached without asking.
        }
        let identity = window.identity();
        for (kind, fault) in
            [(Kind::WrongKey, crate::fault::Fault::WrongKey), (Kind::StaleWindow, crate::fault::Fault::StaleWindow)]
        {
            if !self.shape.plan.faults.has(fault) || !self.dice.one_in(4) {
                continue;
            }
            job::count_fault(fault);
            let wrong = match kind {
                Kind::WrongKey => {
                    WindowIdentity { key: AccessKey(identity.key.0 ^ 1 << self.dice.below(64)), ..identity }
                }
                _ => WindowIdentity { generation: Generation(identity.generation.0.wrapping_sub(1)), ..identity },
            };
            let bytes = window.bytes_of(target).unwrap_or(0);
            let nobody_attaches = || Err(AttachError::Refused("nobody is here".into()));
            let probe =
                ClientWindow::new(self.client.layout(), wrong, Parts::Each(&[(target, bytes)]), nobody_attaches);
            self.quiet()?;
            book::start(self.rank.0, kind, target, offset);
            let sent = self.client.put(&probe, target, offset + 8, [0xff; 8].as_slice().into());
            sent.map_err(|error| self.failed(kind, target, &error))?;
            match self.client.quiet_rank(target) {
                Err(longarm_client::TransferError::Refused { .. }) => book::finish(self.rank.0, kind, 0),
                Err(error) if error.is_lost() => return Err(self.failed(kind, target, &error)),
                other => return Err(self.violated(kind, target, &format!("not refused: {other:?}"))),
            }
        }
        Ok(())
    }
}
