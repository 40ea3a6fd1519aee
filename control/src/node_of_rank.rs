//! The node of each rank, as every rank of a job is told it: written once, however many are told.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// More ranks than this are no job's: a line of a few bytes shall not take the memory of a machine.
const RANKS_MAX: u64 = 1 << 24;

/// See the module. On the way it is a list of `[node, ranks, nodes]`: so many ranks on each of so many nodes, from this one on. What a
/// job says of its nodes is then as long as they are different, however many there are. It can be written as JSON only.
#[derive(Clone)]
pub struct NodeOfRank(Arc<Written>);

struct Written {
    nodes: Vec<u32>,
    text: OnceLock<Box<RawValue>>,
}

impl NodeOfRank {
    /// What it is on its way.
    fn text(&self) -> &RawValue {
        self.0.text.get_or_init(|| serde_json::value::to_raw_value(&self.rows()).expect("numbers can be written"))
    }
}

impl NodeOfRank {
    fn rows(&self) -> Vec<(u32, u32, u32)> {
        let mut rows: Vec<(u32, u32, u32)> = Vec::new();
        for run in self.chunk_by(|left, right| left == right) {
            let (node, ranks) = (run[0], run.len() as u32);
            match rows.last_mut() {
                Some((first, each, nodes))
                    if *each == ranks && u64::from(*first) + u64::from(*nodes) == u64::from(node) =>
                {
                    *nodes += 1;
                }
                _ => rows.push((node, ranks, 1)),
            }
        }
        rows
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
        let mut all = Vec::new();
        for (first, ranks, nodes) in Vec::<(u32, u32, u32)>::deserialize(deserializer)? {
            let end = first.checked_add(nodes).filter(|_| ranks > 0);
            let end = end.ok_or_else(|| D::Error::custom("a node that no job has, or one without ranks"))?;
            if u64::from(ranks) * u64::from(nodes) > RANKS_MAX - all.len() as u64 {
                return Err(D::Error::custom("more ranks than any job has"));
            }
            all.extend((first..end).flat_map(|node| std::iter::repeat_n(node, ranks as usize)));
        }
        Ok(all.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_ranks_are_told_is_written_once() {
        let nodes = NodeOfRank::from(vec![0, 0, 1, 0]);
        let told = nodes.clone();
        assert_eq!(serde_json::to_string(&nodes).unwrap(), "[[0,2,1],[1,1,1],[0,1,1]]");
        assert_eq!(serde_json::to_string(&told).unwrap(), "[[0,2,1],[1,1,1],[0,1,1]]");
        assert!(std::ptr::eq(nodes.text(), told.text()), "both have the same bytes");
        assert_eq!(serde_json::from_str::<NodeOfRank>("[[0,2,1],[1,1,1],[0,1,1]]").unwrap(), nodes);
    }

    #[test]
    fn nodes_that_are_alike_take_no_room_in_blocks_and_in_turns() {
        let told = |nodes: Vec<u32>| {
            let text = serde_json::to_string(&NodeOfRank::from(nodes.clone())).unwrap();
            assert_eq!(*serde_json::from_str::<NodeOfRank>(&text).unwrap(), nodes);
            text
        };
        assert_eq!(told((0..100_000).map(|rank| rank / 125).collect()), "[[0,125,800]]");
        assert_eq!(told(vec![0, 0, 0, 1, 1, 1, 2]), "[[0,3,2],[2,1,1]]");
        assert_eq!(told(vec![0, 1, 2, 0, 1, 2]), "[[0,1,3],[0,1,3]]");
        assert_eq!(told(vec![u32::MAX - 1, 3, 2]), "[[4294967294,1,1],[3,1,1],[2,1,1]]");
    }

    #[test]
    fn a_short_line_takes_neither_the_memory_of_a_machine_nor_its_time() {
        for endless in [
            "[[0,4294967295,1]]",
            "[[0,1,4294967295]]",
            "[[0,65536,65536]]",
            "[[0,0,4294967295]]",
            "[[4294967295,1,1]]",
            "[[0,16777216,1],[1,1,1]]",
            "[[0,2]]",
        ] {
            assert!(serde_json::from_str::<NodeOfRank>(endless).is_err(), "{endless}");
        }
    }
}
