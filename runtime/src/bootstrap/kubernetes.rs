//! Pods of an indexed Job of Kubernetes, one rank each. The manifest says how many there are (`LONGARM_SIZE`), by which headless service
//! they find each other (`LONGARM_SERVICE`), and mounts a secret that none but they can read (`LONGARM_SECRET_FILE`).

use std::io;
use std::net::TcpListener;

use longarm_control::proof::Ticket;
use longarm_managers::kubernetes::{INDEX, Pod};

use super::alone::alone;
use super::explicit::{enter, enter_listening, read_secret};
use super::listening::listen_everywhere;
use super::rendezvous::Found;
use super::way::{Bootstrap, NotJoined, Sight, Variables};
use crate::config::Config;

/// Where rank 0 listens in its pod: each pod has a network of its own.
const PORT: u16 = 7171;

/// See the module.
pub(crate) struct ByIndex;

impl Bootstrap for ByIndex {
    fn name(&self) -> &'static str {
        "an indexed Job of Kubernetes"
    }

    fn look(&self, variables: Variables<'_>, config: &Config) -> Sight {
        // Who is told its rank is not told by its pod's number.
        if variables(INDEX).is_none() || variables("LONGARM_RANK").is_some() {
            return Sight::Nothing;
        }
        match Pod::from_environment(&|name| variables(name)) {
            Ok(None) => Sight::Nothing,
            Ok(Some(pod)) if pod.size > 1 && config.secret_file.is_empty() => Sight::Unusable(
                "LONGARM_SECRET_FILE is not set: mount a secret into all pods, and name its file there".to_owned(),
            ),
            Ok(Some(_)) => Sight::Usable,
            Err(error) => Sight::Unusable(error.to_string()),
        }
    }

    fn join(&self, variables: Variables<'_>, config: &mut Config) -> Result<Found, NotJoined> {
        let pod = Pod::from_environment(&|name| variables(name));
        let pod = pod.map_err(|error| NotJoined::Unusable(error.to_string()))?;
        let pod = pod.ok_or_else(|| NotJoined::Unusable("its variables are not set any more".to_owned()))?;
        if pod.size == 1 {
            return Ok((None, alone()?));
        }
        let ticket = Ticket::of_secret(&read_secret(&config.secret_file)?, pod.size);
        if !config.root.is_empty() {
            return Ok(enter(config.root.clone(), ticket, pod.index, None, config)?);
        }
        let address = format!("{}:{PORT}", pod.host_name(0));
        // A pod has one rank.
        Ok(enter_listening(address, ticket, pod.index, None, || listen(PORT), config)?)
    }
}

/// How pod 0 listens: everywhere, because its own name may get its address some time after it has started. Then it looks for itself
/// by that name as the others do, until it is found.
fn listen(port: u16) -> io::Result<Vec<TcpListener>> {
    Ok(vec![listen_everywhere(port)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(variables: &[(&str, &str)], secret_file: &str) -> Sight {
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let mut config = Config::default();
        secret_file.clone_into(&mut config.secret_file);
        ByIndex.look(&value, &config)
    }

    #[test]
    fn a_pod_needs_to_know_how_many_there_are_and_a_secret() {
        let pod = [("JOB_COMPLETION_INDEX", "1"), ("HOSTNAME", "train-1"), ("LONGARM_SIZE", "2")];
        let missing = |sight: Sight, name: &str| matches!(sight, Sight::Unusable(reason) if reason.contains(name));
        assert_eq!(look(&[], "secret"), Sight::Nothing);
        assert_eq!(look(&pod, "secret"), Sight::Usable);
        assert!(missing(look(&pod, ""), "LONGARM_SECRET_FILE"));
        assert!(missing(look(&pod[..2], "secret"), "LONGARM_SIZE"));
        let told = [pod[0], pod[1], pod[2], ("LONGARM_RANK", "0")];
        assert_eq!(look(&told, "secret"), Sight::Nothing, "that is another way");
    }

    #[test]
    fn pod_0_listens_at_every_address_without_asking_for_its_own_name() {
        let listeners = listen(0).unwrap();
        let places: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap().ip()).collect();
        assert!(places.iter().all(std::net::IpAddr::is_unspecified), "{places:?}");
        assert_eq!(places.len(), 1);
    }
}
