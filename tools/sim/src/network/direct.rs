//! Transfers with no server involved, as devices do them: in the order of the link, each at the moment at which it arrives,
//! whatever the target's node does meanwhile. What ended is told a while later, or never if the link breaks.
//!
//! ```text
//!   post ──► under way ──(Direct)──► done at the target ──► coming ──(DeviceReply)──► outcome
//!     └► waits for a get or an update before it, as does what is sent
//! ```
//!
//! A link that breaks leaves its transfers to the next one, which finds out from the target how far its device went.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use longarm_memory::Region;
use longarm_netmod::{DEVICE_WORD_BYTES, DeviceRmw, DirectOutcome, LinkError, Loan, Reach, Wish};
use longarm_proto::{Run, WindowRef};

use super::{Event, LinkState, Network, News, Owner};
use crate::book;
use crate::dice::Dice;
use crate::trace::{What, Who};

/// Transfers that one end takes before it says that it is full.
const POSTED_MAX: usize = 12;
/// After that time who was told that it is full looks again.
const LOOK_AGAIN_NS: u64 = 1_500;

/// The bytes of a put.
pub enum Source {
    /// Taken when it was begun.
    Copied(Vec<u8>),
    /// Read when the put is done.
    Lent(Arc<dyn Loan>),
}

impl Source {
    /// The bytes as they are now.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Source::Copied(bytes) => bytes.clone(),
            Source::Lent(loan) => {
                let mut bytes = vec![0; loan.bytes()];
                loan.each(0, loan.bytes(), |piece, at| piece.copy_to_slice(&mut bytes[at..at + piece.len()]));
                bytes
            }
        }
    }
}

/// What a device is asked for.
pub enum Task {
    /// Whether memory may be reached: for the server, but no rank notices.
    Ask,
    /// To write.
    Put(Source),
    /// To read.
    Get,
    /// To update a word.
    Update(DeviceRmw),
}

/// What becomes of a transfer that its link has left behind, if it was done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is over.
    Put,
    /// It is done again, for what was read.
    Get,
    /// It is over, without the old value.
    Update,
}

impl Task {
    /// Of which kind a transfer is that asks for it.
    pub fn kind(&self) -> Kind {
        match self {
            Task::Ask | Task::Put(_) => Kind::Put,
            Task::Get => Kind::Get,
            Task::Update(_) => Kind::Update,
        }
    }

    /// Its kind, if its answer brings bytes, for which others wait.
    fn brings(&self) -> Option<Kind> {
        Some(self.kind()).filter(|kind| *kind != Kind::Put)
    }
}

/// A request on its way.
pub struct Posted {
    /// Counts transfers of a link.
    pub number: u64,
    /// Whose memory.
    pub target: WindowRef,
    /// Which part of it.
    pub run: Run,
    /// What for.
    pub task: Task,
    /// Bytes that were sent over the link before it.
    sent_before: u64,
    /// It breaks off after so many bytes, as its link has.
    pub torn_after: Option<u64>,
}

/// What the target's device makes of a request.
pub enum Done {
    /// It was done; what a get has read, or the old value of a word.
    Well(Option<Vec<u8>>),
    /// There is no such memory.
    Refused,
    /// The answer to a question; `None`: that is not known yet.
    Answer(Option<bool>),
}

enum DeviceReply {
    Settled,
    Answer(WindowRef, Option<bool>),
    Done { number: u64, bytes: Option<Vec<u8>> },
}

/// A transfer that a link has left behind.
pub struct Left {
    /// Its ticket.
    pub ticket: u64,
    link: u32,
    number: u64,
    kind: Kind,
    outcome: Option<DirectOutcome>,
}

/// What a rank remembers of a node from one link to the next.
#[derive(Default)]
pub(super) struct Card {
    known: std::collections::HashMap<WindowRef, bool>,
    asked: HashSet<WindowRef>,
    left: Vec<Left>,
    /// Transfers, by ticket, of which the rank could know that they are done.
    done: HashSet<u64>,
    /// Updates that were under way when their link broke.
    updates_left: u64,
}

/// What a link does beside its bytes.
pub(super) struct Direct {
    dice: Dice,
    settled: bool,
    proven: bool,
    /// The target's device still listens.
    open: bool,
    next_number: u64,
    waiting: VecDeque<Posted>,
    under_way: VecDeque<Posted>,
    coming: VecDeque<DeviceReply>,
    told_ns: u64,
    /// Transfers below this number were done.
    executed: u64,
    refused: Option<u64>,
    /// The get or update that was posted, and whose end was not told: one at a time.
    bringing: Option<Kind>,
    resolved: VecDeque<(u64, DirectOutcome)>,
    outcomes: VecDeque<(u64, Option<Vec<u8>>)>,
}

impl Direct {
    pub(super) fn new(dice: Dice) -> Direct {
        let (waiting, under_way, coming) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (resolved, outcomes) = (VecDeque::new(), VecDeque::new());
        let (settled, proven, open) = (false, false, true);
        let (next_number, told_ns, executed, refused, bringing) = (0, 0, 0, None, None);
        Direct {
            dice,
            settled,
            proven,
            open,
            next_number,
            waiting,
            under_way,
            coming,
            told_ns,
            executed,
            refused,
            bringing,
            resolved,
            outcomes,
        }
    }

    /// Whether a transfer was done, or is on its way to be.
    fn may_do(&self, number: u64) -> bool {
        number < self.executed
            || self.under_way.iter().any(|posted| posted.task.kind() != Kind::Put && posted.number == number)
    }

    /// Whether the caller's bytes have to wait: for the agreement of the two sides, or for a get.
    pub(super) fn holds_back(&self) -> bool {
        self.proven && (!self.settled || self.bringing.is_some() || !self.waiting.is_empty())
    }
}

fn caller(link: &LinkState) -> Option<(u32, u32)> {
    match link.owners[0] {
        Owner::Rank(rank) => Some((rank, link.node)),
        Owner::Server(_) | Owner::Stranger(_) => None,
    }
}

/// At the caller's end.
impl Network {
    /// From now on ranks reach the memory of other nodes.
    pub fn allow_direct(&mut self) {
        self.is_direct = true;
    }

    /// Both ends know each other: they agree on how memory is reached.
    pub fn prove(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        if !self.is_direct || caller(state).is_none() {
            return;
        }
        state.direct.proven = true;
        let there_and_back_ns = state.pipes[0].latency_ns + state.pipes[1].latency_ns;
        self.tell_later(link, there_and_back_ns, DeviceReply::Settled);
    }

    /// Whether they have agreed.
    pub fn is_settled(&self, link: u32) -> bool {
        let direct = &self.links[link as usize].direct;
        direct.settled || !direct.proven
    }

    /// Whether the caller's end of a link reaches memory.
    pub fn is_direct(&self, link: u32) -> bool {
        self.links[link as usize].direct.settled
    }

    /// Those of the links that are whole over which transfers are under way, or have ended and nobody was told. Not those that
    /// are held back: where these are all that a job waits for, every fault would meet them, and hold them back for longer.
    pub fn transferring(&mut self) -> Vec<u32> {
        let links = &self.links;
        self.perhaps_transferring.retain(|link| {
            let direct = &links[*link as usize].direct;
            !direct.under_way.is_empty() || !direct.coming.is_empty()
        });
        let now_ns = self.now_ns;
        let is_open = |link: &u32| links[*link as usize].pipes.iter().all(|pipe| pipe.held_until_ns <= now_ns);
        let is_whole = |link: &u32| self.whole.binary_search(link).is_ok();
        self.perhaps_transferring.iter().copied().filter(|link| is_open(link) && is_whole(link)).collect()
    }

    /// Those of some links over which an update is under way, or its old value.
    pub fn updating(&self, links: &[u32]) -> Vec<u32> {
        let is_updating = |link: &u32| self.links[*link as usize].direct.bringing == Some(Kind::Update);
        links.iter().copied().filter(is_updating).collect()
    }

    fn tell_later(&mut self, link: u32, after_ns: u64, told: DeviceReply) {
        let now_ns = self.now_ns;
        let jitter_ns = self.speed.jitter_ns;
        let direct = &mut self.links[link as usize].direct;
        direct.told_ns = (now_ns + after_ns + direct.dice.below(jitter_ns + 1)).max(direct.told_ns + 1);
        direct.coming.push_back(told);
        let at_ns = direct.told_ns;
        self.perhaps_transferring.insert(link);
        self.at(at_ns, Event::DeviceReply(link));
    }

    /// As the netmods' links.
    pub fn reach(&mut self, link: u32, target: &WindowRef, wish: Wish) -> Reach {
        let state = &mut self.links[link as usize];
        let Some(caller) = caller(state) else { return Reach::No };
        let direct = &mut state.direct;
        if state.broken[0] || !direct.settled {
            return Reach::No;
        }
        let waits = matches!(wish, Wish::PutCopied(_)) && !direct.waiting.is_empty();
        if waits || direct.waiting.len() + direct.under_way.len() >= POSTED_MAX || direct.dice.one_in(24) {
            self.after(LOOK_AGAIN_NS, Event::Room(link << 1));
            return Reach::Full;
        }
        let card = self.cards.entry(caller).or_default();
        match card.known.get(target) {
            Some(true) => Reach::Yes,
            Some(false) => Reach::No,
            None => {
                if card.asked.insert(*target) {
                    self.launch(link, (*target, Run { offset: 0, bytes: 0 }, Task::Ask, 0));
                }
                Reach::Asked
            }
        }
    }

    /// Begins a transfer. Its number.
    pub fn post(
        &mut self,
        link: u32,
        ticket: u64,
        (target, run): (WindowRef, Run),
        task: Task,
    ) -> Result<u64, LinkError> {
        let state = &mut self.links[link as usize];
        if let Some(caller) = caller(state)
            && self.cards.get(&caller).is_some_and(|card| card.done.contains(&ticket))
        {
            // Not by a panic: the caller may have lent memory, and would end the process.
            book::violate(&[caller.0], format!("transfer {ticket} to node {} is done, and begun again", caller.1));
        }
        if state.broken[0] {
            return Err(LinkError::Reset);
        }
        let direct = &mut state.direct;
        let number = direct.next_number;
        direct.next_number += 1;
        if direct.bringing.is_some() {
            let posted = Posted { number, target, run, task, sent_before: 0, torn_after: None };
            direct.waiting.push_back(posted);
            return Ok(number);
        }
        direct.bringing = task.brings();
        self.launch(link, (target, run, task, number));
        Ok(number)
    }

    fn launch(&mut self, link: u32, (target, run, task, number): (WindowRef, Run, Task, u64)) {
        let now_ns = self.now_ns;
        let state = &mut self.links[link as usize];
        let bytes = if matches!(task, Task::Put(_)) { run.bytes } else { 16 };
        let jitter_ns = state.direct.dice.below(self.speed.jitter_ns + 1);
        let transfer_ns = bytes * self.speed.kibibyte_ns / 1024;
        let pipe = &mut state.pipes[0];
        let earliest = now_ns + pipe.latency_ns + jitter_ns + transfer_ns;
        // Behind all that was sent, and before all that will be.
        let arrives_ns = earliest.max(pipe.last_arrival_ns + 1).next_multiple_of(256);
        pipe.last_arrival_ns = arrives_ns + 1;
        let sent_before = pipe.read_bytes + pipe.bytes.len() as u64;
        if !state.direct.open {
            return; // The other end has broken: of what comes behind what was lost there nothing is done.
        }
        state.direct.under_way.push_back(Posted { number, target, run, task, sent_before, torn_after: None });
        self.perhaps_transferring.insert(link);
        self.note(What::Direct, Who::Link(link, 0), number << 1);
        self.at(arrives_ns, Event::Direct(link));
    }

    /// Something has come to the caller's end: who is to be told.
    pub fn told(&mut self, link: u32) -> Option<News> {
        let state = &mut self.links[link as usize];
        if state.broken[0] || state.closed[0] {
            return None;
        }
        let told = state.direct.coming.pop_front()?;
        let caller = caller(state)?;
        self.note(What::Direct, Who::Link(link, 1), 0);
        match told {
            DeviceReply::Settled => {
                let left = std::mem::take(&mut self.cards.entry(caller).or_default().left);
                let resolved: Vec<_> = left.iter().map(|left| (left.ticket, self.resolve(left))).collect();
                let is_done = |outcome| matches!(outcome, DirectOutcome::Done | DirectOutcome::ValueLost);
                let done = resolved.iter().filter(|(_, outcome)| is_done(*outcome));
                self.cards.entry(caller).or_default().done.extend(done.map(|(ticket, _)| *ticket));
                let direct = &mut self.links[link as usize].direct;
                direct.settled = true;
                direct.resolved.extend(resolved);
            }
            DeviceReply::Answer(target, answer) => {
                let card = self.cards.entry(caller).or_default();
                card.asked.remove(&target);
                if let Some(answer) = answer {
                    card.known.insert(target, answer);
                }
            }
            DeviceReply::Done { number, bytes } => {
                let direct = &mut self.links[link as usize].direct;
                let brings = bytes.is_some();
                direct.outcomes.push_back((number, bytes));
                if brings {
                    direct.bringing = None;
                    self.launch_waiting(link);
                }
            }
        }
        Some(self.links[link as usize].owners[0])
    }

    fn launch_waiting(&mut self, link: u32) {
        loop {
            let direct = &mut self.links[link as usize].direct;
            if direct.bringing.is_some() {
                return;
            }
            let Some(Posted { number, target, run, task, .. }) = direct.waiting.pop_front() else { return };
            direct.bringing = task.brings();
            self.launch(link, (target, run, task, number));
        }
    }

    fn resolve(&self, left: &Left) -> DirectOutcome {
        let before = &self.links[left.link as usize].direct;
        match left.outcome {
            Some(outcome) => outcome,
            None if before.refused == Some(left.number) => DirectOutcome::Refused,
            // As long as its server keeps the old link, nobody knows how far it went.
            None if left.kind == Kind::Update && before.open && before.may_do(left.number) => DirectOutcome::Unknown,
            None if before.open || left.number >= before.executed => DirectOutcome::NotDone,
            None => match left.kind {
                Kind::Put => DirectOutcome::Done,
                Kind::Get => DirectOutcome::NotDone,
                Kind::Update => DirectOutcome::ValueLost,
            },
        }
    }

    /// How many updates of a rank towards a node were under way when their link broke: more than that cannot lose their value.
    pub fn updates_left(&self, rank: u32, node: u32) -> u64 {
        self.cards.get(&(rank, node)).map_or(0, |card| card.updates_left)
    }

    /// The next transfer of older links that was found out about.
    pub fn take_resolved(&mut self, link: u32) -> Option<(u64, DirectOutcome)> {
        self.links[link as usize].direct.resolved.pop_front()
    }

    /// The next transfer that is done, and what was read.
    pub fn take_done(&mut self, link: u32) -> Option<(u64, Option<Vec<u8>>)> {
        self.links[link as usize].direct.outcomes.pop_front()
    }

    /// The caller's end is about to go, with these transfers (their tickets, numbers, and kinds) unfinished and
    /// these finished. What is under way still arrives.
    pub fn leave(&mut self, link: u32, unfinished: &[(u64, u64, Kind)], finished: &[(u64, DirectOutcome)]) {
        let state = &mut self.links[link as usize];
        let Some(caller) = caller(state) else { return };
        let is_broken = state.broken.contains(&true);
        for posted in &mut state.direct.under_way {
            if let Task::Put(source) = &mut posted.task {
                *source = Source::Copied(source.bytes());
            }
        }
        state.direct.waiting.clear();
        let card = self.cards.entry(caller).or_default();
        card.asked.clear();
        if is_broken {
            card.updates_left += unfinished.iter().filter(|(_, _, kind)| *kind == Kind::Update).count() as u64;
        }
        let over = finished.iter().map(|&(ticket, outcome)| (ticket, u64::MAX, Kind::Put, Some(outcome)));
        let open = unfinished.iter().map(|&(ticket, number, kind)| (ticket, number, kind, None));
        let left = over.chain(open);
        card.left.extend(left.map(|(ticket, number, kind, outcome)| Left { ticket, link, number, kind, outcome }));
    }
}

/// At the target.
impl Network {
    /// A node's server lets others reach a part of a window.
    pub fn publish(&mut self, node: u32, part: WindowRef) {
        self.published.insert((node, part));
    }

    /// And no more.
    pub fn withdraw(&mut self, node: u32, part: WindowRef) {
        self.published.remove(&(node, part));
    }

    /// Whether a part can be reached.
    pub fn is_published(&self, node: u32, part: WindowRef) -> bool {
        self.published.contains(&(node, part))
    }

    /// The node that a link leads to.
    pub fn node_of(&self, link: u32) -> u32 {
        self.links[link as usize].node
    }

    /// What is first under way has arrived, and is to be done now.
    pub fn arrive_direct(&mut self, link: u32) -> Option<Posted> {
        let state = &mut self.links[link as usize];
        let held_until_ns = state.pipes[0].held_until_ns;
        if held_until_ns > self.now_ns {
            self.at(held_until_ns, Event::Direct(link));
            return None;
        }
        state.direct.under_way.pop_front()
    }

    /// Transfers that were done when their link broke: they are to be done before anything else happens.
    pub fn take_overdue(&mut self) -> Option<(u32, Posted)> {
        self.overdue.pop_front()
    }

    /// What came of a request.
    pub fn done(&mut self, link: u32, posted: &Posted, done: Done) {
        if posted.torn_after.is_some() {
            return;
        }
        let state = &mut self.links[link as usize];
        let back_ns = state.pipes[1].latency_ns;
        let direct = &mut state.direct;
        let told = match done {
            Done::Refused => {
                direct.refused.get_or_insert(posted.number);
                self.break_link(link);
                return;
            }
            Done::Well(bytes) => {
                direct.executed = posted.number + 1;
                self.direct_count += 1;
                DeviceReply::Done { number: posted.number, bytes }
            }
            Done::Answer(answer) => DeviceReply::Answer(posted.target, answer),
        };
        if direct.open {
            self.note(What::Direct, Who::Link(link, 0), posted.number << 1 | 1);
            self.tell_later(link, back_ns, told);
        }
    }

    /// The target's end is closed: nothing that still comes is done.
    pub(super) fn shut_direct(&mut self, link: u32) {
        let direct = &mut self.links[link as usize].direct;
        direct.open = false;
        direct.under_way.clear();
    }

    /// The link breaks for the target's end: of what was under way a first part is done, as far as the bytes came that were
    /// sent before and behind it, and of the next put perhaps some bytes.
    pub(super) fn break_direct(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        let position = state.pipes[0].read_bytes + state.pipes[0].bytes.len() as u64;
        let direct = &mut state.direct;
        let surely = direct.under_way.iter().take_while(|posted| posted.sent_before < position).count();
        let perhaps = direct.under_way.iter().take_while(|posted| posted.sent_before <= position).count() - surely;
        let count = surely + direct.dice.below(perhaps as u64 + 1) as usize;
        let mut left = direct.under_way.split_off(count);
        let done = std::mem::take(&mut direct.under_way);
        let torn = if count < surely + perhaps { left.pop_front() } else { None };
        let torn =
            torn.filter(|posted| matches!(posted.task, Task::Put(_)) && may_tear(posted.run)).map(|mut posted| {
                posted.torn_after = Some(direct.dice.below(posted.run.bytes));
                posted
            });
        direct.open = false;
        self.overdue.extend(done.into_iter().chain(torn).map(|posted| (link, posted)));
    }

    /// The link breaks for the caller's end: what was to be told is not.
    pub(super) fn silence_direct(&mut self, link: u32) {
        self.links[link as usize].direct.coming.clear();
    }
}

/// Whether a put may be half done. Not within one aligned word: readers are promised that it is whole.
fn may_tear(run: Run) -> bool {
    const WORD: u64 = DEVICE_WORD_BYTES;
    run.bytes > 0 && run.offset / WORD != (run.offset + run.bytes - 1) / WORD
}

/// The bytes of a put that are written.
pub fn written(posted: &Posted) -> Vec<u8> {
    let Task::Put(source) = &posted.task else { return Vec::new() };
    let mut bytes = source.bytes();
    bytes.truncate(posted.torn_after.map_or(usize::MAX, |torn| torn as usize));
    bytes
}

/// A copy of the caller's bytes.
pub fn copied(region: Region<'_>) -> Source {
    let mut bytes = vec![0; region.len()];
    region.copy_to_slice(&mut bytes);
    Source::Copied(bytes)
}
