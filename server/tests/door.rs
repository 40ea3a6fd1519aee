//! Who stands behind a door: anybody may have taken its name.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use longarm_server::door::{Door, DoorError};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Some user that is not the one of the test.
const OTHER_USER: u32 = 65_534;
/// Names the door that this program is to take, when it is started again as that user.
const DOOR: &str = "LONGARM_TEST_DOOR";
const TEST: &str = "the_door_of_another_user_is_not_entered";

/// Takes the name, says so, and holds it until its input ends.
fn take(name: &str) {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    println!("\ntaken");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn the_door_of_another_user_is_not_entered() {
    if let Ok(name) = std::env::var(DOOR) {
        return take(&name);
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can be another user: nothing is tested");
        return;
    }
    let name = format!("longarm-test-door-{}", std::process::id());
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", TEST, "--nocapture"]).env(DOOR, &name).uid(OTHER_USER).current_dir("/");
    let mut other = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "taken"));
    let outcome = Door::connect(&name);
    drop(other.stdin.take());
    assert!(matches!(outcome, Err(DoorError::OtherUser { uid: OTHER_USER })), "{outcome:?}");
    lines.for_each(drop);
    other.wait().unwrap();
}
