//! The traits that every network implements.
//!
//! Three roles: a [`Netmod`] is one network, a [`Listener`] is where others reach us through it, a [`Link`] is the
//! byte stream to one peer. All calls but [`Netmod::connect`] return at once. Nothing here names a network: who
//! wants to know what one can do asks for its [`Capabilities`].

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};

use crate::beacon::Beacon;
use crate::direct::{DirectAccess, NoDeviceRmw, RemoteMemory};
use crate::interest::Interest;
use crate::link_error::LinkError;

/// An ordered, reliable stream of bytes to one peer. No call blocks. Dropping it closes it.
///
/// Bytes that were accepted before an orderly close reach the peer, if the closing side has read all that was sent
/// to it. Who drops a link with unread bytes may cut what the peer has not read yet.
pub trait Link: Send {
    /// Sends from the regions, in order, as if they were one. Returns how many bytes were accepted, which may be
    /// fewer than there are; 0 says that nothing fits now (or that the regions hold nothing), or that others are to have a turn first:
    /// then the descriptor announces room all the same. Who goes on sending offers
    /// what was not accepted first: a link may have taken a copy of it already.
    ///
    /// # Errors
    /// [`LinkError::Closed`] or [`LinkError::Reset`] if the peer is gone; bytes accepted earlier may or may not have
    /// reached it. An error is final: the link is of no more use.
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError>;

    /// Receives into the regions, in order, as if they were one. Returns how many bytes came; 0 says that nothing is
    /// there now (or that the regions have no room), or that others are to have a turn first, as for [`Link::send`].
    ///
    /// # Errors
    /// [`LinkError::Closed`] at the end of the stream, after all its bytes were returned. [`LinkError::Reset`] if the
    /// connection broke; bytes under way are lost. [`LinkError::Forged`] likewise, on an encrypted one. An error is final.
    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError>;

    /// The handshake is over and frames follow. A link that tunes itself to the way, which some bytes have gone by now, does it
    /// here.
    fn on_proven(&mut self) {}

    /// Whether [`Link::receive`] has something to give that no descriptor announces: bytes that the link has taken from the
    /// network already, because it opens records, shares a connection, or looked for them while it sent; or an error that it
    /// met there. Asked by who is about to sleep on the descriptor, and by who takes it that nothing more is there because fewer
    /// bytes came than there was room for: both receive until this is false. It tells nothing of what has not come into the
    /// link; that is what [`Link::arm`] is for.
    fn holds_bytes(&self) -> bool {
        false
    }

    /// Sees to it that the descriptor announces what comes from now on. Who wants to sleep calls it first, and looks once
    /// more instead of sleeping if it returns true: something is there already. Links whose descriptors announce everything by
    /// themselves have nothing to do; a link that was accepted has seen to it whenever it received nothing.
    fn arm(&mut self) -> bool {
        false
    }

    /// What reaches the peer's memory without the peer, on links that can. `None` also while it is not decided yet;
    /// [`Link::is_settled`] tells.
    fn direct(&mut self) -> Option<&mut dyn DirectAccess> {
        None
    }

    /// Whether it is decided what the link can do.
    fn is_settled(&self) -> bool {
        true
    }

    /// Whether nothing that it does touches what other links use as well: then several threads may drive several links at once
    /// without waiting for each other.
    fn stands_alone(&self) -> bool {
        false
    }

    /// The peer no longer listens to this link, or nobody cares whether it does: a drop need not wait for the delivery of what
    /// was sent last.
    fn abandon(&mut self) {}

    /// What to sleep on until the link can move bytes, or `None` where there is nothing to sleep on and the caller
    /// has to try again.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// What announces the same inside this process, without a descriptor, on links that have that: pollers prefer it
    /// ([`Poller::add_link`](crate::Poller::add_link)). It is raised while what was last asked for by [`Link::awaits`] is there.
    fn beacon(&self) -> Option<&Beacon> {
        None
    }

    /// What to watch the descriptor for in order to be told of what is `wanted`. A descriptor that stands for several others
    /// becomes readable for everything.
    fn awaits(&self, wanted: Interest) -> Interest {
        wanted
    }

    /// Who is at the other end, for messages to people. For `tcp` it is address:port.
    fn peer_name(&self) -> &str;
}

/// Where the peers of one netmod reach this process. Dropping it stops that; links already accepted live on.
pub trait Listener: Send {
    /// The next peer that has connected, or `None` if there is none now. Peers that gave up meanwhile are skipped.
    ///
    /// # Errors
    /// [`LinkError::System`], for example when the process has no descriptor left. The listener stays usable, and
    /// its descriptor stays readable: a loop that only sleeps on it should rest before the next try.
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError>;

    /// From now on hangs up on further callers while `max` links that were accepted here are open. By default does nothing.
    fn limit_links(&mut self, max: usize) {
        let _ = max;
    }

    /// Does what those need who were accepted before, and accepts nobody: for who has no room for more now. True where there can
    /// be such work, so that the descriptor is to be watched all the while. It may fall silent then although somebody waits.
    fn drive(&mut self) -> bool {
        false
    }

    /// Between this and [`Listener::uncork`] links that were accepted here may keep what is sent over them, in order to send it together:
    /// for who sends over many of them in one turn. Says nothing of what they receive.
    fn cork(&mut self) {}

    /// Sends what was kept, and keeps nothing any more.
    fn uncork(&mut self) {}

    /// What to sleep on until a peer connects, or `None` where there is nothing to sleep on.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// What a peer passes to [`Netmod::connect`] to reach this listener.
    fn address(&self) -> &str;
}

/// One network's way to move bytes between nodes.
pub trait Netmod: Send + Sync {
    /// A short name for messages and configuration, such as `tcp`.
    fn name(&self) -> &'static str;

    /// What this network can do beyond moving bytes.
    fn capabilities(&self) -> Capabilities;

    /// Where to say what peers may reach without the server, on networks that can do that.
    fn remote_memory(&self) -> Option<Arc<dyn RemoteMemory>> {
        None
    }

    /// Whether the read-modify-writes of a device can be used by this process, for its own words and for those of its peers.
    ///
    /// # Errors
    /// Why not.
    fn device_rmw(&self) -> Result<(), NoDeviceRmw> {
        Err(NoDeviceRmw::Network)
    }

    /// What it has counted so far, by names for people; empty where it counts nothing, or was not used.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What brings in bytes for the links that this process has made by [`Netmod::connect`], on networks that bundle them: who sleeps on those sleeps on its
    /// descriptor as well. A link that is driven turns it by itself.
    fn intake(&self) -> Option<Arc<dyn Intake>> {
        None
    }

    /// Opens a new place to be reached at, with an address of its own.
    ///
    /// # Errors
    /// [`LinkError::BadAddress`] if the configured interface cannot be one that peers connect to, else
    /// [`LinkError::System`].
    fn listen(&self) -> Result<Box<dyn Listener>, LinkError>;

    /// By which ways an address leads there, in the order in which to try them: a host may be in several networks, of which
    /// some may lead nowhere from here. At least one, each with a name for people.
    ///
    /// # Errors
    /// [`LinkError::BadAddress`] if the text is no address.
    fn ways(&self, address: &str) -> Result<Vec<String>, LinkError> {
        Ok(vec![address.to_owned()])
    }

    /// As [`Netmod::connect`], by one of the [`Netmod::ways`] of the address.
    ///
    /// # Errors
    /// As [`Netmod::connect`].
    fn connect_by(&self, address: &str, way: &str) -> Result<Box<dyn Link>, LinkError> {
        let _ = way;
        self.connect(address)
    }

    /// Begins to connect to a [`Listener::address`] of the same network by the first of its [`Netmod::ways`], and returns at once. The link may still be on
    /// its way: it takes and gives no bytes until it is there, its descriptor becomes writable then or when it failed,
    /// and the first send says why it failed.
    ///
    /// # Errors
    /// [`LinkError::BadAddress`] if the text is no address, else what is known at once; as the first send of the link:
    /// [`LinkError::Refused`] if nobody listens there, [`LinkError::TimedOut`] if the network knows of a time limit of
    /// its own.
    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError>;
}

/// What brings in bytes for many links of a process at once. Until somebody turns it their descriptors announce nothing of what it has.
pub trait Intake: Send + Sync {
    /// Readable while a turn would bring something in.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Brings in what is there, a bounded amount. Of the links for which something came the descriptors announce it then.
    fn turn(&self);
}

/// What a network can do beyond moving bytes. Callers choose by these and never by the network's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// It can read and write registered memory of the other node without that node's server.
    pub remote_memory: bool,
    /// Its links and listeners have descriptors to sleep on.
    pub descriptor_sleep: bool,
}
