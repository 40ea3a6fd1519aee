//! Kubernetes: the pods of an indexed Job or a JobSet, and the host file of the MPI operator.
//!
//! ```text
//!   indexed Job   pod `train-3`           at `train-3.SERVICE`
//!   JobSet        pod `set-workers-0-3`   at `set-workers-0-3.SERVICE`
//! ```
//!
//! Kubernetes tells a pod its number and not how many there are: the manifest says that with `LONGARM_SIZE`, and the headless
//! service that gives the pods their names with `LONGARM_SERVICE`. Names may resolve only some time after the pods have started.

use crate::environment::{self, Environment, EnvironmentError, shortened};
use crate::host::{HOSTS_MAX, Host, is_name};

/// The variable of an indexed Job.
pub const INDEX: &str = "JOB_COMPLETION_INDEX";
/// How many pods there are. The manifest has to set it.
pub const SIZE: &str = "LONGARM_SIZE";
/// The headless service of the pods. The manifest has to set it.
pub const SERVICE: &str = "LONGARM_SERVICE";

/// A pod of an indexed Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// This pod.
    pub index: u32,
    /// Pods of the job.
    pub size: u32,
    /// What all names begin with, before a dash and the number.
    stem: String,
    service: Option<String>,
}

/// What is wrong with the variables of a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PodError {
    /// A number that is none, or is not there, or does not fit.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// Nobody says how many pods there are.
    #[error(
        "this is pod {index} of a Job of Kubernetes, and nothing says of how many: set LONGARM_SIZE in the manifest to what its `completions` are"
    )]
    NoSize {
        /// Its number.
        index: u32,
    },
    /// More than are ever meant.
    #[error("LONGARM_SIZE is {size}; more than {HOSTS_MAX} pods are not supported")]
    TooMany {
        /// What it says.
        size: u32,
    },
    /// The pod is not called as those of an indexed Job are.
    #[error(
        "this is pod {index} of a Job, and is called {name:?}, without that number at its end: the names of the others cannot be known; set `completionMode: Indexed` and leave the pods' `hostname` to Kubernetes"
    )]
    BadName {
        /// Its number.
        index: u32,
        /// Its name, cut where it is long.
        name: String,
    },
    /// What cannot be a name of DNS.
    #[error("LONGARM_SERVICE is {name:?}, which is no name of a service")]
    BadService {
        /// What it says, cut where it is long.
        name: String,
    },
}

impl Pod {
    /// The pod that this process is in; `None` where it is in none of an indexed Job.
    ///
    /// # Errors
    /// [`PodError`], which says what to add to the manifest.
    ///
    /// ```
    /// use longarm_managers::kubernetes::Pod;
    /// let set = |name: &str| Some(match name {
    ///     "JOB_COMPLETION_INDEX" => "3", "LONGARM_SIZE" => "8", "HOSTNAME" => "train-3", "LONGARM_SERVICE" => "peers",
    ///     _ => return None,
    /// }.to_owned());
    /// let pod = Pod::from_environment(&set)?.expect("it is one");
    /// assert_eq!((pod.index, pod.size, pod.host_name(0)), (3, 8, "train-0.peers".to_owned()));
    /// # Ok::<(), longarm_managers::kubernetes::PodError>(())
    /// ```
    pub fn from_environment(environment: Environment<'_>) -> Result<Option<Pod>, PodError> {
        let Some(index) = environment::number(environment, INDEX)? else { return Ok(None) };
        let size = environment::number(environment, SIZE)?.ok_or(PodError::NoSize { index })?;
        environment::below("the pod's number (JOB_COMPLETION_INDEX)", index, size)?;
        if size as usize > HOSTS_MAX {
            return Err(PodError::TooMany { size });
        }
        let full_name =
            environment("HOSTNAME").ok_or(EnvironmentError::Missing { present: INDEX, missing: "HOSTNAME" })?;
        let name = full_name.split('.').next().unwrap_or_default();
        let stem = name.strip_suffix(&format!("-{index}")).filter(|stem| is_name(stem));
        let stem = stem.ok_or_else(|| PodError::BadName { index, name: shortened(&full_name) })?.to_owned();
        let service = environment(SERVICE).filter(|service| !service.trim().is_empty());
        if let Some(name) = service.as_deref().filter(|service| !is_name(service)) {
            return Err(PodError::BadService { name: shortened(name) });
        }
        Ok(Some(Pod { index, size, stem, service }))
    }

    /// What the pod with a number is called in DNS.
    pub fn host_name(&self, index: u32) -> String {
        match &self.service {
            Some(service) => format!("{}-{index}.{service}", self.stem),
            None => format!("{}-{index}", self.stem),
        }
    }

    /// All pods, each for one rank.
    pub fn hosts(&self) -> Vec<Host> {
        (0..self.size).map(|index| Host::new(self.host_name(index), 1)).collect()
    }
}

/// The host file that the MPI operator has written for its launcher, which it names in the variable of the MPI that the manifest
/// says. Its form is Open MPI's or MPICH's ([`crate::hostfile`]).
///
/// ```
/// use longarm_managers::kubernetes::operator_host_file;
/// let set = |name: &str| (name == "HYDRA_HOST_FILE").then(|| "/etc/mpi/hostfile".to_owned());
/// assert_eq!(operator_host_file(&set).as_deref(), Some("/etc/mpi/hostfile"));
/// ```
pub fn operator_host_file(environment: Environment<'_>) -> Option<String> {
    let variables = [
        "OMPI_MCA_orte_default_hostfile",
        "PRTE_MCA_prte_default_hostfile",
        "I_MPI_HYDRA_HOST_FILE",
        "HYDRA_HOST_FILE",
    ];
    variables.into_iter().find_map(environment).filter(|file| file == "/etc/mpi/hostfile")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(set: &[(&str, &str)]) -> Result<Option<Pod>, PodError> {
        Pod::from_environment(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_pods_of_a_job_set_are_called_by_theirs_and_the_service() {
        let set = [(INDEX, "2"), (SIZE, "3"), ("HOSTNAME", "set-workers-0-2"), (SERVICE, "set")];
        let hosts = pod(&set).unwrap().unwrap().hosts();
        let names: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["set-workers-0-0.set", "set-workers-0-1.set", "set-workers-0-2.set"]);
    }

    #[test]
    fn a_full_name_is_cut_at_its_first_dot_and_without_a_service_names_stand_alone() {
        let pod =
            pod(&[(INDEX, "1"), (SIZE, "2"), ("HOSTNAME", "job-1.peers.space.svc.cluster.local")]).unwrap().unwrap();
        assert_eq!(pod.host_name(0), "job-0");
    }

    #[test]
    fn what_the_manifest_lacks_is_said() {
        assert_eq!(pod(&[("HOSTNAME", "job-1")]), Ok(None));
        assert_eq!(pod(&[(INDEX, "1"), ("HOSTNAME", "job-1")]), Err(PodError::NoSize { index: 1 }));
        let without_name = pod(&[(INDEX, "1"), (SIZE, "2")]).unwrap_err();
        assert!(without_name.to_string().contains("HOSTNAME"), "{without_name}");
        for name in ["job", "job-2", "-1", "1", "job-01"] {
            let error = pod(&[(INDEX, "1"), (SIZE, "2"), ("HOSTNAME", name)]).unwrap_err();
            assert_eq!(error, PodError::BadName { index: 1, name: name.to_owned() });
        }
        let set = [(INDEX, "1"), (SIZE, "2"), ("HOSTNAME", "job-1"), (SERVICE, "a b")];
        assert_eq!(pod(&set), Err(PodError::BadService { name: "a b".to_owned() }));
        assert_eq!(pod(&[(INDEX, "1"), (SIZE, "4294967295")]), Err(PodError::TooMany { size: u32::MAX }));
        assert!(matches!(pod(&[(INDEX, "2"), (SIZE, "2")]), Err(PodError::Environment(_))));
    }
}
