//! A device that talks to itself, to find out what it does and how long it takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::sys::{Connection, Data, Domain, Post, Posting, Queue, QueueLimits, SharedReceive, Span};

/// Two queues of one device that are connected to each other.
///
/// What they read and write has to outlive them, so it is made before them.
pub(crate) struct Itself {
    here: Queue,
    there: Queue,
}

impl Itself {
    /// `myself` is the way to the device itself.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(domain: &Arc<Domain>, shared: &Arc<SharedReceive>, myself: &Connection) -> Result<Itself, Errno> {
        let limits = QueueLimits { depth: 16, inline_bytes: 0, gathers: 1, receives: 16 };
        let (here, there) = (Queue::new(domain, shared, limits)?, Queue::new(domain, shared, limits)?);
        here.connect(&Connection { peer_queue: there.number(), ..*myself })?;
        there.connect(&Connection { peer_queue: here.number(), ..*myself })?;
        Ok(Itself { here, there })
    }

    /// Posts a request, and waits for its end.
    ///
    /// # Safety
    /// What it names is registered, and stays so for as long as this lives, also if the request does not end.
    ///
    /// # Errors
    /// The device's. `TIMEDOUT`: it takes longer than this.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn request(&mut self, posting: Posting, span: Span, patience: Duration) -> Result<(), Errno> {
        let span = [span];
        let post = Post { id: 0, posting, data: Data::Spans(&span), signaled: true, fenced: false };
        // SAFETY: the queues go before what the request names, as the caller promises.
        unsafe { self.here.post(&[post]) }?;
        let began = Instant::now();
        let mut finished = Vec::new();
        while finished.is_empty() {
            self.here.completions.poll(&mut finished)?;
            if began.elapsed() > patience {
                return Err(Errno::TIMEDOUT);
            }
        }
        if finished.iter().all(|entry| entry.result.is_ok()) { Ok(()) } else { Err(Errno::IO) }
    }

    /// Ends the queue that has done the requests. Which packet it would have taken next, as the device says.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn end(&mut self) -> Result<u32, Errno> {
        self.there.end()
    }
}
