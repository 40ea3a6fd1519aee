//! Where `longarm ps` asks a running job: an abstract unix socket that is named after the launcher's process.
//!
//! Who connects has to run as the same user as the launcher, or as root. It writes one line, what it wants to know, and
//! gets one JSON object. Nothing of it has a name in a file system.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use longarm_control::questions::{NAME_PREFIX, REPORT, SUMMARY, may_ask};

/// How many may ask at the same time.
const ASKERS_MAX: usize = 16;
/// How long they may take to say what they want, and to take the answer in.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something that somebody wants to know.
#[derive(Debug)]
pub struct Question {
    /// Whether every rank is to be asked.
    pub is_report: bool,
    /// Where the answer goes, one JSON object.
    pub answer: oneshot::Sender<String>,
}

/// The address of the job that this launcher's process runs.
pub fn address(launcher: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{NAME_PREFIX}{launcher}"))
}

/// Starts to listen. The questions come out of the channel.
pub fn listen() -> io::Result<mpsc::Receiver<Question>> {
    let listener = std::os::unix::net::UnixListener::bind_addr(&address(std::process::id())?)?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let (questions, receiver) = mpsc::channel(ASKERS_MAX);
    tokio::spawn(accept(listener, questions));
    Ok(receiver)
}

async fn accept(listener: UnixListener, questions: mpsc::Sender<Question>) {
    let askers = Arc::new(Semaphore::new(ASKERS_MAX));
    let own_uid = rustix::process::geteuid().as_raw();
    loop {
        let Ok(permit) = Arc::clone(&askers).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, perhaps: no reason to try again at once.
            tokio::time::sleep(PATIENCE).await;
            continue;
        };
        if stream.peer_cred().is_ok_and(|peer| may_ask(peer.uid(), own_uid)) {
            let questions = questions.clone();
            tokio::spawn(async move {
                let _ = tokio::time::timeout(PATIENCE, serve(stream, questions)).await;
                drop(permit);
            });
        }
    }
}

async fn serve(mut stream: UnixStream, questions: mpsc::Sender<Question>) -> io::Result<()> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < SUMMARY.len() {
        if stream.read_buf(&mut line).await? == 0 {
            break;
        }
    }
    let is_report = line == REPORT;
    if !is_report && line != SUMMARY {
        return Ok(());
    }
    let (answer, answered) = oneshot::channel();
    if questions.send(Question { is_report, answer }).await.is_ok()
        && let Ok(text) = answered.await
    {
        stream.write_all(text.as_bytes()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_of_a_job_and_root_may_ask() {
        assert!(may_ask(1000, 1000) && may_ask(0, 1000));
        assert!(!may_ask(1001, 1000) && !may_ask(1000, 0));
    }
}
