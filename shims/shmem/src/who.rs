//! Who takes part in a collective, as its call names them.

use std::ffi::{c_int, c_long};

use crate::job::Job;
use crate::teams::Team;

/// Who takes part.
#[derive(Clone, Copy)]
pub(crate) enum Who {
    /// A team, by handle.
    Team(usize),
    /// An active set: start, logarithm of the stride, size.
    Set((c_int, c_int, c_int)),
}

impl Who {
    /// An active set. Its work array is not used.
    pub(crate) fn set(set: (c_int, c_int, c_int), _sync: *mut c_long) -> Who {
        Who::Set(set)
    }

    /// The same with a second array.
    pub(crate) fn set_with_work<T>(set: (c_int, c_int, c_int), _work: *mut T, _sync: *mut c_long) -> Who {
        Who::Set(set)
    }

    /// The team; `None` for the invalid one.
    pub(crate) fn team(self, name: &'static str, job: &Job) -> Option<&'static Team> {
        match self {
            Who::Team(handle) => job.teams.get(name, handle),
            Who::Set(set) => Some(job.teams.of_set(name, (&job.process, &job.areas), set)),
        }
    }

    #[inline]
    pub(crate) fn is_set(self) -> bool {
        matches!(self, Who::Set(_))
    }
}
