use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::TcpListener;

use longarm_control::vouching::frame;
use longarm_managers::munge::{Credential, MungeError};
use longarm_shm::sync::{AtomicU32, Ordering};

use super::*;

/// Vouches as MUNGE does, for the users that it is told: a credential is good once, and for the user for whom it was made.
struct OneCluster {
    own_user: u32,
    seen: Arc<Mutex<HashSet<String>>>,
}

impl Credentials for OneCluster {
    fn vouch(&self, payload: &[u8], user: u32) -> Result<String, MungeError> {
        let mut nonce = [0; 4];
        getrandom::fill(&mut nonce).unwrap();
        let payload: Vec<String> = payload.iter().map(u8::to_string).collect();
        Ok(format!("{} {} {user} {}", u32::from_le_bytes(nonce), self.own_user, payload.join(",")))
    }

    fn read(&self, credential: &str) -> Result<Credential, MungeError> {
        let said = "no credential".to_owned();
        let words: Vec<&str> = credential.split(' ').collect();
        let &[_, uid, reader, payload] = words.as_slice() else { return Err(MungeError::Invalid { status: 1, said }) };
        if !self.seen.lock().insert(credential.to_owned()) {
            return Err(MungeError::Replayed);
        }
        if reader != self.own_user.to_string() {
            return Err(MungeError::ForAnotherUser);
        }
        let payload = payload.split(',').map(|byte| byte.parse().unwrap()).collect();
        Ok(Credential { uid: uid.parse().unwrap(), gid: 0, payload })
    }
}

const OWN: u32 = 1000;

fn one_cluster(own_user: u32) -> Arc<dyn Credentials> {
    Arc::new(OneCluster { own_user, seen: Arc::default() })
}

/// Rank `rank` of three, of a step whose ports are its own among all tests of this machine.
fn stepped(rank: u32, credentials: Arc<dyn Credentials>, ports: &[u16]) -> Stepped {
    let step = Step {
        rank,
        size: 3,
        local_id: rank,
        node_id: 0,
        nodes: vec!["n1".to_owned()],
        tasks_per_node: vec![3],
        job_id: 7,
        step_id: 1,
        srun_host: None,
        reserved_ports: ports.to_vec(),
    };
    let mut config = Config::default();
    config.meet_timeout_s = 1;
    Stepped::new(step, OWN, credentials, &config)
}

/// Two ports at which nobody listens, of those that the kernel gives to nobody who does not ask for them, and that no other test of this
/// process gets.
fn free_ports() -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 61_000;
    let begin = std::process::id().wrapping_mul(64);
    let ports = std::iter::repeat_with(|| {
        let port = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (65_536 - FIRST) + FIRST;
        u16::try_from(port).expect("it is below 65,536")
    });
    ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).take(2).collect()
}

/// What is said to somebody who says this to rank 0.
fn said_to(ports: &[u16], message: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
    stream.write_all(message).unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    String::from_utf8_lossy(&heard[16..]).into_owned()
}

/// Rank 0, which gives everybody who may have it the text "come in".
fn inviting(credentials: &Arc<dyn Credentials>, ports: &[u16]) -> Stepped {
    let first = stepped(0, Arc::clone(credentials), ports);
    first.share(Some("come in".to_owned())).unwrap();
    first
}

#[test]
fn all_ranks_of_a_step_get_what_rank_0_has_to_say() {
    let ports = free_ports();
    let credentials = one_cluster(OWN);
    let first = stepped(0, Arc::clone(&credentials), &ports);
    // The others may be there before.
    let others: Vec<_> = [1, 2].map(|rank| stepped(rank, Arc::clone(&credentials), &ports)).into();
    let texts: Vec<String> = std::thread::scope(|scope| {
        let asking: Vec<_> = others.iter().map(|other| scope.spawn(|| other.share(None))).collect();
        assert_eq!(first.share(Some("come in".to_owned())).as_deref(), Ok("come in"));
        asking.into_iter().map(|one| one.join().unwrap().unwrap()).collect()
    });
    assert_eq!(texts, ["come in", "come in"]);
    first.all_have_come();
    let error = TcpStream::connect(("127.0.0.1", ports[0])).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "nobody is answered when all have come");
}

#[test]
fn rank_0_is_found_behind_somebody_else_who_has_its_first_port() {
    let ports = free_ports();
    let squatter = TcpListener::bind(("127.0.0.1", ports[0])).unwrap();
    let credentials = one_cluster(OWN);
    let _first = inviting(&credentials, &ports);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut caller, _) = squatter.accept().unwrap();
            caller.write_all(b"220 mail.example ready, say something").unwrap();
        });
        assert_eq!(stepped(1, credentials, &ports).share(None).as_deref(), Ok("come in"));
    });
}

#[test]
fn who_is_of_another_user_or_shows_nothing_good_is_refused_with_a_reason() {
    let ports = free_ports();
    let credentials = one_cluster(OWN);
    let first = inviting(&credentials, &ports);
    let question = first.step_name.ask(&Question { rank: 1, nonce: [1; 32] });
    let ask = |credential: &str| said_to(&ports, &frame(Kind::Question, credential.as_bytes()));
    let of_another = one_cluster(OWN + 1).vouch(&question, OWN).unwrap();
    assert!(ask(&of_another).contains("it is of the user with the number 1001"));
    let for_another = credentials.vouch(&question, OWN + 1).unwrap();
    assert!(ask(&for_another).contains("meant for another user"));
    assert!(ask("rubbish").contains("is not good here"));
    assert!(said_to(&ports, &frame(Kind::Answer, b"rubbish")).contains("does not ask"));
    assert!(said_to(&ports, b"GET / HTTP/1.1\r\n").contains("does not speak longarm"));
    let other_job = StepName { job: 8, ..first.step_name }.ask(&Question { rank: 1, nonce: [1; 32] });
    assert!(ask(&credentials.vouch(&other_job, OWN).unwrap()).contains("step 1 of job 8"));
}

#[test]
fn a_credential_that_is_shown_twice_is_refused_and_its_answer_is_of_no_use_to_others() {
    let ports = free_ports();
    let credentials = one_cluster(OWN);
    let first = inviting(&credentials, &ports);
    let question = first.step_name.ask(&Question { rank: 1, nonce: [1; 32] });
    let credential = credentials.vouch(&question, OWN).unwrap();
    let answer = said_to(&ports, &frame(Kind::Question, credential.as_bytes()));
    assert_eq!(one_cluster(OWN + 1).read(&answer).unwrap_err(), MungeError::ForAnotherUser);
    assert!(said_to(&ports, &frame(Kind::Question, credential.as_bytes())).contains("used before"));
}

#[test]
fn nothing_is_made_for_a_caller_who_has_hung_up() {
    let ports = free_ports();
    let credentials = one_cluster(OWN);
    let first = inviting(&credentials, &ports);
    let question = first.step_name.ask(&Question { rank: 1, nonce: [1; 32] });
    let credential = credentials.vouch(&question, OWN).unwrap();
    let frame = frame(Kind::Question, credential.as_bytes());
    let mut stream = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
    stream.write_all(&frame[..frame.len() - 1]).unwrap();
    // Its end is there as soon as the question is whole.
    let held = rustix::net::sockopt::set_tcp_cork(&stream, true);
    held.and_then(|()| rustix::io::write(&stream, &frame[frame.len() - 1..])).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    assert!(String::from_utf8_lossy(&heard).contains("it has hung up"));
    assert!(credentials.read(&credential).is_ok(), "it was not used up");
}

#[test]
fn a_rank_believes_nobody_of_another_user_and_says_what_it_has_heard() {
    let ports = free_ports();
    let impostor = stepped(0, one_cluster(OWN + 1), &ports);
    // He cannot even read the question; a reason of his is shown, and nothing is believed.
    impostor.share(Some("come in".to_owned())).unwrap();
    let error = stepped(1, one_cluster(OWN), &ports).share(None).unwrap_err();
    assert!(error.contains("node n1") && error.contains("meant for another user"), "{error}");
    assert!(error.contains("LONGARM_MEET_TIMEOUT_S"), "{error}");
}

#[test]
fn a_step_without_pmi_is_seen_and_one_task_or_one_that_is_told_its_rank_is_not() {
    let variables = [
        ("SLURM_PROCID", "1"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "1"),
        ("SLURM_STEP_NODELIST", "n[1-2]"),
        ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("LONGARM_RANK", "1"),
    ];
    let look = |count: usize, size: &str| {
        let value = |name: &str| match name {
            "SLURM_STEP_NUM_TASKS" => Some(size.to_owned()),
            _ => variables[..count].iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
        };
        BySrun.look(&value, &Config::default())
    };
    match munge::look() {
        Ok(()) => assert_eq!(look(8, "2"), Sight::Usable),
        Err(error) => assert_eq!(look(8, "2"), Sight::Unusable(error.to_string())),
    }
    assert_eq!(look(9, "2"), Sight::Nothing);
    let inside = |name: &str| match name {
        "PMI_RANK" => Some("3".to_owned()),
        "PMI_SIZE" => Some("4".to_owned()),
        _ => variables[..8].iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
    };
    assert_eq!(BySrun.look(&inside, &Config::default()), Sight::Nothing, "hydra has a proxy in each task");
    assert!(matches!(look(7, "2"), Sight::Unusable(reason) if reason.contains("SLURM_STEP_ID")));
    assert_eq!(BySrun.look(&|_| None, &Config::default()), Sight::Nothing);
}
