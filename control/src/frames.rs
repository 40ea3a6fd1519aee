//! How the frames of [`crate::agent`] and [`crate::relay`] are written and read. Pure: bytes in, frames out.

use crate::agent::{CHUNK_BYTES_MAX, FromAgent, Stream, ToAgent};
use crate::how_ended::HowEnded;
use crate::rendezvous::LINE_BYTES_MAX;

/// Bytes before the payload, without those of the length.
const HEAD_BYTES: usize = 5;
/// Bytes of a payload: a rank's longest line, of which a piece more may have come.
const PAYLOAD_BYTES_MAX: usize = LINE_BYTES_MAX + (64 << 10);

/// A frame or a first line that no sound side sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than any.
    #[error("a frame of {bytes} bytes, which is longer than any")]
    Long {
        /// Its length.
        bytes: u32,
    },
    /// Shorter than its head, or than what its kind has.
    #[error("a frame of {bytes} bytes, which is too short for its kind")]
    Short {
        /// Its length.
        bytes: u32,
    },
    /// A kind that does not exist.
    #[error("a frame of the unknown kind {kind}")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// A payload that is not what its kind has.
    #[error("a frame of kind {kind} whose content cannot be understood")]
    Content {
        /// The kind.
        kind: u8,
    },
    /// No marker in all that came.
    #[error("no agent answers: {bytes} bytes came that are none of its")]
    NoMarker {
        /// How many.
        bytes: usize,
    },
}

/// A side's frames.
pub trait Frame: Sized {
    /// Adds the frame's bytes.
    fn encode(&self, bytes: &mut Vec<u8>);
    /// Reads a frame without its length.
    ///
    /// # Errors
    /// When it is none.
    fn decode(frame: &[u8]) -> Result<Self, FrameError>;
}

/// Cuts bytes into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were given out.
    taken: usize,
}

impl Decoder {
    /// Takes bytes that came.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
        } else if self.taken > 64 << 10 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, if it is there as a whole.
    ///
    /// # Errors
    /// When what came is no frame. Nothing that follows can be understood.
    pub fn next_frame<F: Frame>(&mut self) -> Result<Option<F>, FrameError> {
        let rest = &self.buffer[self.taken..];
        let Some((head, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let bytes = u32::from_le_bytes(*head);
        if bytes as usize > HEAD_BYTES + PAYLOAD_BYTES_MAX {
            return Err(FrameError::Long { bytes });
        }
        let Some(frame) = rest.get(..bytes as usize) else { return Ok(None) };
        let frame = F::decode(frame)?;
        self.taken += 4 + bytes as usize;
        Ok(Some(frame))
    }

    /// The next line before the first frame, given without its end, if it is there as a whole.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let rest = &self.buffer[self.taken..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = rest[..end].to_vec();
        self.taken += end + 1;
        Some(line)
    }

    /// How many bytes wait.
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.taken
    }
}

pub(crate) mod kind {
    pub const BEAT: u8 = 0;
    pub const SETUP: u8 = 1;
    pub const MESSAGE: u8 = 2;
    pub const SIGNAL: u8 = 3;
    pub const INPUT: u8 = 4;
    pub const ROOM: u8 = 5;
    pub const LOOK: u8 = 6;
    pub const FINISH: u8 = 7;
    pub const CLOSED: u8 = 8;
    pub const READY: u8 = 32;
    pub const STARTED: u8 = 33;
    pub const LINE: u8 = 34;
    pub const BROKE: u8 = 35;
    pub const ENDED: u8 = 36;
    pub const OUTPUT: u8 = 37;
    pub const INPUT_ROOM: u8 = 38;
    pub const LOOKED: u8 = 39;
    pub const REFUSED: u8 = 40;
    pub const LOST: u8 = 41;
    pub const FINISHED: u8 = 42;
    pub const TO_MEMBER: u8 = 64;
    pub const CLOSE_MEMBER: u8 = 65;
    pub const MEMBER: u8 = 96;
    pub const OF_MEMBER: u8 = 97;
    pub const MEMBER_GONE: u8 = 98;
    pub const MEMBER_DEAF: u8 = 99;
}

/// Adds a frame of these parts.
pub(crate) fn add(bytes: &mut Vec<u8>, kind: u8, whom: u32, payload: &[&[u8]]) {
    let length = HEAD_BYTES + payload.iter().map(|part| part.len()).sum::<usize>();
    assert!(length <= HEAD_BYTES + PAYLOAD_BYTES_MAX, "what is sent is bounded where it comes from");
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(&whom.to_le_bytes());
    payload.iter().for_each(|part| bytes.extend_from_slice(part));
}

/// What a frame is made of.
pub(crate) struct Fields<'a> {
    pub(crate) kind: u8,
    pub(crate) whom: u32,
    pub(crate) payload: &'a [u8],
    bytes: u32,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(frame: &'a [u8]) -> Result<Fields<'a>, FrameError> {
        let bytes = frame.len() as u32;
        let Some(([kind, whom @ ..], payload)) = frame.split_first_chunk::<HEAD_BYTES>() else {
            return Err(FrameError::Short { bytes });
        };
        Ok(Fields { kind: *kind, whom: u32::from_le_bytes(*whom), payload, bytes })
    }

    /// The first bytes of the payload.
    fn cut<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], FrameError> {
        let (head, rest) = self.payload.split_first_chunk().ok_or(FrameError::Short { bytes: self.bytes })?;
        self.payload = rest;
        Ok(*head)
    }

    pub(crate) fn number(&mut self) -> Result<i32, FrameError> {
        self.cut().map(i32::from_le_bytes)
    }

    fn stream(&mut self) -> Result<Stream, FrameError> {
        match self.cut()? {
            [0] => Ok(Stream::Stdout),
            [1] => Ok(Stream::Stderr),
            _ => Err(self.content()),
        }
    }

    fn content(&self) -> FrameError {
        FrameError::Content { kind: self.kind }
    }

    /// A piece of a stream.
    pub(crate) fn chunk(&self) -> Result<Vec<u8>, FrameError> {
        if self.payload.len() > CHUNK_BYTES_MAX { Err(self.content()) } else { Ok(self.payload.to_vec()) }
    }

    fn text(&self) -> Result<String, FrameError> {
        String::from_utf8(self.payload.to_vec()).map_err(|_| self.content())
    }

    pub(crate) fn nothing<F>(&self, frame: F) -> Result<F, FrameError> {
        if self.payload.is_empty() { Ok(frame) } else { Err(self.content()) }
    }
}

fn stream_byte(stream: Stream) -> [u8; 1] {
    [stream as u8]
}

impl Frame for ToAgent {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            ToAgent::Setup(setup) => {
                let text = serde_json::to_vec(setup).expect("a setup has only names as keys");
                add(bytes, kind::SETUP, 0, &[&text]);
            }
            ToAgent::Beat => add(bytes, kind::BEAT, 0, &[]),
            ToAgent::Message { rank, line } => add(bytes, kind::MESSAGE, *rank, &[line]),
            ToAgent::Signal { rank, signal } => add(bytes, kind::SIGNAL, *rank, &[&signal.to_le_bytes()]),
            ToAgent::Input { rank, bytes: piece } => add(bytes, kind::INPUT, *rank, &[piece]),
            ToAgent::Room { rank, stream } => add(bytes, kind::ROOM, *rank, &[&stream_byte(*stream)]),
            ToAgent::Closed { rank, stream } => add(bytes, kind::CLOSED, *rank, &[&stream_byte(*stream)]),
            ToAgent::Look { rank } => add(bytes, kind::LOOK, *rank, &[]),
            ToAgent::Finish => add(bytes, kind::FINISH, 0, &[]),
        }
    }

    fn decode(frame: &[u8]) -> Result<ToAgent, FrameError> {
        let mut parts = Fields::of(frame)?;
        let rank = parts.whom;
        match parts.kind {
            kind::BEAT => parts.nothing(ToAgent::Beat),
            kind::SETUP => serde_json::from_slice(parts.payload).map(ToAgent::Setup).map_err(|_| parts.content()),
            kind::MESSAGE => Ok(ToAgent::Message { rank, line: parts.payload.to_vec() }),
            kind::SIGNAL => {
                let signal = parts.number()?;
                parts.nothing(ToAgent::Signal { rank, signal })
            }
            kind::INPUT => Ok(ToAgent::Input { rank, bytes: parts.chunk()? }),
            kind::ROOM => {
                let stream = parts.stream()?;
                parts.nothing(ToAgent::Room { rank, stream })
            }
            kind::CLOSED => {
                let stream = parts.stream()?;
                parts.nothing(ToAgent::Closed { rank, stream })
            }
            kind::LOOK => parts.nothing(ToAgent::Look { rank }),
            kind::FINISH => parts.nothing(ToAgent::Finish),
            kind => Err(FrameError::Kind { kind }),
        }
    }
}

impl Frame for FromAgent {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            FromAgent::Beat => add(bytes, kind::BEAT, 0, &[]),
            FromAgent::Ready { host, processors } => {
                let numbers: Vec<u8> = processors.iter().flat_map(|number| number.to_le_bytes()).collect();
                add(bytes, kind::READY, *host, &[&numbers]);
            }
            FromAgent::Started { rank, pid } => add(bytes, kind::STARTED, *rank, &[&pid.to_le_bytes()]),
            FromAgent::Line { rank, line } => add(bytes, kind::LINE, *rank, &[line]),
            FromAgent::Broke { rank, waiting } => {
                let waiting = waiting.map(u32::to_le_bytes);
                add(bytes, kind::BROKE, *rank, &[waiting.as_ref().map_or(&[], |waiting| &waiting[..])]);
            }
            FromAgent::Ended { rank, how } => {
                let (letter, number) = match how {
                    HowEnded::Exited(status) => (0, status),
                    HowEnded::Killed(signal) => (1, signal),
                    HowEnded::Gone => (2, &0),
                };
                add(bytes, kind::ENDED, *rank, &[&[letter], &number.to_le_bytes()]);
            }
            FromAgent::Output { rank, stream, bytes: piece } => {
                add(bytes, kind::OUTPUT, *rank, &[&stream_byte(*stream), piece]);
            }
            FromAgent::InputRoom { rank } => add(bytes, kind::INPUT_ROOM, *rank, &[]),
            FromAgent::Looked { rank, is_stopped } => add(bytes, kind::LOOKED, *rank, &[&[u8::from(*is_stopped)]]),
            FromAgent::Refused { host, status, reason } => {
                add(bytes, kind::REFUSED, *host, &[&status.to_le_bytes(), reason.as_bytes()]);
            }
            FromAgent::Lost { host, reason } => add(bytes, kind::LOST, *host, &[reason.as_bytes()]),
            FromAgent::Finished { host } => add(bytes, kind::FINISHED, *host, &[]),
        }
    }

    fn decode(frame: &[u8]) -> Result<FromAgent, FrameError> {
        let mut parts = Fields::of(frame)?;
        let whom = parts.whom;
        match parts.kind {
            kind::BEAT => parts.nothing(FromAgent::Beat),
            kind::READY => {
                let (numbers, rest) = parts.payload.as_chunks::<4>();
                let processors = numbers.iter().map(|number| u32::from_le_bytes(*number)).collect();
                if rest.is_empty() { Ok(FromAgent::Ready { host: whom, processors }) } else { Err(parts.content()) }
            }
            kind::STARTED => {
                let pid = parts.number()? as u32;
                parts.nothing(FromAgent::Started { rank: whom, pid })
            }
            kind::LINE => Ok(FromAgent::Line { rank: whom, line: parts.payload.to_vec() }),
            kind::BROKE if parts.payload.is_empty() => Ok(FromAgent::Broke { rank: whom, waiting: None }),
            kind::BROKE => {
                let waiting = Some(parts.number()? as u32);
                parts.nothing(FromAgent::Broke { rank: whom, waiting })
            }
            kind::ENDED => {
                let how = match (parts.cut()?, parts.number()?) {
                    ([0], status) => HowEnded::Exited(status),
                    ([1], signal) => HowEnded::Killed(signal),
                    ([2], 0) => HowEnded::Gone,
                    _ => return Err(parts.content()),
                };
                parts.nothing(FromAgent::Ended { rank: whom, how })
            }
            kind::OUTPUT => {
                let stream = parts.stream()?;
                Ok(FromAgent::Output { rank: whom, stream, bytes: parts.chunk()? })
            }
            kind::INPUT_ROOM => parts.nothing(FromAgent::InputRoom { rank: whom }),
            kind::LOOKED => match parts.payload {
                [flag @ (0 | 1)] => Ok(FromAgent::Looked { rank: whom, is_stopped: *flag == 1 }),
                _ => Err(parts.content()),
            },
            kind::REFUSED => {
                let status = parts.number()?;
                Ok(FromAgent::Refused { host: whom, status, reason: parts.text()? })
            }
            kind::LOST => Ok(FromAgent::Lost { host: whom, reason: parts.text()? }),
            kind::FINISHED => parts.nothing(FromAgent::Finished { host: whom }),
            kind => Err(FrameError::Kind { kind }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::agent::{AGENT_VERSION, Branch, Setup, Starter, marker, read_marker};

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..most)
    }

    fn stream() -> impl Strategy<Value = Stream> {
        prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)]
    }

    fn branch() -> impl Strategy<Value = Branch> {
        let leaf = (any::<u32>(), ".{0,8}", proptest::collection::vec(any::<(u32, u32)>(), 0..4))
            .prop_map(|(host, name, ranks)| Branch { host, name, ranks, below: Vec::new() });
        leaf.prop_recursive(2, 6, 3, |inner| {
            (any::<u32>(), proptest::collection::vec(inner, 0..3)).prop_map(|(host, below)| Branch {
                host,
                name: "relay".to_owned(),
                ranks: vec![(0, 0)],
                below,
            })
        })
    }

    fn setup() -> impl Strategy<Value = ToAgent> {
        let words = proptest::collection::vec(bytes(8), 0..4);
        let pairs = proptest::collection::vec((bytes(8), bytes(8)), 0..4);
        (any::<u32>(), words, pairs, any::<Option<u64>>(), branch()).prop_map(
            |(size, command, environment, silence_ms, branch)| {
                ToAgent::Setup(Box::new(Setup {
                    version: 1,
                    size,
                    folder: vec![b'/', 255],
                    command,
                    environment,
                    kept: vec!["HOME".to_owned()],
                    is_bound: size % 2 == 0,
                    debugger: size % 3 == 0,
                    silence_ms,
                    starter: Starter { command: vec!["ssh".to_owned()], paths: Vec::new(), is_read_by_shell: true },
                    branch,
                }))
            },
        )
    }

    fn to_agent() -> impl Strategy<Value = ToAgent> {
        prop_oneof![
            setup(),
            Just(ToAgent::Beat),
            Just(ToAgent::Finish),
            (any::<u32>(), bytes(99)).prop_map(|(rank, line)| ToAgent::Message { rank, line }),
            (any::<u32>(), any::<i32>()).prop_map(|(rank, signal)| ToAgent::Signal { rank, signal }),
            (any::<u32>(), bytes(99)).prop_map(|(rank, bytes)| ToAgent::Input { rank, bytes }),
            (any::<u32>(), stream()).prop_map(|(rank, stream)| ToAgent::Room { rank, stream }),
            (any::<u32>(), stream()).prop_map(|(rank, stream)| ToAgent::Closed { rank, stream }),
            any::<u32>().prop_map(|rank| ToAgent::Look { rank }),
        ]
    }

    fn how() -> impl Strategy<Value = HowEnded> {
        prop_oneof![
            any::<i32>().prop_map(HowEnded::Exited),
            any::<i32>().prop_map(HowEnded::Killed),
            Just(HowEnded::Gone)
        ]
    }

    fn from_agent() -> impl Strategy<Value = FromAgent> {
        prop_oneof![
            Just(FromAgent::Beat),
            (any::<u32>(), proptest::collection::vec(any::<u32>(), 0..9))
                .prop_map(|(host, processors)| FromAgent::Ready { host, processors }),
            any::<(u32, u32)>().prop_map(|(rank, pid)| FromAgent::Started { rank, pid }),
            (any::<u32>(), bytes(99)).prop_map(|(rank, line)| FromAgent::Line { rank, line }),
            any::<(u32, Option<u32>)>().prop_map(|(rank, waiting)| FromAgent::Broke { rank, waiting }),
            (any::<u32>(), how()).prop_map(|(rank, how)| FromAgent::Ended { rank, how }),
            (any::<u32>(), stream(), bytes(99)).prop_map(|(rank, stream, bytes)| FromAgent::Output {
                rank,
                stream,
                bytes
            }),
            any::<u32>().prop_map(|rank| FromAgent::InputRoom { rank }),
            any::<(u32, bool)>().prop_map(|(rank, is_stopped)| FromAgent::Looked { rank, is_stopped }),
            (any::<u32>(), any::<i32>(), ".*").prop_map(|(host, status, reason)| FromAgent::Refused {
                host,
                status,
                reason
            }),
            (any::<u32>(), ".*").prop_map(|(host, reason)| FromAgent::Lost { host, reason }),
            any::<u32>().prop_map(|host| FromAgent::Finished { host }),
        ]
    }

    /// All frames that come out of bytes that come in pieces of this length.
    fn decoded<F: Frame>(bytes: &[u8], piece: usize) -> Result<Vec<F>, FrameError> {
        let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            decoder.feed(piece);
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    proptest! {
        #[test]
        fn frames_to_agents_come_out_as_they_went_in(
            frames in proptest::collection::vec(to_agent(), 0..9), piece in 1_usize..200
        ) {
            let mut bytes = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut bytes));
            prop_assert_eq!(decoded::<ToAgent>(&bytes, piece).unwrap(), frames);
        }

        #[test]
        fn frames_from_agents_come_out_as_they_went_in(
            frames in proptest::collection::vec(from_agent(), 0..9), piece in 1_usize..200
        ) {
            let mut bytes = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut bytes));
            prop_assert_eq!(decoded::<FromAgent>(&bytes, piece).unwrap(), frames);
        }

        #[test]
        fn whatever_comes_is_a_frame_or_an_error(bytes in bytes(200)) {
            // What a panic would be.
            let _ = decoded::<ToAgent>(&bytes, 7);
            let _ = decoded::<FromAgent>(&bytes, 7);
        }
    }

    #[test]
    fn a_frame_that_says_it_is_longer_than_any_is_refused_before_it_is_there() {
        let bytes = (HEAD_BYTES + PAYLOAD_BYTES_MAX + 1) as u32;
        assert_eq!(decoded::<FromAgent>(&bytes.to_le_bytes(), 4), Err(FrameError::Long { bytes }));
        let longest = (bytes - 1).to_le_bytes();
        assert_eq!(decoded::<FromAgent>(&longest, 4), Ok(Vec::new()), "the rest may still come");
    }

    #[test]
    fn a_piece_of_a_stream_has_a_bound_and_a_frame_nothing_behind_its_end() {
        let mut bytes = Vec::new();
        FromAgent::Output { rank: 1, stream: Stream::Stderr, bytes: vec![7; CHUNK_BYTES_MAX + 1] }.encode(&mut bytes);
        assert!(matches!(decoded::<FromAgent>(&bytes, 1 << 20), Err(FrameError::Content { .. })));
        let mut bytes = Vec::new();
        add(&mut bytes, kind::LOOK, 1, &[b"x"]);
        assert_eq!(decoded::<ToAgent>(&bytes, 9), Err(FrameError::Content { kind: kind::LOOK }));
        let mut bytes = Vec::new();
        add(&mut bytes, kind::STARTED, 1, &[b"xyz"]);
        assert_eq!(decoded::<FromAgent>(&bytes, 9), Err(FrameError::Short { bytes: 8 }));
        assert_eq!(decoded::<ToAgent>(&bytes, 9), Err(FrameError::Kind { kind: kind::STARTED }));
    }

    #[test]
    fn the_marker_is_found_behind_noise_and_says_both_versions() {
        let line = format!("last login: never {}", marker("0.9.1"));
        let version = AGENT_VERSION;
        assert_eq!(read_marker(line.trim_end().as_bytes()), Some((version, "0.9.1".to_owned())));
        assert_eq!(read_marker(b"longarm-agent-speaks 77 2.0.0-rc1\r"), Some((77, "2.0.0-rc1".to_owned())));
        for other in ["", "longarm-agent-speaks", "longarm-agent-speaks x 1", "longarm-agent-speaks 1", "\u{1b}[2J"] {
            assert_eq!(read_marker(other.as_bytes()), None, "{other}");
        }
    }
}
