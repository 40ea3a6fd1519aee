//! Who is at the other end of a socket of this machine.

use std::os::fd::AsFd;

/// Whether the process at the other end of a Unix socket is of the same user as this one, as the kernel has noted it.
///
/// ```
/// let (ours, _theirs) = std::os::unix::net::UnixStream::pair()?;
/// assert!(longarm_netmod::is_of_own_user(&ours));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn is_of_own_user(socket: impl AsFd) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == own)
}
