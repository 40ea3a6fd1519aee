//! Ranks that a process manager has started which keeps a store for them: PMI-1 (`mpiexec` of MPICH and of Intel MPI, Slurm's pmi2, Flux)
//! and PMIx (Open MPI, PRRTE, Slurm's pmix, where one process of a node speaks for all). Rank 0 puts one text there, and all others get it.
//!
//! A process meets its manager once. What the ranks say to each other from then on goes over the coordinator's connections, also in
//! the worlds that come after the first.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use longarm_managers::slurm::Step;
use longarm_managers::{pmi1, pmix};
use parking_lot::Mutex;

use super::alone::alone;
use super::member::{self, Manager};
use super::neighbours::{Leader, Neighbours};
use super::patience::Patience;
use super::rendezvous::Found;
use super::speaker::{LocalTasks, Telling};
use super::starter::watching_starter;
use super::way::{Bootstrap, NotJoined, Sight, Variables};
use crate::config::{Config, OnFailure};
use crate::error::InitError;

/// Under which name rank 0's text stands in the store.
const KEY: &str = "longarm-invitation";

/// The conversation with a process manager, as far as a job needs it.
trait Store: Send {
    /// Rank 0's text is put there by rank 0, and got by all. Collective.
    fn share(&mut self, text: Option<&str>) -> Result<Vec<u8>, String>;

    /// What ends when the manager does, if this process has such a thing.
    fn connection(&self) -> std::io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// All ranks have met.
    fn all_have_come(&mut self) {}

    /// This process needs it no more.
    fn finalize(self: Box<Self>) -> Result<(), String>;
}

impl Store for pmi1::Client {
    fn share(&mut self, text: Option<&str>) -> Result<Vec<u8>, String> {
        text.map_or(Ok(()), |text| self.put(KEY, text.as_bytes())).map_err(|error| error.to_string())?;
        self.barrier().and_then(|()| self.get(KEY)).map_err(|error| error.to_string())
    }

    fn connection(&self) -> std::io::Result<Option<OwnedFd>> {
        pmi1::Client::connection(self)
    }

    fn finalize(self: Box<Self>) -> Result<(), String> {
        pmi1::Client::finalize(*self).map_err(|error| error.to_string())
    }
}

impl Store for pmix::Client {
    fn share(&mut self, text: Option<&str>) -> Result<Vec<u8>, String> {
        text.map_or(Ok(()), |text| self.put(KEY, text.as_bytes())).map_err(|error| error.to_string())?;
        self.barrier().and_then(|()| self.get(0, KEY)).map_err(|error| error.to_string())
    }

    fn finalize(self: Box<Self>) -> Result<(), String> {
        pmix::Client::finalize(*self).map_err(|error| error.to_string())
    }
}

/// PMIx where one process of a node speaks: nobody waits for the processes that do not, and those are told.
struct Speaker {
    client: pmix::Client,
    /// Where the others of the node ask, until they are told.
    others: Option<Leader>,
    telling: Option<Telling>,
    patience: Patience,
}

impl Store for Speaker {
    fn share(&mut self, text: Option<&str>) -> Result<Vec<u8>, String> {
        let seconds = self.patience.seconds_left();
        let client = &mut self.client;
        let put = text.map_or(Ok(()), |text| client.put(KEY, text.as_bytes()));
        let text = put.and_then(|()| client.commit()).and_then(|()| client.get_within(0, KEY, seconds));
        let text = text.map_err(|error| error.to_string())?;
        if let Some(others) = self.others.take() {
            let telling = Telling::begin(others, text.clone());
            let failed = |error: &std::io::Error| tracing::warn!(%error, "the other ranks of this node are not told");
            self.telling = telling.inspect_err(failed).ok();
        }
        Ok(text)
    }

    fn all_have_come(&mut self) {
        self.telling = None;
    }

    fn finalize(self: Box<Self>) -> Result<(), String> {
        self.client.finalize().map_err(|error| error.to_string())
    }
}

/// What a process was told by the one that speaks for its node.
struct ToldByLeader(Vec<u8>);

impl Store for ToldByLeader {
    fn share(&mut self, _text: Option<&str>) -> Result<Vec<u8>, String> {
        Ok(self.0.clone())
    }

    fn finalize(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

/// What ends the job, whatever another thread says to the manager.
type Abort = Box<dyn Fn(i32) -> bool + Send + Sync>;

/// A process manager.
struct Managed {
    rank: u32,
    size: u32,
    on_one_machine: Option<bool>,
    neighbours: Option<Neighbours>,
    store: Mutex<Option<Box<dyn Store>>>,
    abort: Abort,
    patience: Patience,
}

impl Manager for Managed {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn is_on_one_machine(&self) -> Result<Option<bool>, String> {
        Ok(self.on_one_machine)
    }

    fn share(&self, text: Option<String>) -> Result<String, String> {
        let store = self.store.lock().take().ok_or("this process has left its process manager")?;
        let (store, bytes) = share_within(store, text, self.patience)?;
        *self.store.lock() = Some(store);
        String::from_utf8(bytes)
            .map_err(|_| "the process manager gave something that rank 0 has not put there".to_owned())
    }

    fn neighbours(&self) -> Option<Neighbours> {
        self.neighbours
    }

    fn all_have_come(&self) {
        if let Some(store) = self.store.lock().as_mut() {
            store.all_have_come();
        }
    }

    fn abort(&self, status: i32) -> bool {
        (self.abort)(status)
    }

    fn connection(&self) -> std::io::Result<Option<OwnedFd>> {
        // Who has taken leave of its manager hears nothing of it any more.
        self.store.lock().as_ref().map_or(Ok(None), |store| store.connection())
    }

    fn leave(&self) {
        let Some(store) = self.store.lock().take() else { return };
        // The time to meet is over long since: this takes its own.
        let finalized = self.patience.anew().ask(move || store.finalize());
        let finalized = finalized.and_then(|answer| answer.unwrap_or_else(|| Err("it has not answered".to_owned())));
        if let Err(reason) = finalized {
            tracing::warn!(reason, "the process manager did not take leave of this process");
        }
    }
}

/// Shares a text, and gives up after a while: a manager waits for ever for a host that is gone, and so would all ranks.
fn share_within(
    mut store: Box<dyn Store>,
    text: Option<String>,
    patience: Patience,
) -> Result<(Box<dyn Store>, Vec<u8>), String> {
    let shared = patience.ask(move || store.share(text.as_deref()).map(|bytes| (store, bytes)))?;
    shared.unwrap_or_else(|| {
        Err(format!(
            "the process manager has not brought all ranks together within {} s; either some of them did not call longarm::init, or a \
             host or its link is gone (LONGARM_MEET_TIMEOUT_S says how long they may take)",
            patience.seconds()
        ))
    })
}

/// Meets a manager, and gives up after a while: one that is stopped, or whose listening socket outlives it in other processes, never answers.
fn meet_within<C: Send + 'static>(
    patience: Patience,
    connect: impl FnOnce() -> Result<Option<C>, NotJoined> + Send + 'static,
) -> Result<C, NotJoined> {
    let overdue = || {
        format!(
            "the process manager has not taken this process in within {} s: its process on this host was ended or stopped \
             (LONGARM_MEET_TIMEOUT_S says how long it may take)",
            patience.seconds()
        )
    };
    let answer = patience.ask(connect).and_then(|answer| answer.ok_or_else(overdue)).map_err(failed)?;
    answer?.ok_or_else(|| NotJoined::Unusable("its variables are not set any more".to_owned()))
}

/// The manager is the right one, so that no other way leads to the others.
fn failed(reason: String) -> NotJoined {
    NotJoined::Failed(InitError::Exchange { reason })
}

/// The variables of this process with these names, for a thread that may outlive whoever asks.
fn copied(
    variables: Variables<'_>,
    names: impl IntoIterator<Item = &'static str>,
) -> impl Fn(&str) -> Option<String> + Send + 'static {
    let values: Vec<_> = names.into_iter().map(|name| (name, variables(name))).collect();
    move |wanted| values.iter().find(|(name, _)| *name == wanted).and_then(|(_, value)| value.clone())
}

/// Joins a job by such a manager. Collective over its processes.
fn join(managed: Managed, config: &mut Config) -> Result<Found, NotJoined> {
    if managed.size == 1 {
        managed.leave();
        return Ok((None, alone()?));
    }
    Ok(member::join(Arc::new(managed), config)?)
}

/// PMI-1.
pub(crate) struct ByPmi1;

impl Bootstrap for ByPmi1 {
    fn name(&self) -> &'static str {
        "PMI-1"
    }

    fn look(&self, variables: Variables<'_>, _config: &Config) -> Sight {
        let is_there = variables("PMI_FD").is_some() || variables("PMI_PORT").is_some();
        if is_there { Sight::Usable } else { Sight::Nothing }
    }

    fn join(&self, variables: Variables<'_>, config: &mut Config) -> Result<Found, NotJoined> {
        watching_starter(variables, || join_by_pmi1(variables, config))
    }
}

fn join_by_pmi1(variables: Variables<'_>, config: &mut Config) -> Result<Found, NotJoined> {
    let (patience, seen) = (Patience::of(config), copied(variables, pmi1::VARIABLES));
    let client = meet_within(patience, move || pmi1::Client::connect(&seen).map_err(not_joined_by_pmi1))?;
    let aborter = client.aborter().map_err(|error| NotJoined::Unusable(error.to_string()))?;
    if config.on_failure == OnFailure::Continue {
        // By it hydra tells those that it leaves alive of a death.
        let outlived = longarm_memory::outlive_signal(libc::SIGUSR1);
        outlived.unwrap_or_else(|error| tracing::warn!(%error, "a death may end this rank as well"));
    }
    let (rank, size) = (client.rank(), client.size());
    // Hydra says how many of its processes are here.
    let here = variables("MPI_LOCALNRANKS").and_then(|here| here.trim().parse::<u32>().ok());
    let managed = Managed {
        rank,
        size,
        on_one_machine: here.filter(|here| *here == size).map(|_| true),
        neighbours: neighbours(variables, rank, size),
        store: Mutex::new(Some(Box::new(client))),
        patience,
        abort: Box::new(move |status| aborter.as_ref().is_some_and(|aborter| aborter.abort(status).is_ok())),
    };
    join(managed, config)
}

fn not_joined_by_pmi1(error: pmi1::Pmi1Error) -> NotJoined {
    match error {
        pmi1::Pmi1Error::Closed { .. } | pmi1::Pmi1Error::ClosedBefore | pmi1::Pmi1Error::Connection(_) => {
            failed(error.to_string())
        }
        other => NotJoined::Unusable(other.to_string()),
    }
}

/// What a manager with PMI-1 tells each process of the others on its host: hydra and Intel's in the first pair, Slurm where it is the one
/// that has started this process as a task.
fn neighbours(variables: Variables<'_>, rank: u32, size: u32) -> Option<Neighbours> {
    let number = |name: &str| variables(name)?.trim().parse::<u32>().ok();
    let by_hydra = Neighbours::of(number("MPI_LOCALRANKID"), number("MPI_LOCALNRANKS"));
    by_hydra.or_else(|| {
        let step = Step::from_environment(&|name| variables(name)).ok().flatten()?;
        let is_own = (step.rank, step.size) == (rank, size);
        is_own.then(|| Neighbours::of(Some(step.local_id), Some(step.local_size()))).flatten()
    })
}

/// PMIx, by the library that the machine has.
pub(crate) struct ByPmix;

impl Bootstrap for ByPmix {
    fn name(&self) -> &'static str {
        "PMIx"
    }

    fn look(&self, variables: Variables<'_>, _config: &Config) -> Sight {
        if pmix::is_there(&|name| variables(name)) { Sight::Usable } else { Sight::Nothing }
    }

    fn join(&self, variables: Variables<'_>, config: &mut Config) -> Result<Found, NotJoined> {
        watching_starter(variables, || join_by_pmix(variables, config))
    }
}

fn join_by_pmix(variables: Variables<'_>, config: &mut Config) -> Result<Found, NotJoined> {
    let patience = Patience::of(config);
    let tasks = LocalTasks::find(variables);
    if let Some(told) = tasks.as_ref().filter(|tasks| !tasks.is_speaker()).and_then(|tasks| told(tasks, patience)) {
        return join(told, config);
    }
    // From now on the others of the node wait here, while this process meets its server.
    let others = tasks.as_ref().and_then(LocalTasks::open);
    let told_by_step = tasks
        .as_ref()
        .map(|LocalTasks { step, .. }| LocalPosition { place: Some(step.local_id), here: Some(step.local_size()) });
    let seen = copied(variables, pmix::variables());
    let connect = move || {
        let Some(client) = pmix::Client::connect(&seen).map_err(not_joined_by_pmix)? else { return Ok(None) };
        let placed = told_by_step.map_or_else(|| LocalPosition::by_server(&client), Ok).map_err(not_joined_by_pmix)?;
        Ok(Some((client, placed)))
    };
    let (client, LocalPosition { place, here }) = meet_within(patience, connect)?;
    let aborter = client.aborter();
    let (rank, size) = (client.rank(), client.size());
    let store: Box<dyn Store> = match tasks {
        Some(_) => Box::new(Speaker { client, others, telling: None, patience }),
        None => Box::new(client),
    };
    let managed = Managed {
        rank,
        size,
        on_one_machine: here.filter(|here| *here == size).map(|_| true),
        neighbours: Neighbours::of(place, here),
        store: Mutex::new(Some(store)),
        patience,
        abort: Box::new(move |status| aborter.abort(status, "the job cannot go on").is_ok()),
    };
    join(managed, config)
}

/// A library of MPI may know its way to a server that this one does not get on with, but to none that is gone: it would take each process for
/// a job of its own.
fn not_joined_by_pmix(error: pmix::PmixError) -> NotJoined {
    match error {
        pmix::PmixError::Gone { .. } => failed(error.to_string()),
        other => NotJoined::Unusable(other.to_string()),
    }
}

/// Where a process is among those of its job on its host, as far as its manager says.
struct LocalPosition {
    place: Option<u32>,
    here: Option<u32>,
}

impl LocalPosition {
    fn by_server(client: &pmix::Client) -> Result<LocalPosition, pmix::PmixError> {
        let here = client.local_size()?;
        Ok(LocalPosition { place: client.place(client.rank()).ok().and_then(|place| place.local_rank), here })
    }
}

/// A process for which another one of its node speaks. Nothing, where that one is not found, or cannot speak.
fn told(tasks: &LocalTasks, patience: Patience) -> Option<Managed> {
    let failed = |error: &std::io::Error| {
        tracing::warn!(%error, "the rank that speaks with PMIx for this node tells nothing: this one speaks itself");
    };
    let text = tasks.hear(patience.until()).inspect_err(failed).ok()?;
    let Step { rank, size, local_id, .. } = tasks.step;
    let here = tasks.step.local_size();
    Some(Managed {
        rank,
        size,
        on_one_machine: (here == size).then_some(true),
        neighbours: Neighbours::of(Some(local_id), Some(here)),
        store: Mutex::new(Some(Box::new(ToldByLeader(text)))),
        patience,
        // Rank 0's process has the manager end the job.
        abort: Box::new(|_| false),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc;

    use super::*;

    /// A manager one of whose hosts is gone.
    struct Stuck(mpsc::Receiver<()>);

    impl Store for Stuck {
        fn share(&mut self, _text: Option<&str>) -> Result<Vec<u8>, String> {
            self.0.recv().map(|()| b"come in".to_vec()).map_err(|error| error.to_string())
        }

        fn finalize(self: Box<Self>) -> Result<(), String> {
            self.0.recv().map_err(|error| error.to_string())
        }
    }

    fn managed(store: Stuck, patience: Patience) -> Managed {
        Managed {
            rank: 0,
            size: 2,
            on_one_machine: None,
            neighbours: None,
            store: Mutex::new(Some(Box::new(store))),
            abort: Box::new(|_| false),
            patience,
        }
    }

    #[test]
    fn a_manager_that_never_answers_is_given_up_with_a_word_about_what_to_set() {
        let (_sender, receiver) = mpsc::channel();
        let given_up = share_within(Box::new(Stuck(receiver)), None, Patience::of_millis(20));
        let reason = given_up.map(|(_, bytes)| bytes).unwrap_err();
        assert!(reason.contains("LONGARM_MEET_TIMEOUT_S"), "{reason}");
    }

    #[test]
    fn what_a_manager_brings_in_time_comes_back_with_it() {
        let (sender, receiver) = mpsc::channel();
        sender.send(()).unwrap();
        sender.send(()).unwrap();
        let (store, bytes) = share_within(Box::new(Stuck(receiver)), None, Patience::of_millis(3_600_000)).unwrap();
        assert_eq!((bytes.as_slice(), store.finalize()), (&b"come in"[..], Ok(())));
    }

    #[test]
    fn a_manager_that_takes_no_leave_keeps_no_rank() {
        let (_sender, receiver) = mpsc::channel();
        let managed = managed(Stuck(receiver), Patience::of_millis(20));
        managed.leave();
        assert!(managed.store.lock().is_none(), "it is asked once");
    }

    #[test]
    fn a_port_of_pmi_where_nobody_answers_is_given_up_and_no_other_way_is_tried() {
        // As that of hydra's proxy, which its ranks inherit, when the proxy is gone.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let variables = |name: &str| match name {
            "PMI_PORT" => Some(address.clone()),
            "PMI_ID" => Some("1".to_owned()),
            _ => None,
        };
        let mut config = Config::default();
        config.meet_timeout_s = 1;
        let joined = ByPmi1.join(&variables, &mut config);
        let Err(NotJoined::Failed(error)) = joined else { panic!("it has met nobody") };
        assert!(error.to_string().contains("LONGARM_MEET_TIMEOUT_S"), "{error}");
    }

    #[test]
    fn a_manager_that_hangs_up_or_whose_server_is_gone_is_no_reason_to_look_for_another_way() {
        let closed = not_joined_by_pmi1(pmi1::Pmi1Error::Closed { wanted: "maxes" });
        let gone = not_joined_by_pmix(pmix::PmixError::Gone { said: "UNREACHABLE".to_owned() });
        assert!(matches!((closed, gone), (NotJoined::Failed(_), NotJoined::Failed(_))));
        let other = not_joined_by_pmix(pmix::PmixError::TooOld { version: "2".to_owned() });
        assert!(matches!(other, NotJoined::Unusable(_)));
    }
}
