//! Ranks that were started one by one, and told their place: `LONGARM_RANK`, `LONGARM_SIZE`, where rank 0
//! listens (`LONGARM_ROOT`), and a secret that all of them can read and nobody else (`LONGARM_SECRET_FILE`).

use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use longarm_control::proof::Ticket;

use super::alone::alone;
use super::assembly::CoordinatorAddress;
use super::listening::listen_at;
use super::member::{self, Entry};
use super::neighbours::Neighbours;
use super::rendezvous::Found;
use super::way::{Bootstrap, NotJoined, Sight, Variables};
use crate::config::Config;
use crate::error::InitError;

/// A secret shorter than this could be guessed.
const SECRET_BYTES_MIN: usize = 16;
/// What is longer is something else.
const SECRET_BYTES_MAX: usize = 1 << 16;

/// See the module.
pub(crate) struct Explicit;

/// Who this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RankAndSize {
    rank: u32,
    size: u32,
}

impl Bootstrap for Explicit {
    fn name(&self) -> &'static str {
        "LONGARM_RANK, LONGARM_SIZE, LONGARM_ROOT and LONGARM_SECRET_FILE"
    }

    fn look(&self, variables: Variables<'_>, config: &Config) -> Sight {
        let is_meant = variables("LONGARM_RANK").is_some() || variables("LONGARM_SIZE").is_some();
        // LONGARM_ROOT alone may be a module system's name for where longarm is installed.
        if !is_meant {
            return Sight::Nothing;
        }
        match place(variables) {
            Ok(place) if place.size == 1 => Sight::Usable,
            Ok(_) if config.root.is_empty() => {
                Sight::Unusable("LONGARM_ROOT is not set: the host and port at which rank 0 is to listen".to_owned())
            }
            Ok(_) if config.secret_file.is_empty() => Sight::Unusable(
                "LONGARM_SECRET_FILE is not set: a file with random bytes that the job's processes can read, and nobody else"
                    .to_owned(),
            ),
            Ok(_) => neighbours(variables).map_or_else(Sight::Unusable, |_| Sight::Usable),
            Err(reason) => Sight::Unusable(reason),
        }
    }

    fn join(&self, variables: Variables<'_>, config: &mut Config) -> Result<Found, NotJoined> {
        let place = place(variables).map_err(NotJoined::Unusable)?;
        if place.size == 1 {
            return Ok((None, alone()?));
        }
        let neighbours = neighbours(variables).map_err(NotJoined::Unusable)?;
        let ticket = Ticket::of_secret(&read_secret(&config.secret_file)?, place.size);
        Ok(enter(config.root.clone(), ticket, place.rank, neighbours, config)?)
    }
}

/// Joins a job whose rank 0 listens where all know it. Collective.
pub(crate) fn enter(
    address: String,
    ticket: Ticket,
    rank: u32,
    neighbours: Option<Neighbours>,
    config: &mut Config,
) -> Result<Found, InitError> {
    let place = address.clone();
    let listen = || listen_at(&place, &CoordinatorAddress::Named(place.clone()).resolve()?);
    enter_listening(address, ticket, rank, neighbours, listen, config)
}

/// The same, where rank 0 has a way of its own to listen.
pub(crate) fn enter_listening(
    address: String,
    ticket: Ticket,
    rank: u32,
    neighbours: Option<Neighbours>,
    listen: impl FnOnce() -> io::Result<Vec<TcpListener>>,
    config: &mut Config,
) -> Result<Found, InitError> {
    let mut coordinator = None;
    if rank == 0 {
        let listeners = listen().map_err(|source| InitError::CoordinatorListen { at: address.clone(), source })?;
        coordinator = Some(member::start_coordinator(listeners, &ticket, None, config)?);
    }
    member::enter(
        Entry { address: CoordinatorAddress::Named(address), ticket, rank, neighbours, coordinator, manager: None },
        config,
    )
}

/// Which of this host's ranks this one is, where that was told.
fn neighbours(variables: Variables<'_>) -> Result<Option<Neighbours>, String> {
    if variables("LONGARM_LOCAL_RANK").is_none() && variables("LONGARM_LOCAL_SIZE").is_none() {
        return Ok(None);
    }
    let (place, count) = (number(variables, "LONGARM_LOCAL_RANK")?, number(variables, "LONGARM_LOCAL_SIZE")?);
    match Neighbours::of(Some(place), Some(count)) {
        None => Err(format!("LONGARM_LOCAL_RANK={place} is none of the {count} of its host (LONGARM_LOCAL_SIZE)")),
        neighbours => Ok(neighbours),
    }
}

fn number(variables: Variables<'_>, name: &str) -> Result<u32, String> {
    let value = variables(name).ok_or_else(|| format!("{name} is not set"))?;
    value.trim().parse().map_err(|_| format!("{name}={value} is no number"))
}

fn place(variables: Variables<'_>) -> Result<RankAndSize, String> {
    let place = RankAndSize { rank: number(variables, "LONGARM_RANK")?, size: number(variables, "LONGARM_SIZE")? };
    match place {
        RankAndSize { size: 0, .. } => Err("LONGARM_SIZE is 0".to_owned()),
        RankAndSize { rank, size } if rank >= size => Err(format!("LONGARM_RANK={rank} is no rank of {size}")),
        place => Ok(place),
    }
}

/// The bytes of the secret. Blanks around it are none of it, so that a line of text can be one.
pub(crate) fn read_secret(path: &str) -> Result<Vec<u8>, InitError> {
    let unread = |source| InitError::SecretFile { path: path.to_owned(), source };
    let file = std::fs::metadata(path).map_err(unread)?;
    if file.permissions().mode() & 0o004 != 0 {
        tracing::warn!(path, "every user of this host can read the file that LONGARM_SECRET_FILE names");
    }
    let bytes = std::fs::read(path).map_err(unread)?;
    let secret = bytes.trim_ascii();
    if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
        Ok(secret.to_vec())
    } else {
        let (path, found) = (path.to_owned(), secret.len());
        Err(InitError::SecretLength { path, found, min: SECRET_BYTES_MIN, max: SECRET_BYTES_MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(variables: &[(&str, &str)], address: &str, secret_file: &str) -> Sight {
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let mut config = Config::default();
        (config.root, config.secret_file) = (address.to_owned(), secret_file.to_owned());
        Explicit.look(&value, &config)
    }

    #[test]
    fn what_is_missing_of_the_four_is_said() {
        let both = [("LONGARM_RANK", "1"), ("LONGARM_SIZE", "2")];
        assert_eq!(look(&[], "", ""), Sight::Nothing);
        assert_eq!(look(&both, "host:1", "file"), Sight::Usable);
        let missing = |sight: Sight, name: &str| matches!(sight, Sight::Unusable(reason) if reason.contains(name));
        assert!(missing(look(&both[..1], "host:1", "file"), "LONGARM_SIZE"));
        assert!(missing(look(&both, "", "file"), "LONGARM_ROOT"));
        assert!(missing(look(&both, "host:1", ""), "LONGARM_SECRET_FILE"));
        assert_eq!(look(&[], "host:1", "file"), Sight::Nothing, "a module system may say so where longarm is");
        assert!(missing(look(&both[1..], "host:1", "file"), "LONGARM_RANK"));
        assert!(missing(look(&[("LONGARM_RANK", "2"), ("LONGARM_SIZE", "2")], "host:1", "file"), "no rank of 2"));
        assert!(missing(look(&[("LONGARM_RANK", "x"), ("LONGARM_SIZE", "2")], "host:1", "file"), "no number"));
        assert_eq!(look(&[("LONGARM_RANK", "0"), ("LONGARM_SIZE", "1")], "", ""), Sight::Usable, "one needs nobody");
    }

    #[test]
    fn what_a_rank_is_told_of_its_host_is_used_or_refused_and_not_passed_over() {
        let told = |local: &[(&str, &str)]| {
            let both = [("LONGARM_RANK", "1"), ("LONGARM_SIZE", "4")];
            look(&[&both[..], local].concat(), "host:1", "file")
        };
        let (place, count) = (("LONGARM_LOCAL_RANK", "1"), ("LONGARM_LOCAL_SIZE", "2"));
        assert_eq!((told(&[]), told(&[place, count])), (Sight::Usable, Sight::Usable));
        for (local, reason) in [
            (&[("LONGARM_LOCAL_RANK", "abc"), count][..], "LONGARM_LOCAL_RANK=abc is no number"),
            (&[place, ("LONGARM_LOCAL_SIZE", "-2")], "LONGARM_LOCAL_SIZE=-2 is no number"),
            (&[place], "LONGARM_LOCAL_SIZE is not set"),
            (&[count], "LONGARM_LOCAL_RANK is not set"),
            (
                &[place, ("LONGARM_LOCAL_SIZE", "1")],
                "LONGARM_LOCAL_RANK=1 is none of the 1 of its host (LONGARM_LOCAL_SIZE)",
            ),
        ] {
            assert_eq!(told(local), Sight::Unusable(reason.to_owned()));
        }
    }
}
