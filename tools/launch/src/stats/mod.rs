//! What the ranks counted, added up: by kind and by pair of ranks.
//!
//! Ranks that did not finalize have not reported anything and count as zero.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use longarm_control::messages::{KindTraffic, PeerTraffic};
use serde::Serialize;

use longarm_control::rendezvous::Failure;

pub mod heatmap;
pub mod table;

/// The kinds of operations, in the order in which ranks report them.
pub const KINDS: [&str; 8] = ["put", "get", "accumulate", "rmw", "lock", "message", "collective", "signal"];

/// Matrices of more ranks than this are shown by node.
pub const MATRIX_RANKS_MAX: usize = 16;

/// How the job ended.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Exit status of the launcher.
    pub status: i32,
    /// The first failure.
    pub failure: Option<Failed>,
}

/// The rank that failed first.
#[derive(Clone, Debug, Serialize)]
pub struct Failed {
    /// The rank.
    pub rank: u32,
    /// What happened.
    pub how: String,
}

impl From<&Failure> for Failed {
    fn from(failure: &Failure) -> Failed {
        Failed { rank: failure.rank, how: failure.how.clone() }
    }
}

/// Operations and bytes of one kind over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindTotal {
    /// The kind.
    pub kind: &'static str,
    /// How many operations.
    pub operations: u64,
    /// How many payload bytes.
    pub bytes: u64,
    /// Operations divided by the time in the job.
    pub operations_per_s: f64,
    /// Bytes divided by the time in the job.
    pub bytes_per_s: f64,
}

/// What the networks of all ranks counted under one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkTotal {
    /// The name.
    pub name: String,
    /// The sum over all ranks.
    pub total: u64,
    /// The most that one rank counted.
    pub most: u64,
}

/// What went from one rank to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// The rank that issued the operations.
    pub origin: u32,
    /// The rank whose memory they touched.
    pub target: u32,
    /// How many operations.
    pub operations: u64,
    /// How many payload bytes.
    pub bytes: u64,
}

/// A square of bytes: what each origin (row) moved to or from each target (column).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// What rows and columns are: "rank" or "node".
    pub unit: &'static str,
    /// The bytes.
    pub bytes: Vec<Vec<u64>>,
}

/// All that is shown at the end of a job.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How the job ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of nodes.
    pub nodes: u32,
    /// Node of each rank.
    pub node_of_rank: Vec<u32>,
    /// From the first start to the last leave, in seconds.
    pub time_s: f64,
    /// By kind.
    pub kinds: Vec<KindTotal>,
    /// By pair of ranks, those with any traffic.
    pub flows: Vec<Flow>,
    /// What the networks of the ranks counted, where they do.
    pub network: Vec<NetworkTotal>,
}

/// A file that was written, or not.
#[derive(Debug)]
pub struct WrittenFile {
    /// What it holds.
    pub what: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// Why it could not be written.
    pub error: Option<io::Error>,
}

/// Names that a network counts under are few, short and plain, or they are not shown.
const NETWORK_NAMES_MAX: usize = 64;
const NETWORK_NAME_BYTES_MAX: usize = 40;

/// Adds up what the networks of the ranks counted, in the order of the first rank that counted.
pub fn network_totals(ranks: &[Vec<(String, u64)>]) -> Vec<NetworkTotal> {
    let mut totals: Vec<NetworkTotal> = Vec::new();
    let is_plain =
        |name: &str| name.len() <= NETWORK_NAME_BYTES_MAX && name.bytes().all(|byte| (32..127).contains(&byte));
    for (name, count) in ranks.iter().flatten().filter(|(name, _)| is_plain(name)) {
        if let Some(total) = totals.iter_mut().find(|total| total.name == *name) {
            total.total = total.total.saturating_add(*count);
            total.most = total.most.max(*count);
        } else if totals.len() < NETWORK_NAMES_MAX {
            totals.push(NetworkTotal { name: name.clone(), total: *count, most: *count });
        }
    }
    totals
}

impl Report {
    /// Adds up what the ranks counted; `traffic` is indexed by origin.
    pub fn new(node_of_rank: &[u32], traffic: Vec<Vec<PeerTraffic>>, time: Duration, outcome: Outcome) -> Report {
        let mut totals = [KindTraffic::default(); KINDS.len()];
        let mut flows = Vec::new();
        for (peers, origin) in traffic.iter().zip(0..) {
            // What a rank reports is not to be trusted with an index.
            for peer in peers.iter().filter(|peer| (peer.peer as usize) < node_of_rank.len()) {
                let mut flow = Flow { origin, target: peer.peer, operations: 0, bytes: 0 };
                for (total, kind) in totals.iter_mut().zip(&peer.kinds) {
                    total.operations = total.operations.saturating_add(kind.operations);
                    total.bytes = total.bytes.saturating_add(kind.bytes);
                    flow.operations = flow.operations.saturating_add(kind.operations);
                    flow.bytes = flow.bytes.saturating_add(kind.bytes);
                }
                if flow.operations > 0 {
                    flows.push(flow);
                }
            }
        }
        let time_s = time.as_secs_f64();
        let rate = |count: u64| if time_s > 0.0 { count as f64 / time_s } else { 0.0 };
        let kinds = KINDS.iter().zip(totals).map(|(kind, total)| KindTotal {
            kind,
            operations: total.operations,
            bytes: total.bytes,
            operations_per_s: rate(total.operations),
            bytes_per_s: rate(total.bytes),
        });
        Report {
            outcome,
            ranks: node_of_rank.len() as u32,
            nodes: node_of_rank.iter().max().map_or(0, |last| last + 1),
            node_of_rank: node_of_rank.to_vec(),
            time_s,
            kinds: kinds.collect(),
            flows,
            network: Vec::new(),
        }
    }

    /// Bytes by pair of ranks, or of nodes where there are more than `ranks_max` ranks.
    pub fn matrix(&self, ranks_max: usize) -> Matrix {
        let by_rank = self.node_of_rank.len() <= ranks_max;
        let (unit, size) = if by_rank { ("rank", self.ranks) } else { ("node", self.nodes) };
        let mut bytes = vec![vec![0_u64; size as usize]; size as usize];
        for flow in &self.flows {
            let place = |rank: u32| if by_rank { rank } else { self.node_of_rank[rank as usize] } as usize;
            let cell = &mut bytes[place(flow.origin)][place(flow.target)];
            *cell = cell.saturating_add(flow.bytes);
        }
        Matrix { unit, bytes }
    }

    /// All of it as one line of JSON, with the files that go with it.
    pub fn to_json(&self, files: &[WrittenFile]) -> String {
        let mut object = serde_json::to_value(self).expect("a report has only names as keys");
        let written = files.iter().filter(|file| file.error.is_none());
        object["files"] = written.map(|file| file.path.to_string_lossy().into_owned()).collect();
        format!("{object}\n")
    }

    /// Every flow as a line of comma-separated values.
    fn to_csv(&self) -> String {
        let header = "origin,target,operations,bytes\n".to_owned();
        self.flows.iter().fold(header, |text, flow| {
            text + &format!("{},{},{},{}\n", flow.origin, flow.target, flow.operations, flow.bytes)
        })
    }
}

/// Writes the heat map, and, where the printed matrix does not hold everything, the list of all flows.
pub fn write_files(report: &Report, prefix: &OsStr) -> Vec<WrittenFile> {
    let path = |suffix: &str| {
        let mut name = prefix.to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let svg = path("-traffic.svg");
    let error = std::fs::write(&svg, heatmap::draw(report)).err();
    let mut files = vec![WrittenFile { what: "the heat map", path: svg, error }];
    if report.node_of_rank.len() > MATRIX_RANKS_MAX {
        let csv = path("-traffic.csv");
        let error = std::fs::write(&csv, report.to_csv()).err();
        files.push(WrittenFile { what: "the traffic of every pair of ranks", path: csv, error });
    }
    files
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A report of `ranks` ranks on two nodes, in which each one put 1000 bytes to its right neighbour.
    pub fn ring(ranks: u32) -> Report {
        let nodes: Vec<u32> = (0..ranks).map(|rank| rank * 2 / ranks).collect();
        let mut kinds = vec![KindTraffic::default(); KINDS.len()];
        kinds[0] = KindTraffic { operations: 2, bytes: 1000 };
        let traffic = (0..ranks).map(|rank| vec![PeerTraffic { peer: (rank + 1) % ranks, kinds: kinds.clone() }]);
        Report::new(&nodes, traffic.collect(), Duration::from_secs(2), Outcome { status: 0, failure: None })
    }

    #[test]
    fn operations_and_bytes_add_up_by_kind_with_rates() {
        let report = ring(4);
        assert_eq!(report.kinds[0].kind, "put");
        assert_eq!((report.kinds[0].operations, report.kinds[0].bytes), (8, 4000));
        assert_eq!((report.kinds[0].operations_per_s, report.kinds[0].bytes_per_s), (4.0, 2000.0));
        assert_eq!(report.kinds[1].operations, 0);
    }

    #[test]
    fn the_matrix_is_by_rank_for_few_and_by_node_for_many() {
        let report = ring(4);
        let matrix = report.matrix(4);
        assert_eq!((matrix.unit, &matrix.bytes[3]), ("rank", &vec![1000, 0, 0, 0]));
        let matrix = report.matrix(3);
        assert_eq!((matrix.unit, matrix.bytes), ("node", vec![vec![1000, 1000], vec![1000, 1000]]));
    }

    #[test]
    fn a_peer_that_does_not_exist_is_left_out_and_a_job_without_time_has_no_rate() {
        let peer = PeerTraffic { peer: 9, kinds: vec![KindTraffic { operations: 1, bytes: 1 }] };
        let report = Report::new(&[0], vec![vec![peer]], Duration::ZERO, Outcome { status: 0, failure: None });
        assert_eq!((report.flows.len(), report.kinds[0].operations_per_s), (0, 0.0));
    }

    #[test]
    fn json_holds_kinds_and_flows_on_one_line() {
        let text = ring(2).to_json(&[]);
        assert_eq!(text.matches('\n').count(), 1);
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["kinds"][0]["bytes"], 2000);
        assert_eq!(object["flows"][1]["target"], 0);
        assert_eq!(object["status"], 0);
    }

    #[test]
    fn what_networks_count_adds_up_and_what_is_not_plain_is_left_out() {
        let counted = |name: &str, count| (name.to_owned(), count);
        let ranks = [
            vec![],
            vec![counted("requests", 5), counted("reads", u64::MAX), counted("a\u{1b}[2Jb", 1)],
            vec![counted("reads", 3), counted("requests", 7), counted(&"x".repeat(41), 1)],
        ];
        let total = |name: &str, total, most| NetworkTotal { name: name.to_owned(), total, most };
        assert_eq!(network_totals(&ranks), [total("requests", 12, 7), total("reads", u64::MAX, u64::MAX)]);
        let many: Vec<_> = (0..100).map(|number| counted(&number.to_string(), 1)).collect();
        assert_eq!(network_totals(&[many]).len(), NETWORK_NAMES_MAX);
    }

    #[test]
    fn the_list_of_flows_has_a_line_for_each_pair() {
        assert_eq!(ring(2).to_csv(), "origin,target,operations,bytes\n0,1,2,1000\n1,0,2,1000\n");
    }
}
