//! `longarm info`: the machine as longarm sees it, and every configuration variable.

use std::process::ExitCode;

use comfy_table::Cell;
use longarm::config::{Config, ConfigError, Entry};
use longarm::network::Rdma;
use longarm::topology::{Cache, Machine};
use longarm_control::spelling::{plain_table, trimmed};
use serde::Serialize;

use crate::cli::InfoArguments;
use crate::units;

/// A network that ranks of different nodes can talk over.
#[derive(Debug, Serialize)]
struct Network {
    name: &'static str,
    is_available: bool,
    remark: String,
}

fn networks(rdma: &Rdma, config: &Config) -> [Network; 2] {
    let usable = rdma.fault.is_none();
    let remark = rdma.fault.clone().unwrap_or_else(|| "RDMA devices, see below; LONGARM_NETMOD chooses".to_owned());
    [
        Network {
            name: "tcp",
            is_available: true,
            remark: format!(
                "any network; LONGARM_INTERFACE says where servers listen, between machines at {}",
                longarm::network::listens_at(config)
            ),
        },
        Network { name: "verbs", is_available: usable, remark },
    ]
}

/// Everything, for `--json`.
#[derive(Debug, Serialize)]
struct Info<'a> {
    version: &'static str,
    machine: &'a Machine,
    networks: [Network; 2],
    rdma: &'a Rdma,
    variables: &'a [Entry],
}

/// Prints it. A wrong variable is an error, but what is known of the machine is printed all the same.
pub fn info(arguments: &InfoArguments) -> ExitCode {
    let config = Config::from_environment();
    if arguments.launch {
        return launch(config, arguments.json);
    }
    let machine = Machine::probe();
    let entries = config.as_ref().map(Config::entries).unwrap_or_default();
    let built_in = Config::default();
    let known = config.as_ref().unwrap_or(&built_in);
    let rdma = longarm::network::rdma(known);
    let networks = networks(&rdma, known);
    if arguments.json {
        let info =
            Info { version: env!("CARGO_PKG_VERSION"), machine: &machine, networks, rdma: &rdma, variables: &entries };
        let text = serde_json::to_string_pretty(&info).expect("the description has only names as keys");
        print(&format!("{text}\n"));
    } else {
        print(&render(&machine, &rdma, &networks, &entries));
    }
    match config {
        Ok(config) => {
            for warning in config.warnings() {
                eprintln!("longarm: {warning}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("longarm: {error}");
            ExitCode::from(2)
        }
    }
}

/// How a program that is started here would find its others. That it would not is an error.
fn launch(config: Result<Config, ConfigError>, as_json: bool) -> ExitCode {
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            eprintln!("longarm: {error}");
            return ExitCode::from(2);
        }
    };
    let launch = longarm::bootstrap::launch(&config);
    let text = match as_json {
        true => serde_json::to_string_pretty(&launch).expect("the description has only names as keys"),
        false => launch.to_string(),
    };
    print(&format!("{text}\n"));
    if launch.taken.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A reader that has seen enough is no reason to panic.
fn print(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn render(machine: &Machine, rdma: &Rdma, networks: &[Network], entries: &[Entry]) -> String {
    let mut text = format!("longarm {}\n", env!("CARGO_PKG_VERSION"));
    for (title, rows) in [
        ("machine", processors(machine)),
        ("memory", memory(machine)),
        ("between ranks", between_ranks(machine, networks)),
    ] {
        text += &format!("\n{title}\n{}\n", two_columns(rows));
    }
    for device in &rdma.devices {
        let rows = device.lines.iter().map(|line| row("", line)).collect();
        text += &format!("\nRDMA device {}\n{}\n", device.name, two_columns(rows));
    }
    if !rdma.measured.is_empty() {
        text += &format!("\nRDMA costs, measured\n{}\n", two_columns(rdma.measured.clone()));
    }
    if !entries.is_empty() {
        text += &format!("\nthresholds and other configuration\n{}\n", variables(entries));
    }
    text
}

type Row = (String, String);

fn row(name: &str, value: impl ToString) -> Row {
    (name.to_owned(), value.to_string())
}

fn processors(machine: &Machine) -> Vec<Row> {
    let numbers = units::ranges(&machine.processor_numbers());
    let online = machine.processors_online.map(|online| format!(" of {online} online")).unwrap_or_default();
    let mut rows = vec![
        row("kernel", machine.kernel.as_deref().unwrap_or("unknown")),
        row("processor", machine.processor_model.as_deref().unwrap_or("unknown")),
        row("processors allowed", format!("{}{online} ({numbers})", machine.processors.len())),
        row(
            "cores, packages, memory nodes",
            format!(
                "{}, {}, {}",
                distinct(machine, |processor| Some((processor.package?, processor.core?))),
                distinct(machine, |processor| processor.package),
                distinct(machine, |processor| processor.memory_node),
            ),
        ),
    ];
    rows.extend(machine.caches.iter().map(cache));
    if machine.caches.is_empty() {
        rows.push(row("caches", "not described by the kernel"));
    }
    rows
}

fn cache(cache: &Cache) -> Row {
    let line = cache.line_bytes.map(|bytes| format!(", lines of {bytes} B")).unwrap_or_default();
    let cores = if cache.cores == 1 { "1 core".to_owned() } else { format!("{} cores", cache.cores) };
    let shared = units::ranges(&cache.processors);
    let value = format!("{}{line}, shared by {cores} (processors {shared})", units::bytes(cache.bytes));
    (format!("cache level {}, {}", cache.level, cache.kind), value)
}

fn memory(machine: &Machine) -> Vec<Row> {
    let huge = &machine.huge_pages;
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "not supported".to_owned());
    vec![
        row("memory", optional_bytes(machine.memory_total_bytes, "unknown")),
        row("memory available", optional_bytes(machine.memory_available_bytes, "unknown")),
        row("limit of the control group", optional_bytes(machine.memory_limit_bytes, "none")),
        row("limit of locked memory", optional_bytes(machine.locked_memory_bytes, "none")),
        row("overcommit", machine.overcommit.map_or("unknown".to_owned(), |mode| mode.to_string())),
        row("page", units::bytes(machine.page_bytes)),
        row("huge page", optional_bytes(huge.page_bytes, "not supported")),
        row("huge pages, ordinary memory", mode(&huge.transparent)),
        row("huge pages, shared memory", mode(&huge.shared)),
        row(
            "huge pages on request (LONGARM_HUGE_PAGES)",
            if huge.on_request {
                "yes"
            } else {
                "no: they need Linux 6.1, and a mode for shared memory that is not deny"
            },
        ),
        row(
            "huge pages put aside",
            match (huge.reserved, huge.reserved_free) {
                (Some(reserved), Some(free)) => format!("{reserved}, {free} of them free"),
                _ => "unknown".to_owned(),
            },
        ),
    ]
}

fn between_ranks(machine: &Machine, networks: &[Network]) -> Vec<Row> {
    let limit = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    let mut rows = vec![
        row("memory files (memfd)", if machine.memfd { "yes" } else { "no: longarm cannot share windows here" }),
        row("cross-memory attach", machine.cross_memory_attach),
        row(
            "limit of open files",
            format!("{} (can be raised to {})", limit(machine.descriptors), limit(machine.descriptors_max)),
        ),
    ];
    rows.extend(networks.iter().map(|network| {
        let value = if network.is_available { format!("yes: {}", network.remark) } else { network.remark.clone() };
        (format!("network {}", network.name), value)
    }));
    rows
}

fn two_columns(rows: Vec<Row>) -> String {
    let mut table = plain_table();
    for (name, value) in rows {
        table.add_row([Cell::new(name), Cell::new(value)]);
    }
    trimmed(&table)
}

fn variables(entries: &[Entry]) -> String {
    let mut table = plain_table();
    table.set_header(["variable", "value", "unit", "from", "meaning"]);
    for entry in entries {
        let origin = entry.origin.to_string();
        table.add_row([entry.name, entry.value.as_str(), entry.unit, origin.as_str(), entry.meaning]);
    }
    trimmed(&table)
}

fn optional_bytes(bytes: Option<u64>, otherwise: &str) -> String {
    bytes.map_or_else(|| otherwise.to_owned(), units::bytes)
}

/// How many different ones there are, "?" where the kernel does not say.
fn distinct<T: Ord>(machine: &Machine, of: impl Fn(&longarm::topology::Processor) -> Option<T>) -> String {
    let found: std::collections::BTreeSet<T> = machine.processors.iter().filter_map(of).collect();
    if found.is_empty() { "?".to_owned() } else { found.len().to_string() }
}
