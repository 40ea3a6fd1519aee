//! Ranks at the other end of the coordinator's connections, in virtual time.

use super::*;
use crate::messages::{CONTROL_VERSION, FromRank};
use crate::proof::{CHALLENGE_BYTES, Caller, RankProof};

struct Job {
    coordinator: Coordinator,
    ticket: Ticket,
    now: Instant,
    sent: HashMap<u64, Vec<u8>>,
    closed: Vec<u64>,
    said: Vec<String>,
    answers: Vec<String>,
    ended: Vec<i32>,
}

const REPORT: Duration = Duration::from_millis(700);

impl Job {
    fn new(size: u32, survivors_go_on: bool) -> Job {
        let (ticket, now) = (Ticket { assembly: 5, size, secret: [3; 32] }, Instant::now());
        let settings = Settings {
            ticket: ticket.clone(),
            job: 9,
            survivors_go_on,
            arrival: Duration::from_secs(60),
            proof: Duration::from_secs(2),
            half_open_max: 3,
            report: REPORT,
            watchdog_s: 10,
            pid: 77,
            command: "program".to_owned(),
            is_stopped: |pid| pid == 101,
        };
        Job {
            coordinator: Coordinator::new(settings, now),
            ticket,
            now,
            sent: HashMap::new(),
            closed: Vec::new(),
            said: Vec::new(),
            answers: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// A job whose ranks have all come and joined, each on a machine of its own or all on one.
    fn met(size: u32, survivors_go_on: bool, machines: &[&str]) -> (Job, Vec<u64>) {
        let mut job = Job::new(size, survivors_go_on);
        let numbers: Vec<u64> =
            (0..size).map(|rank| job.come(rank, machines[rank as usize % machines.len()])).collect();
        for number in &numbers {
            job.say(*number, &FromRank::Join { version: CONTROL_VERSION, pid: 1 });
        }
        for number in &numbers {
            let lines = job.lines(*number);
            assert!(lines[0].contains("All") && lines[1].contains("Start"), "{lines:?}");
        }
        (job, numbers)
    }

    fn drain(&mut self) {
        while let Some(effect) = self.coordinator.poll_effect() {
            match effect {
                Effect::Send { connection, bytes } => {
                    assert!(!self.closed.contains(&connection), "nothing is sent to whom is closed");
                    self.sent.entry(connection).or_default().extend(bytes);
                }
                Effect::Close { connection } => self.closed.push(connection),
                Effect::Say(line) => self.said.push(line),
                Effect::Answer { text, .. } => self.answers.push(text),
                Effect::End { status } => self.ended.push(status),
                Effect::Refused { .. } => {}
            }
        }
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.coordinator.handle_bytes(number, bytes, self.now);
        self.drain();
    }

    fn connect(&mut self) -> u64 {
        self.coordinator.handle_connection([1; 32], self.now).expect("it is let in")
    }

    fn prove(&mut self, caller: Caller, rank: u32) -> u64 {
        let number = self.connect();
        let (proof, hello) = RankProof::start_as(caller, &self.ticket, rank, [2; 32]);
        self.bytes(number, &hello);
        let challenge: [u8; CHALLENGE_BYTES] = self.sent.remove(&number).unwrap().try_into().unwrap();
        let (welcome, proof) = proof.handle_challenge(&challenge).unwrap();
        self.bytes(number, &proof);
        welcome.check(&self.sent.remove(&number).unwrap().try_into().unwrap()).unwrap();
        number
    }

    fn come(&mut self, rank: u32, machine: &str) -> u64 {
        let number = self.prove(Caller::Rank, rank);
        let (machine, host) = (machine.to_owned(), format!("host-{machine}"));
        let arrival =
            Arrival { version: CONTROL_VERSION, machine, host, pid: 100 + rank, processors: vec![0], nodes: 1 };
        self.say(number, &arrival);
        number
    }

    fn say(&mut self, number: u64, message: &impl serde::Serialize) {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        self.bytes(number, &line);
    }

    fn hang_up(&mut self, number: u64) {
        self.coordinator.handle_hang_up(number, self.now);
        self.drain();
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.coordinator.handle_time(self.now);
        self.drain();
    }

    /// What a connection has been told since the last time.
    fn lines(&mut self, number: u64) -> Vec<String> {
        let text = String::from_utf8(self.sent.remove(&number).unwrap_or_default()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn leave() -> FromRank {
    FromRank::Leave { traffic: vec![], network: vec![] }
}

#[test]
fn ranks_are_started_when_all_have_come_and_let_go_when_all_have_left() {
    let mut job = Job::new(2, false);
    let first = job.come(1, "a");
    job.say(first, &FromRank::Join { version: CONTROL_VERSION, pid: 1 });
    assert!(job.lines(first).is_empty(), "rank 0 has not come");
    let second = job.come(0, "a");
    job.say(second, &FromRank::Join { version: CONTROL_VERSION, pid: 1 });
    let lines = job.lines(first);
    assert!(lines[0].contains("All") && lines[1].contains("\"secret\":\"\""), "no secret travels: {lines:?}");
    job.lines(second);
    job.say(second, &leave());
    assert!(job.lines(second).is_empty());
    job.say(first, &leave());
    assert_eq!((job.lines(first), job.lines(second)), (vec!["\"Goodbye\"".to_owned()], vec!["\"Goodbye\"".to_owned()]));
    job.hang_up(first);
    job.hang_up(second);
    assert!(job.said.is_empty() && job.ended.is_empty());
}

#[test]
fn who_does_not_prove_itself_in_time_or_at_all_is_cut_off_and_only_few_are_kept() {
    let mut job = Job::new(2, false);
    let slow = job.connect();
    let stranger = job.connect();
    job.bytes(stranger, b"GET / HTTP/1.1\r\nHost: somebody\r\nAccept: everything there is\r\n\r\n");
    assert_eq!(job.closed, [stranger]);
    let (_, liar) = (job.connect(), job.connect());
    assert_eq!(job.coordinator.handle_connection([1; 32], job.now), None, "three are kept");
    let (_, hello) = RankProof::start(&job.ticket, 0, [2; 32]);
    job.bytes(liar, &hello);
    job.bytes(liar, &[0; PROOF_BYTES]);
    assert_eq!(job.closed, [stranger, liar]);
    job.wait(Duration::from_secs(2));
    assert!(job.closed.contains(&slow));
    job.connect();
}

#[test]
fn who_has_proven_itself_has_the_time_that_all_have_and_others_are_cut_off_each_at_its_own() {
    let mut job = Job::new(3, false);
    let began = job.now;
    let second = Duration::from_secs(1);
    let (proof, hello) = RankProof::start(&job.ticket, 0, [2; 32]);
    let welcomed = job.connect();
    job.bytes(welcomed, &hello);
    let challenge: [u8; CHALLENGE_BYTES] = job.sent.remove(&welcomed).unwrap().try_into().unwrap();
    job.wait(second);
    let silent = job.connect();
    job.now += second / 2;
    job.bytes(welcomed, &proof.handle_challenge(&challenge).unwrap().1);
    assert_eq!(job.coordinator.deadline(), Some(began + 3 * second), "that of the silent one");
    job.wait(3 * second / 2);
    assert_eq!(job.closed, [silent]);
    assert_eq!(job.coordinator.deadline(), Some(began + 60 * second), "until when all have to come");
    job.wait(57 * second);
    assert_eq!(job.closed, [silent, welcomed]);
}

#[test]
fn a_rank_that_does_not_come_is_named_to_those_who_have() {
    let mut job = Job::new(4, false);
    let numbers = [job.come(0, "a"), job.come(2, "a")];
    job.wait(Duration::from_secs(60));
    for number in numbers {
        let lines = job.lines(number);
        assert!(lines[0].contains("ranks 1, 3 of 4 did not call longarm::init within 60 s"), "{lines:?}");
    }
    assert_eq!(job.coordinator.handle_connection([1; 32], job.now), None, "it is over");
}

#[test]
fn a_rank_that_ends_before_all_have_come_is_named() {
    let mut job = Job::new(3, false);
    let (stays, goes) = (job.come(0, "a"), job.come(2, "b"));
    job.hang_up(goes);
    let lines = job.lines(stays);
    assert!(lines[0].contains("rank 2 (pid 102 on host-b) has ended before all had come"), "{lines:?}");
}

#[test]
fn two_processes_that_call_themselves_the_same_rank_are_told_who_they_are() {
    let mut job = Job::new(2, false);
    job.come(1, "a");
    let second = job.come(1, "b");
    let lines = job.lines(second);
    assert!(lines[0].contains("pid 101 on host-a and pid 101 on host-b"), "{lines:?}");
    assert_eq!(job.closed, [second]);
}

#[test]
fn the_end_of_a_connection_is_the_death_of_its_rank_and_ends_the_job() {
    let (mut job, numbers) = Job::met(3, false, &["a", "b", "c"]);
    job.hang_up(numbers[2]);
    for number in &numbers[..2] {
        let lines = job.lines(*number);
        assert_eq!(lines, ["{\"Died\":{\"rank\":2,\"how\":\"has ended without finalizing (on host host-c)\"}}"]);
    }
    assert_eq!(job.said, ["rank 2 (node 2, pid 102 on host-c) has ended without finalizing; ending the job"]);
    assert!(job.ended.is_empty(), "the others may say what they know");
    job.wait(REPORT);
    job.wait(REPORT);
    assert_eq!(job.ended, [1]);
}

#[test]
fn a_host_is_not_named_where_there_is_one() {
    let (mut job, numbers) = Job::met(2, false, &["a"]);
    job.hang_up(numbers[1]);
    assert_eq!(job.lines(numbers[0]), ["{\"Died\":{\"rank\":1,\"how\":\"has ended without finalizing\"}}"]);
}

#[test]
fn where_survivors_go_on_a_node_is_cut_off_with_the_host_of_its_server() {
    let (mut job, numbers) = Job::met(4, true, &["a", "b"]);
    job.hang_up(numbers[1]);
    let lines = job.lines(numbers[3]);
    assert!(lines[0].contains("\"rank\":1") && job.closed == [numbers[3]], "{lines:?}");
    assert_eq!(job.lines(numbers[0]).len(), 2, "of both");
    assert!(job.said[0].ends_with("; the others go on"), "{:?}", job.said);
    job.wait(REPORT);
    assert!(job.ended.is_empty());
    job.say(numbers[0], &leave());
    job.say(numbers[2], &leave());
    assert_eq!(job.lines(numbers[2]).last().map(String::as_str), Some("\"Goodbye\""));
}

#[test]
fn a_rank_that_breaks_the_rules_is_cut_off_and_one_that_gives_a_reason_is_not() {
    let (mut job, numbers) = Job::met(3, false, &["a"]);
    job.bytes(numbers[1], b"nonsense\n");
    assert_eq!(job.closed, [numbers[1]]);
    assert!(job.lines(numbers[0])[0].contains("does not understand"));
    let (mut job, numbers) = Job::met(3, false, &["a"]);
    job.say(numbers[1], &FromRank::Abort { reason: "no memory".to_owned(), status: 3 });
    assert!(job.closed.is_empty() && job.lines(numbers[0])[0].contains("aborted: no memory"));
    job.wait(REPORT);
    assert_eq!(job.ended, [3]);
}

#[test]
fn ranks_that_have_left_may_join_again_over_the_same_connections() {
    let (mut job, numbers) = Job::met(2, false, &["a"]);
    numbers.iter().for_each(|number| job.say(*number, &leave()));
    numbers.iter().for_each(|number| drop(job.lines(*number)));
    for number in &numbers {
        job.say(*number, &FromRank::Join { version: CONTROL_VERSION, pid: 1 });
        assert!(job.lines(*number)[0].contains("\"job\":10"), "another world has another number");
    }
}

#[test]
fn who_asks_is_told_where_the_ranks_stand_at_any_time() {
    let mut job = Job::new(2, false);
    job.come(0, "a");
    job.coordinator.handle_question(1, true, job.now);
    job.drain();
    let report: Report = serde_json::from_str(&job.answers[0]).unwrap();
    assert_eq!(report.ranks.iter().map(|rank| rank.state).collect::<Vec<_>>(), [State::Waiting, State::Outside]);
    let (mut job, numbers) = Job::met(2, false, &["a"]);
    job.coordinator.handle_question(1, false, job.now);
    job.coordinator.handle_question(2, true, job.now);
    job.drain();
    let summary: Summary = serde_json::from_str(&job.answers[0]).unwrap();
    assert_eq!((summary.pid, summary.ranks, summary.nodes), (77, 2, 1));
    assert!(job.lines(numbers[1])[0].contains("Inquire"));
    job.say(numbers[0], &FromRank::Waits { inquiry: 1, waits: vec![] });
    job.wait(Duration::from_secs(1));
    let report: Report = serde_json::from_str(&job.answers[1]).unwrap();
    let states: Vec<State> = report.ranks.iter().map(|rank| rank.state).collect();
    assert_eq!(states, [State::Computing, State::Stopped], "rank 1 is stopped");
    assert!(report.job.hosts.is_none() && report.ranks.iter().all(|rank| rank.host.is_none()), "on one machine");
    let (mut job, _) = Job::met(3, false, &["a", "b"]);
    job.coordinator.handle_question(1, true, job.now);
    job.wait(Duration::from_secs(1));
    let report: Report = serde_json::from_str(&job.answers[0]).unwrap();
    let hosts: Vec<Option<&str>> = report.ranks.iter().map(|rank| rank.host.as_deref()).collect();
    assert_eq!((report.job.hosts, &hosts[..]), (Some(2), &[Some("host-a"), Some("host-b"), Some("host-a")][..]));
}

#[test]
fn the_watchdog_says_who_has_waited_for_too_long() {
    let (mut job, numbers) = Job::met(2, false, &["a"]);
    job.wait(Duration::from_secs(5));
    for number in &numbers {
        let wait = Wait { call: "barrier".to_owned(), whom: Whom::Rank(1), waited_ms: 11_000 };
        job.say(*number, &FromRank::Waits { inquiry: 1, waits: vec![wait] });
    }
    assert!(job.said[0].starts_with("rank 0 has waited in barrier for 11 s"), "{:?}", job.said);
}

mod through_a_relay {
    use super::*;
    use crate::frames::{Decoder, Frame};
    use crate::relay::{FromRelay, ToRelay};

    fn pass(job: &mut Job, relay: u64, frame: &FromRelay) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        job.bytes(relay, &bytes);
    }

    fn say(job: &mut Job, relay: u64, member: u32, message: &impl serde::Serialize) {
        let mut bytes = serde_json::to_vec(message).unwrap();
        bytes.push(b'\n');
        pass(job, relay, &FromRelay::Bytes { member, bytes });
    }

    fn told(job: &mut Job, relay: u64) -> Vec<ToRelay> {
        let mut decoder = Decoder::default();
        decoder.feed(&job.sent.remove(&relay).unwrap_or_default());
        std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
    }

    fn bytes_for(job: &mut Job, relay: u64) -> Vec<u8> {
        let bytes = |frame| if let ToRelay::Bytes { bytes, .. } = frame { bytes } else { panic!("{frame:?}") };
        told(job, relay).into_iter().flat_map(bytes).collect()
    }

    fn come(job: &mut Job, relay: u64, member: u32, caller: Caller, rank: u32) {
        pass(job, relay, &FromRelay::Member { member });
        let (proof, hello) = RankProof::start_as(caller, &job.ticket, rank, [2; 32]);
        pass(job, relay, &FromRelay::Bytes { member, bytes: hello.to_vec() });
        let challenge: [u8; CHALLENGE_BYTES] = bytes_for(job, relay).try_into().unwrap();
        let (welcome, proof) = proof.handle_challenge(&challenge).unwrap();
        pass(job, relay, &FromRelay::Bytes { member, bytes: proof.to_vec() });
        if caller == Caller::Rank {
            welcome.check(&bytes_for(job, relay).try_into().unwrap()).unwrap();
            let arrival = Arrival {
                version: CONTROL_VERSION,
                machine: "b".to_owned(),
                host: "host-b".to_owned(),
                pid: 100 + rank,
                processors: vec![0],
                nodes: 1,
            };
            say(job, relay, member, &arrival);
        }
    }

    fn is_for(frame: &ToRelay, whom: u32) -> bool {
        matches!(frame, ToRelay::Bytes { member, .. } if *member == whom)
    }

    /// Rank 0 comes by itself, ranks 1 and 2 through the relay of rank 1, as its members 5 and 6.
    fn met(survivors_go_on: bool) -> (Job, u64, u64) {
        let mut job = Job::new(3, survivors_go_on);
        let rank_0 = job.come(0, "a");
        let relay = job.prove(Caller::Relay, 1);
        come(&mut job, relay, 5, Caller::Rank, 1);
        come(&mut job, relay, 6, Caller::Rank, 2);
        let join = FromRank::Join { version: CONTROL_VERSION, pid: 1 };
        job.say(rank_0, &join);
        say(&mut job, relay, 5, &join);
        say(&mut job, relay, 6, &join);
        assert!(job.lines(rank_0)[1].contains("Start"));
        let heard = told(&mut job, relay);
        let count = |member| heard.iter().filter(|frame| is_for(frame, member)).count();
        assert_eq!((count(5), count(6)), (2, 2), "both hear that all are there, and where");
        assert_eq!((job.coordinator.connections_over(relay), job.coordinator.connections_over(rank_0)), (2, 1));
        (job, rank_0, relay)
    }

    #[test]
    fn the_end_of_a_relay_is_that_of_its_own_rank_first_and_then_of_those_behind_it() {
        let (mut job, rank_0, relay) = met(false);
        job.hang_up(relay);
        assert_eq!(job.said, ["rank 1 (node 1, pid 101 on host-b) has ended without finalizing; ending the job"]);
        let lines = job.lines(rank_0);
        assert!(lines[0].contains("\"rank\":1") && lines[1].contains("\"rank\":2"), "{lines:?}");
        assert!(job.sent.is_empty(), "nothing is said to whom is gone");
        let (mut job, rank_0, relay) = met(true);
        job.hang_up(relay);
        assert_eq!(job.lines(rank_0).len(), 2, "rank 2 goes with its node's server");
        job.say(rank_0, &leave());
        assert_eq!(job.lines(rank_0), ["\"Goodbye\""]);
    }

    #[test]
    fn the_end_of_a_relay_before_all_have_come_is_that_of_its_own_rank_whether_that_had_come_or_not() {
        for has_come in [true, false] {
            let mut job = Job::new(4, false);
            let rank_0 = job.come(0, "a");
            let relay = job.prove(Caller::Relay, 2);
            // Of a manager whose numbers on a host are not in the order of the ranks.
            come(&mut job, relay, 6, Caller::Rank, 1);
            if has_come {
                come(&mut job, relay, 5, Caller::Rank, 2);
            }
            job.hang_up(relay);
            let process = if has_come { " (pid 102 on host-b)" } else { "" };
            let reason = format!("rank 2{process} has ended before all had come");
            assert!(job.lines(rank_0)[0].contains(&reason), "{has_come}");
            assert_eq!(job.closed, [rank_0], "who is gone is not spoken of");
        }
    }

    #[test]
    fn a_relay_that_nobody_has_come_through_may_end_and_its_rank_come_by_itself() {
        let mut job = Job::new(2, false);
        let relay = job.prove(Caller::Relay, 1);
        pass(&mut job, relay, &FromRelay::Member { member: 5 });
        job.hang_up(relay);
        let (rank_0, other) = (job.come(0, "a"), job.come(1, "a"));
        assert!(job.lines(rank_0)[0].contains("All") && job.lines(other)[0].contains("All"));
    }

    #[test]
    fn a_rank_with_a_relay_that_ends_the_job_is_let_go_when_those_behind_it_have_been_told_why() {
        for survivors_go_on in [false, true] {
            let (mut job, rank_0, relay) = met(survivors_go_on);
            say(&mut job, relay, 5, &FromRank::Abort { reason: "no memory".to_owned(), status: 3 });
            let heard = told(&mut job, relay);
            let text = |frame: &ToRelay| match frame {
                ToRelay::Bytes { member, bytes } => (*member, String::from_utf8(bytes.clone()).unwrap()),
                ToRelay::Close { member } => (*member, "end".to_owned()),
            };
            let heard: Vec<(u32, String)> = heard.iter().map(text).collect();
            let died = heard.iter().position(|(member, text)| *member == 6 && text.contains("aborted: no memory"));
            let let_go = heard.iter().position(|one| *one == (5, "\"Told\"\n".to_owned()));
            assert!(died.is_some() && died < let_go, "{heard:?}");
            assert!(job.lines(rank_0).iter().all(|line| line.contains("Died")), "nobody else is let go");
        }
    }

    #[test]
    fn the_end_of_a_rank_behind_a_relay_is_its_own_alone() {
        for frame in [FromRelay::Gone { member: 6 }, FromRelay::Deaf { member: 6, waiting: 1 << 26 }] {
            let (mut job, rank_0, relay) = met(true);
            pass(&mut job, relay, &frame);
            let lines = job.lines(rank_0);
            assert!(lines.len() == 1 && lines[0].contains("\"rank\":2"), "{lines:?}");
            assert!(told(&mut job, relay).iter().any(|frame| is_for(frame, 5)));
            assert!(job.closed.is_empty());
        }
    }

    #[test]
    fn a_rank_that_hears_nothing_before_all_have_come_is_not_waited_for() {
        let mut job = Job::new(4, true);
        let rank_0 = job.come(0, "a");
        let relay = job.prove(Caller::Relay, 1);
        come(&mut job, relay, 5, Caller::Rank, 1);
        come(&mut job, relay, 6, Caller::Rank, 2);
        told(&mut job, relay);
        pass(&mut job, relay, &FromRelay::Deaf { member: 6, waiting: 1 << 26 });
        assert!(job.lines(rank_0)[0].contains("rank 2 (pid 102 on host-b) has ended before all had come"));
        let heard = told(&mut job, relay);
        assert!(heard.iter().any(|frame| is_for(frame, 5)) && !heard.iter().any(|frame| is_for(frame, 6)), "{heard:?}");
    }

    #[test]
    fn who_may_end_when_it_hears_that_all_have_left_hears_it_after_those_behind_it() {
        let (mut job, rank_0, relay) = met(false);
        job.say(rank_0, &leave());
        say(&mut job, relay, 5, &leave());
        say(&mut job, relay, 6, &leave());
        let members: Vec<u32> = told(&mut job, relay)
            .into_iter()
            .map(|frame| if let ToRelay::Bytes { member, .. } = frame { member } else { panic!("{frame:?}") })
            .collect();
        assert_eq!(members, [6, 5]);
        assert_eq!(job.lines(rank_0), ["\"Goodbye\""]);
    }

    #[test]
    fn a_relay_gives_nobody_a_proof_and_what_it_makes_up_costs_its_own_connection() {
        let mut job = Job::new(3, false);
        let relay = job.prove(Caller::Relay, 1);
        pass(&mut job, relay, &FromRelay::Member { member: 0 });
        pass(&mut job, relay, &FromRelay::Bytes { member: 0, bytes: vec![b'x'; HELLO_BYTES] });
        assert_eq!(told(&mut job, relay).pop(), Some(ToRelay::Close { member: 0 }), "no hello");
        pass(&mut job, relay, &FromRelay::Bytes { member: 0, bytes: b"late".to_vec() });
        come(&mut job, relay, 1, Caller::Relay, 2);
        assert_eq!(told(&mut job, relay), [ToRelay::Close { member: 1 }], "no relay is behind a relay");
        pass(&mut job, relay, &FromRelay::Member { member: 2 });
        job.wait(Duration::from_secs(2));
        assert_eq!(told(&mut job, relay), [ToRelay::Close { member: 2 }], "a proof has its time there too");
        for member in 3..6 {
            pass(&mut job, relay, &FromRelay::Member { member });
        }
        assert!(told(&mut job, relay).is_empty());
        pass(&mut job, relay, &FromRelay::Member { member: 7 });
        assert_eq!(told(&mut job, relay), [ToRelay::Close { member: 7 }], "three are kept");
        pass(&mut job, relay, &FromRelay::Member { member: 3 });
        assert_eq!(job.closed, [relay], "there is one already");
        job.come(0, "a");
        assert_eq!(job.closed, [relay]);
    }

    #[test]
    fn all_behind_a_relay_are_told_why_they_will_not_be_together() {
        let mut job = Job::new(3, false);
        let relay = job.prove(Caller::Relay, 1);
        come(&mut job, relay, 5, Caller::Rank, 1);
        come(&mut job, relay, 6, Caller::Rank, 2);
        job.wait(Duration::from_secs(60));
        let told = told(&mut job, relay);
        for member in [5, 6] {
            let reason = told.iter().any(|frame| match frame {
                ToRelay::Bytes { member: of, bytes } => {
                    *of == member && String::from_utf8_lossy(bytes).contains("rank 0 of 3")
                }
                ToRelay::Close { .. } => false,
            });
            assert!(reason && told.contains(&ToRelay::Close { member }), "{told:?}");
        }
        assert_eq!(job.closed, [relay]);
    }
}
