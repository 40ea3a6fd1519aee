//! What members of a collective send together: bodies, each behind its length.

use crate::inputs::Seeds;

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
