//! The node of each rank, as every rank of a job is told it: written once, however many are told.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// More ranks than this are no job's: a line of a few bytes shall not take the memory of a machine.
const RANKS_MAX: u64 = 1 << 24;

/// See the module. On the way it is a list of runs, `[node, how many ranks]`: what a job of many ranks says of its nodes is then as
/// long as it has nodes. It can be written as JSON only.
#[derive(Clone)]
pub struct NodeOfRank(Arc<Written>);

struct Written {
    nodes: Vec<u32>,
    text: OnceLock<Box<RawValue>>,
}

impl NodeOfRank {
    /// What it is on its way.
    fn text(&self) -> &RawValue {
        self.0.text.get_or_init(|| {
            let runs: Vec<(u32, usize)> =
                self.chunk_by(|left, right| left == right).map(|run| (run[0], run.len())).collect();
            serde_json::value::to_raw_value(&runs).expect("numbers can be written")
        })
    }
}

impl From<Vec<u32>> for NodeOfRank {
    fn from(nodes: Vec<u32>) -> NodeOfRank {
        NodeOfRank(Arc::new(Written { nodes, text: OnceLock::new() }))
    }
}

impl Deref for NodeOfRank {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.0.nodes
    }
}

impl PartialEq for NodeOfRank {
    fn eq(&self, other: &NodeOfRank) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl fmt::Debug for NodeOfRank {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

impl Serialize for NodeOfRank {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(serializer)
    }
}

impl<'a> Deserialize<'a> for NodeOfRank {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<NodeOfRank, D::Error> {
        let runs = Vec::<(u32, u32)>::deserialize(deserializer)?;
        if runs.iter().map(|(_, count)| u64::from(*count)).sum::<u64>() > RANKS_MAX {
            return Err(D::Error::custom("more ranks than any job has"));
        }
        let nodes = runs.into_iter().flat_map(|(node, count)| std::iter::repeat_n(node, count as usize));
        Ok(nodes.collect::<Vec<u32>>().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_ranks_are_told_is_written_once() {
        let nodes = NodeOfRank::from(vec![0, 0, 1, 0]);
        let told = nodes.clone();
        assert_eq!(serde_json::to_string(&nodes).unwrap(), "[[0,2],[1,1],[0,1]]");
        assert_eq!(serde_json::to_string(&told).unwrap(), "[[0,2],[1,1],[0,1]]");
        assert!(std::ptr::eq(nodes.text(), told.text()), "both have the same bytes");
        assert_eq!(serde_json::from_str::<NodeOfRank>("[[0,2],[1,1],[0,1]]").unwrap(), nodes);
    }
}
