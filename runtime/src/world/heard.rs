//! What a world does when it hears of a death, or is asked which threads wait.

use std::sync::Arc;

use longarm_client::{Client, Operation};
use longarm_proto::Rank;

use crate::bootstrap::{Node, OnDeath, own_end};
use crate::question::Questions;
use longarm_control::messages::{Wait, Whom};

/// What is done when a rank has died.
pub(super) fn death_listener(
    (client, questions): (&Arc<Client>, &Arc<Questions>),
    node: &Node,
    explains_deaths: bool,
    routed: bool,
) -> OnDeath {
    let (hearing, questions) = (Arc::downgrade(client), Arc::clone(questions));
    let tell_server = node.death_listener();
    let segment = Arc::clone(&node.segment);
    let layout = client.layout().clone();
    Arc::new(move |rank, how| {
        if !explains_deaths && segment.is_job_ending() {
            // A rank has said why the job ends. Who is gone since then is no news, and would hide the reason while somebody
            // is there to end this process. If nobody is, whoever sleeps for the dead has to look.
            let hearing = hearing.clone();
            let how = how.to_owned();
            own_end::end_after(own_end::LAUNCHER_GRACE, move || {
                if let Some(client) = hearing.upgrade() {
                    client.failures().note(longarm_client::Death { rank: Rank(rank), how: how.clone() });
                    client.on_death(Rank(rank), &how);
                }
            });
            return;
        }
        // The stripe locks that it held, first: the server may be the one that waits for them.
        segment.release_of_dead(Rank(rank));
        if let Some(client) = hearing.upgrade() {
            client.failures().note(longarm_client::Death { rank: Rank(rank), how: how.to_owned() });
            client.on_death(Rank(rank), how);
            if let Err(lost) = client.alive(Operation::Message, Rank(rank)) {
                questions.lose(Rank(rank), &lost);
            }
        }
        tell_server(Rank(rank));
        let their_node = layout.node_of(Rank(rank));
        if routed && layout.server_host(their_node) == Rank(rank) {
            // The router of that node is gone too.
            match hearing.upgrade() {
                Some(client) if their_node == layout.my_node() => client.cut_off(Rank(rank), how),
                // Its other ranks live, but can do nothing more here. What they hold goes to others.
                _ => layout.ranks_of(their_node).iter().for_each(|rank| tell_server(*rank)),
            }
        }
    })
}

/// Who waits in a call of this process, for the launcher.
pub(super) fn waits_of(client: &Client) -> Vec<Wait> {
    let told = client.waits().into_iter().map(|wait| Wait {
        call: wait.awaited.call.to_string(),
        whom: match wait.awaited.whom {
            longarm_client::Whom::Rank(rank) => Whom::Rank(rank.0),
            longarm_client::Whom::Holder(host) => Whom::HolderAt(host.0),
            longarm_client::Whom::Anyone => Whom::Anyone,
        },
        waited_ms: wait.waited.as_millis() as u64,
    });
    told.collect()
}
