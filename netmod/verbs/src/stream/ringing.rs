//! Keeping requests back in a batch, and ringing the doorbell for them.

use rustix::io::Errno;

use super::Stream;
use crate::batch::BatchedPost;
use crate::sys::{CHAIN_MAX, Data, Post, Posting, Span};

impl Stream {
    /// Keeps a request back. As many as one chain takes go out at once. What the spans name has to stay as for a post.
    pub(crate) fn add_to_batch(
        &mut self,
        id: u64,
        posting: Posting,
        spans: &[Span],
        fenced: bool,
    ) -> Result<(), Errno> {
        self.batch.posts.push(BatchedPost { id, posting, spans: spans.to_vec(), fenced });
        if self.batch.posts.len() < CHAIN_MAX { Ok(()) } else { self.ring() }
    }

    /// Posts what was kept back. The end of the last one is told, and with it those before.
    pub(crate) fn ring(&mut self) -> Result<(), Errno> {
        if self.batch.posts.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch.posts);
        if self.check().is_err() || self.ended {
            return Ok(());
        }
        let last = batch.len() - 1;
        let posts = batch.iter().enumerate().map(|(index, post)| Post {
            id: post.id,
            posting: post.posting,
            data: Data::Spans(&post.spans),
            signaled: index == last || matches!(post.posting, Posting::Read { .. } | Posting::Atomic { .. }),
            fenced: post.fenced,
        });
        let posts: Vec<Post<'_>> = posts.collect();
        self.untold = 0;
        self.fabric.counters.doorbells.add(1);
        // SAFETY: what the spans name is kept in `requests` until the completion was taken up, or the queue is gone, by who has
        // called `add_to_batch`, and also where this fails. The memory of loans is theirs to be written.
        #[allow(unsafe_code)]
        unsafe {
            self.queue.post(&posts)
        }
    }
}
