//! One rank of the job: does its part of the program and compares what comes back with the model.

use std::fmt::Display;

use longarm::{Element, Group, Handle, Mutexes, Window, World};
use zerocopy::IntoBytes;

use super::buffer::Buffer;
use super::dice::Dice;
use super::form::Shape;
use super::model::{Look, Model, UNTOUCHED, source};
use super::number::{Content, Kind, update_of, with_element, with_number};
use super::program::{Author, Body, Form, Members, Op, PartOfSlot, Phase, SLOTS};
use super::words::{MUTEXES, Sight};

/// Operations of one rank between two barriers.
const OPS_A_PHASE: usize = 110;
/// Handles that a rank keeps open.
const PENDING_MAX: usize = 12;

pub type Outcome = Result<(), String>;

/// How a handle is waited for.
#[derive(Clone, Copy)]
pub enum Patience {
    Wait,
    Test,
    Await,
}

/// What a rank finds out while others are at work, to be judged when the phase is over.
pub enum Finding {
    Look(Look),
    /// With the number of the operation, because handles are waited for in any order.
    Sight(usize, Sight),
}

/// An operation with a handle: waits for it and compares.
pub type Pending = Box<dyn FnOnce(Patience) -> Result<Option<Finding>, String>>;

pub struct Runner {
    pub world: World,
    pub me: u32,
    pub windows: Vec<Option<Window<u8>>>,
    pub signals: Window<u64>,
    pub mutexes: Mutexes,
    pub parity: Group,
    pub model: Model,
    pub dice: Dice,
    pub pending: Vec<Pending>,
    pub findings: Vec<Finding>,
    /// Collectives so far, the same on all ranks.
    pub collectives: u64,
}

/// Runs the program of the seed; gives how many operations all ranks did.
pub fn run(seed: u64, ops: u64) -> Result<u64, String> {
    let world = longarm::init().map_err(said)?;
    let (me, ranks) = (world.rank(), world.size());
    let mut author = Author::new(seed, ranks);
    let mut runner = Runner::new(world, seed)?;
    let mut done = 0;
    while done < ops {
        let phase = author.next_phase(OPS_A_PHASE);
        runner.run_phase(&phase).map_err(|what| match runner.world.deaths().first() {
            Some(dead) => {
                format!("phase {}, rank {me}: {}: rank {} {}", phase.number, crate::STOPPED, dead.rank, dead.how)
            }
            None => format!("phase {}, rank {me}: {what}", phase.number),
        })?;
        done += phase.lists.iter().flatten().map(Op::count).sum::<u64>();
    }
    runner.finish()?;
    Ok(done)
}

pub fn said(error: impl Display) -> String {
    error.to_string()
}

pub fn wait<R>(handle: Handle<R>, patience: Patience) -> Result<R, String> {
    match patience {
        Patience::Wait => handle.wait(),
        Patience::Test => {
            while !handle.test() {
                std::thread::yield_now();
            }
            handle.wait()
        }
        Patience::Await => futures_lite::future::block_on(handle),
    }
    .map_err(said)
}

pub fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    let mut elements = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
    elements.as_mut_slice().as_mut_bytes().copy_from_slice(bytes);
    elements
}

/// Says where two byte strings differ.
pub fn differ(found: &[u8], expected: &[u8]) -> Option<(usize, String)> {
    let at = found.iter().zip(expected).position(|(found, expected)| found != expected)?;
    let count = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
    let until = (at + 8).min(found.len());
    let shown = format!(
        "{count} of {} bytes differ, the first at {at}: {:02x?} is there, {:02x?} was due",
        found.len(),
        &found[at..until],
        &expected[at..until]
    );
    Some((at, shown))
}

impl Runner {
    fn new(world: World, seed: u64) -> Result<Runner, String> {
        let (me, ranks) = (world.rank(), world.size());
        let parity = world.split_collective(Some(me % 2), i64::from(me)).map_err(said)?.ok_or("no group")?;
        Ok(Runner {
            windows: (0..SLOTS).map(|_| None).collect(),
            signals: world.allocate_collective(2 * ranks as usize).map_err(said)?,
            mutexes: world.mutexes_collective(MUTEXES).map_err(said)?,
            parity,
            model: Model::new(),
            dice: Dice::new(&[seed, 0xd1ce, u64::from(me)]),
            pending: Vec::new(),
            findings: Vec::new(),
            collectives: 0,
            world,
            me,
        })
    }

    fn finish(mut self) -> Outcome {
        for window in self.windows.iter_mut().filter_map(Option::take) {
            window.free_collective().map_err(said)?;
        }
        self.mutexes.free_collective().map_err(said)?;
        self.world.finalize().map_err(said)
    }

    fn run_phase(&mut self, phase: &Phase) -> Outcome {
        self.allocate(phase)?;
        for op in &phase.preparations[self.me as usize] {
            self.start(phase, op).map_err(|what| format!("preparing with {op}: {what}"))?;
        }
        phase.preparations.iter().flatten().for_each(|op| self.model.apply(op, phase));
        self.world.barrier_collective().map_err(said)?;
        let starts: Vec<u64> = (0..phase.words.len()).map(|word| self.model.word(phase, word)).collect();
        for op in &phase.lists[self.me as usize] {
            self.start(phase, op).map_err(|what| format!("{op}: {what}"))?;
            if !matches!(op.body, Body::Scope(_)) {
                self.model.apply(op, phase);
            }
            while self.pending.len() > PENDING_MAX || (!self.pending.is_empty() && self.dice.chance(25)) {
                self.complete_one()?;
            }
        }
        while !self.pending.is_empty() {
            self.complete_one()?;
        }
        self.world.barrier_collective().map_err(said)?;
        for (rank, list) in phase.lists.iter().enumerate() {
            if rank != self.me as usize {
                list.iter().for_each(|op| self.model.apply(op, phase));
            }
        }
        self.check_words(phase, &starts)?;
        self.check_memory(phase)?;
        self.meet(phase.ending)?;
        // Nobody prepares the next phase while another still looks at this one.
        self.world.sync_collective().map_err(said)
    }

    fn allocate(&mut self, phase: &Phase) -> Outcome {
        for allocation in &phase.allocations {
            if let Some(old) = self.windows[allocation.slot].take() {
                old.free_collective().map_err(said)?;
                if old.get_one(self.me, 0).is_ok() {
                    return Err("a freed window can be read".into());
                }
            }
            self.model.allocate(allocation);
            if !allocation.members.contains(self.me) {
                continue;
            }
            let group = if allocation.members == Members::World { self.world.group() } else { &self.parity };
            let bytes = allocation.bytes[self.me as usize];
            self.windows[allocation.slot] = Some(group.allocate_collective(bytes).map_err(said)?);
        }
        Ok(())
    }

    pub fn window<T: Element>(&self, place: PartOfSlot) -> Window<T> {
        self.windows[place.slot].as_ref().expect("who is no member has no operation on it").cast()
    }

    fn complete_one(&mut self) -> Outcome {
        let at = self.dice.below(self.pending.len());
        let patience = *self.dice.pick(&[Patience::Wait, Patience::Wait, Patience::Test, Patience::Await]);
        let found = self.pending.swap_remove(at)(patience)?;
        self.findings.extend(found);
        Ok(())
    }

    /// Does an operation, or starts it. The model is as it was before it.
    fn start(&mut self, phase: &Phase, op: &Op) -> Outcome {
        match &op.body {
            Body::Put { place, kind, .. } => with_element!(*kind, T => self.put::<T>(*place, op)),
            Body::Get { place, kind, .. } => with_element!(*kind, T => self.get::<T>(*place, op)),
            Body::Accumulate { place, kind, shape, deed, factor, form } => {
                let bytes = source(op, *kind, shape.buffer_len(), Content::of(*kind, *deed));
                with_number!(*kind, T => {
                    let (window, update) = (self.window::<T>(*place), update_of::<T>(*deed, *factor));
                    let source = elements::<T>(&bytes);
                    let rank = place.rank;
                    if *form == Form::Blocking {
                        return match shape {
                            Shape::Run { index, .. } => window.accumulate(rank, *index, update, &source),
                            Shape::Strided { target, buffer, .. } => {
                                window.accumulate(rank, target.patch().with_buffer(&buffer.patch()), update, &source)
                            }
                            Shape::Vector { segments, .. } => {
                                window.accumulate(rank, segments, update, &source)
                            }
                        }
                        .map_err(said);
                    }
                    let handle = match shape {
                        Shape::Run { index, .. } => window.start_accumulate(rank, *index, update, source),
                        Shape::Strided { target, buffer, .. } => {
                            window.start_accumulate(rank, target.patch().with_buffer(&buffer.patch()), update, source)
                        }
                        Shape::Vector { segments, .. } => {
                            window.start_accumulate(rank, segments, update, source)
                        }
                    };
                    self.keep_source(handle.map_err(said)?, *form, bytes, op)
                })
            }
            Body::Look { place, kind, deed, index } => {
                let seen = with_number!(*kind, T => {
                    let element = self.window::<T>(*place).get_one(place.rank, *index).map_err(said)?;
                    element.as_bytes().to_vec()
                });
                let least = self.model.element(*place, *kind, *index).to_vec();
                let look = Look { op: op.number, place: *place, kind: *kind, deed: *deed, index: *index, least, seen };
                self.findings.push(Finding::Look(look));
                Ok(())
            }
            Body::Word { word, deed, form } => {
                if phase.words[*word].kind == Kind::U64 {
                    self.touch_word::<u64>(phase, *word, (*deed, *form), op)
                } else {
                    self.touch_word::<u32>(phase, *word, (*deed, *form), op)
                }
            }
            Body::Scope(inner) => self.scope(phase, inner),
            Body::Batch(inner) => self.batch(phase, inner),
            Body::Quiet => self.world.quiet().map_err(said),
            Body::QuietRank(rank) => self.world.quiet_rank(*rank).map_err(said),
            Body::Fence => {
                self.world.fence();
                Ok(())
            }
            Body::Together(collective) => self.meet(*collective),
            Body::SendMail(mail) => self.send_mail(phase, *mail),
            Body::AwaitMail(mail) => self.await_mail(phase, *mail),
        }
    }

    fn put<T: Element>(&mut self, place: PartOfSlot, op: &Op) -> Outcome {
        let Body::Put { kind, shape, content, form, .. } = &op.body else { unreachable!("called for puts") };
        let window = self.window::<T>(place);
        let bytes = source(op, *kind, shape.buffer_len(), *content);
        let source = elements::<T>(&bytes);
        let rank = place.rank;
        if *form == Form::Blocking {
            return match shape {
                Shape::Run { index, count: 1 } => window.put_one(rank, *index, source[0]),
                Shape::Run { index, .. } => window.put(rank, *index, &source),
                Shape::Strided { target, buffer, .. } => {
                    window.put(rank, target.patch().with_buffer(&buffer.patch()), &source)
                }
                Shape::Vector { segments, .. } => window.put(rank, segments, &source),
            }
            .map_err(said);
        }
        let handle = match shape {
            Shape::Run { index, .. } => window.start_put(rank, *index, source),
            Shape::Strided { target, buffer, .. } => {
                window.start_put(rank, target.patch().with_buffer(&buffer.patch()), source)
            }
            Shape::Vector { segments, .. } => window.start_put(rank, segments, source),
        };
        self.keep_source(handle.map_err(said)?, *form, bytes, op)
    }

    /// The buffer has to come back as it was.
    fn keep_source<T: Element>(&mut self, handle: Handle<Vec<T>>, form: Form, bytes: Vec<u8>, op: &Op) -> Outcome {
        if form == Form::Dropped {
            drop(handle);
            return Ok(());
        }
        let op = op.clone();
        self.pending.push(Box::new(move |patience| {
            let source = wait(handle, patience).map_err(|what| format!("{op}: {what}"))?;
            if source.as_slice().as_bytes() != bytes {
                return Err(format!("{op}: its buffer came back changed"));
            }
            Ok(None)
        }));
        Ok(())
    }

    fn get<T: Element>(&mut self, place: PartOfSlot, op: &Op) -> Outcome {
        let Body::Get { kind, shape, form, .. } = &op.body else { unreachable!("called for gets") };
        let expected = self.model.got(place, *kind, shape);
        if *form == Form::Blocking {
            let mut target = elements::<T>(&vec![UNTOUCHED; expected.len()]);
            let (window, rank) = (self.window::<T>(place), place.rank);
            match shape {
                Shape::Run { index, count: 1 } => window.get_one(rank, *index).map(|element| target[0] = element),
                Shape::Run { index, .. } => window.get(rank, *index, &mut target),
                Shape::Strided { target: from, buffer, .. } => {
                    window.get(rank, from.patch().with_buffer(&buffer.patch()), &mut target)
                }
                Shape::Vector { segments, .. } => window.get(rank, segments, &mut target),
            }
            .map_err(said)?;
            return compare(&target, &expected);
        }
        let handle = self.start_get::<T>(place, shape, expected.len())?;
        if *form == Form::Dropped {
            drop(handle);
            return Ok(());
        }
        let op = op.clone();
        self.pending.push(Box::new(move |patience| {
            let target = wait(handle, patience).and_then(|target| compare(&target, &expected));
            target.map_err(|what| format!("{op}: {what}")).map(|()| None)
        }));
        Ok(())
    }

    fn start_get<T: Element>(&self, place: PartOfSlot, shape: &Shape, bytes: usize) -> Result<Handle<Vec<T>>, String> {
        let target = elements::<T>(&vec![UNTOUCHED; bytes]);
        let (window, rank) = (self.window::<T>(place), place.rank);
        match shape {
            Shape::Run { index, .. } => window.start_get(rank, *index, target),
            Shape::Strided { target: from, buffer, .. } => {
                window.start_get(rank, from.patch().with_buffer(&buffer.patch()), target)
            }
            Shape::Vector { segments, .. } => window.start_get(rank, segments, target),
        }
        .map_err(said)
    }

    /// Gets in progress at once, waited for one, some or all at a time.
    fn batch(&mut self, phase: &Phase, inner: &[Op]) -> Outcome {
        let mut open: Vec<(Handle<Vec<u8>>, Vec<u8>)> = Vec::new();
        for op in inner {
            let Body::Get { place, kind: Kind::U8, shape, .. } = &op.body else {
                self.start(phase, op)?;
                continue;
            };
            let expected = self.model.got(*place, Kind::U8, shape);
            open.push((self.start_get::<u8>(*place, shape, expected.len())?, expected));
        }
        let (mut handles, mut expected): (Vec<_>, Vec<_>) = open.into_iter().unzip();
        if self.dice.chance(40) {
            let targets = longarm::wait_all(handles).map_err(said)?;
            return targets.iter().zip(&expected).try_for_each(|(target, expected)| compare(target, expected));
        }
        while !handles.is_empty() {
            let places = if self.dice.chance(50) {
                longarm::wait_some(&handles)
            } else {
                longarm::wait_any(&handles).into_iter().collect()
            };
            let place = *places.last().ok_or("no handle of several is complete")?;
            let target = handles.swap_remove(place).wait().map_err(said)?;
            compare(&target, &expected.swap_remove(place))?;
        }
        Ok(())
    }

    fn scope(&mut self, phase: &Phase, inner: &[Op]) -> Outcome {
        // In program order: a get sees the puts before it in the scope, and not those behind it.
        let mut expected = Vec::new();
        for op in inner {
            expected.push(match &op.body {
                Body::Get { place, kind, shape, .. } => self.model.got(*place, *kind, shape),
                Body::Put { kind, shape, content, .. } => source(op, *kind, shape.buffer_len(), *content),
                Body::Accumulate { kind, shape, deed, .. } => {
                    source(op, *kind, shape.buffer_len(), Content::of(*kind, *deed))
                }
                _ => unreachable!("only transfers are drawn into scopes"),
            });
            self.model.apply(op, phase);
        }
        let mut buffers: Vec<Buffer> = inner.iter().zip(&expected).map(|(op, bytes)| Buffer::new(op, bytes)).collect();
        let (lent, windows) = (&mut buffers, &self.windows);
        let scoped = self.world.scope(move |scope| {
            for (op, buffer) in inner.iter().zip(lent.iter_mut()) {
                buffer.start(scope, windows, op);
            }
        });
        scoped.map_err(said)?;
        for ((op, buffer), expected) in inner.iter().zip(&buffers).zip(&expected) {
            compare(buffer.bytes(), expected).map_err(|what| format!("{op}: {what}"))?;
        }
        Ok(())
    }
}

/// Whether elements are as they have to be.
pub fn compare<T: Element>(found: &[T], expected: &[u8]) -> Outcome {
    differ(found.as_bytes(), expected).map_or(Ok(()), |(_, shown)| Err(shown))
}
