//! Conversations with process managers of PMI-1, played against the client: those of hydra 4.0.2 and 5.0.2, Intel MPI 2021.18 and Slurm
//! 22.05 as they were recorded, that of Flux as its sources have it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use longarm_managers::pmi1::{Client, Maxes, Pmi1Error, VALUE_BYTES_MAX, nodes_of_ranks};

/// A manager that answers each line with what it answered when it was recorded, and fails the test at any other line.
struct Recorded {
    exchanges: VecDeque<(String, String)>,
    answer: VecDeque<u8>,
    /// How many exchanges are left, for the test.
    left: Arc<Mutex<usize>>,
}

fn recorded(exchanges: &[(&str, &str)]) -> (Recorded, Arc<Mutex<usize>>) {
    let left = Arc::new(Mutex::new(exchanges.len()));
    let exchanges = exchanges.iter().map(|(line, answer)| (format!("{line}\n"), format!("{answer}\n"))).collect();
    (Recorded { exchanges, answer: VecDeque::new(), left: Arc::clone(&left) }, left)
}

impl Write for Recorded {
    /// Slurm reads once for each command: every line comes in one piece, and none before the last answer is read.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(self.answer.is_empty(), "two lines in flight");
        assert!(bytes.len() < 1024, "{} bytes at once", bytes.len());
        let said = String::from_utf8(bytes.to_vec()).expect("lines are text");
        let (line, answer) = self.exchanges.pop_front().unwrap_or_else(|| panic!("nothing answers {said:?}"));
        assert_eq!(said, line);
        self.answer.extend(answer.bytes());
        *self.left.lock().unwrap() -= 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Recorded {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.answer.read(out)
    }
}

const INIT: &str = "cmd=init pmi_version=1 pmi_subversion=1";
const MAPPING: &str = "PMI_process_mapping";

/// Plays the conversation of rank 0 of 2: what every manager was asked when it was recorded.
fn play(exchanges: &[(&str, &str)], maxes: (u32, u32, u32), nodes: Option<&[u32]>) -> Client {
    let (manager, _) = recorded(exchanges);
    let mut client = Client::over(manager, 0, 2).unwrap();
    let (store_bytes, key_bytes, value_bytes) = maxes;
    assert_eq!(client.maxes(), Maxes { store_bytes, key_bytes, value_bytes });
    let mapping = client.mapping().unwrap().map(|mapping| nodes_of_ranks(&mapping, 2).unwrap());
    assert_eq!(mapping.as_deref(), nodes);
    client.put("card", b"hi").unwrap();
    client.barrier().unwrap();
    assert_eq!(client.get("card").unwrap(), b"hi");
    assert!(matches!(client.get("nobody"), Err(Pmi1Error::Missing { key }) if key == "nobody"));
    client
}

/// What managers answer in the conversation of [`play`], each in its own way.
struct Manner {
    store: &'static str,
    init: &'static str,
    maxes: &'static str,
    store_named: &'static str,
    mapping: &'static str,
    put: &'static str,
    barrier: &'static str,
    found: &'static str,
    missing: &'static str,
    universe_size: &'static str,
    program: &'static str,
    finalize: &'static str,
}

/// Plays the conversation to its end. Gives the universe's size and the program's number.
fn play_all(manner: &Manner, maxes: (u32, u32, u32), nodes: Option<&[u32]>) -> (Option<u32>, Option<u64>) {
    let store = manner.store;
    let asked = |what: &str| format!("cmd=get kvsname={store} key={what}");
    let exchanges = [
        (INIT.to_owned(), manner.init),
        ("cmd=get_maxes".to_owned(), manner.maxes),
        ("cmd=get_my_kvsname".to_owned(), manner.store_named),
        (asked(MAPPING), manner.mapping),
        (format!("cmd=put kvsname={store} key=card value=1-6869"), manner.put),
        ("cmd=barrier_in".to_owned(), manner.barrier),
        (asked("card"), manner.found),
        (asked("nobody"), manner.missing),
        ("cmd=get_universe_size".to_owned(), manner.universe_size),
        ("cmd=get_appnum".to_owned(), manner.program),
        ("cmd=finalize".to_owned(), manner.finalize),
    ];
    let exchanges: Vec<(&str, &str)> = exchanges.iter().map(|(line, answer)| (line.as_str(), *answer)).collect();
    let mut client = play(&exchanges, maxes, nodes);
    let told = (client.universe_size().unwrap(), client.program().unwrap());
    client.finalize().unwrap();
    told
}

/// Hydra 4.0.2. Intel's is a descendant of an earlier one.
const HYDRA_4: Manner = Manner {
    store: "kvs_20031_0_356625005_host",
    init: "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    maxes: "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
    store_named: "cmd=my_kvsname kvsname=kvs_20031_0_356625005_host",
    mapping: "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))",
    put: "cmd=put_result rc=0 msg=success",
    barrier: "cmd=barrier_out",
    found: "cmd=get_result rc=0 msg=success value=1-6869",
    missing: "cmd=get_result rc=-1 msg=key_nobody_not_found value=unknown",
    universe_size: "cmd=universe_size size=-1",
    program: "cmd=appnum appnum=0",
    finalize: "cmd=finalize_ack",
};

/// Slurm 22.05.
const SLURM: Manner = Manner {
    store: "5.0",
    init: "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
    maxes: "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
    store_named: "cmd=my_kvsname rc=0 kvsname=5.0",
    mapping: "cmd=get_result rc=0 value=(vector,(0,2,1))",
    put: "cmd=put_result rc=0",
    barrier: "cmd=barrier_out rc=0",
    found: "cmd=get_result rc=0 value=1-6869",
    missing: "cmd=get_result rc=1",
    universe_size: "cmd=universe_size rc=0 size=2",
    program: "cmd=appnum rc=0 appnum=-1",
    finalize: "cmd=finalize_ack rc=0",
};

#[test]
fn hydra_4_leaves_rc_out_and_has_msg() {
    assert_eq!(play_all(&HYDRA_4, (256, 64, 1024), Some(&[0, 1])), (None, Some(0)));
}

#[test]
fn hydra_5_has_rc_everywhere_another_subversion_and_a_tag_at_barriers() {
    let manner = Manner {
        store: "kvs_20040_0_871920377_host",
        init: "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2",
        store_named: "cmd=my_kvsname rc=0 kvsname=kvs_20040_0_871920377_host",
        barrier: "cmd=barrier_out tag=0",
        universe_size: "cmd=universe_size rc=0 size=-1",
        program: "cmd=appnum rc=0 appnum=0",
        ..SLURM
    };
    assert_eq!(play_all(&manner, (256, 64, 1024), Some(&[0, 1])), (None, Some(0)));
}

#[test]
fn intel_takes_longer_values_and_gets_none() {
    let manner = Manner {
        store: "kvs_20420_0",
        maxes: "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=4096",
        store_named: "cmd=my_kvsname kvsname=kvs_20420_0",
        mapping: "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))",
        ..HYDRA_4
    };
    assert_eq!(play_all(&manner, (256, 64, 4096), Some(&[0, 0])), (None, Some(0)));
}

#[test]
fn slurm_has_its_own_order_and_names_its_store_by_job_and_step() {
    assert_eq!(play_all(&SLURM, (256, 64, 1024), Some(&[0, 1])), (Some(2), None));
}

#[test]
fn flux_has_short_names_wide_numbers_and_perhaps_no_mapping() {
    let manner = Manner {
        store: "ƒA4",
        maxes: "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024",
        store_named: "cmd=my_kvsname rc=0 kvsname=ƒA4",
        mapping: "cmd=get_result rc=4",
        found: "cmd=get_result value=1-6869 rc=0",
        missing: "cmd=get_result rc=4",
        program: "cmd=appnum rc=0 appnum=18446744073709551615",
        ..SLURM
    };
    assert_eq!(play_all(&manner, (64, 64, 1024), None), (Some(2), Some(u64::MAX)));
}

#[test]
fn over_a_port_the_manager_tells_rank_and_size_first() {
    // Hydra 4.0.2, hydra 5.0.2.
    for initack in ["cmd=initack", "cmd=initack rc=0 rank=3 size=4 appnum=0 debug=0"] {
        let greeting = &format!("{initack}\ncmd=set size=4\ncmd=set rank=3\ncmd=set debug=0");
        let (manager, left) = recorded(&[
            ("cmd=initack pmiid=3", greeting),
            (INIT, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
            ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"),
            ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1_0"),
        ]);
        let client = Client::over_port(manager, 3).unwrap();
        assert_eq!((client.rank(), client.size(), client.store()), (3, 4, "kvs_1_0"));
        assert_eq!(*left.lock().unwrap(), 0);
    }
}

/// A manager that keeps what is put, with limits of its own.
struct Keeping {
    limits: String,
    kept: std::collections::HashMap<String, String>,
    answer: VecDeque<u8>,
}

impl Keeping {
    fn new(limits: &str) -> Keeping {
        Keeping { limits: limits.to_owned(), kept: Default::default(), answer: VecDeque::new() }
    }
}

impl Write for Keeping {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(self.answer.is_empty() && bytes.len() < 1024);
        let line = std::str::from_utf8(bytes).unwrap().strip_suffix('\n').expect("lines are whole");
        let pair = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_default().to_owned();
        let answer = match pair("cmd=").as_str() {
            "init" => "response_to_init rc=0".to_owned(),
            "get_maxes" => format!("maxes {}", self.limits),
            "get_my_kvsname" => "my_kvsname kvsname=store".to_owned(),
            "put" => {
                let limit = |name: &str| {
                    let word = self.limits.split(' ').find_map(|word| word.strip_prefix(name)).unwrap();
                    word.parse::<usize>().unwrap()
                };
                assert!(pair("key=").len() < limit("keylen_max="), "{line}");
                assert!(pair("value=").len() < limit("vallen_max=").min(513), "{line}");
                assert!(self.kept.insert(pair("key="), pair("value=")).is_none(), "a key is put once: {line}");
                "put_result rc=0".to_owned()
            }
            "get" => match self.kept.get(&pair("key=")) {
                Some(value) => format!("get_result rc=0 value={value}"),
                None => "get_result rc=1".to_owned(),
            },
            other => panic!("{other}"),
        };
        self.answer.extend(format!("cmd={answer}\n").bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Keeping {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.answer.read(out)
    }
}

#[test]
fn values_come_back_whole_within_whatever_limits_the_manager_has() {
    let bytes: Vec<u8> = (0..VALUE_BYTES_MAX).map(|at| ((at * 31) >> 3) as u8).collect();
    for limits in [
        "kvsname_max=256 keylen_max=64 vallen_max=1024",
        "kvsname_max=256 keylen_max=64 vallen_max=4096",
        "kvsname_max=64 keylen_max=8 vallen_max=33",
        "kvsname_max=4294967295 keylen_max=4294967295 vallen_max=4294967295",
    ] {
        let mut client = Client::over(Keeping::new(limits), 0, 1).unwrap();
        for (key, length) in [("a", 0), ("b", 1), ("c", 253), ("d", 254), ("e", 4000), ("f", VALUE_BYTES_MAX)] {
            client.put(key, &bytes[..length]).unwrap();
            assert_eq!(client.get(key).unwrap(), bytes[..length], "{length} {limits}");
        }
        let longer = vec![0; VALUE_BYTES_MAX + 1];
        assert!(matches!(client.put("g", &longer), Err(Pmi1Error::LongValue { .. })));
    }
}

#[test]
fn keys_that_would_break_a_line_or_a_limit_are_refused_here() {
    let mut client = Client::over(Keeping::new("kvsname_max=256 keylen_max=64 vallen_max=1024"), 0, 1).unwrap();
    for key in ["", "a b", "a=b", "a\nb", "ä", "a\\b", &"k".repeat(59)] {
        assert!(matches!(client.put(key, b""), Err(Pmi1Error::BadKey { .. })), "{key}");
        assert!(matches!(client.get(key), Err(Pmi1Error::BadKey { .. })), "{key}");
    }
    client.put(&"k".repeat(58), &[7; 1000]).unwrap();
    assert_eq!(client.get(&"k".repeat(58)).unwrap(), [7; 1000]);
}

#[test]
fn limits_that_leave_no_room_are_named() {
    for limits in ["kvsname_max=9 keylen_max=6 vallen_max=1024", "kvsname_max=9 keylen_max=64 vallen_max=32"] {
        let error = Client::over(Keeping::new(limits), 0, 1).err().unwrap();
        assert!(matches!(error, Pmi1Error::TooSmall { .. }), "{error}");
    }
}

/// What the client says to a manager that answers so from the start.
fn refused(answers: &str) -> Pmi1Error {
    struct Fixed(io::Cursor<Vec<u8>>);
    impl Read for Fixed {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.0.read(out)
        }
    }
    impl Write for Fixed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    Client::over(Fixed(io::Cursor::new(answers.as_bytes().to_vec())), 0, 1).err().expect("it is no manager")
}

#[test]
fn who_does_not_speak_the_protocol_is_told_apart_from_who_is_gone() {
    assert!(matches!(refused(""), Pmi1Error::ClosedBefore));
    assert!(matches!(refused("cmd=response_to_init rc=0\n"), Pmi1Error::Closed { .. }));
    assert!(matches!(refused("HTTP/1.1 400 Bad Request\n"), Pmi1Error::Unexpected { .. }));
    assert!(matches!(refused("cmd=response_to_init rc=-1 pmi_version=2\n"), Pmi1Error::Refused { .. }));
    let good = "cmd=response_to_init rc=0\n";
    assert!(matches!(refused(&format!("{good}cmd=maxes keylen_max=64\n")), Pmi1Error::Unexpected { .. }));
    let maxes = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
    assert!(matches!(refused(&format!("{good}{maxes}cmd=my_kvsname\n")), Pmi1Error::Unexpected { .. }));
    let long = format!("{good}{maxes}cmd=my_kvsname kvsname={}\n", "k".repeat(513));
    let error = refused(&long);
    assert!(error.to_string().len() < 400, "{error}");
    assert!(matches!(refused(&"x".repeat(1 << 20)), Pmi1Error::LongLine));
}

#[test]
fn hydra_names_the_dead_in_ranges() {
    let with = |dead: &str| {
        let (manager, _) = recorded(&[
            (INIT, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
            ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"),
            ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1_0"),
            ("cmd=get kvsname=kvs_1_0 key=PMI_dead_processes", dead),
        ]);
        Client::over(manager, 0, 9).unwrap().dead()
    };
    assert_eq!(with("cmd=get_result rc=0 msg=success value=1,3-5").unwrap(), [1, 3, 4, 5]);
    assert_eq!(with("cmd=get_result rc=-1 msg=key_PMI_dead_processes_not_found value=unknown").unwrap(), []);
    for bad in ["3-9", "0-4294967295", "x"] {
        let answer = format!("cmd=get_result rc=0 msg=success value={bad}");
        assert!(matches!(with(&answer), Err(Pmi1Error::ForeignValue { .. })), "{bad}");
    }
}

#[test]
fn an_environment_without_a_connection_is_not_that_of_pmi_1() {
    assert!(Client::connect(&|_| None).unwrap().is_none());
    // What `srun --mpi=cray_shasta` sets.
    let cray = |name: &str| matches!(name, "PMI_RANK" | "PMI_SIZE" | "PMI_SHARED_SECRET").then(|| "1".to_owned());
    assert!(Client::connect(&cray).unwrap().is_none());
}

#[test]
fn an_environment_that_contradicts_itself_is_an_error_before_anything_is_taken_over() {
    let connect = |set: &[(&str, &str)]| {
        let variable = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Client::connect(&variable).err().expect("it does not connect").to_string()
    };
    assert!(connect(&[("PMI_FD", "x")]).contains("PMI_FD"));
    assert!(connect(&[("PMI_FD", "900"), ("PMI_SIZE", "2")]).contains("PMI_RANK"));
    assert!(connect(&[("PMI_FD", "900"), ("PMI_RANK", "2"), ("PMI_SIZE", "2")]).contains("PMI_RANK"));
    assert!(
        connect(&[("PMI_FD", "900"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")])
            .contains("descriptor 900, which is not open")
    );
    assert!(connect(&[("PMI_PORT", "localhost:1")]).contains("PMI_ID"));
}
