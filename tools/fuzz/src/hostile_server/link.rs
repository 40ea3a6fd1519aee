//! The link to the hostile server: takes requests in as a sound server would, and answers by choice.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{Link, LinkError};
use longarm_proto::{
    HEADER_BYTES, REPLY_BYTES, Refusal, ReplyBody, ReplyHeader, Request, RequestHeader, RequestId, RequestKind,
    Responder,
};

use crate::choices::Choices;
use crate::wire::{ramp, take_front};

/// What the server does instead of answering, by the name of its seed. Lower numbers answer the oldest request.
pub(super) const ACTIONS: [(&str, u8); 8] = [
    ("a_refusal", 10),
    ("a_changed_byte", 11),
    ("any_reply", 12),
    ("any_bytes", 13),
    ("other_length", 14),
    ("a_reset", 15),
    ("a_break", BREAK),
    ("a_pause", 9),
];

/// The link breaks, and a part of what was sent is lost.
pub(super) const BREAK: u8 = 16 + 9;

/// The data of a get that an honest server sends.
pub(super) fn honest_data(id: RequestId, bytes: usize) -> Vec<u8> {
    ramp(id.0.wrapping_mul(31) as u8, bytes)
}

/// A request that waits for its reply.
struct Asked {
    id: RequestId,
    kind: RequestKind,
    data_bytes: u64,
}

/// What is left to say, and what was heard.
pub(super) struct Answers {
    script: Vec<u8>,
    next: usize,
    piece_bytes: usize,
    responder: Responder,
    unread: Vec<u8>,
    header: Option<RequestHeader>,
    payload_bytes: u64,
    /// What was sent and has not been received.
    under_way: Vec<u8>,
    /// Bytes that were sent at all, and received, since the session began.
    pub(super) sent_bytes: u64,
    pub(super) taken_bytes: u64,
    /// Bytes that the rank has received.
    pub(super) delivered_bytes: u64,
    /// Nothing can be made of what is sent: it goes on from where it was never received.
    pub(super) is_deaf: bool,
    /// Calls so far, and whether one was welcomed.
    pub(super) attempt: u32,
    pub(super) is_known: bool,
    waiting: VecDeque<Asked>,
    gets: Option<RequestId>,
    pending: VecDeque<u8>,
    /// Nothing was said that a sound server would not say.
    pub(super) is_honest: bool,
    /// Nothing is left to say: the session has ended.
    pub(super) is_over: bool,
}

impl Answers {
    pub(super) fn new(script: &[u8], piece_bytes: usize) -> Answers {
        Answers {
            script: script.to_vec(),
            next: 0,
            piece_bytes,
            responder: Responder::new(),
            unread: Vec::new(),
            header: None,
            payload_bytes: 0,
            under_way: Vec::new(),
            sent_bytes: 0,
            taken_bytes: 0,
            delivered_bytes: 0,
            is_deaf: false,
            attempt: 0,
            is_known: false,
            waiting: VecDeque::new(),
            gets: None,
            pending: VecDeque::new(),
            is_honest: true,
            is_over: false,
        }
    }

    /// Whether nothing is left of what it was told to do.
    pub(super) fn has_said_all(&self) -> bool {
        self.next == self.script.len()
    }

    /// The last request of this kind that was answered; only gets are remembered.
    pub(super) fn last_of(&self, kind: RequestKind) -> Option<RequestId> {
        self.gets.filter(|_| kind == RequestKind::Get)
    }

    /// Takes the first bytes of what is under way, which have to be sound.
    fn take(&mut self, count: usize) {
        let bytes: Vec<u8> = self.under_way.drain(..count).collect();
        self.taken_bytes += bytes.len() as u64;
        if self.is_deaf {
            return;
        }
        self.unread.extend(bytes);
        let mut at = 0;
        loop {
            let rest = &self.unread[at..];
            let skipped = self.payload_bytes.min(rest.len() as u64);
            self.payload_bytes -= skipped;
            at += skipped as usize;
            let rest = &rest[skipped as usize..];
            if let Some(header) = self.header {
                let Some(descriptor) = rest.get(..header.descriptor_bytes()) else { break };
                let request = self.responder.finish(&header, descriptor).expect("a rank asks as it should");
                at += descriptor.len();
                self.header = None;
                self.payload_bytes = request.payload_bytes();
                self.note(&header, &request);
            } else {
                let Some(bytes) = rest.first_chunk::<HEADER_BYTES>() else { break };
                self.header = Some(self.responder.handle_header(bytes).expect("a rank asks as it should"));
                at += HEADER_BYTES;
            }
        }
        self.unread.drain(..at);
    }

    fn note(&mut self, header: &RequestHeader, request: &Request) {
        let (id, kind) = (header.id(), request.kind());
        let data_bytes = request.reply_data_bytes();
        if let Request::Acknowledge { received_bytes } = request {
            assert!(*received_bytes <= self.delivered_bytes, "a rank reports what it has received");
        }
        if request.has_reply() {
            self.waiting.push_back(Asked { id, kind, data_bytes });
        }
    }

    /// Does something by the next choices. `None`: no choice is left.
    pub(super) fn by_choice<R>(&mut self, act: impl FnOnce(&mut Self, &mut Choices<'_>) -> R) -> Option<R> {
        let script = std::mem::take(&mut self.script);
        let mut choices = Choices::new(&script[self.next..]);
        let acted = (!choices.is_over()).then(|| act(self, &mut choices));
        self.next = script.len() - choices.rest().len();
        self.script = script;
        acted
    }

    /// Says something. False: the link ends.
    fn act(&mut self, choices: &mut Choices<'_>) -> bool {
        let action = choices.byte();
        let lost = if action == BREAK { usize::from(choices.short()).min(self.under_way.len()) } else { 0 };
        self.take(self.under_way.len() - lost);
        match action % 16 {
            _ if action == BREAK => return false,
            0..=8 => self.answer(),
            9 => {}
            10 => {
                let refusal = choices.pick(Refusal::ALL);
                let place = usize::from(choices.byte()) % 4;
                let id = self.waiting.get(place).map_or(RequestId(choices.byte().into()), |asked| asked.id);
                self.waiting.retain(|asked| asked.id != id);
                self.lie(id, ReplyBody::Refused { refusal, detail: choices.byte().into() });
            }
            11 => {
                let before = self.pending.len();
                self.answer();
                if self.pending.len() > before {
                    let at = before + usize::from(choices.byte()) % (self.pending.len() - before);
                    self.pending[at] ^= choices.byte();
                    self.is_honest = false;
                }
            }
            12 => {
                let bodies = [
                    ReplyBody::Done,
                    ReplyBody::Granted { inherited: false },
                    ReplyBody::Granted { inherited: true },
                    ReplyBody::MailTaken { bytes: choices.byte().into() },
                    ReplyBody::Value(choices.byte().into()),
                    ReplyBody::Data { bytes: choices.short().into() },
                ];
                let body = choices.pick(&bodies);
                let id = RequestId(choices.byte().into());
                let received_bytes = self.taken_bytes.wrapping_add_signed(i64::from(choices.byte() as i8));
                self.is_honest = false;
                self.say_having(id, body, received_bytes);
            }
            13 => {
                self.is_honest = false;
                self.pending.extend(choices.bytes());
            }
            14 => {
                let Some(asked) = self.waiting.pop_front() else { return true };
                let bytes = asked.data_bytes.wrapping_add_signed(i64::from(choices.byte() as i8));
                self.lie(asked.id, ReplyBody::Data { bytes });
            }
            _ => return false,
        }
        true
    }

    fn lie(&mut self, id: RequestId, body: ReplyBody) {
        self.is_honest = false;
        self.say(id, body);
    }

    fn say(&mut self, id: RequestId, body: ReplyBody) {
        self.say_having(id, body, self.taken_bytes);
    }

    fn say_having(&mut self, id: RequestId, body: ReplyBody, received_bytes: u64) {
        let mut bytes = [0; REPLY_BYTES];
        ReplyHeader { id, body, received_bytes }.encode(&mut bytes);
        self.pending.extend(bytes);
    }

    /// Answers the oldest request as a sound server does.
    fn answer(&mut self) {
        let Some(Asked { id, kind, data_bytes }) = self.waiting.pop_front() else { return };
        match kind {
            RequestKind::Get | RequestKind::RmwMany => {
                self.say(id, ReplyBody::Data { bytes: data_bytes });
                self.pending.extend(honest_data(id, data_bytes as usize));
                if kind == RequestKind::Get {
                    self.gets = Some(id);
                }
            }
            RequestKind::Rmw | RequestKind::TryLock => self.say(id, ReplyBody::Value(1)),
            RequestKind::Lock => self.say(id, ReplyBody::Granted { inherited: false }),
            RequestKind::Quiet | RequestKind::Unlock | RequestKind::Acknowledge => self.say(id, ReplyBody::Done),
            RequestKind::Put | RequestKind::Accumulate | RequestKind::Message | RequestKind::Leave => {}
        }
    }
}

/// See the module.
pub(super) struct HostileLink {
    answers: Arc<Mutex<Answers>>,
    has_ended: bool,
}

impl HostileLink {
    pub(super) fn new(answers: Arc<Mutex<Answers>>) -> HostileLink {
        HostileLink { answers, has_ended: false }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        assert!(!self.has_ended, "nothing is asked of a link that has ended");
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HostileLink {
    fn drop(&mut self) {
        // What was under way is lost with it.
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).under_way.clear();
    }
}

impl Link for HostileLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let mut answers = self.answers();
        // A link takes what it likes, but something.
        let mut open = answers.piece_bytes * 64;
        let mut sent = 0;
        for region in regions {
            let mut copy = vec![0; open.min(region.len())];
            region.slice(0, copy.len()).copy_to_slice(&mut copy);
            answers.under_way.extend_from_slice(&copy);
            answers.sent_bytes += copy.len() as u64;
            open -= copy.len();
            sent += copy.len();
        }
        Ok(sent)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let mut answers = self.answers();
        if answers.pending.is_empty() && !answers.by_choice(Answers::act).unwrap_or(false) && answers.pending.is_empty()
        {
            let error = if answers.next.is_multiple_of(2) { LinkError::Closed } else { LinkError::Reset };
            drop(answers);
            self.has_ended = true;
            return Err(error);
        }
        let mut open = (answers.piece_bytes * 16).min(answers.pending.len());
        let mut got = 0;
        for region in regions {
            let bytes = open.min(region.len());
            region.slice(0, bytes).copy_from_slice(&take_front(&mut answers.pending, bytes));
            open -= bytes;
            got += bytes;
        }
        answers.delivered_bytes += got as u64;
        Ok(got)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        "the fuzzer"
    }
}
