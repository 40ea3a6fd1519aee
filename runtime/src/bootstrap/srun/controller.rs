//! What Slurm's controller says of a node: its address, where the node's name is none of a host.

use std::io::{self, Read};
use std::net::{IpAddr, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longarm_managers::slurm;
use parking_lot::Mutex;

/// How long the controller is waited for, and how often looked at.
const WAIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);
/// How often a controller is asked that does not answer, and how long it is left alone before the next time: many ranks may ask it.
const QUESTIONS_MAX: u32 = 5;
const REST: Duration = Duration::from_secs(1);

/// Says all that it knows of a node, in the form of `scontrol --oneliner show node`.
type ShowNode = fn(&str) -> Result<String, String>;

/// The controller, which is asked about one node until it has answered, [`QUESTIONS_MAX`] times at most: who looks for rank 0 wants to know
/// again and again until that is there.
pub(super) struct Controller {
    show_node: ShowNode,
    rest: Duration,
    said: Mutex<Option<Said>>,
}

/// What it has said last.
struct Said {
    text: Result<String, String>,
    questions: u32,
    /// It is not asked again before.
    rests: Instant,
}

impl Controller {
    /// That of this cluster.
    pub(super) fn new() -> Controller {
        Controller { show_node, rest: REST, said: Mutex::new(None) }
    }

    /// The addresses at which a node is reached, always the same node. Its name may be one that Slurm alone knows, and the controller is asked
    /// then.
    pub(super) fn addresses_of(&self, node: &str) -> Result<Vec<IpAddr>, String> {
        let unresolved = match resolve(node) {
            Ok(addresses) => return Ok(addresses),
            Err(error) => format!("the name of node {node} has no address: {error}"),
        };
        let text = self.ask(node);
        let text = text.map_err(|reason| format!("{unresolved}; and scontrol does not say one: {reason}"))?;
        let address = slurm::address_of_node(&text).filter(|address| *address != node);
        let address = address.ok_or_else(|| format!("{unresolved}; and Slurm's NodeAddr is no other one"))?;
        resolve(address)
            .map_err(|error| format!("{unresolved}; and neither has Slurm's NodeAddr for it, {address}: {error}"))
    }
}

impl Controller {
    fn ask(&self, node: &str) -> Result<String, String> {
        let mut said = self.said.lock();
        let is_enough =
            |said: &Said| said.text.is_ok() || said.questions >= QUESTIONS_MAX || said.rests > Instant::now();
        let last = match said.take() {
            Some(last) if is_enough(&last) => last,
            earlier => {
                let text = (self.show_node)(node);
                let questions = earlier.map_or(0, |earlier| earlier.questions) + 1;
                Said { text, questions, rests: Instant::now() + self.rest }
            }
        };
        let Said { text, questions, .. } = said.insert(last);
        text.clone()
            .map_err(|reason| if *questions > 1 { format!("{reason} (asked {questions} times)") } else { reason })
    }
}

fn resolve(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

fn show_node(node: &str) -> Result<String, String> {
    let mut scontrol = Command::new("scontrol");
    scontrol
        .args(["--oneliner", "show", "node", node])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut scontrol = scontrol.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    let until = Instant::now() + WAIT;
    // What it says of one node fits into a pipe.
    let status = loop {
        match scontrol.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Instant::now() < until => std::thread::sleep(LOOK),
            None => {
                let _ = scontrol.kill();
                let _ = scontrol.wait();
                return Err(format!("the controller has not answered within {} s", WAIT.as_secs()));
            }
        }
    };
    let mut text = String::new();
    let read = scontrol.stdout.take().map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut text));
    read.map_err(|error| error.to_string())?;
    if status.success() { Ok(text) } else { Err(format!("{status}: {}", text.trim())) }
}

#[cfg(test)]
mod tests {
    use longarm_shm::sync::{AtomicU32, Ordering};

    use super::*;

    /// No host can have it, and nobody is asked for it: a part of a name is shorter.
    const NOWHERE: &str = "a-node-whose-name-is-longer-than-the-63-letters-that-a-part-of-one-may-have";

    fn with(show_node: ShowNode) -> Controller {
        Controller { show_node, rest: Duration::ZERO, said: Mutex::new(None) }
    }

    fn told(node: &str, show_node: ShowNode) -> Result<Vec<IpAddr>, String> {
        with(show_node).addresses_of(node)
    }

    #[test]
    fn where_a_node_is_whose_name_slurm_alone_knows_says_the_controller() {
        let told = told(NOWHERE, |node| Ok(format!("NodeName={node} NodeAddr=192.0.2.7 NodeHostName=c7\n")));
        assert_eq!(told, Ok(vec![IpAddr::from([192, 0, 2, 7])]));
    }

    #[test]
    fn the_controller_is_not_asked_for_a_name_that_hosts_know() {
        let told = told("127.0.0.1", |_| panic!("nobody needs it"));
        assert_eq!(told, Ok(vec![IpAddr::from([127, 0, 0, 1])]));
    }

    #[test]
    fn what_was_tried_of_a_node_without_an_address_is_said() {
        let reasons: [(ShowNode, &str); 3] = [
            (|_| Err("it cannot be started".to_owned()), "scontrol does not say one: it cannot be started"),
            (|node| Ok(format!("NodeName={node} NodeAddr={node}")), "NodeAddr is no other one"),
            (|node| Ok(format!("NodeAddr={node}-too")), "NodeAddr for it, a-node"),
        ];
        for (show, part) in reasons {
            let reason = told(NOWHERE, show).unwrap_err();
            assert!(reason.contains(NOWHERE) && reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn a_controller_that_does_not_answer_is_asked_again_a_few_times_and_the_last_reason_is_told() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let controller = with(|_| Err(format!("not now, {}", ASKED.fetch_add(1, Ordering::Relaxed))));
        let reasons: Vec<String> = (0..9).map(|_| controller.addresses_of(NOWHERE).unwrap_err()).collect();
        assert_eq!(ASKED.load(Ordering::Relaxed), QUESTIONS_MAX);
        assert!(reasons[0].ends_with("not now, 0"), "{reasons:?}");
        assert!(reasons[4..].iter().all(|reason| reason.ends_with("not now, 4 (asked 5 times)")), "{reasons:?}");
    }

    #[test]
    fn what_the_controller_says_once_it_answers_is_kept() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let controller = with(|_| match ASKED.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err("not now".to_owned()),
            _ => Ok("NodeAddr=192.0.2.7".to_owned()),
        });
        assert!(controller.addresses_of(NOWHERE).is_err() && controller.addresses_of(NOWHERE).is_err());
        assert!((0..3).all(|_| controller.addresses_of(NOWHERE) == Ok(vec![IpAddr::from([192, 0, 2, 7])])));
        assert_eq!(ASKED.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_controller_that_has_not_answered_is_left_alone_for_a_while() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let controller = Controller {
            rest: Duration::from_secs(600),
            ..with(|_| {
                ASKED.fetch_add(1, Ordering::Relaxed);
                Err("not now".to_owned())
            })
        };
        assert!((0..3).all(|_| controller.addresses_of(NOWHERE).is_err()));
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }
}
