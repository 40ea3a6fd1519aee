//! How the ranks of a job get rank 0's invitation where nobody carries it to them, but where somebody vouches for users: MUNGE.
//!
//! ```text
//!   rank                                                                      rank 0
//!   question: credential of { job, step, size, rank, nonce } ───────────────►
//!                            ◄── answer: credential of { job, step, size, rank, nonce, invitation }
//! ```
//!
//! A credential says which user has made it, and only the user for whom it is made can read it. So rank 0 gives the invitation,
//! with the job's secret in it, to nobody else; and a rank believes nobody else. Who passes a question on gets an answer that he cannot
//! read; who plays a recorded one again is refused by MUNGE; a recorded answer has another nonce. In place of an answer may come a
//! refusal, in the open, which anybody can make: all it does is that a message for people says more.
//!
//! Pure: credentials are made and read elsewhere, these are their payloads, and what is around them on a connection.

use crate::messages::CONTROL_VERSION;
use crate::proof::NONCE_BYTES;

/// Bytes before the credential or the reason.
pub const HEADER_BYTES: usize = 16;
/// At how many ports rank 0 may be.
pub const PORTS: usize = 4;
/// Bytes of a reason, at most.
pub const REASON_BYTES_MAX: usize = 400;

const MAGIC: [u8; 4] = *b"LaMu";
const QUESTION_DOMAIN: &[u8; 16] = b"longarm question";
const ANSWER_DOMAIN: &[u8; 16] = b"longarm answer  ";
const PAYLOAD_BYTES: usize = 16 + 4 * 4 + NONCE_BYTES;
/// Above what systems give to sockets that ask for no port in particular.
const PORT_MIN: u16 = 61_000;
const PORT_COUNT: u16 = 4500;

/// The step whose ranks are to meet, as each of them is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepName {
    /// The job's number.
    pub job: u32,
    /// The step's number in it.
    pub step: u32,
    /// How many ranks there are.
    pub size: u32,
}

/// Whose credential was shown, and whose the job is: the numbers of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Users {
    /// Who has made the credential, as the cluster's service says.
    pub vouched: u32,
    /// Whose the job is.
    pub own: u32,
}

/// One rank's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who asks.
    pub rank: u32,
    /// Fresh random bytes, which the answer brings back.
    pub nonce: [u8; NONCE_BYTES],
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The credential of a question.
    Question,
    /// The credential of an answer.
    Answer,
    /// A reason, for people.
    Refusal,
}

/// Why what was said is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VouchError {
    /// Not a message of ours.
    #[error("it does not speak longarm: its first word is {found:#010x}")]
    NotLongarm {
        /// Its first four bytes.
        found: u32,
    },
    /// The other side speaks another version.
    #[error(
        "it speaks version {found} of the control messages, and we speak {CONTROL_VERSION}; use one release of longarm everywhere"
    )]
    Version {
        /// Theirs.
        found: u32,
    },
    /// More than is ever said.
    #[error("it sends a message of {bytes} bytes, which none has")]
    Length {
        /// How many it says.
        bytes: u32,
    },
    /// A kind that there is not, or not here.
    #[error("it says what nobody has to say now")]
    Kind,
    /// Somebody else's credential.
    #[error("it is of the user with the number {found}, and this job of that with {own}")]
    OtherUser {
        /// Who has made it.
        found: u32,
        /// Whose job it is.
        own: u32,
    },
    /// A good credential that says something else.
    #[error("its credential says nothing of a job of longarm's")]
    Garbled,
    /// It wants another job or step.
    #[error("it belongs to step {step} of job {job}")]
    OtherJob {
        /// Theirs.
        job: u32,
        /// Theirs.
        step: u32,
    },
    /// The two do not agree how many ranks there are.
    #[error("it takes the job for one of {found} ranks, and this is one of {own}")]
    OtherSize {
        /// Theirs.
        found: u32,
        /// Ours.
        own: u32,
    },
    /// A rank that the job does not have.
    #[error("it calls itself rank {found} of a job of {size}")]
    NoSuchRank {
        /// What it calls itself.
        found: u32,
        /// How many there are.
        size: u32,
    },
    /// An answer to somebody else's question, or to an earlier one.
    #[error("it answers a question that was not asked")]
    OtherQuestion,
}

impl StepName {
    /// The ports at which rank 0 may be, the likeliest first: the same for all ranks, others for other jobs and steps.
    pub fn ports(&self) -> [u16; PORTS] {
        let mut hasher = blake3::Hasher::new_derive_key("longarm coordinator v1 ports of a step");
        hasher.update(&self.job.to_le_bytes()).update(&self.step.to_le_bytes());
        let bytes = *hasher.finalize().as_bytes();
        let mut ports: [u16; PORTS] = [0; PORTS];
        for (port, drawn) in ports.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *port = PORT_MIN + u16::from_le_bytes(*drawn) % PORT_COUNT;
        }
        ports
    }

    /// The payload of a question's credential.
    pub fn ask(&self, question: &Question) -> Vec<u8> {
        self.payload(QUESTION_DOMAIN, question)
    }

    /// Takes the payload of a credential of these users.
    ///
    /// # Errors
    /// Why it is no question of a rank of this job.
    pub fn check_question(&self, payload: &[u8], users: Users) -> Result<Question, VouchError> {
        let (question, rest) = self.read(QUESTION_DOMAIN, payload, users)?;
        if rest.is_empty() { Ok(question) } else { Err(VouchError::Garbled) }
    }

    /// The payload of an answer's credential.
    pub fn answer(&self, question: &Question, invitation: &str) -> Vec<u8> {
        let mut payload = self.payload(ANSWER_DOMAIN, question);
        payload.extend_from_slice(invitation.as_bytes());
        payload
    }

    /// Takes the payload of a credential of these users: the invitation.
    ///
    /// # Errors
    /// Why it is no answer to this question.
    pub fn check_answer(&self, asked: &Question, payload: &[u8], users: Users) -> Result<String, VouchError> {
        let (question, invitation) = self.read(ANSWER_DOMAIN, payload, users)?;
        if question != *asked {
            return Err(VouchError::OtherQuestion);
        }
        String::from_utf8(invitation.to_vec()).map_err(|_| VouchError::Garbled)
    }

    fn payload(&self, domain: &[u8; 16], question: &Question) -> Vec<u8> {
        let mut payload = domain.to_vec();
        for number in [self.job, self.step, self.size, question.rank] {
            payload.extend_from_slice(&number.to_le_bytes());
        }
        payload.extend_from_slice(&question.nonce);
        payload
    }

    fn read<'a>(&self, domain: &[u8; 16], payload: &'a [u8], users: Users) -> Result<(Question, &'a [u8]), VouchError> {
        let Users { vouched, own } = users;
        if vouched != own {
            return Err(VouchError::OtherUser { found: vouched, own });
        }
        let (said, rest) = payload.split_first_chunk::<PAYLOAD_BYTES>().ok_or(VouchError::Garbled)?;
        if said[..16] != *domain {
            return Err(VouchError::Garbled);
        }
        let (job, step, found, rank) = (word(said, 16), word(said, 20), word(said, 24), word(said, 28));
        if (job, step) != (self.job, self.step) {
            return Err(VouchError::OtherJob { job, step });
        }
        if found != self.size {
            return Err(VouchError::OtherSize { found, own: self.size });
        }
        if rank >= self.size {
            return Err(VouchError::NoSuchRank { found: rank, size: self.size });
        }
        let nonce = said[32..].try_into().expect("the payload ends with it");
        Ok((Question { rank, nonce }, rest))
    }
}

/// A message as it goes over a connection.
pub fn frame(kind: Kind, body: &[u8]) -> Vec<u8> {
    let number: u32 = match kind {
        Kind::Question => 1,
        Kind::Answer => 2,
        Kind::Refusal => 3,
    };
    let bytes = u32::try_from(body.len()).expect("credentials and reasons are short");
    let mut frame = MAGIC.to_vec();
    for word in [CONTROL_VERSION, number, bytes] {
        frame.extend_from_slice(&word.to_le_bytes());
    }
    frame.extend_from_slice(body);
    frame
}

/// What follows a header: its kind, and how many bytes, of which there may be `bytes_max`.
///
/// # Errors
/// Why it is no header of ours.
pub fn read_header(header: &[u8; HEADER_BYTES], bytes_max: usize) -> Result<(Kind, usize), VouchError> {
    if header[..4] != MAGIC {
        return Err(VouchError::NotLongarm { found: word(header, 0) });
    }
    if word(header, 4) != CONTROL_VERSION {
        return Err(VouchError::Version { found: word(header, 4) });
    }
    let kind = match word(header, 8) {
        1 => Kind::Question,
        2 => Kind::Answer,
        3 => Kind::Refusal,
        _ => return Err(VouchError::Kind),
    };
    let bytes = word(header, 12);
    if bytes as usize > bytes_max {
        return Err(VouchError::Length { bytes });
    }
    Ok((kind, bytes as usize))
}

/// The bytes of a reason, cut where it is long.
pub fn write_reason(reason: &str) -> &[u8] {
    let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    &reason.as_bytes()[..end.unwrap_or_default()]
}

/// A reason as it may be shown: anybody may have written it.
pub fn read_reason(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(REASON_BYTES_MAX)];
    String::from_utf8_lossy(shown).chars().filter(|letter| !letter.is_control()).collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: StepName = StepName { job: 12, step: 4, size: 3 };
    const SAME: Users = Users { vouched: 1000, own: 1000 };
    const OTHER: Users = Users { vouched: 1001, own: 1000 };
    const QUESTION: Question = Question { rank: 2, nonce: [7; NONCE_BYTES] };

    #[test]
    fn who_asks_as_a_rank_of_the_job_gets_its_invitation() {
        let asked = STEP.check_question(&STEP.ask(&QUESTION), SAME).unwrap();
        assert_eq!(asked, QUESTION);
        let answer = STEP.answer(&asked, "come in");
        assert_eq!(STEP.check_answer(&QUESTION, &answer, SAME).as_deref(), Ok("come in"));
    }

    #[test]
    fn another_users_word_counts_for_nothing_on_either_side() {
        let error = Err(VouchError::OtherUser { found: 1001, own: 1000 });
        assert_eq!(STEP.check_question(&STEP.ask(&QUESTION), OTHER), error);
        let answer = STEP.answer(&QUESTION, "come in");
        assert_eq!(STEP.check_answer(&QUESTION, &answer, OTHER).map(|_| QUESTION), error);
    }

    #[test]
    fn a_question_of_another_job_step_size_or_rank_is_told_apart() {
        let asked =
            |name: StepName, rank| STEP.check_question(&name.ask(&Question { rank, ..QUESTION }), SAME).unwrap_err();
        assert_eq!(asked(StepName { job: 13, ..STEP }, 1), VouchError::OtherJob { job: 13, step: 4 });
        assert_eq!(asked(StepName { step: 5, ..STEP }, 1), VouchError::OtherJob { job: 12, step: 5 });
        assert_eq!(asked(StepName { size: 4, ..STEP }, 1), VouchError::OtherSize { found: 4, own: 3 });
        assert_eq!(asked(STEP, 3), VouchError::NoSuchRank { found: 3, size: 3 });
    }

    #[test]
    fn an_answer_to_another_question_or_a_question_for_an_answer_is_not_believed() {
        let check = |payload: &[u8]| STEP.check_answer(&QUESTION, payload, SAME).unwrap_err();
        let earlier = Question { nonce: [8; NONCE_BYTES], ..QUESTION };
        assert_eq!(check(&STEP.answer(&earlier, "come in")), VouchError::OtherQuestion);
        assert_eq!(check(&STEP.answer(&Question { rank: 1, ..QUESTION }, "")), VouchError::OtherQuestion);
        assert_eq!(check(&STEP.ask(&QUESTION)), VouchError::Garbled);
        let answer = STEP.answer(&QUESTION, "");
        assert_eq!(STEP.check_question(&answer, SAME), Err(VouchError::Garbled));
    }

    #[test]
    fn garbage_of_any_length_is_no_question_and_no_answer() {
        let (question, answer) = (STEP.ask(&QUESTION), STEP.answer(&QUESTION, "come in"));
        for length in 0..question.len() {
            assert_eq!(STEP.check_question(&question[..length], SAME), Err(VouchError::Garbled), "{length}");
            assert_eq!(STEP.check_answer(&QUESTION, &answer[..length], SAME), Err(VouchError::Garbled), "{length}");
        }
        let longer = [question, vec![0]].concat();
        assert_eq!(STEP.check_question(&longer, SAME), Err(VouchError::Garbled));
        let no_text = [STEP.answer(&QUESTION, ""), vec![0xff]].concat();
        assert_eq!(STEP.check_answer(&QUESTION, &no_text, SAME), Err(VouchError::Garbled));
    }

    #[test]
    fn a_header_says_what_comes_and_none_may_say_too_much() {
        let header = |frame: &[u8]| *frame.first_chunk::<HEADER_BYTES>().unwrap();
        for kind in [Kind::Question, Kind::Answer, Kind::Refusal] {
            assert_eq!(read_header(&header(&frame(kind, b"four")), 4), Ok((kind, 4)));
        }
        let mut changed = header(&frame(Kind::Question, b"four"));
        assert_eq!(read_header(&changed, 3), Err(VouchError::Length { bytes: 4 }));
        changed[8] = 9;
        assert_eq!(read_header(&changed, 4), Err(VouchError::Kind));
        changed[4] = 99;
        assert_eq!(read_header(&changed, 4), Err(VouchError::Version { found: 99 }));
        assert!(matches!(read_header(b"HTTP/1.1 400 Bad", 4), Err(VouchError::NotLongarm { .. })));
    }

    #[test]
    fn the_ports_of_a_step_are_the_same_for_all_its_ranks_and_outside_of_what_systems_give() {
        assert_eq!(STEP.ports(), StepName { size: 9, ..STEP }.ports());
        assert_ne!(STEP.ports(), StepName { step: 5, ..STEP }.ports());
        for job in 0..1000 {
            assert!(StepName { job, ..STEP }.ports().iter().all(|port| (61_000..65_500).contains(port)));
        }
    }

    #[test]
    fn a_reason_is_short_and_moves_no_cursor() {
        let long = "ä".repeat(REASON_BYTES_MAX);
        assert_eq!(read_reason(write_reason(&long)), "ä".repeat(REASON_BYTES_MAX / 2));
        assert_eq!(read_reason(b"no\x1b[2J\nway"), "no[2Jway");
    }
}
