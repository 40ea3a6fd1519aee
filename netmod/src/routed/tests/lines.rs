//! What ranks say to the router of their node over their lines.

use longarm_proto::OpenFailure;

use super::*;
use crate::routed::line::{SocketLink, destination_of};

/// A node whose router only the test drives, and another one that it reaches.
struct Nodes {
    here: RoutedOptions,
    router: Arc<Mutex<Router>>,
    there: Box<dyn Listener>,
    _listener: Box<dyn Listener>,
    _driver: Driver,
}

impl Nodes {
    fn new() -> Nodes {
        let here = options(0);
        let (calling, called) = (Routed::new(here.clone()), Routed::new(options(1)));
        let (listener, there) = (calling.listen().unwrap(), called.listen().unwrap());
        let [router, other] = [&calling, &called].map(|routed| routed.here.lock().upgrade().unwrap());
        let other_poller = other.lock().poller();
        Nodes { here, router, there, _listener: listener, _driver: Driver::start(&other, &other_poller) }
    }

    /// Goes on until this gives something.
    fn until<R>(&mut self, mut step: impl FnMut(&mut Box<dyn Listener>) -> Option<R>) -> R {
        loop {
            self.router.lock().turn();
            if let Some(result) = step(&mut self.there) {
                return result;
            }
            std::thread::yield_now();
        }
    }

    /// A link of this rank to the other node, and its other end there.
    fn reach(&mut self, rank: &Routed) -> [Box<dyn Link>; 2] {
        let mut link = rank.connect(self.there.address()).unwrap();
        self.until(|_| (link.send(&[Region::from_slice(&[1])]).unwrap() == 1).then_some(()));
        let mut reached = self.until(|there| there.accept().unwrap());
        self.until(|_| (reached.receive(&[RegionMut::from_slice(&mut [0])]).unwrap() == 1).then_some(()));
        [link, reached]
    }
}

/// The `count` bytes of a stream behind the first `from`.
pub(super) fn stream(seed: usize, from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|at| (at * 7 + at / 251 + seed) as u8).collect()
}

/// Sends what is taken without anybody at the other end.
fn fill(link: &mut dyn Link, seed: usize, sent: &mut usize) {
    loop {
        match link.send(&[Region::from_slice(&stream(seed, *sent, 50_000))]).unwrap() {
            0 => return,
            bytes => *sent += bytes,
        }
    }
}

#[test]
fn a_rank_has_one_line_for_all_that_it_calls_which_is_forgotten_when_it_has_gone() {
    let mut nodes = Nodes::new();
    let rank = Routed::new(nodes.here.clone());
    let links: Vec<_> = (0..5).map(|_| nodes.reach(&rank)).collect();
    assert_eq!(nodes.router.lock().counts(), (1, 1), "a line, and a trunk");
    let other = Routed::new(nodes.here.clone());
    let _link = nodes.reach(&other);
    assert_eq!(nodes.router.lock().counts(), (2, 1));
    drop((links, rank));
    let router = Arc::clone(&nodes.router);
    // The rank has gone, and the line with it.
    nodes.until(|_| (router.lock().counts() == (1, 1)).then_some(()));
}

#[test]
fn data_that_went_out_in_part_is_not_mixed_with_that_of_others() {
    let mut nodes = Nodes::new();
    let rank = Routed::new(nodes.here.clone());
    let [[mut first, mut first_there], [mut second, mut second_there]] = [nodes.reach(&rank), nodes.reach(&rank)];
    let mut sent = [0; 2];
    fill(&mut *first, 0, &mut sent[0]);
    assert!(sent[0] > 0 && !sent[0].is_multiple_of(50_000), "{sent:?}: the line took a part");
    fill(&mut *second, 1, &mut sent[1]);
    assert_eq!(sent[1], 0, "not before the rest of the other one");
    let all = 3 << 20;
    let (links, there) = ([&mut first, &mut second], [&mut first_there, &mut second_there]);
    let mut got = [0; 2];
    let mut bytes = vec![0; 1 << 16];
    while got != [all; 2] {
        nodes.router.lock().turn();
        rank.line().unwrap().turn();
        for channel in 0..2 {
            let most = (all - sent[channel]).min(50_000);
            let offered = stream(channel, sent[channel], most);
            sent[channel] += links[channel].send(&[Region::from_slice(&offered)]).unwrap();
            let come = there[channel].receive(&[RegionMut::from_slice(&mut bytes)]).unwrap();
            assert!(
                bytes[..come] == stream(channel, got[channel], come),
                "channel {channel} behind {} bytes",
                got[channel]
            );
            got[channel] += come;
        }
    }
}

#[test]
fn who_leaves_in_the_middle_of_data_takes_the_line_along_and_the_rank_calls_again() {
    let mut nodes = Nodes::new();
    let rank = Routed::new(nodes.here.clone());
    let [[mut first, mut first_there], [mut second, _second_there]] = [nodes.reach(&rank), nodes.reach(&rank)];
    let mut sent = 0;
    fill(&mut *first, 0, &mut sent);
    drop(first);
    assert_eq!(second.send(&[Region::from_slice(&[1])]), Err(LinkError::Reset));
    // All that was sent comes, and nothing that was not.
    let mut got = 0;
    let mut bytes = vec![0; 1 << 16];
    let end = nodes.until(|_| match first_there.receive(&[RegionMut::from_slice(&mut bytes)]) {
        Ok(come) => {
            assert!(bytes[..come] == stream(0, got, come), "behind {got} bytes");
            got += come;
            None
        }
        Err(end) => Some(end),
    });
    assert_eq!((got, end), (sent, LinkError::Closed));
    nodes.reach(&rank);
}

#[test]
fn a_rank_hears_why_it_cannot_be_led_somewhere() {
    let mut nodes = Nodes::new();
    let mut line = SocketLink::connect(&nodes.here.socket_name).unwrap();
    // Nobody listens at a port that was free a moment ago.
    let gone = Tcp::new(TcpOptions::default()).listen().unwrap().address().to_owned();
    let cases = [(format!("1@{gone}"), OpenFailure::Refused), ("nowhere".into(), OpenFailure::BadAddress)];
    for ((address, why), channel) in cases.into_iter().zip(1..) {
        let said = destination_of(&address).unwrap();
        say(&mut line, channel, TrunkRecord::Open, &[]);
        // A piece at a time: it is led nowhere before the address is whole.
        for byte in &said {
            say(&mut line, channel, TrunkRecord::Data(1), &[*byte]);
        }
        let mut bytes = [0; TRUNK_HEADER_BYTES];
        let mut had = 0;
        nodes.until(|_| {
            had += line.receive(&[RegionMut::from_slice(&mut bytes[had..])]).unwrap();
            (had == bytes.len()).then_some(())
        });
        let heard = TrunkHeader::decode(&bytes).unwrap();
        assert_eq!(
            heard,
            TrunkHeader { channel: ChannelNumber(channel), record: TrunkRecord::Failed(why) },
            "{address}"
        );
    }
    // Who breaks the rules is hung up on.
    say(&mut line, 1, TrunkRecord::Open, &[]);
    let end = nodes.until(|_| line.receive(&[RegionMut::from_slice(&mut [0])]).err());
    assert!(matches!(end, LinkError::Closed | LinkError::Reset), "{end}");
}
