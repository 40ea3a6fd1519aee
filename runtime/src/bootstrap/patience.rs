//! For how long a process waits until it has met its manager and, by it, the other ranks.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::config::Config;

/// `LONGARM_MEET_TIMEOUT_S`, counted once for all that is asked of a manager until the ranks have met.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    begun: Instant,
    given: Duration,
}

impl Patience {
    /// From now on.
    pub(super) fn of(config: &Config) -> Patience {
        Patience { begun: Instant::now(), given: Duration::from_secs(config.meet_timeout_s) }
    }

    /// As long once more, from now on.
    pub(super) fn anew(self) -> Patience {
        Patience { begun: Instant::now(), ..self }
    }

    pub(super) fn until(self) -> Instant {
        self.begun + self.given
    }

    /// How many it has been given.
    pub(super) fn seconds(self) -> u64 {
        self.given.as_secs()
    }

    fn left(self) -> Duration {
        self.until().saturating_duration_since(Instant::now())
    }

    /// What is left of them, and not 0, which stands for ever where others are told.
    pub(super) fn seconds_left(self) -> u16 {
        u16::try_from(self.left().as_millis().div_ceil(1000)).unwrap_or(u16::MAX).max(1)
    }

    /// What comes of a question that may never be answered, and cannot be taken back: nothing, where it is over before. Then the thread that
    /// asks goes on by itself.
    ///
    /// # Errors
    /// Where there is no thread for it.
    pub(super) fn ask<R: Send + 'static>(
        self,
        question: impl FnOnce() -> R + Send + 'static,
    ) -> Result<Option<R>, String> {
        let (sender, answer) = mpsc::sync_channel(1);
        let asking = move || {
            // Nobody may wait for it any more.
            let _ = sender.send(question());
        };
        let begun = std::thread::Builder::new().name("longarm-manager".into()).spawn(asking);
        begun
            .map_err(|error| format!("no thread can be started that would speak with the process manager: {error}"))?;
        Ok(answer.recv_timeout(self.left()).ok())
    }
}

#[cfg(test)]
impl Patience {
    pub(super) fn of_millis(millis: u64) -> Patience {
        Patience { begun: Instant::now(), given: Duration::from_millis(millis) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_counted_once_for_all_questions() {
        let patience = Patience::of_millis(20);
        let (sender, receiver) = mpsc::channel::<()>();
        assert!(patience.ask(move || receiver.recv()).unwrap().is_none());
        // It has used up what there was, so that nothing is left for another one.
        assert_eq!(patience.left(), Duration::ZERO);
        assert_eq!(patience.seconds_left(), 1, "0 would be for ever");
        assert!(!patience.anew().left().is_zero());
        drop(sender);
    }

    #[test]
    fn an_answer_that_comes_in_time_is_given() {
        assert_eq!(Patience::of_millis(3_600_000).ask(|| 7), Ok(Some(7)));
    }
}
