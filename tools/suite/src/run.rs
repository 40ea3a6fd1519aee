//! One run: start, wait, judge.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::cli::Arguments;
use crate::launcher::{self, Start, absolute};
use crate::leftovers::{self, MARK};
use crate::list::Program;
use crate::report::Outcome;
use crate::verdict::{self, Ending, Verdict};

/// How long all ranks may stand in `MPI_Finalize`.
const FINALIZE_LIMIT: Duration = Duration::from_secs(45);
/// Lines of a failed run's output that are shown.
const LAST_LINES: usize = 15;

/// Starts programs one after the other.
pub struct Runner {
    start: Start,
    build: PathBuf,
    sources: Option<PathBuf>,
    logs: PathBuf,
    keeps_logs: bool,
    limit: Duration,
    /// Whether ranks say when they finalize their MPI.
    says_finalize: bool,
}

impl Runner {
    /// Finds the launcher and the folders.
    pub fn new(arguments: &Arguments) -> Result<Runner, String> {
        let build = absolute(&arguments.build)?;
        let logs = arguments.logs.clone().unwrap_or_else(|| build.join(format!(".suite-{}", std::process::id())));
        fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
        Ok(Runner {
            start: Start::new(arguments)?,
            build,
            sources: arguments.sources.as_deref().map(absolute).transpose()?,
            logs: absolute(&logs)?,
            keeps_logs: arguments.logs.is_some(),
            limit: Duration::from_secs(arguments.limit_seconds),
            says_finalize: arguments.say_finalize.is_some(),
        })
    }

    /// Into how many nodes the ranks are cut by standing on several hosts, if they do.
    pub fn hosts(&self) -> Option<u32> {
        self.start.hosts()
    }

    /// Runs a program once. An error is one of this machine or this command line, not of the program.
    pub fn run(&self, program: &Program, ranks: u32, nodes: u32) -> Result<Outcome, String> {
        let Some(path) = self.executable(program) else {
            return Ok(Outcome::new(program, ranks, nodes, Verdict::Missing));
        };
        let name = format!("{}-{ranks}x{nodes}", program.name.replace('/', "-"));
        let folder = self.logs.join(format!("{name}.run"));
        let log = self.logs.join(format!("{name}.log"));
        let context = |error: io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(context)?;
        self.copy_inputs(program, &folder)?;

        // Nobody else has this log at this time.
        let mark = log.to_string_lossy().into_owned();
        let names_before = leftovers::shared_names();
        let mut command = self.command(program, &path, ranks, nodes);
        let output = File::create(&log).map_err(context)?;
        command.current_dir(&folder).env(MARK, &mark).stdin(Stdio::null());
        command.stdout(output.try_clone().map_err(context)?).stderr(output);
        // The launcher's group is killed as a whole at the limit.
        command.process_group(0);

        let began = Instant::now();
        let limit = program.limit_seconds.map_or(self.limit, |seconds| self.limit.max(Duration::from_secs(seconds)));
        let ending = wait(command, limit, &mark, || {
            let text = || fs::read(&log).unwrap_or_default();
            self.says_finalize && verdict::all_finalize(ranks, &String::from_utf8_lossy(&text()))
        })?;
        let took = began.elapsed();
        let left = leftovers::find(&mark, &names_before);
        leftovers::kill_all(&mark);

        let text = String::from_utf8_lossy(&fs::read(&log).map_err(context)?).into_owned();
        let judged = verdict::judge(program, ranks, ending, &text);
        let mut outcome = Outcome::new(program, ranks, nodes, judged);
        if let (Verdict::Passed, Some(left)) = (&outcome.verdict, left) {
            outcome.verdict = Verdict::LeftBehind(left);
        }
        outcome.took = took;
        if outcome.verdict.is_failure() {
            outcome.last_lines = last_lines(&text);
        }
        fs::remove_dir_all(&folder).map_err(context)?;
        if !self.keeps_logs {
            fs::remove_file(&log).map_err(context)?;
        }
        Ok(outcome)
    }

    /// Global Arrays gives its programs a suffix.
    fn executable(&self, program: &Program) -> Option<PathBuf> {
        let names = [program.path.clone(), format!("{}.x", program.path)];
        names.iter().map(|name| self.build.join(name)).find(|path| path.is_file())
    }

    fn command(&self, program: &Program, path: &Path, ranks: u32, nodes: u32) -> Command {
        let mut words = launcher::bound_to_us();
        if program.is_alone {
            words.push(path.into());
        } else {
            words.extend(self.start.words(path, ranks, nodes));
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(&program.arguments).envs(self.start.environment(nodes));
        command
    }

    fn copy_inputs(&self, program: &Program, folder: &Path) -> Result<(), String> {
        for input in &program.inputs {
            let sources = self.sources.as_ref().ok_or_else(|| format!("{} needs --sources", program.name))?;
            let from = sources.join(input);
            let name = from.file_name().ok_or_else(|| format!("{input} is no file"))?;
            fs::copy(&from, folder.join(name)).map_err(|error| format!("{}: {error}", from.display()))?;
        }
        Ok(())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if !self.keeps_logs {
            // Only empty by now, unless the suite itself failed.
            let _ = fs::remove_dir_all(&self.logs);
        }
    }
}

/// Waits for the end, or makes it.
fn wait(mut command: Command, limit: Duration, mark: &str, all_finalize: impl Fn() -> bool) -> Result<Ending, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    drop(command);
    let group = rustix::process::Pid::from_raw(child.id().cast_signed());
    let (sender, receiver) = mpsc::channel();
    let waiter = std::thread::spawn(move || sender.send(child.wait()));
    let began = Instant::now();
    let mut finalizing_since = None;
    let ending = loop {
        match receiver.recv_timeout(Duration::from_secs(1)) {
            Ok(status) => break Ok(status),
            Err(_) if began.elapsed() >= limit => break Err(Ending::Limit(limit.as_secs())),
            Err(_) => {}
        }
        if !all_finalize() {
            finalizing_since = None;
        } else if finalizing_since.is_none() {
            finalizing_since = Some(Instant::now());
        }
        if finalizing_since.is_some_and(|since| since.elapsed() >= FINALIZE_LIMIT) {
            break Err(Ending::InFinalize(FINALIZE_LIMIT.as_secs()));
        }
    };
    let status: io::Result<ExitStatus> = match ending {
        Ok(status) => status,
        Err(ending) => {
            if let Some(group) = group {
                // The group may have ended just now.
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            leftovers::kill_all(mark);
            let _ = waiter.join();
            return Ok(ending);
        }
    };
    let status = status.map_err(|error| format!("{name}: {error}"))?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Status(code),
        (None, signal) => Ending::Signal(signal.unwrap_or(0)),
    })
}

/// The end of an output, without what is blank.
fn last_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .rev()
        .filter(|line| !line.trim().is_empty())
        .take(LAST_LINES)
        .map(|line| line.trim_end().chars().take(200).collect())
        .collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommandLine;
    use crate::list;
    use clap::Parser;
    use std::os::unix::fs::PermissionsExt;

    /// What becomes of a program that is this shell script.
    fn outcome(script: &str, options: &str, limit: &str) -> Outcome {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("input.dat"), "42").unwrap();
        let programs = list::parse(&format!("program . alone=yes {options}")).unwrap();
        let build = folder.path().to_str().unwrap();
        let words = ["suite", "run", "--launcher", "longarm", "--build", build, "--sources", build];
        let rest = ["--list", "l", "--limit-seconds", limit];
        let words = words.iter().chain(&rest);
        let CommandLine::Run(arguments) = CommandLine::parse_from(words) else { unreachable!() };
        let outcome = Runner::new(&arguments).unwrap().run(&programs[0], 1, 1).unwrap();
        let rest: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(rest.len(), 2, "the runner cleans up: {rest:?}");
        outcome
    }

    #[test]
    fn a_program_that_ends_well_passes() {
        assert_eq!(outcome("echo fine", "", "60").verdict, Verdict::Passed);
    }

    #[test]
    fn arguments_and_input_files_reach_the_program() {
        let outcome = outcome("echo \"$1 $(cat input.dat)\"", "args=seven input=input.dat prints=\"seven 42\"", "60");
        assert_eq!(outcome.verdict, Verdict::Passed, "{:?}", outcome.last_lines);
    }

    #[test]
    fn a_failed_program_shows_its_last_words() {
        let outcome = outcome("echo first; echo; echo last >&2; exit 3", "", "60");
        assert_eq!(outcome.verdict, Verdict::Ended(Ending::Status(3)));
        assert_eq!(outcome.last_lines, ["first", "last"]);
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_all_its_children() {
        let outcome = outcome("tail -f /dev/null & setsid tail -f /dev/null & wait", "", "1");
        assert_eq!(outcome.verdict, Verdict::Ended(Ending::Limit(1)));
    }

    #[test]
    fn a_child_that_outlives_its_program_is_a_failure() {
        let outcome = outcome("setsid tail -f /dev/null >/dev/null 2>&1 & exit 0", "", "60");
        assert!(matches!(&outcome.verdict, Verdict::LeftBehind(what) if what.contains("(tail)")), "{outcome:?}");
    }
}
