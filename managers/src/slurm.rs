//! Slurm: what `srun` tells each task of a step, and what a job is told of its hosts.
//!
//! ```text
//!   a task of a step     SLURM_PROCID of SLURM_STEP_NUM_TASKS; where the others are, as node list and tasks a node
//!   a script of a job    SLURM_JOB_NODELIST, tasks or processors a node
//! ```
//!
//! A script has SLURM_PROCID as well and is one process: only a step has SLURM_STEP_NUM_TASKS. Which rank is on which node
//! follows from neither (it depends on `--distribution`), so [`Step`] tells each task its own node and how many are on each.

use crate::environment::{self, Environment, EnvironmentError, shortened};
use crate::host::{HOSTS_MAX, Host, Hosts, SLOTS_MAX, TooMany};
use crate::hostlist::{self, HostListError};

/// What is wrong with what Slurm's variables say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A number that is none, or is not there, or does not fit.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A list of nodes that cannot be read.
    #[error("the variable {name}: {reason}")]
    Nodes {
        /// Which one.
        name: &'static str,
        /// What is wrong.
        reason: HostListError,
    },
    /// What is not of the form `2(x3),1`.
    #[error(
        "the variable {name} is {value:?}, and not numbers for nodes as in 2(x3),1; start the program anew with srun, or give the hosts with --hosts"
    )]
    Counts {
        /// Which one.
        name: &'static str,
        /// Its value, cut where it is long.
        value: String,
    },
    /// Lists that are not of the same step.
    #[error(
        "{nodes} nodes are listed, and numbers for {counts} with {tasks} tasks where there are {size}; the variables of different steps are mixed: start the program with srun itself, not from a shell of another step"
    )]
    Contradiction {
        /// Nodes of the list.
        nodes: usize,
        /// Nodes of the tasks a node.
        counts: usize,
        /// The sum of the tasks a node.
        tasks: u64,
        /// Tasks of the step.
        size: u32,
    },
}

/// A task of a step, as `srun` tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// This task.
    pub rank: u32,
    /// Tasks of the step.
    pub size: u32,
    /// This task among those of its node.
    pub local_id: u32,
    /// Its node among those of the step.
    pub node_id: u32,
    /// The names of the step's nodes, by their number.
    pub nodes: Vec<String>,
    /// How many tasks each node has.
    pub tasks_per_node: Vec<u32>,
    /// The number of the job.
    pub job_id: u32,
    /// The number of the step in its job.
    pub step_id: u32,
    /// Where `srun` itself runs, if it says so.
    pub srun_host: Option<String>,
    /// The ports that `srun --resv-ports` has reserved for the step on its nodes.
    pub reserved_ports: Vec<u16>,
}

const SIZE: &str = "SLURM_STEP_NUM_TASKS";
const RANK: &str = "SLURM_PROCID";
const STEP_NODES: &str = "SLURM_STEP_NODELIST";
const STEP_TASKS: &str = "SLURM_STEP_TASKS_PER_NODE";

impl Step {
    /// The step that this process is a task of; `None` where it is none.
    ///
    /// # Errors
    /// [`StepError`] where the variables do not make sense together.
    ///
    /// ```
    /// use longarm_managers::slurm::Step;
    ///
    /// let set = |name: &str| Some(match name {
    ///     "SLURM_PROCID" => "3", "SLURM_STEP_NUM_TASKS" => "4", "SLURM_LOCALID" => "1", "SLURM_NODEID" => "1",
    ///     "SLURM_STEP_NODELIST" => "rg[0-1]", "SLURM_STEP_TASKS_PER_NODE" => "2(x2)",
    ///     "SLURM_JOB_ID" => "7", "SLURM_STEP_ID" => "0", _ => return None,
    /// }.to_owned());
    /// let step = Step::from_environment(&set)?.expect("it is one");
    /// assert_eq!((step.rank, step.size, step.own_node(), step.local_size()), (3, 4, "rg1", 2));
    /// # Ok::<(), longarm_managers::slurm::StepError>(())
    /// ```
    pub fn from_environment(environment: Environment<'_>) -> Result<Option<Step>, StepError> {
        let number = |name| environment::number_beside(environment, SIZE, name);
        let Some(size) = environment::number(environment, SIZE)? else { return Ok(None) };
        let rank = number(RANK)?;
        environment::below("the task's number (SLURM_PROCID)", rank, size)?;
        let nodes = names(environment, STEP_NODES, SIZE)?;
        let counts = environment(STEP_TASKS).ok_or(EnvironmentError::Missing { present: SIZE, missing: STEP_TASKS })?;
        let tasks_per_node = counts_of(STEP_TASKS, &counts)?;
        let tasks = tasks_per_node.iter().copied().map(u64::from).sum();
        if nodes.len() != tasks_per_node.len() || tasks != u64::from(size) {
            let (nodes, counts) = (nodes.len(), tasks_per_node.len());
            return Err(StepError::Contradiction { nodes, counts, tasks, size });
        }
        let node_id = number("SLURM_NODEID")?;
        environment::below("the node's number (SLURM_NODEID)", node_id, nodes.len() as u32)?;
        let local_id = number("SLURM_LOCALID")?;
        let of_node = tasks_per_node[node_id as usize];
        environment::below("the task's number on its node (SLURM_LOCALID)", local_id, of_node)?;
        let job_id = match environment::number(environment, "SLURM_JOB_ID")? {
            Some(job_id) => job_id,
            // What it was called before.
            None => number("SLURM_JOBID")?,
        };
        let step_id = number("SLURM_STEP_ID")?;
        let srun_host = environment("SLURM_SRUN_COMM_HOST").filter(|host| !host.is_empty());
        let reserved_ports = environment("SLURM_STEP_RESV_PORTS").as_deref().map(ports).unwrap_or_default();
        Ok(Some(Step {
            rank,
            size,
            local_id,
            node_id,
            nodes,
            tasks_per_node,
            job_id,
            step_id,
            srun_host,
            reserved_ports,
        }))
    }

    /// The name of this task's node.
    pub fn own_node(&self) -> &str {
        &self.nodes[self.node_id as usize]
    }

    /// How many tasks this one's node has.
    pub fn local_size(&self) -> u32 {
        self.tasks_per_node[self.node_id as usize]
    }

    /// The nodes with their tasks.
    pub fn hosts(&self) -> Vec<Host> {
        self.nodes.iter().zip(&self.tasks_per_node).map(|(name, tasks)| Host::new(name, *tasks)).collect()
    }
}

/// The hosts of the job that this process is in, as a script of it or a shell of `salloc`: with as many slots as tasks were
/// asked for, or else as processors are there for; `None` outside of a job.
///
/// # Errors
/// [`StepError`] where the variables do not make sense together.
///
/// ```
/// use longarm_managers::{Host, slurm};
///
/// let set = |name: &str| match name {
///     "SLURM_JOB_NODELIST" => Some("a[1-3],b".to_owned()),
///     "SLURM_TASKS_PER_NODE" => Some("4(x3),2".to_owned()),
///     _ => None,
/// };
/// let hosts = slurm::hosts(&set)?.expect("it is one");
/// assert_eq!((hosts.len(), &hosts[3]), (4, &Host::new("b", 2)));
/// # Ok::<(), slurm::StepError>(())
/// ```
pub fn hosts(environment: Environment<'_>) -> Result<Option<Vec<Host>>, StepError> {
    let list = ["SLURM_JOB_NODELIST", "SLURM_NODELIST"].into_iter().find(|name| environment(name).is_some());
    let Some(list) = list else { return Ok(None) };
    let nodes = names(environment, list, list)?;
    let slots = slots_per_node(environment)?.unwrap_or_else(|| vec![1; nodes.len()]);
    let tasks = slots.iter().copied().map(u64::from).sum();
    if nodes.len() != slots.len() {
        let size = u32::try_from(tasks).unwrap_or(u32::MAX);
        return Err(StepError::Contradiction { nodes: nodes.len(), counts: slots.len(), tasks, size });
    }
    let mut hosts = Hosts::default();
    for (name, slots) in nodes.iter().zip(slots) {
        let too_many = |TooMany| StepError::Nodes { name: list, reason: HostListError::TooMany };
        hosts.add(name, Some(slots)).map_err(too_many)?;
    }
    Ok(Some(hosts.into_list()))
}

/// The address of a node, `NodeAddr`, in what `scontrol --oneliner show node` says of it: a number or a name.
///
/// ```
/// use longarm_managers::slurm::address_of_node;
/// let said = "NodeName=c7 Arch=x86_64 NodeAddr=192.0.2.7 NodeHostName=c7 Port=0 OS=Linux Comment=NodeAddr=mine\n";
/// assert_eq!(address_of_node(said), Some("192.0.2.7"));
/// assert_eq!(address_of_node("NodeName=c7 State=UNKNOWN"), None);
/// ```
pub fn address_of_node(said: &str) -> Option<&str> {
    said.split_whitespace().find_map(|word| word.strip_prefix("NodeAddr=")).filter(|address| !address.is_empty())
}

/// Ports as Slurm writes them, `12000-12003,12010`: the first of them, and none of what it does not write so.
fn ports(text: &str) -> Vec<u16> {
    const PORTS_MAX: usize = 16;
    let range = |element: &str| {
        let (first, last) = element.split_once('-').unwrap_or((element, element));
        Some(first.trim().parse::<u16>().ok()?..=last.trim().parse::<u16>().ok()?)
    };
    text.split(',').filter_map(range).flatten().filter(|port| *port != 0).take(PORTS_MAX).collect()
}

fn slots_per_node(environment: Environment<'_>) -> Result<Option<Vec<u32>>, StepError> {
    const TASKS: &str = "SLURM_TASKS_PER_NODE";
    const PROCESSORS: &str = "SLURM_JOB_CPUS_PER_NODE";
    if let Some(counts) = environment(TASKS) {
        return counts_of(TASKS, &counts).map(Some);
    }
    let Some(counts) = environment(PROCESSORS) else { return Ok(None) };
    let for_each = environment::number(environment, "SLURM_CPUS_PER_TASK")?.unwrap_or(1).max(1);
    let counts = counts_of(PROCESSORS, &counts)?;
    Ok(Some(counts.into_iter().map(|processors| (processors / for_each).max(1)).collect()))
}

fn names(environment: Environment<'_>, name: &'static str, present: &'static str) -> Result<Vec<String>, StepError> {
    let list = environment(name).ok_or(EnvironmentError::Missing { present, missing: name })?;
    hostlist::names(&list).map_err(|reason| StepError::Nodes { name, reason })
}

fn counts_of(name: &'static str, value: &str) -> Result<Vec<u32>, StepError> {
    counts(value).ok_or_else(|| StepError::Counts { name, value: shortened(value) })
}

/// Slurm's way to write a number for each node, `2(x3),1`: written out, or `None` for anything else, for more than [`HOSTS_MAX`]
/// nodes, and for more than [`SLOTS_MAX`] on one.
///
/// ```
/// use longarm_managers::slurm::counts;
/// assert_eq!(counts("2(x3),1"), Some(vec![2, 2, 2, 1]));
/// assert_eq!(counts("1(x4000000000)"), None);
/// ```
pub fn counts(text: &str) -> Option<Vec<u32>> {
    let mut counts = Vec::new();
    for element in text.split(',') {
        let element = element.trim();
        let (count, times) = match element.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok().filter(|times| *times > 0)?),
            None => (element, 1_usize),
        };
        let count: u32 = count.parse().ok().filter(|count| *count <= SLOTS_MAX)?;
        if times > HOSTS_MAX - counts.len() {
            return None;
        }
        counts.resize(counts.len() + times, count);
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What srun of Slurm 22.05 set for the last of three tasks on two nodes.
    const RECORDED: [(&str, &str); 11] = [
        ("SLURM_PROCID", "2"),
        ("SLURM_NTASKS", "3"),
        ("SLURM_STEP_NUM_TASKS", "3"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "1"),
        ("SLURM_STEP_NODELIST", "rg[0-1]"),
        ("SLURM_STEP_TASKS_PER_NODE", "2,1"),
        ("SLURM_JOB_ID", "12"),
        ("SLURM_JOBID", "12"),
        ("SLURM_STEP_ID", "4"),
        ("SLURM_SRUN_COMM_HOST", "10.66.0.254"),
    ];

    fn step(changes: &[(&str, Option<&str>)]) -> Result<Option<Step>, StepError> {
        Step::from_environment(&|name| {
            let changed = changes.iter().find(|(changed, _)| *changed == name).map(|(_, value)| *value);
            let recorded = || RECORDED.iter().find(|(recorded, _)| *recorded == name).map(|(_, value)| *value);
            changed.unwrap_or_else(recorded).map(str::to_owned)
        })
    }

    #[test]
    fn a_step_is_read_as_srun_writes_it() {
        let step = step(&[]).unwrap().unwrap();
        assert_eq!((step.rank, step.size, step.local_id, step.node_id), (2, 3, 0, 1));
        assert_eq!((step.own_node(), step.local_size()), ("rg1", 1));
        assert_eq!((step.job_id, step.step_id), (12, 4));
        assert_eq!(step.srun_host.as_deref(), Some("10.66.0.254"));
        assert_eq!(step.hosts(), [Host::new("rg0", 2), Host::new("rg1", 1)]);
    }

    #[test]
    fn ports_that_were_reserved_are_read_and_others_are_none() {
        let reserved = |text| step(&[("SLURM_STEP_RESV_PORTS", Some(text))]).unwrap().unwrap().reserved_ports;
        assert_eq!(reserved("12000-12002,12010"), [12000, 12001, 12002, 12010]);
        assert_eq!(reserved("0-65535").len(), 16);
        assert_eq!(reserved("7-6,-3,x,70000,9").as_slice(), [9]);
        assert_eq!(step(&[]).unwrap().unwrap().reserved_ports, [0_u16; 0]);
    }

    #[test]
    fn a_script_is_no_step() {
        assert_eq!(step(&[("SLURM_STEP_NUM_TASKS", None)]), Ok(None));
    }

    #[test]
    fn what_belongs_to_different_steps_is_refused() {
        let contradiction = |nodes, counts, tasks, size| Err(StepError::Contradiction { nodes, counts, tasks, size });
        assert_eq!(step(&[("SLURM_STEP_TASKS_PER_NODE", Some("1(x2)"))]), contradiction(2, 2, 2, 3));
        assert_eq!(step(&[("SLURM_STEP_TASKS_PER_NODE", Some("1(x3)"))]), contradiction(2, 3, 3, 3));
        assert_eq!(step(&[("SLURM_STEP_NODELIST", Some("rg0"))]), contradiction(1, 2, 3, 3));
        for (name, value) in [("SLURM_PROCID", "3"), ("SLURM_NODEID", "2"), ("SLURM_LOCALID", "1")] {
            let error = step(&[(name, Some(value))]).unwrap_err();
            assert!(matches!(error, StepError::Environment(EnvironmentError::OutOfRange { .. })), "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn what_is_missing_or_no_number_is_named() {
        for name in [
            "SLURM_PROCID",
            "SLURM_NODEID",
            "SLURM_LOCALID",
            "SLURM_STEP_NODELIST",
            "SLURM_STEP_TASKS_PER_NODE",
            "SLURM_STEP_ID",
        ] {
            let missing = step(&[(name, None)]).unwrap_err().to_string();
            assert!(missing.contains(name), "{missing}");
            let bad = step(&[(name, Some("x["))]).unwrap_err().to_string();
            assert!(bad.contains(name), "{bad}");
        }
        assert_eq!(step(&[("SLURM_JOB_ID", None)]), step(&[]));
    }

    #[test]
    fn counts_that_slurm_does_not_write_are_none() {
        assert_eq!(counts("3"), Some(vec![3]));
        assert_eq!(counts("16(x2),8(x1)"), Some(vec![16, 16, 8]));
        for bad in
            ["", ",", "2(x3", "2(x0)", "2x3", "-1", "2(3)", "2(x3)1", "65537", "1(x131073)", "1(x131072),1", "(x2)"]
        {
            assert_eq!(counts(bad), None, "{bad}");
        }
    }

    #[test]
    fn slots_of_an_allocation_are_tasks_or_else_processors() {
        let hosts = |set: &[(&str, &str)]| {
            super::hosts(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        let nodes = ("SLURM_JOB_NODELIST", "rg[0-1]");
        let both = [nodes, ("SLURM_TASKS_PER_NODE", "2,1"), ("SLURM_JOB_CPUS_PER_NODE", "8(x2)")];
        assert_eq!(hosts(&both), Ok(Some(vec![Host::new("rg0", 2), Host::new("rg1", 1)])));
        let processors = [nodes, ("SLURM_JOB_CPUS_PER_NODE", "8,2"), ("SLURM_CPUS_PER_TASK", "4")];
        assert_eq!(hosts(&processors), Ok(Some(vec![Host::new("rg0", 2), Host::new("rg1", 1)])));
        assert_eq!(hosts(&[("SLURM_NODELIST", "rg0")]), Ok(Some(vec![Host::new("rg0", 1)])));
        assert_eq!(hosts(&[]), Ok(None));
        assert!(matches!(hosts(&[nodes, ("SLURM_TASKS_PER_NODE", "2")]), Err(StepError::Contradiction { .. })));
    }
}
