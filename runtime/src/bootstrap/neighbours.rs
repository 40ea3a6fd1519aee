//! How the ranks of a node find the one of them through which they speak with rank 0.
//!
//! It is their leader, which hosts the node's server too: its end is that of the node anyway. It listens at an abstract
//! name that only those guess who know the job's secret. Whoever comes before it listens at a name of its own, where
//! the leader knocks. Where nobody answers in time, as the ranks of a host cannot see each other, each goes to rank 0 by itself.

use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use longarm_control::proof::Ticket;
use longarm_memory::Unshared;
use longarm_netmod::is_of_own_user;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// How long the leader of a node is waited for. Where it comes later than that, each goes by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// So many knocks are taken off before the relay is looked for.
const KNOCKS_MAX: usize = 1024;

/// Which of the processes of the job on this host this one is, by rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbours {
    /// Its place among them, from 0.
    pub(crate) place: u32,
    /// How many there are.
    pub(crate) count: u32,
}

/// The ranks of a node, as one of them sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Its number on the host.
    pub(super) number: u32,
    /// Places of its ranks on the host: from the first to the one behind the last.
    pub(super) first: u32,
    pub(super) end: u32,
}

impl Neighbours {
    /// What a manager says, if it can be.
    pub(crate) fn of(place: Option<u32>, count: Option<u32>) -> Option<Neighbours> {
        let (place, count) = (place?, count?);
        (place < count).then_some(Neighbours { place, count })
    }

    /// The node of this rank, if those of a host are cut into so many: as `longarm_control::arrival::Layout` does it.
    fn block(self, nodes: u64) -> Block {
        let (place, count) = (u64::from(self.place), u64::from(self.count));
        let blocks = nodes.clamp(1, count);
        let number = place * blocks / count;
        // The first place whose block has this number.
        let first_of = |number: u64| (number * count).div_ceil(blocks);
        Block { number: number as u32, first: first_of(number) as u32, end: first_of(number + 1) as u32 }
    }
}

/// What a rank has to do with its node's relay.
pub(crate) enum Role {
    /// It is the leader, and the others come to it.
    Leader(Leader),
    /// It goes through the leader, which is of this rank.
    Behind(UnixStream, u32),
    /// It goes to rank 0 by itself.
    Alone,
}

/// Where the others of a node come to.
pub(crate) struct Leader {
    pub(crate) listener: Unshared<UnixListener>,
    /// How many they are.
    pub(crate) others: u32,
}

/// Finds the others of this rank's node.
pub(crate) fn find(
    neighbours: Option<Neighbours>,
    nodes: u64,
    (ticket, machine): (&Ticket, &str),
    rank: u32,
    until: Instant,
) -> Role {
    let Some(neighbours) = neighbours else { return Role::Alone };
    let block = neighbours.block(nodes);
    if block.end - block.first < 2 {
        return Role::Alone;
    }
    let name = |what: &str, number: u32| ticket.place_name(machine, what, number);
    let names = Names(&name);
    if neighbours.place == block.first {
        let leader = names.be_leader(&block);
        let leader =
            leader.inspect_err(|error| tracing::warn!(%error, "the ranks of this node go to rank 0 by themselves"));
        return leader.map_or(Role::Alone, Role::Leader);
    }
    // One that listens and does not answer leaves time to go by itself.
    let half = Instant::now() + until.saturating_duration_since(Instant::now()) / 2;
    let found = names.find_leader(&block, neighbours.place, half).and_then(|stream| greet(stream, half));
    match found {
        // One that is not before this rank is none whose end is that of this rank's node.
        Ok((stream, leader)) if leader < rank => Role::Behind(stream, leader),
        Ok(_) => Role::Alone,
        Err(error) => {
            tracing::warn!(%error, "the leader of this node does not answer (can the ranks of this host see each other?): this one goes to rank 0 by itself");
            Role::Alone
        }
    }
}

/// The rank of the relay at the other end. It speaks once it has a connection to rank 0 itself.
fn greet(mut stream: UnixStream, until: Instant) -> io::Result<(UnixStream, u32)> {
    let rest = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(rest))?;
    let mut rank = [0; 4];
    stream.read_exact(&mut rank)?;
    // The time to connect was bounded by this one. What is said later waits as long as it has to.
    stream.set_write_timeout(None)?;
    Ok((stream, u32::from_le_bytes(rank)))
}

/// Where they meet: the name of a place, by what it is and its number. Who has another network namespace sees none of them.
pub(super) struct Names<'a>(pub(super) &'a (dyn Fn(&str, u32) -> String + Sync));

impl Names<'_> {
    fn of_relay(&self, block: &Block) -> String {
        (self.0)("relay", block.number)
    }

    fn of_waiting(&self, place: u32) -> String {
        (self.0)("knock", place)
    }

    /// Listens, and knocks where others may wait already. An error, if somebody has the name.
    pub(super) fn be_leader(&self, block: &Block) -> io::Result<Leader> {
        let listener = listen(&self.of_relay(block)).and_then(Unshared::new)?;
        for place in block.first + 1..block.end {
            // Who has not come yet finds the listener.
            let _ = connect(&self.of_waiting(place), None);
        }
        Ok(Leader { listener, others: block.end - block.first - 1 })
    }

    /// Connects to the leader, as soon as it is there.
    pub(super) fn find_leader(&self, block: &Block, place: u32, until: Instant) -> io::Result<UnixStream> {
        let patience_ends = until.min(Instant::now() + PATIENCE);
        // Before the first look: whoever is not there then will knock.
        let waiting = listen(&self.of_waiting(place))?;
        waiting.set_nonblocking(true)?;
        loop {
            // It takes nobody in before it has a connection to rank 0 itself. A queue that is full by then is so by strangers.
            let room_until = until.min(Instant::now() + PATIENCE);
            match connect(&self.of_relay(block), Some(room_until)) {
                Ok(stream) if is_of_own_user(&stream) => return Ok(stream),
                Ok(_) => return Err(io::ErrorKind::PermissionDenied.into()),
                Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => return Err(error),
                Err(_) => await_knock(&waiting, patience_ends)?,
            }
        }
    }
}

fn listen(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Connects to a name. Where all places before it are taken it waits for one, or not at all without a time.
fn connect(name: &str, until: Option<Instant>) -> io::Result<UnixStream> {
    let flags = if until.is_some() { SocketFlags::CLOEXEC } else { SocketFlags::CLOEXEC | SocketFlags::NONBLOCK };
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if let Some(until) = until {
        let rest = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(rest))?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(UnixStream::from(socket))
}

/// Waits until somebody knocks.
fn await_knock(waiting: &UnixListener, until: Instant) -> io::Result<()> {
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut events = [PollFd::new(waiting, PollFlags::IN)];
        match rustix::event::poll(&mut events, Some(&Timespec::try_from(rest).unwrap_or_default())) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => {
                // One that has hung up meanwhile has knocked as well. Strangers may have left the relay no room: whoever knocks, it is looked for.
                let _ = (0..KNOCKS_MAX).find(|_| waiting.accept().is_err());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_of_a_host_are_cut_as_the_coordinator_cuts_them() {
        use longarm_control::arrival::{Arrival, Layout};
        for count in 1..20 {
            for nodes in [1, 2, 3, 7, 19, 40, u64::MAX] {
                let arrival = Arrival {
                    version: 0,
                    machine: "a".to_owned(),
                    host: "a".to_owned(),
                    pid: 1,
                    processors: Vec::new(),
                    nodes,
                };
                let node_of_rank = Layout::of(&vec![arrival; count as usize], nodes).plan.node_of_rank;
                for place in 0..count {
                    let node = node_of_rank[place as usize];
                    let members: Vec<u32> = (0..count).filter(|other| node_of_rank[*other as usize] == node).collect();
                    let block = Neighbours { place, count }.block(nodes);
                    let expected = Block { number: node, first: members[0], end: members[members.len() - 1] + 1 };
                    assert_eq!(block, expected, "{place} of {count}, cut into {nodes}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_a_place_among_neighbours_is_none() {
        assert_eq!(Neighbours::of(Some(1), Some(2)), Some(Neighbours { place: 1, count: 2 }));
        for (place, count) in [(None, Some(2)), (Some(0), None), (Some(2), Some(2)), (Some(0), Some(0))] {
            assert_eq!(Neighbours::of(place, count), None);
        }
    }

    fn ticket(byte: u8) -> Ticket {
        let mut secret = [byte; 32];
        getrandom::fill(&mut secret[1..]).unwrap();
        Ticket { assembly: 1, size: 2, secret }
    }

    #[test]
    fn whoever_comes_first_the_two_find_each_other() {
        for member_comes_first in [true, false] {
            let ticket = ticket(1);
            let name = |what: &str, number: u32| ticket.place_name("machine", what, number);
            let names = Names(&name);
            let block = Neighbours { place: 0, count: 2 }.block(1);
            let until = Instant::now() + Duration::from_secs(600);
            std::thread::scope(|scope| {
                let mut waiting = None;
                if member_comes_first {
                    waiting = Some(scope.spawn(|| names.find_leader(&block, 1, until).unwrap()));
                    // Until it waits: its name is taken then.
                    while connect(&names.of_waiting(1), None).is_err() {
                        std::thread::yield_now();
                    }
                }
                let leader = names.be_leader(&block).unwrap();
                let find = || names.find_leader(&block, 1, until).unwrap();
                let stream = waiting.map_or_else(find, |waiting| waiting.join().unwrap());
                assert!(is_of_own_user(&stream));
                leader.listener.accept().unwrap();
            });
        }
    }

    #[test]
    fn who_has_another_secret_or_machine_is_not_found() {
        let (one, other) = (ticket(1), ticket(2));
        let block = Neighbours { place: 0, count: 2 }.block(1);
        let name = |what: &str, number: u32| one.place_name("machine", what, number);
        let names = Names(&name);
        let _leader = names.be_leader(&block).unwrap();
        assert!(names.be_leader(&block).is_err(), "a name is taken once");
        let soon = Instant::now() + Duration::from_millis(30);
        for (ticket, machine) in [(&other, "machine"), (&one, "container")] {
            let name = |what: &str, number: u32| ticket.place_name(machine, what, number);
            let names = Names(&name);
            assert_eq!(names.find_leader(&block, 1, soon).unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
    }
}
