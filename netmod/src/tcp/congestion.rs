//! By which rule a connection finds out how much it may send at once.
//!
//! The rules that systems choose are made for long ways. BBR sends by a timer at the speed that it has estimated, and
//! takes the pauses between two transfers for the network's; CUBIC ends its quick start when answers come later by
//! microseconds, which on one machine or in one room is a processor that had other work. Reno knows neither: it sends what
//! the socket's buffers hold until something is lost.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::sockopt;

use crate::link_error::LinkError;

/// The rule for short ways: every system has it, and lets anybody choose it unless that was forbidden.
const SHORT: &str = "reno";

/// By which rule a connection finds out how much it may send at once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Congestion {
    /// As the system has it.
    #[default]
    Kernel,
    /// Reno on one machine, and where the round trip is short, in place of a rule that is made for long ways. Else as
    /// `Kernel`.
    ByRoundTrip,
    /// One that the system knows by this name and allows.
    Named(Arc<str>),
}

impl Congestion {
    /// Chooses for a socket that neither listens nor is connected: BBR that was in force once leaves its timer behind.
    /// Gives the name of the rule to go back to where the way turns out to be long.
    pub(super) fn choose(&self, socket: &OwnedFd) -> Result<Option<Arc<str>>, LinkError> {
        match self {
            Congestion::Kernel => Ok(None),
            Congestion::Named(name) => {
                sockopt::set_tcp_congestion(socket, name)?;
                Ok(None)
            }
            Congestion::ByRoundTrip => {
                let before = sockopt::tcp_congestion(socket).ok().filter(|name| is_for_long_ways(name));
                // If that is refused the system's goes on, which is only slower.
                Ok(before.filter(|_| sockopt::set_tcp_congestion(socket, SHORT).is_ok()).map(Arc::from))
            }
        }
    }
}

/// Others are chosen by who knows the network, as DCTCP is.
fn is_for_long_ways(name: &str) -> bool {
    name == "cubic" || name.starts_with("bbr")
}

/// The way is long: from here on the rule that the system has chosen is in force.
pub(super) fn go_back(socket: &OwnedFd, name: &str) {
    // It was in force before, so it is allowed; if not, Reno is what every network bears.
    let _ = sockopt::set_tcp_congestion(socket, name);
}
