//! Small puts that nobody waits for, taken together: one request with many runs instead of a request for each.
//!
//! A header is eight times as long as the word that most of them carry, and the server spends more on a request than on
//! the word. Puts to places that follow each other become one run.

use longarm_memory::{Region, RegionMut};
use longarm_proto::{EAGER_BYTES_MAX, Request, Run, SEGMENTS_PER_FRAME_MAX, Shape, WindowRef};

/// Larger ones are requests of their own.
pub(super) const GATHERED_PUT_BYTES_MAX: u64 = 1 << 10;
/// About what a run takes in a request besides its bytes.
const RUN_WIRE_BYTES: usize = 16;

/// See the module. The vectors keep their room from one request to the next.
#[derive(Default)]
pub(super) struct Gathered {
    /// `None`: nothing was taken in.
    target: Option<WindowRef>,
    runs: Vec<Run>,
    payload: Vec<u8>,
}

impl Gathered {
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.target.is_some()
    }

    /// About how many bytes the request will have.
    pub(super) fn wire_bytes(&self) -> usize {
        self.payload.len() + self.runs.len() * RUN_WIRE_BYTES
    }

    /// Whether the put can go into the same request as those before it.
    #[inline]
    pub(super) fn fits(&self, target: &WindowRef, run: Run) -> bool {
        self.target.as_ref() == Some(target)
            && self.runs.len() < SEGMENTS_PER_FRAME_MAX
            && self.payload.len() as u64 + run.bytes <= EAGER_BYTES_MAX
    }

    /// Takes a put in that fits, or the first one.
    #[inline]
    pub(super) fn add(&mut self, target: &WindowRef, run: Run, bytes: Region<'_>) {
        self.target.get_or_insert(*target);
        match self.runs.last_mut() {
            Some(last) if last.end() == run.offset => last.bytes += run.bytes,
            _ => self.runs.push(run),
        }
        let at = self.payload.len();
        self.payload.resize(at + run.bytes as usize, 0);
        RegionMut::from_slice(&mut self.payload[at..]).copy_from(bytes);
    }

    /// The request of all that was taken in, and its payload. Both are to be given back.
    ///
    /// # Panics
    /// When nothing was taken in.
    pub(super) fn take(&mut self) -> (Request, Vec<u8>) {
        let target = self.target.take().expect("something was taken in");
        let runs = std::mem::take(&mut self.runs);
        let shape = if let [run] = runs[..] { Shape::Contiguous(run) } else { Shape::Vector(runs) };
        (Request::Put { target, shape, signal: None }, std::mem::take(&mut self.payload))
    }

    /// What [`Gathered::take`] gave, for the next request.
    pub(super) fn take_back(&mut self, request: Request, payload: Vec<u8>) {
        if let Request::Put { shape: Shape::Vector(runs), .. } = request {
            self.runs = runs;
        }
        self.payload = payload;
        self.runs.clear();
        self.payload.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longarm_proto::{AccessKey, Generation, Rank, WindowId};

    fn target(rank: u32) -> WindowRef {
        WindowRef { rank: Rank(rank), window: WindowId(1), generation: Generation(0), key: AccessKey(2) }
    }

    fn add(gathered: &mut Gathered, offset: u64, bytes: &[u8]) {
        let run = Run { offset, bytes: bytes.len() as u64 };
        gathered.add(&target(0), run, Region::from_slice(bytes));
    }

    #[test]
    fn puts_stay_in_their_order_and_those_side_by_side_become_one_run() {
        let mut gathered = Gathered::default();
        add(&mut gathered, 8, b"abcd");
        add(&mut gathered, 12, b"ef");
        add(&mut gathered, 8, b"xy");
        assert_eq!(gathered.wire_bytes(), 8 + 2 * RUN_WIRE_BYTES);
        let (request, payload) = gathered.take();
        let runs = vec![Run { offset: 8, bytes: 6 }, Run { offset: 8, bytes: 2 }];
        assert_eq!(request, Request::Put { target: target(0), shape: Shape::Vector(runs), signal: None });
        assert_eq!(payload, b"abcdefxy");
        gathered.take_back(request, payload);
        assert!(!gathered.is_some() && gathered.wire_bytes() == 0);
        add(&mut gathered, 3, b"z");
        let (request, payload) = gathered.take();
        assert_eq!(request, Request::Put { target: target(0), shape: Shape::contiguous(3, 1), signal: None });
        assert_eq!(payload, b"z");
    }

    #[test]
    fn a_request_is_about_one_part_and_no_longer_than_a_frame() {
        let mut gathered = Gathered::default();
        assert!(!gathered.fits(&target(0), Run { offset: 0, bytes: 1 }), "there is none yet");
        for number in 0..SEGMENTS_PER_FRAME_MAX as u64 {
            add(&mut gathered, 16 * number, b"12345678");
        }
        assert!(!gathered.fits(&target(0), Run { offset: 0, bytes: 8 }), "no more runs fit a frame");
        let (request, payload) = gathered.take();
        gathered.take_back(request, payload);
        add(&mut gathered, 0, &[1; EAGER_BYTES_MAX as usize - 1]);
        assert!(gathered.fits(&target(0), Run { offset: 0, bytes: 1 }));
        assert!(!gathered.fits(&target(0), Run { offset: 0, bytes: 2 }), "it is no longer copied as a whole");
        assert!(!gathered.fits(&target(1), Run { offset: 0, bytes: 1 }), "another rank's part");
    }
}
