//! How a rank and the coordinator prove to each other that they know the job's secret, before anything else is read.
//!
//! ```text
//!   rank                                                coordinator
//!   hello: version, assembly, rank, size, nonce ───────►
//!                            ◄── challenge: version, nonce
//!   proof: MAC("rank", hello, challenge) ──────────────►
//!                            ◄── welcome: MAC("coordinator", hello, challenge)
//! ```
//!
//! A relay ([`crate::relay`]) proves itself in the same way, as the rank in whose process it is: its hello begins with another word.
//!
//! In place of a challenge may come a refusal, of the same length, which says why there is no use in going on. Anybody can make one;
//! all it does is that a message for people says more.
//!
//! The MAC is keyed BLAKE3 over a domain string with the role, then both messages as they were sent. A fresh nonce on each side
//! makes a recorded proof worthless, the roles keep a proof from being sent back to its maker, and the coordinator proves itself
//! only to one who did. The secret itself never travels here: what servers and ranks prove to each other later is derived from it
//! ([`Ticket::job_secret`]).

use std::fmt;

use crate::messages::CONTROL_VERSION;

/// Bytes of the rank's first message.
pub const HELLO_BYTES: usize = 56;
/// Bytes of the coordinator's first message.
pub const CHALLENGE_BYTES: usize = 40;
/// Bytes of either proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;

const HELLO_MAGIC: [u8; 4] = *b"LaRk";
const RELAY_MAGIC: [u8; 4] = *b"LaRe";
const CHALLENGE_MAGIC: [u8; 4] = *b"LaCo";
const REFUSAL_MAGIC: [u8; 4] = *b"LaNo";
const RANK_DOMAIN: &[u8; 32] = b"longarm coordinator v1 rank    \0";
const COORDINATOR_DOMAIN: &[u8; 32] = b"longarm coordinator v1 itself  \0";
const JOB_DOMAIN: &[u8; 32] = b"longarm coordinator v1 job     \0";
const PLACE_DOMAIN: &[u8; 32] = b"longarm coordinator v1 place   \0";

/// What lets a process into a job, brought to it by whoever started it. Its secret is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Tells jobs apart.
    pub assembly: u64,
    /// How many ranks the job has.
    pub size: u32,
    /// What all its processes know and nobody else.
    pub secret: [u8; 32],
}

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ticket { assembly, size, .. } = self;
        formatter.debug_struct("Ticket").field("assembly", assembly).field("size", size).finish_non_exhaustive()
    }
}

impl Ticket {
    /// The ticket of a job that is known by its secret alone: the same for all who have that, however long it is.
    pub fn of_secret(shared: &[u8], size: u32) -> Ticket {
        let secret = blake3::derive_key("longarm coordinator v1 secret of a file", shared);
        // Who has another secret is told that it has, and not that it is of another job.
        Ticket { assembly: 0, size, secret }
    }

    /// The secret of the job of this number, which its ranks and servers prove to each other. It tells nothing of the ticket's.
    pub fn job_secret(&self, job: u64) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(JOB_DOMAIN).update(&self.assembly.to_le_bytes()).update(&job.to_le_bytes());
        *hasher.finalize().as_bytes()
    }

    /// A name that nobody guesses who has not the secret, for a place where processes of the job meet that share a machine.
    pub fn place_name(&self, machine: &str, what: &str, number: u32) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(PLACE_DOMAIN).update(&self.assembly.to_le_bytes()).update(&number.to_le_bytes());
        hasher.update(&(what.len() as u64).to_le_bytes()).update(what.as_bytes()).update(machine.as_bytes());
        let name = hasher.finalize().to_hex();
        format!("longarm-{what}-{}", &name[..32])
    }

    fn proof(&self, domain: &[u8; 32], hello: &[u8; HELLO_BYTES], challenge: &[u8; CHALLENGE_BYTES]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(domain).update(hello).update(challenge);
        hasher.finalize()
    }
}

/// Why a connection was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The other side does not speak this protocol.
    #[error("it does not speak longarm: its first word is {found:#010x}")]
    NotLongarm {
        /// Its first four bytes.
        found: u32,
    },
    /// The other side speaks another version.
    #[error(
        "it speaks version {found} of the control messages, and we speak {ours}; use one release of longarm everywhere"
    )]
    Version {
        /// Ours.
        ours: u32,
        /// Theirs.
        found: u32,
    },
    /// It wants another job.
    #[error("it belongs to another job")]
    OtherJob,
    /// The two do not agree how many ranks there are.
    #[error("it takes the job for one of {found} ranks, and this is one of {ours}")]
    OtherSize {
        /// Ours.
        ours: u32,
        /// Theirs.
        found: u32,
    },
    /// A rank that the job does not have.
    #[error("it calls itself rank {found} of a job of {size}")]
    NoSuchRank {
        /// What it calls itself.
        found: u32,
        /// How many there are.
        size: u32,
    },
    /// The other side sent our own nonce back.
    #[error("it sent our own nonce back")]
    ReflectedNonce,
    /// The other side does not know the secret.
    #[error("it does not know the job's secret")]
    WrongProof,
}

/// Who proves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A rank.
    Rank,
    /// The relay in a rank's process, over whose connection others of its machine come.
    Relay,
}

/// The rank's side. Send the hello, take the challenge, send the proof, take the welcome.
#[derive(Debug)]
pub struct RankProof {
    ticket: Ticket,
    hello: [u8; HELLO_BYTES],
}

/// The rank's side after its proof.
#[derive(Debug)]
pub struct RankWelcome {
    expected: blake3::Hash,
}

impl RankProof {
    /// The hello of a rank is to be sent.
    pub fn start(ticket: &Ticket, rank: u32, nonce: [u8; NONCE_BYTES]) -> (RankProof, [u8; HELLO_BYTES]) {
        RankProof::start_as(Caller::Rank, ticket, rank, nonce)
    }

    /// The hello of a rank, or of the relay in its process, is to be sent.
    pub fn start_as(
        caller: Caller,
        ticket: &Ticket,
        rank: u32,
        nonce: [u8; NONCE_BYTES],
    ) -> (RankProof, [u8; HELLO_BYTES]) {
        let mut hello = [0; HELLO_BYTES];
        hello[..4].copy_from_slice(match caller {
            Caller::Rank => &HELLO_MAGIC,
            Caller::Relay => &RELAY_MAGIC,
        });
        hello[4..8].copy_from_slice(&CONTROL_VERSION.to_le_bytes());
        hello[8..16].copy_from_slice(&ticket.assembly.to_le_bytes());
        hello[16..20].copy_from_slice(&rank.to_le_bytes());
        hello[20..24].copy_from_slice(&ticket.size.to_le_bytes());
        hello[24..].copy_from_slice(&nonce);
        (RankProof { ticket: ticket.clone(), hello }, hello)
    }

    /// Takes the challenge; the proof is to be sent.
    ///
    /// # Errors
    /// When nobody of ours can have sent it.
    pub fn handle_challenge(
        self,
        challenge: &[u8; CHALLENGE_BYTES],
    ) -> Result<(RankWelcome, [u8; PROOF_BYTES]), ProofError> {
        read_refusal(challenge, self.ticket.size)?;
        check_start(challenge, CHALLENGE_MAGIC)?;
        if challenge[8..] == self.hello[24..] {
            return Err(ProofError::ReflectedNonce);
        }
        let proof = self.ticket.proof(RANK_DOMAIN, &self.hello, challenge);
        let expected = self.ticket.proof(COORDINATOR_DOMAIN, &self.hello, challenge);
        Ok((RankWelcome { expected }, *proof.as_bytes()))
    }
}

impl RankWelcome {
    /// Takes the welcome. From here on both know each other.
    ///
    /// # Errors
    /// When the coordinator does not know the secret.
    pub fn check(self, welcome: &[u8; PROOF_BYTES]) -> Result<(), ProofError> {
        // Compares in constant time.
        if self.expected == *welcome { Ok(()) } else { Err(ProofError::WrongProof) }
    }
}

/// The coordinator's side. Take the hello, send the challenge, take the proof, send the welcome.
#[derive(Debug)]
pub struct CoordinatorProof {
    caller: Caller,
    rank: u32,
    expected: blake3::Hash,
    welcome: blake3::Hash,
}

impl CoordinatorProof {
    /// Takes the hello of a rank; the challenge is to be sent.
    ///
    /// # Errors
    /// When it is no rank of this job.
    pub fn start(
        ticket: &Ticket,
        nonce: [u8; NONCE_BYTES],
        hello: &[u8; HELLO_BYTES],
    ) -> Result<(CoordinatorProof, [u8; CHALLENGE_BYTES]), ProofError> {
        let caller = if hello[..4] == RELAY_MAGIC { Caller::Relay } else { Caller::Rank };
        check_start(hello, if caller == Caller::Relay { RELAY_MAGIC } else { HELLO_MAGIC })?;
        let word = |at: usize| u32::from_le_bytes(hello[at..at + 4].try_into().expect("four bytes"));
        if hello[8..16] != ticket.assembly.to_le_bytes() {
            return Err(ProofError::OtherJob);
        }
        let (rank, size) = (word(16), word(20));
        if size != ticket.size {
            return Err(ProofError::OtherSize { ours: ticket.size, found: size });
        }
        if rank >= size {
            return Err(ProofError::NoSuchRank { found: rank, size });
        }
        if hello[24..] == nonce {
            return Err(ProofError::ReflectedNonce);
        }
        let mut challenge = [0; CHALLENGE_BYTES];
        challenge[..4].copy_from_slice(&CHALLENGE_MAGIC);
        challenge[4..8].copy_from_slice(&CONTROL_VERSION.to_le_bytes());
        challenge[8..].copy_from_slice(&nonce);
        let expected = ticket.proof(RANK_DOMAIN, hello, &challenge);
        let welcome = ticket.proof(COORDINATOR_DOMAIN, hello, &challenge);
        Ok((CoordinatorProof { caller, rank, expected, welcome }, challenge))
    }

    /// As what it comes.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Takes the proof: the rank that has proven itself, and the welcome that is to be sent.
    ///
    /// # Errors
    /// When it does not know the secret.
    pub fn check(&self, proof: &[u8; PROOF_BYTES]) -> Result<(u32, [u8; PROOF_BYTES]), ProofError> {
        if self.expected == *proof { Ok((self.rank, *self.welcome.as_bytes())) } else { Err(ProofError::WrongProof) }
    }
}

/// What is sent in place of a challenge.
pub fn refusal(error: &ProofError) -> [u8; CHALLENGE_BYTES] {
    let (kind, number) = match *error {
        ProofError::OtherSize { ours, .. } => (1, ours),
        ProofError::NoSuchRank { found, .. } => (2, found),
        _ => (0, 0),
    };
    let mut refusal = [0; CHALLENGE_BYTES];
    refusal[..4].copy_from_slice(&REFUSAL_MAGIC);
    refusal[4..8].copy_from_slice(&CONTROL_VERSION.to_le_bytes());
    refusal[8..12].copy_from_slice(&u32::to_le_bytes(kind));
    refusal[12..16].copy_from_slice(&number.to_le_bytes());
    refusal
}

/// An error if this is a refusal.
fn read_refusal(message: &[u8; CHALLENGE_BYTES], size: u32) -> Result<(), ProofError> {
    let word = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes"));
    if message[..4] != REFUSAL_MAGIC {
        return Ok(());
    }
    check_start(message, REFUSAL_MAGIC)?;
    Err(match word(8) {
        1 => ProofError::OtherSize { ours: size, found: word(12) },
        2 => ProofError::NoSuchRank { found: word(12), size },
        _ => ProofError::OtherJob,
    })
}

fn check_start(message: &[u8], magic: [u8; 4]) -> Result<(), ProofError> {
    let word = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes"));
    if message[..4] != magic {
        return Err(ProofError::NotLongarm { found: word(0) });
    }
    match word(4) {
        CONTROL_VERSION => Ok(()),
        found => Err(ProofError::Version { ours: CONTROL_VERSION, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        Ticket { assembly: 7, size: 4, secret: [1; 32] }
    }

    #[test]
    fn who_knows_the_secret_is_let_in_and_hears_it_from_one_who_knows_it_too() {
        let (rank, hello) = RankProof::start(&ticket(), 3, [2; 32]);
        let (coordinator, challenge) = CoordinatorProof::start(&ticket(), [3; 32], &hello).unwrap();
        let (awaits, proof) = rank.handle_challenge(&challenge).unwrap();
        let (rank, welcome) = coordinator.check(&proof).unwrap();
        assert_eq!((rank, awaits.check(&welcome)), (3, Ok(())));
    }

    #[test]
    fn who_does_not_is_told_apart_on_either_side() {
        let other = Ticket { secret: [9; 32], ..ticket() };
        let (rank, hello) = RankProof::start(&other, 3, [2; 32]);
        let (coordinator, challenge) = CoordinatorProof::start(&ticket(), [3; 32], &hello).unwrap();
        let (awaits, proof) = rank.handle_challenge(&challenge).unwrap();
        assert_eq!(coordinator.check(&proof), Err(ProofError::WrongProof));
        // One that only sends back what it has got is no coordinator.
        assert_eq!(awaits.check(&proof), Err(ProofError::WrongProof));
    }

    #[test]
    fn any_changed_bit_of_what_is_sent_is_noticed() {
        let (_, hello) = RankProof::start(&ticket(), 3, [2; 32]);
        for bit in 0..HELLO_BYTES * 8 {
            let (rank, mut changed) = RankProof::start(&ticket(), 3, [2; 32]);
            changed[bit / 8] ^= 1 << (bit % 8);
            let Ok((coordinator, challenge)) = CoordinatorProof::start(&ticket(), [3; 32], &changed) else { continue };
            let (_, proof) = rank.handle_challenge(&challenge).unwrap();
            assert_eq!(coordinator.check(&proof), Err(ProofError::WrongProof), "bit {bit}");
        }
        for bit in 0..CHALLENGE_BYTES * 8 {
            let (rank, _) = RankProof::start(&ticket(), 3, [2; 32]);
            let (coordinator, mut challenge) = CoordinatorProof::start(&ticket(), [3; 32], &hello).unwrap();
            challenge[bit / 8] ^= 1 << (bit % 8);
            let Ok((_, proof)) = rank.handle_challenge(&challenge) else { continue };
            assert_eq!(coordinator.check(&proof), Err(ProofError::WrongProof), "bit {bit}");
        }
    }

    #[test]
    fn a_rank_of_another_job_size_or_release_is_refused_before_its_proof() {
        let refused = |change: &dyn Fn(&mut [u8; HELLO_BYTES])| {
            let (_, mut hello) = RankProof::start(&ticket(), 3, [2; 32]);
            change(&mut hello);
            CoordinatorProof::start(&ticket(), [3; 32], &hello).map(|_| ()).unwrap_err()
        };
        assert!(matches!(refused(&|hello| hello[0] = 0), ProofError::NotLongarm { .. }));
        assert!(matches!(refused(&|hello| hello[4] = 99), ProofError::Version { found: 99, .. }));
        assert_eq!(refused(&|hello| hello[8] = 0), ProofError::OtherJob);
        assert_eq!(refused(&|hello| hello[16] = 4), ProofError::NoSuchRank { found: 4, size: 4 });
        assert_eq!(refused(&|hello| hello[20] = 5), ProofError::OtherSize { ours: 4, found: 5 });
        assert_eq!(refused(&|hello| hello[24..].fill(3)), ProofError::ReflectedNonce);
    }

    #[test]
    fn a_refusal_says_to_the_rank_what_the_coordinator_has_found() {
        let other = Ticket { size: 6, ..ticket() };
        let (rank, hello) = RankProof::start(&other, 3, [2; 32]);
        let error = CoordinatorProof::start(&ticket(), [3; 32], &hello).map(|_| ()).unwrap_err();
        assert_eq!(error, ProofError::OtherSize { ours: 4, found: 6 });
        let told = rank.handle_challenge(&refusal(&error)).map(|_| ()).unwrap_err();
        assert_eq!(told, ProofError::OtherSize { ours: 6, found: 4 });
    }

    #[test]
    fn each_world_of_a_job_has_a_secret_of_its_own_and_no_ticket_is_printed() {
        assert_ne!(ticket().job_secret(1), ticket().job_secret(2));
        assert_ne!(ticket().job_secret(1), ticket().secret);
        let shown = format!("{:?}", Ticket { secret: [0x5e; 32], ..ticket() });
        assert!(shown.contains("size: 4") && !shown.contains("94"), "{shown}");
        assert_eq!(Ticket::of_secret(b"one", 4), Ticket::of_secret(b"one", 4));
        assert_ne!(Ticket::of_secret(b"one", 4), Ticket::of_secret(b"two", 4));
    }
}
