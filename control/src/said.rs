//! The bounds of what a rank may tell its launcher: a rank is a program that may be broken, and the launcher has to outlive it.
//!
//! Counters saturate, text is cut and made plain, and what is kept of a rank is no more than a sound one could have to say.

use crate::messages::{KindTraffic, NodeCard, PeerTraffic, Wait};

/// Letters of a reason that are passed on.
const REASON_LETTERS_MAX: usize = 4096;
/// Letters of the name of a call.
const CALL_LETTERS_MAX: usize = 64;
/// Threads of a rank that are told to wait.
const WAITS_MAX: usize = 256;
/// Bytes of each text on a card. An address in a network has some hundred at most.
const CARD_TEXT_BYTES_MAX: usize = 4096;
/// Kinds of operations that are kept: more than there are.
const KINDS_MAX: usize = 32;
/// Names that a network counts under, and bytes of each: more than there are.
const NETWORK_NAMES_MAX: usize = 64;
const NETWORK_NAME_BYTES_MAX: usize = 64;

/// Why somebody ends the job, as a terminal may show it: whatever moves its cursor is left out.
pub fn reason(text: &str) -> String {
    plain(text, REASON_LETTERS_MAX)
}

/// The same for those who wait.
pub fn waits(mut waits: Vec<Wait>) -> Vec<Wait> {
    waits.truncate(WAITS_MAX);
    for wait in &mut waits {
        wait.call = plain(&wait.call, CALL_LETTERS_MAX);
    }
    waits
}

/// Whether a card's texts are as short as addresses are.
pub fn is_card_short(card: &NodeCard) -> bool {
    [&card.address, &card.door, &card.host].into_iter().all(|text| text.len() <= CARD_TEXT_BYTES_MAX)
}

fn plain(text: &str, letters_max: usize) -> String {
    let is_shown = |letter: &char| !letter.is_control() || matches!(letter, '\n' | '\t');
    text.chars().filter(is_shown).take(letters_max).collect()
}

/// What a rank has counted in all of its worlds.
#[derive(Debug, Default)]
pub struct Counted {
    /// Ascending by peer.
    traffic: Vec<PeerTraffic>,
    network: Vec<(String, u64)>,
}

impl Counted {
    /// Adds what a rank of a job of `ranks` has counted in one world. Peers that are no ranks are left out.
    pub fn add_traffic(&mut self, traffic: Vec<PeerTraffic>, ranks: u32) {
        for peer in traffic.into_iter().filter(|peer| peer.peer < ranks) {
            let at = self.traffic.binary_search_by_key(&peer.peer, |known| known.peer);
            let at = at.unwrap_or_else(|free| {
                self.traffic.insert(free, PeerTraffic { peer: peer.peer, kinds: Vec::new() });
                free
            });
            let known = &mut self.traffic[at].kinds;
            let kinds = peer.kinds.len().min(KINDS_MAX);
            if known.len() < kinds {
                known.resize(kinds, KindTraffic::default());
            }
            for (known, new) in known.iter_mut().zip(peer.kinds) {
                known.operations = known.operations.saturating_add(new.operations);
                known.bytes = known.bytes.saturating_add(new.bytes);
            }
        }
    }

    /// The same for what its network counted. Names beyond all reason are left out.
    pub fn add_network(&mut self, network: Vec<(String, u64)>) {
        for (name, count) in network.into_iter().filter(|(name, _)| name.len() <= NETWORK_NAME_BYTES_MAX) {
            if let Some((_, known)) = self.network.iter_mut().find(|(known, _)| *known == name) {
                *known = known.saturating_add(count);
            } else if self.network.len() < NETWORK_NAMES_MAX {
                self.network.push((name, count));
            }
        }
    }

    /// All traffic, which is forgotten here.
    pub fn take_traffic(&mut self) -> Vec<PeerTraffic> {
        std::mem::take(&mut self.traffic)
    }

    /// All that the network counted, which is forgotten here.
    pub fn take_network(&mut self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.network)
    }
}

#[cfg(test)]
mod tests {
    use crate::messages::Whom;

    use super::*;

    fn traffic(peer: u32, counts: &[u64]) -> PeerTraffic {
        let kinds = counts.iter().map(|count| KindTraffic { operations: *count, bytes: *count });
        PeerTraffic { peer, kinds: kinds.collect() }
    }

    #[test]
    fn counters_stop_at_the_largest_number() {
        let mut counted = Counted::default();
        for _ in 0..2 {
            counted.add_traffic(vec![traffic(0, &[u64::MAX, 1])], 1);
            counted.add_network(vec![("puts".to_owned(), u64::MAX)]);
        }
        assert_eq!(counted.take_traffic(), [traffic(0, &[u64::MAX, 2])]);
        assert_eq!(counted.take_network(), [("puts".to_owned(), u64::MAX)]);
    }

    #[test]
    fn what_is_kept_has_bounds_however_often_and_however_much_is_said() {
        let mut counted = Counted::default();
        for world in 0..1000 {
            counted.add_traffic(vec![traffic(world, &[1; 100]), traffic(world % 4, &[1])], 4);
            counted.add_network(vec![(world.to_string(), 1), ("x".repeat(1000), 1)]);
        }
        let known = counted.take_traffic();
        assert_eq!(known.iter().map(|peer| peer.peer).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(known.iter().all(|peer| peer.kinds.len() == KINDS_MAX && peer.kinds[0].operations == 251), "{known:?}");
        assert_eq!(counted.take_network().len(), NETWORK_NAMES_MAX);
    }

    #[test]
    fn a_peer_of_which_more_kinds_are_counted_later_keeps_them() {
        let mut counted = Counted::default();
        counted.add_traffic(vec![traffic(0, &[1])], 1);
        counted.add_traffic(vec![traffic(0, &[1, 5])], 1);
        assert_eq!(counted.take_traffic(), [traffic(0, &[2, 5])]);
    }

    #[test]
    fn texts_are_cut_and_move_no_cursor() {
        assert_eq!(reason("left: 1\n right: \u{1b}[2J\u{7}2\r"), "left: 1\n right: [2J2");
        assert_eq!(reason(&"é".repeat(5000)).chars().count(), REASON_LETTERS_MAX);
        let wait = Wait { call: format!("\u{1b}{}", "x".repeat(100)), whom: Whom::Anyone, waited_ms: 1 };
        let said = waits(vec![wait; 1000]);
        assert_eq!((said.len(), said[0].call.as_str()), (WAITS_MAX, "x".repeat(CALL_LETTERS_MAX).as_str()));
    }
}
