//! At which of its addresses this machine listens: what LONGARM_INTERFACE asks for, or what other hosts can reach.
//!
//! The choice is made from a list of what the machine has, and knows nothing else of it.

mod system;

use std::cmp::Reverse;
use std::net::IpAddr;

use ipnet::IpNet;
use longarm_netmod::Interface;

use crate::config::{InterfaceChoice, InterfaceName};
use crate::error::InitError;

/// More addresses than this are not listened on unless they are asked for: each is a socket, and a part of what all hosts are told.
const AUTO_MAX: usize = 16;
/// What an interface is taken to do, in Mbit/s, that does not say it.
const SPEED_UNKNOWN: u32 = 1000;

/// An address of this machine, with what the system says of its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    /// What the interface is called.
    name: String,
    /// Its number.
    index: u32,
    /// The address, and its network.
    network: IpNet,
    is_up: bool,
    is_loopback: bool,
    /// It is a bridge that nothing but software of this machine is on.
    is_inner: bool,
    /// The way to anywhere goes by it.
    is_default: bool,
    speed_mbit: Option<u32>,
}

/// Where this process listens for other processes of a job: for its server, or as who brings them together.
///
/// # Errors
/// [`InitError::NoSuchInterface`], [`InitError::NoInterface`]: what was asked for, and what there is.
pub(crate) fn addresses_to_listen_on(
    choice: &InterfaceChoice,
    several_machines: bool,
) -> Result<Vec<Interface>, InitError> {
    if *choice == InterfaceChoice::Auto && !several_machines {
        return Ok(vec![Interface::from(IpAddr::from([127, 0, 0, 1]))]);
    }
    choose(choice, several_machines, &system::locals())
}

/// The addresses that would be taken in a job on several machines, with the names of their interfaces; for people.
pub(crate) fn shown(choice: &InterfaceChoice) -> String {
    let locals = system::locals();
    let one = |interface: &Interface| {
        let local = locals.iter().find(|local| local.interface() == *interface);
        local.map_or_else(|| interface.address().to_string(), |local| format!("{} {}", local.name, local.network))
    };
    match choose(choice, true, &locals) {
        Ok(chosen) => chosen.iter().map(one).collect::<Vec<_>>().join(", "),
        Err(error) => format!("none: {error}"),
    }
}

/// The interfaces of this machine and their addresses, for people.
pub(crate) fn described() -> String {
    describe(&system::locals())
}

/// As [`addresses_to_listen_on`], on a machine that has these.
fn choose(choice: &InterfaceChoice, several_machines: bool, locals: &[Local]) -> Result<Vec<Interface>, InitError> {
    let chosen = match choice {
        InterfaceChoice::Auto => automatic(locals),
        InterfaceChoice::Listed(names) => listed(names, several_machines, locals)?,
    };
    if chosen.is_empty() {
        return Err(InitError::NoInterface { there: describe(locals) });
    }
    Ok(chosen)
}

/// What other hosts can reach, the quickest first. Addresses that mean something on one wire only come into it where there are no
/// others, and bridges of this machine's own containers last.
fn automatic(locals: &[Local]) -> Vec<Interface> {
    let there = || locals.iter().filter(|local| local.is_up && !local.is_loopback && is_reachable(local.address()));
    let classes: [fn(&Local) -> bool; 3] = [
        |local| !local.is_inner && !is_link_local(local.address()),
        |local| !local.is_inner && is_link_local(local.address()),
        |local| local.is_inner && !is_link_local(local.address()),
    ];
    let mut best: Vec<&Local> = Vec::new();
    for class in classes {
        if best.is_empty() {
            best = there().filter(|local| class(local)).collect();
        }
    }
    let speed = |local: &Local| local.speed_mbit.unwrap_or(SPEED_UNKNOWN);
    best.sort_by_key(|local| (Reverse(speed(local)), !local.is_default, local.address().is_ipv6(), local.index));
    best.truncate(AUTO_MAX);
    best.into_iter().map(Local::interface).collect()
}

fn listed(names: &[InterfaceName], several_machines: bool, locals: &[Local]) -> Result<Vec<Interface>, InitError> {
    let mut chosen: Vec<Interface> = Vec::new();
    for name in names {
        let found = named(name, several_machines, locals);
        if found.is_empty() {
            return Err(InitError::NoSuchInterface { asked: name.to_string(), there: describe(locals) });
        }
        for interface in found {
            if !chosen.contains(&interface) {
                chosen.push(interface);
            }
        }
    }
    Ok(chosen)
}

/// The addresses that a name stands for.
fn named(name: &InterfaceName, several_machines: bool, locals: &[Local]) -> Vec<Interface> {
    let matching = |matches: &dyn Fn(&Local) -> bool| {
        let mut matching: Vec<&Local> = locals.iter().filter(|local| local.is_up && matches(local)).collect();
        // On one wire only, or on this machine only: not beside those that mean something everywhere.
        let less: [fn(&Local) -> bool; 2] = [|local| is_link_local(local.address()), |local| local.is_loopback];
        for is_less in less {
            if matching.iter().any(|local| !is_less(local)) {
                matching.retain(|local| !is_less(local));
            }
        }
        matching.retain(|local| !(several_machines && local.is_loopback));
        matching.sort_by_key(|local| local.address().is_ipv6());
        matching.into_iter().map(Local::interface).collect()
    };
    match name {
        InterfaceName::Name(name) => matching(&|local| local.name == *name),
        InterfaceName::Network(network) => matching(&|local| network.contains(&local.address())),
        InterfaceName::Address(address) => {
            let exact = locals.iter().find(|local| local.address() == *address).map(Local::interface);
            // All of 127.0.0.0/8 is there without being listed; and where nothing is listed the system knows better.
            let is_unlisted = locals.is_empty() || address.is_loopback();
            exact.or_else(|| is_unlisted.then(|| Interface::from(*address))).into_iter().collect()
        }
    }
}

impl Local {
    fn address(&self) -> IpAddr {
        self.network.addr()
    }

    fn interface(&self) -> Interface {
        let scope = if self.address().is_ipv6() && is_link_local(self.address()) { self.index } else { 0 };
        Interface { network: self.network, scope }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Whether somebody else could call it.
fn is_reachable(address: IpAddr) -> bool {
    !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

/// "eth0 10.1.0.1/24, eth1 fd00::1/64 (down)".
fn describe(locals: &[Local]) -> String {
    if locals.is_empty() {
        return "none that the system would name".to_owned();
    }
    let one = |local: &Local| {
        let down = if local.is_up { "" } else { " (down)" };
        format!("{} {}{down}", local.name, local.network)
    };
    locals.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
