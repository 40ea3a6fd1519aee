//! Programs of users on simulated ranks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_lite::future::block_on;
use longarm::error::WindowError;
use longarm::{Compare, Group, Question, Reduction, Update, World};
use longarm_sim::{Fault, FaultSet, Machine, Seen, run, run_on, run_seeds, simulated_time};
use serde::{Deserialize, Serialize};

/// A question.
#[derive(Serialize, Deserialize)]
struct Double(u64);

/// What cannot go wrong.
#[derive(Debug, Serialize, Deserialize)]
enum Never {}

impl Question for Double {
    const NUMBER: u32 = 8;
    type Answer = u64;
    type Error = Never;
}

/// What every rank does together: windows, atomics, collectives, a mutex.
fn work(world: World) -> longarm::Result<()> {
    let (me, ranks) = (world.rank(), world.size());
    let window = world.allocate_collective::<u64>(4 + ranks as usize)?;
    for rank in 0..ranks {
        window.put_one(rank, 4 + me as usize, u64::from(me) + 100)?;
        window.fetch_add(rank, 0, 1)?;
        window.accumulate(rank, 1, Update::Sum, &[2])?;
    }
    world.barrier_collective()?;
    let mine = window.get_vec(me, 0..4 + ranks as usize)?;
    let expected: Vec<u64> = (0..u64::from(ranks)).map(|rank| rank + 100).collect();
    assert_eq!((mine[0], mine[1], &mine[4..]), (u64::from(ranks), 2 * u64::from(ranks), &expected[..]));
    let mutexes = world.mutexes_collective(1)?;
    for _ in 0..3 {
        let guard = mutexes.lock(ranks - 1, 0)?;
        let seen = window.get_one(0, 2)?;
        window.put_one(0, 2, seen + 1)?;
        world.quiet_rank(0)?;
        guard.unlock()?;
    }
    let mut sum = [u64::from(me)];
    world.allreduce_collective(longarm::Reduction::Sum, &mut sum)?;
    assert_eq!(sum[0], u64::from(ranks) * u64::from(ranks - 1) / 2);
    world.barrier_collective()?;
    assert_eq!(window.get_one(0, 2)?, 3 * u64::from(ranks));
    Ok(world.finalize()?)
}

#[test]
fn an_ordinary_program_runs_on_every_layout_without_faults() {
    for (ranks, nodes) in [(1, 1), (4, 1), (4, 2), (4, 4), (7, 3)] {
        let reports = run_seeds(ranks, nodes, 0..4, FaultSet::NONE, work).unwrap();
        assert!(reports.iter().all(|report| report.deaths.is_empty()));
    }
}

#[test]
fn the_same_seed_is_the_same_run_and_another_one_is_another() {
    let told = |seed| {
        let report = run(6, 3, seed, FaultSet::harmless(), work).unwrap();
        (report.hash, report.routed)
    };
    let first: Vec<(u64, bool)> = (0..16).map(told).collect();
    let again: Vec<(u64, bool)> = (0..16).map(told).collect();
    assert_eq!(first, again);
    let different: BTreeSet<u64> = first.iter().map(|(hash, _)| *hash).collect();
    let routed = first.iter().filter(|(_, routed)| *routed).count();
    assert_eq!((different.len(), (1..16).contains(&routed)), (16, true), "{routed} of 16 with routers");
}

#[test]
fn seeds_with_routers_have_one_connection_between_nodes_or_as_many_of_ranks_as_servers_take_in() {
    let reports = run_seeds(8, 2, 0..40, FaultSet::NONE, |world| {
        let window = world.allocate_collective::<u64>(8)?;
        (0..8).try_for_each(|rank| window.put_one(rank, world.rank() as usize, 1))?;
        world.barrier_collective()?;
        Ok::<(), longarm::Error>(world.finalize()?)
    });
    let reports = reports.unwrap();
    let counts = |is_routed: bool| -> BTreeSet<u32> {
        reports.iter().filter(|report| report.routed == is_routed).map(|report| report.connections_max).collect()
    };
    assert_eq!(counts(false), BTreeSet::from([4]), "one of each rank of the other node");
    // Of the other node's router alone; or of each of its ranks. A server that takes in three, two or one of them hangs up on the others, which call it
    // once more, and then go by their router.
    let with_routers = [1, 4].into_iter().chain((1..=3).map(|hung_up| 4 + hung_up + 1));
    assert_eq!(counts(true), with_routers.collect());
}

/// Rank 0 puts data and then a flag, at two different nodes or at one, and rank 1 reads the data once it has seen the flag.
fn hand_over(world: &World, is_right: bool) -> longarm::Result<()> {
    let data = world.allocate_collective::<u64>(1)?;
    let flag = world.allocate_collective::<u64>(1)?;
    match world.rank() {
        0 => {
            data.put_one(2, 0, 42)?;
            if is_right {
                world.quiet()?; // The data is there before the flag is sent.
            }
            flag.set(1, 0, 1)?;
        }
        1 => {
            flag.wait_until(0, Compare::Equal, 1)?;
            assert_eq!(data.get_one(2, 0)?, 42, "the flag was there before the data");
        }
        _ => {}
    }
    Ok(world.barrier_collective()?)
}

#[test]
fn a_flag_that_overtakes_its_data_is_found_and_the_same_seed_shows_it_again() {
    let wrong = |world: World| {
        hand_over(&world, false)?;
        Ok::<(), longarm::Error>(world.finalize()?)
    };
    let found = run_seeds(3, 3, 0..100, FaultSet::harmless(), wrong).unwrap_err();
    let Seen::Panicked { rank: 1, said } = &found.seen else { panic!("{found}") };
    assert!(said.contains("the flag was there before the data"), "{said}");
    assert!(found.to_string().starts_with(&format!("seed {} (3 ranks on 3 nodes", found.seed)), "{found}");
    let again = run(3, 3, found.seed, FaultSet::harmless(), wrong).unwrap_err();
    assert_eq!((again.seen, again.events), (found.seen, found.events));
    let right = |world: World| {
        hand_over(&world, true)?;
        Ok::<(), longarm::Error>(world.finalize()?)
    };
    run_seeds(3, 3, 0..300, FaultSet::harmless(), right).unwrap();
}

#[test]
fn ranks_that_wait_for_each_other_for_ever_are_named_with_their_calls() {
    let stuck = run(4, 2, 1, FaultSet::NONE, |world| {
        let window = world.allocate_collective::<u64>(1)?;
        let mutexes = world.mutexes_collective(1)?;
        match world.rank() {
            0 => world.barrier_collective()?,
            1 => drop(window.wait_until(0, Compare::Equal, 7)?),
            2 => std::mem::forget(mutexes.lock(0, 0)?),
            _ => {
                world.quiet()?;
                let _guard = mutexes.lock(0, 0)?;
            }
        }
        world.finalize()?;
        Ok::<(), longarm::Error>(())
    });
    let Seen::Stuck { waits } = stuck.unwrap_err().seen else { panic!("it ended") };
    let expected = [
        "rank 0 waits in barrier for rank 1",
        "rank 1 waits in wait for any rank",
        "rank 2 waits in barrier for rank 3",
        "rank 3 waits in lock for the holder of a mutex at rank 0",
    ];
    assert_eq!(waits, expected);
}

#[test]
fn a_rank_that_dies_is_named_by_those_who_need_it_and_the_survivors_end_well() {
    let named = Arc::new(Mutex::new(BTreeSet::new()));
    let naming = Arc::clone(&named);
    let reports = run_seeds(4, 2, 0..20, FaultSet::NONE.with(Fault::KillRank), move |world| {
        let error = fail_by_a_death(&world)?;
        let deaths = world.deaths();
        let dead = deaths[0].rank;
        assert_eq!((deaths.len(), deaths[0].how.as_str()), (1, "was killed by a simulated fault"));
        assert!(error.contains(&format!("rank {dead} (node {}) was killed by", dead / 2)), "{error}");
        naming.lock().unwrap().insert((dead, world.rank()));
        Ok::<(), longarm::Error>(world.finalize()?)
    });
    let reports = reports.unwrap();
    assert!(reports.iter().all(|report| report.deaths == [1] || report.deaths == [3]));
    let survivors = |dead| (0..4).filter(move |rank| *rank != dead).map(move |rank| (dead, rank));
    assert_eq!(*named.lock().unwrap(), [1, 3].into_iter().flat_map(survivors).collect());
}

#[test]
fn a_node_ends_with_the_rank_that_hosts_its_server_with_routers_and_without() {
    let reports = run_seeds(4, 2, 0..20, FaultSet::NONE.with(Fault::KillServer), |world| {
        let error = fail_by_a_death(&world)?;
        let deaths = world.deaths();
        let host = deaths[0].rank;
        let taken_along = format!("was ended because rank {host}, the host of its node's server, was killed by");
        assert_eq!((deaths.len(), deaths[0].how.as_str()), (2, "was killed by a simulated fault"));
        assert!(deaths[1].rank == host + 1 && deaths[1].how.starts_with(&taken_along), "{}", deaths[1].how);
        let names = [(host, "was killed by"), (host + 1, taken_along.as_str())];
        let mut names = names.map(|(rank, how)| format!("rank {rank} (node {}) {how}", host / 2)).into_iter();
        assert!(names.any(|name| error.contains(&name)), "{error}");
        Ok::<(), longarm::Error>(world.finalize()?)
    });
    let reports = reports.unwrap();
    assert!(reports.iter().all(|report| report.deaths == [0, 1] || report.deaths == [2, 3]));
    assert!([false, true].iter().all(|routed| reports.iter().any(|report| report.routed == *routed)));
}

/// Updates and barriers until a death ends one, and what that says.
fn fail_by_a_death(world: &World) -> longarm::Result<String> {
    let window = world.allocate_collective::<u64>(1)?;
    let turn = || -> longarm::Result<()> {
        window.fetch_add(0, 0, 1)?;
        Ok(world.barrier_collective()?)
    };
    let error = (0..).find_map(|_| turn().err()).expect("there is no end to it but by an error");
    Ok(error.to_string())
}

#[test]
fn what_a_rank_says_behind_finalize_counts_also_where_the_host_of_its_server_was_killed() {
    let mut named = 0;
    for seed in 0..60 {
        let ran = run(4, 2, seed, FaultSet::NONE.with(Fault::KillServer), |world| {
            let rank = world.rank();
            (0..20).try_for_each(|_| world.barrier_collective()).or_else(|error| match world.deaths().is_empty() {
                true => Err(error),
                false => Ok(()),
            })?;
            world.finalize()?;
            assert!(rank != 3, "on purpose");
            Ok::<(), longarm::Error>(())
        });
        match ran {
            Ok(report) => assert_eq!(report.deaths, [2, 3], "seed {seed}: nobody was there to fail"),
            Err(failure) => {
                assert!(matches!(&failure.seen, Seen::Panicked { rank: 3, said } if said == "on purpose"), "{failure}");
                named += 1;
            }
        }
    }
    assert!((1..60).contains(&named), "{named} of 60");
}

#[test]
fn a_rank_that_goes_while_the_launcher_does_not_know_of_its_host_yet_has_died_with_it() {
    let mut went_first = 0;
    for seed in 0..30 {
        let went = Arc::new(AtomicU64::new(0));
        let counts = Arc::clone(&went);
        let ran = run(4, 2, seed, FaultSet::NONE.with(Fault::KillServer), move |world| {
            let window = world.allocate_collective::<u64>(1)?;
            if world.rank() == 1 {
                while simulated_time() < Duration::from_millis(4) {
                    window.get_one(1, 0)?;
                }
                counts.fetch_add(1, Ordering::Relaxed);
                return Ok(()); // Without finalize.
            }
            let _ = world.barrier_collective();
            Ok::<(), longarm::Error>(world.finalize()?)
        });
        match ran {
            Ok(report) => {
                assert_eq!(report.deaths, [0, 1], "seed {seed}");
                went_first += went.load(Ordering::Relaxed);
            }
            Err(failure) => assert!(matches!(failure.seen, Seen::Aborted { rank: 1, .. }), "{failure}"),
        }
    }
    assert!((1..30).contains(&went_first), "{went_first} of 30");
}

/// What is started and what is sent: collectives that go on by themselves, futures, handles that are looked at, messages, questions.
fn started(world: World) -> longarm::Result<()> {
    let (me, ranks) = (world.rank(), world.size());
    let right = (me + 1) % ranks;
    let window = world.allocate_collective::<u64>(8)?;
    let heard = Arc::new(AtomicU64::new(0));
    let hears = Arc::clone(&heard);
    world.register_handler(7, move |message| {
        hears.fetch_add(message.arguments()[0], Ordering::Relaxed);
    })?;
    world.answer(|source, Double(number): Double| Ok::<_, Never>(u64::from(source) + 2 * number))?;
    world.barrier_collective()?;

    let barrier = world.start_barrier_collective();
    let put = window.start_put(right, 0, vec![5, 6])?;
    while !put.test() {}
    put.wait()?;
    while !barrier.test() {}
    barrier.wait()?;
    for rank in 0..ranks {
        world.send_message(rank, 7, &[u64::from(me) + 1], &[])?;
    }
    let all: u64 = (1..=u64::from(ranks)).sum();
    world.run_handlers_until(|| (heard.load(Ordering::Relaxed) == all).then_some(()))?;
    assert_eq!(world.ask(right, &Double(20)).wait().expect("it is answered"), u64::from(me) + 40);

    block_on(async {
        let flag = window.start_wait_until(4, Compare::Equal, 9);
        window.set(right, 4, 9)?;
        assert_eq!(flag.await?, 9);
        assert_eq!(window.start_get(right, 4, vec![0])?.await?, [9]);
        world.start_barrier_collective().await?;
        let mutexes = world.mutexes_collective(1)?;
        for _ in 0..3 {
            let guard = mutexes.start_lock(0, 0).await?;
            let seen = window.get_one(0, 6)?;
            window.put_one(0, 6, seen + 1)?;
            world.start_quiet().await?;
            guard.unlock()?;
        }
        Ok::<(), longarm::Error>(())
    })?;
    world.barrier_collective()?;
    assert_eq!(window.get_one(0, 6)?, 3 * u64::from(ranks));
    Ok(world.finalize()?)
}

#[test]
fn what_is_started_goes_on_by_itself_and_handlers_run_in_turn() {
    for (ranks, nodes) in [(1, 1), (3, 1), (4, 2), (5, 5)] {
        let hashes = || -> Vec<u64> {
            let reports = run_seeds(ranks, nodes, 0..6, FaultSet::harmless(), started).unwrap();
            reports.iter().map(|report| report.hash).collect()
        };
        assert_eq!(hashes(), hashes());
    }
}

/// Long messages both ways, from the program and from a handler, with few cells for them: threads of a rank wait for each other, while
/// one of them is in the middle of sending.
fn chatter(world: World) -> longarm::Result<()> {
    let (ranks, bytes) = (world.size(), 300_000);
    let echoed = Arc::new(AtomicU64::new(0));
    let echoes = Arc::clone(&echoed);
    world.register_handler(1, move |message| message.reply(2, &[], message.payload()).expect("it is there"))?;
    world.register_handler(2, move |message| {
        echoes.fetch_add(message.payload().len() as u64, Ordering::Relaxed);
    })?;
    world.barrier_collective()?;
    for rank in 0..ranks {
        world.send_message(rank, 1, &[], &vec![7; bytes])?;
        world.send_message(rank, 1, &[], &[1])?;
    }
    let all = u64::from(ranks) * (bytes as u64 + 1);
    world.run_handlers_until(|| (echoed.load(Ordering::Relaxed) == all).then_some(()))?;
    world.barrier_collective()?;
    Ok(world.finalize()?)
}

/// Puts and gets of up to a mebibyte, in which connections break, each of words that say where they belong.
fn move_much(world: World) -> longarm::Result<()> {
    let (me, right) = (world.rank(), (world.rank() + 1) % world.size());
    let window = world.allocate_collective::<u64>(128 << 10)?;
    for (turn, words) in (0u64..).zip([2049, 6 << 10, 128 << 10]) {
        let of = |rank: u32| (0..words as u64).map(move |word| word << 8 | turn << 4 | u64::from(rank));
        window.put(right, 0, &of(me).collect::<Vec<u64>>())?;
        world.barrier_collective()?;
        let left = (me + world.size() - 1) % world.size();
        assert!(window.get_vec(me, 0..words)?.into_iter().eq(of(left)), "{words} words were put");
        assert!(window.get_vec(right, 0..words)?.into_iter().eq(of(me)), "{words} words were got");
        world.barrier_collective()?;
    }
    Ok(world.finalize()?)
}

#[test]
fn what_is_large_arrives_whole_by_connections_of_ranks_and_by_routers() {
    let reports = run_seeds(4, 3, 0..24, FaultSet::harmless(), move_much).unwrap();
    let routed = reports.iter().filter(|report| report.routed).count();
    assert!((1..24).contains(&routed), "{routed} of 24 with routers");
}

#[test]
fn threads_of_a_rank_that_send_at_once_take_turns() {
    for (ranks, nodes) in [(2, 1), (2, 2), (4, 2)] {
        run_seeds(ranks, nodes, 0..8, FaultSet::harmless(), chatter).unwrap();
    }
}

#[test]
fn a_loop_that_looks_at_its_own_memory_lets_others_run() {
    run_seeds(2, 1, 0..20, FaultSet::NONE, |world| {
        let window = world.allocate_collective::<u64>(1)?;
        match world.rank() {
            0 => window.put_one(1, 0, 3)?,
            _ => while window.get_one(1, 0)? != 3 {},
        }
        Ok::<(), longarm::Error>(world.finalize()?)
    })
    .unwrap();
}

#[test]
fn ranks_of_one_node_take_turns_inside_of_what_is_not_atomic() {
    let lost = run_seeds(2, 1, 0..200, FaultSet::NONE, |world| {
        let window = world.allocate_collective::<u64>(1)?;
        let seen = window.get_one(0, 0)?;
        window.put_one(0, 0, seen + 1)?;
        world.barrier_collective()?;
        assert_eq!(window.get_one(0, 0)?, 2, "an update was lost");
        Ok::<(), longarm::Error>(world.finalize()?)
    });
    let Seen::Panicked { said, .. } = lost.unwrap_err().seen else { panic!("something else went wrong") };
    assert!(said.contains("an update was lost"), "{said}");
}

#[test]
fn who_goes_without_finalize_or_returns_an_error_is_named() {
    let without = run(3, 1, 1, FaultSet::NONE, |world| {
        let rank = world.rank();
        if rank == 2 {
            return Ok(());
        }
        world.finalize()
    });
    let Seen::Aborted { rank: 2, reason } = without.unwrap_err().seen else { panic!("it has not ended the job") };
    assert!(reason.contains("without finalize"), "{reason}");
    let error = run(3, 3, 1, FaultSet::NONE, |world| {
        if world.rank() == 1 { Err("no".to_owned()) } else { world.finalize().map_err(|error| error.to_string()) }
    });
    assert_eq!(error.unwrap_err().seen, Seen::Failed { rank: 1, error: "no".into() });
    let handler = run(2, 2, 1, FaultSet::NONE, |world| {
        world.register_handler(1, |_| panic!("on purpose"))?;
        world.send_message(1, 1, &[], &[])?;
        Ok::<(), longarm::Error>(world.finalize()?)
    });
    let Seen::Aborted { rank: 1, reason } = handler.unwrap_err().seen else { panic!("it has not ended the job") };
    assert!(reason.contains("on purpose"), "{reason}");
}

#[test]
fn a_node_without_memory_is_an_error_of_all_members() {
    let refused = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&refused);
    run_seeds(4, 2, 0..30, FaultSet::NONE.with(Fault::NoMemory), move |world| {
        match world.allocate_collective::<u64>(1) {
            Ok(window) => window.free_collective()?,
            Err(WindowError::OutOfMemory { .. }) => drop(counts.fetch_add(1, Ordering::Relaxed)),
            Err(error) => return Err(error.into()),
        }
        Ok::<(), longarm::Error>(world.finalize()?)
    })
    .unwrap();
    let refused = refused.load(Ordering::Relaxed);
    assert!(refused > 0 && refused.is_multiple_of(4), "{refused} ranks had none");
}

/// Shares, pieces and sums of sizes on both sides of where the way changes, in words: 1 KiB of a share, 2 KiB of a piece, 4 and 8 KiB of
/// all pieces together.
fn words_of_sizes(group: &Group) -> Vec<u64> {
    let of_all = |bytes: u64| bytes / 8 / u64::from(group.size());
    let bounds = [128, 256, of_all(4 << 10), of_all(8 << 10)];
    [1, 3].into_iter().chain(bounds.into_iter().flat_map(|words| [words, words + 1])).collect()
}

/// Each tells each which share this is, and all what they have.
fn share_out(group: &Group, words: u64) -> longarm::Result<()> {
    let (me, size) = (u64::from(group.rank()), u64::from(group.size()));
    let packed: Vec<u64> = (0..size * words).map(|at| 1000 * words + 100 * me + at / words).collect();
    let expected: Vec<u64> = (0..size * words).map(|at| 1000 * words + 100 * (at / words) + me).collect();
    assert_eq!(group.alltoall_collective(&packed)?, expected, "{words} words for each");
    let all_pieces: Vec<u64> = (0..size * words).map(|at| 10 * (at / words) + at % words).collect();
    let mine = &all_pieces[(me * words) as usize..((me + 1) * words) as usize];
    assert_eq!(group.allgather_collective(mine)?, all_pieces, "{words} words of each");
    let mut sums = mine.to_vec();
    group.allreduce_collective(longarm::Reduction::Sum, &mut sums)?;
    let expected: Vec<u64> = (0..words).map(|at| 10 * size * (size - 1) / 2 + size * at).collect();
    assert_eq!(sums, expected, "sums of {words} words");
    Ok(())
}

#[test]
fn data_gets_where_it_belongs_in_groups_that_split_nodes_unevenly_whatever_its_size() {
    for (ranks, nodes) in [(7, 3), (9, 2), (6, 5)] {
        let program = |world: World| {
            words_of_sizes(&world).into_iter().try_for_each(|words| share_out(&world, words))?;
            // Most ranks, backwards: leaders and places are others than in the world.
            let places: Vec<u32> = (0..world.size()).rev().filter(|place| place % 4 != 1).collect();
            if places.contains(&world.rank()) {
                let group = world.subgroup_collective(&places)?;
                words_of_sizes(&group).into_iter().try_for_each(|words| share_out(&group, words))?;
            }
            Ok::<(), longarm::Error>(world.finalize()?)
        };
        run_seeds(ranks, nodes, 0..4, FaultSet::harmless(), program).unwrap();
    }
}

#[test]
fn what_is_little_is_carried_by_one_rank_of_each_node_and_opens_no_other_connection() {
    let program = |world: World| {
        share_out(&world, 1)?;
        Ok::<(), longarm::Error>(world.finalize()?)
    };
    let report = run_on(Machine::cluster(), 20, 4, program).unwrap();
    assert_eq!(report.connections_max, 3, "the leaders of the other nodes");
}

#[test]
fn whoever_dies_while_shares_are_given_is_named_and_nobody_waits_for_ever() {
    let faults = FaultSet::NONE.with(Fault::KillRank).with(Fault::KillServer);
    let program = |world: World| {
        if let Err(error) = (0..100).try_for_each(|_| share_out(&world, 1)) {
            let named =
                world.deaths().into_iter().any(|death| error.to_string().contains(&format!("rank {}", death.rank)));
            assert!(named, "{error}, and the dead are {:?}", world.deaths());
        }
        Ok::<(), longarm::Error>(world.finalize()?)
    };
    let reports = run_seeds(8, 3, 0..40, faults, program).unwrap();
    assert!(reports.iter().filter(|report| !report.deaths.is_empty()).count() > 10, "hardly any rank was killed");
}

/// Updates of one rank.
const UPDATES: usize = 12;

/// All ranks add to one word, each something else, and give what they found with what they added.
fn add_to_one_word(world: &World) -> longarm::Result<Vec<(u64, u64)>> {
    let wide = world.allocate_collective::<u64>(1)?;
    let narrow = world.allocate_collective::<u32>(1)?;
    let mine = u64::from(world.rank()) + 1;
    let mut found = Vec::new();
    for _ in 0..UPDATES {
        found.push((wide.fetch_add(0, 0, mine)?, mine));
        narrow.fetch_add(0, 0, u32::MAX)?;
    }
    world.barrier_collective()?;
    let updates = world.size() * UPDATES as u32;
    assert_eq!(narrow.get_one(0, 0)?, updates.wrapping_neg(), "a word of 32 bits");
    Ok(found)
}

#[test]
fn each_of_many_updates_of_one_word_finds_what_those_before_it_left_whatever_breaks() {
    for (ranks, nodes) in [(14, 2), (21, 3), (30, 9)] {
        let all = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&all);
        let program = move |world: World| {
            let found = add_to_one_word(&world)?;
            assert!(found.is_sorted(), "a rank's own updates are in order");
            seen.lock().unwrap().extend(found);
            Ok::<(), longarm::Error>(world.finalize()?)
        };
        for seed in 0..8 {
            let faults = if seed == 0 { FaultSet::NONE } else { FaultSet::harmless() };
            run(ranks, nodes, seed, faults, program.clone()).unwrap();
            let mut found = std::mem::take(&mut *all.lock().unwrap());
            found.sort_unstable();
            let mut word = 0;
            for (old, added) in &found {
                assert_eq!(*old, word, "{ranks} ranks over {nodes} nodes, seed {seed}");
                word += added;
            }
            assert_eq!(found.len(), ranks as usize * UPDATES);
        }
    }
}

#[test]
fn many_ranks_of_a_node_update_one_word_in_less_time_each() {
    let time = |ranks: u32, nodes: u32| {
        let report = run_on(Machine::cluster(), ranks, nodes, |world: World| {
            add_to_one_word(&world)?;
            Ok::<(), longarm::Error>(world.finalize()?)
        });
        report.unwrap().virtual_ns / u64::from(ranks)
    };
    let (few, many) = (time(20, 10), time(200, 10));
    assert!(3 * many < few, "of each rank: {few} ns with two on a node, {many} with twenty");
}

/// How long rank 0 is in ten barriers.
fn time_of_barriers(machine: Machine, ranks: u32, nodes: u32) -> Duration {
    let taken = Arc::new(Mutex::new(Duration::ZERO));
    let its = Arc::clone(&taken);
    let program = move |world: World| {
        world.barrier_collective()?;
        let began = simulated_time();
        for _ in 0..10 {
            world.barrier_collective()?;
        }
        if world.rank() == 0 {
            *its.lock().unwrap() = simulated_time().checked_sub(began).unwrap();
        }
        Ok::<(), longarm::Error>(world.finalize()?)
    };
    run_on(machine, ranks, nodes, program).unwrap();
    *taken.lock().unwrap()
}

#[test]
fn the_same_program_takes_the_same_time_on_the_same_machine() {
    let cluster = Machine::cluster();
    assert_eq!(time_of_barriers(cluster, 8, 4), time_of_barriers(cluster, 8, 4));
}

#[test]
fn the_latency_of_the_network_is_paid_once_a_round_and_not_on_a_node() {
    let cluster = Machine::cluster();
    let far = Machine { latency_ns: cluster.latency_ns + 1_000_000, ..cluster };
    let longer = time_of_barriers(far, 8, 4).checked_sub(time_of_barriers(cluster, 8, 4)).unwrap().as_micros();
    // Two rounds of messages between four nodes in each of ten barriers; half a round is in doubt, as ranks leave one after the other.
    assert!((19_500..=25_000).contains(&longer), "{longer} us longer where the network takes 1000 us longer");
    assert_eq!(time_of_barriers(far, 8, 1), time_of_barriers(cluster, 8, 1));
}

#[test]
fn routers_take_their_time_between_nodes_and_none_on_a_node() {
    let cluster = Machine::cluster();
    let routed = Machine { routers: true, ..cluster };
    let (direct, by_routers) = (time_of_barriers(cluster, 8, 4), time_of_barriers(routed, 8, 4));
    // Ten barriers, two rounds of messages in each; in each a server turns once for its router, and once more for what that has brought.
    let longer = by_routers.checked_sub(direct).unwrap().as_nanos();
    let rounds = 19 * u128::from(cluster.turn_ns)..30 * u128::from(cluster.turn_ns);
    assert!(rounds.contains(&longer), "{longer} ns longer by routers");
    assert_eq!(by_routers, time_of_barriers(routed, 8, 4), "the same again");
    assert_eq!(time_of_barriers(routed, 8, 1), time_of_barriers(cluster, 8, 1));
}

/// How long an update of a word of rank 0 takes, on a machine with routers, at the rank that has its node's router in its process, and at another one of
/// that node.
fn times_of_updates(machine: Machine) -> [Duration; 2] {
    let taken = Arc::new(Mutex::new([Duration::ZERO; 2]));
    let its = Arc::clone(&taken);
    let program = move |world: World| {
        let word = world.allocate_collective::<u64>(1)?;
        for rank in [2, 3] {
            world.barrier_collective()?;
            if world.rank() == rank {
                word.fetch_add(0, 0, 1)?; // Connections are made.
                let began = simulated_time();
                word.fetch_add(0, 0, 1)?;
                its.lock().unwrap()[rank as usize - 2] = simulated_time().checked_sub(began).unwrap();
            }
        }
        Ok::<(), longarm::Error>(world.finalize()?)
    };
    run_on(Machine { routers: true, ..machine }, 4, 2, program).unwrap();
    *taken.lock().unwrap()
}

#[test]
fn what_goes_between_a_rank_and_its_router_takes_time_at_both() {
    const LONG: Duration = Duration::from_millis(1);
    let long_ns = LONG.as_nanos() as u64;
    let cluster = Machine::cluster();
    let longer = |machine| {
        let [at_router, elsewhere] = times_of_updates(machine);
        elsewhere.checked_sub(at_router).unwrap()
    };
    assert!(longer(cluster) < LONG / 2);
    // Of each of two: the rank sends its request, and the router pays for having sent the answer to the one before; the router receives the request before it
    // sends it on, and the rank the answer.
    for machine in [Machine { send_ns: long_ns, ..cluster }, Machine { receive_ns: long_ns, ..cluster }] {
        let longer = longer(machine);
        assert!((LONG * 2..LONG * 5 / 2).contains(&longer), "{longer:?}");
    }
}

#[test]
fn who_lies_down_on_links_hears_of_what_its_helper_was_about_to_look_at() {
    let program = |world: World| {
        let mut much = vec![1_u64; (1 << 20) / size_of::<u64>()];
        for _ in 0..10 {
            world.barrier_collective()?;
            let began = simulated_time();
            world.allreduce_collective(Reduction::Sum, &mut much)?;
            let took = simulated_time().checked_sub(began).unwrap();
            // One nap on links is longer.
            assert!(took < Duration::from_millis(3), "{took:?}");
        }
        Ok::<(), longarm::Error>(world.finalize()?)
    };
    run_on(Machine { routers: true, ..Machine::cluster() }, 3, 3, program).unwrap();
}

#[test]
fn two_processors_are_quicker_than_one_and_slower_than_one_for_each() {
    let time = |machine| time_of_barriers(machine, 8, 4);
    let unlimited = Machine { processors: None, ..Machine::shared(1) };
    let (one, two, all) = (time(Machine::shared(1)), time(Machine::shared(2)), time(unlimited));
    assert!(one > two && two > all, "{one:?} on one processor, {two:?} on two, {all:?} with one for each");
}
