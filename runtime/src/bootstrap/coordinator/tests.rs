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

fn thread() -> (Thread, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    (Thread::new(vec![listener], settings(), Turns::new().unwrap(), Box::new(|_| ())).unwrap(), at)
}

/// What the poller tells of without waiting.
fn told(sockets: &CoordinatorSockets) -> Vec<u64> {
    let mut ready = Vec::new();
    sockets.poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
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
fn where_nobody_can_be_taken_in_those_who_wait_are_not_announced_for_a_while() {
    let (thread, at) = thread();
    let mut sockets = thread.sockets;
    let _guest = TcpStream::connect(at).unwrap();
    assert_eq!(told(&sockets), [LISTENER]);
    let now = Instant::now();
    let errors = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOMEM];
    for error in errors {
        sockets.handle_not_taken_in(&error.into(), now);
        assert_eq!((told(&sockets).as_slice(), sockets.rests), (&[][..], Some(now + REST)), "{error}");
        assert!(sockets.deadline().is_some_and(|at| at <= now + REST));
        sockets.handle_time(now + REST);
        assert_eq!((told(&sockets).as_slice(), sockets.rests), (&[LISTENER][..], None), "{error}");
    }
    sockets.handle_not_taken_in(&io::ErrorKind::ConnectionAborted.into(), now);
    assert_eq!((told(&sockets).as_slice(), sockets.rests), (&[LISTENER][..], None), "the next one may come at once");
}

#[test]
fn a_connection_is_told_of_when_it_takes_something_again_and_else_when_something_comes() {
    let (thread, at) = thread();
    let mut sockets = thread.sockets;
    let mut guest = TcpStream::connect(at).unwrap();
    let (stream, _) = sockets.listeners[0].accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    assert!(sockets.add(7, stream));
    let taken: usize = std::iter::from_fn(|| sockets.write(7, &[1; 1 << 20]).ok()).sum();
    sockets.watch(7, Readiness { readable: true, writable: true });
    let reader = std::thread::spawn(move || guest.read_exact(&mut vec![0; taken]).map(|()| guest));
    assert_eq!(wait(&sockets), Some((7, Readiness { readable: false, writable: true })));
    let mut guest = reader.join().unwrap().unwrap();
    sockets.watch(7, Readiness::READABLE);
    assert!(told(&sockets).is_empty());
    guest.write_all(b"hello").unwrap();
    assert_eq!(wait(&sockets), Some((7, Readiness::READABLE)));
    assert_eq!(sockets.read(7, &mut [0; 64]).unwrap(), 5);
    sockets.close(7);
    assert!(matches!(guest.read(&mut [0]), Ok(0)) && sockets.streams.is_empty());
}

/// The first that the poller tells of.
fn wait(sockets: &CoordinatorSockets) -> Option<(u64, Readiness)> {
    let mut ready = Vec::new();
    sockets.poller.wait(&mut ready, None).unwrap();
    ready.into_iter().map(|ready| (ready.token, readiness(ready))).next()
}
