//! Active messages: a handler that runs at another rank.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};

use longarm_client::Client;
use longarm_client::mail::ActiveMessage;
use longarm_proto::{AM_ARGUMENTS_MAX, Rank};
use longarm_shm::sync::{AtomicBool, Ordering};
use parking_lot::Mutex;

use crate::error::MessageError;
use crate::panics::{PANICKED, end_process, said_by};
use crate::stage;

/// A handler as it is kept.
type Handler = Arc<dyn Fn(&Message<'_>) + Send + Sync>;

/// Ends the job with a reason and the status of this process.
type EndJob = Box<dyn Fn(&str, i32) + Send + Sync>;

/// An active message at its target.
///
/// ```
/// let world = longarm::init()?;
/// let (tell, told) = std::sync::mpsc::channel();
/// world.register_handler(1, move |message| {
///     let said = (message.source(), message.arguments()[0], message.payload().len());
///     tell.send(said).expect("somebody listens");
/// })?;
/// world.send_message(world.rank(), 1, &[42], b"hello")?;
/// assert_eq!(told.recv().expect("it comes"), (world.rank(), 42, 5));
///
/// // One that is answered:
/// let (tell, told) = std::sync::mpsc::channel();
/// world.register_handler(2, |message| {
///     let length = message.payload().len() as u64;
///     message.reply(3, &[length], &[]).expect("the one that asked is there");
/// })?;
/// world.register_handler(3, move |reply| tell.send(reply.arguments()[0]).expect("somebody listens"))?;
/// world.send_message(world.rank(), 2, &[], b"how long?")?;
/// assert_eq!(told.recv().expect("it comes"), 9);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub struct Message<'a> {
    client: &'a Arc<Client>,
    message: &'a ActiveMessage,
}

impl Message<'_> {
    /// The rank that sent it.
    pub fn source(&self) -> u32 {
        self.message.source.0
    }

    /// Its words.
    pub fn arguments(&self) -> &[u64] {
        &self.message.arguments
    }

    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        &self.message.payload
    }

    /// Runs a handler at the rank that sent this message. A reply cannot be replied to, so that no two handlers
    /// can keep each other busy for ever.
    ///
    /// # Errors
    /// [`MessageError::ReplyToReply`]; else as [`World::send_message`](crate::World::send_message).
    pub fn reply(&self, handler: u32, arguments: &[u64], payload: &[u8]) -> Result<(), MessageError> {
        if self.message.is_reply {
            return Err(MessageError::ReplyToReply);
        }
        send(self.client, self.message.source, (handler, true), arguments, payload)
    }
}

pub(crate) fn send(
    client: &Arc<Client>,
    to: Rank,
    (handler, is_reply): (u32, bool),
    arguments: &[u64],
    payload: &[u8],
) -> Result<(), MessageError> {
    if arguments.len() > AM_ARGUMENTS_MAX {
        return Err(MessageError::TooManyArguments { found: arguments.len() });
    }
    Ok(client.send_active(to, handler, is_reply, arguments, payload)?)
}

/// The handlers of this rank, and the thread that runs them while the application computes.
pub(crate) struct Handlers {
    registered: Mutex<HashMap<u32, Handler>>,
    /// Messages whose handler is not registered yet, or was just registered and has not run them. Locked inside
    /// `registered`.
    unclaimed: Mutex<HashMap<u32, Vec<ActiveMessage>>>,
    client: Weak<Client>,
    /// How a handler's panic ends the job: set once there is a world.
    end: OnceLock<EndJob>,
    thread: OnceLock<Mutex<Option<std::thread::JoinHandle<()>>>>,
    stopping: AtomicBool,
}

impl Handlers {
    pub(crate) fn new(client: &Arc<Client>) -> Arc<Handlers> {
        let handlers = Arc::new(Handlers {
            registered: Mutex::new(HashMap::new()),
            unclaimed: Mutex::new(HashMap::new()),
            client: Arc::downgrade(client),
            end: OnceLock::new(),
            thread: OnceLock::new(),
            stopping: AtomicBool::new(false),
        });
        let dispatching = Arc::downgrade(&handlers);
        client.set_dispatch(Arc::new(move |message| {
            if let Some(handlers) = dispatching.upgrade() {
                match message {
                    Some(message) => handlers.run(message),
                    None => handlers.run_claimed(),
                }
            }
        }));
        handlers
    }

    /// Says how a handler that panics ends the job.
    pub(crate) fn end_job_by(&self, end: impl Fn(&str, i32) + Send + Sync + 'static) {
        self.end.get_or_init(|| Box::new(end));
    }

    pub(crate) fn register(
        self: &Arc<Self>,
        client: &Arc<Client>,
        number: u32,
        handler: Handler,
    ) -> Result<(), MessageError> {
        let mut registered = self.registered.lock();
        // Under the lock, so that none is kept after all were let go.
        if self.stopping.load(Ordering::Acquire) {
            return Err(MessageError::Finalized { handler: number });
        }
        if registered.contains_key(&number) {
            return Err(MessageError::HandlerExists { handler: number });
        }
        self.start(client);
        registered.insert(number, handler);
        let waited_for = self.unclaimed.lock().contains_key(&number);
        drop(registered);
        if waited_for {
            // Handlers run one at a time, so the messages that waited are run where all others are.
            client.call_dispatch();
        }
        Ok(())
    }

    /// A handler of longarm's own, unless it is there.
    pub(crate) fn register_once(
        self: &Arc<Self>,
        client: &Arc<Client>,
        number: u32,
        handler: impl Fn(&Message<'_>) + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        match self.register(client, number, Arc::new(handler)) {
            Ok(()) | Err(MessageError::HandlerExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn start(self: &Arc<Self>, client: &Arc<Client>) {
        self.thread.get_or_init(|| {
            // Before the first handler is there, so that none runs elsewhere.
            client.set_attended(true);
            let (handlers, attending) = (Arc::clone(self), Arc::clone(client));
            if let Some(stage) = stage::here() {
                stage.start_thread("longarm-messages", Box::new(move || handlers.attend(&attending)));
                return Mutex::new(None);
            }
            let thread = std::thread::Builder::new().name("longarm-messages".into());
            let thread = thread.spawn(move || handlers.attend(&attending));
            if let Err(error) = &thread {
                client.set_attended(false);
                tracing::error!(%error, "handlers of messages run on the threads of this rank that wait in a call");
            }
            Mutex::new(thread.ok())
        });
    }

    /// Runs messages until the world is left.
    fn attend(&self, client: &Client) {
        let stopping = || self.stopping.load(Ordering::Acquire);
        let attended = catch_unwind(AssertUnwindSafe(|| {
            while !stopping() {
                client.attend_mail(stopping);
            }
        }));
        if let Err(panic) = attended {
            self.end_job(&format!("the thread that runs messages panicked: {}", said_by(&*panic)));
        }
    }

    fn run(&self, message: ActiveMessage) {
        let Some(client) = self.client.upgrade() else { return };
        let handler = {
            let registered = self.registered.lock();
            let mut unclaimed = self.unclaimed.lock();
            match registered.get(&message.handler) {
                // Others that wait for the same handler go first.
                Some(handler) if !unclaimed.contains_key(&message.handler) => Arc::clone(handler),
                _ => {
                    unclaimed.entry(message.handler).or_default().push(message);
                    return;
                }
            }
        };
        self.call(&handler, &client, &message);
    }

    fn call(&self, handler: &Handler, client: &Arc<Client>, message: &ActiveMessage) {
        let called = catch_unwind(AssertUnwindSafe(|| handler(&Message { client, message })));
        if let Err(panic) = called {
            let (number, source, why) = (message.handler, message.source, said_by(&*panic));
            self.end_job(&format!("handler {number} panicked, at a message from rank {source}: {why}"));
        }
    }

    /// What a handler was to do will not be done, and somebody may wait for it.
    fn end_job(&self, reason: &str) {
        if let Some(end) = self.end.get() {
            end(reason, PANICKED);
        }
        end_process()
    }

    /// Runs the messages that waited for handlers which are registered by now.
    fn run_claimed(&self) {
        let Some(client) = self.client.upgrade() else { return };
        let claimed: Vec<(Handler, Vec<ActiveMessage>)> = {
            let registered = self.registered.lock();
            let mut unclaimed = self.unclaimed.lock();
            let numbers: Vec<u32> =
                unclaimed.keys().copied().filter(|number| registered.contains_key(number)).collect();
            numbers
                .iter()
                .filter_map(|number| Some((Arc::clone(registered.get(number)?), unclaimed.remove(number)?)))
                .collect()
        };
        for (handler, messages) in claimed {
            for message in messages {
                self.call(&handler, &client, &message);
            }
        }
    }

    pub(crate) fn stop(&self, client: &Client) {
        self.stopping.store(true, Ordering::Release);
        // Who is about to register one has done so, and has started the thread, or is refused.
        drop(self.registered.lock());
        self.end_thread(client);
        // They may hold windows, which hold the world. Let go of without the locks: what goes with them may call us.
        let handlers = std::mem::take(&mut *self.registered.lock());
        let unclaimed = std::mem::take(&mut *self.unclaimed.lock());
        drop((handlers, unclaimed));
    }

    fn end_thread(&self, client: &Client) {
        let Some(thread) = self.thread.get() else { return };
        client.wake_all();
        if let Some(thread) = thread.lock().take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that runs messages has panicked");
        }
    }
}
