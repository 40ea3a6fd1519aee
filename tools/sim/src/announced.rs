//! Descriptors that announce what simulated links bring, for what sleeps on them: routers.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_netmod::Waker;

use crate::network::{self, Event, Subject};

/// Something of this thread's run that a descriptor announces, until it is dropped.
pub struct Announced {
    subject: Subject,
    waker: Arc<Waker>,
}

impl Announced {
    /// Nothing is there yet.
    ///
    /// # Errors
    /// When there is no descriptor.
    pub fn new(subject: Subject) -> std::io::Result<Announced> {
        let waker = Arc::new(Waker::new()?);
        network::with_wakers(|wakers| wakers.insert(subject, Arc::clone(&waker)));
        Ok(Announced { subject, waker })
    }

    /// Readable while it is raised.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.waker.descriptor()
    }

    /// Nothing is there any more.
    pub fn lower(&self) {
        self.waker.clear();
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        // Where a thread ends, or takes part in another run by now, there is nobody left to hear of it.
        let is_mine = |waker: &Arc<Waker>| Arc::ptr_eq(waker, &self.waker);
        network::with_wakers(|wakers| {
            if wakers.get(&self.subject).is_some_and(is_mine) {
                wakers.remove(&self.subject);
            }
        });
    }
}

/// What an event brings is announced.
pub fn raise(event: Event) {
    let end_of = |pipe: u32, end: u32| Subject::End(pipe >> 1, end as usize);
    let subject = match event {
        Event::Arrive(pipe) | Event::Again(pipe) | Event::End(pipe) => end_of(pipe, 1 - (pipe & 1)),
        Event::Room(pipe) => end_of(pipe, pipe & 1),
        Event::Call(link) => network::with(|network| Subject::Calls(network.node_of(link), network.port_of(link))),
        _ => return,
    };
    network::with_wakers(|wakers| wakers.get(&subject).into_iter().for_each(|waker| waker.wake()));
}
