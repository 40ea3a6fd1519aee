//! Streams over links that move a random part of what they are given: every cut is met sooner or later.

use std::os::fd::BorrowedFd;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::flow::{Costs, Incoming, Outgoing, RunSource, RunTarget};
use longarm_netmod::{Link, LinkError, Netmod, Sim};
use longarm_proto::{Cursor, Level, Run, Shape, Strided};
use proptest::prelude::*;

struct Memory(Vec<u8>);

impl RunSource for &Memory {
    fn region(&self, run: Run) -> Region<'_> {
        Region::from_slice(&self.0[run.offset as usize..(run.offset + run.bytes) as usize])
    }
}

struct Landing<'a>(RegionMut<'a>);

impl RunTarget for Landing<'_> {
    fn region_mut(&self, run: Run) -> RegionMut<'_> {
        self.0.slice(run.offset as usize, run.bytes as usize)
    }
}

#[derive(Clone, Debug)]
enum Item {
    Bytes(usize),
    Copied(Shape),
    Streamed(Shape),
}

const MEMORY_BYTES: u64 = 300_000;

fn shape() -> impl Strategy<Value = Shape> {
    let contiguous = (0..MEMORY_BYTES, 0..200_000_u64)
        .prop_map(|(offset, bytes)| Shape::Contiguous(Run { offset, bytes: bytes.min(MEMORY_BYTES - offset) }));
    let strided = (0..1000_u64, 1..3000_u64, 0..12_u64, 0..4000_i64, 0..5_u64).prop_map(
        |(offset, run_bytes, count, stride, planes)| {
            let levels = [Level { count, stride }, Level { count: planes, stride: 50_000 }];
            let levels = if planes == 0 { &levels[..1] } else { &levels };
            Shape::Strided(Strided::new(offset, run_bytes, levels).unwrap())
        },
    );
    let vector = proptest::collection::vec((0..MEMORY_BYTES - 5000, 1..5000_u64), 0..50)
        .prop_map(|runs| Shape::Vector(runs.into_iter().map(|(offset, bytes)| Run { offset, bytes }).collect()));
    prop_oneof![contiguous, strided, vector]
}

fn item() -> impl Strategy<Value = Item> {
    prop_oneof![(1..5000_usize).prop_map(Item::Bytes), shape().prop_map(Item::Copied), shape().prop_map(Item::Streamed),]
}

fn packed(memory: &Memory, shape: &Shape) -> Vec<u8> {
    let mut cursor = Cursor::new(shape.clone());
    let mut bytes = Vec::new();
    while let Some(run) = cursor.peek() {
        bytes.extend_from_slice(&memory.0[run.offset as usize..(run.offset + run.bytes) as usize]);
        cursor.advance(run.bytes);
    }
    bytes
}

fn pair(seed: u64) -> (Box<dyn Link>, Box<dyn Link>) {
    let sim = Sim::new(seed);
    let mut listener = sim.listen().unwrap();
    let near = sim.connect(listener.address()).unwrap();
    let far = std::iter::repeat_with(|| listener.accept().unwrap()).flatten().next().unwrap();
    (near, far)
}

fn memory() -> Memory {
    Memory((0..MEMORY_BYTES).map(|index| (index * 7 + index / 251) as u8).collect())
}

/// A link on which everything has always arrived: headers of 16 bytes of ones, each with a payload of twos.
struct Flood {
    payload_bytes: usize,
    at: usize,
}

const FLOOD_HEADER_BYTES: usize = 16;

impl Link for Flood {
    fn send(&mut self, _: &[Region<'_>]) -> Result<usize, LinkError> {
        Ok(0)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let before = self.at;
        for region in regions {
            let frame_bytes = FLOOD_HEADER_BYTES + self.payload_bytes;
            let is_header = |at: usize| at % frame_bytes < FLOOD_HEADER_BYTES;
            let bytes: Vec<u8> =
                (self.at..self.at + region.len()).map(|at| if is_header(at) { 1 } else { 2 }).collect();
            region.copy_from(Region::from_slice(&bytes));
            self.at += bytes.len();
        }
        Ok(self.at - before)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        "flood"
    }
}

/// A link that takes everything and says in which pieces.
#[derive(Default)]
struct Taking(Vec<usize>);

impl Link for Taking {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        self.0.push(regions.iter().map(Region::len).sum());
        Ok(self.0[self.0.len() - 1])
    }

    fn receive(&mut self, _: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        Ok(0)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        "taking"
    }
}

#[test]
fn a_payload_of_some_length_goes_out_in_halves_if_nothing_else_is_under_way() {
    let memory = memory();
    let pieces = |payloads: &[u64]| {
        let mut out = Outgoing::new(Costs::TYPICAL);
        let mut link = Taking::default();
        for bytes in payloads {
            out.write(|frame| frame.extend_from_slice(&[1; 64]));
            out.stream(&memory, Cursor::new(Shape::contiguous(0, *bytes)));
        }
        assert!(out.flush(&mut link).unwrap() && out.is_sent());
        link.0
    };
    assert_eq!(pieces(&[64 << 10]), [(32 << 10) + 32, (32 << 10) + 32]);
    assert_eq!(pieces(&[40 << 10]), [(40 << 10) + 64]);
    assert_eq!(pieces(&[200 << 10]), [(200 << 10) + 64]);
    assert_eq!(pieces(&[30 << 10, 30 << 10]), [(60 << 10) + 128]);
}

/// Puts a frame in, and gives the room of its buffer.
fn room_of_frame(out: &mut Outgoing<&Memory>) -> usize {
    let mut room = 0;
    out.write(|frame| {
        frame.extend_from_slice(&[1; 64]);
        room = frame.capacity();
    });
    room
}

#[test]
fn buffers_between_payloads_take_little_memory() {
    let memory = memory();
    let mut out = Outgoing::new(Costs::TYPICAL);
    for number in 0..1000 {
        let room = room_of_frame(&mut out);
        assert!(number == 0 || room < 1000, "{room} bytes for frame {number}");
        out.stream(&memory, Cursor::new(Shape::contiguous(0, 1000)));
    }
    // The list of so many takes memory as well.
    out.flush(&mut Taking::default()).unwrap();
    out.acknowledge(out.sent_bytes(), |_| ()).unwrap();
    assert!(out.has_grown());
    out.shrink();
    assert!(!out.has_grown());
}

#[test]
fn no_buffer_grows_for_a_payload_that_has_room_in_the_next() {
    let memory = memory();
    let mut out = Outgoing::new(Costs::TYPICAL);
    for round in 0..2 {
        for _ in 0..40 {
            // In the second round the buffers of the first one come again.
            let room = room_of_frame(&mut out);
            assert!(room < 80 << 10, "{room} bytes in round {round}");
            out.copy(&&memory, Cursor::new(Shape::contiguous(0, 16 << 10)));
        }
        assert_eq!(out.unsent_bytes(), 40 * (64 + (16 << 10)));
        out.flush(&mut Taking::default()).unwrap();
        out.acknowledge(out.sent_bytes(), |_| ()).unwrap();
    }
}

#[test]
fn of_payloads_that_follow_each_other_little_is_copied() {
    const PAYLOAD_BYTES: usize = 64 << 10;
    let mut link = Flood { payload_bytes: PAYLOAD_BYTES, at: 0 };
    let mut incoming = Incoming::new();
    let mut memory = vec![0; PAYLOAD_BYTES];
    let landing = Landing(RegionMut::from_slice(&mut memory));
    for frame in 0..20 {
        let header = loop {
            match incoming.take_array::<FLOOD_HEADER_BYTES>() {
                Some(header) => break *header,
                None => assert!(incoming.receive(&mut link).unwrap()),
            }
        };
        assert_eq!(header, [1; FLOOD_HEADER_BYTES]);
        let mut cursor = Cursor::new(Shape::contiguous(0, PAYLOAD_BYTES as u64));
        if frame == 0 {
            // Much that has to be looked at comes through the buffer, which then is as large as it gets.
            while incoming.ready().len() < PAYLOAD_BYTES / 2 {
                assert!(incoming.receive(&mut link).unwrap());
            }
        }
        let mut copied = 0;
        loop {
            let before = cursor.remaining();
            incoming.drain_into(&landing, &mut cursor);
            copied += before - cursor.remaining();
            if cursor.remaining() == 0 {
                break;
            }
            assert!(incoming.receive_into(&mut link, &landing, &mut cursor).unwrap());
        }
        // Of the second one, what came before anything was known of it.
        assert!(frame < 2 || copied <= 8 << 10, "{copied} bytes of payload {frame}");
    }
    assert!(memory.iter().all(|byte| *byte == 2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn what_is_put_in_arrives_in_order_and_every_stream_is_handed_back(
        items in proptest::collection::vec(item(), 1..12),
        seed in any::<u64>(),
    ) {
        let memory = memory();
        let (mut near, mut far) = pair(seed);
        let mut outgoing: Outgoing<&Memory> = Outgoing::new(Costs::TYPICAL);
        let (mut expected, mut streams) = (Vec::new(), 0);
        for (number, item) in items.iter().enumerate() {
            match item {
                Item::Bytes(count) => {
                    let bytes = vec![number as u8; *count];
                    outgoing.write(|buffer| buffer.extend_from_slice(&bytes));
                    expected.extend_from_slice(&bytes);
                }
                Item::Copied(shape) => {
                    outgoing.copy(&&memory, Cursor::new(shape.clone()));
                    expected.extend(packed(&memory, shape));
                }
                Item::Streamed(shape) => {
                    streams += usize::from(shape.bytes() > 0);
                    outgoing.stream(&memory, Cursor::new(shape.clone()));
                    expected.extend(packed(&memory, shape));
                }
            }
        }
        let (mut incoming, mut arrived, mut handed_back) = (Incoming::new(), Vec::new(), 0);
        while arrived.len() < expected.len() {
            outgoing.flush(&mut *near).unwrap();
            outgoing.acknowledge(incoming.received_bytes(), |_| handed_back += 1).unwrap();
            incoming.receive(&mut *far).unwrap();
            if arrived.len() % 3 == 0 {
                // Also in the middle, with something in them.
                outgoing.shrink();
                incoming.shrink();
            }
            let ready = incoming.ready().len();
            arrived.extend_from_slice(incoming.take(ready).unwrap());
        }
        prop_assert!(arrived == expected);
        outgoing.acknowledge(incoming.received_bytes(), |_| handed_back += 1).unwrap();
        prop_assert!(outgoing.is_sent() && outgoing.is_acknowledged());
        prop_assert_eq!((outgoing.buffered_bytes(), outgoing.unsent_bytes(), outgoing.streams()), (0, 0, 0));
        prop_assert_eq!(outgoing.unsent_stream_bytes(), 0);
        prop_assert_eq!(handed_back, streams);
        outgoing.shrink();
        incoming.shrink();
        prop_assert!(!outgoing.has_grown() && !incoming.has_grown());
    }

    #[test]
    fn a_stream_that_broken_links_cut_anywhere_arrives_whole_and_once(
        items in proptest::collection::vec(item(), 1..12),
        cuts in proptest::collection::vec(0_u64..40_000, 0..8),
        seed in any::<u64>(),
    ) {
        let memory = memory();
        let mut outgoing: Outgoing<&Memory> = Outgoing::new(Costs::TYPICAL);
        let (mut expected, mut streams) = (Vec::new(), 0);
        for (number, item) in items.iter().enumerate() {
            match item {
                Item::Bytes(count) => {
                    let bytes = vec![number as u8; *count];
                    outgoing.write(|buffer| buffer.extend_from_slice(&bytes));
                    expected.extend_from_slice(&bytes);
                }
                Item::Copied(shape) => {
                    outgoing.copy(&&memory, Cursor::new(shape.clone()));
                    expected.extend(packed(&memory, shape));
                }
                Item::Streamed(shape) => {
                    streams += usize::from(shape.bytes() > 0);
                    outgoing.stream(&memory, Cursor::new(shape.clone()));
                    expected.extend(packed(&memory, shape));
                }
            }
        }
        let sim = Sim::new(seed);
        let mut listener = sim.listen().unwrap();
        let (mut incoming, mut arrived, mut handed_back) = (Incoming::new(), Vec::new(), 0);
        let mut cuts = cuts.into_iter();
        'connections: loop {
            let mut near = sim.connect(listener.address()).unwrap();
            let mut far = std::iter::repeat_with(|| listener.accept().unwrap()).flatten().next().unwrap();
            if let Some(bytes) = cuts.next() {
                sim.cut_after(near.peer_name(), bytes);
            }
            outgoing.rewind(incoming.received_bytes(), |_| handed_back += 1).unwrap();
            loop {
                let waits = outgoing.unsent_bytes() as u64 + outgoing.unsent_stream_bytes();
                prop_assert_eq!(outgoing.sent_bytes() + waits, expected.len() as u64);
                let sending = outgoing.flush(&mut *near);
                let receiving = incoming.receive(&mut *far);
                let ready = incoming.ready().len();
                arrived.extend_from_slice(incoming.take(ready).unwrap());
                if arrived.len() == expected.len() {
                    break 'connections;
                }
                if receiving.is_err() || (sending.is_err() && ready == 0) {
                    break;
                }
                // Now and then the peer says how far it is.
                if arrived.len() % 7 == 0 {
                    outgoing.shrink();
                    outgoing.acknowledge(incoming.received_bytes(), |_| handed_back += 1).unwrap();
                }
            }
        }
        prop_assert!(arrived == expected);
        // A link that broke while all was there may have left something marked as not sent.
        outgoing.rewind(incoming.received_bytes(), |_| handed_back += 1).ok();
        outgoing.acknowledge(incoming.received_bytes(), |_| handed_back += 1).ok();
        prop_assert_eq!(handed_back, streams);
        prop_assert_eq!((outgoing.buffered_bytes(), outgoing.streams()), (0, 0));
    }

    #[test]
    fn what_is_behind_a_gate_waits_until_it_is_opened(seed in any::<u64>()) {
        let (mut near, mut far) = pair(seed);
        let mut outgoing: Outgoing<&Memory> = Outgoing::new(Costs::TYPICAL);
        outgoing.write(|buffer| buffer.extend_from_slice(b"before"));
        outgoing.gate(1);
        outgoing.write(|buffer| buffer.extend_from_slice(b"behind"));
        outgoing.gate(2);
        outgoing.write(|buffer| buffer.extend_from_slice(b"later"));
        let mut incoming = Incoming::new();
        while outgoing.can_send() || incoming.ready().len() < 6 {
            outgoing.flush(&mut *near).unwrap();
            incoming.receive(&mut *far).unwrap();
        }
        prop_assert_eq!(incoming.ready(), b"before");
        prop_assert!(!outgoing.is_sent());
        outgoing.acknowledge(6, drop).unwrap();
        for (reached, expected) in [(1, "beforebehind"), (2, "beforebehindlater")] {
            outgoing.open_gates(reached);
            while outgoing.can_send() || incoming.ready().len() < expected.len() {
                outgoing.flush(&mut *near).unwrap();
                incoming.receive(&mut *far).unwrap();
            }
            prop_assert_eq!(incoming.ready(), expected.as_bytes());
        }
    }

    #[test]
    fn a_payload_lands_where_its_cursor_says_and_what_is_behind_it_is_kept(
        shape in shape(),
        seed in any::<u64>(),
    ) {
        let memory = memory();
        let (mut near, mut far) = pair(seed);
        let payload = packed(&memory, &shape);
        let mut outgoing: Outgoing<&Memory> = Outgoing::new(Costs::TYPICAL);
        outgoing.write(|buffer| {
            buffer.extend_from_slice(b"head");
            buffer.extend_from_slice(&payload);
            buffer.extend_from_slice(b"tail");
        });
        let mut landed = vec![0; MEMORY_BYTES as usize];
        let landing = Landing(RegionMut::from_slice(&mut landed));
        let (mut incoming, mut cursor, mut head, mut tail) = (Incoming::new(), Cursor::new(shape.clone()), false, false);
        while !tail {
            outgoing.flush(&mut *near).unwrap();
            if !head {
                incoming.receive(&mut *far).unwrap();
                head = incoming.take(4).is_some();
                continue;
            }
            incoming.drain_into(&landing, &mut cursor);
            if cursor.remaining() > 0 {
                incoming.receive_into(&mut *far, &landing, &mut cursor).unwrap();
                continue;
            }
            match incoming.take_array::<4>() {
                Some(bytes) => {
                    prop_assert_eq!(bytes, b"tail");
                    tail = true;
                }
                None => {
                    incoming.receive(&mut *far).unwrap();
                }
            }
        }
        let mut expected = vec![0; MEMORY_BYTES as usize];
        let (mut cursor, mut at) = (Cursor::new(shape), 0);
        while let Some(run) = cursor.peek() {
            let (from, bytes) = (run.offset as usize, run.bytes as usize);
            expected[from..from + bytes].copy_from_slice(&payload[at..at + bytes]);
            cursor.advance(run.bytes);
            at += bytes;
        }
        prop_assert!(landed == expected);
    }
}
