//! Direct transfers over a connection: the stream does them while there is one.

use longarm_memory::RegionMut;
use longarm_netmod::{DeviceRmw, DirectAccess, DirectOutcome, DirectSource, InlinePoll, LinkError, Loan, Reach, Wish};
use longarm_proto::{Run, WindowRef};

use super::{Phase, VerbsLink};

impl DirectAccess for VerbsLink {
    fn reach(&mut self, target: &WindowRef, wish: Wish) -> Reach {
        match &mut self.phase {
            Phase::Verbs(stream) if self.ended.is_none() => stream.reach(target, wish),
            // It may come to that still.
            Phase::Agreeing(_) | Phase::Joining(_) if self.ended.is_none() => Reach::Full,
            _ => Reach::No,
        }
    }

    fn put(&mut self, ticket: u64, target: &WindowRef, run: Run, source: DirectSource<'_>) -> Result<(), LinkError> {
        let result = match (&mut self.phase, self.ended) {
            (_, Some(error)) => Err(error),
            (Phase::Verbs(stream), None) => stream.put(ticket, target, run, source),
            _ => unreachable!("nothing can be reached without a queue"),
        };
        self.end_with(result)
    }

    fn get(&mut self, ticket: u64, target: &WindowRef, run: Run, into: Box<dyn Loan>) -> Result<(), LinkError> {
        let result = match (&mut self.phase, self.ended) {
            (_, Some(error)) => Err(error),
            (Phase::Verbs(stream), None) => stream.get(ticket, target, run, into),
            _ => unreachable!("nothing can be reached without a queue"),
        };
        self.end_with(result)
    }

    fn rmw(&mut self, ticket: u64, target: &WindowRef, offset: u64, rmw: DeviceRmw) -> Result<(), LinkError> {
        let result = match (&mut self.phase, self.ended) {
            (_, Some(error)) => Err(error),
            (Phase::Verbs(stream), None) => stream.rmw(ticket, target, offset, rmw),
            _ => unreachable!("nothing can be reached without a queue"),
        };
        self.end_with(result)
    }

    fn get_polling(&mut self, target: &WindowRef, run: Run, into: RegionMut<'_>, looks: u32) -> InlinePoll {
        let Phase::Verbs(stream) = &mut self.phase else { return InlinePoll::NotBegun };
        if self.ended.is_some() {
            return InlinePoll::NotBegun;
        }
        let came = stream.get_polling(target, run, into, looks);
        if came == InlinePoll::Done {
            self.note_heard();
        }
        came
    }

    fn lend_polled(&mut self, ticket: u64, into: Box<dyn Loan>) {
        if let Phase::Verbs(stream) = &mut self.phase {
            stream.lend_polled(ticket, into);
        }
    }

    fn look_for_ends(&mut self, looks: u32) -> bool {
        match &mut self.phase {
            Phase::Verbs(stream) if self.ended.is_none() => stream.look_for_ends(looks),
            _ => false,
        }
    }

    fn begin_batch(&mut self) {
        if let Phase::Verbs(stream) = &mut self.phase {
            stream.begin_batch();
        }
    }

    fn post_batch(&mut self) -> Result<(), LinkError> {
        let result = match &mut self.phase {
            Phase::Verbs(stream) => stream.post_batch(),
            _ => Ok(()),
        };
        self.end_with(result)
    }

    fn is_all_posted(&self) -> bool {
        matches!(&self.phase, Phase::Verbs(stream) if stream.is_all_posted())
    }

    fn take_outcome(&mut self) -> Option<(u64, DirectOutcome)> {
        self.outcomes.pop_front().or_else(|| match &mut self.phase {
            Phase::Verbs(stream) => {
                let outcome = stream.take_outcome();
                if outcome.is_some() {
                    self.note_heard();
                }
                outcome
            }
            _ => None,
        })
    }
}
