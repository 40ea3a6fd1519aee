//! Ranks that meet by whatever has started them: each puts a value, and gets those of all the others.
//!
//! ```sh
//! cargo build -p longarm-managers --example meet
//! mpiexec.hydra -n 4 target/debug/examples/meet
//! ```
//!
//! With `die RANK` behind it, that rank ends after the first barrier with exit status 5; with `abort RANK STATUS` it ends the job.

use std::error::Error;
use std::process::ExitCode;

use longarm_managers::{flux, kubernetes, pmi1, pmix, slurm};

/// What both kinds of process managers can do.
enum Manager {
    Pmi1(pmi1::Client),
    Pmix(pmix::Client),
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("meet: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    if let Some(step) = slurm::Step::from_environment(&variable)? {
        let (rank, node, hosts) = (step.rank, step.own_node(), step.hosts());
        println!("slurm: rank {rank} of {} on {node}, task {} there; {hosts:?}", step.size, step.local_id);
    }
    if let Some(task) = flux::Task::from_environment(&variable)? {
        println!("flux: {task:?}");
    }
    if let Some(pod) = kubernetes::Pod::from_environment(&variable)? {
        println!("kubernetes: {pod:?}");
    }
    if let Some(client) = pmi1::Client::connect(&variable)? {
        return meet(Manager::Pmi1(client));
    }
    if let Some(client) = pmix::Client::connect(&variable)? {
        return meet(Manager::Pmix(client));
    }
    println!("neither PMI-1 nor PMIx has started this process");
    Ok(())
}

fn meet(mut manager: Manager) -> Result<(), Box<dyn Error>> {
    let (rank, size) = manager.describe()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let value_of = |rank: u32| format!("value of rank {rank} ").repeat(40).into_bytes();
    manager.put(rank, &value_of(rank))?;
    manager.barrier()?;
    match arguments[..] {
        ["die", who] if who == rank.to_string() => std::process::exit(5),
        ["abort", who, status] if who == rank.to_string() => manager.abort(status.parse()?)?,
        _ => {}
    }
    let all = (0..size).map(|rank| Ok(manager.get(rank)? == value_of(rank)));
    let all = all.collect::<Result<Vec<bool>, Box<dyn Error>>>()?;
    println!("rank {rank}: {} of {size} values as they were put", all.iter().filter(|good| **good).count());
    manager.barrier()?;
    manager.finalize()?;
    if let Err(error) = pmi1::Client::connect(&variable) {
        println!("rank {rank}: again: {error}");
    }
    Ok(())
}

impl Manager {
    fn describe(&mut self) -> Result<(u32, u32), Box<dyn Error>> {
        match self {
            Manager::Pmi1(client) => {
                let (rank, size) = (client.rank(), client.size());
                let mapping = client.mapping()?;
                let nodes = mapping.as_deref().map(|mapping| pmi1::nodes_of_ranks(mapping, size)).transpose()?;
                let (store, maxes) = (client.store().to_owned(), client.maxes());
                let (universe, program) = (client.universe_size()?, client.program()?);
                println!(
                    "pmi-1: rank {rank} of {size}, store {store}, {maxes:?}, mapping {mapping:?} {nodes:?}, {universe:?} {program:?}"
                );
                Ok((rank, size))
            }
            Manager::Pmix(client) => {
                let (rank, size) = (client.rank(), client.size());
                let (version, job) = (client.version(), client.namespace());
                let (place, local) = (client.place(rank)?, client.local_size()?);
                println!("pmix: rank {rank} of {size}, job {job}, {version}, {place:?}, {local:?} here");
                Ok((rank, size))
            }
        }
    }

    fn put(&mut self, rank: u32, value: &[u8]) -> Result<(), Box<dyn Error>> {
        match self {
            Manager::Pmi1(client) => client.put(&format!("value-{rank}"), value)?,
            Manager::Pmix(client) => client.put("value", value)?,
        }
        Ok(())
    }

    fn barrier(&mut self) -> Result<(), Box<dyn Error>> {
        match self {
            Manager::Pmi1(client) => client.barrier()?,
            Manager::Pmix(client) => client.barrier()?,
        }
        Ok(())
    }

    fn get(&mut self, rank: u32) -> Result<Vec<u8>, Box<dyn Error>> {
        match self {
            Manager::Pmi1(client) => Ok(client.get(&format!("value-{rank}"))?),
            Manager::Pmix(client) => Ok(client.get(rank, "value")?),
        }
    }

    fn abort(&mut self, status: i32) -> Result<(), Box<dyn Error>> {
        match self {
            Manager::Pmi1(client) => client.abort(status)?,
            Manager::Pmix(client) => client.abort(status, "asked to")?,
        }
        Ok(())
    }

    fn finalize(self) -> Result<(), Box<dyn Error>> {
        match self {
            Manager::Pmi1(client) => client.finalize()?,
            Manager::Pmix(client) => client.finalize()?,
        }
        Ok(())
    }
}
