//! What there is, for people: devices, ports, addresses, and what was measured.

use std::net::{Ipv4Addr, Ipv6Addr};

use longarm_registration::Watched;
use serde::Serialize;

use crate::costs::Costs;
use crate::fabric::{Fabric, Gid, VerbsError, gids, open_port};
use crate::options::VerbsOptions;
use crate::paging::PagingChoice;
use crate::sys::{Context, Library, Paging, Port, device_names};

/// An RDMA device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceReport {
    /// Its name, as LONGARM_VERBS_DEVICE takes it.
    pub name: String,
    /// Why it cannot be opened, if it cannot.
    pub fault: Option<String>,
    /// It speaks iWARP, so that its connections are made by the connection manager; others speak InfiniBand or RoCE.
    pub is_iwarp: bool,
    /// Its ports.
    pub ports: Vec<PortReport>,
    /// Requests that one connection may have under way.
    pub queue_depth: u32,
    /// Reads that a peer may have under way.
    pub reads_at_once: u8,
    /// Registrations that it keeps.
    pub registrations: u32,
    /// It can do read-modify-writes. longarm has it do those of words that are allocated for it; all others are the processors'.
    pub atomics: bool,
    /// What it says of on-demand paging.
    pub paging: Paging,
}

/// A port of a device.
#[derive(Clone, Debug, Serialize)]
pub struct PortReport {
    /// Its number.
    pub number: u8,
    /// Packets go through.
    pub is_active: bool,
    /// `Ethernet` or `InfiniBand`.
    pub link: &'static str,
    /// The most bytes of a packet.
    pub mtu_bytes: u32,
    /// Its address in an InfiniBand network; 0 on Ethernet.
    pub lid: u16,
    /// Its addresses.
    pub gids: Vec<GidReport>,
}

/// One of a port's addresses.
#[derive(Clone, Debug, Serialize)]
pub struct GidReport {
    /// Its place in the port's table.
    pub index: u8,
    /// It in the usual form.
    pub address: String,
    /// Of which kind it is: `RoCE v2`, `IB/RoCE v1`.
    pub kind: String,
    /// It is the one that is used if nothing else is asked for.
    pub is_chosen: bool,
}

/// The RDMA devices of this machine.
///
/// # Errors
/// [`VerbsError::NoLibrary`] where there is no verbs library.
pub fn devices() -> Result<Vec<DeviceReport>, VerbsError> {
    let library = Library::get()?;
    let names = device_names(library);
    Ok(names.into_iter().map(|name| device(library, name)).collect())
}

fn device(library: &'static Library, name: String) -> DeviceReport {
    let opened = open_port(library, &name, None, None);
    let (context, _, _) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            return DeviceReport { name, fault: Some(error.to_string()), ..DeviceReport::default() };
        }
    };
    let limits = context.limits();
    let numbers = 1..=limits.ports.max(1);
    let ports = numbers.filter_map(|number| Some(port(&context, &context.port(number).ok()?))).collect();
    DeviceReport {
        name,
        fault: None,
        is_iwarp: context.is_iwarp(),
        ports,
        queue_depth: limits.queue_depth,
        reads_at_once: limits.reads_at_once,
        registrations: limits.registrations,
        atomics: limits.atomics,
        paging: context.paging(),
    }
}

fn port(context: &Context, port: &Port) -> PortReport {
    let chosen = crate::fabric::choose_gid(context, port);
    let gids = gids(context, port).into_iter().map(|gid| report_gid(gid, chosen)).collect();
    PortReport {
        number: port.number,
        is_active: port.is_active,
        link: if port.is_ethernet { "Ethernet" } else { "InfiniBand" },
        mtu_bytes: 128 << port.mtu_code,
        lid: port.lid,
        gids,
    }
}

fn report_gid(gid: Gid, chosen: u8) -> GidReport {
    let Gid { index, bytes, kind } = gid;
    let is_ipv4 = bytes[..10] == [0; 10] && bytes[10..12] == [0xff; 2];
    let last: [u8; 4] = bytes[12..].try_into().expect("four bytes");
    let address = if is_ipv4 { Ipv4Addr::from(last).to_string() } else { Ipv6Addr::from(bytes).to_string() };
    GidReport { index, address, kind, is_chosen: index == chosen }
}

/// What copying, registering and sending cost on a device, and what follows from it.
#[derive(Clone, Debug, Serialize)]
pub struct CostReport {
    /// The device, its port, and the place of the address in the port's table.
    pub device: String,
    /// Why that one.
    pub why: String,
    /// As measured.
    pub costs: Costs,
    /// From this size on memory is registered rather than copied.
    pub register_bytes_min: usize,
    /// Bytes that go with a request itself.
    pub inline_bytes: usize,
    /// Whether windows are registered on demand.
    pub paging: PagingChoice,
    /// How it is known that memory of the program goes: by the kernel's events, by the device itself, or not at all.
    pub watched: Watched,
}

/// Opens a device as a rank would, and tells what it measured.
///
/// # Errors
/// [`VerbsError`], which says why it cannot be used.
pub fn measure(options: &VerbsOptions) -> Result<CostReport, VerbsError> {
    let fabric = Fabric::open(options)?;
    let (queue, _promise) = fabric.queue().map_err(|errno| VerbsError::Device {
        device: options.device.clone(),
        what: "making a queue pair",
        errno,
    })?;
    let (costs, register_bytes_min) = (fabric.costs, fabric.register_bytes_min);
    let device = format!("{}:{}:{}", fabric.domain.device_name(), fabric.port.number, fabric.gid_index);
    let why = fabric.why_chosen.clone();
    let (paging, watched) = (fabric.paging, fabric.cache.statistics().watch);
    Ok(CostReport { device, why, costs, register_bytes_min, inline_bytes: queue.inline_bytes(), paging, watched })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_in_the_usual_form() {
        let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1];
        let gid = report_gid(Gid { index: 1, bytes, kind: "RoCE v2".into() }, 1);
        assert_eq!((gid.address.as_str(), gid.is_chosen), ("10.77.0.1", true));
        let mut bytes = [0; 16];
        (bytes[0], bytes[1], bytes[15]) = (0xfe, 0x80, 1);
        let gid = report_gid(Gid { index: 0, bytes, kind: String::new() }, 1);
        assert_eq!((gid.address.as_str(), gid.is_chosen), ("fe80::1", false));
    }
}
