//! What workers do at mutexes for tasks: a try, an unlock that has to be answered, giving back what nobody wants any more.
//!
//! At the mutexes of one node these run one after the other, so that a try finds free what was given back before it. Each node has a
//! lane of its own: one that does not answer holds up nothing at the others, where ranks may wait for what is given back.

use std::collections::HashMap;
use std::sync::Arc;

use longarm_client::Layout;
use longarm_proto::{NodeId, Rank};
use parking_lot::Mutex;

use super::lane::Lane;

/// The lanes of nodes with mutexes at which something was to be done.
#[derive(Default)]
pub(crate) struct Errands(Mutex<HashMap<NodeId, Arc<Lane>>>);

impl Errands {
    /// The lane for the mutexes of this host. One that is no rank has none, which whoever comes to it finds out.
    pub(crate) fn lane(&self, layout: &Layout, host: u32) -> Arc<Lane> {
        let node = if layout.contains(Rank(host)) { layout.node_of(Rank(host)) } else { layout.my_node() };
        Arc::clone(self.0.lock().entry(node).or_insert_with(Lane::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_one_node_share_a_lane_and_those_of_others_have_another() {
        let (errands, layout) = (Errands::default(), Layout::new(Rank(1), &[0, 0, 1].map(NodeId)));
        let lane = |host| errands.lane(&layout, host);
        assert!(Arc::ptr_eq(&lane(0), &lane(1)) && !Arc::ptr_eq(&lane(1), &lane(2)));
        assert!(Arc::ptr_eq(&lane(3), &lane(0)), "no rank has this number");
    }
}
