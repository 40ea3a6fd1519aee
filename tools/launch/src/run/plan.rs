//! Which rank runs on which node, and which file is the program.
//!
//! Ranks are mapped in blocks: the first ranks on node 0, the next ones on node 1, and so on.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Which rank runs on which node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Node of each rank, ascending.
    pub node_of_rank: Vec<u32>,
    /// How many nodes there are.
    pub nodes: u32,
}

/// The numbers on the command line contradict each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A node would have no rank.
    #[error("{nodes} nodes cannot be made of {ranks} ranks: every node has at least one")]
    EmptyNode {
        /// Nodes asked for.
        nodes: u32,
        /// Ranks asked for.
        ranks: u32,
    },
    /// `--nodes` and `--ppn` say different things.
    #[error(
        "--nodes {nodes} and --ppn {ppn} contradict each other: {ranks} ranks in nodes of {ppn} make {made} {}",
        if *made == 1 { "node" } else { "nodes" }
    )]
    Contradiction {
        /// Nodes asked for.
        nodes: u32,
        /// Ranks in a node asked for.
        ppn: u32,
        /// Ranks asked for.
        ranks: u32,
        /// How many nodes `--ppn` leads to.
        made: u32,
    },
}

impl Plan {
    /// Spreads ranks over nodes: in blocks of `ppn`, the last one possibly smaller, or else over `nodes` (one, if not
    /// given) as evenly as possible, the first ones getting one more.
    ///
    /// # Errors
    /// When the numbers contradict each other.
    pub fn new(ranks: u32, nodes: Option<u32>, ppn: Option<u32>) -> Result<Plan, PlanError> {
        assert!(ranks > 0 && nodes != Some(0) && ppn != Some(0), "the command line accepts no zero");
        if let Some(ppn) = ppn {
            let made = ranks.div_ceil(ppn);
            return match nodes {
                Some(nodes) if nodes != made => Err(PlanError::Contradiction { nodes, ppn, ranks, made }),
                _ => Ok(Plan { node_of_rank: (0..ranks).map(|rank| rank / ppn).collect(), nodes: made }),
            };
        }
        let nodes = nodes.unwrap_or(1);
        if nodes > ranks {
            return Err(PlanError::EmptyNode { nodes, ranks });
        }
        let (each, larger) = (ranks / nodes, ranks % nodes);
        let blocks = (0..nodes).map(|node| (node, each + u32::from(node < larger)));
        let node_of_rank = blocks.flat_map(|(node, size)| std::iter::repeat_n(node, size as usize)).collect();
        Ok(Plan { node_of_rank, nodes })
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.node_of_rank.len() as u32
    }

    /// The lowest rank of a node, which leads it.
    pub fn leader(&self, node: u32) -> Option<u32> {
        self.node_of_rank.iter().position(|own| *own == node).map(|rank| rank as u32)
    }
}

/// The program cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No such file, or not in the search path.
    #[error("{}: program not found", .program.display())]
    NotFound {
        /// The program as written.
        program: PathBuf,
    },
    /// There is such a file, but it may not be executed.
    #[error("{}: {}", .path.display(), if *.is_folder { "is a folder, not a program" } else { "is not executable" })]
    NotExecutable {
        /// The file found.
        path: PathBuf,
        /// Whether it is a folder.
        is_folder: bool,
    },
}

/// Finds the file to execute, as a shell does: a name with a slash is a path, any other is looked for along `search`.
///
/// # Errors
/// When there is no such file, or none that may be executed.
pub fn find_program(program: &OsStr, search: Option<OsString>) -> Result<PathBuf, ProgramError> {
    let not_found = || ProgramError::NotFound { program: program.into() };
    if program.is_empty() {
        return Err(not_found());
    }
    if program.as_bytes().contains(&b'/') {
        return executable(Path::new(program)).unwrap_or_else(|| Err(not_found()));
    }
    let search = search.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for folder in std::env::split_paths(&search) {
        match executable(&folder.join(program)) {
            Some(Ok(path)) => return Ok(path),
            // A folder in the search path that happens to have the name is no reason to complain.
            Some(Err(error @ ProgramError::NotExecutable { is_folder: false, .. })) => refused = Some(error),
            _ => {}
        }
    }
    Err(refused.unwrap_or_else(not_found))
}

/// `None` when there is no such file.
fn executable(path: &Path) -> Option<Result<PathBuf, ProgramError>> {
    let is_folder = path.metadata().ok()?.is_dir();
    if is_folder || rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err() {
        return Some(Err(ProgramError::NotExecutable { path: path.into(), is_folder }));
    }
    Some(Ok(path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(ranks: u32, nodes: Option<u32>, ppn: Option<u32>) -> Vec<usize> {
        let plan = Plan::new(ranks, nodes, ppn).unwrap();
        assert!(plan.node_of_rank.is_sorted());
        (0..plan.nodes).map(|node| plan.node_of_rank.iter().filter(|own| **own == node).count()).collect()
    }

    #[test]
    fn without_options_there_is_one_node() {
        assert_eq!(sizes(5, None, None), [5]);
    }

    #[test]
    fn ranks_are_spread_evenly_and_the_first_nodes_get_one_more() {
        assert_eq!(sizes(4, Some(2), None), [2, 2]);
        assert_eq!(sizes(7, Some(3), None), [3, 2, 2]);
        assert_eq!(sizes(8, Some(3), None), [3, 3, 2]);
        assert_eq!(sizes(4, Some(4), None), [1, 1, 1, 1]);
    }

    #[test]
    fn ranks_in_a_node_make_blocks_and_the_last_may_be_smaller() {
        assert_eq!(sizes(6, None, Some(2)), [2, 2, 2]);
        assert_eq!(sizes(5, None, Some(2)), [2, 2, 1]);
        assert_eq!(sizes(2, None, Some(8)), [2]);
        assert_eq!(sizes(5, Some(3), Some(2)), [2, 2, 1]);
    }

    #[test]
    fn contradictions_are_refused_with_the_numbers() {
        let error = Plan::new(4, Some(3), Some(2)).unwrap_err();
        assert_eq!(error, PlanError::Contradiction { nodes: 3, ppn: 2, ranks: 4, made: 2 });
        assert!(error.to_string().contains("--nodes 3 and --ppn 2"));
        assert_eq!(Plan::new(2, Some(3), None), Err(PlanError::EmptyNode { nodes: 3, ranks: 2 }));
    }

    #[test]
    fn the_leader_of_a_node_is_its_lowest_rank() {
        let plan = Plan::new(7, Some(3), None).unwrap();
        assert_eq!([0, 1, 2, 3].map(|node| plan.leader(node)), [Some(0), Some(3), Some(5), None]);
    }

    #[test]
    fn a_program_is_found_along_the_search_path_only_without_a_slash() {
        assert_eq!(find_program("sh".as_ref(), Some("/nowhere:/bin".into())).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find_program("/bin/sh".as_ref(), None).unwrap(), Path::new("/bin/sh"));
        let error = find_program("no-such-program".as_ref(), None).unwrap_err();
        assert!(matches!(error, ProgramError::NotFound { .. }), "{error}");
        let error = find_program("/".as_ref(), None).unwrap_err();
        assert!(matches!(error, ProgramError::NotExecutable { is_folder: true, .. }), "{error}");
    }
}
