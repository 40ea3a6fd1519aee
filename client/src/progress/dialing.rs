//! How a client calls the servers of other nodes. Calls take time and may fail; nothing here waits.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_netmod::{Intake, Interest, Link};
use longarm_proto::{NodeId, Reception, Session};

use crate::error::LostHow;

/// Calls the servers of nodes.
pub trait Dial: Send + Sync {
    /// Begins a call that carries a session. Returns at once, also where the node's address is not known yet: who calls holds an
    /// endpoint, perhaps the server, and whoever would bring the address may need either.
    ///
    /// # Errors
    /// What no later call would change.
    fn start(&self, node: NodeId, session: Session) -> Result<Box<dyn Dialing>, LostHow>;

    /// Whether a device may reach the memory of other nodes without their servers. Of each node that shows once there is a connection.
    fn may_reach_memory(&self) -> bool {
        false
    }

    /// What has to be turned before descriptors of connections announce what comes: that of the network that is called, once it has one.
    fn intake(&self) -> Option<Arc<dyn Intake>> {
        None
    }
}

/// A call on its way.
pub trait Dialing: Send {
    /// Goes as far as is possible now.
    fn poll(&mut self) -> DialStep;

    /// What to sleep on until it can go further, if there is something: from the first time on the same one until the call ends, as it is
    /// duplicated once. The call is also polled by the clock: its attempts and deadlines wake nobody.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Before a sleep on [`Dialing::descriptor`]: arms it. Gives what to watch it for, and whether to poll the call again instead.
    fn prepare_sleep(&mut self) -> (Interest, bool) {
        (Interest::default(), false)
    }

    /// What it has met so far, for who gives it up while it is pending.
    fn so_far(&self) -> Option<String> {
        None
    }
}

/// What became of a call.
pub enum DialStep {
    /// Nothing yet.
    Pending,
    /// A connection, proven on both sides.
    Up {
        /// The connection.
        link: Box<dyn Link>,
        /// What the server makes of the session.
        reception: Reception,
    },
    /// No connection.
    Failed {
        /// Why.
        reason: String,
        /// Whether another call may succeed.
        may_pass: bool,
    },
}
