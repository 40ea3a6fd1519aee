//! Requests of a connection that are under way: what each does, and what is kept until it has ended.

use std::sync::Arc;

use longarm_netmod::{DEVICE_WORD_BYTES, DeviceRmw, Loan};
use longarm_registration::Pinned;

use crate::fabric::Device;
use crate::sys::{Posting, Slab};

/// A request under way.
pub(crate) struct Request {
    /// What is not given back before it has ended.
    pub(crate) kept: Kept,
    /// The number behind its last packet.
    pub(crate) behind: u32,
    /// What it does with the peer's memory. `None`: it is a message.
    pub(crate) act: Option<Act>,
    /// The direct transfer that ends with it.
    pub(crate) ends: Option<u64>,
}

/// What a request needs while it is under way.
pub(crate) enum Kept {
    /// Its bytes went with it.
    Nothing,
    Slab {
        slab: Slab,
    },
    /// What is read goes on to somewhere else.
    Landing {
        slab: Slab,
        loan: Arc<dyn Loan>,
        at: usize,
        bytes: usize,
    },
    /// What is read is looked for by who has asked for it.
    InlinePoll {
        slab: Slab,
        bytes: usize,
    },
    /// The old value of a word.
    Word {
        slab: Slab,
    },
    Memory {
        _registration: Pinned<Device>,
        _loan: Arc<dyn Loan>,
    },
}

impl Kept {
    /// Lets go of all but the buffer.
    pub(crate) fn into_slab(self) -> Option<Slab> {
        match self {
            Kept::Slab { slab } | Kept::Landing { slab, .. } | Kept::InlinePoll { slab, .. } | Kept::Word { slab } => {
                Some(slab)
            }
            Kept::Nothing | Kept::Memory { .. } => None,
        }
    }
}

/// What a request does with memory of the peer.
#[derive(Clone, Copy)]
pub(crate) struct Move {
    pub(crate) remote: u64,
    pub(crate) remote_key: u32,
    pub(crate) act: Act,
}

/// Which kind of request.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    Write,
    Read,
    Atomic(DeviceRmw),
}

impl Act {
    /// Whether bytes come back with the answer.
    pub(crate) fn returns_bytes(self) -> bool {
        !matches!(self, Act::Write)
    }
}

impl Move {
    pub(crate) fn posting(self) -> Posting {
        let Move { remote, remote_key, act } = self;
        match act {
            Act::Write => Posting::Write { remote, remote_key },
            Act::Read => Posting::Read { remote, remote_key },
            Act::Atomic(rmw) => Posting::Atomic { remote, remote_key, rmw },
        }
    }
}

/// The old value of a word whose update has ended. Devices write it in the order of bytes of their machine.
pub(crate) fn value_of(kept: &Kept) -> Option<u64> {
    let Kept::Word { slab } = kept else { return None };
    let mut word = [0; DEVICE_WORD_BYTES as usize];
    slab.region(word.len()).copy_to_slice(&mut word);
    Some(u64::from_ne_bytes(word))
}
