//! Whole jobs: every operation of the public interface, in every form, over every layout.
//!
//! This program is the tests and the ranks. Started by `cargo test` it lists trials, one for each job and layout. A
//! trial has the launcher start this program again as ranks, with [`JOB`] naming what they do, and wants exit status
//! 0. A job panics where anything is not as promised. Trials run one at a time, because a job uses all processors.
#![forbid(unsafe_code)]

mod jobs {
    pub mod accumulate;
    pub mod atomics;
    pub mod collectives;
    pub mod configured;
    pub mod crowd;
    pub mod device_words;
    pub mod exposed;
    pub mod form;
    pub mod groups;
    pub mod heap;
    pub mod huge_pages;
    pub mod large;
    pub mod large_collectives;
    pub mod many;
    pub mod messages;
    pub mod mutexes;
    pub mod order;
    pub mod own_part;
    pub mod progress;
    pub mod questions;
    pub mod selections;
    pub mod shape;
    pub mod signals;
    pub mod started;
    pub mod support;
    pub mod symmetric;
    pub mod threads;
    pub mod transfers;
    pub mod traps;
    pub mod windows;
}

use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use longarm::World;
use longarm::config::Config;

/// Ranks look for so long before they sleep, also where they share processors.
const THEY_LOOK: &[(&str, &str)] = &[("LONGARM_SPIN_US", "2000")];
/// Names the job that a rank runs.
const JOB: &str = "LONGARM_TEST_JOB";
/// Ends a job that hangs, so that the others are still run. No job needs a tenth of it.
const SAFETY_NET_S: &str = "300";

/// How many ranks on how many nodes.
#[derive(Clone, Copy)]
enum Layout {
    /// A world of one, started without the launcher.
    Alone,
    /// Started by the launcher.
    Ranks { ranks: u32, nodes: u32 },
}

impl Layout {
    const fn new(ranks: u32, nodes: u32) -> Layout {
        Layout::Ranks { ranks, nodes }
    }

    fn name(self) -> String {
        match self {
            Layout::Alone => "alone".into(),
            Layout::Ranks { ranks, nodes } if ranks % nodes == 0 => format!("{nodes} x {}", ranks / nodes),
            Layout::Ranks { ranks, nodes } => format!("{ranks} over {nodes}"),
        }
    }
}

/// One node, two nodes, a node for each rank, and many more ranks than processors.
const USUAL: &[Layout] = &[Layout::new(4, 1), Layout::new(4, 2), Layout::new(4, 4), Layout::new(16, 4)];
/// The usual ones, nodes of different sizes, and a world of one.
const EVERY: &[Layout] =
    &[Layout::Alone, Layout::new(4, 1), Layout::new(4, 2), Layout::new(4, 4), Layout::new(5, 3), Layout::new(16, 4)];
/// Two nodes that have two ranks each.
const PAIRS: &[Layout] = &[Layout::new(4, 2)];
/// Those for much data: nodes of equal and of different sizes.
const MUCH: &[Layout] = &[
    Layout::new(4, 1),
    Layout::new(4, 2),
    Layout::new(4, 4),
    Layout::new(5, 3),
    Layout::new(5, 5),
    Layout::new(16, 4),
];
/// Nodes that would have more than four connections, of which each rank has one, two or four.
const PARTLY: &[Layout] = &[Layout::new(16, 4), Layout::new(7, 3), Layout::new(9, 9)];
/// Every layout, and members that tell each other only what they come to when they make a window, on nodes of different sizes; and fewer.
const AROUND_MERGE_BOUND: &[Layout] = &[
    Layout::Alone,
    Layout::new(4, 1),
    Layout::new(4, 2),
    Layout::new(4, 4),
    Layout::new(5, 3),
    Layout::new(16, 4),
    Layout::new(7, 2),
    Layout::new(33, 2),
    Layout::new(36, 5),
];
/// Many more ranks than processors, on many nodes.
const CROWD: &[Layout] = &[Layout::new(96, 12)];
/// Several ranks of other nodes use the server of rank 0.
const ONE_SERVER: &[Layout] = &[Layout::new(6, 6), Layout::new(16, 4)];
/// More ranks on a node than a word has permits there, on few nodes and on many.
const ONE_WORD: &[Layout] = &[Layout::new(12, 2), Layout::new(27, 9)];
/// One node that has few ranks, or many.
const ONE_NODE: &[Layout] = &[Layout::new(2, 1), Layout::new(16, 1)];
/// Two ranks of one node.
const TWO_RANKS: &[Layout] = &[Layout::new(2, 1)];
/// For jobs of two ranks: on one node, and on two.
const PAIR: &[Layout] = &[Layout::new(2, 1), Layout::new(2, 2)];

/// What all ranks do, and where.
struct Job {
    name: &'static str,
    body: fn(&World),
    layouts: &'static [Layout],
    /// Configuration variables.
    variables: &'static [(&'static str, &'static str)],
    /// The configuration in place of the environment's.
    configure: Option<fn() -> Config>,
}

/// A job whose ranks go through the servers of their nodes.
const fn routed_job(name: &'static str, body: fn(&World)) -> Job {
    Job { name, body, layouts: MUCH, variables: &[("LONGARM_CONNECTIONS_MAX", "0")], configure: None }
}

/// A job whose ranks have some connections of their own, and reach other nodes through the servers.
const fn partly_routed_job(name: &'static str, body: fn(&World)) -> Job {
    Job { name, body, layouts: PARTLY, variables: &[("LONGARM_CONNECTIONS_MAX", "4")], configure: None }
}

const fn job(name: &'static str, body: fn(&World), layouts: &'static [Layout]) -> Job {
    Job { name, body, layouts, variables: &[], configure: None }
}

fn all_jobs() -> Vec<Job> {
    use jobs::*;
    vec![
        job("words_are_put_and_got_in_every_form_and_shape", transfers::words, EVERY),
        job("floats_are_put_and_got_in_every_form_and_shape", transfers::floats, USUAL),
        job("structs_and_bytes_are_put_and_got_in_every_form_and_shape", transfers::structs, USUAL),
        job("lengths_around_every_limit_arrive_whole", transfers::lengths, USUAL),
        job("shapes_of_megabytes_arrive_whole", transfers::large_shapes, USUAL),
        job("many_handles_are_open_at_once", transfers::many_handles, USUAL),
        job("each_selection_means_its_elements_in_every_form", selections::every, EVERY),
        job("many_elements_go_in_one_call_as_they_do_in_many", many::every, EVERY),
        job("a_list_with_a_wrong_place_does_nothing", many::refused, EVERY),
        job("updates_of_all_ranks_by_lists_lose_nothing", many::concurrent, USUAL),
        job("the_own_part_is_worked_on_in_place", own_part::in_place, EVERY),
        job("words_of_the_own_part_are_updated_together_with_all_ranks", own_part::together, USUAL),
        job("integers_are_accumulated_in_every_form_and_shape", accumulate::integers, EVERY),
        job("floats_are_accumulated_in_every_form_and_shape", accumulate::floats, USUAL),
        job("complex_numbers_are_accumulated_in_every_form_and_shape", accumulate::complex, USUAL),
        job("accumulates_of_all_ranks_to_one_place_lose_nothing", accumulate::concurrent, USUAL),
        job("updates_that_a_type_does_not_have_are_refused", accumulate::refused, USUAL),
        job("each_rmw_does_what_it_says", atomics::each, EVERY),
        job("rmws_of_all_ranks_lose_nothing_and_see_each_value_once", atomics::concurrent, USUAL),
        job("rmws_and_accumulates_and_word_puts_are_atomic_together", atomics::mixed, USUAL),
        job("words_of_devices_are_updated_by_them_or_refused", device_words::all, EVERY),
        job("who_sees_a_signal_sees_the_bytes", signals::put_signal, USUAL),
        job("every_comparison_is_waited_for", signals::comparisons, EVERY),
        job("any_some_and_all_words_are_waited_for", signals::several_words, USUAL),
        job("one_rank_at_a_time_holds_a_mutex", mutexes::exclusion, USUAL),
        job("threads_of_ranks_share_mutexes_and_take_turns", mutexes::threads, EVERY),
        Job { variables: THEY_LOOK, ..job("ranks_that_look_for_a_mutex_pass_it_on", mutexes::exclusion, USUAL) },
        Job { variables: THEY_LOOK, ..job("threads_of_ranks_that_look_share_mutexes", mutexes::threads, USUAL) },
        Job { variables: THEY_LOOK, ..job("ranks_that_look_for_a_mutex_wait_for_few_turns", mutexes::patience, USUAL) },
        job("mutexes_say_what_is_wrong", mutexes::errors, EVERY),
        job("a_mutex_is_free_after_its_holders_quiet", mutexes::free_after_quiet, EVERY),
        job("waiters_of_a_mutex_take_turns", mutexes::fairness, USUAL),
        job("operations_of_a_rank_take_effect_in_program_order", order::program_order, EVERY),
        job("what_is_quiet_is_visible_to_others", order::quiet, USUAL),
        job("a_barrier_completes_everything_of_everybody", order::barrier, USUAL),
        job("collectives_that_are_started_do_what_blocking_ones_do", started::collectives, EVERY),
        job("collectives_that_are_started_in_crossed_orders_do_not_wait_for_each_other", started::crossed, EVERY),
        job("memory_and_groups_are_made_and_freed_while_a_thread_goes_on", started::memory_and_groups, EVERY),
        job("words_are_waited_for_and_quiets_awaited_on_one_thread", started::words, EVERY),
        job("puts_with_a_signal_and_exposed_memory_are_awaited", started::signals_and_exposed, EVERY),
        job("tasks_of_one_thread_take_mutexes_in_turns_and_give_them_up", started::locks, EVERY),
        job("groups_are_made_from_lists", groups::lists, USUAL),
        job("groups_are_split_and_split_again", groups::splits, EVERY),
        job("groups_on_a_node_meet_in_memory_also_when_others_were_not_made", groups::meet_in_memory, ONE_NODE),
        job("a_child_of_a_fork_leaves_its_parents_groups_where_they_meet", groups::forked, TWO_RANKS),
        job("windows_belong_to_the_members_of_a_group", groups::windows, USUAL),
        job("collectives_of_every_size_are_right", collectives::every, EVERY),
        job("collectives_of_groups_are_right", collectives::on_groups, USUAL),
        job("every_reduction_is_right", collectives::reductions, EVERY),
        job("sums_of_floats_have_the_same_bits_in_every_layout", collectives::same_bits, AROUND_MERGE_BOUND),
        job("collectives_follow_each_other_without_barriers", collectives::back_to_back, USUAL),
        job("collective_loads_around_every_bound_follow_each_other", collectives::laid_out, USUAL),
        job("collective_loads_that_are_laid_out_need_no_messages", collectives::laid_out_without_messages, ONE_NODE),
        job("collective_loads_of_many_groups_follow_each_other", collectives::laid_out_in_groups, EVERY),
        Job {
            variables: THEY_LOOK,
            ..job(
                "collective_loads_of_many_groups_follow_each_other_where_ranks_look",
                collectives::laid_out_in_groups,
                PAIR,
            )
        },
        Job {
            variables: THEY_LOOK,
            ..job("collective_loads_follow_each_other_where_ranks_look", collectives::laid_out, PAIR)
        },
        job("collectives_on_much_data_of_groups_that_overlap_follow_each_other", large_collectives::in_a_row, MUCH),
        Job {
            variables: &[("LONGARM_SPIN_US", "20")],
            ..job("collectives_are_right_where_ranks_look_a_moment_before_they_sleep", collectives::back_to_back, MUCH)
        },
        routed_job("routed_words_are_put_and_got_in_every_form_and_shape", transfers::words),
        routed_job("routed_operations_of_a_rank_take_effect_in_program_order", order::program_order),
        routed_job("waiters_of_a_mutex_take_turns_where_they_are_routed", mutexes::fairness),
        routed_job("routed_collectives_on_much_data_follow_each_other", large_collectives::in_a_row),
        routed_job("routed_threads_do_not_disturb_each_other", threads::together),
        partly_routed_job("partly_routed_words_are_put_and_got_in_every_form_and_shape", transfers::words),
        partly_routed_job("partly_routed_operations_of_a_rank_take_effect_in_program_order", order::program_order),
        partly_routed_job("waiters_of_a_mutex_take_turns_where_some_are_routed", mutexes::fairness),
        partly_routed_job("partly_routed_collectives_on_much_data_follow_each_other", large_collectives::in_a_row),
        partly_routed_job("partly_routed_threads_do_not_disturb_each_other", threads::together),
        job("threads_run_collectives_on_much_data_at_once", large_collectives::of_threads, USUAL),
        job(
            "what_a_broken_member_sends_in_a_collective_is_an_error_that_names_it",
            collectives::with_a_broken_member,
            USUAL,
        ),
        job("mismatched_collectives_are_told_to_all_and_the_group_lives_on", collectives::mismatches, USUAL),
        job("messages_of_every_size_arrive_with_their_words", messages::sizes, EVERY),
        job("messages_are_replied_to", messages::replies, EVERY),
        job("messages_of_a_source_come_in_order", messages::order, USUAL),
        job("messages_wait_for_a_late_handler", messages::late_handler, EVERY),
        job("handlers_take_locks_that_threads_hold_while_they_wait", messages::locks, EVERY),
        job("who_waits_for_handlers_runs_them", messages::waits_for_handlers, EVERY),
        job("handlers_run_while_their_rank_computes", messages::computing, USUAL),
        Job {
            variables: &[("LONGARM_SPIN_US", "1000000")],
            ..job("a_handler_that_waits_holds_up_no_server", messages::handler_waits, USUAL)
        },
        job("questions_are_answered_by_every_rank_with_what_its_handler_says", questions::answers, EVERY),
        job("questions_that_go_wrong_say_who_is_at_fault", questions::errors, EVERY),
        job("a_rank_that_computes_serves_its_memory", progress::computing, USUAL),
        job("a_rank_that_looks_at_its_own_word_serves_its_memory", progress::looking, USUAL),
        job(
            "a_full_inbox_of_a_rank_that_computes_delays_nothing_at_its_neighbour",
            progress::beside_a_full_inbox,
            PAIRS,
        ),
        job("long_messages_both_ways_wait_for_each_other_and_arrive", progress::mail_both_ways, PAIRS),
        job("nothing_is_nothing_everywhere", traps::nothing, EVERY),
        job("a_rank_is_its_own_target", traps::own_target, EVERY),
        job("bytes_at_any_offset_are_exact", traps::unaligned, EVERY),
        job("the_last_element_is_inside_and_the_next_is_not", traps::edges, EVERY),
        job("a_panic_in_a_scope_passes_when_its_buffers_are_let_go_of", traps::panicking_scope, EVERY),
        job("parts_differ_in_size", traps::sizes, USUAL),
        job("impossible_shapes_are_refused", traps::impossible, EVERY),
        job("memory_outside_windows_is_reached_by_the_ranks_of_its_node", exposed::exposed, EVERY),
        job("groups_are_made_without_a_word_and_told_apart_by_their_tags", symmetric::groups, EVERY),
        job("the_first_to_ask_says_how_large_the_heap_is", symmetric::heap, EVERY),
        job("what_a_rank_looks_at_itself_ends_its_wait", symmetric::waits, EVERY),
        job("updates_that_nobody_waits_for_are_all_there_in_the_end", symmetric::updates, EVERY),
        job("memory_that_stays_for_good_is_reached_by_the_ranks_of_its_node", symmetric::exposed_for_good, EVERY),
        job("who_comes_second_shares_the_world_and_leaves_it_to_the_others", symmetric::shared, EVERY),
        job("a_freed_window_refuses_everything", windows::freed, EVERY),
        job("windows_come_and_go", windows::reuse, AROUND_MERGE_BOUND),
        job(
            "one_window_after_the_other_is_empty_and_as_large_as_asked",
            windows::one_after_the_other,
            AROUND_MERGE_BOUND,
        ),
        job("a_window_in_memory_of_another_is_made_in_one_collective", windows::one_collective, AROUND_MERGE_BOUND),
        job("ranks_of_a_node_map_windows_at_the_same_addresses", windows::addresses, EVERY),
        job(
            "memory_that_nodes_have_from_different_windows_stays_where_it_is",
            windows::memory_that_differs,
            AROUND_MERGE_BOUND,
        ),
        job("too_large_a_window_is_an_error_on_all_ranks", windows::too_large, AROUND_MERGE_BOUND),
        job("sparse_windows_take_no_memory", windows::sparse, USUAL),
        job("more_than_four_gibibytes_go_in_one_call", large::transfers, PAIR),
        job("offsets_beyond_four_gibibytes_are_exact", large::offsets, USUAL),
        Job { variables: &[("LONGARM_HEAP_BYTES", "1m")], ..job("the_heap_gives_and_takes", heap::life, EVERY) },
        Job { variables: huge_pages::VARIABLES, ..job("large_windows_are_in_huge_pages", huge_pages::had, MUCH) },
        Job {
            variables: configured::VARIABLES,
            ..job("a_configuration_in_the_environment_is_used", configured::used, EVERY)
        },
        Job {
            // What the environment says otherwise has no effect.
            variables: &[("LONGARM_HEAP_BYTES", "4m"), ("LONGARM_ENCRYPT", "no")],
            configure: Some(configured::by_names),
            ..job("a_configuration_in_the_program_does_the_same", configured::used, EVERY)
        },
        Job {
            configure: Some(configured::by_fields),
            ..job("a_configuration_of_fields_does_the_same", configured::used, EVERY)
        },
        job("threads_of_a_rank_do_not_disturb_each_other", threads::together, USUAL),
        job("all_ranks_of_many_nodes_call_all_others_at_once", crowd::calls, CROWD),
        job("updates_of_one_word_that_many_want_are_done_one_after_the_other", crowd::one_word, ONE_WORD),
        Job {
            variables: &[("LONGARM_CONNECTIONS_MAX", "0"), ("LONGARM_ENCRYPT", "yes")],
            ..job("updates_of_one_word_are_done_over_routers_too", crowd::one_word, ONE_WORD)
        },
        Job {
            variables: &[("LONGARM_SERVER_THREADS", "3")],
            ..job("a_server_that_many_use_at_once_has_a_crew", crowd::one_server, ONE_SERVER)
        },
        Job {
            variables: &[("LONGARM_SERVER_THREADS", "3"), ("LONGARM_SPIN_US", "50"), ("LONGARM_ENCRYPT", "yes")],
            ..job("a_crew_that_looks_before_it_sleeps_serves_encrypted_connections", crowd::one_server, ONE_SERVER)
        },
    ]
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(JOB) {
        return run_rank(&name);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let trials = all_jobs().into_iter().flat_map(|job| {
        let Job { name, layouts, variables, .. } = job;
        layouts.iter().map(move |layout| {
            let layout = *layout;
            Trial::test(format!("{name} ({})", layout.name()), move || run_trial(name, layout, variables))
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Runs as a rank of a job.
fn run_rank(name: &str) -> ExitCode {
    let job = all_jobs().into_iter().find(|job| job.name == name).expect("the job exists");
    let world = match job.configure {
        Some(configure) => longarm::init_with(configure()),
        None => longarm::init(),
    };
    let world = world.expect("the world can be joined");
    (job.body)(&world);
    world.finalize().expect("the world can be left");
    jobs::crowd::wait_for_the_end_of_the_crew();
    ExitCode::SUCCESS
}

/// Has the launcher run a job.
fn run_trial(name: &str, layout: Layout, variables: &[(&str, &str)]) -> Result<(), Failed> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = match layout {
        Layout::Alone => Command::new(this),
        Layout::Ranks { ranks, nodes } => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_longarm"));
            let (ranks, nodes) = (ranks.to_string(), nodes.to_string());
            command.args(["run", "-n", &ranks, "--nodes", &nodes, "--tag-output", "--timeout", SAFETY_NET_S, "--"]);
            command.arg(this);
            command
        }
    };
    // A message says where a job failed; the backtraces of all ranks would bury it.
    command.env(JOB, name).env("RUST_BACKTRACE", "0").envs(variables.iter().copied()).stdin(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("the job ended with {}\n{stdout}{stderr}", output.status).into())
}
