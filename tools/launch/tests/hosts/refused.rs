//! What is wrong with a host, a program there or the command line: it is said with the host and what to do, and nothing is left.

use std::process::Command;

use crate::processes::{end, read_lines, text};
use crate::{Pipe, SIMPLE, longarm};

#[test]
fn a_program_that_a_host_does_not_have_is_said_with_the_host() {
    let mut command = longarm("run --hosts a,b", SIMPLE);
    let (status, _, stderr) = end(command.args(["--", "./no-such-program"]).pipe());
    assert_eq!(status, 127);
    assert!(stderr.starts_with("longarm: host "), "{stderr}");
    let said = ": ./no-such-program: program not found; every host needs it at the same path; ending the job\n";
    assert!(stderr.ends_with(said), "{stderr}");
}

#[test]
fn a_program_that_only_one_host_is_missing_is_said_with_that_host_and_its_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    // Only a has it open under this number.
    let text = "host=$1; shift; if [ $host = a ]; then exec 100</bin/true; else exec 100<&-; fi; exec \"$@\"\n";
    std::fs::write(&script, text).unwrap();
    let mut command = longarm("run -n 4 --hosts a,b", &format!("bash {}", script.display()));
    let (status, _, stderr) = end(command.args(["--", "/dev/fd/100"]).pipe());
    assert_eq!(status, 127);
    let said = "longarm: host b (ranks 2-3): /dev/fd/100: program not found; every host needs it at the same path; ending the job\n";
    assert_eq!(stderr, said);
}

#[test]
fn a_host_whose_table_of_processes_is_full_is_named_with_the_rank_and_what_to_do() {
    // Of a user of its own, so that the limit binds and nobody else's processes count.
    let user = format!("--reuid={}", 100_000 + std::process::id() % 400_000);
    let mut may_run = Command::new("setpriv");
    may_run.args([&user, "--clear-groups", "env", env!("CARGO_BIN_EXE_longarm"), "--version"]);
    if !may_run.output().is_ok_and(|output| output.status.success()) {
        eprintln!("left out: it takes root, setpriv, and a folder that other users may read");
        return;
    }
    // An agent is four threads and a guardian.
    let other = format!("setpriv {user} --clear-groups prlimit --nproc=8 env HOSTNAME={{}}");
    let mut command = longarm("run --hosts localhost:1,b:9", &other);
    let (status, _, stderr) = end(command.current_dir("/").args(["--", "/bin/sleep", "1000"]).pipe());
    assert_eq!(status, 1, "{stderr}");
    let said = stderr.strip_prefix("longarm: host b (ranks 1-9): rank ").expect(&stderr);
    let rank: u32 = said.split(' ').next().unwrap().parse().unwrap();
    assert!((1..=9).contains(&rank), "{stderr}");
    let reason = " cannot be started: /bin/sleep: Resource temporarily unavailable (os error 11): no more processes are \
                  allowed; raise the limit (ulimit -u, or pids.max of the control group)";
    assert!(said.contains(reason) && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn a_folder_that_a_host_does_not_have_is_said_with_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gone");
    std::fs::create_dir(&path).unwrap();
    // What leads to the agent removes the folder first.
    let script = folder.path().join("script");
    std::fs::write(&script, format!("shift; rmdir {}; exec \"$@\"\n", path.display())).unwrap();
    let mut command = longarm("run --hosts a", &format!("/bin/sh {}", script.display()));
    command.current_dir(&path);
    let (status, _, stderr) = end(command.args(["--", "true"]).pipe());
    assert_eq!(status, 1);
    assert!(stderr.contains("host a (rank 0): the working folder ") && stderr.contains("/gone"), "{stderr}");
}

#[test]
fn a_host_without_longarm_is_said_with_what_to_install_and_where() {
    let mut command = longarm("run --hosts a --agent-path /no/longarm", SIMPLE);
    let (status, _, stderr) = end(command.args(["--", "true"]).pipe());
    assert_eq!(status, 127);
    let version = env!("CARGO_PKG_VERSION");
    for part in [
        "host a (rank 0): longarm was not found there as /no/longarm",
        &format!("install longarm {version} there"),
        "--agent-path",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn what_leads_to_a_host_and_fails_is_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "echo hello; echo no route to $1 >&2; exit 255\n").unwrap();
    let mut command = longarm("run --hosts a,b", &format!("/bin/sh {}", script.display()));
    let (status, _, stderr) = end(command.args(["--", "true"]).pipe());
    assert_eq!(status, 1);
    assert!(stderr.contains("exited with status 255: no route to ") && stderr.contains("hello"), "{stderr}");
    assert!(stderr.starts_with("longarm: host ") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn what_a_host_says_without_end_fills_no_memory_of_a_launcher_whose_output_nobody_reads() {
    const LINES: usize = 300_000;
    let folder = tempfile::tempdir().unwrap();
    let [script, up, mark] = ["script", "up", "mark"].map(|name| folder.path().join(name));
    // It says all that while a rank runs.
    let flood = format!("yes 'one of many lines' | head -n {LINES} >&2; head -c 9999999 /dev/zero >&2; echo >&2");
    let flood = format!("while [ ! -e {} ]; do sleep 0.01; done; {flood}; touch {}", up.display(), mark.display());
    std::fs::write(&script, format!("( {flood} ) & shift; exec \"$@\"\n")).unwrap();
    let mut command = longarm("run --hosts a", &format!("/bin/sh {}", script.display()));
    let wait = format!("touch {}; while [ ! -e {} ]; do sleep 0.01; done; echo done", up.display(), mark.display());
    let mut child = command.args(["--", "/bin/sh", "-c", &wait]).spawn().unwrap();
    assert_eq!(read_lines(&mut child, 1), ["done"]);
    let output = child.wait_with_output().unwrap();
    let stderr = text(output.stderr);
    let said = stderr.lines().filter(|line| *line == "longarm: host a: one of many lines").count();
    let lost =
        stderr.lines().filter_map(|line| line.strip_prefix("longarm: ")?.strip_suffix(" lines of hosts were left out"));
    let lost: usize = lost.map(|count| count.parse::<usize>().unwrap()).sum();
    assert!(said > 0 && lost > LINES / 2 && said + lost <= LINES + 1, "{said} said, {lost} left out");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn another_version_on_a_host_is_said_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "echo welcome; echo longarm-agent-speaks 99 9.8.7; cat >/dev/null\n").unwrap();
    let mut command = longarm("run --hosts a", &format!("/bin/sh {}", script.display()));
    let (status, _, stderr) = end(command.args(["--", "true"]).pipe());
    assert_eq!(status, 1);
    let own = format!("longarm {} here", env!("CARGO_PKG_VERSION"));
    assert!(
        stderr.contains("host a (rank 0): longarm 9.8.7 there speaks version 99") && stderr.contains(&own),
        "{stderr}"
    );
}

#[test]
fn what_speaks_no_agents_language_is_given_up_with_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    for (first, said) in
        [("yes hello", "no agent answers"), ("echo longarm-agent-speaks 1 9; yes hello", "what no agent sends")]
    {
        std::fs::write(&script, format!("{first}\n")).unwrap();
        let mut command = longarm("run --hosts a", &format!("/bin/sh {}", script.display()));
        let (status, _, stderr) = end(command.args(["--", "true"]).pipe());
        assert_eq!(status, 1);
        assert!(stderr.contains("host a") && stderr.contains(said), "{stderr}");
    }
}

#[test]
fn hosts_that_are_none_are_refused_before_anything_starts() {
    for (line, said) in [
        ("run --hosts a:0", "a:0"),
        ("run --hosts=-oProxyCommand=x:1", "-oProxyCommand=x"),
        ("run --hosts a,b --ppn 2 -n 5", "5 ranks do not fit"),
        ("run", "-n says how many ranks"),
        ("run --hostfile /no/such/file", "/no/such/file"),
    ] {
        let mut command = longarm(line, SIMPLE);
        let (status, _, stderr) = end(command.args(["--", "true"]).pipe());
        assert_eq!(status, 2, "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    }
}
