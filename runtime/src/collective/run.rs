//! How a collective is run: first all members agree on what is called.

use longarm_client::mail::Slot;
use longarm_shm::sync::Ordering;

use super::agree::Load;
use super::call::Call;
use super::signature::Signature;
use crate::error::CollectiveError;
use crate::group::Group;

impl Group {
    /// Runs one collective: all members agree on what is called, then `body` moves the data.
    pub(crate) fn run<R>(
        &self,
        signature: Signature,
        body: impl FnOnce(&mut Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        self.run_loaded(signature, &mut Load::Empty, body)
    }

    /// The same with a load that travels with the agreement.
    pub(crate) fn run_loaded<R>(
        &self,
        signature: Signature,
        load: &mut Load,
        body: impl FnOnce(&mut Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let mut call = self.call(signature);
        call.begin(load, false)?;
        body(&mut call)
    }

    /// The next call of this group.
    pub(crate) fn call(&self, signature: Signature) -> Call<'_> {
        // Those that were started before come first.
        self.shared.lane.finish_before();
        let sequence = self.shared.sequence.fetch_add(1, Ordering::Relaxed);
        Call::new(self, Slot { group: self.shared.id, sequence, step: 0 }, signature)
    }
}

impl Call<'_> {
    /// What every collective begins with: all members learn that all call the same, and get the load. All members of a group take
    /// the same way, whatever they call: a call that goes another way than the others' would not be seen to differ.
    /// `offered`: this member's staging buffer is laid out. Gives whether all members' are.
    pub(crate) fn begin(&mut self, load: &mut Load, offered: bool) -> Result<bool, CollectiveError> {
        let all_offered = self.come_together(load, offered)?;
        // Relaxed: the next collective of this group asks, which begins after this one, also if another thread makes it.
        self.group.shared.all_came.store(self.slot.sequence + 1, Ordering::Relaxed);
        Ok(all_offered)
    }

    /// Whether this member knows that all have come to the collective of this group before this one; to the first one there is none.
    pub(super) fn all_came_to_the_one_before(&self) -> bool {
        self.group.shared.all_came.load(Ordering::Relaxed) == self.slot.sequence
    }

    fn come_together(&mut self, load: &mut Load, offered: bool) -> Result<bool, CollectiveError> {
        if self.group.can_meet() {
            if let Some(all_offered) = self.meet(load, offered)? {
                return Ok(all_offered);
            }
        } else if self.group.nodes().are_shared() {
            return self.agree_by_node(load, offered);
        }
        self.agree(load, offered)
    }
}
