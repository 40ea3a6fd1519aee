//! Which hosts a job runs on, how many ranks each gets, and what leads there.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use longarm_control::agent::{Branch, Starter};
use longarm_control::plan::{Plan, PlanError};
use longarm_managers::Host;
use longarm_managers::allocation::{self, AllocationError, Outside, System};
use longarm_managers::hostfile::{self, HostFileError};
use longarm_managers::hostlist::{self, HostListError};

use crate::cli::{RANKS_MAX, RunArguments};
use crate::units;

/// From so many hosts on agents start agents.
const TREE_HOSTS: usize = 32;

/// The machines of a job.
#[derive(Clone, Debug)]
pub struct Machines {
    hosts: Vec<Host>,
    /// Whether each is the machine that the launcher runs on.
    here: Vec<bool>,
    /// What leads to the others.
    starter: Starter,
}

/// Hosts that no job can run on.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// No hosts say how many ranks there are.
    #[error(
        "-n says how many ranks to start; it may be left out only where hosts say how many they take (--hosts a:4,b:4)"
    )]
    NoRanks,
    /// A list that is none.
    #[error("--hosts: {0}")]
    List(#[from] HostListError),
    /// A file that cannot be read.
    #[error("--hostfile {}: {source}", .path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that is none of hosts.
    #[error("--hostfile {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: HostFileError,
    },
    /// A batch system has given hosts, and nobody knows which.
    #[error("{0}; --hosts says where to run instead")]
    Allocation(#[from] AllocationError),
    /// Nothing leads to the hosts of a batch system.
    #[error(
        "longarm run does not know how to start programs on the other hosts of {system}: say it with --agent-command, or \
         start the program with {system}'s own command"
    )]
    NoWay {
        /// The system.
        system: System,
    },
    /// More than a host can look after.
    #[error("{host} would get {ranks} ranks, but a host takes {RANKS_MAX} at most")]
    TooMany {
        /// The host.
        host: String,
        /// How many ranks.
        ranks: u32,
    },
    /// More than the hosts take as they were cut.
    #[error("{ranks} ranks do not fit: {hosts} hosts of {nodes} nodes of {ppn} ranks take {room}")]
    NoRoom {
        /// Ranks asked for.
        ranks: u32,
        /// Hosts.
        hosts: usize,
        /// Nodes of a host.
        nodes: u32,
        /// Ranks of a node.
        ppn: u32,
        /// How many there is room for.
        room: u64,
    },
    /// An agent command that is none.
    #[error("--agent-command names no program")]
    NoCommand,
    /// The numbers contradict each other.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Machines {
    /// Whether a machine is this one.
    pub fn is_here(&self, machine: u32) -> bool {
        self.here[machine as usize]
    }

    /// How many need an agent.
    pub fn far(&self) -> u32 {
        self.here.iter().filter(|here| !**here).count() as u32
    }

    /// How many machines there are.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// The name of a machine, as the user has written it.
    pub fn name(&self, machine: u32) -> &str {
        &self.hosts[machine as usize].name
    }

    /// What leads to the other machines.
    pub fn starter(&self) -> &Starter {
        &self.starter
    }

    /// What to tell about hosts that get more ranks than they take, if there are any.
    pub fn oversubscribed(&self, plan: &Plan) -> Option<String> {
        let over = self.hosts.iter().zip(plan.ranks_on_machines());
        let over: Vec<String> = over
            .filter(|(host, ranks)| host.slots.is_some_and(|slots| *ranks > slots))
            .map(|(host, ranks)| format!("{} {ranks} (for {})", host.name, host.slots.unwrap_or_default()))
            .collect();
        (!over.is_empty()).then(|| format!("some hosts get more ranks than they take: {}", over.join(", ")))
    }

    /// The agents that the launcher starts itself, with those that these start.
    pub fn branches(&self, plan: &Plan) -> Vec<Branch> {
        let mut leaves: Vec<Branch> = (0..)
            .zip(&self.hosts)
            .map(|(host, named)| Branch { host, name: named.name.clone(), ranks: Vec::new(), below: Vec::new() })
            .collect();
        for (rank, node) in (0..).zip(&plan.node_of_rank) {
            leaves[plan.machine_of(rank) as usize].ranks.push((rank, *node));
        }
        leaves.retain(|branch| !self.is_here(branch.host));
        if leaves.len() < TREE_HOSTS {
            return leaves;
        }
        // The same number of agents at each of two levels.
        let wide = leaves.len().isqrt();
        let group = leaves.len().div_ceil(wide);
        leaves.chunks(group).map(|group| Branch { below: group[1..].to_vec(), ..group[0].clone() }).collect()
    }
}

/// Spreads the ranks over the machines that the arguments name. `cut`: how many nodes `LONGARM_NODES` asks for.
///
/// # Errors
/// When the hosts or the numbers are wrong.
pub fn plan(arguments: &RunArguments, cut: Option<u64>) -> Result<(Plan, Machines), HostsError> {
    let Some((mut hosts, system)) = named(arguments)? else {
        let ranks = arguments.ranks.ok_or(HostsError::NoRanks)?;
        let cut = cut.map(|nodes| nodes.min(ranks.into()) as u32);
        let plan = Plan::new(ranks, arguments.nodes.or(cut), arguments.ppn)?;
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let starter = starter(arguments, None)?;
        return Ok((plan, Machines { hosts: vec![Host { name, slots: None }], here: vec![true], starter }));
    };
    let nodes = arguments.nodes.or(cut.map(|nodes| nodes.min(RANKS_MAX.into()) as u32));
    let mut ranks_on = spread(arguments.ranks, &hosts, nodes, arguments.ppn)?;
    let mut used = ranks_on.iter();
    hosts.retain(|_| used.next().is_some_and(|ranks| *ranks > 0));
    ranks_on.retain(|ranks| *ranks > 0);
    if let Some((host, ranks)) = hosts.iter().zip(&ranks_on).find(|(_, ranks)| **ranks > RANKS_MAX) {
        return Err(HostsError::TooMany { host: host.name.clone(), ranks: *ranks });
    }
    let plan = Plan::on_machines(&ranks_on, nodes, arguments.ppn)?;
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let here: Vec<bool> = hosts.iter().map(|host| is_own_name(&host.name, &own)).collect();
    // Who stays on this machine needs no way to others.
    let starter = starter(arguments, system.filter(|_| here.contains(&false)))?;
    Ok((plan, Machines { hosts, here, starter }))
}

fn starter(arguments: &RunArguments, system: Option<System>) -> Result<Starter, HostsError> {
    let own = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
    let paths = match (&arguments.agent_path, own) {
        (Some(path), _) => vec![path.clone()],
        (None, Some(own)) => vec![own, "longarm".to_owned()],
        (None, None) => vec!["longarm".to_owned()],
    };
    let Some(command) = &arguments.agent_command else {
        if let Some(command) = system.map(own_way).transpose()?.flatten() {
            return Ok(Starter { command, paths, is_read_by_shell: false });
        }
        let options =
            "ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ConnectTimeout=20 -o ClearAllForwardings=yes -T -a -x";
        let command = options.split(' ').map(str::to_owned).collect();
        return Ok(Starter { command, paths, is_read_by_shell: true });
    };
    let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    if command.is_empty() {
        return Err(HostsError::NoCommand);
    }
    Ok(Starter { command, paths, is_read_by_shell: false })
}

/// What runs a program on a host, where a batch system has its own way.
fn own_way(system: System) -> Result<Option<Vec<String>>, HostsError> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    match system {
        System::Slurm => {
            let help = Command::new("srun").arg("--help").stdin(Stdio::null()).stderr(Stdio::null()).output();
            let help = help.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            Ok(Some(words(&srun(&help, std::env::var_os("SLINGSHOT_VNIS").is_some()))))
        }
        System::Lsf => Ok(Some(words("blaunch"))),
        System::GridEngine => Ok(Some(words("qrsh -inherit"))),
        // `pbs_tmrsh` has no way for the input of what it starts.
        System::Pbs | System::MpiOperator => Ok(None),
        system => Err(HostsError::NoWay { system }),
    }
}

/// A step of Slurm that has one task on one host, takes no resources from others, and passes bytes on as they come.
fn srun(help: &str, has_slingshot: bool) -> String {
    // What the allocation says of all of its hosts would hold for this step.
    let unset = ["NNODES", "NODELIST", "TASKS_PER_NODE", "NTASKS", "NPROCS", "NTASKS_PER_NODE", "DISTRIBUTION"];
    let unset = unset.map(|name| format!("-u SLURM_{name}")).join(" ");
    let mut command = format!(
        "env {unset} srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist={{}} --kill-on-bad-exit --cpu-bind=none \
         --unbuffered --quiet"
    );
    for option in ["--overlap", "--external-launcher"] {
        if help.contains(option) {
            command.extend([" ", option]);
        }
    }
    if !has_slingshot {
        command.push_str(" --mpi=none");
    }
    command
}

/// Hosts, and who has given them, if it was a batch system.
type Named = (Vec<Host>, Option<System>);

/// The hosts that the arguments name, or else a batch system, each once.
fn named(arguments: &RunArguments) -> Result<Option<Named>, HostsError> {
    match (&arguments.hosts, &arguments.hostfile) {
        (Some(list), _) => Ok(Some((hostlist::parse(list)?, None))),
        (None, Some(path)) => {
            let path = PathBuf::from(path);
            match std::fs::read_to_string(&path) {
                Err(source) => Err(HostsError::Unread { path, source }),
                Ok(text) => match hostfile::parse(&text) {
                    Ok(hosts) => Ok(Some((hosts, None))),
                    Err(source) => Err(HostsError::File { path, source }),
                },
            }
        }
        (None, None) => {
            let found = allocation::find(&|name| std::env::var(name).ok(), &ThisMachine)?;
            Ok(found.map(|found| (found.hosts, Some(found.system))))
        }
    }
}

/// The files and programs of this machine.
struct ThisMachine;

impl Outside for ThisMachine {
    fn read(&self, file: &str) -> io::Result<String> {
        std::fs::read_to_string(file)
    }

    fn run(&self, command: &[&str]) -> io::Result<String> {
        let output = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(io::Error::other(format!("{}: {said}", output.status)));
        }
        String::from_utf8(output.stdout).map_err(io::Error::other)
    }
}

/// Whether a name is that of the machine that calls itself `own`.
fn is_own_name(name: &str, own: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let is_short = |name: &str| !name.contains('.');
    matches!(name, "localhost" | "127.0.0.1" | "::1")
        || name == own
        || (!own.is_empty() && (is_short(name) || is_short(own)) && short(name) == short(own))
}

/// How many ranks each host gets: blocks that fill the hosts in turn, and begin anew where that is not enough.
fn spread(ranks: Option<u32>, hosts: &[Host], nodes: Option<u32>, ppn: Option<u32>) -> Result<Vec<u32>, HostsError> {
    let no_slots = hosts.iter().all(|host| host.slots.is_none());
    if let Some(ppn) = ppn {
        let nodes = nodes.unwrap_or(1);
        let room = u64::from(ppn) * u64::from(nodes);
        let all = room * hosts.len() as u64;
        let ranks = match ranks {
            Some(ranks) if u64::from(ranks) <= all => ranks,
            Some(ranks) => return Err(HostsError::NoRoom { ranks, hosts: hosts.len(), nodes, ppn, room: all }),
            None => u32::try_from(all).unwrap_or(u32::MAX),
        };
        return Ok(filled(ranks, &vec![u32::try_from(room).unwrap_or(u32::MAX); hosts.len()]));
    }
    if no_slots {
        let ranks = ranks.unwrap_or(hosts.len() as u32);
        let (each, larger) = (ranks / hosts.len() as u32, ranks % hosts.len() as u32);
        return Ok((0..hosts.len() as u32).map(|host| each + u32::from(host < larger)).collect());
    }
    let slots: Vec<u32> = hosts.iter().map(|host| host.slots.unwrap_or(1)).collect();
    let all = slots.iter().fold(0_u32, |sum, slots| sum.saturating_add(*slots));
    Ok(filled(ranks.unwrap_or(all), &slots))
}

/// Fills each in turn, as often as it takes.
fn filled(ranks: u32, slots: &[u32]) -> Vec<u32> {
    let all: u64 = slots.iter().map(|slots| u64::from(*slots)).sum();
    let rounds = u64::from(ranks) / all;
    let mut rest = u64::from(ranks) % all;
    let filled = slots.iter().map(|slots| {
        let more = rest.min(u64::from(*slots));
        rest -= more;
        u32::try_from(rounds * u64::from(*slots) + more).unwrap_or(u32::MAX)
    });
    filled.collect()
}

/// "hosts a, b": for messages.
pub fn told(names: &[&str]) -> String {
    format!("{} {}", if names.len() == 1 { "host" } else { "hosts" }, names.join(", "))
}

/// "host b (ranks 4-7)".
pub fn told_with_ranks(name: &str, ranks: &[u32]) -> String {
    if ranks.is_empty() { format!("host {name}") } else { format!("host {name} ({})", units::ranks(ranks)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: Option<u32>) -> Host {
        Host { name: name.to_owned(), slots }
    }

    #[test]
    fn a_step_of_slurm_is_asked_only_for_what_this_slurm_knows() {
        let old = srun("--overlap", false);
        assert!(old.contains("--nodelist={}") && old.contains("--overlap") && old.ends_with("--mpi=none"), "{old}");
        assert!(!old.contains("--external-launcher"), "{old}");
        let new = srun("--overlap --external-launcher", true);
        assert!(new.ends_with("--external-launcher"), "{new}");
    }

    #[test]
    fn hosts_are_filled_by_their_slots_in_turn_and_again() {
        let hosts = [host("a", Some(2)), host("b", None), host("c", Some(3))];
        let spread = |ranks| spread(ranks, &hosts, None, None).unwrap();
        assert_eq!(spread(None), [2, 1, 3]);
        assert_eq!(spread(Some(1)), [1, 0, 0]);
        assert_eq!(spread(Some(4)), [2, 1, 1]);
        assert_eq!(spread(Some(9)), [4, 2, 3]);
    }

    #[test]
    fn hosts_without_slots_share_the_ranks_evenly_and_ppn_fills_them() {
        let hosts = [host("a", None), host("b", None)];
        assert_eq!(spread(Some(5), &hosts, None, None).unwrap(), [3, 2]);
        assert_eq!(spread(None, &hosts, None, None).unwrap(), [1, 1]);
        assert_eq!(spread(Some(3), &hosts, None, Some(2)).unwrap(), [2, 1]);
        assert_eq!(spread(None, &hosts, Some(2), Some(2)).unwrap(), [4, 4]);
        assert!(matches!(spread(Some(5), &hosts, None, Some(2)), Err(HostsError::NoRoom { room: 4, .. })));
    }

    #[test]
    fn a_machine_knows_its_own_names() {
        for name in ["localhost", "127.0.0.1", "a1", "a1.cluster"] {
            assert!(is_own_name(name, "a1.cluster"), "{name}");
        }
        assert!(is_own_name("a1.cluster", "a1"));
        for name in ["a", "a11", "a1.other", "b1.cluster"] {
            assert!(!is_own_name(name, "a1.cluster"), "{name}");
        }
    }

    #[test]
    fn many_hosts_make_a_tree_in_which_every_rank_is_once() {
        for count in [31, 32, 33, 100] {
            let hosts: Vec<Host> = (0..count).map(|number| host(&format!("h{number}"), None)).collect();
            let plan = Plan::on_machines(&vec![2; count], None, None).unwrap();
            let starter = Starter { command: vec!["ssh".to_owned()], paths: Vec::new(), is_read_by_shell: true };
            let machines = Machines { here: vec![false; count], hosts, starter };
            let branches = machines.branches(&plan);
            let mut ranks = Vec::new();
            for branch in &branches {
                branch.for_each(&mut |branch| ranks.extend(branch.ranks.iter().map(|(rank, _)| *rank)));
            }
            assert_eq!(ranks, (0..2 * count as u32).collect::<Vec<_>>());
            let widest = branches.iter().map(|branch| branch.below.len()).max().unwrap();
            let bound = if count < TREE_HOSTS { (count, 0) } else { (count.isqrt() + 1, count.isqrt() + 1) };
            assert!(branches.len() <= bound.0 && widest <= bound.1, "{count}: {} of {widest}", branches.len());
        }
    }
}
