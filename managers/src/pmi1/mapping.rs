//! `PMI_process_mapping`: which ranks are on which node.
//!
//! ```text
//!   (vector,(0,2,1))          nodes 0 and 1, one rank each, again and again: 0 1 0 1 ...
//!   (vector,(0,1,4),(1,1,2))  four ranks on node 0, then two on node 1
//!   (vector,[(0,2,1)]x2)      the blocks in brackets so many times
//! ```
//!
//! A mapping that is shorter than the job is repeated, as those who write it mean it. Nodes are numbers of the process manager:
//! what can share memory is another question.

use crate::environment::shortened;
use crate::pmi1::limits::RANKS_MAX;

/// A mapping that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// It is not of the form that is known.
    #[error("the process mapping is {text:?}, which is not of the form (vector,(0,2,1))")]
    Form {
        /// The mapping, cut where it is long.
        text: String,
    },
    /// It places nobody.
    #[error("the process mapping {text:?} has no ranks")]
    Empty {
        /// The mapping, cut where it is long.
        text: String,
    },
    /// The job is larger than is ever meant.
    #[error("a process mapping of {ranks} ranks; more than {RANKS_MAX} are not supported")]
    TooMany {
        /// Ranks of the job.
        ranks: u32,
    },
}

/// `(first,nodes,ranks)`: so many ranks on each of so many nodes.
struct Block {
    first: u32,
    nodes: u32,
    ranks: u32,
}

/// The node of each of the `size` ranks of a job.
///
/// # Errors
/// [`MappingError`], where the text is no mapping.
///
/// ```
/// use longarm_managers::pmi1::nodes_of_ranks;
/// assert_eq!(nodes_of_ranks("(vector,(0,1,2),(1,1,1))", 3)?, [0, 0, 1]);
/// assert_eq!(nodes_of_ranks("(vector,(0,2,1))", 4)?, [0, 1, 0, 1]);
/// # Ok::<(), longarm_managers::pmi1::MappingError>(())
/// ```
pub fn nodes_of_ranks(text: &str, size: u32) -> Result<Vec<u32>, MappingError> {
    if size > RANKS_MAX {
        return Err(MappingError::TooMany { ranks: size });
    }
    let compact: String = text.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
    let inside = compact.strip_prefix("(vector,").and_then(|rest| rest.strip_suffix(')'));
    let groups = inside.and_then(groups).ok_or_else(|| MappingError::Form { text: shortened(text) })?;
    let wanted = size as usize;
    let mut nodes = Vec::with_capacity(wanted);
    while nodes.len() < wanted {
        let before = nodes.len();
        for (blocks, times) in &groups {
            repeat(blocks, *times, wanted, &mut nodes);
        }
        if nodes.len() == before {
            return Err(MappingError::Empty { text: shortened(text) });
        }
    }
    Ok(nodes)
}

/// Adds the ranks of blocks, so many times, up to the wanted number.
fn repeat(blocks: &[Block], times: u32, wanted: usize, nodes: &mut Vec<u32>) {
    for _ in 0..times {
        let before = nodes.len();
        for block in blocks.iter().filter(|block| block.ranks > 0) {
            for node in block.first..block.first + block.nodes {
                let left = wanted - nodes.len();
                if left == 0 {
                    return;
                }
                nodes.resize(nodes.len() + left.min(block.ranks as usize), node);
            }
        }
        if nodes.len() == before {
            return;
        }
    }
}

/// Blocks with how often they come.
fn groups(mut text: &str) -> Option<Vec<(Vec<Block>, u32)>> {
    let mut groups = Vec::new();
    loop {
        if let Some(rest) = text.strip_prefix('[') {
            let (inside, rest) = rest.split_once("]x")?;
            let mut blocks = Vec::new();
            let mut inside = inside;
            loop {
                let (found, rest) = block(inside)?;
                blocks.push(found);
                match rest.strip_prefix(',') {
                    Some(rest) => inside = rest,
                    None if rest.is_empty() => break,
                    None => return None,
                }
            }
            let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
            let (times, rest) = rest.split_at(digits);
            groups.push((blocks, times.parse().ok()?));
            text = rest;
        } else {
            let (found, rest) = block(text)?;
            groups.push((vec![found], 1));
            text = rest;
        }
        match text.strip_prefix(',') {
            Some(rest) => text = rest,
            None if text.is_empty() => return Some(groups),
            None => return None,
        }
    }
}

/// The block at the beginning, and what is behind it.
fn block(text: &str) -> Option<(Block, &str)> {
    let (inside, rest) = text.strip_prefix('(')?.split_once(')')?;
    let mut numbers = inside.split(',').map(|number| number.parse::<u32>().ok());
    let mut number = || numbers.next().flatten();
    let block = Block { first: number()?, nodes: number()?, ranks: number()? };
    (numbers.next().is_none() && block.first.checked_add(block.nodes).is_some()).then_some((block, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(text: &str, size: u32) -> Vec<u32> {
        nodes_of_ranks(text, size).unwrap()
    }

    #[test]
    fn the_mappings_that_were_seen_are_read() {
        // Hydra 4.0.2, four ranks on one node: shorter than the job.
        assert_eq!(mapped("(vector,(0,1,1))", 4), [0; 4]);
        assert_eq!(mapped("(vector,(0,1,4))", 4), [0; 4]);
        // Hydra 4.0.2, two hosts in turn.
        assert_eq!(mapped("(vector,(0,2,1))", 4), [0, 1, 0, 1]);
        // Hydra 5.0.2, the same.
        assert_eq!(mapped("(vector,[(0,2,1)]x2)", 4), [0, 1, 0, 1]);
        // Slurm.
        assert_eq!(mapped("(vector,(0,2,2))", 4), [0, 0, 1, 1]);
        assert_eq!(mapped("(vector,(0,1,2),(1,1,1))", 3), [0, 0, 1]);
    }

    #[test]
    fn brackets_hold_several_blocks_and_stand_between_others() {
        assert_eq!(mapped("(vector, (3,1,1), [(0,1,1),(1,1,2)]x2, (2,1,1))", 8), [3, 0, 1, 1, 0, 1, 1, 2]);
        assert_eq!(mapped("(vector,[(0,1,1)]x4000000000)", 2), [0, 0]);
    }

    #[test]
    fn what_is_no_mapping_is_refused_with_its_text() {
        for bad in [
            "",
            "(vector)",
            "(vector,)",
            "(vector,(0,1))",
            "(vector,(0,1,1)",
            "(vector,(0,1,1),)",
            "(vector,(a,1,1))",
            "(dist,(0,1,1))",
            "(vector,[(0,1,1)]x)",
            "(vector,[(0,1,1)])",
            "(vector,[[(0,1,1)]x2]x2)",
            "(vector,(0,1,1)(0,1,1))",
            "(vector,(0,1,1,1))",
            "(vector,(4294967295,1,1))",
            "(vector,(-1,1,1))",
            "(vector,[]x2)",
            "(vector,[(0,1,1)]x-1)",
        ] {
            assert_eq!(nodes_of_ranks(bad, 4), Err(MappingError::Form { text: bad.to_owned() }));
        }
    }

    #[test]
    fn blocks_of_nobody_end() {
        for empty in
            ["(vector,(0,0,4))", "(vector,(0,4294967295,0))", "(vector,[(0,0,1)]x4294967295)", "(vector,[(0,1,1)]x0)"]
        {
            assert_eq!(nodes_of_ranks(empty, 4), Err(MappingError::Empty { text: empty.to_owned() }));
        }
        assert_eq!(nodes_of_ranks("(vector,(0,1,1))", u32::MAX), Err(MappingError::TooMany { ranks: u32::MAX }));
        assert_eq!(mapped("(vector,(0,1,1))", 0), []);
    }
}
