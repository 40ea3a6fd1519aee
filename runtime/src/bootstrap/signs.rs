//! What the environment says of how this process was started: by Slurm's `srun`, the `mpiexec` of an MPI, and their like.
//!
//! A process that one of them started among others, and that found no way to these, would be a world of its own, as all of them
//! would, without a word. So it is told by what the managers say to each process: how many there are. A script of a batch system,
//! which may know the size of its allocation, is one process; only what a step of the job started counts.

/// What a manager says to its processes.
struct Sign {
    /// Set for each process.
    rank: &'static str,
    /// How many processes there are. `None`: the manager does not say.
    size: Option<&'static str>,
    /// What starts processes so.
    starter: &'static str,
}

const fn sign(rank: &'static str, size: &'static str, starter: &'static str) -> Sign {
    Sign { rank, size: Some(size), starter }
}

/// Those that tell how many there are come first: what they say decides where several have signed.
const SIGNS: [Sign; 10] = [
    // srun alone sets the size of a step. A batch script has SLURM_PROCID and SLURM_NTASKS too, and is one process.
    sign("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"),
    sign("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "the mpiexec of Open MPI"),
    sign("PMI_RANK", "PMI_SIZE", "mpiexec"),
    sign("PMI_ID", "PMI_SIZE", "mpiexec"),
    sign("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "the mpiexec of MVAPICH2"),
    sign("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "jsrun"),
    sign("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "flux run"),
    Sign { rank: "PALS_RANKID", size: None, starter: "the mpiexec of PALS" },
    // Hydra with -pmi-port, which tells rank and size over that port.
    Sign { rank: "PMI_ID", size: None, starter: "mpiexec" },
    Sign { rank: "PMIX_RANK", size: None, starter: "a process manager with PMIx" },
];

/// One process of several.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Managed {
    /// What has started them.
    pub(crate) starter: &'static str,
    /// The variable that says so.
    pub(crate) variable: &'static str,
    /// Its value.
    pub(crate) value: String,
}

/// Whether a process with these variables is one of several, that none but their manager knows to belong together.
pub(crate) fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Managed> {
    for Sign { rank, size, starter } in &SIGNS {
        let Some(value) = variable(rank) else { continue };
        let Some(size) = *size else {
            return Some(Managed { starter, variable: rank, value });
        };
        match variable(size).and_then(|value| Some((value.trim().parse::<u64>().ok()?, value))) {
            Some((0 | 1, _)) => return None,
            Some((_, value)) => return Some(Managed { starter, variable: size, value }),
            None => {}
        }
    }
    None
}

/// What managers set that an MPI in the process understands: all of a line, and it is one of them. Initialising MPI gives the job's
/// ranks then.
const MPI_MARKS: [&[&str]; 5] = [
    &["PMI_RANK"], // Hydra, Intel MPI, Slurm with PMI-1 or PMI-2, Cray.
    &["PMI_FD"],
    &["PMI_PORT"],                    // Hydra with -pmi-port.
    &["PMIX_RANK", "PMIX_NAMESPACE"], // PRRTE, Slurm with PMIx.
    &["OMPI_COMM_WORLD_RANK"],        // Open MPI's mpirun.
];

/// Whether the process manager of an MPI has started a process with these variables.
pub(crate) fn is_of_mpi(variable: impl Fn(&str) -> Option<String>) -> bool {
    MPI_MARKS.iter().any(|marks| marks.iter().all(|name| variable(name).is_some()))
}

/// Rank and size, as the process manager of an MPI says them.
pub(crate) fn told_by_mpi(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    told(
        &[
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("PMI_RANK", "PMI_SIZE"),
            ("PMI_ID", "PMI_SIZE"),
            ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
        ],
        variable,
    )
}

/// Rank and size, as Slurm says them, or whoever sets longarm's own variables.
pub(crate) fn told_by_others(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    told(&[("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), ("LONGARM_RANK", "LONGARM_SIZE")], variable)
}

/// The rank alone, as the process manager of an MPI says it: those with PMIx say no size.
pub(crate) fn rank_told_by_mpi(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let number = |name: &str| variable(name)?.trim().parse().ok();
    ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"].into_iter().find_map(number)
}

fn told(pairs: &[(&str, &str)], variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    pairs.iter().find_map(|(rank, size)| number(rank).zip(number(size)))
}

/// Other variables that say something of how a process was started.
const OTHERS: [&str; 29] = [
    "LONGARM_CONTROL_FD",
    "LONGARM_RANK",
    "LONGARM_SIZE",
    "LONGARM_ROOT",
    "LONGARM_SECRET_FILE",
    "LONGARM_ALONE",
    "PMI_FD",
    "PMI_PORT",
    "PMIX_NAMESPACE",
    "PMIX_SERVER_URI4",
    "PMIX_SERVER_URI41",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_NTASKS",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_RESV_PORTS",
    "SLURM_NODEID",
    "SLURM_LOCALID",
    "FLUX_JOB_ID",
    "JOB_COMPLETION_INDEX",
    "KUBERNETES_SERVICE_HOST",
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "HYDRA_LAUNCHER",
    "PBS_NODEFILE",
    "LSB_MCPU_HOSTS",
    "PE_HOSTFILE",
    "I_MPI_HYDRA_UUID",
];

/// All variables that say something of how a process was started, with their values: first those that stand for other processes.
pub(crate) fn seen(variable: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let signs = SIGNS.iter().flat_map(|sign| [Some(sign.rank), sign.size]).flatten();
    let mut names: Vec<&str> = Vec::new();
    for name in signs.chain(OTHERS) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().filter_map(|name| Some((name.to_owned(), variable(name)?))).collect()
}

/// The first of longarm's own variables by which a rank is told that there are others.
pub(crate) fn first(variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    ["LONGARM_SIZE", "LONGARM_RANK", "LONGARM_ROOT", "JOB_COMPLETION_INDEX"]
        .into_iter()
        .find(|name| variable(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(variables: &[(&str, &str)]) -> Option<&'static str> {
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        find(value).map(|managed| managed.variable)
    }

    #[test]
    fn one_of_several_processes_is_told_by_what_its_manager_says() {
        assert_eq!(find_in(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some("PMI_SIZE"));
        assert_eq!(find_in(&[("PMI_ID", "1"), ("PMI_SIZE", "2")]), Some("PMI_SIZE"));
        assert_eq!(
            find_in(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4")]),
            Some("OMPI_COMM_WORLD_SIZE")
        );
        let step =
            [("SLURM_NTASKS", "4"), ("SLURM_PROCID", "2"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(find_in(&step), Some("SLURM_STEP_NUM_TASKS"));
        assert_eq!(find_in(&[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "2")]), Some("FLUX_JOB_SIZE"));
        assert_eq!(
            find_in(&[("PMI_ID", "0"), ("PMI_PORT", "n1:7")]),
            Some("PMI_ID"),
            "hydra says the size over the port"
        );
        assert_eq!(find_in(&[("PALS_RANKID", "0")]), Some("PALS_RANKID"));
        assert_eq!(find_in(&[("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "job")]), Some("PMIX_RANK"));
    }

    #[test]
    fn a_process_alone_is_no_part_of_a_job_whoever_started_it() {
        assert_eq!(find_in(&[]), None);
        assert_eq!(find_in(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), None);
        let alone = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")];
        assert_eq!(find_in(&alone), None, "PMIx does not say how many there are, but Open MPI does");
        let step = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1"), ("PMIX_RANK", "0")];
        assert_eq!(find_in(&step), None);
        // A batch script of four tasks.
        let script = [("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0"), ("SLURM_NPROCS", "4")];
        assert_eq!(find_in(&script), None);
    }

    fn with<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn an_mpi_is_started_by_what_its_manager_sets_and_by_nothing_less() {
        let is_of_mpi = |names: &[&str]| {
            let set: Vec<(&str, &str)> = names.iter().map(|name| (*name, "1")).collect();
            is_of_mpi(with(&set))
        };
        for names in [&["PMI_FD", "PMI_RANK", "PMI_SIZE"][..], &["PMI_PORT", "PMI_ID"], &["OMPI_COMM_WORLD_RANK"]] {
            assert!(is_of_mpi(names), "{names:?}");
        }
        assert!(is_of_mpi(&["PMIX_RANK", "PMIX_NAMESPACE"]));
        for names in [&[][..], &["PATH", "SLURM_PROCID", "PMI_SIZE"], &["PMIX_RANK"], &["PMIX_NAMESPACE"]] {
            assert!(!is_of_mpi(names), "{names:?}");
        }
    }

    #[test]
    fn rank_and_size_are_what_the_manager_of_mpi_says_also_within_a_step_of_slurms() {
        // Hydra starts one proxy a host by srun, which are the tasks of that step.
        let inside = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("PMI_RANK", "5"), ("PMI_SIZE", "8")];
        assert_eq!(told_by_mpi(with(&inside)), Some((5, 8)));
        assert_eq!((told_by_mpi(with(&inside[..2])), told_by_others(with(&inside[..2]))), (None, Some((1, 2))));
        assert_eq!(told_by_mpi(with(&[("PMIX_RANK", "1"), inside[1]])), Some((1, 2)));
        let own = [("LONGARM_RANK", "3"), ("LONGARM_SIZE", "4")];
        assert_eq!(told_by_others(with(&own)), Some((3, 4)));
        assert_eq!(told_by_others(with(&own[..1])), None);
    }

    #[test]
    fn a_size_that_is_none_says_nothing() {
        assert_eq!(find_in(&[("PMI_RANK", "0"), ("PMI_SIZE", "many")]), None);
        assert_eq!(find_in(&[("PMI_RANK", "0")]), None);
    }
}
