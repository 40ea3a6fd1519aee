//! An address of this machine, as the netmod needs it.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use ipnet::IpNet;

/// An address of this machine that peers reach this process at, and the network that it lies in.
///
/// ```
/// use longarm_netmod::Interface;
///
/// let interface = Interface { network: "10.1.2.3/8".parse().unwrap(), scope: 0 };
/// assert_eq!(interface.address().to_string(), "10.1.2.3");
/// assert!(interface.leads_to("10.200.0.1".parse().unwrap()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The address, and how many of its bits all hosts of its network have.
    pub network: IpNet,
    /// The number of the interface, without which a link-local IPv6 address says nothing; 0 for all others.
    pub scope: u32,
}

impl Interface {
    /// The address.
    pub fn address(&self) -> IpAddr {
        self.network.addr()
    }

    /// Whether an address lies in the same network.
    pub fn leads_to(&self, address: IpAddr) -> bool {
        self.network.contains(&address)
    }

    /// The address with a port, as the system takes it.
    pub fn with_port(&self, port: u16) -> SocketAddr {
        scoped(self.address(), port, self.scope)
    }
}

impl From<IpAddr> for Interface {
    /// An address of whose network nothing is known.
    fn from(address: IpAddr) -> Interface {
        Interface { network: address.into(), scope: 0 }
    }
}

/// An address with a port, by the interface of this number.
pub(super) fn scoped(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match address {
        IpAddr::V4(_) => SocketAddr::new(address, port),
        IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, scope).into(),
    }
}

/// Whether an address means something on one wire only.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
