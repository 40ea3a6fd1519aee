//! On which processors the threads of a rank run.
//!
//! The system often puts ranks that wake each other on one processor, above all while they start. There they look in turn, and it takes
//! the system a tenth of a second to move one to a processor that is idle. So a rank that has looked in vain for a moment writes into
//! the node's segment where it is, and moves if another rank has written the same processor. It is bound only while it moves.

use longarm_shm::NodeSegment;
use longarm_shm::sync::{AtomicU32, Ordering};
use rustix::thread::CpuSet;

/// A rank looks where the others wait in one of so many of its waits: the first one, and each time that these have gone by. On a node of many
/// ranks that costs, and where other work is on all processors moving does not help.
const WAITS_PER_LOOK: u32 = 4;

/// Keeps the ranks of a node that wait on processors of their own.
pub(crate) struct Apart {
    /// Those of the job. Empty where no rank moves.
    processors: Vec<u32>,
    waits: AtomicU32,
}

impl Apart {
    /// `processors`: which the job may use on this machine, on which it has so many ranks. The calling thread is the one that mostly waits: if it
    /// is bound to one processor it stays there.
    pub(crate) fn new(segment: &NodeSegment, processors: &[u32], ranks_on_machine: u32) -> Apart {
        let is_free = rustix::thread::sched_getaffinity(None).is_ok_and(|own| own.count() > 1);
        let fit = segment.local_ranks() > 1 && ranks_on_machine as usize <= processors.len();
        Apart { processors: if fit && is_free { processors.to_vec() } else { Vec::new() }, waits: AtomicU32::new(0) }
    }

    /// For one wait of a rank.
    pub(crate) fn place<'a>(&'a self, segment: &'a NodeSegment, me: u32) -> Place<'a> {
        Place { apart: self, segment, me, is_noted: false }
    }

    /// One where no other rank waits: from this rank's own place on, so that several do not all choose the same one.
    fn unused(&self, me: u32, waits_on: impl Fn(u32) -> bool) -> Option<u32> {
        let choice = self.processors.iter().cycle().skip(me as usize).take(self.processors.len());
        choice.copied().find(|processor| !waits_on(*processor))
    }
}

/// Where a rank waits, as the others of its node see it until it does no more.
pub(crate) struct Place<'a> {
    apart: &'a Apart,
    segment: &'a NodeSegment,
    me: u32,
    is_noted: bool,
}

impl Place<'_> {
    /// The calling thread has looked for something in vain for a moment, and is about to let others have its processor.
    pub(crate) fn note(&mut self) {
        if self.is_noted || self.apart.processors.is_empty() {
            return;
        }
        self.is_noted = true;
        let here = rustix::thread::sched_getcpu() as u32;
        let mine = self.segment.counters(self.me);
        mine.note_waits_on(Some(here));
        // Relaxed: a count that nothing else depends on.
        if self.apart.waits.fetch_add(1, Ordering::Relaxed).is_multiple_of(WAITS_PER_LOOK)
            && let Some(target) = self.better_than(here)
        {
            // Before it is there, so that no other one chooses it meanwhile.
            mine.note_waits_on(Some(target));
            if !move_to(target) {
                mine.note_waits_on(Some(here));
            }
        }
    }

    /// Where this rank waits better than beside another one. The lowest of those that wait on one processor stays.
    fn better_than(&self, here: u32) -> Option<u32> {
        let waits_on = |local: u32, processor| self.segment.counters(local).waits_on() == Some(processor);
        if !(0..self.me).any(|local| waits_on(local, here)) {
            return None;
        }
        let others = || (0..self.segment.local_ranks()).filter(|local| *local != self.me);
        self.apart.unused(self.me, |processor| others().any(|local| waits_on(local, processor)))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.is_noted {
            self.segment.counters(self.me).note_waits_on(None);
        }
    }
}

/// Those processors that the calling thread is not bound to, if it is bound to one of them and there are others: it is about
/// to compute, and who takes its transfers in can do that elsewhere.
pub(crate) fn beside_this_thread(processors: &[u32]) -> Vec<u32> {
    let own = rustix::thread::sched_getaffinity(None).ok().filter(|own| own.count() == 1);
    let is_own = |processor: u32| {
        own.is_some_and(|own| (processor as usize) < CpuSet::MAX_CPU && own.is_set(processor as usize))
    };
    let others: Vec<u32> = processors.iter().copied().filter(|processor| !is_own(*processor)).collect();
    if others.is_empty() { processors.to_vec() } else { others }
}

/// Lets the calling thread, one of the runtime's own, run on these processors instead of those that its rank is bound to:
/// there it would have to wait for the application. It stays where it is if there are none.
pub fn use_processors(processors: &[u32]) {
    let mut set = CpuSet::new();
    // A set ends somewhere, and machines do not.
    let fitting = processors.iter().filter(|processor| (**processor as usize) < CpuSet::MAX_CPU);
    fitting.for_each(|processor| set.set(*processor as usize));
    if !processors.is_empty()
        && let Err(error) = rustix::thread::sched_setaffinity(None, &set)
    {
        let thread = std::thread::current();
        tracing::warn!(%error, "the thread {} stays where its rank is bound", thread.name().unwrap_or_default());
    }
}

/// Moves the calling thread to a processor by binding it there, and lets it run again where it might before. Gives whether it has moved: not if it is
/// bound to one processor, or may not run there.
fn move_to(processor: u32) -> bool {
    let Ok(own) = rustix::thread::sched_getaffinity(None) else { return false };
    let processor = processor as usize;
    if own.count() < 2 || processor >= CpuSet::MAX_CPU || !own.is_set(processor) {
        return false;
    }
    let mut there = CpuSet::new();
    there.set(processor);
    let moved = rustix::thread::sched_setaffinity(None, &there);
    if let Err(error) = moved.and_then(|()| rustix::thread::sched_setaffinity(None, &own)) {
        tracing::warn!(%error, "a thread was to move to processor {processor} for a moment");
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use longarm_proto::JobId;

    use super::*;

    #[test]
    fn a_thread_that_is_bound_to_one_processor_leaves_that_out() {
        let all = rustix::thread::sched_getaffinity(None).unwrap();
        let processors: Vec<u32> = (0..CpuSet::MAX_CPU as u32).filter(|number| all.is_set(*number as usize)).collect();
        let first = processors[0];
        let bound = std::thread::spawn(move || {
            use_processors(&[first]);
            (beside_this_thread(&[first, first + 1]), beside_this_thread(&[first]), beside_this_thread(&[]))
        });
        assert_eq!(bound.join().unwrap(), (vec![first + 1], vec![first], vec![]));
        if processors.len() > 1 {
            assert_eq!(beside_this_thread(&processors), processors);
        }
    }

    #[test]
    fn a_thread_that_has_moved_may_run_where_it_might_before() {
        let all = rustix::thread::sched_getaffinity(None).unwrap();
        let (allowed, forbidden): (Vec<u32>, Vec<u32>) =
            (0..CpuSet::MAX_CPU as u32).partition(|number| all.is_set(*number as usize));
        for processor in allowed.iter().chain(forbidden.first()).chain(&[u32::MAX]) {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert_eq!(move_to(*processor), allowed.len() > 1 && allowed.contains(processor));
                    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), all);
                });
            });
        }
    }

    fn segment() -> NodeSegment {
        NodeSegment::create(JobId(1), 3, 3).unwrap()
    }

    #[test]
    fn a_rank_moves_to_where_no_other_waits_and_the_lowest_stays() {
        let segment = segment();
        let apart = Apart { processors: vec![4, 5, 9], waits: AtomicU32::new(0) };
        let better = |me, here| apart.place(&segment, me).better_than(here);
        let waits_on = |local, processor| segment.counters(local).note_waits_on(processor);
        assert_eq!(better(1, 4), None, "nobody waits");
        waits_on(1, Some(4));
        assert_eq!((better(2, 4), better(0, 4), better(2, 5)), (Some(9), None, None));
        waits_on(0, Some(9));
        assert_eq!(better(2, 4), Some(5));
        waits_on(2, Some(5));
        waits_on(1, Some(9));
        assert_eq!((better(1, 9), better(2, 9)), (Some(4), Some(4)));
        waits_on(1, None);
        assert_eq!(better(2, 4), None, "it waits no more");
        let none_left = Apart { processors: vec![9], waits: AtomicU32::new(0) };
        assert_eq!(none_left.place(&segment, 1).better_than(9), None);
    }

    #[test]
    fn where_a_rank_waits_is_told_until_it_waits_no_more() {
        let segment = segment();
        let apart = Apart { processors: vec![0], waits: AtomicU32::new(0) };
        let mut place = apart.place(&segment, 1);
        assert_eq!(segment.counters(1).waits_on(), None);
        place.note();
        assert!(segment.counters(1).waits_on().is_some());
        drop(place);
        assert_eq!(segment.counters(1).waits_on(), None);
    }

    #[test]
    fn ranks_stay_where_they_have_no_processors_of_their_own() {
        let segment = segment();
        let free = rustix::thread::sched_getaffinity(None).unwrap().count() > 1;
        assert_eq!(Apart::new(&segment, &[4, 5, 9], 3).processors.is_empty(), !free);
        assert!(Apart::new(&segment, &[4, 5, 9], 4).processors.is_empty(), "other nodes of the machine have ranks too");
        let alone = NodeSegment::create(JobId(1), 3, 1).unwrap();
        assert!(Apart::new(&alone, &[4, 5, 9], 1).processors.is_empty());
        if free {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let own = rustix::thread::sched_getaffinity(None).unwrap();
                    let first = (0..CpuSet::MAX_CPU).find(|processor| own.is_set(*processor)).unwrap();
                    use_processors(&[first as u32]);
                    assert!(Apart::new(&segment, &[4, 5, 9], 3).processors.is_empty(), "it is bound");
                });
            });
        }
    }
}
