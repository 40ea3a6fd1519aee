//! What process managers and batch systems say, and lists and files of hosts: nothing panics, everything is bounded, and what is
//! accepted means the same when it is written again.

use std::io::{self, Read, Write};

use longarm_managers::allocation::{self, Outside};
use longarm_managers::pmi1::{self, Client, RANKS_MAX, VALUE_BYTES_MAX};
use longarm_managers::{HOSTS_MAX, Host, NAME_BYTES_MAX, SLOTS_MAX};
use longarm_managers::{flux, grid_engine, hostfile, hostlist, kubernetes, pbs, pmix, slurm};

use crate::choices::{Choices, Script};

/// Letters of an error, at most: it shows the beginning of what was wrong.
const ERROR_BYTES_MAX: usize = 1200;

fn check_error(error: &dyn std::error::Error) {
    let said = error.to_string();
    assert!(!said.is_empty() && said.len() <= ERROR_BYTES_MAX, "{said}");
}

/// A manager that answers as one should, or with bytes of the fuzzer's.
struct Manager {
    choices: Vec<u8>,
    answer: io::Cursor<Vec<u8>>,
}

impl Manager {
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let bytes = bytes.min(self.choices.len());
        self.choices.drain(..bytes).collect()
    }

    fn good(line: &str) -> String {
        let name = line.split(['=', ' ', '\n']).nth(1).unwrap_or_default();
        match name {
            "initack" => "cmd=initack\ncmd=set size=3\ncmd=set rank=1\ncmd=set debug=0\n".to_owned(),
            "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".to_owned(),
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n".to_owned(),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1\n".to_owned(),
            "put" => "cmd=put_result rc=0\n".to_owned(),
            "get" => "cmd=get_result rc=0 value=1-6869\n".to_owned(),
            "barrier_in" => "cmd=barrier_out\n".to_owned(),
            "finalize" => "cmd=finalize_ack\n".to_owned(),
            "get_universe_size" => "cmd=universe_size size=-1\n".to_owned(),
            "get_appnum" => "cmd=appnum appnum=0\n".to_owned(),
            other => panic!("{other}: nobody asks this"),
        }
    }
}

impl Write for Manager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = std::str::from_utf8(bytes).expect("lines are text");
        assert!(bytes.len() < 1024 && line.ends_with('\n') && line.lines().count() == 1, "{line:?}");
        let answer = match self.take(1).first() {
            Some(&length @ 1..) => self.take(length.into()),
            _ => Manager::good(line).into_bytes(),
        };
        self.answer.get_mut().extend_from_slice(&answer);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Manager {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.answer.read(out)
    }
}

/// A conversation of PMI-1 with a manager that says anything.
pub fn pmi1_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let over_port = choices.byte() % 2 == 1;
    let manager = Manager { choices: choices.rest().to_vec(), answer: io::Cursor::default() };
    let client = if over_port { Client::over_port(manager, 1) } else { Client::over(manager, 1, 3) };
    if let Err(error) = client.and_then(converse) {
        check_error(&error);
    }
}

fn converse(mut client: Client) -> Result<(), pmi1::Pmi1Error> {
    assert!(client.rank() < client.size() && client.size() <= RANKS_MAX);
    if let Some(mapping) = client.mapping()? {
        check_mapping(&mapping, client.size().min(1 << 12));
    }
    client.put("k", &[7; 700])?;
    client.barrier()?;
    assert!(client.get("k")?.len() <= VALUE_BYTES_MAX);
    assert!(client.dead()?.iter().all(|rank| *rank < client.size()));
    client.universe_size()?;
    client.program()?;
    client.finalize()
}

/// Which ranks are on which node, as a process manager writes it.
pub fn process_mapping(data: &[u8]) {
    let mut choices = Choices::new(data);
    let size = choices.short();
    check_mapping(&String::from_utf8_lossy(choices.rest()), size.into());
}

fn check_mapping(text: &str, size: u32) {
    match pmi1::nodes_of_ranks(text, size) {
        Ok(nodes) => assert_eq!(nodes.len(), size as usize),
        Err(error) => check_error(&error),
    }
}

/// A list of hosts.
pub fn host_list(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match hostlist::names(&text) {
        Ok(names) => assert!(names.len() <= HOSTS_MAX && names.iter().all(|name| is_sound(name))),
        Err(error) => check_error(&error),
    }
    check(hostlist::parse(&text));
}

/// The text of a file of hosts, in each of its forms.
pub fn host_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check(hostfile::parse(&text));
    check(pbs::hosts(&text));
    check(grid_engine::hosts(&text));
    check(flux::hosts(&text));
}

fn check<E: std::error::Error>(hosts: Result<Vec<Host>, E>) {
    match hosts {
        Ok(hosts) => check_hosts(&hosts),
        Err(error) => check_error(&error),
    }
}

fn check_hosts(hosts: &[Host]) {
    assert!(!hosts.is_empty() && hosts.len() <= HOSTS_MAX);
    assert!(hosts.iter().all(|host| is_sound(&host.name)), "{hosts:?}");
    assert!(hosts.iter().all(|host| host.slots.is_none_or(|slots| slots <= SLOTS_MAX)), "{hosts:?}");
    // No number of slots is written as 0, though a node of Slurm's may have none.
    if hosts.iter().any(|host| host.slots == Some(0)) {
        return;
    }
    let written = |host: &Host| {
        let name = if host.name.contains(':') { format!("[{}]", host.name) } else { host.name.clone() };
        host.slots.map_or_else(|| name.clone(), |slots| format!("{name}:{slots}"))
    };
    let list: Vec<String> = hosts.iter().map(written).collect();
    assert_eq!(hostlist::parse(&list.join(",")).as_deref(), Ok(hosts));
    assert_eq!(hostfile::parse(&list.join("\n")).as_deref(), Ok(hosts));
}

/// Nothing that ssh or a shell takes for something else.
fn is_sound(name: &str) -> bool {
    let bad = |letter: char| letter.is_ascii_whitespace() || "\"'`$;&|<>()[]{}\\!*?#~,=/".contains(letter);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('-') && name.is_ascii() && !name.contains(bad)
}

/// All that is looked at. Nothing in here connects to anything.
const VARIABLES: [&str; 36] = [
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_STEP_ID",
    "SLURM_SRUN_COMM_HOST",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURM_TASKS_PER_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_CPUS_PER_TASK",
    "FLUX_TASK_RANK",
    "FLUX_JOB_SIZE",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_JOB_NNODES",
    "FLUX_JOB_ID",
    "FLUX_URI",
    "JOB_COMPLETION_INDEX",
    "LONGARM_SIZE",
    "LONGARM_SERVICE",
    "HOSTNAME",
    "HYDRA_HOST_FILE",
    "PBS_NODEFILE",
    "PBS_JOBID",
    "LSB_MCPU_HOSTS",
    "LSB_HOSTS",
    "LSB_JOBID",
    "PE_HOSTFILE",
    "JOB_ID",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "OMPI_MCA_orte_default_hostfile",
];

/// Files and programs that all say the same.
struct Same(String);

impl Outside for Same {
    fn read(&self, _: &str) -> io::Result<String> {
        Ok(self.0.clone())
    }

    fn run(&self, _: &[&str]) -> io::Result<String> {
        Ok(self.0.clone())
    }
}

/// Variables of batch systems and process managers, with any values.
pub fn manager_environment(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut set = Vec::new();
    let count = choices.byte() % 16;
    for _ in 0..count {
        let name = choices.pick(&VARIABLES);
        set.push((name, String::from_utf8_lossy(choices.bytes()).into_owned()));
    }
    let outside = Same(String::from_utf8_lossy(choices.rest()).into_owned());
    let variable = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
    match slurm::Step::from_environment(&variable) {
        Ok(Some(step)) => {
            assert!(step.rank < step.size && step.local_id < step.local_size() && !step.own_node().is_empty());
            assert_eq!(step.hosts().iter().filter_map(|host| host.slots).sum::<u32>(), step.size);
        }
        Ok(None) => assert_eq!(variable("SLURM_STEP_NUM_TASKS").filter(|size| !size.trim().is_empty()), None),
        Err(error) => check_error(&error),
    }
    match flux::Task::from_environment(&variable) {
        Ok(task) => assert!(task.is_none_or(|task| task.rank < task.size)),
        Err(error) => check_error(&error),
    }
    match kubernetes::Pod::from_environment(&variable) {
        Ok(pod) => assert!(pod.is_none_or(|pod| pod.index < pod.size && pod.host_name(pod.index).len() < 1000)),
        Err(error) => check_error(&error),
    }
    match allocation::find(&variable, &outside) {
        Ok(Some(allocation)) => check_hosts(&allocation.hosts),
        Ok(None) => {}
        Err(error) => check_error(&error),
    }
    assert!(!pmix::is_there(&variable) || variable("PMIX_RANK").is_some());
}

pub(crate) fn conversation_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let good = |answers: u8| (0..answers).fold(Script::default().byte(0), |script, _| script.byte(0));
    let over_port = (0..20).fold(Script::default().byte(1), |script, _| script.byte(0));
    vec![
        ("good", good(20).written()),
        ("over_a_port", over_port.written()),
        ("refused", good(0).bytes(b"cmd=response_to_init rc=-1\n").written()),
        ("small", good(1).bytes(b"cmd=maxes kvsname_max=9 keylen_max=9 vallen_max=40\n").written()),
        ("mapped", good(3).bytes(b"cmd=get_result rc=0 msg=success value=(vector,[(0,2,1)]x2)\n").written()),
        ("no_mapping", good(3).bytes(b"cmd=get_result rc=-1 msg=key_not_found value=unknown\n").written()),
        ("pieces", good(7).bytes(b"cmd=get_result rc=0 value=2-00\n").written()),
        ("dead", good(8).bytes(b"cmd=get_result rc=0 value=0,1-2\n").written()),
    ]
}

pub(crate) fn mapping_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mapping = |text: &str| Script::default().short(5).plain(text.as_bytes()).written();
    vec![
        ("cyclic", mapping("(vector,(0,2,1))")),
        ("blocks", mapping("(vector,(0,1,4),(1,1,2))")),
        ("brackets", mapping("(vector,[(0,2,1),(3,1,2)]x2, (4,1,1))")),
        ("nobody", mapping("(vector,[(0,0,1)]x4294967295)")),
    ]
}

pub(crate) fn list_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let lists = [
        ("names", "a,b:4 user@c.site"),
        ("brackets", "r[0-1]n[08-09,11]x:2,b1"),
        ("addresses", "[fd00::1]:4,fd00::2,10.0.0.1:2"),
        ("twice", "a:2,b,a"),
        ("too_many", "a[0-999][0-999][0-999]"),
    ];
    lists.map(|(name, list)| (name, list.as_bytes().to_vec())).to_vec()
}

pub(crate) fn file_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let files = [
        ("mpich", "# two\na:4\nb:2 binding=numa\n"),
        ("open_mpi", "a slots=4 max_slots=8\nb slots = 2\n"),
        ("pbs", "a\na\nb\n"),
        ("grid_engine", "a 4 all.q@a 0,1\nb 2 all.q@b UNDEFINED\n"),
        ("flux", "0 \n8 a[1-2]\n"),
    ];
    files.map(|(name, file)| (name, file.as_bytes().to_vec())).to_vec()
}

pub(crate) fn environment_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let of = |variables: &[(&str, &str)], outside: &str| {
        let count = u8::try_from(variables.len()).expect("they are few");
        let set = |script: Script, (name, value): &(&str, &str)| {
            let number = VARIABLES.iter().position(|known| known == name).expect("it is one of them");
            script.byte(number as u8).bytes(value.as_bytes())
        };
        variables.iter().fold(Script::default().byte(count), set).plain(outside.as_bytes()).written()
    };
    let step = [
        ("SLURM_PROCID", "2"),
        ("SLURM_STEP_NUM_TASKS", "3"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "1"),
        ("SLURM_STEP_NODELIST", "n[1-2]"),
        ("SLURM_STEP_TASKS_PER_NODE", "2,1"),
        ("SLURM_JOB_ID", "2"),
        ("SLURM_STEP_ID", "0"),
    ];
    let task = [("FLUX_TASK_RANK", "1"), ("FLUX_JOB_SIZE", "2"), ("FLUX_TASK_LOCAL_ID", "0"), ("FLUX_JOB_NNODES", "2")];
    let pod = [("JOB_COMPLETION_INDEX", "3"), ("LONGARM_SIZE", "8"), ("HOSTNAME", "train-3"), ("LONGARM_SERVICE", "s")];
    vec![
        ("slurm_step", of(&step, "")),
        ("slurm_job", of(&[("SLURM_JOB_NODELIST", "a[1-3],b"), ("SLURM_TASKS_PER_NODE", "4(x3),2")], "")),
        ("flux_task", of(&task, "")),
        ("flux_instance", of(&[("FLUX_URI", "local:///x")], "8 a[1-2]")),
        ("pod", of(&pod, "")),
        ("lsf", of(&[("LSB_MCPU_HOSTS", "a 4 b 2")], "")),
        ("pbs", of(&[("PBS_NODEFILE", "/x")], "a\na\nb\n")),
        ("grid_engine", of(&[("PE_HOSTFILE", "/x")], "a 4 all.q@a 0\n")),
    ]
}
