//! The outputs and the input of ranks on other hosts, at the launcher's end: what comes as frames is read as a pipe would be,
//! with as little ahead of its reader.

use std::io::{self, Write};
use std::sync::Arc;

use longarm_control::agent::{CHUNK_BYTES_MAX, CHUNKS_MAX, Stream, ToAgent};
use tokio::sync::{Semaphore, mpsc};

use super::link::Link;

/// An output of a rank.
#[derive(Debug)]
pub struct FarOutput {
    chunks: mpsc::Receiver<Vec<u8>>,
    link: Link,
    rank: u32,
    stream: Stream,
    has_ended: bool,
}

impl FarOutput {
    /// The output, and where what comes of it goes. An empty piece is its end.
    pub fn new(link: Link, rank: u32, stream: Stream) -> (FarOutput, mpsc::Sender<Vec<u8>>) {
        // One more, for the end.
        let (sender, chunks) = mpsc::channel(CHUNKS_MAX + 1);
        (FarOutput { chunks, link, rank, stream, has_ended: false }, sender)
    }

    /// Adds what comes next. 0: it was the end.
    pub async fn read(&mut self, buffer: &mut Vec<u8>) -> usize {
        let chunk = self.chunks.recv().await.unwrap_or_default();
        self.has_ended |= chunk.is_empty();
        if !self.has_ended {
            buffer.extend_from_slice(&chunk);
            self.link.send(ToAgent::Room { rank: self.rank, stream: self.stream });
        }
        chunk.len()
    }
}

impl Drop for FarOutput {
    fn drop(&mut self) {
        if !self.has_ended {
            self.link.send(ToAgent::Closed { rank: self.rank, stream: self.stream });
        }
    }
}

/// The input of a rank: blocks while too much of it is under way.
#[derive(Debug)]
pub struct FarInput {
    chunks: mpsc::Sender<Vec<u8>>,
}

impl FarInput {
    /// The input of a rank, and what is given a permit for each piece that was taken out. Has to be called in the event loop.
    pub fn new(link: Link, rank: u32) -> (FarInput, Arc<Semaphore>) {
        let (chunks, mut receiver) = mpsc::channel::<Vec<u8>>(1);
        let room = Arc::new(Semaphore::new(CHUNKS_MAX));
        let leave = Arc::clone(&room);
        tokio::spawn(async move {
            while let Some(bytes) = receiver.recv().await {
                let Ok(permit) = leave.acquire().await else { return };
                permit.forget();
                link.send(ToAgent::Input { rank, bytes });
            }
            link.send(ToAgent::Input { rank, bytes: Vec::new() });
        });
        (FarInput { chunks }, room)
    }
}

impl Write for FarInput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(CHUNK_BYTES_MAX)];
        if !piece.is_empty() {
            self.chunks.blocking_send(piece.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
