//! A thousand strangers of each kind call the servers of a job that works, from several threads at once, and its
//! results are right. Whoever is not one of the job's ranks is never let in, and never keeps a rank out.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use libtest_mimic::{Failed, Trial};
use longarm_proto::{CHALLENGE_BYTES, HELLO_BYTES, JobId, PROOF_BYTES, Secret};

use super::strangers::{Server, expect_silence, finish, start, until_hung_up, visit};
use crate::{BODY, PARAMETERS};

/// Strangers of each kind.
const STRANGERS: usize = 1000;
/// How many of them call at once.
const THREADS: usize = 4;
/// Lines that each of these keeps open without a word.
const LINES_MAX: usize = 100;
/// Some user that is not the one of the test.
pub const OTHER_USER: u32 = 65_534;
/// What a stranger that belongs to the test believes in.
const WRONG_SECRET: Secret = Secret([0x5a; 32]);

/// What one stranger does: its server and its number.
type Call = fn(&Server, usize) -> Result<(), Failed>;

/// The kinds that come over the network.
const KINDS: [(&str, Call); 8] = [
    ("garbage", garbage),
    ("silence", silence),
    ("a wrong secret", wrong_secret),
    ("a recorded handshake", replay),
    ("the secret of another job", other_job),
    ("a wrong version", wrong_version),
    ("a handshake cut anywhere", truncated),
    ("a connection that is dropped at once", dropped),
];

/// Runs a number of strangers over the servers in turn.
fn come(servers: &[Server], strangers: usize, call: Call) -> Result<(), Failed> {
    // One crowd at a time: two might have more lines than this process may.
    static CROWD: Mutex<()> = Mutex::new(());
    let _crowd = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= strangers {
                        break;
                    }
                    if let Err(error) = call(&servers[number % servers.len()], number) {
                        *failed.lock().expect("no thread panics") = Some(error);
                        break;
                    }
                }
            });
        }
    });
    failed.into_inner().expect("no thread panics").map_or(Ok(()), Err)
}

fn garbage(server: &Server, number: usize) -> Result<(), Failed> {
    let mut stream = server.call()?;
    let noise: Vec<u8> = (0..300_usize).map(|at| (at.wrapping_mul(number + 3) >> 3) as u8).collect();
    // It may hang up before it has all.
    let _ = stream.write_all(&noise);
    expect_silence("garbage", stream)
}

/// Says nothing, or breaks off in the middle of a word, and keeps the line.
fn silence(server: &Server, number: usize) -> Result<(), Failed> {
    thread_local! { static LINES: RefCell<VecDeque<TcpStream>> = const { RefCell::new(VecDeque::new()) } }
    let mut stream = server.call()?;
    let (_, hello) = server.hello(&WRONG_SECRET);
    stream.write_all(&hello[..number % HELLO_BYTES / 2])?;
    stream.set_nonblocking(true)?;
    LINES.with_borrow_mut(|lines| {
        lines.push_back(stream);
        // More than the servers keep, and less than this process may have.
        let oldest = (lines.len() > LINES_MAX).then(|| lines.pop_front()).flatten();
        match oldest.map(|mut oldest| oldest.read(&mut [0; 10])) {
            Some(Ok(1..)) => Err("silence was answered".into()),
            _ => Ok(()),
        }
    })
}

/// The server may have hung up already to make room for others: that is silence too.
fn prove_with(server: &Server, secret: &Secret) -> Result<(), Failed> {
    let Ok((mut stream, proof)) = server.call_with_hello(secret) else { return Ok(()) };
    let _ = stream.write_all(&proof);
    expect_silence("a wrong proof", stream)
}

fn wrong_secret(server: &Server, number: usize) -> Result<(), Failed> {
    let mut secret = WRONG_SECRET;
    secret.0[..8].copy_from_slice(&(number as u64).to_le_bytes());
    prove_with(server, &secret)
}

/// All that the initiator says, as it was said on another connection.
fn replay(server: &Server, _: usize) -> Result<(), Failed> {
    let Ok((recorded, proof)) = server.call_with_hello(&WRONG_SECRET) else { return Ok(()) };
    let (_, hello) = server.hello(&WRONG_SECRET);
    let mut stream = server.call()?;
    let _ = stream.write_all(&[&hello[..], &proof, &[1; 64]].concat());
    drop(recorded);
    let heard = until_hung_up(stream);
    if heard.len() <= CHALLENGE_BYTES { Ok(()) } else { Err("a recorded proof was welcomed".into()) }
}

/// A sound rank of another job, which calls the wrong address.
fn other_job(server: &Server, number: usize) -> Result<(), Failed> {
    let (_, hello) = server.hello_of(JobId(server.job().0 ^ (number as u64 + 1)), &WRONG_SECRET);
    let mut stream = server.call()?;
    let _ = stream.write_all(&hello);
    expect_silence("a rank of another job", stream)
}

fn wrong_version(server: &Server, number: usize) -> Result<(), Failed> {
    let (_, mut hello) = server.hello(&WRONG_SECRET);
    hello[4 + number % 4] ^= 1 << (number / 4 % 8);
    let mut stream = server.call()?;
    let _ = stream.write_all(&hello);
    expect_silence("another version", stream)
}

/// A hello and a proof that end at any byte.
fn truncated(server: &Server, number: usize) -> Result<(), Failed> {
    let cut = number % (HELLO_BYTES + PROOF_BYTES);
    let mut stream = server.call()?;
    let (_, hello) = server.hello(&WRONG_SECRET);
    let _ = stream.write_all(&[&hello[..], &[7; PROOF_BYTES]].concat()[..cut]);
    // The server may have hung up already.
    let _ = stream.shutdown(Shutdown::Write);
    let heard = until_hung_up(stream);
    if heard.len() <= CHALLENGE_BYTES { Ok(()) } else { Err(format!("{cut} bytes of a handshake were enough").into()) }
}

fn dropped(server: &Server, _: usize) -> Result<(), Failed> {
    drop::<TcpStream>(server.call()?);
    Ok(())
}

fn a_thousand_of_each_kind(variables: &[(&str, &str)]) -> Result<(), Failed> {
    let (mut job, servers) = start(variables)?;
    job.say("go")?;
    for (name, call) in KINDS {
        come(&servers, STRANGERS, call).map_err(|failed| format!("{name}: {}", failed.message().unwrap_or("")))?;
    }
    finish(job)
}

/// What a process of another user finds out: it is turned away at every door without a word.
pub fn as_other_user(doors: &str) -> ExitCode {
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(uid, OTHER_USER);
    let doors: Vec<&str> = doors.split(' ').collect();
    for number in 0..STRANGERS {
        let door = visit(doors[number % doors.len()]).expect("anybody may knock");
        // It may have hung up already.
        let packet = b"{\"Attach\":{\"window\":1,\"generation\":1}}";
        let _ = rustix::net::send(&door, packet, rustix::net::SendFlags::NOSIGNAL);
        let mut answer = [0; 100];
        let heard = rustix::net::recv(&door, &mut answer, rustix::net::RecvFlags::empty());
        assert!(!matches!(heard, Ok((1.., _))), "another user was answered at the door");
    }
    ExitCode::SUCCESS
}

fn other_user() -> Result<(), Failed> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can be another user: nothing is tested");
        return Ok(());
    }
    let (mut job, servers) = start(&[])?;
    job.say("go")?;
    let doors: Vec<&str> = servers.iter().map(|server| server.door.as_str()).collect();
    let mut command = Command::new("/proc/self/exe");
    command.uid(OTHER_USER).env(BODY, "other user").env(PARAMETERS, doors.join(" "));
    let status = command.current_dir("/").status()?;
    if !status.success() {
        return Err(format!("the process of another user ended with {status}").into());
    }
    finish(job)
}

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("a_thousand_strangers_of_each_kind_neither_enter_a_job_nor_stop_it", || {
            a_thousand_of_each_kind(&[])
        }),
        Trial::test("a_thousand_strangers_of_each_kind_neither_enter_an_encrypted_job_nor_stop_it", || {
            a_thousand_of_each_kind(&[("LONGARM_ENCRYPT", "1")])
        }),
        Trial::test("a_thousand_strangers_of_each_kind_neither_enter_a_routed_job_nor_stop_it", || {
            a_thousand_of_each_kind(&[("LONGARM_CONNECTIONS_MAX", "0")])
        }),
        Trial::test("a_thousand_visitors_of_another_user_are_turned_away_at_the_door", other_user),
    ]
}
