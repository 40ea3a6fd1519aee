//! Bugs on purpose, for the simulator to find: a search for bugs has to show that it would find them.
//!
//! They exist only where the tree is built with `--cfg longarm_mutations`, and then one of them is there at a time, on
//! the thread that has asked for it. Everywhere else [`mutation`] is false, which the compiler knows.

macro_rules! mutations {
    ($($(#[$doc:meta])* $variant:ident,)+) => {
        /// A bug on purpose.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutation {
            $($(#[$doc])* $variant,)+
        }

        impl Mutation {
            /// Every one.
            pub const ALL: &'static [Mutation] = &[$(Mutation::$variant),+];
        }
    };
}

mutations! {
    /// A server applies an accumulate twice.
    AccumulateTwice,
    /// A server leaves out the last element of a piece.
    AccumulateSkipsLast,
    /// A server now and then adds nothing, as where two add at once.
    AddIsLost,
    /// A compare-and-swap does not compare.
    SwapWithoutCompare,
    /// Quiet asks nobody.
    QuietEarly,
    /// A server leaves out a reply.
    ReplyDropped,
    /// A server gives a mutex to one who asks although another has it.
    MutexToTwo,
    /// Who asked for a mutex last gets it first.
    MutexUnfair,
    /// The heir of a mutex is not told that its holder died.
    HeirNotTold,
    /// A server takes requests for an earlier use of a window.
    GenerationNotChecked,
    /// A server takes requests with another key.
    KeyNotChecked,
    /// A signal comes before its bytes.
    SignalFirst,
    /// Who waits for a word is not woken.
    WindowNotNotified,
    /// Who waits for mail is not woken.
    MailNotNotified,
    /// A death is not taken down.
    DeathNotNoted,
    /// A session that goes on does so one byte too early.
    ResumeFromWrongByte,
    /// A session that goes on sends again what had arrived.
    ResumeFromStart,
    /// A server says that it has more than it has.
    AcknowledgedTooMuch,
    /// A freed window is kept.
    WindowKept,
    /// A rank that leaves does not end its sessions.
    SessionKept,
    /// A put of many runs leaves out the last byte of each.
    RunCutShort,
    /// Small puts, or gets, that go together are sent behind what is asked for after them.
    CoalescedLate,
    /// Small accumulates go together although they have different scales.
    CoalescedScale,
    /// Old values of updates that went together go to one another's.
    OldValuesMixed,
    /// A transfer with no server involved overtakes what the server still does.
    DirectOvertakes,
    /// A transfer with no server involved counts as done although its connection broke before.
    DirectForgotten,
    /// One that was done when its connection broke is done again.
    DirectRepeated,
    /// A server takes a call that is older than the session's connection.
    AttemptNotChecked,
    /// A server believes whoever calls.
    ProofNotChecked,
    /// A router leaves out the last byte of what it passes on at once.
    ChannelCutShort,
    /// A router does not tell one side of a channel that the other side has ended it.
    ChannelEndNotTold,
    /// A router does not say that it has room for more of a channel.
    ChannelCreditKept,
    /// A router leads channels to the server of its own node, wherever they are to lead.
    ChannelLeadsHome,
}

#[cfg(longarm_mutations)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug on this thread, or takes it out.
#[cfg(longarm_mutations)]
pub fn plant(mutation: Option<Mutation>) {
    PLANTED.with(|planted| planted.set(mutation));
}

/// Whether this bug is to be there.
#[inline]
#[must_use]
pub fn mutation(mutation: Mutation) -> bool {
    #[cfg(longarm_mutations)]
    let is_planted = PLANTED.with(|planted| planted.get() == Some(mutation));
    #[cfg(not(longarm_mutations))]
    let is_planted = {
        let _ = mutation;
        false
    };
    is_planted
}
