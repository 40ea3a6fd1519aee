//! The origin's half of a conversation with one responder: numbers the requests and finds out whose each reply is.
//!
//! Holds no socket, thread or clock. The caller keeps the order: what [`Initiator::begin`] wrote is sent before
//! what the next call writes, and the payload goes in between. After a [`Violation`] the connection is over, and
//! [`Initiator::drain`] gives back all that still wait.
//!
//! Replies come in the order of their requests. A lock is answered when its turn comes, which may be much later. A
//! request without a reply is heard of only when it is refused, at any time; nothing is kept about it, so the same
//! refusal may come twice and names its request by number only.

use crate::ids::RequestId;
use crate::limits::REPLY_BYTES;
use crate::wire::{Refusal, ReplyBody, ReplyHeader, Request, RequestKind, Violation};
use std::collections::{BTreeMap, VecDeque};

/// What came back, with the token of the one who asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply<T> {
    /// A quiet or an unlock is done.
    Done(T),
    /// The bytes of a get follow, or the old values of several words.
    Data {
        /// Who asked.
        token: T,
        /// How many bytes follow: as many as were asked for.
        bytes: u64,
    },
    /// The old value of a read-modify-write; for a try of a lock 0, 1 or 2, see [`ReplyBody::Value`].
    Value {
        /// Who asked.
        token: T,
        /// The number.
        value: u64,
    },
    /// The mutex is ours.
    Granted {
        /// Who asked.
        token: T,
        /// The holder before died with it.
        inherited: bool,
    },
    /// Nothing is answered: there is room for more mail.
    MailTaken {
        /// How much of it the responder has passed on since the session began.
        bytes: u64,
    },
    /// A request was not done.
    Refused {
        /// Who asked; `None` for a request that has no reply.
        token: Option<T>,
        /// Which request.
        id: RequestId,
        /// Why.
        refusal: Refusal,
        /// More about it; see [`Refusal`].
        detail: u64,
    },
}

/// Numbers the requests of one connection and holds a token of the caller's for each reply that is due.
#[derive(Debug)]
pub struct Initiator<T> {
    /// The last number given out.
    last: RequestId,
    /// Those whose replies come in order, the oldest first.
    waiting: VecDeque<Waiting<T>>,
    /// Those whose replies come at any time.
    locks: BTreeMap<RequestId, T>,
    /// Bytes of our requests that the responder has received, by its last reply.
    acknowledged_bytes: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    id: RequestId,
    kind: RequestKind,
    /// What comes with the reply.
    data_bytes: u64,
    token: T,
}

impl<T> Initiator<T> {
    /// At the start of a connection, behind the handshake.
    pub fn new() -> Self {
        Initiator { last: RequestId(0), waiting: VecDeque::new(), locks: BTreeMap::new(), acknowledged_bytes: 0 }
    }

    /// Gives the request the next number and appends its header and descriptor to `out`.
    ///
    /// # Panics
    /// When `token` is not there exactly if the request has a reply, and on what [`Request::encode`] refuses.
    pub fn begin(&mut self, request: &Request, token: Option<T>, out: &mut Vec<u8>) -> RequestId {
        let kind = request.kind();
        assert_eq!(token.is_some(), kind.has_reply(), "a token is given exactly for a reply: {kind:?}");
        let id = RequestId(self.last.0 + 1);
        request.encode(id, out);
        self.last = id;
        if let Some(token) = token {
            if kind.is_answered_late() {
                self.locks.insert(id, token);
            } else {
                let data_bytes = request.reply_data_bytes();
                self.waiting.push_back(Waiting { id, kind, data_bytes, token });
            }
        }
        id
    }

    /// Takes the next reply. After `Data`, that many bytes belong to it.
    ///
    /// # Errors
    /// When the reply is unsound, or answers nothing that was asked. Nothing has changed then.
    pub fn handle_reply(&mut self, bytes: &[u8; REPLY_BYTES]) -> Result<Reply<T>, Violation> {
        let reply = ReplyHeader::decode(bytes)?;
        let ReplyHeader { id, body, received_bytes } = reply;
        if received_bytes < self.acknowledged_bytes {
            let acknowledged = self.acknowledged_bytes;
            return Err(Violation::AcknowledgedLess { found: received_bytes, before: acknowledged });
        }
        if let ReplyBody::MailTaken { bytes } = body
            && id <= self.last
        {
            self.acknowledged_bytes = received_bytes;
            return Ok(Reply::MailTaken { bytes });
        }
        if id.0 == 0 || id > self.last {
            return Err(Violation::NotYetSent { found: id, last: self.last });
        }
        let answered = self.handle_answer(id, body)?;
        self.acknowledged_bytes = received_bytes;
        Ok(answered)
    }

    fn handle_answer(&mut self, id: RequestId, body: ReplyBody) -> Result<Reply<T>, Violation> {
        if self.locks.contains_key(&id) {
            return self.handle_late(id, body);
        }
        match self.waiting.binary_search_by_key(&id, |waiting| waiting.id) {
            Ok(0) => self.handle_next(body),
            Ok(_) => Err(Violation::ReplyOrder { expected: self.waiting[0].id, found: id }),
            Err(_) => match body {
                ReplyBody::Refused { refusal, detail } => Ok(Reply::Refused { token: None, id, refusal, detail }),
                _ => Err(Violation::NothingWaits { id, reply: body.kind() }),
            },
        }
    }

    /// Bytes of requests that the responder has received since the session began, as far as its replies say.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes
    }

    /// Requests whose replies have not come yet.
    pub fn outstanding(&self) -> usize {
        self.waiting.len() + self.locks.len()
    }

    /// The last request begun; 0 before the first.
    pub fn last(&self) -> RequestId {
        self.last
    }

    /// Takes out the tokens of all replies that have not come, in the order of their requests.
    pub fn drain(&mut self) -> Vec<T> {
        let mut tokens: Vec<(RequestId, T)> =
            self.waiting.drain(..).map(|waiting| (waiting.id, waiting.token)).collect();
        tokens.extend(std::mem::take(&mut self.locks));
        tokens.sort_by_key(|(id, _)| *id);
        tokens.into_iter().map(|(_, token)| token).collect()
    }

    /// The reply to a lock.
    fn handle_late(&mut self, id: RequestId, body: ReplyBody) -> Result<Reply<T>, Violation> {
        if !matches!(body, ReplyBody::Granted { .. } | ReplyBody::Refused { .. }) {
            return Err(Violation::UnexpectedReply { id, request: RequestKind::Lock, reply: body.kind() });
        }
        let token = self.locks.remove(&id).expect("the caller found it");
        Ok(match body {
            ReplyBody::Refused { refusal, detail } => Reply::Refused { token: Some(token), id, refusal, detail },
            ReplyBody::Granted { inherited } => Reply::Granted { token, inherited },
            _ => unreachable!("anything else was turned away above"),
        })
    }

    /// The reply to the oldest of those that come in order.
    fn handle_next(&mut self, body: ReplyBody) -> Result<Reply<T>, Violation> {
        let Waiting { id, kind, data_bytes, .. } = self.waiting[0];
        match (kind, body) {
            (_, ReplyBody::Refused { .. })
            | (RequestKind::Quiet | RequestKind::Acknowledge | RequestKind::Unlock, ReplyBody::Done)
            | (RequestKind::Rmw, ReplyBody::Value(_)) => {}
            (RequestKind::TryLock, ReplyBody::Value(found)) if found > 2 => {
                return Err(Violation::TryLockValue { id, found });
            }
            (RequestKind::TryLock, ReplyBody::Value(_)) => {}
            (RequestKind::Get | RequestKind::RmwMany, ReplyBody::Data { bytes: found }) if found != data_bytes => {
                return Err(Violation::DataBytes { id, expected: data_bytes, found });
            }
            (RequestKind::Get | RequestKind::RmwMany, ReplyBody::Data { .. }) => {}
            _ => return Err(Violation::UnexpectedReply { id, request: kind, reply: body.kind() }),
        }
        let token = self.waiting.pop_front().expect("the oldest was looked at above").token;
        Ok(match body {
            ReplyBody::Done => Reply::Done(token),
            ReplyBody::Data { bytes } => Reply::Data { token, bytes },
            ReplyBody::Value(value) => Reply::Value { token, value },
            ReplyBody::Granted { .. } => unreachable!("only a lock is granted"),
            ReplyBody::MailTaken { .. } => unreachable!("taken in before"),
            ReplyBody::Refused { refusal, detail } => Reply::Refused { token: Some(token), id, refusal, detail },
        })
    }
}

impl<T> Default for Initiator<T> {
    fn default() -> Self {
        Initiator::new()
    }
}
