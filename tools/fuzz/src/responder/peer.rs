//! One peer of the server: what it has said, what it may expect, what it has heard.

use std::collections::BTreeMap;

use longarm_proto::{
    CHALLENGE_BYTES, Identity, Initiator, InitiatorHandshake, NodeId, REPLY_BYTES, Rank, Refusal, Reply, Request,
    RequestId, Shape, WELCOME_BYTES, WindowRef,
};

use super::ask;
use super::reference::{LIVE, Stream, judge};
use crate::choices::Choices;
use crate::node::{Memory, NODE, Name, Node, PARTS, SECRET};
use crate::wire::End;

/// Bytes that one peer says in a play, at most.
const SAID_BYTES_MAX: usize = 64 << 10;
/// Bytes that one peer listens to, at most: a short request can ask for very many.
const HEARD_BYTES_MAX: u64 = 512 << 10;

/// A peer.
pub(super) struct Peer {
    pub(super) rank: Rank,
    link: Option<End>,
    /// It left of its own accord, or because it has heard enough.
    has_left: bool,
    stream: Stream,
    initiator: Initiator<RequestId>,
    /// Requests that have to be refused, and have not been.
    to_refuse: BTreeMap<RequestId, Refusal>,
    locks: Vec<RequestId>,
    last: RequestId,
    last_said: Vec<u8>,
    said_bytes: usize,
    unread: Vec<u8>,
    data_bytes: u64,
    heard_bytes: u64,
}

impl Peer {
    /// A connection that has proven itself.
    pub(super) fn meet(node: &mut Node, rank: Rank, piece_bytes: usize, capacity_bytes: usize) -> Peer {
        let me = Identity { job: node.job, rank, node: NodeId(NODE.0 + 1) };
        let mut link = node.porch.call(piece_bytes, capacity_bytes);
        let (mut handshake, hello) = InitiatorHandshake::start(&SECRET, me, NODE, [rank.0 as u8 + 1; 32]);
        link.say(&hello);
        let challenge: [u8; CHALLENGE_BYTES] = answer(node, &mut link);
        link.say(&handshake.handle_challenge(&challenge).expect("the server is who it should be"));
        let welcome: [u8; WELCOME_BYTES] = answer(node, &mut link);
        handshake.check_welcome(&welcome).expect("the server knows the secret");
        Peer {
            rank,
            link: Some(link),
            has_left: false,
            stream: Stream::new(),
            initiator: Initiator::new(),
            to_refuse: BTreeMap::new(),
            locks: Vec::new(),
            last: RequestId(0),
            last_said: Vec::new(),
            said_bytes: 0,
            unread: Vec::new(),
            data_bytes: 0,
            heard_bytes: 0,
        }
    }

    pub(super) fn heard_bytes(&self) -> u64 {
        self.heard_bytes
    }

    /// Says a request of the fuzzer's choice.
    pub(super) fn ask(&mut self, windows: &mut [Memory; 2], choices: &mut Choices<'_>) {
        let said = ask::choose(choices, RequestId(self.last.0 + 1));
        self.say(windows, &said);
        self.last_said = said;
    }

    /// Says the last request again, as often as wished, with numbers that go on.
    pub(super) fn ask_again(&mut self, windows: &mut [Memory; 2], times: u8) {
        for _ in 0..times {
            let mut said = self.last_said.clone();
            if let Some(place) = said.get_mut(ID_OFFSET..ID_OFFSET + 8) {
                place.copy_from_slice(&(self.last.0 + 1).to_le_bytes());
            }
            self.say(windows, &said);
        }
    }

    /// Says anything, and finds out what has to come of it.
    pub(super) fn say(&mut self, windows: &mut [Memory; 2], bytes: &[u8]) {
        if self.has_left || self.said_bytes + bytes.len() > SAID_BYTES_MAX {
            return;
        }
        let Peer { stream, initiator, to_refuse, locks, last, .. } = self;
        stream.take(bytes, |request| {
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
        self.said_bytes += bytes.len();
        if let Some(link) = &mut self.link {
            link.say(bytes);
        }
    }

    /// Reads what has come. Each reply is one that an initiator accepts.
    pub(super) fn hear(&mut self) {
        let Some(link) = &mut self.link else { return };
        let heard = link.hear();
        self.heard_bytes += heard.len() as u64;
        self.unread.extend(heard);
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
    }

    fn take_reply(&mut self, bytes: &[u8; REPLY_BYTES]) {
        let reply = self.initiator.handle_reply(bytes).expect("the server answers as it should");
        let id = match &reply {
            Reply::Done(id) | Reply::Granted(id) => *id,
            Reply::Data { token, bytes } => {
                self.data_bytes = *bytes;
                *token
            }
            Reply::Value { token, .. } => *token,
            Reply::Refused { id, .. } => *id,
        };
        let expected = self.to_refuse.remove(&id);
        let found = if let Reply::Refused { refusal, .. } = reply { Some(refusal) } else { None };
        // What a mutex refuses depends on what stands in the word.
        let by_the_word = matches!(found, Some(Refusal::NotHeld | Refusal::NotAMutex | Refusal::HeldAlready));
        assert!(found == expected || expected.is_none() && by_the_word, "{found:?} where {expected:?} is due: {id}");
    }

    /// Hangs up, or finds the link reset.
    pub(super) fn leave(&mut self, how: u8) {
        if let Some(mut link) = self.link.take()
            && how.is_multiple_of(2)
        {
            link.reset();
        }
        self.has_left = true;
    }

    /// After everything has come to rest: what was asked for was answered, and nobody else was hung up on.
    pub(super) fn assert_served(&self) {
        let Some(link) = &self.link else { return };
        assert_eq!(link.is_left(), self.stream.is_violated, "the server hangs up on who broke the protocol only");
        if self.stream.is_violated {
            return;
        }
        assert_eq!((self.unread.len(), self.data_bytes), (0, 0), "replies come whole");
        assert!(self.to_refuse.is_empty(), "{:?} were not refused", self.to_refuse);
        // A lock may wait for its turn.
        assert!(self.initiator.outstanding() <= self.locks.len(), "{:?}", self.initiator);
    }

    /// What the rank that lives has read from this peer.
    pub(super) fn assert_mail(&self, mail: &[u8]) {
        let due = &self.stream.mail;
        assert!(due.starts_with(mail), "mail arrives as it was sent");
        assert!(self.link.is_none() || due.len() == mail.len() || self.stream.is_violated, "mail arrives whole");
    }

    /// Puts something and reads it again.
    pub(super) fn assert_put_and_get(&mut self, node: &mut Node, windows: &mut [Memory; 2], name: Name) {
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
}

/// Where the number stands in a request's header: `docs/src/wire.md`.
const ID_OFFSET: usize = 16;

/// What the server says next in the handshake.
fn answer<const BYTES: usize>(node: &mut Node, link: &mut End) -> [u8; BYTES] {
    let mut heard = Vec::new();
    while heard.len() < BYTES {
        let moved = node.turn();
        let more = link.hear();
        assert!(moved || !more.is_empty(), "the server answers who says hello");
        heard.extend(more);
    }
    heard.try_into().expect("the server says nothing more before its turn")
}
