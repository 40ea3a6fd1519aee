//! What a world does when a connection to another node is lost, although nobody is known to have died.
//!
//! ```text
//!   node 0: rank 0 ── question ──────────► node 1: rank 1
//!              ▲                             │  │
//!              └───────── answer ──── ✗ ─────┘  │
//!   told: rank 1 cannot reach node 0            │
//!              └──────── launcher ◄─────────────┘
//! ```
//!
//! An answer goes another way than its question, so only one of the two may be lost, and whoever asks cannot see that from its own
//! connections. Whoever has lost its way to a node says so to the launcher, and that tells the ranks of the node: the
//! conversation with the launcher is there in every job, and a rank that loses it ends. No server has to keep or pass on what
//! the ranks of its node have lost, nothing is added to the wire, and a job in which nothing is lost sends nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use longarm_client::Client;
use parking_lot::Mutex;

use super::questions::loss_of;
use crate::bootstrap::Rendezvous;
use crate::inner::Inner;
use crate::started::lane::Lane;

impl Inner {
    /// Tells the others of nodes that cannot be reached any more, and ends questions that nobody can answer.
    pub(crate) fn watch_losses(self: &Arc<Self>) {
        let (world, lane) = (Arc::downgrade(self), Lane::new());
        let told = Arc::<Mutex<BTreeSet<u32>>>::default();
        self.client.tell_of_losses(move || {
            let Some(inner) = world.upgrade() else { return };
            let has_news = inner.client.lost_nodes().any(|(node, _)| !told.lock().contains(&node.0));
            if !has_news && !inner.questions.are_any() {
                return;
            }
            // On a worker: whoever notices a loss may hold locks, the launcher may be slow to read, and who asked is woken, which runs
            // the program's code.
            let (workers, told) = (inner.workers.clone(), Arc::clone(&told));
            workers.start_elsewhere(&lane, move || {
                if let Some(rendezvous) = &inner.rendezvous {
                    tell_losses(&inner.client, &**rendezvous, &told);
                }
                inner.questions.lose_if(|rank| loss_of(&inner.client, rank));
            });
        });
    }
}

fn tell_losses(client: &Client, rendezvous: &dyn Rendezvous, told: &Mutex<BTreeSet<u32>>) {
    for (node, how) in client.lost_nodes() {
        if told.lock().insert(node.0) {
            rendezvous.tell_loss(node.0, &how);
        }
    }
}
