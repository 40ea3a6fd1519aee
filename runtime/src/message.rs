//! Active messages: a handler that runs at another rank.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use longarm_client::Client;
use longarm_client::mail::ActiveMessage;
use longarm_proto::{AM_ARGUMENTS_MAX, Rank};
use longarm_shm::sync::{AtomicBool, Ordering};
use parking_lot::Mutex;

use crate::error::MessageError;
use crate::world::World;

/// A handler as it is kept.
type Handler = Arc<dyn Fn(&Message<'_>) + Send + Sync>;

/// An active message at its target.
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
    /// [`MessageError::ReplyToReply`]; else as [`World::send_message`].
    pub fn reply(&self, handler: u32, arguments: &[u64], payload: &[u8]) -> Result<(), MessageError> {
        if self.message.is_reply {
            return Err(MessageError::ReplyToReply);
        }
        send(self.client, self.message.source, (handler, true), arguments, payload)
    }
}

impl World {
    /// Says what a message with this number does here. Handlers run one at a time, on a thread of longarm or on one
    /// that waits in a call; messages of one source run in their order. A handler must not wait for other ranks.
    /// A message that comes before its handler is registered waits for it.
    ///
    /// # Errors
    /// [`MessageError::HandlerExists`].
    pub fn register_handler(
        &self,
        handler: u32,
        run: impl Fn(&Message<'_>) + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        self.inner.handlers.register(&self.inner.client, handler, Arc::new(run))
    }

    /// Runs a handler at another rank, or at this one, with up to 16 words and a payload. On return the payload may
    /// be reused. The handler runs some time later, whatever the target computes.
    ///
    /// # Errors
    /// [`MessageError::TooManyArguments`]; the target does not exist or is lost.
    pub fn send_message(&self, rank: u32, handler: u32, arguments: &[u64], payload: &[u8]) -> Result<(), MessageError> {
        send(&self.inner.client, Rank(rank), (handler, false), arguments, payload)
    }
}

fn send(
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
    thread: OnceLock<Mutex<Option<std::thread::JoinHandle<()>>>>,
    stopping: AtomicBool,
}

impl Handlers {
    pub(crate) fn new(client: &Arc<Client>) -> Arc<Handlers> {
        let handlers = Arc::new(Handlers {
            registered: Mutex::new(HashMap::new()),
            unclaimed: Mutex::new(HashMap::new()),
            client: Arc::downgrade(client),
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

    fn register(self: &Arc<Self>, client: &Arc<Client>, number: u32, handler: Handler) -> Result<(), MessageError> {
        let mut registered = self.registered.lock();
        if registered.contains_key(&number) {
            return Err(MessageError::HandlerExists { handler: number });
        }
        registered.insert(number, handler);
        let waited_for = self.unclaimed.lock().contains_key(&number);
        drop(registered);
        if waited_for {
            // Handlers run one at a time, so the messages that waited are run where all others are.
            client.call_dispatch();
        }
        self.start(client);
        Ok(())
    }

    fn start(self: &Arc<Self>, client: &Arc<Client>) {
        self.thread.get_or_init(|| {
            let (handlers, client) = (Arc::clone(self), Arc::clone(client));
            let thread = std::thread::Builder::new().name("longarm-messages".into()).spawn(move || {
                while !handlers.stopping.load(Ordering::Acquire) {
                    client.attend_mail(|| handlers.stopping.load(Ordering::Acquire));
                }
            });
            if let Err(error) = &thread {
                tracing::error!(%error, "active messages run only while this rank waits in a call");
            }
            Mutex::new(thread.ok())
        });
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
        handler(&Message { client: &client, message: &message });
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
                handler(&Message { client: &client, message: &message });
            }
        }
    }

    pub(crate) fn stop(&self, client: &Client) {
        self.stopping.store(true, Ordering::Release);
        let Some(thread) = self.thread.get() else { return };
        client.wake_all();
        if let Some(thread) = thread.lock().take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("a handler of active messages has panicked");
        }
    }
}
