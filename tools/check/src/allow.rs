//! What is allowed in spite of a rule, and why. An allowance that nothing needs any more is reported too.

use crate::rules::Rule;

/// One exception.
pub struct Allowance {
    /// From which rule.
    pub rule: Rule,
    /// A file, or a folder and all in it (with `/` at its end).
    pub path: &'static str,
    /// Why. For whoever reads this file.
    pub reason: &'static str,
}

const fn allow(rule: Rule, path: &'static str, reason: &'static str) -> Allowance {
    Allowance { rule, path, reason }
}

/// All exceptions of the tree.
pub const ALLOWANCES: &[Allowance] = &[
    allow(Rule::Atomics, "shm/src/sync.rs", "the one place where they are exchanged for the model checker's"),
    allow(Rule::Atomics, "memory/src/copy_portable.rs", "accesses to bytes that others write; memory lies below shm"),
    allow(Rule::Atomics, "memory/src/copy.rs", "one threshold that stands alone; memory lies below shm"),
    allow(Rule::Atomics, "benches/micro/limits/memory.rs", "what the machine's own instructions take, without longarm"),
    allow(Rule::Atomics, "memory/src/unshared.rs", "read by a handler that runs in a child; memory lies below shm"),
    allow(Rule::Clock, "memory/examples/", "it measures time"),
    allow(Rule::Clock, "shm/examples/", "it measures time"),
    allow(Rule::Clock, "runtime/", "assembly: configuration is read here and handed down as values"),
    allow(Rule::Clock, "control/", "moments of time as arguments: it never asks what time it is"),
    allow(Rule::Clock, "tools/", "programs of their own"),
    allow(Rule::Clock, "benches/", "they measure time"),
    allow(
        Rule::Clock,
        "netmod/src/clock.rs",
        "the clock of those who are given the time: the server's thread and the runtime",
    ),
    allow(Rule::Clock, "netmod/src/flow/costs.rs", "what packing and sending cost is measured once, for whoever asks"),
    allow(Rule::Clock, "server/src/crew.rs", "its threads: how long they look before they sleep"),
    allow(Rule::Clock, "server/src/thread.rs", "the server's thread: the engine itself gets the time as an argument"),
    allow(
        Rule::Clock,
        "client/src/progress/pace.rs",
        "how long a waiting thread spins before it sleeps is a matter of time",
    ),
    allow(Rule::Clock, "client/src/progress/waits.rs", "how long a thread has waited is a matter of time"),
    allow(
        Rule::Functions,
        "memory/src/add_x86_64.rs",
        "a walk that is written once for each kind of vector, by a macro",
    ),
    allow(Rule::Unsafe, "memory/", "the bottom: regions, copies and the system calls that take raw memory"),
    allow(Rule::Unsafe, "shm/", "what the ranks of a node share"),
    allow(Rule::Unsafe, "managers/src/pmix/sys.rs", "calls the PMIx library, which is found at run time"),
    allow(Rule::Unsafe, "managers/src/munge/sys.rs", "calls the MUNGE library, which is found at run time"),
    allow(Rule::Clock, "managers/examples/", "a program of its own: it is told by the environment who started it"),
    allow(Rule::Unsafe, "client/src/exposed.rs", "holds memory that the kernel writes for other processes"),
    allow(Rule::Unsafe, "client/src/origin_bytes.rs", "lends the caller's buffers to operations that outlive a call"),
    allow(
        Rule::Unsafe,
        "netmod/registration/src/system.rs",
        "userfaultfd, and the page that is wiped in a child: system calls without a safe wrapper",
    ),
    allow(Rule::Unsafe, "netmod/verbs/src/sys/", "calls the verbs library, which is found at run time"),
    allow(Rule::Unsafe, "netmod/verbs/src/fabric.rs", "offers a buffer to the device, and keeps it"),
    allow(Rule::Unsafe, "netmod/verbs/src/stream.rs", "posts requests that name buffers, and keeps those"),
    allow(Rule::Unsafe, "netmod/verbs/src/direct.rs", "posts requests that name lent memory, and keeps the loan"),
    allow(Rule::Unsafe, "netmod/verbs/src/stream/ringing.rs", "the same, a moment later"),
    allow(Rule::Unsafe, "netmod/verbs/src/accounts.rs", "posts requests that name its own memory"),
    allow(Rule::Clock, "netmod/verbs/src/costs.rs", "what a device takes is measured when it is opened"),
    allow(Rule::Clock, "netmod/verbs/src/itself.rs", "a request that takes too long is not waited for"),
    allow(
        Rule::Unsafe,
        "netmod/verbs/src/itself.rs",
        "posts requests of a device to itself, for callers that keep what they name",
    ),
    allow(
        Rule::Unsafe,
        "netmod/verbs/src/paging.rs",
        "has a device use, and discards, pages of a file that nobody else has",
    ),
    allow(
        Rule::Unsafe,
        "netmod/verbs/tests/direct/paging.rs",
        "transfers memory that the tests unmap, move and discard",
    ),
    allow(Rule::Unsafe, "netmod/verbs/src/costs.rs", "posts requests that name its own blocks"),
    allow(Rule::Atomics, "netmod/verbs/src/counts.rs", "counters that stand alone"),
    allow(Rule::Unsafe, "netmod/registration/tests/support/mapping.rs", "the tests unmap, move and discard memory"),
    allow(Rule::Unsafe, "shims/armci/", "the C interface: pointers of C programs, as the headers promise them"),
    allow(Rule::Unsafe, "shims/shmem/", "the C interface: pointers of C programs, as the headers promise them"),
    allow(Rule::Clock, "shims/shmem/", "the specification has variables of its own"),
    allow(Rule::Words, "shims/shmem/", "the words of its users are those of the specification, in messages too"),
    allow(Rule::Words, "docs/src/openshmem.md", "the same"),
    allow(Rule::Unsafe, "shims/both/tests/mixed.rs", "a rank in Rust that calls the C interfaces"),
    allow(Rule::Unsafe, "shims/mpi/", "calls functions of the MPI that is in the process"),
    allow(Rule::Clock, "shims/armci/", "who this process is, before it has joined; armci_timer"),
    allow(Rule::Unsafe, "tools/launch/tests/launcher.rs", "it plays a rank, which takes over an inherited descriptor"),
    allow(Rule::Unsafe, "tools/launch/src/run/child.rs", "what a child does between fork and exec"),
];

/// Whether this is allowed.
pub fn is_allowed(rule: Rule, path: &str) -> bool {
    ALLOWANCES.iter().any(|allowance| allowance.rule == rule && covers(allowance, path))
}

/// Whether an exception is about this file.
pub fn covers(allowance: &Allowance, path: &str) -> bool {
    if allowance.path.ends_with('/') { path.starts_with(allowance.path) } else { path == allowance.path }
}
