//! Which runs there are: every program on every number of ranks, on every number of nodes.

use crate::cli::{Arguments, Launcher};
use crate::list::Program;

/// One line of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A run.
    Run {
        /// Of which program.
        program: &'a Program,
        /// On how many ranks.
        ranks: u32,
        /// On how many nodes.
        nodes: u32,
    },
    /// A run that makes no sense.
    Skip {
        /// Of which program.
        program: &'a Program,
        /// On how many ranks.
        ranks: u32,
        /// On how many nodes.
        nodes: u32,
        /// Why not.
        reason: String,
    },
}

impl Step<'_> {
    /// Whether something will be started.
    pub fn is_run(&self) -> bool {
        matches!(self, Step::Run { .. })
    }
}

/// All steps, in the order of the list.
pub fn plan<'a>(programs: &'a [Program], arguments: &Arguments) -> Result<Vec<Step<'a>>, String> {
    if let Some(name) = arguments.only.iter().find(|name| programs.iter().all(|program| program.name != **name)) {
        return Err(format!("{} holds no program \"{name}\"", arguments.list.display()));
    }
    let is_chosen = |program: &&Program| {
        (arguments.only.is_empty() || arguments.only.contains(&program.name)) && (!arguments.quick || program.is_quick)
    };
    let steps: Vec<Step> = programs.iter().filter(is_chosen).flat_map(|program| steps_of(program, arguments)).collect();
    if steps.is_empty() { Err("no program is chosen".to_owned()) } else { Ok(steps) }
}

fn steps_of<'a>(program: &'a Program, arguments: &Arguments) -> Vec<Step<'a>> {
    if program.is_alone {
        return vec![Step::Run { program, ranks: 1, nodes: 1 }];
    }
    let mut steps = Vec::new();
    // One that runs on none of the numbers asked for is run on those that it does take.
    let mut counts = arguments.ranks.clone();
    if let crate::list::Ranks::OneOf(list) = &program.ranks
        && !counts.iter().any(|count| program.ranks.accepts(*count))
    {
        counts.extend(list);
    }
    let on_hosts = [arguments.hosts.hosts.len() as u32];
    let node_counts = if on_hosts == [0] { &arguments.nodes[..] } else { &on_hosts };
    for ranks in counts {
        for &nodes in node_counts {
            // Not a run at all: so many nodes would stay empty.
            if nodes > ranks {
                continue;
            }
            steps.push(match reason_against(program, ranks, arguments) {
                None => Step::Run { program, ranks, nodes },
                Some(reason) => Step::Skip { program, ranks, nodes, reason },
            });
        }
    }
    steps
}

/// Why a program is not run on so many ranks, if it is not.
fn reason_against(program: &Program, ranks: u32, arguments: &Arguments) -> Option<String> {
    if program.needs_mpi && arguments.launcher == Launcher::Longarm {
        return Some("calls MPI without MPI_Init, and longarm run starts no MPI".to_owned());
    }
    (!program.ranks.accepts(ranks)).then(|| program.reason.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommandLine;
    use crate::list;
    use clap::Parser;

    const LIST: &str = "one a quick\nfour a ranks=4 reason=\"a grid\"\nalone a alone=yes\nmpi a mpi=yes\n";

    fn planned(options: &[&str]) -> Result<Vec<String>, String> {
        let programs = list::parse(LIST).unwrap();
        let words = ["longarm-suite", "run", "--build", "b", "--list", "l"].iter().chain(options);
        let CommandLine::Run(arguments) = CommandLine::parse_from(words) else { unreachable!() };
        let steps = plan(&programs, &arguments)?;
        Ok(steps
            .iter()
            .map(|step| match step {
                Step::Run { program, ranks, nodes } => format!("{} {ranks}x{nodes}", program.name),
                Step::Skip { program, ranks, nodes, reason } => {
                    format!("{} {ranks}x{nodes} not: {reason}", program.name)
                }
            })
            .collect())
    }

    #[test]
    fn every_layout_is_run_and_what_a_program_refuses_is_skipped_with_its_reason() {
        let steps = planned(&["--ranks", "2,4", "--nodes", "1,2"]).unwrap();
        assert_eq!(
            steps,
            [
                "one 2x1",
                "one 2x2",
                "one 4x1",
                "one 4x2",
                "four 2x1 not: a grid",
                "four 2x2 not: a grid",
                "four 4x1",
                "four 4x2",
                "alone 1x1",
                "mpi 2x1",
                "mpi 2x2",
                "mpi 4x1",
                "mpi 4x2"
            ]
        );
    }

    #[test]
    fn a_program_that_relies_on_mpi_is_not_started_without_it() {
        let steps = planned(&["--ranks", "2", "--only", "mpi", "--launcher", "longarm"]).unwrap();
        assert_eq!(steps, ["mpi 2x1 not: calls MPI without MPI_Init, and longarm run starts no MPI"]);
    }

    #[test]
    fn a_program_that_refuses_all_asked_for_runs_on_what_it_takes() {
        let steps = planned(&["--ranks", "2", "--only", "four"]).unwrap();
        assert_eq!(steps, ["four 2x1 not: a grid", "four 4x1"]);
    }

    #[test]
    fn more_nodes_than_ranks_are_no_layout() {
        let steps = planned(&["--ranks", "1", "--nodes", "1,2", "--quick"]).unwrap();
        assert_eq!(steps, ["one 1x1"]);
    }

    #[test]
    fn a_name_that_the_list_does_not_hold_is_an_error() {
        assert!(planned(&["--only", "two"]).unwrap_err().contains("no program \"two\""));
    }
}
