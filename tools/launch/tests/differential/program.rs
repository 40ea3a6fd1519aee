//! The program of all ranks, phase by phase, as it follows from a seed. Every rank writes the whole of it down.
//!
//! In a phase the parts of the windows are cut into regions. A region is written by one origin, or updated by all in
//! one way whose order does not matter, or only read, so that what each get has to bring is known beforehand.

use super::dice::{Dice, key};
use super::form::{Repeats, Shape};
use super::number::{Content, Deed, Kind, NUMBERS};
use super::words::{Word, WordDeed, draw_use, draw_word_deed};

/// Windows that live at the same time.
pub const SLOTS: usize = 4;

/// A rank's part of the window of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOfSlot {
    pub slot: usize,
    pub rank: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Blocking,
    /// With a handle that is waited for later.
    Handle,
    /// With a handle that is dropped.
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    Broadcast,
    Reduce,
    Allreduce,
    Allgather,
    Alltoall,
    Sync,
    Barrier,
}

#[derive(Clone, Debug)]
pub enum Body {
    Put {
        place: PartOfSlot,
        kind: Kind,
        shape: Shape,
        content: Content,
        form: Form,
    },
    Get {
        place: PartOfSlot,
        kind: Kind,
        shape: Shape,
        form: Form,
    },
    Accumulate {
        place: PartOfSlot,
        kind: Kind,
        shape: Shape,
        deed: Deed,
        factor: i64,
        form: Form,
    },
    /// Reads one element that others update meanwhile.
    Look {
        place: PartOfSlot,
        kind: Kind,
        deed: Deed,
        index: usize,
    },
    Word {
        word: usize,
        deed: WordDeed,
        form: Form,
    },
    Scope(Vec<Op>),
    /// Gets that are waited for together.
    Batch(Vec<Op>),
    Quiet,
    QuietRank(u32),
    Fence,
    Together(Together),
    SendMail(usize),
    AwaitMail(usize),
}

#[derive(Clone, Debug)]
pub struct Op {
    /// Its place in its rank's list.
    pub number: usize,
    /// What its buffer is filled from.
    pub key: u64,
    pub body: Body,
}

/// A put with signal, for which its target waits.
#[derive(Clone, Debug)]
pub struct Mail {
    pub from: u32,
    pub place: PartOfSlot,
    pub first: usize,
    pub bytes: usize,
    /// These bytes are put without the signal, before a fence.
    pub ahead: usize,
    pub key: u64,
    /// Whether the signal is added to, and what the target waits for.
    pub adds: bool,
    pub value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    World,
    /// The ranks with this remainder by two.
    Parity(u32),
}

impl Members {
    pub fn contains(self, rank: u32) -> bool {
        match self {
            Members::World => true,
            Members::Parity(parity) => rank % 2 == parity,
        }
    }
}

/// A window that takes the place of the one in its slot. Its parts have these bytes, by rank.
#[derive(Clone, Debug)]
pub struct Allocation {
    pub slot: usize,
    pub members: Members,
    pub bytes: Vec<usize>,
}

/// What happens between two barriers.
pub struct Phase {
    pub number: usize,
    pub allocations: Vec<Allocation>,
    /// What each rank writes into its own parts beforehand.
    pub preparations: Vec<Vec<Op>>,
    pub lists: Vec<Vec<Op>>,
    pub words: Vec<Word>,
    pub mails: Vec<Mail>,
    pub ending: Together,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Exclusive(u32),
    ReadOnly,
    Shared(Kind, Deed),
}

#[derive(Clone, Copy)]
struct Region {
    place: PartOfSlot,
    first: usize,
    end: usize,
    mode: Mode,
}

impl Region {
    /// First element and number of elements of a kind.
    fn room(&self, kind: Kind) -> (usize, usize) {
        let first = self.first.div_ceil(kind.bytes());
        (first, (self.end / kind.bytes()).saturating_sub(first))
    }
}

/// Writes programs.
pub struct Author {
    seed: u64,
    ranks: u32,
    phase: usize,
    windows: Vec<Option<Allocation>>,
    /// How often the signal of each pair of ranks was added to.
    added: Vec<u64>,
}

struct Draft<'a> {
    author: &'a Author,
    dice: Dice,
    regions: Vec<Region>,
    words: Vec<Word>,
    mails: Vec<Mail>,
    preparations: Vec<Vec<Op>>,
}

impl Author {
    pub fn new(seed: u64, ranks: u32) -> Author {
        Author { seed, ranks, phase: 0, windows: vec![None; SLOTS], added: vec![0; (ranks * ranks) as usize] }
    }

    /// The next phase, with about `ops` operations of each rank.
    pub fn next_phase(&mut self, ops: usize) -> Phase {
        let mut dice = Dice::new(&[self.seed, self.phase as u64]);
        let mut allocations = Vec::new();
        for slot in 0..SLOTS {
            if self.windows[slot].is_none() || dice.chance(12) {
                let allocation = self.allocation(&mut dice, slot);
                self.windows[slot] = Some(allocation.clone());
                allocations.push(allocation);
            }
        }
        let nothing = (0..self.ranks).map(|_| Vec::new()).collect();
        let mut draft = Draft {
            author: self,
            dice,
            regions: Vec::new(),
            words: Vec::new(),
            mails: Vec::new(),
            preparations: nothing,
        };
        draft.cut_all();
        let collectives: Vec<Together> = (0..draft.dice.below(3)).map(|_| draft.collective()).collect();
        let lists = (0..draft.author.ranks).map(|rank| draft.list(rank, ops, &collectives)).collect();
        let ending = draft.collective();
        let Draft { words, mut mails, preparations, .. } = draft;
        for mail in &mut mails {
            let added = &mut self.added[(mail.place.rank * self.ranks + mail.from) as usize];
            *added += u64::from(mail.adds);
            mail.value = if mail.adds { *added } else { self.phase as u64 + 1 };
        }
        self.phase += 1;
        Phase { number: self.phase - 1, allocations, preparations, lists, words, mails, ending }
    }

    fn allocation(&self, dice: &mut Dice, slot: usize) -> Allocation {
        let (most, members) = match slot {
            0 => (400 << 10, Members::World),
            1 => (64 << 10, Members::World),
            2 => (4 << 10, Members::World),
            _ => (40 << 10, Members::Parity(dice.below(2) as u32)),
        };
        let part = |rank: u32| match dice.below(8) {
            _ if !members.contains(rank) => 0,
            0 => 0,
            1 => dice.below(100),
            _ => dice.within(most / 4, most),
        };
        let bytes = (0..self.ranks).map(part).collect();
        Allocation { slot, members, bytes }
    }
}

impl Draft<'_> {
    fn collective(&mut self) -> Together {
        use Together::{Allgather, Allreduce, Alltoall, Barrier, Broadcast, Reduce, Sync};
        *self.dice.pick(&[Broadcast, Reduce, Allreduce, Allgather, Alltoall, Sync, Barrier])
    }

    fn key(&self, rank: u32, number: usize) -> u64 {
        key(&[self.author.seed, self.author.phase as u64, u64::from(rank), number as u64])
    }

    fn cut_all(&mut self) {
        let author = self.author;
        for window in author.windows.iter().flatten() {
            let members: Vec<u32> = (0..author.ranks).filter(|rank| window.members.contains(*rank)).collect();
            for rank in &members {
                let place = PartOfSlot { slot: window.slot, rank: *rank };
                self.cut(place, window.bytes[*rank as usize], &members);
            }
        }
    }

    /// Cuts a part at any byte, so that neighbours of different origins share words and lines.
    fn cut(&mut self, place: PartOfSlot, part_bytes: usize, members: &[u32]) {
        let mut first = 0;
        while first < part_bytes {
            let wish = match self.dice.below(10) {
                0..=1 => self.dice.within(1, 40),
                2..=4 => self.dice.within(40, 2000),
                5..=7 => self.dice.within(1000, 40_000),
                _ => self.dice.within(10_000, 320_000),
            };
            let end = part_bytes.min(first + wish);
            let origin = *self.dice.pick(members);
            match self.dice.below(100) {
                0..=54 => self.regions.push(Region { place, first, end, mode: Mode::Exclusive(origin) }),
                55..=74 => self.share(Region { place, first, end, mode: Mode::ReadOnly }),
                75..=86 => self.regions.push(Region { place, first, end, mode: Mode::ReadOnly }),
                87..=94 => self.make_words(place, first, end),
                _ => self.make_mail(place, first, end, origin),
            }
            first = end;
        }
    }

    fn share(&mut self, region: Region) {
        let kind = *self.dice.pick(&NUMBERS);
        let deed = *self.dice.pick(kind.deeds());
        let (first, room) = region.room(kind);
        if room == 0 {
            return;
        }
        let shape = Shape::Run { index: first, count: room };
        self.prepare(region.place, kind, shape, Content::of(kind, deed));
        self.regions.push(Region { mode: Mode::Shared(kind, deed), ..region });
    }

    fn prepare(&mut self, place: PartOfSlot, kind: Kind, shape: Shape, content: Content) {
        let number = self.preparations[place.rank as usize].len();
        let key = self.key(place.rank, 1_000_000 + number);
        let body = Body::Put { place, kind, shape, content, form: Form::Blocking };
        self.preparations[place.rank as usize].push(Op { number, key, body });
    }

    fn make_words(&mut self, place: PartOfSlot, first: usize, end: usize) {
        let mut offset = first.next_multiple_of(8);
        while offset + 8 <= end && self.words.len() < 200 && self.dice.chance(85) {
            if self.dice.chance(60) {
                self.make_word(place, offset, Kind::U64);
            } else {
                self.make_word(place, offset, Kind::U32);
                self.make_word(place, offset + 4, Kind::U32);
            }
            offset += 8;
        }
    }

    fn make_word(&mut self, place: PartOfSlot, offset: usize, kind: Kind) {
        let word = Word { place, offset, kind, usage: draw_use(&mut self.dice, self.author.ranks) };
        let start = Content::Word(word.start(self.words.len()));
        self.prepare(place, kind, Shape::Run { index: word.index(), count: 1 }, start);
        self.words.push(word);
    }

    fn make_mail(&mut self, place: PartOfSlot, first: usize, end: usize, from: u32) {
        let taken = self.mails.iter().any(|mail| mail.from == from && mail.place.rank == place.rank);
        if taken {
            return;
        }
        let bytes = (end - first).min(self.dice.size());
        let ahead = if self.dice.chance(50) { 0 } else { self.dice.below(bytes + 1) };
        let key = key(&[self.author.seed, self.author.phase as u64, 7, self.mails.len() as u64]);
        let adds = self.dice.chance(50);
        self.mails.push(Mail { from, place, first, bytes, ahead, key, adds, value: 0 });
    }

    fn list(&mut self, rank: u32, ops: usize, collectives: &[Together]) -> Vec<Op> {
        let usable: Vec<Region> = self.regions_of(rank);
        let mut list = Vec::new();
        let third = ops / 3;
        // Mail is sent in the first third, collectives come in the second, mail is awaited in the last: nobody
        // waits for one who waits for him.
        let of_mine = |mail: &Mail| (mail.from == rank, mail.place.rank == rank);
        let all: Vec<(usize, (bool, bool))> = self.mails.iter().map(of_mine).enumerate().collect();
        let mut due: Vec<(usize, Body)> = Vec::new();
        for (mail, (sent, received)) in all {
            if sent {
                due.push((self.dice.below(third + 1), Body::SendMail(mail)));
            }
            if received {
                due.push((2 * third + self.dice.below(third + 1), Body::AwaitMail(mail)));
            }
        }
        let mut at: Vec<usize> = collectives.iter().map(|_| third + self.dice.below(third + 1)).collect();
        at.sort_unstable();
        due.extend(at.into_iter().zip(collectives.iter().map(|collective| Body::Together(*collective))));
        due.sort_by_key(|(when, body)| (*when, matches!(body, Body::AwaitMail(_)), matches!(body, Body::Together(_))));
        let mut due = due.into_iter().peekable();
        for step in 0..=ops {
            while let Some((_, body)) = due.next_if(|(when, _)| *when <= step) {
                self.push(rank, &mut list, body);
            }
            self.draw(rank, &usable, &mut list);
        }
        due.for_each(|(_, body)| self.push(rank, &mut list, body));
        list
    }

    fn regions_of(&self, rank: u32) -> Vec<Region> {
        let reaches = |region: &&Region| {
            let window = self.author.windows[region.place.slot].as_ref().expect("it has regions");
            match region.mode {
                Mode::Exclusive(origin) => origin == rank,
                Mode::ReadOnly | Mode::Shared(..) => window.members.contains(rank),
            }
        };
        self.regions.iter().filter(reaches).copied().collect()
    }

    fn push(&self, rank: u32, list: &mut Vec<Op>, body: Body) {
        let number = list.len();
        list.push(Op { number, key: self.key(rank, number), body });
    }

    /// One more operation of a rank, or a few that belong together.
    fn draw(&mut self, rank: u32, usable: &[Region], list: &mut Vec<Op>) {
        match self.dice.below(100) {
            0..=69 if !usable.is_empty() => {
                let form = self.form();
                let region = *self.dice.pick(usable);
                self.draw_in(rank, region, form, list);
            }
            70..=73 if !usable.is_empty() => {
                let mut inner = Vec::new();
                for _ in 0..self.dice.within(1, 6) {
                    let region = *self.dice.pick(usable);
                    self.draw_in(rank, region, Form::Dropped, &mut inner);
                }
                inner.retain(|op| matches!(op.body, Body::Put { .. } | Body::Get { .. } | Body::Accumulate { .. }));
                self.rekey(rank, list, &mut inner);
                self.push(rank, list, Body::Scope(inner));
            }
            74..=77 if !usable.is_empty() => {
                let mut inner = Vec::new();
                for _ in 0..self.dice.within(1, 6) {
                    let region = *self.dice.pick(usable);
                    if !matches!(region.mode, Mode::Shared(..)) {
                        inner.extend(self.get(region, Form::Handle));
                    }
                }
                let mut inner: Vec<Op> = inner.into_iter().map(|body| Op { number: 0, key: 0, body }).collect();
                self.rekey(rank, list, &mut inner);
                self.push(rank, list, Body::Batch(inner));
            }
            78..=80 => self.push(rank, list, Body::Quiet),
            81..=83 => {
                let to = self.dice.below(self.author.ranks as usize) as u32;
                self.push(rank, list, Body::QuietRank(to));
            }
            84 => self.push(rank, list, Body::Fence),
            _ => self.draw_on_word(rank, list),
        }
    }

    /// The operations of a group have keys of their own.
    fn rekey(&self, rank: u32, list: &[Op], inner: &mut [Op]) {
        for (place, op) in inner.iter_mut().enumerate() {
            op.number = list.len();
            op.key = key(&[self.key(rank, list.len()), place as u64]);
        }
    }

    fn form(&mut self) -> Form {
        *self.dice.pick(&[Form::Blocking, Form::Blocking, Form::Handle, Form::Handle, Form::Dropped])
    }

    fn draw_on_word(&mut self, rank: u32, list: &mut Vec<Op>) {
        let reached = |(number, word): (usize, &Word)| {
            let window = self.author.windows[word.place.slot].as_ref().expect("it has words");
            window.members.contains(rank).then_some(number)
        };
        let reached: Vec<usize> = self.words.iter().enumerate().filter_map(reached).collect();
        if reached.is_empty() {
            return self.push(rank, list, Body::Fence);
        }
        // Few words get most of the operations.
        let (one, other) = (self.dice.below(reached.len()), self.dice.below(reached.len()));
        let word = reached[one.min(other)];
        // Sometimes many in a row, so that ranks meet at the word.
        let times = if word == reached[0] && self.dice.chance(30) { self.dice.within(10, 60) } else { 1 };
        for _ in 0..times {
            let form = self.form();
            let unique = (self.author.phase as u64) << 40 | u64::from(rank + 1) << 16 | list.len() as u64;
            let (deed, form) = draw_word_deed(&mut self.dice, &self.words[word], unique, form);
            self.push(rank, list, Body::Word { word, deed, form });
        }
    }

    fn draw_in(&mut self, rank: u32, region: Region, form: Form, list: &mut Vec<Op>) {
        match region.mode {
            Mode::ReadOnly => {
                if let Some(body) = self.get(region, form) {
                    self.push(rank, list, body);
                }
            }
            Mode::Shared(kind, deed) if kind.has_order() && kind.bytes() == 8 && self.dice.chance(25) => {
                let (first, room) = region.room(kind);
                let index = first + self.dice.below(room);
                self.push(rank, list, Body::Look { place: region.place, kind, deed, index });
            }
            Mode::Shared(kind, deed) => {
                let count = self.dice.size() / kind.bytes() + 1;
                let shape = Shape::draw(&mut self.dice, region.room(kind), count, Repeats::Both);
                let factor = self.dice.within(1, 3) as i64;
                self.push(rank, list, Body::Accumulate { place: region.place, kind, shape, deed, factor, form });
            }
            Mode::Exclusive(_) => match self.dice.below(10) {
                0..=4 => {
                    let (kind, content) = (self.kind(region), Content::Noise);
                    let count = self.dice.size() / kind.bytes() + usize::from(self.dice.chance(97));
                    let shape = Shape::draw(&mut self.dice, region.room(kind), count, Repeats::Buffer);
                    self.push(rank, list, Body::Put { place: region.place, kind, shape, content, form });
                }
                5..=6 => {
                    if let Some(body) = self.get(region, form) {
                        self.push(rank, list, body);
                    }
                }
                7 => self.get_and_overwrite(rank, region, list),
                _ => self.accumulate_alone(rank, region, form, list),
            },
        }
    }

    /// A get that may be long on its way, and a put behind it that must not change what it brings.
    fn get_and_overwrite(&mut self, rank: u32, region: Region, list: &mut Vec<Op>) {
        let (place, kind, content) = (region.place, self.kind(region), Content::Noise);
        let (_, room) = region.room(kind);
        let count = room.min(self.dice.within(1, (300 << 10) / kind.bytes()));
        let shape = Shape::draw(&mut self.dice, region.room(kind), count, Repeats::Neither);
        self.push(rank, list, Body::Get { place, kind, shape: shape.clone(), form: Form::Handle });
        let form = self.form();
        self.push(rank, list, Body::Put { place, kind, shape, content, form });
    }

    /// Accumulates in program order. Floats need numbers to begin with, because noise has no sums.
    fn accumulate_alone(&mut self, rank: u32, region: Region, form: Form, list: &mut Vec<Op>) {
        let kind = *self.dice.pick(&NUMBERS);
        let room = region.room(kind);
        if room.1 == 0 {
            return;
        }
        let place = region.place;
        let count = self.dice.size() / kind.bytes() + 1;
        let shape = Shape::draw(&mut self.dice, room, count, Repeats::Buffer);
        if !kind.is_integer() {
            let content = Content::Small(kind);
            self.push(rank, list, Body::Put { place, kind, shape: shape.clone(), content, form });
        }
        for _ in 0..self.dice.within(1, 3) {
            let deed = if self.dice.chance(20) { Deed::Replace } else { *self.dice.pick(kind.deeds()) };
            let factor = self.dice.within(1, 3) as i64;
            self.push(rank, list, Body::Accumulate { place, kind, shape: shape.clone(), deed, factor, form });
        }
    }

    fn kind(&mut self, region: Region) -> Kind {
        let kind = *self.dice.pick(&[Kind::U8, Kind::U8, Kind::U8, Kind::U32, Kind::U64, Kind::C64]);
        if region.room(kind).1 == 0 { Kind::U8 } else { kind }
    }

    fn get(&mut self, region: Region, form: Form) -> Option<Body> {
        let kind = self.kind(region);
        let count = self.dice.size() / kind.bytes() + usize::from(self.dice.chance(97));
        let shape = Shape::draw(&mut self.dice, region.room(kind), count, Repeats::Target);
        Some(Body::Get { place: region.place, kind, shape, form })
    }
}

impl Op {
    /// How many operations it counts as.
    pub fn count(&self) -> u64 {
        match &self.body {
            Body::Scope(inner) | Body::Batch(inner) => inner.len() as u64,
            _ => 1,
        }
    }

    /// Whether it writes this byte of the place.
    pub fn writes(&self, phase: &Phase, place: PartOfSlot, byte: usize) -> bool {
        let within = |kind: Kind, shape: &Shape| {
            let covers = |piece: super::form::Piece| {
                (piece.target * kind.bytes()..(piece.target + piece.count) * kind.bytes()).contains(&byte)
            };
            shape.pieces().into_iter().any(covers)
        };
        match &self.body {
            Body::Put { place: at, kind, shape, .. } | Body::Accumulate { place: at, kind, shape, .. } => {
                *at == place && within(*kind, shape)
            }
            Body::Scope(inner) => inner.iter().any(|op| op.writes(phase, place, byte)),
            Body::Word { word, .. } => {
                let word = &phase.words[*word];
                word.place == place && (word.offset..word.offset + word.kind.bytes()).contains(&byte)
            }
            Body::SendMail(mail) => {
                let mail = &phase.mails[*mail];
                mail.place == place && (mail.first..mail.first + mail.bytes).contains(&byte)
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{} ", self.number)?;
        match &self.body {
            Body::Put { place, kind, shape, content, form } => {
                write!(f, "put ({form:?}) of {content:?} to {kind:?} {shape} of {place:?}")
            }
            Body::Get { place, kind, shape, form } => write!(f, "get ({form:?}) of {kind:?} {shape} of {place:?}"),
            Body::Accumulate { place, kind, shape, deed, factor, form } => {
                write!(f, "accumulate ({form:?}) {deed:?} (factor {factor}) to {kind:?} {shape} of {place:?}")
            }
            Body::Scope(inner) | Body::Batch(inner) => {
                write!(f, "together:")?;
                inner.iter().try_for_each(|op| write!(f, " [{op}]"))
            }
            other => write!(f, "{other:?}"),
        }
    }
}
