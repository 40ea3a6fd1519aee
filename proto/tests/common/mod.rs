//! Random shapes and requests, and the plain lists of runs that shapes are compared with.
#![allow(dead_code)] // Every test file uses its own part.

use longarm_proto::*;
use proptest::prelude::*;

/// The runs of a shape as nested loops give them, level 0 in the innermost. Empty runs are left out.
pub fn naive_runs(shape: &Shape) -> Vec<Run> {
    match shape {
        Shape::Contiguous(run) => vec![*run],
        Shape::Strided(strided) => {
            let mut starts = vec![i128::from(strided.offset())];
            // The outermost level first, so that each next one varies faster.
            for level in strided.levels().iter().rev() {
                let step = |start: i128| {
                    (0..level.count).map(move |index| start + i128::from(index) * i128::from(level.stride))
                };
                starts = starts.into_iter().flat_map(step).collect();
            }
            let run = |start: i128| Run { offset: u64::try_from(start).unwrap(), bytes: strided.run_bytes() };
            starts.into_iter().map(run).collect()
        }
        Shape::Vector(runs) => runs.clone(),
    }
    .into_iter()
    .filter(|run| run.bytes > 0)
    .collect()
}

/// The offset of every byte, in packed order.
pub fn naive_bytes(shape: &Shape) -> Vec<u64> {
    naive_runs(shape).into_iter().flat_map(|run| run.offset..run.offset + run.bytes).collect()
}

/// Patches small enough to be listed, with gaps, overlaps, zero and negative strides, and none of some levels.
pub fn strided() -> impl Strategy<Value = Strided> {
    let level = (0_u64..5, -40_i64..40).prop_map(|(count, stride)| Level { count, stride });
    let tight = (0_u64..5, prop::sample::select(vec![0_i64, 1, 2, 4, 8, 16]))
        .prop_map(|(count, stride)| Level { count, stride });
    let levels = prop::collection::vec(prop_oneof![level, tight], 0..5);
    (500_u64..2000, 0_u64..9, levels)
        .prop_map(|(offset, run_bytes, levels)| Strided::new(offset, run_bytes, &levels).expect("small and far enough"))
}

/// Any shape that is small enough to be listed.
pub fn shape() -> impl Strategy<Value = Shape> {
    let run = (0_u64..1000, 0_u64..20).prop_map(|(offset, bytes)| Run { offset, bytes });
    prop_oneof![
        run.clone().prop_map(Shape::Contiguous),
        strided().prop_map(Shape::Strided),
        prop::collection::vec(run, 0..12).prop_map(Shape::Vector),
    ]
}

/// Shapes up to the ends of what a frame can say.
pub fn wild_shape() -> impl Strategy<Value = Shape> {
    let run =
        (any::<u64>(), any::<u64>()).prop_map(|(offset, bytes)| Run { offset, bytes: bytes.min(u64::MAX - offset) });
    let short =
        (any::<u64>(), 0_u64..1 << 50).prop_map(|(offset, bytes)| Run { offset, bytes: bytes.min(u64::MAX - offset) });
    let levels = prop::collection::vec((0_u64..1000, any::<i32>()), 0..=LEVELS_MAX);
    let wide =
        (any::<u64>(), 0_u64..1 << 20, levels).prop_filter_map("no such shape", |(offset, run_bytes, levels)| {
            let levels: Vec<Level> =
                levels.into_iter().map(|(count, stride)| Level { count, stride: stride.into() }).collect();
            Strided::new(offset, run_bytes, &levels).ok()
        });
    prop_oneof![
        run.prop_map(Shape::Contiguous),
        wide.prop_map(Shape::Strided),
        strided().prop_map(Shape::Strided),
        prop::collection::vec(short, 0..=SEGMENTS_PER_FRAME_MAX).prop_map(Shape::Vector),
    ]
}

/// The shape with every run made a whole number of elements.
pub fn whole_elements(shape: Shape, element_bytes: u64) -> Shape {
    let whole = |bytes: u64| bytes - bytes % element_bytes;
    match shape {
        Shape::Contiguous(run) => Shape::contiguous(run.offset, whole(run.bytes)),
        Shape::Strided(strided) => {
            let run_bytes = whole(strided.run_bytes());
            Shape::Strided(
                Strided::new(strided.offset(), run_bytes, strided.levels()).expect("a part of a sound shape"),
            )
        }
        Shape::Vector(runs) => {
            Shape::Vector(runs.into_iter().map(|run| Run { offset: run.offset, bytes: whole(run.bytes) }).collect())
        }
    }
}

pub fn target() -> impl Strategy<Value = WindowRef> {
    (any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(rank, window, generation, key)| WindowRef {
        rank: Rank(rank),
        window: WindowId(window),
        generation: Generation(generation),
        key: AccessKey(key),
    })
}

pub fn signal() -> impl Strategy<Value = Signal> {
    let op = prop::sample::select(SignalOp::ALL.to_vec());
    (target(), any::<u64>(), op, any::<u64>()).prop_map(|(target, offset, op, value)| Signal {
        window: target.window,
        generation: target.generation,
        key: target.key,
        offset,
        op,
        value,
    })
}

pub fn kernel() -> impl Strategy<Value = Kernel> {
    let element = prop::sample::select(ElementType::ALL.to_vec());
    let op = prop::sample::select(AccumulateOp::ALL.to_vec());
    (element, op).prop_filter_map("senseless", |(element, op)| Kernel::new(element, op))
}

pub fn rmw() -> impl Strategy<Value = Rmw> {
    let op = prop::sample::select(RmwOp::ALL.to_vec());
    let width = prop::sample::select(RmwWidth::ALL.to_vec());
    (op, width, any::<u64>(), any::<u64>()).prop_map(|(op, width, operand, compare)| Rmw {
        op,
        width,
        operand,
        compare: if op == RmwOp::CompareSwap { compare } else { 0 },
    })
}

/// Any request over the given shapes.
pub fn request_over<S: Strategy<Value = Shape> + Clone + 'static>(shapes: S) -> impl Strategy<Value = Request> {
    let put = (target(), shapes.clone(), prop::option::of(signal())).prop_map(|(target, shape, signal)| Request::Put {
        target,
        shape,
        signal,
    });
    let get = (target(), shapes.clone()).prop_map(|(target, shape)| Request::Get { target, shape });
    let accumulate = (target(), shapes, kernel(), any::<[u8; 16]>()).prop_map(|(target, shape, kernel, mut scale)| {
        let element_bytes = kernel.element().bytes();
        scale[element_bytes..].fill(0);
        let shape = whole_elements(shape, element_bytes as u64);
        Request::Accumulate { target, shape, kernel, scale: Scale(scale) }
    });
    let words = prop::collection::vec((any::<u64>(), any::<u64>()), 1..=SEGMENTS_PER_FRAME_MAX);
    let rmw_many = (target(), rmw(), words).prop_filter_map("nothing to compare with", |(target, rmw, words)| {
        let words = words.into_iter().map(|(offset, operand)| RmwWord { offset, operand }).collect();
        let Rmw { op, width, .. } = rmw;
        (op != RmwOp::CompareSwap).then_some(Request::RmwMany { target, op, width, words })
    });
    let rmw = (target(), any::<u64>(), rmw()).prop_map(|(target, offset, rmw)| Request::Rmw { target, offset, rmw });
    let lock = (target(), any::<u64>(), 0..3).prop_map(|(target, offset, which)| match which {
        0 => Request::Lock { target, offset },
        1 => Request::TryLock { target, offset },
        _ => Request::Unlock { target, offset },
    });
    let message = (any::<u32>(), 0..=MAIL_PIECE_BYTES_MAX, 0..=MESSAGE_BYTES_MAX - MAIL_PIECE_BYTES_MAX)
        .prop_map(|(rank, bytes, rest)| Request::Message { target: Rank(rank), bytes, rest });
    let acknowledge = any::<u64>().prop_map(|received_bytes| Request::Acknowledge { received_bytes });
    prop_oneof![
        put,
        get,
        accumulate,
        rmw,
        rmw_many,
        lock,
        Just(Request::Quiet),
        message,
        acknowledge,
        Just(Request::Leave)
    ]
}

pub fn request() -> impl Strategy<Value = Request> {
    request_over(wild_shape().boxed())
}

pub fn reply_body() -> impl Strategy<Value = ReplyBody> {
    prop_oneof![
        Just(ReplyBody::Done),
        any::<u64>().prop_map(|bytes| ReplyBody::Data { bytes }),
        any::<u64>().prop_map(ReplyBody::Value),
        any::<bool>().prop_map(|inherited| ReplyBody::Granted { inherited }),
        any::<u64>().prop_map(|bytes| ReplyBody::MailTaken { bytes }),
        (prop::sample::select(Refusal::ALL.to_vec()), any::<u64>())
            .prop_map(|(refusal, detail)| ReplyBody::Refused { refusal, detail }),
    ]
}

/// Header and descriptor of a request, apart.
pub fn encoded(request: &Request, id: u64) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let mut frame = Vec::new();
    request.encode(RequestId(id), &mut frame);
    let descriptor = frame.split_off(HEADER_BYTES);
    (frame.try_into().unwrap(), descriptor)
}

/// Reads header and descriptor. `None` when the header asks for a descriptor of another length.
pub fn decoded(header: &[u8; HEADER_BYTES], descriptor: &[u8]) -> Option<Result<Request, Violation>> {
    match RequestHeader::decode(header) {
        Ok(header) if header.descriptor_bytes() == descriptor.len() => Some(header.finish(descriptor)),
        Ok(_) => None,
        Err(violation) => Some(Err(violation)),
    }
}
