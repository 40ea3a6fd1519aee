//! `longarm perf latency`, `gups`, `comb` and so on: one thing, in one layout or several, as a table, as lines, as pictures.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

use crate::Failure;
use crate::cli::{LayoutName, PerfArguments, What};
use crate::job::{Job, JobSite, Variable, find_longarm};
use crate::line::Line;
use crate::micro::rank::Suite;
use crate::micro::rank::misses::Misses;
use crate::pictures;
use crate::report::{bandwidth, time};

/// The namespaces that the layout `hosts` needs, as tools/ga/hosts.sh makes them.
const HOST_FILES: [&str; 2] = ["/run/netns/longarm-a", "/run/netns/longarm-b"];
/// Copies of this size and more go around the caches, in the job that measures just that.
const AROUND_CACHES: Variable = ("LONGARM_NONTEMPORAL_BYTES", "128k");
/// As a number.
const AROUND_CACHES_BYTES_MIN: u64 = 128 << 10;
/// And never in the others.
const THROUGH_CACHES: Variable = ("LONGARM_NONTEMPORAL_BYTES", "64t");
const SMALL_PAGES: Variable = ("LONGARM_HUGE_PAGES", "no");
const HUGE_PAGES: Variable = ("LONGARM_HUGE_PAGES", "yes");

/// Measures, and shows what was measured.
pub(crate) fn run(what: &What) -> Result<(), Failure> {
    let (suite, arguments) = what.suite_and_arguments();
    let longarm = find_longarm(arguments.longarm.as_deref())?;
    let jobs = jobs(suite, arguments)?;
    let bar = ProgressBar::new(jobs.len() as u64);
    bar.set_style(ProgressStyle::with_template("{msg:12} {wide_bar} {pos}/{len} {elapsed}")?);
    let mut lines = Vec::new();
    for job in &jobs {
        bar.set_message(job.name);
        for mut line in job.run(&longarm, arguments.quick)? {
            if job.place.variable == Some(AROUND_CACHES) {
                // The other ways, and shorter copies, are those of the job before.
                let Some(way) = line.op.strip_suffix("copy").filter(|_| line.bytes >= AROUND_CACHES_BYTES_MIN) else {
                    continue;
                };
                line.op = format!("{way}nontemporal");
            }
            if arguments.json {
                bar.suspend(|| println!("{}", line.to_json()));
            }
            lines.push(line);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if suite == Suite::Lmt
        && let Some(refusal) = Misses::of_caches().refusal()
    {
        eprintln!("longarm perf: cache misses are not counted: {refusal}");
    }
    if suite == Suite::Footprint {
        lines.extend(simulated_footprint(arguments.json)?);
    }
    if !arguments.json {
        writeln!(std::io::stdout(), "{}", table(&lines))?;
    }
    if let Some(folder) = &arguments.plot {
        pictures::draw(suite, &lines, arguments.against.as_deref(), folder)?;
    }
    Ok(())
}

/// What a job of ten thousand ranks takes, which the simulator counts.
fn simulated_footprint(prints: bool) -> Result<Vec<Line>, Failure> {
    let counter = std::env::current_exe()?.with_file_name("longarm-footprint");
    if !counter.is_file() {
        eprintln!("longarm perf: {} is not there, so no large job is simulated", counter.display());
        return Ok(Vec::new());
    }
    let counted = Command::new(&counter).arg("--json").stderr(Stdio::inherit()).output()?;
    if !counted.status.success() {
        return Err(format!("{}: {}", counter.display(), counted.status).into());
    }
    let text = String::from_utf8(counted.stdout)?;
    if prints {
        writeln!(std::io::stdout(), "{}", text.trim_end())?;
    }
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// A job for each layout.
fn jobs(suite: Suite, arguments: &PerfArguments) -> Result<Vec<Job>, Failure> {
    match suite {
        Suite::Lmt => return both_ways(suite, arguments, [THROUGH_CACHES, AROUND_CACHES]),
        Suite::Large => return both_ways(suite, arguments, [SMALL_PAGES, HUGE_PAGES]),
        _ => {}
    }
    let layouts: Vec<LayoutName> = match (&arguments.layout[..], suite) {
        ([], Suite::Footprint) => vec![LayoutName::Tcp],
        ([], _) => vec![LayoutName::Shm, LayoutName::Tcp],
        (given, _) => given.to_vec(),
    };
    if arguments.nodes.is_some() && layouts.iter().any(|layout| *layout != LayoutName::Tcp) {
        return Err("--nodes is for --layout tcp: shm has one node, hosts has two".into());
    }
    let ranks = arguments.ranks.unwrap_or(suite.ranks());
    layouts.into_iter().map(|layout| job(suite, layout, ranks, arguments.nodes.unwrap_or(suite.nodes()))).collect()
}

fn job(suite: Suite, layout: LayoutName, ranks: u32, nodes_over_tcp: u32) -> Result<Job, Failure> {
    let nodes = match layout {
        LayoutName::Shm => 1,
        LayoutName::Tcp => nodes_over_tcp,
        LayoutName::Hosts => 2,
    };
    if ranks < nodes.max(2) {
        return Err(format!("{ranks} ranks are too few for {} on {nodes} nodes", suite.name()).into());
    }
    if layout == LayoutName::Hosts && !HOST_FILES.iter().all(|file| Path::new(file).exists()) {
        return Err(
            "--layout hosts needs two network namespaces, longarm-a and longarm-b, joined by a pair of virtual \
             interfaces: tools/ga/hosts.sh up makes them (as root)"
                .into(),
        );
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Job {
        name: layout.name(),
        suite,
        transport: layout.name(),
        ranks,
        nodes,
        // Plain servers of several threads need several processors.
        bound: ranks as usize <= processors && suite != Suite::Many,
        target: ranks - 1,
        place: JobSite { on_hosts: layout == LayoutName::Hosts, variable: None },
    })
}

/// Two jobs of two ranks of a node, which differ by a variable.
fn both_ways(suite: Suite, arguments: &PerfArguments, variables: [Variable; 2]) -> Result<Vec<Job>, Failure> {
    if !arguments.layout.is_empty() || arguments.ranks.is_some() || arguments.nodes.is_some() {
        let name = suite.name();
        return Err(
            format!("{name} is measured between two ranks of one node: it takes no --layout, -n or --nodes").into()
        );
    }
    let job = job(suite, LayoutName::Shm, 2, 1)?;
    let with = |variable| Job { place: JobSite { variable: Some(variable), ..job.place }, ..job };
    Ok(variables.map(with).to_vec())
}

fn table(lines: &[Line]) -> Table {
    let has_interval = lines.iter().any(|line| line.interval_us.is_some());
    let has_misses = lines.iter().any(|line| line.cache_misses.is_some());
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    let mut header = vec!["layout", "ranks", "operation", "bytes"];
    header.extend(if has_interval { &["work"][..] } else { &[] });
    header.extend(["time", "best batch", "bandwidth", "rate", "processor left", "hidden"]);
    header.extend(has_misses.then_some("cache misses"));
    table.set_header(header);
    for line in lines {
        let is_timed = line.lat_us > 0.0;
        let number = |text: String| if is_timed { text } else { String::new() };
        let mut row = vec![line.transport.clone(), line.np.to_string(), line.op.clone(), line.bytes.to_string()];
        if has_interval {
            row.push(line.interval_us.map_or_else(String::new, time));
        }
        row.push(number(time(line.lat_us)));
        row.push(number(time(line.lat_min_us)));
        row.push(if line.bytes > 0 { number(bandwidth(line)) } else { String::new() });
        row.push(number(format!("{:.3} M/s", line.rate / 1e6)));
        row.push(
            line.overlap.as_ref().map_or_else(String::new, |overlap| format!("{:.0} %", 100.0 * overlap.availability)),
        );
        let hidden = line.overlap.as_ref().and_then(|overlap| overlap.hidden);
        row.push(hidden.map_or_else(String::new, |hidden| format!("{:.0} %", 100.0 * hidden)));
        if has_misses {
            row.push(line.cache_misses.map_or_else(String::new, |misses| format!("{misses:.0}")));
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Key, LONGARM, Overlap};
    use crate::micro::sample::Sample;

    fn arguments() -> PerfArguments {
        let (layout, quick, json) = (Vec::new(), true, false);
        PerfArguments { layout, ranks: None, nodes: None, quick, json, plot: None, against: None, longarm: None }
    }

    fn line(op: &str, bytes: u64) -> Line {
        Line::new(LONGARM, Key { transport: "tcp", op, bytes }, &Sample::of_batches(vec![1e-6]))
    }

    #[test]
    fn each_measurement_has_the_layouts_and_ranks_that_it_needs_unless_it_is_told() {
        let shape = |job: &Job| (job.transport, job.ranks, job.nodes, job.target);
        let of =
            |suite, arguments: &PerfArguments| jobs(suite, arguments).unwrap().iter().map(shape).collect::<Vec<_>>();
        assert_eq!(of(Suite::Gups, &arguments()), [("shm", 2, 1, 1), ("tcp", 2, 2, 1)]);
        assert_eq!(of(Suite::Footprint, &arguments()), [("tcp", 64, 16, 63)]);
        assert_eq!(of(Suite::Lmt, &arguments()), [("shm", 2, 1, 1), ("shm", 2, 1, 1)]);
        let told = PerfArguments { layout: vec![LayoutName::Tcp], ranks: Some(6), nodes: Some(3), ..arguments() };
        assert_eq!(of(Suite::Gups, &told), [("tcp", 6, 3, 5)]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let refused = |suite, arguments: PerfArguments| jobs(suite, &arguments).unwrap_err().to_string();
        let few = PerfArguments { layout: vec![LayoutName::Tcp], ranks: Some(2), nodes: Some(3), ..arguments() };
        assert!(refused(Suite::Gups, few).contains("2 ranks are too few for gups on 3 nodes"));
        assert!(refused(Suite::Lmt, PerfArguments { ranks: Some(4), ..arguments() }).contains("two ranks of one node"));
        assert!(refused(Suite::Gups, PerfArguments { nodes: Some(2), ..arguments() }).contains("--nodes is for"));
    }

    #[test]
    fn cache_misses_have_a_column_where_they_were_counted() {
        let lines = [Line { cache_misses: Some(1234.4), ..line("lmt_copy", 4096) }, line("lmt_cma", 4096)];
        let text = table(&lines).to_string();
        assert!(text.contains("cache misses") && text.contains(" 1234 "), "{text}");
        assert!(!table(&lines[1..]).to_string().contains("cache misses"));
    }

    #[test]
    fn intervals_and_availability_stand_in_the_table() {
        let overlap = Overlap { comm_us: 9.0, work_us: 30.0, availability: 0.75, hidden: None };
        let line = Line { interval_us: Some(30.0), overlap: Some(overlap), ..line("comb_poll_get", 5000) };
        let text = table(&[line]).to_string();
        assert!(text.contains("30.00 us") && text.contains("75 %"), "{text}");
    }
}
