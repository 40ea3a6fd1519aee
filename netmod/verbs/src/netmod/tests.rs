//! Two processes' worth of netmod over real devices, of which one is made to misbehave. Without two devices nothing is tested,
//! which is said.

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{DirectOutcome, DirectSource, Link, LinkError, Listener, Loan, Netmod, Reach, TcpOptions, Wish};
use longarm_proto::{AccessKey, Generation, Rank, Run, WindowId, WindowRef};

use super::Verbs;
use crate::costs::Costs;
use crate::fabric::Fabric;
use crate::options::VerbsOptions;
use crate::paging::{Named, OnDemand};
use crate::sys::mock;
use crate::unresolved::Unresolved;

const PART: WindowRef =
    WindowRef { rank: Rank(1), window: WindowId(7), generation: Generation(1), key: AccessKey(0x1234) };

/// A put that no queue has had.
const UNPOSTED: Unresolved =
    Unresolved { ticket: 1, behind: None, is_atomic: false, is_repeated: false, outcome: None };

fn step(link: &mut dyn Link) {
    let _ = link.send(&[]);
    let _ = link.receive(&[RegionMut::from_slice(&mut [0; 8])]);
}

/// A link and its other end, by which the part can be reached.
fn connected(origin: &Verbs, listener: &mut dyn Listener) -> (Box<dyn Link>, Box<dyn Link>) {
    let mut caller = origin.connect(listener.address()).unwrap();
    let mut called = loop {
        match listener.accept().unwrap() {
            Some(called) => break called,
            None => std::thread::yield_now(),
        }
    };
    caller.on_proven();
    called.on_proven();
    loop {
        step(&mut *caller);
        step(&mut *called);
        match caller.direct().map(|access| access.reach(&PART, Wish::PutLent)) {
            None | Some(Reach::Asked | Reach::Full) => std::thread::yield_now(),
            Some(reach) => {
                assert_eq!(reach, Reach::Yes);
                return (caller, called);
            }
        }
    }
}

/// Waits for the end of one transfer.
fn outcome(link: &mut dyn Link) -> (u64, DirectOutcome) {
    loop {
        step(link);
        if let Some(outcome) = link.direct().and_then(|access| access.take_outcome()) {
            return outcome;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_peer_is_not_left_to_tcp_while_transfers_that_were_handed_back_are_to_be_posted_anew() {
    let verbs = Verbs::new(TcpOptions::default(), VerbsOptions::default());
    let shared = &verbs.shared;
    // Nothing comes back over these queues, and nothing was posted to them either.
    let silent = || {
        (0..3).for_each(|_| {
            shared.note_failure("peer", "a peer");
            shared.leave_unresolved("peer", Vec::new());
        })
    };
    shared.leave_unresolved("peer", vec![UNPOSTED]);
    assert_eq!(shared.resolve("peer", Some(7)), [(1, DirectOutcome::NotDone)]);
    silent();
    assert!(!shared.is_given_up("peer"), "only the device takes them");
    // Those that were done need no device any more.
    shared.note_success("peer");
    let done = Unresolved::ended(2, DirectOutcome::Done);
    shared.leave_unresolved("peer", vec![done]);
    assert_eq!(shared.resolve("peer", None), [(2, DirectOutcome::Done)]);
    assert!(!shared.is_given_up("peer"));
    silent();
    assert!(shared.is_given_up("peer"));
}

#[test]
fn an_update_is_handed_back_only_if_it_is_known_not_to_be_done() {
    let posted = |behind| Unresolved { behind: Some(behind), is_atomic: true, ..UNPOSTED };
    assert_eq!(posted(7).outcome(Some(7)), DirectOutcome::ValueLost, "the last that was done");
    assert_eq!(posted(8).outcome(Some(7)), DirectOutcome::NotDone);
    assert_eq!(posted(8).outcome(None), DirectOutcome::Unknown, "the peer has forgotten");
    let waiting = Unresolved { behind: None, ..posted(0) };
    assert_eq!(waiting.outcome(None), DirectOutcome::NotDone, "it was never posted");
    for known in [DirectOutcome::Value(5), DirectOutcome::Refused] {
        assert_eq!((Unresolved { outcome: Some(known), ..posted(8) }).outcome(Some(7)), known);
    }
}

#[test]
fn a_put_is_handed_back_only_if_it_is_known_not_to_be_done() {
    let posted = |behind| Unresolved { behind: Some(behind), ..UNPOSTED };
    assert_eq!(posted(7).outcome(Some(7)), DirectOutcome::Done, "the last that was done");
    assert_eq!(posted(8).outcome(Some(7)), DirectOutcome::NotDone);
    assert_eq!(posted(8).outcome(None), DirectOutcome::Unknown, "again, it could undo what others wrote");
    assert_eq!(UNPOSTED.outcome(None), DirectOutcome::NotDone, "it was never posted as a whole");
    let over_iwarp = Unresolved { is_repeated: true, ..posted(8) };
    assert_eq!(over_iwarp.outcome(None), DirectOutcome::NotDone, "nobody ever knows there");
}

#[test]
fn a_device_that_answers_from_what_was_once_written_down_is_found_out_when_it_is_opened() {
    let Some(device) = crate::device_names().into_iter().next() else {
        crate::skipped::skipped("no RDMA device on this machine");
        return;
    };
    let options = VerbsOptions { device, demanded: true, costs: Some(Costs::TYPICAL), ..VerbsOptions::default() };
    let fabric = Fabric::open(&options).expect("the device can be used");
    assert!(fabric.accounts_are_believed);
    if fabric.manager.is_some() {
        return;
    }
    mock::say_of_ended_queues(Some(crate::accounts::FIRST));
    let fabric = Fabric::open(&options).expect("the device can be used");
    mock::say_of_ended_queues(None);
    assert!(!fabric.accounts_are_believed);
}

#[test]
fn where_a_device_is_not_believed_it_says_nothing_and_what_was_under_way_ends_as_unknown() {
    let names = crate::device_names();
    let (false, [here, there, ..]) =
        (crate::devices().is_ok_and(|devices| devices.iter().any(|device| device.is_iwarp)), &names[..])
    else {
        crate::skipped::skipped("no two devices of RoCE on this machine");
        return;
    };
    let verbs = |device: &str, is_believed| {
        let options = VerbsOptions { device: device.into(), costs: Some(Costs::TYPICAL), ..VerbsOptions::default() };
        let verbs = Verbs::new(TcpOptions::default(), options);
        let mut fabric = Fabric::open(&verbs.shared.options).expect("the device can be used");
        std::sync::Arc::get_mut(&mut fabric).expect("nobody else has it").accounts_are_believed = is_believed;
        assert!(verbs.shared.fabric.set(Some(fabric)).is_ok());
        verbs
    };
    for (is_believed, expected) in [(true, DirectOutcome::Done), (false, DirectOutcome::Unknown)] {
        let (origin, target) = (verbs(here, true), verbs(there, is_believed));
        let mut listener = target.listen().unwrap();
        let window = RegionMut::from_slice(Box::leak(vec![0; 4 << 10].into_boxed_slice()));
        let _published = target.remote_memory().unwrap().publish(PART, window);
        let (_caller, called) = connected(&origin, &mut *listener);
        let number = origin.shared.previous(listener.address());
        // The server's end first, as when its peer calls again.
        drop(called);
        let executed = target.opened().unwrap().executed.lock().of(number);
        assert_eq!(executed.is_some(), is_believed);
        // As if the answer to the last request had been lost.
        let last = Unresolved { behind: Some(executed.unwrap_or(0)), ..UNPOSTED };
        origin.shared.leave_unresolved(listener.address(), vec![last]);
        assert_eq!(origin.shared.resolve(listener.address(), executed), [(1, expected)]);
    }
}

#[test]
fn a_link_that_is_closed_says_so_before_its_queue_is_given_back() {
    let names = crate::device_names();
    let [here, there, ..] = &names[..] else {
        crate::skipped::skipped(&format!("{} RDMA devices on this machine", names.len()));
        return;
    };
    let verbs = |device: &str| {
        let options = VerbsOptions { device: device.into(), costs: Some(Costs::TYPICAL), ..VerbsOptions::default() };
        Verbs::new(TcpOptions::default(), options)
    };
    let (origin, target) = (verbs(here), verbs(there));
    let mut listener = target.listen().unwrap();
    let window = RegionMut::from_slice(Box::leak(vec![0; 4 << 10].into_boxed_slice()));
    let _published = target.remote_memory().unwrap().publish(PART, window);
    let (mut caller, called) = connected(&origin, &mut *listener);
    let device = target.opened().unwrap();
    let number = origin.shared.previous(listener.address());
    std::thread::scope(|scope| {
        let held_up = device.hold_up();
        scope.spawn(move || drop(called));
        let error = loop {
            caller.arm();
            match caller.receive(&[RegionMut::from_slice(&mut [0; 8])]) {
                Ok(bytes) => assert_eq!(bytes, 0),
                Err(error) => break error,
            }
            std::thread::yield_now();
        };
        assert_eq!(error, LinkError::Closed);
        assert!(device.executed.lock().of(number).is_some(), "who calls again asks for it");
        drop(held_up);
    });
}

#[test]
fn over_iwarp_the_called_side_knows_how_many_messages_it_has_taken_when_a_connection_ends() {
    let names = crate::device_names();
    let is_iwarp = crate::devices().is_ok_and(|devices| devices.iter().any(|device| device.is_iwarp));
    let (true, [here, there, ..]) = (is_iwarp, &names[..]) else {
        crate::skipped::skipped("no two devices of iWARP on this machine");
        return;
    };
    let verbs = |device: &String| {
        let device = device.clone();
        let options = VerbsOptions { device, demanded: true, costs: Some(Costs::TYPICAL), ..VerbsOptions::default() };
        Verbs::new(TcpOptions::default(), options)
    };
    let (origin, target) = (verbs(here), verbs(there));
    let mut listener = target.listen().unwrap();
    let window = RegionMut::from_slice(Box::leak(vec![0; 64 << 10].into_boxed_slice()));
    let _published = target.remote_memory().unwrap().publish(PART, window);
    let (mut caller, mut called) = connected(&origin, &mut *listener);
    let number = origin.shared.previous(listener.address());
    let run = Run { offset: 0, bytes: 8 };
    let put = |caller: &mut dyn Link, ticket| {
        let access = caller.direct().unwrap();
        access.put(ticket, &PART, run, DirectSource::Copied(Region::from_slice(&[9; 8]))).unwrap();
    };
    put(&mut *caller, 1);
    assert_eq!(caller.send(&[Region::from_slice(&[1, 2, 3])]), Ok(3));
    while called.receive(&[RegionMut::from_slice(&mut [0; 8])]).unwrap() == 0 {
        std::thread::yield_now();
    }
    // The server ends its end first, and then hears of a call.
    drop(called);
    put(&mut *caller, 2);
    drop(caller);
    let executed = target.opened().unwrap().executed.lock().of(number).expect("it has just ended");
    // The first message, the question, and that of the stream, beside those that only give buffers back.
    let unresolved = origin.shared.resolve(listener.address(), Some(executed));
    assert_eq!(unresolved, [(1, DirectOutcome::Done), (2, DirectOutcome::NotDone)]);
}

#[test]
fn a_peer_that_sends_more_than_it_may_loses_its_own_connection_and_others_go_on() {
    let names = crate::device_names();
    let [here, there, ..] = &names[..] else {
        crate::skipped::skipped(&format!("{} RDMA devices on this machine", names.len()));
        return;
    };
    let verbs = |device: &str| {
        // Demanded: over TCP, which is taken where a device is not, nobody can send more than it may.
        let device = device.into();
        let options = VerbsOptions { device, demanded: true, costs: Some(Costs::TYPICAL), ..VerbsOptions::default() };
        Verbs::new(TcpOptions::default(), options)
    };
    let (origin, target) = (verbs(here), verbs(there));
    let mut listener = target.listen().unwrap();
    let window = RegionMut::from_slice(Box::leak(vec![0; 4 << 10].into_boxed_slice()));
    let _published = target.remote_memory().unwrap().publish(PART, window);
    let (mut honest, mut serves_honest) = connected(&origin, &mut *listener);
    mock::overdraw(true);
    let (mut caller, mut called) = connected(&origin, &mut *listener);
    mock::overdraw(false);
    let credits = usize::from(VerbsOptions::default().credits_each());
    for _ in 0..credits + 2 {
        // Nobody takes them up, so the last ones lie in buffers that the other connection was promised.
        while caller.send(&[Region::from_slice(&[7])]).unwrap() == 0 {
            std::thread::yield_now();
        }
    }
    let mut received = 0;
    let error = loop {
        match called.receive(&[RegionMut::from_slice(&mut [0; 64])]) {
            Ok(bytes) => received += bytes,
            Err(error) => break error,
        }
        assert!(received <= credits, "{received} messages of {credits}");
    };
    assert_eq!(error, LinkError::Device(longarm_proto::rdma::Breach::Overdraft.words()));
    drop((caller, called));
    for round in 0..3 * credits {
        assert_eq!(honest.send(&[Region::from_slice(&[1, 2, 3])]), Ok(3), "round {round}");
        let mut bytes = [0; 8];
        while serves_honest.receive(&[RegionMut::from_slice(&mut bytes)]).unwrap() == 0 {
            std::thread::yield_now();
        }
        step(&mut *serves_honest);
        step(&mut *honest);
    }
}

#[test]
fn what_a_device_has_taken_of_a_chain_that_it_refuses_keeps_its_buffers_until_the_queue_is_gone() {
    let names = crate::device_names();
    let [here, there, ..] = &names[..] else {
        crate::skipped::skipped(&format!("{} RDMA devices on this machine", names.len()));
        return;
    };
    let verbs = |device: &str| {
        let options = VerbsOptions {
            device: device.into(),
            demanded: true,
            costs: Some(Costs::TYPICAL),
            ..VerbsOptions::default()
        };
        let verbs = Verbs::new(TcpOptions::default(), options);
        verbs.open().expect("the device can be used");
        verbs
    };
    let (origin, target) = (verbs(here), verbs(there));
    let mut listener = target.listen().unwrap();
    let window = RegionMut::from_slice(Box::leak(vec![0; 64 << 10].into_boxed_slice()));
    let _published = target.remote_memory().unwrap().publish(PART, window);
    let (mut caller, called) = connected(&origin, &mut *listener);
    let bytes = vec![7; 3 * VerbsOptions::default().slab_bytes];
    let run = Run { offset: 0, bytes: bytes.len() as u64 };
    let put = |link: &mut dyn Link, ticket| {
        let access = link.direct().unwrap();
        assert_eq!(access.reach(&PART, Wish::PutCopied(bytes.len())), Reach::Yes);
        access.put(ticket, &PART, run, DirectSource::Copied(Region::from_slice(&bytes)))
    };
    put(&mut *caller, 1).unwrap();
    assert_eq!(outcome(&mut *caller), (1, DirectOutcome::Done));
    let fabric = origin.opened().unwrap();
    let free = fabric.outgoing.free();

    mock::takes_one_of_a_chain(&fabric.domain);
    window.copy_from_slice(&vec![0; 64 << 10]);
    assert!(matches!(put(&mut *caller, 2), Err(LinkError::Device(_))));
    // One is the connection's own.
    assert_eq!(fabric.outgoing.free(), free - 2, "the device may read them still");
    drop((caller, called));
    assert_eq!(fabric.outgoing.free(), free);

    // A connection says of it what its peer knows: the end was not reached.
    let (mut caller, _called) = connected(&origin, &mut *listener);
    assert_eq!(outcome(&mut *caller), (2, DirectOutcome::NotDone));
    let access = caller.direct().unwrap();
    let first = Region::from_slice(&bytes[..4096]);
    access.put(3, &PART, Run { offset: 0, bytes: 4096 }, DirectSource::Copied(first)).unwrap();
    assert_eq!(outcome(&mut *caller), (3, DirectOutcome::Done));
}

#[test]
fn a_message_that_the_device_refuses_does_not_hide_that_those_before_it_were_sent() {
    let names = crate::device_names();
    let [here, there, ..] = &names[..] else {
        crate::skipped::skipped(&format!("{} RDMA devices on this machine", names.len()));
        return;
    };
    let verbs = |device: &str| {
        let options = VerbsOptions { device: device.into(), costs: Some(Costs::TYPICAL), ..VerbsOptions::default() };
        Verbs::new(TcpOptions::default(), options)
    };
    let (origin, target) = (verbs(here), verbs(there));
    let mut listener = target.listen().unwrap();
    let window = RegionMut::from_slice(Box::leak(vec![0; 4 << 10].into_boxed_slice()));
    let _published = target.remote_memory().unwrap().publish(PART, window);
    let (mut caller, mut called) = connected(&origin, &mut *listener);
    mock::takes_one_of_a_chain(&origin.opened().unwrap().domain);
    mock::refuse_posts_after(2);
    let bytes = vec![7; 4 * VerbsOptions::default().slab_bytes];
    let sent = caller.send(&[Region::from_slice(&bytes)]).expect("some of it is on its way");
    assert!(0 < sent && sent < bytes.len());
    assert!(matches!(caller.send(&[Region::from_slice(&bytes[sent..])]), Err(LinkError::Device(_))));
    // The other side knows them, and says so to who connects anew.
    let mut received = 0;
    while received < sent {
        received += called.receive(&[RegionMut::from_slice(&mut [0; 512])]).unwrap();
    }
    assert_eq!(called.receive(&[RegionMut::from_slice(&mut [0; 512])]), Ok(0));
}

#[test]
fn where_no_thread_can_be_started_the_server_registers_a_window_by_itself() {
    let names = crate::device_names();
    let [here, there, ..] = &names[..] else {
        crate::skipped::skipped(&format!("{} RDMA devices on this machine", names.len()));
        return;
    };
    // So that it takes too long for the thread that serves, if there is another.
    let slow = Costs { register_kib_ns: 1_000_000, ..Costs::TYPICAL };
    let verbs = |device: &str| {
        let options = VerbsOptions {
            device: device.into(),
            demanded: true,
            costs: Some(slow),
            on_demand: OnDemand::No,
            ..VerbsOptions::default()
        };
        Verbs::new(TcpOptions::default(), options)
    };
    let (origin, target) = (verbs(here), verbs(there));
    let mut listener = target.listen().unwrap();
    let window = RegionMut::from_slice(Box::leak(vec![0; 64 << 10].into_boxed_slice()));
    let _published = target.remote_memory().unwrap().publish(PART, window);
    mock::refuse_threads();
    let (mut caller, called) = connected(&origin, &mut *listener);
    // From here on nobody serves.
    let bytes = [7; 8];
    let access = caller.direct().unwrap();
    access.put(1, &PART, Run { offset: 0, bytes: 8 }, DirectSource::Copied(Region::from_slice(&bytes))).unwrap();
    assert_eq!(outcome(&mut *caller), (1, DirectOutcome::Done));
    let mut there = [0; 8];
    window.slice(0, 8).copy_to_slice(&mut there);
    assert_eq!(there, bytes);
    drop(called);
}

/// Memory of this process for as long as it lives.
struct Lent(RegionMut<'static>);

impl Loan for Lent {
    fn memory(&self) -> RegionMut<'_> {
        self.0
    }
}

#[test]
fn memory_on_demand_that_the_device_cannot_get_at_is_copied_by_the_next_connection() {
    const BYTES: usize = 1 << 20;
    let names = crate::device_names();
    let [here, there, ..] = &names[..] else {
        crate::skipped::skipped(&format!("{} RDMA devices on this machine", names.len()));
        return;
    };
    let verbs = |device: &str, is_on_demand| {
        let options = VerbsOptions {
            device: device.into(),
            demanded: true,
            costs: Some(Costs::TYPICAL),
            on_demand: OnDemand::No,
            ..VerbsOptions::default()
        };
        let verbs = Verbs::new(TcpOptions::default(), options);
        let mut fabric = Fabric::open(&verbs.shared.options).expect("the device can be used");
        std::sync::Arc::get_mut(&mut fabric).expect("nobody else has it").named = Named::new(is_on_demand);
        assert!(verbs.shared.fabric.set(Some(fabric)).is_ok());
        verbs
    };
    for is_on_demand in [true, false] {
        let (origin, target) = (verbs(here, is_on_demand), verbs(there, false));
        let mut listener = target.listen().unwrap();
        let window = RegionMut::from_slice(Box::leak(vec![0; BYTES].into_boxed_slice()));
        let _published = target.remote_memory().unwrap().publish(PART, window);
        let (mut caller, called) = connected(&origin, &mut *listener);
        let memory = RegionMut::from_slice(Box::leak(vec![7; BYTES].into_boxed_slice()));
        let run = Run { offset: 0, bytes: BYTES as u64 };
        let put = |link: &mut dyn Link, ticket| {
            link.direct().unwrap().put(ticket, &PART, run, DirectSource::Lent(Box::new(Lent(memory))))
        };
        mock::fail_long_requests(&origin.opened().unwrap().domain, true);
        // The device may say so within the call.
        let _ = put(&mut *caller, 1);
        while caller.receive(&[RegionMut::from_slice(&mut [0; 8])]).is_ok() {
            std::thread::yield_now();
        }
        let is_said = origin.shared.said.lock().iter().any(|sentence| sentence.contains("registered on demand"));
        assert_eq!(is_said, is_on_demand);
        drop((caller, called));

        // Where it is kept, something else was wrong with the request.
        mock::fail_long_requests(&origin.opened().unwrap().domain, false);
        let (mut caller, _called) = connected(&origin, &mut *listener);
        assert_eq!(outcome(&mut *caller), (1, DirectOutcome::NotDone));
        let before = origin.counts().unwrap();
        put(&mut *caller, 2).unwrap();
        assert_eq!(outcome(&mut *caller), (2, DirectOutcome::Done));
        let after = origin.counts().unwrap();
        let moved = (after.copied_bytes - before.copied_bytes, after.zero_copy_bytes - before.zero_copy_bytes);
        assert_eq!(moved, if is_on_demand { (BYTES as u64, 0) } else { (0, BYTES as u64) });
        let mut there = vec![0; BYTES];
        window.copy_to_slice(&mut there);
        assert!(there.iter().all(|byte| *byte == 7));
    }
}
