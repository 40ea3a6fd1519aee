//! What the links of one netmod share: the device, and what is remembered of each peer that was called.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use longarm_netmod::DirectOutcome;
use parking_lot::Mutex;

use crate::fabric::{Fabric, VerbsError};
use crate::keys::{Known, Published};
use crate::mapped::AllMapped;
use crate::options::VerbsOptions;
use crate::unresolved::Unresolved;

/// Queues in a row that brought nothing before a peer is reached over TCP.
const FAILURES_MAX: u32 = 3;

/// What the links of one netmod know of each other.
pub(crate) struct Peers {
    pub(crate) options: VerbsOptions,
    pub(crate) fabric: OnceLock<Option<Arc<Fabric>>>,
    /// By the address that was called.
    called: Mutex<HashMap<String, Called>>,
    pub(crate) said: Mutex<Vec<String>>,
    pub(crate) published: Arc<Published>,
    pub(crate) mapped: Arc<AllMapped>,
}

/// What is remembered of a peer that was called.
#[derive(Default)]
struct Called {
    /// The number of our last connection, and what it left undone.
    previous: u64,
    unresolved: Vec<Unresolved>,
    known: Arc<Known>,
    /// Queues in a row over which nothing came back.
    failures: u32,
    /// Transfers were handed back as not done, and nothing has come since. Whoever has begun them posts them anew, which only the
    /// device can take.
    has_handed_back: bool,
}

impl Peers {
    /// Nobody was called yet, and no device is open.
    pub(crate) fn new(options: VerbsOptions) -> Peers {
        Peers {
            options,
            fabric: OnceLock::new(),
            called: Mutex::default(),
            said: Mutex::default(),
            published: Arc::default(),
            mapped: Arc::default(),
        }
    }

    pub(crate) fn fabric(&self) -> Option<Arc<Fabric>> {
        let opened = self.fabric.get_or_init(|| match Fabric::open(&self.options) {
            Ok(fabric) => Some(fabric),
            Err(error @ (VerbsError::NoLibrary { .. } | VerbsError::NoDevice { .. })) if !self.options.demanded => {
                tracing::debug!("verbs cannot be used here, TCP is: {error}");
                None
            }
            Err(error) => {
                tracing::warn!("verbs cannot be used here, TCP is: {error}");
                None
            }
        });
        if let Some(fabric) = opened {
            self.mapped.catch_up(fabric);
        }
        opened.clone()
    }

    /// The device, if it is open.
    pub(crate) fn opened(&self) -> Option<&Arc<Fabric>> {
        self.fabric.get()?.as_ref()
    }

    /// The device, unless it has failed on the way to this peer too often.
    pub(crate) fn fabric_for(&self, address: &str) -> Option<Arc<Fabric>> {
        if self.is_given_up(address) { None } else { self.fabric() }
    }

    pub(crate) fn is_given_up(&self, address: &str) -> bool {
        self.called.lock().get(address).is_some_and(|called| called.failures >= FAILURES_MAX)
    }

    /// Numbers for a connection, and for its first packet: others for each, so that late packets of an old one are not taken.
    pub(crate) fn numbers(&self, queue: u32) -> (u64, u32) {
        let (mut connection, mut packet) = ([0; 8], [0; 3]);
        if getrandom::fill(&mut connection).is_err() || getrandom::fill(&mut packet).is_err() {
            // Without a name the peer does not know it again, and nobody knows what was done when it breaks.
            return (0, queue.wrapping_mul(0x9e37) & 0x00ff_ffff);
        }
        (u64::from_le_bytes(connection), u32::from_le_bytes([packet[0], packet[1], packet[2], 0]))
    }

    pub(crate) fn previous(&self, address: &str) -> u64 {
        self.called.lock().get(address).map_or(0, |called| called.previous)
    }

    /// What is known of the windows of this peer.
    pub(crate) fn known(&self, address: &str) -> Arc<Known> {
        Arc::clone(&self.called.lock().entry(address.to_owned()).or_default().known)
    }

    /// A connection has ended with transfers under way.
    pub(crate) fn leave_unresolved(&self, address: &str, unresolved: Vec<Unresolved>) {
        let mut called = self.called.lock();
        let called = called.entry(address.to_owned()).or_default();
        called.known.forget_questions();
        if !unresolved.is_empty() {
            // Only the device can end them, so it gets another chance.
            called.failures = 0;
        }
        called.unresolved.extend(unresolved);
    }

    /// What became of them, as the peer knows up to which packet it went along.
    pub(crate) fn resolve(&self, address: &str, executed: Option<u32>) -> Vec<(u64, DirectOutcome)> {
        let mut called = self.called.lock();
        let Some(called) = called.get_mut(address) else { return Vec::new() };
        let unresolved = std::mem::take(&mut called.unresolved);
        let outcomes: Vec<_> =
            unresolved.iter().map(|transfer| (transfer.ticket, transfer.outcome(executed))).collect();
        if outcomes.iter().any(|(_, outcome)| *outcome == DirectOutcome::NotDone) {
            (called.has_handed_back, called.failures) = (true, 0);
        }
        outcomes
    }

    /// From now on transfers may go over this connection.
    pub(crate) fn note_connection(&self, address: &str, connection: u64) {
        self.called.lock().entry(address.to_owned()).or_default().previous = connection;
    }

    pub(crate) fn note_success(&self, address: &str) {
        if let Some(called) = self.called.lock().get_mut(address) {
            (called.has_handed_back, called.failures) = (false, 0);
        }
    }

    pub(crate) fn note_failure(&self, address: &str, peer: &str) {
        let mut called = self.called.lock();
        let called = called.entry(address.to_owned()).or_default();
        if called.has_handed_back {
            return;
        }
        called.failures += 1;
        if called.failures == FAILURES_MAX {
            tracing::warn!(
                peer,
                "{FAILURES_MAX} queues in a row brought nothing back; this peer is reached over TCP from now on"
            );
        }
    }

    /// Something that a person should read, and once.
    pub(crate) fn say_once(&self, sentence: &str) {
        let mut said = self.said.lock();
        if !said.iter().any(|other| other == sentence) {
            tracing::warn!("{sentence}");
            said.push(sentence.to_owned());
        }
    }
}
