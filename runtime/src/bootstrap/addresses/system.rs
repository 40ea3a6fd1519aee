//! What the system says of this machine's addresses.

use std::fs;
use std::net::IpAddr;

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::SockaddrStorage;

use super::Local;

/// Bridges that container and virtual machine programs make, where the system does not say what is on them.
const INNER_NAMES: [&str; 8] = ["docker", "br-", "virbr", "lxcbr", "lxdbr", "podman", "cni", "vmnet"];

/// All of them, in the system's order. None where it does not tell.
pub(super) fn locals() -> Vec<Local> {
    let Ok(found) = getifaddrs() else { return Vec::new() };
    let default = default_interfaces();
    let described = found.filter_map(|found| {
        let address = ip_of(found.address.as_ref()?)?;
        let prefix = found.netmask.as_ref().and_then(ip_of).and_then(|mask| ipnet::ip_mask_to_prefix(mask).ok());
        let network = prefix.and_then(|prefix| IpNet::new(address, prefix).ok()).unwrap_or(address.into());
        let name = found.interface_name;
        let index = if_nametoindex(name.as_str()).unwrap_or(0);
        let details = Details::of(&name, index);
        Some(Local {
            index,
            network,
            is_up: found.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING),
            is_loopback: found.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            is_inner: details.is_inner,
            is_default: default.contains(&name),
            speed_mbit: details.speed_mbit,
            name,
        })
    });
    described.collect()
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// What /sys says of an interface.
struct Details {
    is_inner: bool,
    speed_mbit: Option<u32>,
}

impl Details {
    fn of(name: &str, index: u32) -> Details {
        let read = |file: &str| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok();
        let number = |file: &str| read(file)?.trim().parse::<i64>().ok();
        // What is mounted there may be another network namespace's.
        if number("ifindex") != Some(i64::from(index)) {
            let is_inner = INNER_NAMES.iter().any(|known| name.starts_with(known));
            return Details { is_inner, speed_mbit: None };
        }
        let speed_mbit = number("speed").and_then(|speed| u32::try_from(speed).ok()).filter(|speed| *speed > 0);
        Details { is_inner: is_inner_bridge(name), speed_mbit }
    }
}

/// Whether it is a bridge with no device on it that is more than software.
fn is_inner_bridge(name: &str) -> bool {
    let Ok(ports) = fs::read_dir(format!("/sys/class/net/{name}/brif")) else { return false };
    let mut names = ports.flatten().map(|port| port.file_name().to_string_lossy().into_owned());
    !names.any(|port| fs::exists(format!("/sys/class/net/{port}/device")).unwrap_or(false) || is_tagged(&port))
}

/// Whether it is a VLAN or a bond, which stands for a device below it.
fn is_tagged(name: &str) -> bool {
    let below = fs::read_dir(format!("/sys/class/net/{name}")).into_iter().flatten().flatten();
    below.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("lower_"))
}

/// The interfaces by which the way to anywhere goes.
fn default_interfaces() -> Vec<String> {
    let table = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let v4 = table("/proc/self/net/route");
    // The interface, then where to: all of it zero.
    let v4 = v4.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (name, destination) = (fields.next()?, fields.next()?);
        let mask = fields.nth(5)?;
        (destination == "00000000" && mask == "00000000").then(|| name.to_owned())
    });
    let v6 = table("/proc/self/net/ipv6_route");
    let v6 = v6.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_default = fields.first()?.bytes().all(|digit| digit == b'0') && *fields.get(1)? == "00";
        let name = *fields.get(9)?;
        (is_default && name != "lo").then(|| name.to_owned())
    });
    v4.chain(v6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_loopback_with_its_network() {
        let locals = locals();
        let loopback = locals.iter().find(|local| local.is_loopback && local.network.addr().is_ipv4());
        let loopback = loopback.expect("the system names 127.0.0.1");
        assert_eq!(loopback.network.to_string(), "127.0.0.1/8");
        assert!(loopback.index > 0 && !loopback.is_inner && !loopback.is_default, "{loopback:?}");
    }
}
