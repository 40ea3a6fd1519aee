//! What nodes with RDMA devices say to each other beside frames.

use longarm_proto::rdma::{NOTE_BYTES, Note, Purpose, RECORD_BYTES, Record, RemotePart};
use longarm_proto::{AccessKey, Generation, Rank, WindowId, WindowRef};

use crate::Seeds;

/// Takes the bytes for records: what is accepted has one spelling only, and numbers that a queue can be connected with.
pub fn rdma_record(data: &[u8]) {
    for bytes in data.as_chunks::<RECORD_BYTES>().0 {
        let Ok(record) = Record::decode(bytes) else { continue };
        assert_eq!(record.encode(), *bytes);
        assert!(record.executed.is_none_or(|packet| packet < 1 << 24));
        if record.usable {
            assert!((1..=5).contains(&record.mtu_code) && record.queue < 1 << 24 && record.first_packet < 1 << 24);
            assert!(record.credits > 1 && record.slab_bytes as usize >= NOTE_BYTES);
        }
    }
}

/// Takes the bytes for notes: what is accepted has one spelling only, and memory that it names has an end.
pub fn rdma_note(data: &[u8]) {
    for bytes in data.as_chunks::<NOTE_BYTES>().0 {
        let Some(note) = Note::decode(bytes) else { continue };
        assert_eq!(note.encode(), *bytes);
        if let Note::Answer(_, Some(part)) = note {
            assert!(part.start <= part.start + part.bytes);
        }
    }
}

/// A record of a device, of one that tells what was done, of one of iWARP, and of none.
pub(crate) fn record_seeds() -> Seeds {
    let first = Record {
        usable: true,
        is_ethernet: true,
        is_iwarp: false,
        mtu_code: 3,
        reads_in: 16,
        queue: 0x11,
        first_packet: 0x00ab_cdef,
        lid: 0,
        port: 0,
        credits: 8,
        slab_bytes: 8192,
        executed: None,
        gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1],
        connection: 0x0123_4567_89ab_cdef,
        previous: 0,
    };
    let again = Record { executed: Some(0x1234), previous: first.connection, connection: 0, lid: 9, ..first };
    let iwarp = Record { is_iwarp: true, port: 0x4321, queue: 0, ..first };
    let none = Record { executed: Some(0), ..Record::default() };
    vec![
        ("first", first.encode().to_vec()),
        ("again", again.encode().to_vec()),
        ("iwarp", iwarp.encode().to_vec()),
        ("none", none.encode().to_vec()),
        ("both", [first.encode(), again.encode()].concat()),
    ]
}

/// A question and its answers.
pub(crate) fn note_seeds() -> Seeds {
    let part = WindowRef { rank: Rank(3), window: WindowId(7), generation: Generation(2), key: AccessKey(0x5eed) };
    let remote = RemotePart { start: 0x7f00_0000_1000, bytes: 1 << 20, key: 0x2a };
    let notes = [
        Note::Ask(part, Purpose::Transfer),
        Note::Answer(part, None),
        Note::Answer(part, Some(remote)),
        Note::Ask(part, Purpose::Rmw),
    ];
    vec![
        ("ask", notes[0].encode().to_vec()),
        ("no", notes[1].encode().to_vec()),
        ("yes", notes[2].encode().to_vec()),
        ("update", notes[3].encode().to_vec()),
        ("all", notes.iter().flat_map(Note::encode).collect()),
    ]
}
