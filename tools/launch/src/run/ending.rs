//! How a job is brought to an end that does not come by itself.
//!
//! Pure: time is an argument. The order is always: let the ranks report, ask them to end (SIGTERM), kill them
//! (SIGKILL), give up on what cannot be killed. Where it begins depends on the cause. The first cause decides the exit
//! status. Where survivors go on, a failure decides nothing else.

use std::time::{Duration, Instant};

/// How long a rank has to react to SIGTERM after another one failed.
const TERMINATE_FAILED: Duration = Duration::from_millis(200);
/// How long a rank has to react to SIGTERM when its time is over.
const TERMINATE: Duration = Duration::from_secs(1);
/// The same, after the user interrupted the job.
const TERMINATE_INTERRUPTED: Duration = Duration::from_secs(2);
/// How long the system has to bury what was killed. A process can hang in a broken device or file system.
const KILL: Duration = Duration::from_secs(5);

/// Exit status of a job that ran out of time, as `timeout` has it.
const STATUS_TIMEOUT: i32 = 124;

/// Why a job has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A rank failed; the launcher exits with this status.
    Failure {
        /// Status of the rank.
        status: i32,
    },
    /// The launcher got a signal.
    Interrupted {
        /// Its number.
        signal: i32,
    },
    /// The time of `--timeout` is over.
    Timeout,
    /// Some ranks cannot be started; the launcher exits with this status.
    NotStarted {
        /// What is wrong says it.
        status: i32,
    },
}

/// What the caller has to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Wait,
    /// Send SIGTERM to all process groups.
    Terminate,
    /// Send SIGKILL to all process groups.
    Kill,
    /// Stop waiting for what is left.
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    Reporting,
    Terminated,
    Killed,
    GivenUp,
}

/// The state of a job's end.
#[derive(Debug)]
pub struct Ending {
    survivors_go_on: bool,
    report: Duration,
    phase: Phase,
    cause: Option<Cause>,
    deadline: Option<Instant>,
}

impl Ending {
    /// The job runs. `survivors_go_on`: a failure does not end it. `report`: how long ranks have to say that another one
    /// failed, and one that aborts to end by itself.
    pub fn new(survivors_go_on: bool, report: Duration) -> Ending {
        Ending { survivors_go_on, report, phase: Phase::Running, cause: None, deadline: None }
    }

    /// There is a reason to end the job. Says whether it is news, because the job was not ending yet, and what to do.
    pub fn handle_cause(&mut self, cause: Cause, now: Instant) -> (bool, Action) {
        let is_news = self.phase == Phase::Running;
        self.cause.get_or_insert(cause);
        let action = match (cause, self.phase) {
            (Cause::Failure { .. }, _) if self.survivors_go_on => Action::Wait,
            (Cause::Failure { .. }, Phase::Running) => self.enter(Phase::Reporting, now, self.report, Action::Wait),
            (Cause::Interrupted { .. }, Phase::Running | Phase::Reporting) => {
                self.enter(Phase::Terminated, now, TERMINATE_INTERRUPTED, Action::Terminate)
            }
            // The user is in a hurry.
            (Cause::Interrupted { .. }, Phase::Terminated) => self.enter(Phase::Killed, now, KILL, Action::Kill),
            (Cause::NotStarted { .. }, Phase::Running | Phase::Reporting) => {
                self.enter(Phase::Terminated, now, TERMINATE_FAILED, Action::Terminate)
            }
            (Cause::Timeout, Phase::Running) => self.enter(Phase::Terminated, now, TERMINATE, Action::Terminate),
            _ => Action::Wait,
        };
        (is_news, action)
    }

    /// How long ranks have to report.
    pub fn report(&self) -> Duration {
        self.report
    }

    /// Whether a failure leaves the others alive.
    pub fn survivors_go_on(&self) -> bool {
        self.survivors_go_on
    }

    /// When [`Ending::handle_deadline`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The deadline is over.
    pub fn handle_deadline(&mut self, now: Instant) -> Action {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Action::Wait;
        }
        match self.phase {
            Phase::Reporting => self.enter(Phase::Terminated, now, TERMINATE_FAILED, Action::Terminate),
            Phase::Terminated => self.enter(Phase::Killed, now, KILL, Action::Kill),
            Phase::Killed => {
                self.phase = Phase::GivenUp;
                self.deadline = None;
                Action::GiveUp
            }
            Phase::Running | Phase::GivenUp => unreachable!("these phases have no deadline"),
        }
    }

    /// Whether ends of ranks are our own doing from now on.
    pub fn is_forced(&self) -> bool {
        self.phase >= Phase::Terminated
    }

    /// Why the job has to end, if it does not end by itself.
    pub fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// What the launcher exits with.
    pub fn status(&self) -> i32 {
        match self.cause {
            None => 0,
            Some(Cause::Failure { status } | Cause::NotStarted { status }) => status,
            Some(Cause::Interrupted { signal }) => 128 + signal,
            Some(Cause::Timeout) => STATUS_TIMEOUT,
        }
    }

    fn enter(&mut self, phase: Phase, now: Instant, stay: Duration, action: Action) -> Action {
        assert!(phase > self.phase, "an ending only goes forward");
        self.phase = phase;
        self.deadline = Some(now + stay);
        action
    }
}

#[cfg(test)]
mod tests {
    use longarm::config::Config;

    use super::*;

    const REPORT: Duration = Duration::from_millis(700);

    /// Lets each deadline pass and collects what it leads to.
    fn actions_after(ending: &mut Ending) -> Vec<Action> {
        std::iter::from_fn(|| ending.deadline().map(|deadline| ending.handle_deadline(deadline))).collect()
    }

    #[test]
    fn a_failure_lets_the_others_report_then_terminates_then_kills() {
        let (mut ending, now) = (Ending::new(false, REPORT), Instant::now());
        assert_eq!(ending.handle_cause(Cause::Failure { status: 7 }, now), (true, Action::Wait));
        assert!(!ending.is_forced());
        assert_eq!(ending.deadline(), Some(now + REPORT));
        assert_eq!(ending.handle_deadline(now), Action::Wait, "too early");
        assert_eq!(actions_after(&mut ending), [Action::Terminate, Action::Kill, Action::GiveUp]);
        assert_eq!(ending.status(), 7);
    }

    #[test]
    fn a_second_after_a_failure_everything_has_been_killed() {
        let report = Duration::from_millis(Config::default().report_ms);
        let (mut ending, now) = (Ending::new(false, report), Instant::now());
        ending.handle_cause(Cause::Failure { status: 7 }, now);
        assert_eq!(ending.handle_deadline(now + report), Action::Terminate);
        assert_eq!(ending.handle_deadline(now + Duration::from_secs(1)), Action::Kill);
    }

    #[test]
    fn where_survivors_go_on_a_failure_gives_the_status_and_ends_nothing() {
        let (mut ending, now) = (Ending::new(true, REPORT), Instant::now());
        assert_eq!(ending.handle_cause(Cause::Failure { status: 7 }, now), (true, Action::Wait));
        assert_eq!(ending.handle_cause(Cause::Failure { status: 8 }, now), (true, Action::Wait));
        assert_eq!((ending.deadline(), ending.is_forced(), ending.status()), (None, false, 7));
        assert_eq!(ending.handle_cause(Cause::Timeout, now), (true, Action::Terminate));
        assert_eq!(ending.handle_cause(Cause::Failure { status: 143 }, now), (false, Action::Wait));
        assert_eq!(ending.status(), 7);
    }

    #[test]
    fn the_first_cause_decides_the_status() {
        let (mut ending, now) = (Ending::new(false, REPORT), Instant::now());
        ending.handle_cause(Cause::Failure { status: 7 }, now);
        assert_eq!(ending.handle_cause(Cause::Failure { status: 8 }, now), (false, Action::Wait));
        assert_eq!(ending.handle_cause(Cause::Timeout, now), (false, Action::Wait));
        assert_eq!(ending.handle_cause(Cause::Interrupted { signal: 2 }, now), (false, Action::Terminate));
        assert_eq!(ending.status(), 7);
    }

    #[test]
    fn a_second_interrupt_kills_and_a_third_changes_nothing() {
        let (mut ending, now) = (Ending::new(false, REPORT), Instant::now());
        let interrupt = Cause::Interrupted { signal: 2 };
        assert_eq!(ending.handle_cause(interrupt, now), (true, Action::Terminate));
        assert_eq!(ending.handle_cause(interrupt, now), (false, Action::Kill));
        assert_eq!(ending.handle_cause(interrupt, now), (false, Action::Wait));
        assert_eq!(actions_after(&mut ending), [Action::GiveUp]);
        assert_eq!(ending.status(), 130);
    }

    #[test]
    fn a_timeout_terminates_at_once() {
        let (mut ending, now) = (Ending::new(false, REPORT), Instant::now());
        assert_eq!(ending.handle_cause(Cause::Timeout, now), (true, Action::Terminate));
        assert_eq!(actions_after(&mut ending), [Action::Kill, Action::GiveUp]);
        assert_eq!(ending.status(), 124);
    }

    #[test]
    fn where_ranks_cannot_be_started_the_others_are_terminated_at_once_whoever_would_go_on() {
        for survivors_go_on in [false, true] {
            let (mut ending, now) = (Ending::new(survivors_go_on, REPORT), Instant::now());
            let cause = Cause::NotStarted { status: 127 };
            assert_eq!(ending.handle_cause(cause, now), (true, Action::Terminate));
            assert_eq!(ending.handle_cause(cause, now), (false, Action::Wait));
            assert_eq!(actions_after(&mut ending), [Action::Kill, Action::GiveUp]);
            assert_eq!(ending.status(), 127);
        }
    }

    #[test]
    fn a_job_that_ends_by_itself_has_status_zero_and_no_deadline() {
        let ending = Ending::new(false, REPORT);
        assert_eq!((ending.status(), ending.deadline()), (0, None));
    }
}
