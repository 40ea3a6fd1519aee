//! Bytes for requests and for replies, as they come from a link. `reply_decode` is also the initiator against a peer
//! who answers what he likes.

use longarm_proto::*;

/// Takes the bytes for a connection's requests, one after the other, and checks that what is accepted is sound: it
/// has one spelling only, and its runs are what its shape says.
pub fn request_decode(data: &[u8]) {
    let mut rest = data;
    let mut responder = Responder::new();
    while let Some((header_bytes, behind)) = rest.split_first_chunk::<HEADER_BYTES>() {
        // In any place, so that the sequence is no wall for the fuzzer.
        if let Ok(header) = RequestHeader::decode(header_bytes)
            && let Some(descriptor) = behind.get(..header.descriptor_bytes())
            && let Ok(request) = header.finish(descriptor)
        {
            sound(&request, &header, &[&header_bytes[..], descriptor].concat());
        }
        let Ok(header) = responder.handle_header(header_bytes) else { return };
        let Some((descriptor, behind)) = behind.split_at_checked(header.descriptor_bytes()) else { return };
        let Ok(_) = responder.finish(&header, descriptor) else { return };
        let Some(behind) = usize::try_from(header.payload_bytes()).ok().and_then(|bytes| behind.get(bytes..)) else {
            return;
        };
        rest = behind;
    }
}

fn sound(request: &Request, header: &RequestHeader, frame: &[u8]) {
    assert_eq!(request.payload_bytes(), header.payload_bytes());
    assert_eq!(request.kind(), header.kind());
    let mut again = Vec::new();
    request.encode(header.id(), &mut again);
    assert_eq!(again, frame);
    if let Request::Put { shape, .. } | Request::Get { shape, .. } | Request::Accumulate { shape, .. } = request {
        walk(shape);
    }
}

/// Walks the first runs of a shape: none may be empty or end behind the shape.
fn walk(shape: &Shape) {
    let (bytes, end) = (shape.bytes(), shape.end());
    let mut cursor = Cursor::new(shape.clone());
    let mut ahead = Vec::new();
    cursor.upcoming(64, &mut ahead);
    for expected in &ahead {
        let run = cursor.peek().expect("as many runs as were seen from the start");
        assert_eq!(run, *expected);
        assert!(run.bytes > 0 && run.offset.checked_add(run.bytes).is_some_and(|run_end| run_end <= end));
        cursor.advance(run.bytes);
    }
    if ahead.len() < 64 {
        assert_eq!(cursor.remaining(), 0);
        assert_eq!(ahead.iter().map(|run| run.bytes).sum::<u64>(), bytes);
    }
    if let Shape::Strided(strided) = shape {
        let simple = strided.collapsed();
        assert_eq!((simple.bytes(), simple.start(), simple.end()), (bytes, strided.start(), end));
        for piece in strided.pieces(CHUNK_BYTES).take(64) {
            assert!(piece.start() >= strided.start() && piece.end() <= end);
            assert!(piece.bytes() <= CHUNK_BYTES.max(strided.run_bytes()));
        }
    }
}

/// Takes the bytes for replies to one request of each kind: each token comes back at most once.
pub fn reply_decode(data: &[u8]) {
    let target = WindowRef { rank: Rank(0), window: WindowId(0), generation: Generation(0), key: AccessKey(0) };
    let rmw = Rmw { op: RmwOp::Fetch, width: RmwWidth::W64, operand: 0, compare: 0 };
    let word = RmwWord { offset: 4, operand: 1 };
    let requests = [
        Request::Message { target: Rank(0), bytes: 1, rest: 0 },
        Request::Get { target, shape: Shape::contiguous(0, 8) },
        Request::Rmw { target, offset: 0, rmw },
        Request::Lock { target, offset: 0 },
        Request::TryLock { target, offset: 0 },
        Request::Unlock { target, offset: 0 },
        Request::Quiet,
        Request::Acknowledge { received_bytes: 0 },
        Request::RmwMany { target, op: RmwOp::FetchAdd, width: RmwWidth::W32, words: vec![word, word] },
    ];
    let mut initiator = Initiator::new();
    let mut out = Vec::new();
    for (token, request) in requests.iter().enumerate() {
        initiator.begin(request, request.has_reply().then_some(token), &mut out);
    }
    let mut waiting: Vec<usize> = (1..requests.len()).collect();
    for bytes in data.as_chunks::<REPLY_BYTES>().0 {
        if let Ok(reply) = ReplyHeader::decode(bytes) {
            let mut again = [0; REPLY_BYTES];
            reply.encode(&mut again);
            assert_eq!(&again, bytes);
        }
        let token = match initiator.handle_reply(bytes) {
            Ok(Reply::Done(token)) => token,
            Ok(Reply::Data { token, .. } | Reply::Value { token, .. } | Reply::Granted { token, .. }) => token,
            Ok(Reply::Refused { token: Some(token), .. }) => token,
            Ok(Reply::Refused { token: None, .. } | Reply::MailTaken { .. }) | Err(_) => continue,
        };
        let at = waiting.iter().position(|&waits| waits == token).expect("each token comes back once");
        waiting.remove(at);
    }
    assert_eq!(initiator.drain(), waiting);
}
