//! What a poller watches besides descriptors: beacons, and links by whichever of the two they have.

use std::io;

use crate::beacon::Beacon;
use crate::interest::Interest;
use crate::poller::Poller;
use crate::traits::Link;

impl Poller {
    /// As [`Poller::add`], for a beacon. One that another poller watches is watched by this one alone from now on; to change token or
    /// interest it is added again.
    ///
    /// # Errors
    /// The system's, when descriptors or memory run out.
    pub fn add_beacon(&self, beacon: &Beacon, token: u64, interest: Interest) -> io::Result<()> {
        beacon.watch(self.beacons()?, token, interest);
        Ok(())
    }

    /// Starts to watch what announces a link: its beacon, else its descriptor. One that has neither is not watched. `interest`: as
    /// [`Link::awaits`] has given it.
    ///
    /// # Errors
    /// As [`Poller::add`].
    pub fn add_link(&self, link: &dyn Link, token: u64, interest: Interest) -> io::Result<()> {
        if let Some(beacon) = link.beacon() {
            return self.add_beacon(beacon, token, interest);
        }
        link.descriptor().map_or(Ok(()), |descriptor| self.add(descriptor, token, interest))
    }

    /// As [`Poller::modify`], for what [`Poller::add_link`] watches.
    ///
    /// # Errors
    /// As [`Poller::modify`].
    pub fn modify_link(&self, link: &dyn Link, token: u64, interest: Interest) -> io::Result<()> {
        if let Some(beacon) = link.beacon() {
            return self.add_beacon(beacon, token, interest);
        }
        link.descriptor().map_or(Ok(()), |descriptor| self.modify(descriptor, token, interest))
    }

    /// As [`Poller::remove`], for what [`Poller::add_link`] watches.
    ///
    /// # Errors
    /// As [`Poller::remove`].
    pub fn remove_link(&self, link: &dyn Link) -> io::Result<()> {
        if let Some(beacon) = link.beacon() {
            beacon.unwatch();
            return Ok(());
        }
        link.descriptor().map_or(Ok(()), |descriptor| self.remove(descriptor))
    }
}
