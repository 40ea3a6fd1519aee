//! What `sim` promises beyond the suite: repeatable luck, small parts, and links that break on request.

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{Link, LinkError, Listener, Netmod, Sim};

fn accept(listener: &mut dyn Listener) -> Box<dyn Link> {
    loop {
        if let Some(link) = listener.accept().unwrap() {
            return link;
        }
    }
}

fn pair(sim: &Sim) -> (Box<dyn Listener>, Box<dyn Link>, Box<dyn Link>) {
    let mut listener = sim.listen().unwrap();
    let caller = sim.connect(listener.address()).unwrap();
    let called = accept(&mut *listener);
    (listener, caller, called)
}

fn send(link: &mut dyn Link, bytes: &[u8]) -> Result<usize, LinkError> {
    link.send(&[Region::from_slice(bytes)])
}

fn receive(link: &mut dyn Link) -> Result<Vec<u8>, LinkError> {
    let mut buffer = [0; 100];
    let bytes = link.receive(&[RegionMut::from_slice(&mut buffer)])?;
    Ok(buffer[..bytes].to_vec())
}

/// What is still received, and how it ends.
fn drain(link: &mut dyn Link) -> (Vec<u8>, LinkError) {
    let mut all = Vec::new();
    loop {
        match receive(link) {
            Ok(bytes) => all.extend(bytes),
            Err(error) => return (all, error),
        }
    }
}

/// The sizes of the parts that a fixed series of calls moves.
fn parts(seed: u64) -> Vec<(usize, usize)> {
    let sim = Sim::new(seed);
    let (_listener, mut caller, mut called) = pair(&sim);
    (0..200).map(|_| (send(&mut *caller, &[9; 50]).unwrap(), receive(&mut *called).unwrap().len())).collect()
}

#[test]
fn the_same_seed_is_the_same_run_and_another_seed_is_another() {
    for seed in 0..20 {
        assert_eq!(parts(seed), parts(seed));
        assert_ne!(parts(seed), parts(seed + 1));
    }
}

#[test]
fn every_size_of_a_part_occurs() {
    let seen: std::collections::BTreeSet<usize> = (0..50).flat_map(parts).map(|(sent, _)| sent).collect();
    assert_eq!(seen, (0..=50).collect());
}

#[test]
fn a_cut_is_a_reset_at_both_ends_after_some_first_part_of_what_was_under_way() {
    let mut kept_sizes = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let sim = Sim::new(seed);
        let (_listener, mut caller, mut called) = pair(&sim);
        let sent = send(&mut *caller, b"abc").unwrap();
        assert_eq!(sim.cut(caller.peer_name()), 1);
        assert_eq!(sim.cut(caller.peer_name()), 0, "a broken link cannot be broken again");
        assert_eq!(send(&mut *caller, b"x"), Err(LinkError::Reset));
        assert_eq!(send(&mut *called, b"x"), Err(LinkError::Reset));
        assert_eq!(drain(&mut *caller), (vec![], LinkError::Reset));
        let (kept, error) = drain(&mut *called);
        assert_eq!(error, LinkError::Reset);
        assert!(b"abc"[..sent].starts_with(&kept), "{kept:?}");
        kept_sizes.insert(kept.len());
    }
    assert_eq!(kept_sizes, (0..=3).collect(), "all parts occur");
}

#[test]
fn a_link_breaks_after_exactly_so_many_bytes() {
    for seed in 0..100 {
        let sim = Sim::new(seed);
        let (_listener, mut caller, mut called) = pair(&sim);
        assert_eq!(sim.cut_after(called.peer_name(), seed), 1);
        let (mut accepted, mut received) = (0, 0);
        let error = loop {
            let (link, other) = if accepted % 2 == 0 { (&mut caller, &mut called) } else { (&mut called, &mut caller) };
            match send(&mut **link, &[1; 5]) {
                Ok(bytes) => accepted += bytes,
                Err(error) => break error,
            }
            received += receive(&mut **other).map_or(0, |bytes| bytes.len());
            received += receive(&mut **link).map_or(0, |bytes| bytes.len());
        };
        assert_eq!((accepted as u64, error), (seed, LinkError::Reset));
        assert!(received <= accepted);
    }
}

#[test]
fn the_links_of_one_listener_can_be_cut_together_and_new_ones_work() {
    let sim = Sim::new(3);
    let mut listeners: Vec<_> = (0..11).map(|_| sim.listen().unwrap()).collect();
    // The first address is the beginning of the tenth's, and must not be taken for it.
    assert_eq!((listeners[0].address(), listeners[10].address()), ("sim:1", "sim:11"));
    let mut links: Vec<_> = [0, 0, 10].map(|index: usize| sim.connect(listeners[index].address()).unwrap()).into();
    assert_eq!(sim.cut("sim:1"), 2);
    assert_eq!(sim.cut("sim:2"), 0);
    assert_eq!(send(&mut *links[0], b"x"), Err(LinkError::Reset));
    assert_eq!(send(&mut *links[1], b"x"), Err(LinkError::Reset));
    assert!(send(&mut *links[2], b"x").is_ok());
    let mut again = sim.connect("sim:1").unwrap();
    assert!(send(&mut *again, b"x").is_ok());
    // The two broken ones still wait at the door, before the new one.
    let mut called: Vec<_> = (0..3).map(|_| accept(&mut *listeners[0])).collect();
    assert_eq!(called[2].peer_name(), again.peer_name());
    assert_eq!(drain(&mut *called[0]).1, LinkError::Reset);
}

#[test]
fn a_listener_that_goes_closes_the_links_nobody_took() {
    let sim = Sim::new(4);
    let listener = sim.listen().unwrap();
    let mut caller = sim.connect(listener.address()).unwrap();
    drop(listener);
    assert_eq!(drain(&mut *caller), (vec![], LinkError::Closed));
}
