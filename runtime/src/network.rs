//! The networks between nodes that this build and this machine have.

use serde::Serialize;

use crate::config::Config;

/// What is known of RDMA devices.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rdma {
    /// This build can use them.
    pub is_built_in: bool,
    /// Why they cannot be used, if that is so.
    pub fault: Option<String>,
    /// The devices, as they describe themselves.
    pub devices: Vec<Device>,
    /// What was measured on the device that a rank would use.
    pub measured: Vec<(String, String)>,
}

/// A device in words.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its ports and addresses, a line each.
    pub lines: Vec<String>,
}

/// Looks at the RDMA devices of this machine, and measures the one that a rank would use.
///
/// # Example
/// ```
/// let rdma = longarm::network::rdma(&longarm::config::Config::default());
/// assert!(rdma.is_built_in || rdma.devices.is_empty());
/// ```
pub fn rdma(config: &Config) -> Rdma {
    look(config)
}

/// At which addresses the servers of this machine would listen in a job on several machines, or why they could not; for people.
///
/// # Example
/// ```
/// let mut config = longarm::config::Config::default();
/// config.interface = std::net::IpAddr::from([127, 0, 0, 5]).into();
/// assert_eq!(longarm::network::listens_at(&config), "127.0.0.5");
/// ```
pub fn listens_at(config: &Config) -> String {
    crate::bootstrap::addresses::shown(&config.interface)
}

#[cfg(not(feature = "verbs"))]
fn look(_: &Config) -> Rdma {
    Rdma { fault: Some("not built in; build with `--features verbs`".to_owned()), ..Rdma::default() }
}

#[cfg(feature = "verbs")]
fn look(config: &Config) -> Rdma {
    let found = match longarm_verbs::devices() {
        Ok(found) => found,
        Err(error) => return Rdma { is_built_in: true, fault: Some(error.to_string()), ..Rdma::default() },
    };
    let devices = found.iter().map(describe).collect();
    let measured = longarm_verbs::measure(&crate::bootstrap::verbs_options(config, 0));
    let (fault, measured) = match measured {
        Ok(report) => (None, costs(&report)),
        Err(error) => (Some(error.to_string()), Vec::new()),
    };
    Rdma { is_built_in: true, fault, devices, measured }
}

#[cfg(feature = "verbs")]
fn describe(device: &longarm_verbs::DeviceReport) -> Device {
    let mut lines = Vec::new();
    if let Some(fault) = &device.fault {
        lines.push(format!("cannot be opened: {fault}"));
    } else {
        let speaks = if device.is_iwarp { "iWARP, " } else { "" };
        let atomics = if device.atomics { "atomics" } else { "no atomics" };
        let (depth, reads, registrations) = (device.queue_depth, device.reads_at_once, device.registrations);
        let paging = on_demand_paging(device.paging);
        lines.push(format!(
            "{speaks}{depth} requests a queue, {reads} reads at once, {registrations} registrations, {atomics}, {paging}"
        ));
    }
    for port in &device.ports {
        let state = if port.is_active { "active" } else { "down" };
        let lid = if port.lid > 0 { format!(", LID {}", port.lid) } else { String::new() };
        lines.push(format!("port {}: {state}, {}, MTU {} B{lid}", port.number, port.link, port.mtu_bytes));
        for gid in &port.gids {
            let chosen = if gid.is_chosen { ", chosen" } else { "" };
            lines.push(format!("port {}, GID {}: {} ({}{chosen})", port.number, gid.index, gid.address, gid.kind));
        }
    }
    Device { name: device.name.clone(), lines }
}

/// What the device says that it has.
#[cfg(feature = "verbs")]
fn on_demand_paging(paging: longarm_verbs::Paging) -> &'static str {
    match (paging.is_there, paging.writes, paging.reads) {
        (false, ..) => "no on-demand paging",
        (true, true, true) => "on-demand paging",
        (true, true, false) => "on-demand paging for writes only",
        (true, false, true) => "on-demand paging for reads only",
        (true, false, false) => "on-demand paging neither for writes nor for reads",
    }
}

#[cfg(feature = "verbs")]
fn costs(report: &longarm_verbs::CostReport) -> Vec<(String, String)> {
    let costs = &report.costs;
    let row = |name: &str, value: String| (name.to_owned(), value);
    vec![
        row("device", format!("{}, {}", report.device, report.why)),
        row("copying 1 KiB", format!("{} ns", costs.copy_kib_ns)),
        row("registering", format!("{} ns, and {} ns each KiB", costs.register_ns, costs.register_kib_ns)),
        row("a write of 8 B", format!("{} ns, and {} ns each KiB more", costs.request_ns, costs.wire_kib_ns)),
        row("inline up to", format!("{} B", report.inline_bytes)),
        row("copied below, registered from", format!("{} B", report.register_bytes_min)),
        row("on-demand paging", report.paging.to_string()),
        row("memory of the program", watched(report.watched).to_owned()),
    ]
}

#[cfg(feature = "verbs")]
fn watched(watched: longarm_verbs::Watched) -> &'static str {
    match watched {
        longarm_verbs::Watched::Device => "registered on demand",
        longarm_verbs::Watched::Off => "registered anew for each transfer, as it cannot be watched",
        _ => "kept in memory while it is registered, and watched by userfaultfd",
    }
}
