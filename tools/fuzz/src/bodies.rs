//! What members of a collective send: bodies together, each behind its length, and what they claim to call where that differs.

use crate::inputs::Seeds;

/// Letters that two claims take in a message, at most.
const SHOWN_BYTES_MAX: usize = 400;
/// Bytes of one claim.
const CLAIM_BYTES: usize = 16 + 1 + 1 + 4 + 4 + 8 + 4;

/// Takes the first byte for the number of bodies and the others for the bodies: what is accepted has one spelling only, and
/// whatever is longer, shorter or of another number is not.
pub fn collective_bodies(data: &[u8]) {
    let Some((count, packed)) = data.split_first() else { return };
    let count = usize::from(*count);
    let Some(bodies) = longarm::unpack_bodies(packed, count) else { return };
    assert_eq!(bodies.len(), count);
    assert_eq!(spelled(&bodies), packed);
    assert!(longarm::unpack_bodies(packed, count + 1).is_none(), "one more is announced than there is");
    assert!(longarm::unpack_bodies(&[packed, &[0]].concat(), count).is_none(), "something is left over");
    if let Some((_, short)) = packed.split_last() {
        assert!(longarm::unpack_bodies(short, count).is_none(), "the last one is cut");
    }
}

/// Takes the bytes for two claims: what is accepted has one spelling, one length, and a name that can be shown in a line.
pub fn collective_claims(data: &[u8]) {
    let Some((spelled, shown)) = longarm::respell_claims(data) else { return };
    assert_eq!(spelled, data);
    assert!(shown.len() <= SHOWN_BYTES_MAX, "{shown}");
    assert!(longarm::respell_claims(&[data, &[0]].concat()).is_none(), "something is left over");
    assert!(longarm::respell_claims(&data[1..]).is_none(), "a byte is missing");
}

fn spelled(bodies: &[Vec<u8>]) -> Vec<u8> {
    bodies.iter().flat_map(|body| [&(body.len() as u64).to_le_bytes()[..], body].concat()).collect()
}

/// Some bodies, none, and lengths that nobody has.
pub(crate) fn seeds() -> Seeds {
    let behind = |count: u8, packed: Vec<u8>| [vec![count], packed].concat();
    let three = spelled(&[b"one".to_vec(), Vec::new(), vec![7; 40]]);
    let longest = [&u64::MAX.to_le_bytes()[..], b"x"].concat();
    vec![
        ("three", behind(3, three)),
        ("none", behind(0, Vec::new())),
        ("empty", behind(2, vec![0; 16])),
        ("longest", behind(1, longest)),
    ]
}

/// Claims of two members, the largest that there are, and ones that are cut.
pub(crate) fn claim_seeds() -> Seeds {
    let claim = |name: &str, rest: u8| {
        let mut claim = vec![rest; CLAIM_BYTES];
        claim[..16].fill(0);
        claim[..name.len()].copy_from_slice(name.as_bytes());
        claim
    };
    vec![
        ("two", [claim("barrier", 0), claim("broadcast", 1)].concat()),
        ("largest", vec![0xff; 2 * CLAIM_BYTES]),
        ("one", claim("reduce", 2)),
    ]
}
