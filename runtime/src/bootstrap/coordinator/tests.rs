use longarm_control::proof::Ticket;

use std::net::SocketAddr;

use super::*;

fn settings() -> Settings {
    Settings {
        ticket: Ticket { assembly: 1, size: 2, secret: [2; 32] },
        job: 3,
        survivors_go_on: false,
        arrival: Duration::from_secs(60),
        proof: Duration::from_secs(10),
        half_open_max: 8,
        report: Duration::from_millis(700),
        watchdog_s: 0,
        pid: 0,
        command: String::new(),
        is_stopped: |_| false,
    }
}

fn desk() -> (Desk, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    (Desk::new(vec![listener], settings(), Turns::new().unwrap(), Box::new(|_| ())).unwrap(), at)
}

/// What the poller tells of without waiting.
fn told(desk: &Desk) -> Vec<u64> {
    let mut ready = Vec::new();
    desk.poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
    ready.into_iter().map(|ready| ready.token).collect()
}

#[test]
fn a_coordinator_that_is_dropped_listens_no_more_and_hangs_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let coordinator = CoordinatorThread::start(vec![listener], settings(), Box::new(|_| ())).unwrap();
    let mut guest = TcpStream::connect(at).unwrap();
    drop(coordinator);
    assert_eq!(TcpStream::connect(at).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    assert!(matches!(guest.read(&mut [0]), Ok(0) | Err(_)), "it is cut off");
}

#[test]
fn what_was_to_be_said_to_a_connection_is_sent_before_it_is_closed() {
    const BYTES: usize = 16 << 20;
    let (mut desk, _) = desk();
    let other_end = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(other_end.local_addr().unwrap()).unwrap();
    let (mut guest, _) = other_end.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    desk.poller.add(&stream, 7, Interest::READABLE).unwrap();
    let stream = Unshared::new(stream).unwrap();
    desk.lines.insert(7, Line { stream, unsent: vec![1; BYTES], closes: None });
    // It has said something that nobody reads any more.
    guest.write_all(b"hello").unwrap();
    desk.close(7);
    assert!(desk.lines.contains_key(&7), "more than the system takes at once waits");
    let reader = std::thread::spawn(move || {
        let mut heard = Vec::new();
        guest.read_to_end(&mut heard).map(|_| heard.len())
    });
    while desk.lines.contains_key(&7) {
        let mut ready = Vec::new();
        desk.poller.wait(&mut ready, None).unwrap();
        ready.into_iter().for_each(|ready| desk.handle_ready(ready));
    }
    assert_eq!(reader.join().unwrap().unwrap(), BYTES);
}

#[test]
fn a_connection_that_is_closed_and_does_not_read_is_let_go_of_after_a_while() {
    let (mut desk, _) = desk();
    let other_end = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(other_end.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    desk.poller.add(&stream, 7, Interest::READABLE).unwrap();
    let stream = Unshared::new(stream).unwrap();
    desk.lines.insert(7, Line { stream, unsent: vec![1; 16 << 20], closes: None });
    desk.close(7);
    let until = desk.deadline().expect("its end is waited for");
    assert!(until <= Instant::now() + FLUSH);
    desk.handle_time(until);
    assert!(desk.lines.is_empty());
}

#[test]
fn where_nobody_can_be_taken_in_those_who_wait_are_not_announced_for_a_while() {
    let (mut desk, at) = desk();
    let _guest = TcpStream::connect(at).unwrap();
    assert_eq!(told(&desk), [LISTENER]);
    let now = Instant::now();
    let errors = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOMEM];
    for error in errors {
        desk.handle_not_taken_in(&error.into(), now);
        assert_eq!((told(&desk).as_slice(), desk.rests), (&[][..], Some(now + REST)), "{error}");
        assert!(desk.deadline().is_some_and(|at| at <= now + REST));
        desk.handle_time(now + REST);
        assert_eq!((told(&desk).as_slice(), desk.rests), (&[LISTENER][..], None), "{error}");
    }
    desk.handle_not_taken_in(&io::ErrorKind::ConnectionAborted.into(), now);
    assert_eq!((told(&desk).as_slice(), desk.rests), (&[LISTENER][..], None), "the next one may come at once");
}
