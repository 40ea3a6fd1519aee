//! `longarm perf latency`, `gups`, `comb` and so on: one thing, in one layout or several, as a table, as lines, as pictures.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

use crate::Failure;
use crate::cli::{DrawArguments, LayoutName, PerfArguments, What};
use crate::job::{Job, JobSite, Variable, find_longarm};
use crate::line::Line;
use crate::micro::rank::Suite;
use crate::micro::rank::misses::Misses;
use crate::plot::{self, Axis, Picture, series};
use crate::report::{bandwidth, time};
use crate::scale;

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
        let against = arguments.against.as_deref().map_or_else(|| Ok(Vec::new()), read_lines)?;
        draw(suite, &lines, &against, folder)?;
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

fn read_lines(file: &Path) -> Result<Vec<Line>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    // What others print besides measurements is none of them.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Draws what was measured before: times, and bandwidths, over sizes, and what `longarm-scale` prints over ranks.
pub(crate) fn draw_files(arguments: &DrawArguments) -> Result<(), Failure> {
    let lines: Vec<Vec<Line>> = arguments.files.iter().map(|file| read_lines(file)).collect::<Result<_, _>>()?;
    let (of_scale, lines): (Vec<Line>, Vec<Line>) = lines.concat().into_iter().partition(scale::is_of_scale);
    if !of_scale.is_empty() {
        write_pictures(scale::pictures(&of_scale), &arguments.plot)?;
        if lines.is_empty() {
            return Ok(());
        }
    }
    [Suite::Latency, Suite::Bandwidth].into_iter().try_for_each(|suite| draw(suite, &lines, &[], &arguments.plot))
}

/// Draws what there is to draw, a picture for each layout.
fn draw(suite: Suite, lines: &[Line], against: &[Line], folder: &Path) -> Result<(), Failure> {
    let mut layouts: Vec<&str> = lines.iter().map(|line| line.transport.as_str()).collect();
    layouts.sort_unstable();
    layouts.dedup();
    let mut drawn = 0;
    for layout in layouts {
        let here = |line: &&Line| line.transport == layout || line.transport.starts_with(&format!("{layout}-"));
        let ours: Vec<&Line> = lines.iter().filter(here).collect();
        let others: Vec<&Line> = against.iter().filter(here).collect();
        let all = pictures(suite, layout, &ours, &others).into_iter();
        drawn += write_pictures(all.map(|(name, picture)| (format!("{name}-{layout}"), picture)).collect(), folder)?;
    }
    if drawn == 0 {
        eprintln!("longarm perf: there is nothing to draw of {}", suite.name());
    }
    Ok(())
}

/// Writes pictures under their names into a folder, which is made; gives how many.
fn write_pictures(pictures: Vec<(String, Picture)>, folder: &Path) -> Result<usize, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for (name, picture) in &pictures {
        let file = folder.join(format!("{name}.svg"));
        std::fs::write(&file, plot::draw(picture)).map_err(|error| format!("{}: {error}", file.display()))?;
        eprintln!("longarm perf: {}", file.display());
    }
    Ok(pictures.len())
}

fn pictures(suite: Suite, layout: &str, ours: &[&Line], others: &[&Line]) -> Vec<(String, Picture)> {
    let bytes = |title: String, y: Axis| Picture { title, x: Axis::log("bytes"), y, series: Vec::new() };
    let peer = |line: &Line| if line.peer == "longarm" { String::new() } else { format!(" {}", line.peer) };
    if suite == Suite::Comb {
        let mut pictures = Vec::new();
        for method in ["poll", "pww"] {
            let all = ours.iter().chain(others).copied();
            let lines: Vec<&Line> = all.filter(|line| line.op.starts_with(&format!("comb_{method}_"))).collect();
            let title = |what: &str| {
                let interval = if method == "poll" { "polling" } else { "post, work, wait" };
                format!("COMB, {interval}, {layout}: {what}")
            };
            let x = if method == "poll" { "poll interval, us" } else { "work interval, us" };
            let named = |line: &Line| {
                format!("{} {} kB{}", line.op.rsplit('_').next().unwrap_or(""), line.bytes / 1000, peer(line))
            };
            let by_interval = |value: fn(&Line) -> f64| {
                series(&lines, named, |line| line.interval_us.map(|interval| (interval, value(line))))
            };
            let left = by_interval(|line| line.overlap.as_ref().map_or(0.0, |overlap| overlap.availability));
            let y = Axis { name: "share of the processor left".into(), is_log: false };
            pictures.push((
                format!("comb-{method}-availability"),
                Picture { title: title("processor"), x: Axis::log(x), y, series: left },
            ));
            let y = Axis { name: "MB/s".into(), is_log: false };
            let rates = by_interval(|line| line.mbps);
            pictures.push((
                format!("comb-{method}-bandwidth"),
                Picture { title: title("bandwidth"), x: Axis::log(x), y, series: rates },
            ));
        }
        return pictures;
    }
    let (name, y, value): (&str, Axis, fn(&Line) -> f64) = match suite {
        Suite::Latency => ("latency", Axis::log("microseconds"), |line| line.lat_us),
        Suite::Bandwidth => ("bandwidth", Axis::log("MB/s"), |line| line.mbps),
        Suite::Lmt => ("lmt", Axis { name: "MB/s".into(), is_log: false }, |line| line.mbps),
        Suite::Collectives | Suite::Alltoall => (suite.name(), Axis::log("microseconds"), |line| line.lat_us),
        _ => return Vec::new(),
    };
    let mut all: Vec<&Line> = ours.to_vec();
    all.extend(others.iter().filter(|other| ours.iter().any(|line| line.op == other.op)));
    let named = |line: &Line| format!("{}{}", line.op, peer(line));
    let mut picture = bytes(format!("longarm perf {name}, {layout}"), y.clone());
    let (both, one): (Vec<&Line>, Vec<&Line>) = all.iter().partition(|line| line.op.starts_with("lmt_both_"));
    picture.series = series(&one, named, |line| Some((line.bytes as f64, value(line))));
    let mut both_ways = bytes(format!("longarm perf {name}, both ranks send, {layout}"), y);
    both_ways.series = series(&both, named, |line| Some((line.bytes as f64, value(line))));
    let both_ways = (!both.is_empty()).then(|| (format!("{name}-both"), both_ways));
    let mut misses = bytes(format!("longarm perf {name}, {layout}"), Axis::log("cache misses a message"));
    misses.series = series(&all, named, |line| line.cache_misses.map(|misses| (line.bytes as f64, misses)));
    let are_counted = !misses.series.is_empty();
    let misses = are_counted.then(|| (format!("{name}-misses"), misses));
    [(name.to_owned(), picture)].into_iter().chain(both_ways).chain(misses).collect()
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

    fn line(op: &str, bytes: u64, seconds: f64) -> Line {
        Line::new(LONGARM, Key { transport: "tcp", op, bytes }, &Sample::of_batches(vec![seconds]))
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
    fn curves_are_drawn_by_operation_and_those_of_others_beside_them() {
        let ours = [line("put", 64, 2e-6), line("put", 8, 1e-6), line("get", 8, 3e-6)];
        let other = Line { peer: "other".into(), ..line("put", 8, 4e-6) };
        let unknown = Line { peer: "other".into(), ..line("swap", 8, 4e-6) };
        let drawn = pictures(Suite::Latency, "tcp", &ours.iter().collect::<Vec<_>>(), &[&other, &unknown]);
        let (name, picture) = &drawn[0];
        let names: Vec<&str> = picture.series.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((name.as_str(), names), ("latency", vec!["put", "get", "put other"]));
        assert_eq!(picture.series[0].1.iter().map(|point| point.0).collect::<Vec<_>>(), [8.0, 64.0], "by size");
    }

    #[test]
    fn cache_misses_have_a_column_and_a_picture_where_they_were_counted() {
        let counted = Line { cache_misses: Some(1234.4), ..line("lmt_copy", 4096, 1e-6) };
        let lines = [counted, line("lmt_cma", 4096, 2e-6), line("lmt_both_cma", 4096, 3e-6)];
        let names = |lines: &[Line]| -> Vec<String> {
            let drawn = pictures(Suite::Lmt, "shm", &lines.iter().collect::<Vec<_>>(), &[]);
            drawn.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&lines), ["lmt", "lmt-both", "lmt-misses"]);
        assert_eq!(names(&lines[1..2]), ["lmt"]);
        let text = table(&lines).to_string();
        assert!(text.contains("cache misses") && text.contains(" 1234 "), "{text}");
        assert!(!table(&lines[1..]).to_string().contains("cache misses"));
    }

    #[test]
    fn lines_of_several_files_make_one_picture_of_each_kind() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, lines: &[Line]| {
            let text: Vec<String> = lines.iter().map(Line::to_json).collect();
            let file = folder.path().join(name);
            std::fs::write(&file, text.join("\n")).unwrap();
            file
        };
        let other = Line { peer: "zero copy".into(), ..line("put", 8, 4e-6) };
        let files = vec![write("one", &[line("put", 8, 1e-6)]), write("two", &[other, line("get", 8, 1e-6)])];
        let plot = folder.path().join("pictures");
        draw_files(&DrawArguments { files, plot: plot.clone() }).unwrap();
        for name in ["latency-tcp.svg", "bandwidth-tcp.svg"] {
            let picture = std::fs::read_to_string(plot.join(name)).unwrap();
            assert!(["put zero copy", "get", "put"].iter().all(|curve| picture.contains(curve)), "{name}");
        }
        let missing = DrawArguments { files: vec![folder.path().join("none")], plot };
        assert!(draw_files(&missing).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn availability_is_drawn_over_the_interval_and_stands_in_the_table() {
        let overlap = Overlap { comm_us: 9.0, work_us: 30.0, availability: 0.75, hidden: None };
        let line = Line { interval_us: Some(30.0), overlap: Some(overlap), ..line("comb_poll_get", 5000, 1e-6) };
        let other = Line { peer: "other".into(), ..line.clone() };
        let unknown = Line { op: "put".into(), ..other.clone() };
        let drawn = pictures(Suite::Comb, "tcp", &[&line], &[&other, &unknown]);
        assert_eq!(drawn[0].0, "comb-poll-availability");
        let curves = ["get 5 kB", "get 5 kB other"].map(|name| (name.to_owned(), vec![(30.0, 0.75)]));
        assert_eq!(drawn[0].1.series, curves);
        let text = table(&[line]).to_string();
        assert!(text.contains("30.00 us") && text.contains("75 %"), "{text}");
    }
}
