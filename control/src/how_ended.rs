//! How a process has ended, as far as somebody knows.

use std::fmt;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowEnded {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// Its connection is gone: nobody here is its parent, who alone is told more.
    Gone,
}

impl HowEnded {
    /// The exit status that a shell would show.
    pub fn status(self) -> i32 {
        match self {
            HowEnded::Exited(status) => status,
            HowEnded::Killed(signal) => 128 + signal,
            HowEnded::Gone => 1,
        }
    }
}

impl fmt::Display for HowEnded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            HowEnded::Exited(status) => write!(formatter, "exited with status {status}"),
            HowEnded::Killed(signal) => match signal_name(signal) {
                Some(name) => write!(formatter, "was killed by signal {signal} ({name})"),
                None => write!(formatter, "was killed by signal {signal}"),
            },
            HowEnded::Gone => write!(formatter, "has ended"),
        }
    }
}

/// The name of a signal, for those that end programs.
pub fn signal_name(signal: i32) -> Option<&'static str> {
    const NAMES: [(i32, &str); 19] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (10, "SIGUSR1"),
        (11, "SIGSEGV"),
        (12, "SIGUSR2"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
        (30, "SIGPWR"),
        (31, "SIGSYS"),
    ];
    NAMES.iter().find(|(number, _)| *number == signal).map(|(_, name)| *name)
}
