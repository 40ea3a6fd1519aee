use longarm_proto::{CONTENDED, NodeId, PASSED, SPINNERS};

use super::*;
use crate::mock::{MockRank, MockWorld, note_death};
use crate::mutex_line::{ROUND_OFFSET, SET_OFFSET};

const HERE: Rank = Rank(1);
const THERE: Rank = Rank(2);

fn home(world: &MockWorld) -> MutexHome {
    MutexHome::new(Arc::new(world.rank(Rank(0)).window))
}

/// The word of a mutex.
fn word(rank: &MockRank, host: Rank, number: u64) -> u32 {
    rank.word(host, number * MUTEX_BYTES) as u32
}

fn set_word(rank: &MockRank, host: Rank, number: u64, word: u32) {
    rank.set_memory(host, number * MUTEX_BYTES, &word.to_le_bytes());
}

#[test]
fn a_free_mutex_of_this_node_is_taken_and_given_back_without_a_server() {
    let world = MockWorld::new();
    let (rank, home) = (world.rank(Rank(0)), home(&world));
    // The first time the part is mapped, then it is there.
    for _ in 0..2 {
        let taken = rank.client.lock(&home, HERE, 3).unwrap();
        assert_eq!((word(&rank, HERE, 3), taken.previous_holder_died), (mutex_word(Rank(0)), false));
        rank.client.unlock(&home, HERE, 3).unwrap();
        assert_eq!(word(&rank, HERE, 3), 0);
        let taken = rank.client.try_lock(&home, HERE, 3).unwrap().expect("it is free");
        assert_eq!(word(&rank, HERE, 3), mutex_word(Rank(0)));
        rank.client.unlock_taken(&home, taken, HERE, 3).unwrap();
        assert_eq!(word(&rank, HERE, 3), 0);
    }
    assert_eq!((rank.calls(), rank.time.rests()), (vec![], vec![]));
}

#[test]
fn a_mutex_that_a_neighbour_holds_is_waited_for_at_the_server_of_its_node() {
    let world = MockWorld::new();
    let (rank, home) = (world.rank(Rank(0)), home(&world));
    set_word(&rank, HERE, 0, mutex_word(Rank(1)));
    let server = rank.server(0);
    rank.time.at_next_rest(move || server.lock().grant(true));
    let taken = rank.client.lock(&home, HERE, 0).unwrap();
    assert!(taken.previous_holder_died && rank.time.rests().len() == 1);
    let offset = 0;
    assert_eq!(rank.asked(0), [Request::Lock { target: home.window.target(HERE), offset }]);
    // While others wait for it the server says who is next.
    set_word(&rank, HERE, 0, mutex_word(Rank(0)) | CONTENDED);
    rank.client.unlock_taken(&home, taken, HERE, 0).unwrap();
    assert_eq!(rank.asked(0), [Request::Unlock { target: home.window.target(HERE), offset }]);
    assert_eq!((word(&rank, HERE, 0), rank.calls()), (0, vec![NodeId(0)]));
}

/// Long enough for any machine.
const SPIN_FOR_EVER_US: u64 = 3_600_000_000;

/// What the word of a rank's first mutex says once its holder has to look at the set.
fn await_spinner(rank: &MockRank, host: Rank) -> u32 {
    loop {
        let word = word(rank, host, 0);
        if word & SPINNERS != 0 {
            return word;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_rank_that_looks_is_passed_the_mutex_and_nobody_is_asked() {
    let world = MockWorld::new();
    let (holder, home) = (world.rank(Rank(1)), home(&world));
    let waiter = world.rank_that_spins(Rank(0), SPIN_FOR_EVER_US);
    // A rank that there is not, and one that is dead, are left out.
    holder.set_memory(HERE, SET_OFFSET, &(1_u64 << 40 | 1).to_le_bytes());
    let taken = holder.client.lock(&home, HERE, 0).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let taken = waiter.client.lock(&home, HERE, 0).unwrap();
            let found = word(&waiter, HERE, 0);
            waiter.client.unlock_taken(&home, taken, HERE, 0).unwrap();
            (found, taken.previous_holder_died)
        });
        assert_eq!(await_spinner(&holder, HERE), mutex_word(Rank(1)) | SPINNERS);
        holder.client.unlock_taken(&home, taken, HERE, 0).unwrap();
        assert_eq!(waiting.join().unwrap(), (mutex_word(Rank(0)) | SPINNERS, false));
    });
    assert_eq!((word(&holder, HERE, 0), holder.word(HERE, SET_OFFSET)), (0, 0), "it was passed past the stranger");
    assert_eq!((holder.calls(), waiter.calls(), waiter.time.rests()), (vec![], vec![], vec![]));
}

#[test]
fn a_dead_rank_in_the_set_is_passed_nothing() {
    let world = MockWorld::new();
    let (rank, home) = (world.rank(Rank(0)), home(&world));
    rank.note_death(Rank(1));
    let taken = rank.client.lock(&home, Rank(0), 0).unwrap();
    rank.set_memory(Rank(0), SET_OFFSET, &2_u64.to_le_bytes());
    set_word(&rank, Rank(0), 0, mutex_word(Rank(0)) | SPINNERS);
    rank.client.unlock_taken(&home, taken, Rank(0), 0).unwrap();
    assert_eq!((word(&rank, Rank(0), 0), rank.word(Rank(0), SET_OFFSET)), (0, 0));
}

#[test]
fn a_rank_that_has_looked_for_long_leaves_the_set_and_asks_the_server() {
    let world = MockWorld::new();
    let (rank, home) = (world.rank_that_spins(Rank(0), 1), home(&world));
    set_word(&rank, HERE, 0, mutex_word(Rank(1)));
    let server = rank.server(0);
    rank.time.at_next_rest(move || server.lock().grant(false));
    let _taken = rank.client.lock(&home, HERE, 0).unwrap();
    assert_eq!(rank.asked(0), [Request::Lock { target: home.window.target(HERE), offset: 0 }]);
    assert_eq!(rank.word(HERE, SET_OFFSET), 0, "nobody passes it what it does not look at");
}

#[test]
fn who_waits_for_a_mutex_that_is_on_its_way_hears_that_the_passer_died() {
    let (world, host) = (MockWorld::new(), Rank(0));
    let home = home(&world);
    let rank = world.rank_that_spins(Rank(0), SPIN_FOR_EVER_US);
    set_word(&rank, host, 0, mutex_word(Rank(1)));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| rank.client.lock(&home, host, 0).unwrap().previous_holder_died);
        await_spinner(&rank, host);
        // Rank 1 has taken it out of the set, and dies before it writes the word.
        rank.set_memory(host, SET_OFFSET, &0_u64.to_le_bytes());
        rank.note_death(Rank(1));
        let server = rank.server(0);
        while !server.lock().has_waiters() {
            std::thread::yield_now();
        }
        server.lock().grant(true);
        assert!(waiting.join().unwrap(), "the server says whose it is");
    });
}

#[test]
fn while_the_server_has_waiters_a_mutex_goes_around_the_node_once() {
    let world = MockWorld::new();
    let (rank, home) = (world.rank(Rank(0)), home(&world));
    let again = || {
        set_word(&rank, HERE, 0, mutex_word(Rank(0)) | CONTENDED | SPINNERS);
        rank.set_memory(HERE, SET_OFFSET, &2_u64.to_le_bytes());
        rank.client.unlock(&home, HERE, 0).unwrap();
    };
    again();
    assert_eq!(word(&rank, HERE, 0), mutex_word(Rank(1)) | CONTENDED | SPINNERS | PASSED);
    assert_eq!(rank.calls(), []);
    // A round that began with rank 1 ends with rank 0.
    rank.set_memory(HERE, ROUND_OFFSET, &2_u32.to_le_bytes());
    again();
    assert_eq!(rank.asked(0), [Request::Unlock { target: home.window.target(HERE), offset: 0 }]);
}

#[test]
fn a_mutex_of_another_node_is_asked_for_and_nobody_waits_for_the_answer_to_its_return() {
    let world = MockWorld::new();
    let (rank, home) = (world.rank(Rank(0)), home(&world));
    let taken = rank.client.lock(&home, THERE, 1).unwrap();
    assert_eq!(word(&rank, THERE, 1), mutex_word(Rank(0)));
    rank.server(1).lock().stand_still();
    rank.client.unlock_taken(&home, taken, THERE, 1).unwrap();
    assert_eq!(rank.time.rests(), []);
    let server = rank.server(1);
    rank.time.at_next_rest(move || server.lock().go_on());
    let taken = rank.client.try_lock(&home, THERE, 1).unwrap();
    assert!(taken.is_some_and(|taken| !taken.previous_holder_died), "what came before it was done first");
    rank.client.unlock(&home, THERE, 1).unwrap();
    assert_eq!(word(&rank, THERE, 1), 0);
    let kinds: Vec<_> = rank.asked(1).iter().map(Request::kind).collect();
    use longarm_proto::RequestKind::{Lock, TryLock, Unlock};
    assert_eq!(kinds, [Lock, Unlock, TryLock, Unlock]);
}

#[test]
fn a_mutex_that_somebody_holds_is_not_tried_for_long() {
    let world = MockWorld::new();
    let (rank, home) = (world.rank(Rank(0)), home(&world));
    for host in [HERE, THERE] {
        set_word(&rank, host, 0, mutex_word(Rank(1)));
        assert!(rank.client.try_lock(&home, host, 0).unwrap().is_none());
        assert_eq!(word(&rank, host, 0), mutex_word(Rank(1)));
    }
    assert_eq!(rank.calls(), [NodeId(1)], "on this node the word says it");
    // What a dead rank has left is the server's to give.
    set_word(&rank, Rank(0), 0, mutex_word(Rank(3)));
    rank.note_death(Rank(3));
    assert!(rank.client.try_lock(&home, Rank(0), 0).unwrap().is_none());
    assert_eq!(rank.asked(0), [Request::TryLock { target: home.window.target(Rank(0)), offset: 0 }]);
}

#[test]
fn wrong_uses_are_said_on_both_nodes() {
    let world = MockWorld::new();
    let (rank, home) = (world.rank(Rank(0)), home(&world));
    let count = home.count(HERE);
    for host in [HERE, THERE] {
        let unknown = rank.client.lock(&home, host, count).unwrap_err();
        assert!(matches!(unknown, MutexError::UnknownMutex { .. }), "{unknown}");
        let unknown = rank.client.unlock(&home, host, u64::MAX).unwrap_err();
        assert!(matches!(unknown, MutexError::UnknownMutex { .. }), "{unknown}");
        assert!(matches!(rank.client.try_lock(&home, host, count), Err(MutexError::UnknownMutex { .. })));
        let not_held = rank.client.unlock(&home, host, 2).unwrap_err();
        assert!(matches!(not_held, MutexError::NotHeld { number: 2, .. }), "{not_held}");
        let _taken = rank.client.lock(&home, host, 2).unwrap();
        let held = rank.client.lock(&home, host, 2).unwrap_err();
        assert!(matches!(held, MutexError::HeldAlready { number: 2, .. }), "{held}");
        rank.client.unlock(&home, host, 2).unwrap();
    }
}

#[test]
fn who_waits_for_a_mutex_hears_that_its_host_died_and_not_that_its_holder_did() {
    let world = MockWorld::new();
    let (rank, home) = (world.rank(Rank(0)), home(&world));
    set_word(&rank, THERE, 0, mutex_word(Rank(1)));
    let (holder_dies, host_dies) = (Arc::clone(&rank.client), Arc::clone(&rank.client));
    rank.time.at_next_rest(move || note_death(&holder_dies, Rank(1)));
    let server = rank.server(1);
    rank.time.at_next_rest(move || server.lock().grant(true));
    assert!(rank.client.lock(&home, THERE, 0).unwrap().previous_holder_died);
    set_word(&rank, Rank(3), 0, mutex_word(Rank(1)));
    rank.time.at_next_rest(move || note_death(&host_dies, Rank(3)));
    let lost = rank.client.lock(&home, Rank(3), 0).unwrap_err();
    let is_right = |lost: &Lost| lost.rank == Rank(3) && lost.operation == Operation::Lock;
    assert!(matches!(&lost, MutexError::Transfer(crate::error::TransferError::Lost(lost)) if is_right(lost)), "{lost}");
}

#[test]
fn a_server_that_knows_the_host_to_be_gone_is_believed() {
    let world = MockWorld::new();
    let (rank, home) = (world.rank(Rank(0)), home(&world));
    rank.server(1).lock().refuses = Some(Refusal::TargetLost);
    let lost = rank.client.lock(&home, THERE, 0).unwrap_err();
    assert!(
        matches!(&lost, MutexError::Transfer(crate::error::TransferError::Lost(lost)) if lost.how == LostHow::Gone),
        "{lost}"
    );
}
