//! Addresses of listeners, which may be several with commas between, and the order in which they are called.

use std::net::{IpAddr, SocketAddr};

use super::interface::{Interface, is_link_local, scoped};
use crate::link_error::LinkError;

/// Between two addresses of one listener.
const SEPARATOR: char = ',';
/// More than this no host has that means well.
const ADDRESSES_MAX: usize = 64;

/// What a listener at these addresses is called. The number of an interface means nothing to other hosts.
pub(super) fn spell(addresses: &[SocketAddr]) -> String {
    let bare = addresses.iter().map(|address| SocketAddr::new(address.ip(), address.port()).to_string());
    bare.collect::<Vec<_>>().join(&SEPARATOR.to_string())
}

/// One address, as [`spell`] or [`ways`] has written it.
pub(super) fn parse(address: &str) -> Result<SocketAddr, LinkError> {
    address.parse().map_err(|_| LinkError::BadAddress)
}

/// The addresses of a listener in the order in which to call them from here: first those in networks that this host has, each
/// kind in the order in which the listener has named them, best first.
///
/// A link-local IPv6 address may be behind any interface that has one, too.
pub(super) fn ways(address: &str, here: &[Interface]) -> Result<Vec<String>, LinkError> {
    let mut near = Vec::new();
    let mut far = Vec::new();
    for (number, address) in address.split(SEPARATOR).enumerate() {
        let remote = parse(address)?;
        if number == ADDRESSES_MAX {
            break;
        }
        match remote.ip() {
            IpAddr::V6(_) if is_link_local(remote.ip()) => {
                let scopes = here.iter().filter(|interface| interface.scope > 0).map(|interface| interface.scope);
                near.extend(scopes.map(|scope| scoped(remote.ip(), remote.port(), scope)));
            }
            ip if here.iter().any(|interface| interface.leads_to(ip)) => near.push(remote),
            _ => far.push(remote),
        }
    }
    near.append(&mut far);
    match near.is_empty() {
        // Link-local ones alone, and none of ours to call them from.
        true => Ok(vec![parse(address.split(SEPARATOR).next().unwrap_or_default())?.to_string()]),
        false => Ok(near.iter().map(ToString::to_string).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(networks: &[&str]) -> Vec<Interface> {
        networks.iter().map(|network| Interface { network: network.parse().unwrap(), scope: 0 }).collect()
    }

    #[test]
    fn networks_that_both_have_come_first_and_else_the_listeners_order_counts() {
        let address = "192.0.2.1:1,10.1.0.2:2,[2001:db8::2]:3,10.2.0.2:4";
        let ours = here(&["10.2.0.1/24", "2001:db8::1/64"]);
        let expected = ["[2001:db8::2]:3", "10.2.0.2:4", "192.0.2.1:1", "10.1.0.2:2"];
        assert_eq!(ways(address, &ours).unwrap(), expected);
        assert_eq!(ways(address, &[]).unwrap().join(","), address);
    }

    #[test]
    fn a_link_local_address_is_called_by_every_interface_that_has_one() {
        let scoped = |scope| Interface { network: "fe80::1/64".parse().unwrap(), scope };
        let ours = [scoped(2), scoped(5)];
        assert_eq!(ways("[fe80::2]:7", &ours).unwrap(), ["[fe80::2%2]:7", "[fe80::2%5]:7"]);
        for way in ways("[fe80::2]:7", &ours).unwrap() {
            assert!(parse(&way).is_ok(), "{way}");
        }
        assert_eq!(ways("[fe80::2]:7", &[]).unwrap(), ["[fe80::2]:7"], "what is called says why it fails");
    }

    #[test]
    fn the_number_of_an_interface_is_not_told_to_others() {
        let address: SocketAddr = "[fe80::1%3]:9".parse().unwrap();
        assert_eq!(spell(&[address, "10.0.0.1:1".parse().unwrap()]), "[fe80::1]:9,10.0.0.1:1");
    }

    #[test]
    fn what_is_no_list_of_addresses_is_refused() {
        for text in
            ["", ",", "10.0.0.1:1,", "10.0.0.1", "10.0.0.1:1;10.0.0.2:2", "localhost:1", "10.0.0.1:1, 10.0.0.2:2"]
        {
            assert_eq!(ways(text, &[]), Err(LinkError::BadAddress), "{text:?}");
        }
    }

    #[test]
    fn a_list_without_end_is_cut() {
        let long = vec!["10.0.0.1:1"; 1000].join(",");
        assert_eq!(ways(&long, &[]).unwrap().len(), ADDRESSES_MAX);
    }
}
