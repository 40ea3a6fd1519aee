//! What cannot be gone on from ends the whole job: with a status that says so, and with one line of each process that
//! names it, the call and the reason.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::built::everything;
use crate::compiled::{Build, Compiled};
use crate::{Layout, run};

/// Something that `c/fatal.c` does.
struct Deed {
    name: &'static str,
    /// What a line has to say, all of it: the call, and what was wrong.
    says: &'static [&'static str],
    status: i32,
    /// Whether all processes do it, so that any of them may be the first to be heard.
    by_all: bool,
}

const fn by_last(name: &'static str, says: &'static [&'static str]) -> Deed {
    Deed { name, says, status: 1, by_all: false }
}

const fn by_all(name: &'static str, says: &'static [&'static str]) -> Deed {
    Deed { name, says, status: 1, by_all: true }
}

const DEEDS: &[Deed] = &[
    by_last("outside", &["ARMCI_Put: address 0x", "in no segment of process 1", "64 bytes from 0x"]),
    by_last("past_the_end", &["ARMCI_Put: address 0x", "of process 0", "4 past the end", "64 bytes"]),
    by_last("before_the_start", &["ARMCI_Get: address 0x", "in no segment of process 0"]),
    by_last("a_patch_past_the_end", &["ARMCI_PutS: address 0x", "of process 0", "8 past the end"]),
    by_last("a_list_outside", &["ARMCI_PutV: address 0x", "in no segment of process 0"]),
    by_last("a_list_with_bytes_first", &["ARMCI_PutV:", "4 pieces", "6 bytes", "swapped?", "-DARMCI_GIOV_BYTES_FIRST"]),
    by_last("nonblocking_outside", &["ARMCI_NbGet: address 0x", "in no segment of process 0"]),
    by_last("accumulate_outside", &["ARMCI_Acc: address 0x", "in no segment of process 0"]),
    by_last("no_such_accumulate", &["ARMCI_Acc:", "operation 12345"]),
    by_last("part_of_an_element", &["ARMCI_NbAcc:", "12 bytes", "elements of 8"]),
    by_last("a_patch_before_the_start", &["ARMCI_PutS: address 0x", "of process 0", "before the start"]),
    by_last("no_such_node", &["armci_domain_nprocs:", "no node 17"]),
    by_last("rmw_outside", &["ARMCI_Rmw: address 0x", "in no segment of process 0"]),
    by_last("no_such_rmw", &["ARMCI_Rmw:", "operation 99"]),
    by_last("fence_of_nobody", &["ARMCI_Fence:", "no such process"]),
    by_last("value_of_nobody", &["ARMCI_GetValueInt:", "no such process"]),
    by_last("value_outside", &["ARMCI_GetValueDouble: address 0x", "in no segment of process 0"]),
    by_last("flag_outside", &["ARMCI_Put_flag: address 0x", "in no segment of process 0"]),
    by_last("lock_without_mutexes", &["ARMCI_Lock:", "no mutexes"]),
    by_last("destroy_without_mutexes", &["ARMCI_Destroy_mutexes:", "no mutexes"]),
    by_last("message_that_does_not_fit", &["armci_msg_rcv:", "32 bytes", "does not fit into 16"]),
    by_last("message_to_nobody", &["armci_msg_snd:", "no process 2"]),
    by_last("no_such_group", &["ARMCI_Group_size:", "no group 1234"]),
    by_last("member_of_nothing", &["ARMCI_Absolute_id:", "no process 2"]),
    by_last("no_such_function", &["ARMCI_Gpc_release:"]),
    by_last("node_of_nobody", &["armci_domain_id:", "no such process"]),
    by_last("iterator_past_the_end", &["armci_stride_info_next:", "behind the last"]),
    Deed { status: 7, ..by_last("error_with_status_7", &["ARMCI_Error:", "the program says so", "7"]) },
    Deed { status: 9, ..by_last("abort_with_status_9", &["armci_msg_abort:", "9"]) },
    Deed { status: 11, ..by_last("die", &["fatal.c:", "die:", "11"]) },
    by_last("assertion", &["fatal.c:", "assertion:", "me == ranks + 1"]),
    by_last("assertion_with_text", &["fatal.c:", "assertion_with_text:", "me < 0"]),
    by_all("before_init", &["ARMCI_Put:", "before ARMCI_Init"]),
    by_all("after_finalize", &["ARMCI_Fence:", "after ARMCI_Finalize"]),
    by_all("mutexes_twice", &["ARMCI_Create_mutexes:", "already"]),
    by_last("no_such_mutex", &["ARMCI_Lock:", "2 mutexes", "no number 2"]),
    by_last("lock_of_nobody", &["ARMCI_Lock:", "no process 2"]),
    by_last("unlock_of_what_is_free", &["ARMCI_Unlock: mutex 0", "not held"]),
    by_last("lock_twice", &["ARMCI_Lock:", "holds mutex 0", "already"]),
    by_all("free_of_the_middle", &["ARMCI_Free: address 0x", "not the start of a segment"]),
    by_all("free_twice", &["ARMCI_Free: address 0x", "not the start of a segment"]),
    by_last("use_after_free", &["ARMCI_Put: address 0x", "in no segment of process 0"]),
    by_all("no_such_reduction", &["armci_msg_igop:", "mean"]),
    by_all("no_such_type", &["armci_msg_gop_scope:", "no type 12"]),
    by_all("no_such_scope", &["armci_msg_gop_scope:", "no scope 1"]),
    by_all("free_of_the_world", &["ARMCI_Group_free:", "all processes"]),
];

/// Two processes, who share a node or do not.
const LAYOUTS: [Layout; 2] = [Layout::Ranks { ranks: 2, nodes: 1 }, Layout::Ranks { ranks: 2, nodes: 2 }];
/// The process that does what only one does.
const LAST: &str = "longarm: rank 1 (";
/// What no process may come to say.
const GOES_ON: &str = "goes on";

pub(crate) fn trials() -> Vec<Trial> {
    let compiled = Arc::new(Compiled::new("fatal", Build::C17Shared));
    let program = Arc::clone(&compiled);
    let mut trials = vec![Trial::test("fatal::every_deed_is_tried", move || every_deed_is_tried(&program))];
    for deed in DEEDS {
        for layout in LAYOUTS {
            let program = Arc::clone(&compiled);
            let name = format!("fatal::{}::{}", deed.name, layout.name());
            trials.push(Trial::test(name, move || ends(&program, deed, layout)));
        }
    }
    trials
}

fn every_deed_is_tried(program: &Compiled) -> Result<(), Failed> {
    let output = run(program.path()?, Layout::Alone, &[])?;
    let listed: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    let tried: Vec<&str> = DEEDS.iter().map(|deed| deed.name).collect();
    if listed == tried { Ok(()) } else { Err(format!("in the program: {listed:?}\ntried: {tried:?}").into()) }
}

fn ends(program: &Compiled, deed: &Deed, layout: Layout) -> Result<(), Failed> {
    let output = run(program.path()?, layout, &[deed.name])?;
    judge(deed, &output).map_err(|reason| format!("{reason}\n{}", everything(&output)).into())
}

fn judge(deed: &Deed, output: &std::process::Output) -> Result<(), String> {
    if output.status.code() != Some(deed.status) {
        return Err(format!("the job ended with {} and not with status {}", output.status, deed.status));
    }
    if String::from_utf8_lossy(&output.stdout).contains(GOES_ON) {
        return Err("a process went on".into());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    for rank in ["longarm: rank 0 (", LAST] {
        let lines = stderr.lines().filter(|line| line.starts_with(rank)).count();
        if lines > 1 {
            return Err(format!("{lines} lines begin with {rank:?}"));
        }
    }
    let who = if deed.by_all { "longarm: rank " } else { LAST };
    let says_all = |line: &&str| line.starts_with(who) && deed.says.iter().all(|part| line.contains(part));
    match stderr.lines().find(says_all) {
        Some(_) => Ok(()),
        None => Err(format!("no line begins with {who:?} and says {:?}", deed.says)),
    }
}
