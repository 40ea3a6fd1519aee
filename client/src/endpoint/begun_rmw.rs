//! An update of a word by a device, on its way.

use longarm_netmod::{DeviceRmw, DirectOutcome};
use longarm_proto::Refusal;

use crate::completion::{CompletionPart, Outcome, RmwFate};

/// One on its way.
pub(super) struct BegunRmw {
    pub(super) rmw: DeviceRmw,
    /// Ends with the old value.
    pub(super) part: CompletionPart,
}

impl BegunRmw {
    /// No outcome: no device reaches the word.
    pub(super) fn end(self, outcome: Option<DirectOutcome>, offset: u64) {
        let failed = match outcome {
            Some(DirectOutcome::Value(value)) => return self.part.done_with(value),
            Some(DirectOutcome::Refused) => Outcome::Refused { refusal: Refusal::FreedWindow, detail: offset },
            Some(DirectOutcome::Done | DirectOutcome::ValueLost) => Outcome::NoOldValue(RmwFate::Done),
            // One that was not done is begun anew, and does not come here.
            Some(DirectOutcome::NotDone | DirectOutcome::Unknown) => Outcome::NoOldValue(RmwFate::Unknown),
            None => Outcome::NoOldValue(RmwFate::NotBegun),
        };
        self.part.failed(failed);
    }
}
