//! Calls with arguments that make no sense: each gets an error that says what is wrong, and the job lives on.

use libtest_mimic::{Failed, Trial};
use longarm::{Compare, Complex64, Patch, Reduction, Segment, Update, Window, World};

use super::outside::Job;

const LAYOUT: (u32, u32) = (4, 2);
/// Words of each part.
const WORDS: usize = 10;
/// The largest window of this job.
const WINDOW_BYTES_MAX: &str = "1m";

/// What a rank calls, once for each target, and a part of the error that it gets.
type Try = (&'static str, fn(&Window<u64>, u32) -> Result<(), String>, &'static str);

fn said<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<(), String> {
    result.map(drop).map_err(|error| error.to_string())
}

const TRIES: [Try; 18] = [
    ("put over the end", |w, at| said(w.put(at, 9, &[1, 2])), "bytes 72..88 are outside, its part has 80 bytes"),
    ("put behind the end", |w, at| said(w.put_one(at, 10, 1)), "bytes 80..88 are outside, its part has 80 bytes"),
    ("put far away", |w, at| said(w.put_one(at, usize::MAX, 1)), "outside"),
    ("get over the end", |w, at| said(w.get_vec(at, 0..11)), "bytes 0..88 are outside, its part has 80 bytes"),
    ("started get", |w, at| said(w.start_get(at, 8, vec![0; 3])), "bytes 64..88 are outside"),
    ("accumulate", |w, at| said(w.accumulate(at, 9, Update::Sum, &[1, 2])), "bytes 72..88 are outside"),
    ("started accumulate", |w, at| said(w.start_accumulate(at, 10, Update::Sum, vec![1])), "bytes 80..88 are outside"),
    ("fetch_add", |w, at| said(w.fetch_add(at, 10, 1)), "bytes 80..88 are outside"),
    ("started swap", |w, at| said(w.start_swap(at, 1 << 61, 1)), "outside"),
    ("strided put", |w, at| said(w.put(at, stride(4, 4).with_buffer(&stride(1, 4)), &[0; 4])), "outside"),
    ("strided get below 0", |w, at| said(w.get(at, stride(-1, 4).with_buffer(&stride(1, 4)), &mut [0; 4])), "to rank"),
    ("uneven patches", |w, at| said(w.put(at, stride(1, 4).with_buffer(&stride(1, 3)), &[0; 9])), "24 bytes"),
    ("short buffer", |w, at| said(w.put(at, stride(1, 4).with_buffer(&stride(9, 4)), &[0; 9])), "to rank"),
    ("vector put", |w, at| said(w.put(at, &segments(9), &[0; 4])), "bytes 0..88 are outside"),
    ("vector get", |w, at| said(w.get(at, &segments(10), &mut [0; 4])), "bytes 0..96 are outside"),
    ("short vector buffer", |w, at| said(w.put(at, &segments(2), &[0; 3])), "to rank"),
    ("signal outside", |w, at| said(w.put_signal_set(at, 0, &[1], (w, 10), 1)), "bytes 80..88 are outside"),
    (
        "smallest complex number",
        |w, at| said(w.cast::<Complex64>().accumulate(at, 0, Update::Min, &[Complex64::default()])),
        "does not exist for this element type",
    ),
];

fn stride(stride: isize, count: usize) -> Patch {
    Patch::new(0, &[count], &[stride])
}

fn segments(last: usize) -> [Segment; 2] {
    [Segment { target: 0, origin: 0, count: 2 }, Segment { target: last, origin: 2, count: 2 }]
}

/// Calls whose arguments are wrong whatever the target, or that all ranks make together.
fn together(world: &World, window: &Window<u64>) -> Vec<(&'static str, Result<(), String>)> {
    let (me, ranks) = (world.rank(), world.size());
    let mutexes = world.mutexes_collective(2).expect("memory is enough");
    let far = (me + 2) % ranks;
    let freed = world.allocate_collective::<u64>(WORDS).expect("memory is enough");
    freed.free_collective().expect("all live");
    let parity = world.split_collective(Some(me % 2), 0).expect("all live").expect("a member");
    let ours = parity.allocate_collective::<u64>(WORDS).expect("memory is enough");
    let guard = mutexes.lock(me, 0).expect("it is free");
    let mut two = [1_u64; 2];
    let odd = usize::from(me == 1);
    let results = vec![
        ("no such rank", said(window.put_one(99, 0, 1))),
        ("no such rank to be quiet with", said(world.quiet_rank(4))),
        ("no such rank to speak with", said(world.send_message(4, 1, &[], &[]))),
        ("too many words", said(world.send_message(far, 1, &[0; 17], &[]))),
        ("no member", said(ours.put_one((me + 1) % ranks, 0, 1))),
        ("freed", said(freed.put_one(far, 0, 1))),
        ("freed here", said(freed.get_one(me, 0))),
        ("freed twice", said(freed.free_collective())),
        ("wait outside", said(window.wait_until(WORDS, Compare::Equal, 0))),
        ("no such mutex", said(mutexes.lock(far, 2).map(drop))),
        ("mutex of another", said(mutexes.unlock(far, 1))),
        ("mutex held already", said(mutexes.lock(me, 0).map(drop))),
        ("no such root", said(world.broadcast_collective(4, &mut two))),
        ("no such reduction", said(world.allreduce_collective(Reduction::Min, &mut [Complex64::default()]))),
        ("uneven shares", said(world.alltoall_collective(&[1; 7]))),
        ("bad member", said(world.subgroup_collective(&[me, me]))),
        ("different calls", if me == 1 { said(world.sync_collective()) } else { said(world.barrier_collective()) }),
        ("different lengths", said(world.allreduce_collective(Reduction::Sum, &mut two[odd..]))),
        ("different roots", said(world.broadcast_collective(odd as u32, &mut two))),
        ("different reductions", said(world.reduce_collective(0, [Reduction::Sum, Reduction::Max][odd], &mut two))),
        ("too much memory", said(world.allocate_collective::<u64>(if me == 1 { 1 << 20 } else { 1 }))),
    ];
    drop(guard);
    results
}

/// What each of them says; `{far}` stands for the rank two places ahead.
const SAID: [(&str, &str); 21] = [
    ("no such rank", "put to rank 99: the world has 4 ranks"),
    ("no such rank to be quiet with", "quiet to rank 4: the world has 4 ranks"),
    ("no such rank to speak with", "message to rank 4: the world has 4 ranks"),
    ("too many words", "up to 16 words, not 17"),
    ("no member", "it has no part in window"),
    ("freed", "put to rank {far}: window"),
    ("freed here", "was freed"),
    ("freed twice", "was freed before"),
    ("wait outside", "word at 80 is outside this rank's part of window"),
    ("no such mutex", "rank {far} hosts 2 mutexes, there is no number 2"),
    ("mutex of another", "mutex 1 of rank {far} is not held by this rank"),
    ("mutex held already", "is held by this rank already"),
    ("no such root", "root is 4, but the group has 4 members"),
    ("no such reduction", "reduction of this element type"),
    ("uneven shares", "number of elements is 7, but the group has 4 members"),
    ("bad member", "twice"),
    ("different calls", "was called here, but rank"),
    ("different lengths", "was called here, but rank"),
    ("different roots", "was called here, but rank"),
    ("different reductions", "was called here, but rank"),
    ("too much memory", "rank 1 asks for 8388608 bytes"),
];

/// The rank's side.
pub fn body(world: World) {
    let me = world.rank();
    let window = world.allocate_collective::<u64>(WORDS).expect("memory is enough");
    let wonder = || "it came back as if nothing were wrong".to_owned();
    for (name, call, _) in TRIES {
        for target in 0..world.size() {
            let error = call(&window, target).err().unwrap_or_else(wonder);
            println!("rank {me}, {name} at {target}: {error}");
        }
    }
    for (name, result) in together(&world, &window) {
        println!("rank {me}, {name}: {}", result.err().unwrap_or_else(wonder));
    }
    // Nothing of all this was applied, and everything still works.
    world.barrier_collective().expect("the job lives on");
    for rank in 0..world.size() {
        assert_eq!(window.get_vec(rank, 0..WORDS).expect("the job lives on"), [0; WORDS]);
    }
    world.barrier_collective().expect("the job lives on");
    let mut sum = [u64::from(me)];
    world.allreduce_collective(Reduction::Sum, &mut sum).expect("the job lives on");
    assert_eq!(sum, [6]);
    window.accumulate((me + 1) % 4, 0, Update::Sum, &[7]).expect("the job lives on");
    world.barrier_collective().expect("the job lives on");
    assert_eq!(window.get_one(me, 0).expect("the job lives on"), 7);
    world.finalize().expect("the job lives on");
    println!("rank {me} is content");
}

fn wrong_arguments() -> Result<(), Failed> {
    let job = Job::start(LAYOUT, "arguments", "", &[("LONGARM_WINDOW_BYTES_MAX", WINDOW_BYTES_MAX)])?;
    let ended = job.end()?;
    ended.expect_status(0)?;
    for me in 0..LAYOUT.0 {
        for (name, _, part) in TRIES {
            for target in 0..LAYOUT.0 {
                let start = format!("rank {me}, {name} at {target}: ");
                ended.expect_line(&start, part)?;
                ended.expect_line(&start, &format!("rank {target}"))?;
            }
        }
        for (name, part) in SAID {
            let part = part.replace("{far}", &((me + 2) % LAYOUT.0).to_string());
            ended.expect_line(&format!("rank {me}, {name}: "), &part)?;
        }
        ended.expect_line(&format!("rank {me} "), "is content")?;
    }
    Ok(())
}

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    vec![Trial::test("wrong_arguments_are_refused_by_name_and_the_job_lives_on", wrong_arguments)]
}
