//! The frames: their bytes, that they come back as they went, and that nothing unsound comes in.

mod common;

use common::{decoded, encoded, reply_body, request, request_over, shape};
use longarm_proto::*;
use proptest::prelude::*;

const TARGET: WindowRef = WindowRef {
    rank: Rank(0x0102_0304),
    window: WindowId(0x1112_1314_1516_1718),
    generation: Generation(0x2122_2324),
    key: AccessKey(0x3132_3334_3536_3738),
};

fn put(shape: Shape) -> Request {
    Request::Put { target: TARGET, shape, signal: None }
}

fn sum(element: ElementType, shape: Shape) -> Request {
    let kernel = Kernel::new(element, AccumulateOp::Sum).unwrap();
    Request::Accumulate { target: TARGET, shape, kernel, scale: Scale::one(element) }
}

/// What a header says after one change, with its own descriptor.
fn changed(
    request: &Request,
    change: impl FnOnce(&mut [u8; HEADER_BYTES], &mut Vec<u8>),
) -> Result<Request, Violation> {
    let (mut header, mut descriptor) = encoded(request, 1);
    change(&mut header, &mut descriptor);
    decoded(&header, &descriptor).expect("the change kept the two together")
}

#[test]
fn a_put_with_a_signal_has_these_bytes() {
    let signal = Signal {
        window: WindowId(5),
        generation: Generation(6),
        key: AccessKey(7),
        offset: 8,
        op: SignalOp::Add,
        value: 9,
    };
    let shape = Shape::Strided(Strided::new(0x51, 3, &[Level { count: 2, stride: -4 }]).unwrap());
    let (header, descriptor) = encoded(&Request::Put { target: TARGET, shape, signal: Some(signal) }, 0x41);
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut expected = vec![1, 1, 0, 2, 64, 0, 0, 0]; // Put, strided, no element, add; 64 bytes of descriptor.
    expected.extend(words(&[6, 0x41]));
    expected.extend([4, 3, 2, 1, 0x24, 0x23, 0x22, 0x21]);
    expected.extend(words(&[0x1112_1314_1516_1718, 0x3132_3334_3536_3738, 0x51, 0]));
    assert_eq!(header.to_vec(), expected);
    assert_eq!(descriptor, words(&[5, 7, 8, 9, 6, 3, 2, (-4_i64) as u64]));
}

#[test]
fn a_compare_and_swap_has_these_bytes_and_no_other_operation_has_a_descriptor() {
    let rmw = Rmw { op: RmwOp::CompareSwap, width: RmwWidth::W64, operand: 0x61, compare: 0x71 };
    let (header, descriptor) = encoded(&Request::Rmw { target: TARGET, offset: 0x51, rmw }, 2);
    assert_eq!(header[..8], [4, 0, 1, 2, 8, 0, 0, 0]);
    assert_eq!((header[48], header[56], descriptor), (0x51, 0x61, vec![0x71, 0, 0, 0, 0, 0, 0, 0]));
    for &op in RmwOp::ALL {
        let rmw = Rmw { op, width: RmwWidth::W32, operand: 1, compare: 2 };
        let (_, descriptor) = encoded(&Request::Rmw { target: TARGET, offset: 0, rmw }, 2);
        assert_eq!(descriptor.is_empty(), op != RmwOp::CompareSwap);
    }
}

fn add_many(words: Vec<RmwWord>) -> Request {
    Request::RmwMany { target: TARGET, op: RmwOp::FetchAdd, width: RmwWidth::W64, words }
}

#[test]
fn updates_of_several_words_have_these_bytes() {
    let several =
        add_many(vec![RmwWord { offset: 0x51, operand: 0x61 }, RmwWord { offset: 0x52, operand: (-1_i64) as u64 }]);
    let (header, descriptor) = encoded(&several, 2);
    assert_eq!(header[..8], [12, 0, 1, 0, 32, 0, 0, 0]);
    assert_eq!(header[48..], [0; 16], "the words stand in the descriptor");
    let words = [0x51_u64, 0x61, 0x52, u64::MAX].map(u64::to_le_bytes).concat();
    assert_eq!(descriptor, words);
    assert_eq!((several.payload_bytes(), several.reply_data_bytes()), (0, 16));
}

#[test]
fn updates_of_several_words_are_refused_without_words_with_half_a_word_and_where_something_is_compared() {
    let kind = RequestKind::RmwMany;
    let one = add_many(vec![RmwWord { offset: 8, operand: 1 }]);
    for (bytes, violation) in [
        (0, Violation::DescriptorBytes { kind, found: 0 }),
        (8, Violation::DescriptorBytes { kind, found: 8 }),
        (17, Violation::DescriptorBytes { kind, found: 17 }),
        (16 * 254, Violation::TooManyRuns { found: 254 }),
    ] {
        assert_eq!(with_length(&one, bytes), Err(violation));
    }
    assert_eq!(changed(&one, |header, _| header[3] = 2), Err(Violation::NothingToCompareWith));
    for (at, field) in
        [(1, HeaderField::Shape), (8, HeaderField::PayloadBytes), (48, HeaderField::Offset), (56, HeaderField::Operand)]
    {
        let found = changed(&one, |header, _| header[at] = 1);
        assert_eq!(found, Err(Violation::UnusedField { kind, field, found: 1 }));
    }
}

#[test]
fn a_refusal_has_these_bytes() {
    let mut bytes = [0xff; REPLY_BYTES];
    let body = ReplyBody::Refused { refusal: Refusal::Misaligned, detail: 0x0102 };
    ReplyHeader { id: RequestId(0x0304), body, received_bytes: 0 }.encode(&mut bytes);
    let mut expected = [0; REPLY_BYTES];
    (expected[0], expected[1]) = (5, 6);
    (expected[8], expected[9]) = (4, 3);
    (expected[16], expected[17]) = (2, 1);
    assert_eq!(bytes, expected);
}

#[test]
fn payloads_and_replies_are_announced_by_the_request() {
    assert_eq!(put(Shape::contiguous(8, 100)).payload_bytes(), 100);
    assert_eq!(Request::Get { target: TARGET, shape: Shape::contiguous(8, 100) }.payload_bytes(), 0);
    assert_eq!(Request::Message { target: Rank(1), bytes: 7, rest: 2 }.payload_bytes(), 7);
    for &kind in RequestKind::ALL {
        let silent = [RequestKind::Put, RequestKind::Accumulate, RequestKind::Message, RequestKind::Leave];
        let silent = silent.contains(&kind);
        assert_eq!(kind.has_reply(), !silent, "{kind:?}");
    }
}

#[test]
fn every_field_that_a_kind_does_not_use_has_to_be_zero() {
    use HeaderField::{Element, Op, Operand, PayloadBytes};
    let get = Request::Get { target: TARGET, shape: Shape::contiguous(0, 8) };
    for (at, field) in [(2, Element), (3, Op), (8, PayloadBytes)] {
        let found = changed(&get, |header, _| header[at] = 1);
        assert_eq!(found, Err(Violation::UnusedField { kind: RequestKind::Get, field, found: 1 }));
    }
    let found = changed(&put(Shape::contiguous(0, 8)), |header, _| header[56] = 3);
    assert_eq!(found, Err(Violation::UnusedField { kind: RequestKind::Put, field: Operand, found: 3 }));
    for at in (1..64).filter(|at| !(4..8).contains(at) && !(16..24).contains(at)) {
        let found = changed(&Request::Quiet, |header, _| header[at] = 1);
        let refused = matches!(found, Err(Violation::UnusedField { kind: RequestKind::Quiet, .. }));
        assert!(refused, "byte {at}: {found:?}");
    }
}

#[test]
fn numbers_that_mean_nothing_are_refused_by_name() {
    let plain = put(Shape::contiguous(0, 8));
    assert_eq!(changed(&plain, |header, _| header[0] = 0), Err(Violation::UnknownRequest { found: 0 }));
    assert_eq!(changed(&plain, |header, _| header[0] = 13), Err(Violation::UnknownRequest { found: 13 }));
    assert_eq!(changed(&plain, |header, _| header[1] = 3), Err(Violation::UnknownShape { found: 3 }));
    assert_eq!(changed(&plain, |header, _| header[3] = 3), Err(Violation::UnknownSignalOp { found: 3 }));
    let sum = sum(ElementType::F64, Shape::contiguous(0, 8));
    assert_eq!(changed(&sum, |header, _| header[2] = 8), Err(Violation::UnknownElement { found: 8 }));
    assert_eq!(changed(&sum, |header, _| header[3] = 7), Err(Violation::UnknownAccumulateOp { found: 7 }));
    let (element, op) = (ElementType::F64, AccumulateOp::Xor);
    assert_eq!(changed(&sum, |header, _| header[3] = 5), Err(Violation::SenselessKernel { element, op }));
    let rmw = Rmw { op: RmwOp::Swap, width: RmwWidth::W64, operand: 1, compare: 0 };
    let rmw = Request::Rmw { target: TARGET, offset: 0, rmw };
    assert_eq!(changed(&rmw, |header, _| header[3] = 12), Err(Violation::UnknownRmwOp { found: 12 }));
    assert_eq!(changed(&rmw, |header, _| header[2] = 2), Err(Violation::UnknownRmwWidth { found: 2 }));
}

/// What a request's header is taken for if it says that its descriptor has so many bytes.
fn with_length(request: &Request, bytes: u32) -> Result<usize, Violation> {
    let (mut header, _) = encoded(request, 1);
    header[4..8].copy_from_slice(&bytes.to_le_bytes());
    RequestHeader::decode(&header).map(|header| header.descriptor_bytes())
}

#[test]
fn lengths_that_do_not_agree_are_refused_by_name() {
    let strided = put(Shape::Strided(Strided::new(100, 3, &[Level { count: 2, stride: 8 }]).unwrap()));
    let found = changed(&strided, |header, _| header[8] = 7);
    assert_eq!(found, Err(Violation::ShapeBytes { declared: 7, found: 6 }));
    let found = changed(&strided, |_, descriptor| descriptor[8] = 3);
    assert_eq!(found, Err(Violation::ShapeBytes { declared: 6, found: 9 }));
    let found = changed(&strided, |_, descriptor| descriptor[23] = 0x80);
    assert!(matches!(found, Err(Violation::Shape(ShapeError::BeforeStart { .. }))), "{found:?}");

    let vector = put(Shape::Vector(vec![Run { offset: 1, bytes: 2 }, Run { offset: 30, bytes: 4 }]));
    let found = changed(&vector, |_, descriptor| descriptor[..8].fill(0xff));
    assert_eq!(found, Err(Violation::RunOverflow { offset: u64::MAX, bytes: 2 }));
    let found = changed(&vector, |_, descriptor| {
        descriptor[..8].fill(0);
        descriptor[8..16].fill(0xff);
    });
    assert_eq!(found, Err(Violation::BytesOverflow));
    let found = changed(&vector, |header, _| header[48] = 1);
    assert!(matches!(found, Err(Violation::UnusedField { field: HeaderField::Offset, .. })), "{found:?}");

    let found = changed(&put(Shape::contiguous(1, 8)), |header, _| header[48..56].fill(0xff));
    assert_eq!(found, Err(Violation::RunOverflow { offset: u64::MAX, bytes: 8 }));
    let get = Request::Get { target: TARGET, shape: Shape::contiguous(1, 8) };
    let found = changed(&get, |header, _| header[56..64].fill(0xff));
    assert_eq!(found, Err(Violation::RunOverflow { offset: 1, bytes: u64::MAX }));
}

#[test]
fn elements_are_never_cut_in_two() {
    let element = ElementType::C64;
    let found = changed(&sum(element, Shape::contiguous(3, 32)), |header, _| header[8] = 24);
    assert_eq!(found, Err(Violation::BrokenElement { run_bytes: 24, element }));
    let two = sum(element, Shape::Vector(vec![Run { offset: 0, bytes: 16 }, Run { offset: 64, bytes: 16 }]));
    let found = changed(&two, |_, descriptor| (descriptor[24], descriptor[40]) = (8, 24));
    assert_eq!(found, Err(Violation::BrokenElement { run_bytes: 8, element }));
    let element = ElementType::F32;
    let found = changed(&sum(element, Shape::contiguous(0, 32)), |_, descriptor| descriptor[4] = 1);
    assert_eq!(found, Err(Violation::Scale { element }));
}

#[test]
fn a_descriptor_has_the_length_of_its_request_and_never_more_than_the_limit() {
    for (request, found) in [
        (put(Shape::contiguous(0, 8)), 8),
        (Request::Quiet, 1),
        (Request::Lock { target: TARGET, offset: 0 }, 16),
        (Request::Message { target: Rank(0), bytes: 3, rest: 0 }, 3),
        (put(Shape::Strided(Strided::new(0, 8, &[]).unwrap())), 7),
        (put(Shape::Strided(Strided::new(0, 8, &[]).unwrap())), 16),
        (put(Shape::Vector(Vec::new())), 8),
        (sum(ElementType::I32, Shape::contiguous(0, 8)), 15),
    ] {
        let kind = request.kind();
        assert_eq!(with_length(&request, found), Err(Violation::DescriptorBytes { kind, found }));
    }
    assert_eq!(with_length(&Request::Quiet, 4097), Err(Violation::DescriptorTooLong { found: 4097 }));
    assert_eq!(with_length(&Request::Quiet, u32::MAX), Err(Violation::DescriptorTooLong { found: u32::MAX }));
    let vector = put(Shape::Vector(Vec::new()));
    assert_eq!(with_length(&vector, 16 * 253), Ok(16 * 253));
    assert_eq!(with_length(&vector, 16 * 254), Err(Violation::TooManyRuns { found: 254 }));
    let strided = put(Shape::Strided(Strided::new(0, 8, &[]).unwrap()));
    assert_eq!(with_length(&strided, 8 + 16 * 8), Ok(136));
    let error = Violation::Shape(ShapeError::TooManyLevels { found: 9 });
    assert_eq!(with_length(&strided, 8 + 16 * 9), Err(error));
}

#[test]
fn a_message_over_the_limit_is_refused() {
    let (bytes, rest) = (MAIL_PIECE_BYTES_MAX, MESSAGE_BYTES_MAX - MAIL_PIECE_BYTES_MAX);
    let longest = Request::Message { target: Rank(0), bytes, rest };
    assert_eq!(changed(&longest, |_, _| ()), Ok(longest.clone()));
    let found = changed(&longest, |header, _| header[8] = 1);
    assert_eq!(found, Err(Violation::MessageTooLong { found: bytes + 1, rest }));
    let found = changed(&longest, |header, _| header[56] = 1);
    assert_eq!(found, Err(Violation::MessageTooLong { found: bytes, rest: rest + 1 }));
}

#[test]
#[should_panic(expected = "254 runs are too many")]
fn a_list_of_too_many_runs_is_not_encoded() {
    encoded(&put(Shape::Vector(vec![Run { offset: 0, bytes: 1 }; SEGMENTS_PER_FRAME_MAX + 1])), 1);
}

#[test]
#[should_panic(expected = "no whole number")]
fn a_broken_element_is_not_encoded() {
    encoded(&sum(ElementType::F64, Shape::contiguous(0, 12)), 1);
}

#[test]
fn replies_that_mean_nothing_are_refused_by_name() {
    let reply = |body, at: usize, value| {
        let mut bytes = [0; REPLY_BYTES];
        ReplyHeader { id: RequestId(1), body, received_bytes: 0 }.encode(&mut bytes);
        bytes[at] = value;
        ReplyHeader::decode(&bytes)
    };
    assert_eq!(reply(ReplyBody::Done, 0, 7), Err(Violation::UnknownReply { found: 7 }));
    assert_eq!(reply(ReplyBody::Done, 0, 0), Err(Violation::UnknownReply { found: 0 }));
    let refused = ReplyBody::Refused { refusal: Refusal::NotHeld, detail: 0 };
    assert_eq!(reply(refused, 1, 0), Err(Violation::UnknownRefusal { found: 0 }));
    let unknown = Refusal::ALL.len() as u8 + 1;
    assert_eq!(reply(refused, 1, unknown), Err(Violation::UnknownRefusal { found: unknown }));
    for at in (1..8).chain(16..24) {
        let found = reply(ReplyBody::Granted { inherited: true }, at, 2);
        assert!(matches!(found, Err(Violation::ReplySpare { kind: ReplyKind::Granted, .. })), "byte {at}: {found:?}");
    }
    for at in 1..8 {
        let found = reply(ReplyBody::Value(5), at, 1);
        assert!(matches!(found, Err(Violation::ReplySpare { kind: ReplyKind::Value, .. })), "byte {at}: {found:?}");
    }
}

proptest! {
    #[test]
    fn every_request_comes_back_as_it_went(
        request in request(),
        id in any::<u64>(),
        before in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let mut out = before.clone();
        request.encode(RequestId(id), &mut out);
        prop_assert_eq!(&out[..before.len()], &before[..]);
        let frame = &out[before.len()..];
        let header = RequestHeader::decode(frame[..HEADER_BYTES].try_into().unwrap()).unwrap();
        prop_assert_eq!(header.id(), RequestId(id));
        prop_assert_eq!(header.kind(), request.kind());
        prop_assert_eq!(header.payload_bytes(), request.payload_bytes());
        prop_assert_eq!(header.descriptor_bytes(), frame.len() - HEADER_BYTES);
        prop_assert_eq!(header.finish(&frame[HEADER_BYTES..]), Ok(request));
    }

    #[test]
    fn every_reply_comes_back_as_it_went(id in any::<u64>(), body in reply_body(), received_bytes in any::<u64>()) {
        let reply = ReplyHeader { id: RequestId(id), body, received_bytes };
        let mut bytes = [0xaa; REPLY_BYTES];
        reply.encode(&mut bytes);
        prop_assert_eq!(ReplyHeader::decode(&bytes), Ok(reply));
    }

    #[test]
    fn a_flipped_bit_is_another_sound_request_or_a_violation(
        request in request_over(shape().boxed()),
        seed in any::<u64>(),
    ) {
        let (header, mut descriptor) = encoded(&request, seed);
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = header;
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A sound request has one spelling only, so it has to be the one that came.
            if let Some(Ok(found)) = decoded(&flipped, &descriptor) {
                let id = u64::from_le_bytes(flipped[16..24].try_into().unwrap());
                prop_assert_eq!(encoded(&found, id), (flipped, descriptor.clone()));
            }
        }
        for bit in 0..descriptor.len() * 8 {
            descriptor[bit / 8] ^= 1 << (bit % 8);
            if let Some(Ok(found)) = decoded(&header, &descriptor) {
                prop_assert_eq!(encoded(&found, seed), (header, descriptor.clone()));
            }
            descriptor[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_flipped_bit_is_another_sound_reply_or_a_violation(id in any::<u64>(), body in reply_body()) {
        let mut bytes = [0; REPLY_BYTES];
        ReplyHeader { id: RequestId(id), body, received_bytes: 0 }.encode(&mut bytes);
        for bit in 0..REPLY_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = ReplyHeader::decode(&flipped) {
                let mut again = [0; REPLY_BYTES];
                found.encode(&mut again);
                prop_assert_eq!(again, flipped);
            }
        }
    }

    #[test]
    fn random_bytes_are_read_without_panic(
        header in prop::array::uniform32(any::<u8>()),
        rest in prop::array::uniform32(any::<u8>()),
        kind in 0_u8..11,
        small in any::<bool>(),
        descriptor in prop::collection::vec(any::<u8>(), DESCRIPTOR_BYTES_MAX),
    ) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..32].copy_from_slice(&header);
        bytes[32..].copy_from_slice(&rest);
        let _ = RequestHeader::decode(&bytes);
        // And near to what is sound, so that more than the first check is reached.
        bytes[0] = kind;
        bytes[1..4].iter_mut().for_each(|byte| *byte %= 3);
        bytes[6..8].fill(0);
        if small {
            bytes[5] %= 16;
            bytes[9..16].fill(0);
            bytes[2] = 0;
            bytes[56..64].fill(0);
        }
        if let Ok(header) = RequestHeader::decode(&bytes)
            && let Ok(request) = header.finish(&descriptor[..header.descriptor_bytes()])
        {
            prop_assert_eq!(encoded(&request, header.id().0).0, bytes);
        }
        let mut reply = header;
        let _ = ReplyHeader::decode(&reply);
        reply[0] %= 6;
        let _ = ReplyHeader::decode(&reply);
    }

    #[test]
    fn random_tables_are_read_without_panic(
        request in request_over(shape().boxed()),
        noise in prop::collection::vec(any::<u8>(), DESCRIPTOR_BYTES_MAX),
    ) {
        let (header, descriptor) = encoded(&request, 1);
        if let Some(Ok(found)) = decoded(&header, &noise[..descriptor.len()]) {
            prop_assert_eq!(encoded(&found, 1), (header, noise[..descriptor.len()].to_vec()));
        }
    }
}
