//! Rank 0's door for the others of its step: a caller that shows a credential of the same user gets the invitation.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longarm_control::vouching::{Kind, StepName, Users, write_reason};
use longarm_managers::munge::CREDENTIAL_BYTES_MAX;
use longarm_netmod::Waker;
use longarm_shm::sync::{AtomicBool, Ordering};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::super::listening::{listen_everywhere, listen_to};
use super::credentials::{Credentials, read_message, write_message};

/// How long nobody is taken in after nobody could be: most likely no descriptor was free.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// What a thread needs that answers one caller.
const STACK_BYTES: usize = 256 << 10;

/// What is needed to answer a caller.
pub(super) struct Terms {
    pub(super) step_name: StepName,
    pub(super) own_user: u32,
    /// The invitation.
    pub(super) text: String,
    pub(super) credentials: Arc<dyn Credentials>,
    /// How long a caller may take.
    pub(super) proof: Duration,
    /// How many callers may be there at a time.
    pub(super) callers_max: usize,
}

/// See the module. Once it is dropped no caller is taken in any more; those that were are still answered.
pub(super) struct InvitationServer {
    serving: Arc<Serving>,
    thread: Option<JoinHandle<()>>,
}

struct Serving {
    terms: Terms,
    waker: Waker,
    stops: AtomicBool,
    callers: Mutex<usize>,
    left: Condvar,
}

impl InvitationServer {
    /// Answers at the first of these ports that is free.
    pub(super) fn open(terms: Terms, ports: &[u16], on_one_node: bool) -> io::Result<InvitationServer> {
        let listener = listen(ports, on_one_node)?;
        listener.set_nonblocking(true)?;
        let serving = Arc::new(Serving {
            terms,
            waker: Waker::new()?,
            stops: AtomicBool::new(false),
            callers: Mutex::new(0),
            left: Condvar::new(),
        });
        let on_thread = Arc::clone(&serving);
        let thread =
            std::thread::Builder::new().name("longarm-invite".into()).spawn(move || on_thread.run(&listener))?;
        Ok(InvitationServer { serving, thread: Some(thread) })
    }
}

impl Drop for InvitationServer {
    fn drop(&mut self) {
        {
            // The thread looks and falls asleep under this lock.
            let _guests = self.serving.callers.lock();
            self.serving.stops.store(true, Ordering::Release);
        }
        self.serving.waker.wake();
        self.serving.left.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that lets the ranks of this step in has panicked");
        }
    }
}

impl Serving {
    fn run(self: Arc<Serving>, listener: &TcpListener) {
        while self.wait_for(Some(listener), None) {
            match listener.accept() {
                Ok((stream, from)) => self.take_in(stream, from),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                // Somebody has hung up before he was taken in, or no descriptor is free: then he would be announced without end.
                Err(error) => {
                    tracing::warn!(%error, "a rank of this step could not be taken in");
                    self.wait_for(None, Some(&REST));
                }
            }
        }
    }

    /// Waits until somebody is there, or the time is over. `false`: the server goes.
    fn wait_for(&self, listener: Option<&TcpListener>, rest: Option<&Timespec>) -> bool {
        let mut events = vec![PollFd::from_borrowed_fd(self.waker.descriptor(), PollFlags::IN)];
        events.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
        // An interrupted sleep is a short one.
        let _ = rustix::event::poll(&mut events, rest);
        !self.stops.load(Ordering::Acquire)
    }

    fn take_in(self: &Arc<Serving>, stream: TcpStream, from: SocketAddr) {
        let mut callers = self.callers.lock();
        while *callers >= self.terms.callers_max {
            if self.stops.load(Ordering::Acquire) {
                return;
            }
            // Each of them has a time after which it is gone.
            self.left.wait_for(&mut callers, self.terms.proof);
        }
        *callers += 1;
        drop(callers);
        let serving = Arc::clone(self);
        let builder = std::thread::Builder::new().name("longarm-invited".into()).stack_size(STACK_BYTES);
        let begun = builder.spawn(move || {
            serving.serve(stream, from);
            serving.forget_caller();
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "no thread can be started that would answer a rank of this step");
            self.forget_caller();
        }
    }

    fn forget_caller(&self) {
        *self.callers.lock() -= 1;
        self.left.notify_one();
    }

    fn serve(&self, mut stream: TcpStream, from: SocketAddr) {
        let until = Instant::now() + self.terms.proof;
        if stream.set_nonblocking(false).is_err() {
            return;
        }
        let (kind, body) = match self.terms.answer(&mut stream, until) {
            Ok(credential) => (Kind::Answer, credential.into_bytes()),
            Err(reason) => {
                tracing::warn!(%from, reason, "somebody who asks for this step's invitation is refused");
                (Kind::Refusal, write_reason(&reason).to_vec())
            }
        };
        if let Err(reason) = write_message(&mut stream, kind, &body, until) {
            tracing::debug!(%from, reason, "an answer to a rank of this step did not leave");
        }
    }
}

impl Terms {
    fn answer(&self, stream: &mut TcpStream, until: Instant) -> Result<String, String> {
        let (kind, body) = read_message(stream, CREDENTIAL_BYTES_MAX, until)?;
        if kind != Kind::Question {
            return Err("it does not ask".to_owned());
        }
        if has_hung_up(stream) {
            // It asks again with another credential, or has gone: what is made for it now is read by nobody.
            return Err("it has hung up".to_owned());
        }
        let credential = std::str::from_utf8(&body).map_err(|_| "its credential is no text".to_owned())?;
        let shown = self.credentials.read(credential).map_err(|error| error.to_string())?;
        let users = Users { vouched: shown.uid, own: self.own_user };
        let checked = self.step_name.check_question(&shown.payload, users);
        let question = checked.map_err(|error| error.to_string())?;
        let payload = self.step_name.answer(&question, &self.text);
        self.credentials.vouch(&payload, self.own_user).map_err(|error| error.to_string())
    }
}

/// Whether a caller is known to be gone. Ranks of the step close nothing before they have their answer.
fn has_hung_up(stream: &TcpStream) -> bool {
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut events = [PollFd::new(stream, PollFlags::RDHUP)];
    rustix::event::poll(&mut events, Some(&Timespec::default())).is_ok() && events[0].revents().intersects(gone)
}

/// Listens at the first of these ports that is free: at all addresses, since each of the others may know this node by another one.
fn listen(ports: &[u16], on_one_node: bool) -> io::Result<TcpListener> {
    let mut outcome = Err(io::ErrorKind::AddrNotAvailable.into());
    for port in ports {
        outcome = if on_one_node { listen_to(([127, 0, 0, 1], *port).into()) } else { listen_everywhere(*port) };
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
