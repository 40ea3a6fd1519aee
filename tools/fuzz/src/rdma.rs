//! What nodes with RDMA devices say to each other beside frames.

use longarm_proto::rdma::{
    Breach, Buffers, CREDITS_MIN, Message, NOTE_BYTES, Note, Purpose, RECORD_BYTES, Record, RemotePart,
};
use longarm_proto::{AccessKey, Generation, Rank, WindowId, WindowRef};

use crate::inputs::Seeds;

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

/// Takes the bytes for what happens to one end of a stream: the numbers of buffers, and then messages of a peer that sends what it
/// likes, buffers given back, and messages of our own. Whatever the peer sends, it fills no more buffers than it was told of, and
/// we no more than it has.
pub fn rdma_stream(data: &[u8]) {
    let [ours, theirs, steps @ ..] = data else { return };
    let (ours, theirs) = (CREDITS_MIN + u16::from(*ours), CREDITS_MIN + u16::from(*theirs));
    let mut end = Buffers::new(ours, theirs);
    // What the peer may send still, what of ours is filled, and what is free and not told.
    let (mut granted, mut filled, mut untold) = (u32::from(ours), 0, 0);
    let mut steps = steps.iter().copied();
    while let Some(step) = steps.next() {
        match step % 4 {
            0 | 1 => {
                let mut beside = u32::from(step >> 2);
                let mut note = [0; NOTE_BYTES];
                if step % 4 == 1 {
                    beside |= 1 << 31;
                    note.iter_mut().zip(&mut steps).for_each(|(place, byte)| *place = byte);
                }
                let bytes = if step % 4 == 1 { NOTE_BYTES - usize::from(step == 253) } else { usize::from(step) };
                let free = end.free();
                let taken = end.receive(beside, bytes, |said| *said = note);
                let may = granted > 0;
                match taken {
                    Ok(message) => {
                        assert!(may && free + (beside & 0x7fff_ffff) <= theirs.into());
                        assert_eq!(matches!(message, Message::Note(_)), step % 4 == 1);
                        (granted, filled) = (granted - 1, filled + 1);
                    }
                    Err(breach) => {
                        assert!(may || breach == Breach::Overdraft);
                        return;
                    }
                }
            }
            2 if filled > 0 => {
                end.give_back();
                (filled, untold) = (filled - 1, untold + 1);
            }
            3 if end.free() > 0 => {
                assert_eq!(end.send(false), untold);
                (granted, untold) = (granted + untold, 0);
            }
            _ => {}
        }
        assert_eq!(end.untold(), untold);
        assert_eq!(granted + filled + untold, u32::from(ours), "no buffer is lost, and none is promised twice");
        assert!(end.free() <= theirs.into());
    }
}

/// A stream in order, one that overdraws, one that gives back too much, and a note.
pub(crate) fn stream_seeds() -> Seeds {
    let part = WindowRef { rank: Rank(3), window: WindowId(7), generation: Generation(2), key: AccessKey(0x5eed) };
    let note = Note::Ask(part, Purpose::Transfer).encode();
    vec![
        ("in_order", vec![0, 0, 8, 2, 3, 8, 8, 2, 2, 3, 4, 4]),
        ("overdraft", vec![0, 0, 8, 8, 8, 8, 2, 8]),
        ("returns", vec![0, 0, 3, 4, 4]),
        ("note", [&[1, 1, 1][..], &note, &[2, 3]].concat()),
    ]
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
