//! A rank's side of the conversation with its launcher, which may be a coordinator in the process of rank 0.
//!
//! One thread reads: it notes deaths, hands cards to the calls that asked, tells the launcher which threads wait, and sees to the end
//! of the process when the launcher is gone. The conversation lasts as long as the process, and a process that has left its world
//! may join again over it. What differs between launchers is a [`Patron`]'s.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm_control::messages::{CARDS_MAX, CONTROL_FD_VARIABLE, CONTROL_VERSION, FromRank, NodeCard, Start, ToRank};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::own_end;
use super::rendezvous::{Counted, OnDeath, OnInquiry, OnLoss, OnNodeCard, Rendezvous};
use crate::error::InitError;

/// How long the launcher may take to tell of a death that shows already.
const NEWS: Duration = Duration::from_secs(2);

/// The launcher of this process, once found: in this process it stays the same.
static FOUND: Mutex<Option<Arc<Launcher>>> = Mutex::new(None);

/// What was heard since this rank has joined, the last time.
#[derive(Default)]
struct Heard {
    start: Option<Start>,
    cards: HashMap<u32, NodeCard>,
    /// The nodes whose cards were asked for.
    asked: HashSet<u32>,
    goodbye: bool,
    /// Those behind this process are told why it ends the job. No goodbye says so, which may be under way already when it does.
    others_are_told: bool,
    /// The other end has hung up: nothing is heard any more.
    is_over: bool,
    died: Vec<(u32, String)>,
    /// Those of them that whoever watches has not been told.
    untold: VecDeque<(u32, String)>,
    /// Some thread is telling them, and will tell those that come meanwhile: so they are told in their order.
    is_telling: bool,
    on_node_card: Option<OnNodeCard>,
    on_death: Option<OnDeath>,
    on_inquiry: Option<OnInquiry>,
    /// The ranks that can reach this node no more, and why, until somebody watches.
    lost: Vec<(u32, String)>,
    on_loss: Option<OnLoss>,
}

impl Heard {
    /// Whether a rank that ends the job may end itself, as far as those behind it are concerned.
    fn lets_go(&self) -> bool {
        self.others_are_told || self.is_over
    }
}

/// Who stands behind the conversation: what is done at its end, and at that of the job.
pub(crate) trait Patron: Send + Sync {
    /// What a rank is told may lack what must not travel over this connection.
    fn complete(&self, _start: &mut Start) {}

    /// The conversation for which this is, before it begins.
    fn accompany(&self, _launcher: &Arc<Launcher>) {}

    /// The other end has hung up while the job went on, after these deaths. Gives the death that is told for it, if it comes back.
    fn on_hang_up(&self, died: &[(u32, String)]) -> Option<(u32, String)>;

    /// A rank has died, and the others are not to go on: sees to the end of this process, if nobody else does.
    fn on_death(&self, _rank: u32, _how: &str) {}

    /// All have left.
    fn after_goodbye(&self) {}

    /// This process's world has gone, with a farewell or without.
    fn forget_world(&self) {}

    /// Why the job did not begin after all, though the ranks had met.
    fn on_no_start(&self, error: InitError) -> InitError {
        error
    }

    /// For how long a rank that has said why the job ends waits until others are told. Nothing: nobody hears of it through this process.
    fn telling_patience(&self) -> Option<Duration> {
        None
    }

    /// This rank has said why the job ends: `follows`, if only because another one has ended it. Ends it.
    fn abort(&self, _reason: &str, _status: i32, _follows: bool) {}
}

/// `longarm run`: it ends the ranks itself.
struct Run;

impl Patron for Run {
    fn on_hang_up(&self, _died: &[(u32, String)]) -> Option<(u32, String)> {
        // Without a launcher nobody would end this process: it ends itself.
        own_end::say_last("the launcher is gone, this rank ends");
        // What the program does at its exit may wait for others, and nobody tells of their end now.
        own_end::end_now();
    }
}

/// See the module.
pub(crate) struct Launcher {
    writer: Mutex<Box<dyn Write + Send>>,
    heard: Mutex<Heard>,
    changed: Condvar,
    patron: Box<dyn Patron>,
}

impl Launcher {
    /// The launcher that this process has joined before, and what it says of the job that all join now.
    pub(crate) fn joined_before() -> Result<Option<(Arc<Launcher>, Start)>, InitError> {
        let found = FOUND.lock();
        let Some(launcher) = &*found else { return Ok(None) };
        let start = launcher.join_again()?;
        Ok(Some((Arc::clone(launcher), start)))
    }

    /// The `longarm run` that started this process, if it did, and what it says of the job.
    pub(crate) fn find() -> Result<Option<(Arc<Launcher>, Start)>, InitError> {
        let Some(number) = std::env::var_os(CONTROL_FD_VARIABLE) else { return Ok(None) };
        let number = number.to_str().and_then(|number| number.parse().ok());
        let number = number.ok_or(InitError::BadControlVariable)?;
        let socket: OwnedFd = longarm_memory::adopt_descriptor(number).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput if number > 2 => InitError::JoinedBefore,
            _ => InitError::BadControlVariable,
        })?;
        let stream = UnixStream::from(socket);
        let reader = BufReader::new(stream.try_clone().map_err(InitError::Launcher)?);
        let (launcher, start) = Launcher::join(reader, Box::new(stream), Box::new(Run))?;
        launcher.keep();
        Ok(Some((launcher, start)))
    }

    /// Joins the job at the other end of a connection.
    pub(crate) fn join(
        mut reader: impl BufRead + Send + 'static,
        writer: Box<dyn Write + Send>,
        patron: Box<dyn Patron>,
    ) -> Result<(Arc<Launcher>, Start), InitError> {
        let heard = Mutex::new(Heard::default());
        let launcher = Arc::new(Launcher { writer: Mutex::new(writer), heard, changed: Condvar::new(), patron });
        launcher.patron.accompany(&launcher);
        match launcher.say_join() {
            // The other end may have said why before it went.
            Err(InitError::Launcher(error)) if is_end(&error) => {}
            said => said?,
        }
        let start = match read(&mut reader).map_err(|error| launcher.patron.on_no_start(error))? {
            ToRank::Start(start) => launcher.accepted(*start)?,
            ToRank::Died { rank, how } => return Err(InitError::Died { rank, how }),
            _ => return Err(InitError::LauncherGarbled),
        };
        launcher.heard.lock().start = Some(start.clone());
        let listener = Arc::clone(&launcher);
        std::thread::Builder::new()
            .name("longarm-control".into())
            .spawn(move || listener.listen(reader))
            .map_err(InitError::Launcher)?;
        Ok((launcher, start))
    }

    /// From now on this process joins over this conversation.
    pub(crate) fn keep(self: &Arc<Launcher>) {
        *FOUND.lock() = Some(Arc::clone(self));
    }

    /// Joins the others once more, when all have left.
    fn join_again(&self) -> Result<Start, InitError> {
        let mut heard = self.heard.lock();
        // Deaths since goodbye are told again.
        let (is_over, is_telling) = (heard.is_over, heard.is_telling);
        *heard = Heard { is_over, is_telling, ..Heard::default() };
        self.say_join()?;
        loop {
            if let Some(start) = &heard.start {
                return self.accepted(start.clone());
            }
            if heard.is_over {
                return Err(InitError::Launcher(std::io::ErrorKind::UnexpectedEof.into()));
            }
            self.changed.wait(&mut heard);
        }
    }

    fn say_join(&self) -> Result<(), InitError> {
        self.say(&FromRank::Join { version: CONTROL_VERSION, pid: std::process::id() })
    }

    /// Tells the coordinator that whoever has started this process is gone.
    pub(crate) fn say_orphaned(&self) -> Result<(), InitError> {
        self.say(&FromRank::Orphaned)
    }

    fn say(&self, message: &FromRank) -> Result<(), InitError> {
        let mut line = serde_json::to_vec(message).map_err(|_| InitError::LauncherGarbled)?;
        line.push(b'\n');
        self.writer.lock().write_all(&line).map_err(InitError::Launcher)
    }

    /// The rank that hosts the server of a node, and tells how it is reached.
    fn host_of(heard: &Heard, node: u32) -> Option<u32> {
        let nodes = &heard.start.as_ref()?.node_of_rank;
        nodes.iter().position(|own| *own == node).map(|rank| rank as u32)
    }

    /// How the host of a node's server died, if it is known to be dead.
    fn death_of_host(heard: &Heard, node: u32) -> Option<(u32, String)> {
        // Saves a search through all ranks for the host.
        if heard.died.is_empty() {
            return None;
        }
        let host = Launcher::host_of(heard, node);
        heard.died.iter().find(|(rank, _)| Some(*rank) == host).cloned()
    }

    /// The card of a node, which is asked for if it is not known.
    fn card_in(&self, heard: &mut Heard, node: u32) -> Result<Option<NodeCard>, InitError> {
        if let Some(card) = heard.cards.get(&node) {
            return Ok(Some(card.clone()));
        }
        if let Some((rank, how)) = Launcher::death_of_host(heard, node) {
            return Err(InitError::Died { rank, how });
        }
        if !heard.asked.contains(&node) {
            // As many as are known or asked for: the questions get fewer as a rank reaches more nodes, which are mostly called in order. Hundreds of
            // ranks ask the launcher at once, and each question waits.
            let count = (heard.cards.len().max(heard.asked.len()) as u32).clamp(1, CARDS_MAX);
            self.say(&FromRank::Fetch { first: node, count })?;
            heard.asked.insert(node);
            // This node's own is given to who asks for it first, and to nobody else.
            let own = heard.start.as_ref().and_then(|start| start.node_of_rank.get(start.rank as usize).copied());
            heard.asked.extend((node..node.saturating_add(count)).filter(|node| Some(*node) != own));
        }
        Ok(None)
    }

    /// What the launcher says of the job, if it speaks the same messages.
    fn accepted(&self, mut start: Start) -> Result<Start, InitError> {
        self.patron.complete(&mut start);
        match start.version {
            CONTROL_VERSION => Ok(start),
            found => Err(InitError::LauncherVersion { found }),
        }
    }

    fn listen(&self, mut reader: impl BufRead) {
        loop {
            let Ok(message) = read(&mut reader) else {
                self.handle_hang_up();
                return;
            };
            let mut heard = self.heard.lock();
            match message {
                ToRank::Cards { cards } => {
                    heard.cards.extend(cards.into_iter().map(|card| (card.node, card)));
                    let on_node_card = heard.on_node_card.clone();
                    // Without the lock: a call that goes on may ask for a card.
                    MutexGuard::unlocked(&mut heard, || on_node_card.iter().for_each(|on_node_card| on_node_card()));
                }
                ToRank::Died { rank, how } => self.handle_death(&mut heard, rank, &how),
                ToRank::CannotReachYou { rank, how } => {
                    heard.lost.push((rank, how));
                    Launcher::tell_losses(&mut heard);
                }
                ToRank::Inquire { inquiry } => {
                    // Without a world yet this rank waits in no call of it.
                    let on_inquiry = heard.on_inquiry.clone();
                    MutexGuard::unlocked(&mut heard, || {
                        let waits = on_inquiry.map(|on_inquiry| on_inquiry()).unwrap_or_default();
                        // A launcher that is gone is noticed by the next read.
                        let _ = self.say(&FromRank::Waits { inquiry, waits });
                    });
                }
                ToRank::Goodbye => heard.goodbye = true,
                ToRank::Told => heard.others_are_told = true,
                ToRank::Start(start) if heard.start.is_none() => heard.start = Some(*start),
                ToRank::Start(_) => tracing::warn!("the launcher started this rank twice"),
            }
            self.changed.notify_all();
        }
    }

    fn handle_death(&self, heard: &mut MutexGuard<'_, Heard>, rank: u32, how: &str) {
        heard.died.push((rank, how.to_owned()));
        heard.untold.push_back((rank, how.to_owned()));
        // Before anybody is told: who waits for this card need not wait for that.
        self.changed.notify_all();
        let survivors_go_on = heard.start.as_ref().is_some_and(|start| start.survivors_go_on);
        if !survivors_go_on {
            MutexGuard::unlocked(heard, || self.patron.on_death(rank, how));
        }
        Launcher::tell_deaths(heard);
    }

    /// Tells whoever watches of all deaths that it has not been told, unless another thread does.
    fn tell_deaths(heard: &mut MutexGuard<'_, Heard>) {
        if std::mem::replace(&mut heard.is_telling, true) {
            return;
        }
        while let Some(on_death) = heard.on_death.clone()
            && let Some((rank, how)) = heard.untold.pop_front()
        {
            // Not under the lock: whoever is told may ask for a card, or end the job, and so may what goes with it.
            MutexGuard::unlocked(heard, move || {
                on_death(rank, &how);
                drop(on_death);
            });
        }
        heard.is_telling = false;
    }

    /// Tells whoever watches which ranks can reach this node no more.
    fn tell_losses(heard: &mut MutexGuard<'_, Heard>) {
        let Some(on_loss) = heard.on_loss.clone() else { return };
        let lost = std::mem::take(&mut heard.lost);
        MutexGuard::unlocked(heard, move || {
            lost.iter().for_each(|(rank, how)| on_loss(*rank, how));
            drop(on_loss);
        });
    }

    /// Whoever is behind this process hears the reason for the job's end through it: it stays until they are told, or nobody can tell
    /// them. Whether it came to that in time.
    fn await_telling(&self) -> bool {
        let Some(patience) = self.patron.telling_patience() else { return true };
        let until = Instant::now() + patience;
        let mut heard = self.heard.lock();
        while !heard.lets_go() && !self.changed.wait_until(&mut heard, until).timed_out() {}
        heard.lets_go()
    }

    /// After goodbye, or once this process is let go to end the job, it is normal that nothing more comes.
    fn handle_hang_up(&self) {
        let mut heard = self.heard.lock();
        heard.is_over = true;
        self.changed.notify_all();
        if heard.goodbye || heard.others_are_told {
            return;
        }
        let died = heard.died.clone();
        let death = MutexGuard::unlocked(&mut heard, || self.patron.on_hang_up(&died));
        if let Some((rank, how)) = death.filter(|(rank, _)| !heard.died.iter().any(|(dead, _)| dead == rank)) {
            self.handle_death(&mut heard, rank, &how);
        }
    }
}

impl Rendezvous for Launcher {
    fn tells_deaths(&self) -> bool {
        true
    }

    fn watch_deaths(&self, on_death: OnDeath) {
        let mut heard = self.heard.lock();
        heard.on_death = Some(on_death);
        Launcher::tell_deaths(&mut heard);
    }

    fn watch_node_cards(&self, on_node_card: OnNodeCard) {
        self.heard.lock().on_node_card = Some(on_node_card);
    }

    fn watch_losses(&self, on_loss: OnLoss) {
        let mut heard = self.heard.lock();
        heard.on_loss = Some(on_loss);
        Launcher::tell_losses(&mut heard);
    }

    fn tell_loss(&self, node: u32, how: &str) {
        // A launcher that is gone is noticed by the next read.
        let _ = self.say(&FromRank::CannotReach { node, how: how.to_owned() });
    }

    fn explains_deaths(&self) -> bool {
        true
    }

    fn answer_inquiries(&self, on_inquiry: OnInquiry) {
        self.heard.lock().on_inquiry = Some(on_inquiry);
    }

    fn publish(&self, card: Option<NodeCard>) -> Result<(), InitError> {
        card.map_or(Ok(()), |card| self.say(&FromRank::Publish { card }))
    }

    fn card(&self, node: u32) -> Result<NodeCard, InitError> {
        let mut heard = self.heard.lock();
        loop {
            if let Some(card) = self.card_in(&mut heard, node)? {
                return Ok(card);
            }
            self.changed.wait(&mut heard);
        }
    }

    fn ask_card(&self, node: u32) -> Result<Option<NodeCard>, InitError> {
        self.card_in(&mut self.heard.lock(), node)
    }

    fn death_of_server(&self, node: u32) -> Option<(u32, String)> {
        let until = Instant::now() + NEWS;
        let mut heard = self.heard.lock();
        loop {
            let died = Launcher::death_of_host(&heard, node);
            if died.is_some() || self.changed.wait_until(&mut heard, until).timed_out() {
                return died;
            }
        }
    }

    fn leave(&self, counted: &dyn Fn() -> Counted) {
        // Where all talk to all that is an entry for each pair of ranks: sent only if somebody reads it.
        let is_wanted = self.heard.lock().start.as_ref().is_some_and(|start| start.stats);
        let Counted { traffic, network } = if is_wanted { counted() } else { Counted::default() };
        if self.say(&FromRank::Leave { traffic, network }).is_err() {
            return;
        }
        let mut heard = self.heard.lock();
        let survivors_go_on = heard.start.as_ref().is_some_and(|start| start.survivors_go_on);
        while !heard.goodbye && !heard.is_over && (survivors_go_on || heard.died.is_empty()) {
            self.changed.wait(&mut heard);
        }
        let goodbye = heard.goodbye;
        drop(heard);
        if goodbye {
            self.patron.after_goodbye();
        }
    }

    fn forget_world(&self) {
        let mut heard = self.heard.lock();
        // Dropped without the lock: what goes with them may ask for a card.
        let forgotten =
            (heard.on_node_card.take(), heard.on_death.take(), heard.on_inquiry.take(), heard.on_loss.take());
        drop(heard);
        drop(forgotten);
        self.patron.forget_world();
    }

    fn abort(&self, reason: &str, status: i32) {
        let is_said = self.say(&FromRank::Abort { reason: reason.to_owned(), status }).is_ok();
        let follows = self.heard.lock().died.iter().any(|(_, how)| reason.contains(how.as_str()));
        if is_said && !follows && !self.await_telling() {
            tracing::warn!("the ranks behind this one may not have heard why it ends the job");
        }
        self.patron.abort(reason, status, follows);
    }
}

fn read(reader: &mut impl BufRead) -> Result<ToRank, InitError> {
    let line = read_line(reader).map_err(InitError::Launcher)?;
    serde_json::from_str(&line).map_err(|_| InitError::LauncherGarbled)
}

/// A whole line. The end of a connection is the same however it shows: in the midst of a line, or with what the other end has not read.
pub(super) fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match reader.read_line(&mut line) {
        Ok(_) if line.ends_with('\n') => Ok(line),
        Err(error) if !is_end(&error) => Err(error),
        Ok(_) | Err(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Whether the other end has gone.
pub(super) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::alone::alone;

    /// A conversation over this stream, of which nothing was heard.
    fn launcher_over(stream: UnixStream, patron: impl Patron + 'static) -> Launcher {
        let writer: Mutex<Box<dyn Write + Send>> = Mutex::new(Box::new(stream));
        Launcher { writer, heard: Mutex::default(), changed: Condvar::new(), patron: Box::new(patron) }
    }

    #[test]
    fn who_hears_late_of_a_death_may_end_the_job_for_it() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let launcher = launcher_over(ours, Run);
        let launcher = Arc::new(launcher);
        launcher.handle_death(&mut launcher.heard.lock(), 3, "was killed");
        let (told, by) = (std::sync::mpsc::channel(), Arc::downgrade(&launcher));
        launcher.watch_deaths(Arc::new(move |rank, how| {
            let launcher = by.upgrade().expect("it is there");
            drop(launcher.heard.try_lock().expect("nobody holds it who tells of a death"));
            launcher.abort(how, 1);
            told.0.send(rank).expect("it is heard");
        }));
        assert_eq!(told.1.try_iter().collect::<Vec<_>>(), [3]);
        drop(launcher);
        let said: Vec<String> = BufReader::new(theirs).lines().map_while(Result::ok).collect();
        let abort = FromRank::Abort { reason: "was killed".into(), status: 1 };
        assert_eq!(said, [serde_json::to_string(&abort).expect("it is a message")]);
    }

    #[test]
    fn deaths_are_told_in_their_order_also_those_that_come_while_earlier_ones_are_told() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
        let launcher = launcher_over(ours, Run);
        let launcher = Arc::new(launcher);
        for rank in [3, 4] {
            launcher.handle_death(&mut launcher.heard.lock(), rank, "was killed");
        }
        let (told, by) = (Arc::new(Mutex::new(Vec::new())), Arc::downgrade(&launcher));
        let notes = Arc::clone(&told);
        launcher.watch_deaths(Arc::new(move |rank, _| {
            notes.lock().push(rank);
            if rank == 3 {
                let launcher = by.upgrade().expect("it is there");
                let hear = move || launcher.handle_death(&mut launcher.heard.lock(), 5, "was killed");
                std::thread::spawn(hear).join().expect("it does not wait");
            }
        }));
        assert_eq!(*told.lock(), [3, 4, 5]);
    }

    /// Somebody is behind this rank.
    struct Watched {
        asked: std::sync::mpsc::Sender<&'static str>,
    }

    impl Patron for Watched {
        fn on_hang_up(&self, _died: &[(u32, String)]) -> Option<(u32, String)> {
            None
        }

        fn telling_patience(&self) -> Option<Duration> {
            self.asked.send("how long it waits").expect("it is heard");
            Some(Duration::from_secs(600))
        }

        fn abort(&self, _reason: &str, _status: i32, _follows: bool) {
            self.asked.send("to end").expect("it is heard");
        }
    }

    #[test]
    fn who_ends_the_job_stays_until_those_behind_it_know_why_or_nobody_can_tell_them() {
        for message in [Some(ToRank::Told), None] {
            let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
            let reader = BufReader::new(ours.try_clone().expect("a copy"));
            let (asked, is_asked) = std::sync::mpsc::channel();
            let launcher = launcher_over(ours, Watched { asked });
            std::thread::scope(|scope| {
                scope.spawn(|| launcher.listen(reader));
                scope.spawn(|| launcher.abort("no memory", 1));
                let mut said = String::new();
                BufReader::new(&theirs).read_line(&mut said).expect("it is said");
                let first = is_asked.recv().expect("it is asked something");
                if let Some(message) = message {
                    writeln!(theirs, "{}", serde_json::to_string(&message).expect("it is a message"))
                        .expect("it is read");
                }
                theirs.shutdown(std::net::Shutdown::Write).expect("it is open");
                assert!(said.contains("Abort"), "{said}");
                assert_eq!((first, is_asked.recv()), ("how long it waits", Ok("to end")));
            });
        }
    }

    /// Waits for nobody to be told, and is let go by none.
    struct Hurried;

    impl Patron for Hurried {
        fn on_hang_up(&self, _died: &[(u32, String)]) -> Option<(u32, String)> {
            None
        }

        fn telling_patience(&self) -> Option<Duration> {
            Some(Duration::ZERO)
        }

        fn after_goodbye(&self) {
            panic!("nobody has said goodbye");
        }
    }

    #[test]
    fn the_goodbye_of_a_thread_that_leaves_is_none_for_the_one_that_ends_the_job_nor_the_other_way_round() {
        let hear = |message: &ToRank| {
            let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
            let launcher = launcher_over(ours, Hurried);
            let line = serde_json::to_string(message).expect("it is a message") + "\n";
            launcher.listen(line.as_bytes());
            launcher.heard.lock().is_over = false;
            (launcher, theirs)
        };
        let (launcher, _theirs) = hear(&ToRank::Goodbye);
        assert!(!launcher.await_telling(), "it says nothing of those behind this rank");
        let (launcher, _theirs) = hear(&ToRank::Told);
        assert!(launcher.await_telling());
        // Its end alone lets go of who leaves.
        launcher.heard.lock().is_over = true;
        launcher.leave(&Counted::default);
    }

    #[test]
    fn what_was_counted_is_told_if_somebody_reads_it() {
        for stats in [false, true] {
            let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
            let launcher = launcher_over(ours, Hurried);
            launcher.heard.lock().start = Some(Start { stats, ..alone().expect("there are random numbers") });
            launcher.heard.lock().is_over = true;
            launcher.leave(&|| Counted { traffic: Vec::new(), network: vec![("packets".to_owned(), 7)] });
            let mut line = String::new();
            BufReader::new(theirs).read_line(&mut line).expect("it has said something");
            assert_eq!((line.contains("Leave"), line.contains("packets")), (true, stats), "{line}");
        }
    }

    #[test]
    fn a_card_that_is_not_known_is_asked_for_once_and_keeps_nobody_waiting() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let reader = BufReader::new(ours.try_clone().expect("a copy"));
        let launcher = launcher_over(ours, Run);
        let launcher = Arc::new(launcher);
        launcher.heard.lock().goodbye = true; // Its end does not end this process.
        for _ in 0..3 {
            assert!(launcher.ask_card(1).expect("nobody died").is_none());
        }
        let told = Arc::new((Mutex::new(None), Condvar::new()));
        let heard_of = Arc::clone(&told);
        launcher.watch_deaths(Arc::new(move |rank, _| {
            *heard_of.0.lock() = Some(rank);
            heard_of.1.notify_all();
        }));
        // Who asks holds what the telling of deaths needs, and the news come in this order.
        let card =
            NodeCard { node: 1, server_pid: 5, address: "here".into(), host: String::new(), door: "door".into() };
        let mut others_end = theirs.try_clone().expect("a copy");
        let mut held = told.0.lock();
        let listener = std::thread::spawn({
            let launcher = Arc::clone(&launcher);
            move || launcher.listen(reader)
        });
        for message in [ToRank::Died { rank: 9, how: "was killed".into() }, ToRank::Cards { cards: vec![card.clone()] }]
        {
            let line = serde_json::to_string(&message).expect("it is a message");
            writeln!(others_end, "{line}").expect("it is read");
        }
        assert!(launcher.ask_card(1).expect("nobody died there").is_none(), "the listener waits for us");
        while held.is_none() {
            told.1.wait(&mut held);
        }
        drop(held);
        assert_eq!(launcher.card(1).expect("it came").address, card.address);
        others_end.shutdown(std::net::Shutdown::Write).expect("it is open");
        listener.join().expect("it only reads");
        drop(launcher);
        let asked: Vec<String> = BufReader::new(theirs).lines().map_while(Result::ok).collect();
        let fetch = serde_json::to_string(&FromRank::Fetch { first: 1, count: 1 }).expect("it is a message");
        assert_eq!(asked, [fetch]);
    }

    #[test]
    fn a_rank_asks_for_as_many_cards_as_it_knows_and_for_at_most_64() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let launcher = launcher_over(ours, Run);
        let known =
            |node| NodeCard { node, server_pid: 5, address: "here".into(), host: String::new(), door: "door".into() };
        let mut asked = BufReader::new(theirs).lines();
        for (has, asks) in [(0, 1), (1, 1), (2, 2), (9, 9), (1000, CARDS_MAX)] {
            launcher.heard.lock().cards = (0..has).map(|node| (node, known(node))).collect();
            assert!(launcher.ask_card(2000 + has).expect("nobody died").is_none());
            let line = asked.next().expect("it is open").expect("a line");
            let fetch = FromRank::Fetch { first: 2000 + has, count: asks };
            assert_eq!(line, serde_json::to_string(&fetch).expect("it is a message"));
        }
        assert!(launcher.ask_card(0).expect("nobody died").is_some(), "what is known is not asked for");
    }

    #[test]
    fn while_no_card_has_come_each_question_is_for_as_many_as_those_before_and_that_of_the_own_node_is_apart() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let launcher = launcher_over(ours, Run);
        // Rank 0 lives on node 5.
        launcher.heard.lock().start =
            Some(Start { rank: 0, node_of_rank: vec![5].into(), ..alone().expect("there are random numbers") });
        let mut asked = BufReader::new(theirs).lines();
        for (node, asks) in [(0, Some(1)), (1, Some(1)), (2, Some(2)), (3, None), (4, Some(4)), (6, None), (5, Some(7))]
        {
            assert!(launcher.ask_card(node).expect("nobody died").is_none());
            let Some(count) = asks else { continue };
            let line = asked.next().expect("it is open").expect("a line");
            let fetch = FromRank::Fetch { first: node, count };
            assert_eq!(line, serde_json::to_string(&fetch).expect("it is a message"));
        }
    }
}
