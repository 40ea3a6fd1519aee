//! One peer of the server: what it has said, what it may expect, what it has heard.

use std::collections::BTreeMap;

use longarm_proto::{Initiator, REPLY_BYTES, Rank, Refusal, Reply, Request, RequestId, Session, Shape, WindowRef};

use super::ask;
use super::calls::{self, Call, Pipes};
use super::reference::{Ending, LIVE, NEVER_SENT_BYTES, Stream, Sums, judge};
use crate::choices::Choices;
use crate::node::{Memory, Name, Node, PARTS};
use crate::wire::End;

/// Bytes that one peer says in a play, at most.
const SAID_BYTES_MAX: usize = 64 << 10;
/// Bytes that one peer listens to, at most: a short request can ask for very many.
const HEARD_BYTES_MAX: u64 = 512 << 10;

/// A peer.
pub(super) struct Peer {
    pub(super) rank: Rank,
    pub(super) link: Option<End>,
    pub(super) pipes: Pipes,
    pub(super) session: Session,
    /// Calls after the first one.
    pub(super) calls: u32,
    /// It left of its own accord, or because it has heard enough, or its session is over.
    pub(super) has_left: bool,
    /// It had no link while time passed.
    pub(super) may_be_gone: bool,
    pub(super) stream: Stream,
    pub(super) initiator: Initiator<RequestId>,
    /// Requests that have to be refused, and have not been.
    to_refuse: BTreeMap<RequestId, Refusal>,
    locks: Vec<RequestId>,
    last: RequestId,
    last_said: Vec<u8>,
    /// Everything, since the session began.
    pub(super) said: Vec<u8>,
    unread: Vec<u8>,
    data_bytes: u64,
    pub(super) heard_bytes: u64,
    /// What comes next was heard before.
    pub(super) again_bytes: u64,
    /// How much of what was said the server has had, by its own words at a call.
    pub(super) taken_bytes: u64,
}

impl Peer {
    /// A connection that has proven itself, of a session that begins.
    pub(super) fn meet(node: &mut Node, rank: Rank, pipes: Pipes) -> Peer {
        let number = node.plays << 32 | u64::from(rank.0) << 8;
        let session = Session { number, attempt: 1, is_known: false, received_bytes: 0 };
        let link = calls::begin(node, rank, session, pipes);
        Peer {
            rank,
            link: Some(link),
            pipes,
            session: Session { is_known: true, ..session },
            calls: 0,
            has_left: false,
            may_be_gone: false,
            stream: Stream::new(),
            initiator: Initiator::new(),
            to_refuse: BTreeMap::new(),
            locks: Vec::new(),
            last: RequestId(0),
            last_said: Vec::new(),
            said: Vec::new(),
            unread: Vec::new(),
            data_bytes: 0,
            heard_bytes: 0,
            again_bytes: 0,
            taken_bytes: 0,
        }
    }

    /// Nothing that it has said gives the server a reason to end the session.
    pub(super) fn is_sound(&self) -> bool {
        self.stream.ending.is_none() && !self.stream.is_doubtful
    }

    /// All that it has said has to be done in the end.
    pub(super) fn is_complete(&self) -> bool {
        self.link.is_some() && self.is_sound()
    }

    pub(super) fn sums(&self) -> &Sums {
        &self.stream.sums
    }

    /// Says a request of the fuzzer's choice.
    pub(super) fn ask(&mut self, windows: &mut [Memory; 3], choices: &mut Choices<'_>) {
        let said = ask::choose(choices, self.due());
        self.say(windows, &said);
        self.last_said = said;
    }

    /// Says the last request again, as often as wished, with numbers that go on.
    pub(super) fn ask_again(&mut self, windows: &mut [Memory; 3], times: u8) {
        for _ in 0..times {
            let mut said = self.last_said.clone();
            if let Some(place) = said.get_mut(ID_OFFSET..ID_OFFSET + 8) {
                place.copy_from_slice(&self.due().0.to_le_bytes());
            }
            self.say(windows, &said);
        }
    }

    /// Adds to words of its own, which show later whether anything was done twice, or not at all.
    pub(super) fn add(&mut self, windows: &mut [Memory; 3], elements: u8) {
        let said = ask::add(self.due(), u64::from(self.rank.0), elements);
        self.say(windows, &said);
        self.last_said = said;
    }

    /// Says how much it has heard: the truth, less, or what cannot be.
    pub(super) fn report(&mut self, windows: &mut [Memory; 3], choices: &mut Choices<'_>) {
        let received_bytes = match choices.byte() {
            0..128 => self.heard_bytes,
            less @ 128..240 => self.heard_bytes.saturating_sub(less.into()),
            240..248 => NEVER_SENT_BYTES,
            248..252 => u64::MAX,
            more => self.heard_bytes + u64::from(more),
        };
        let mut said = Vec::new();
        Request::Acknowledge { received_bytes }.encode(self.due(), &mut said);
        self.say(windows, &said);
    }

    /// Ends the session in order.
    pub(super) fn take_leave(&mut self, windows: &mut [Memory; 3]) {
        let mut said = Vec::new();
        Request::Leave.encode(self.due(), &mut said);
        self.say(windows, &said);
    }

    /// The number of the next request.
    fn due(&self) -> RequestId {
        RequestId(self.last.0 + 1)
    }

    /// Says anything, and finds out what has to come of it.
    pub(super) fn say(&mut self, windows: &mut [Memory; 3], bytes: &[u8]) {
        if self.has_left || self.said.len() + bytes.len() > SAID_BYTES_MAX {
            return;
        }
        let Peer { stream, initiator, to_refuse, locks, last, .. } = self;
        stream.take(bytes, self.heard_bytes, |request| {
            let mut again = Vec::new();
            *last = initiator.begin(request, request.has_reply().then_some(RequestId(last.0 + 1)), &mut again);
            if matches!(request, Request::Lock { .. }) {
                locks.push(*last);
            }
            match judge(request) {
                Err(refusal) => drop(to_refuse.insert(*last, refusal)),
                Ok(touched) => touched.iter().for_each(|touched| {
                    windows[touched.window].allow(touched.part, touched.offset, touched.bytes);
                }),
            }
        });
        self.said.extend_from_slice(bytes);
        if let Some(link) = &mut self.link {
            link.say(bytes);
        }
    }

    /// Reads what has come. True if there was anything.
    pub(super) fn hear(&mut self) -> bool {
        let Some(link) = &mut self.link else { return false };
        let heard = link.hear();
        self.take_heard(&heard)
    }

    /// Takes what has come. Each reply is one that an initiator accepts.
    pub(super) fn take_heard(&mut self, heard: &[u8]) -> bool {
        let again = self.again_bytes.min(heard.len() as u64);
        self.again_bytes -= again;
        let new = &heard[again as usize..];
        self.heard_bytes += new.len() as u64;
        self.unread.extend(new);
        let mut at = 0;
        loop {
            let data_bytes = self.data_bytes.min((self.unread.len() - at) as u64);
            self.data_bytes -= data_bytes;
            at += data_bytes as usize;
            let Some(bytes) = self.unread[at..].first_chunk::<REPLY_BYTES>().copied() else { break };
            at += REPLY_BYTES;
            self.take_reply(&bytes);
        }
        self.unread.drain(..at);
        if self.heard_bytes > HEARD_BYTES_MAX {
            self.leave(0);
        }
        !heard.is_empty()
    }

    fn take_reply(&mut self, bytes: &[u8; REPLY_BYTES]) {
        let reply = self.initiator.handle_reply(bytes).expect("the server answers as it should");
        let taken_bytes = self.initiator.acknowledged_bytes();
        assert!(taken_bytes <= self.said.len() as u64, "the server has received no more than was said: {taken_bytes}");
        let id = match &reply {
            Reply::Done(id) | Reply::Granted { token: id, .. } => *id,
            Reply::Data { token, bytes } => {
                self.data_bytes = *bytes;
                *token
            }
            Reply::Value { token, .. } => *token,
            Reply::Refused { id, .. } => *id,
            Reply::MailTaken { .. } => return,
        };
        let expected = self.to_refuse.remove(&id);
        let found = if let Reply::Refused { refusal, .. } = reply { Some(refusal) } else { None };
        // What a mutex refuses depends on what stands in the word.
        let by_the_word = matches!(found, Some(Refusal::NotHeld | Refusal::NotAMutex | Refusal::HeldAlready));
        assert!(found == expected || expected.is_none() && by_the_word, "{found:?} where {expected:?} is due: {id}");
    }

    /// The sessions that the server may know of this rank.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (Rank, u64)> + use<> {
        let (rank, own, calls) = (self.rank, self.session.number, u64::from(self.calls));
        let strays = (0..=calls).map(move |call| own + super::calls::STRAY_SESSION + call);
        strays.chain([own]).map(move |number| (rank, number))
    }

    /// Goes for good, without a word: hangs up, or finds the link reset.
    pub(super) fn leave(&mut self, how: u8) {
        self.lose_link(how);
        self.has_left = true;
    }

    /// The link breaks, one way or the other.
    pub(super) fn lose_link(&mut self, how: u8) {
        if let Some(mut link) = self.link.take()
            && how.is_multiple_of(2)
        {
            link.reset();
        }
    }

    /// After everything has come to rest: what was asked for was answered, and nobody else was hung up on.
    pub(super) fn assert_served(&self) {
        let Some(link) = &self.link else { return };
        if self.stream.is_doubtful {
            return;
        }
        let ending: Option<Ending> = self.stream.ending;
        assert_eq!(link.is_left(), ending.is_some(), "the server hangs up on who broke the protocol or left only");
        if ending.is_some() {
            return;
        }
        assert_eq!((self.unread.len(), self.data_bytes, self.again_bytes), (0, 0, 0), "replies come whole");
        assert!(self.to_refuse.is_empty(), "{:?} were not refused", self.to_refuse);
        // A lock may wait for its turn.
        assert!(self.initiator.outstanding() <= self.locks.len(), "{:?}", self.initiator);
    }

    /// What the rank that lives has read from this peer.
    pub(super) fn assert_mail(&self, mail: &[u8]) {
        let due = &self.stream.mail;
        assert!(due.starts_with(mail), "mail arrives as it was sent, and once");
        assert!(!self.is_complete() || due.len() == mail.len(), "mail arrives whole");
    }

    /// Puts something and reads it again.
    pub(super) fn assert_put_and_get(&mut self, node: &mut Node, windows: &mut [Memory; 3], name: Name) {
        let window = LIVE.iter().position(|live| *live == name).expect("it is there");
        let Name { window: id, generation, key } = name;
        let (target, bytes) = (WindowRef { rank: Rank(0), window: id, generation, key }, 64);
        let offset = PARTS[0] - bytes;
        let payload: Vec<u8> = (0..bytes as u8).collect();
        let mut frames = Vec::new();
        let shape = Shape::contiguous(offset, bytes);
        Request::Put { target, shape: shape.clone(), signal: None }.encode(RequestId(1), &mut frames);
        frames.extend_from_slice(&payload);
        Request::Get { target, shape }.encode(RequestId(2), &mut frames);
        self.say(windows, &frames);
        assert!(windows[window].is_allowed(0, offset, bytes));
        node.settle();
        let heard = self.link.as_mut().expect("it has not left").hear();
        let (reply, data) = heard.split_first_chunk::<REPLY_BYTES>().expect("a newcomer is served");
        self.take_reply(reply);
        assert_eq!(data, payload, "a newcomer reads what it has written");
    }

    /// Calls again, whatever it wants with that.
    pub(super) fn call(&mut self, node: &mut Node, session: Session) -> Call {
        calls::call(node, self.rank, session, self.pipes)
    }
}

/// Where the number stands in a request's header: `docs/src/wire.md`.
const ID_OFFSET: usize = 16;
