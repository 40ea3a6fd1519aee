//! What is drawn of lines, measured now or before: over sizes, and over intervals of computation. Where there are more curves than one picture has
//! colours for, each operation has a picture of its own, with the quickest systems.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::cli::DrawArguments;
use crate::line::{LIMIT, LONGARM, Line};
use crate::micro::rank::Suite;
use crate::plot::{self, Axis, CURVES_MAX, Curve, Picture, series};
use crate::report::merge;
use crate::scale;

/// How the names of longarm's own C interfaces end, as systems. They have no curves: of eight in a picture two would be longarm's again.
const OWN_INTERFACES: &str = "-longarm";

/// A picture over sizes or intervals, and what its file is called.
type NamedPicture = (String, Picture);

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
    let drawn = [Suite::Latency, Suite::Bandwidth];
    drawn.into_iter().try_for_each(|suite| draw_layouts(suite, &lines, &[], &arguments.plot))
}

/// Draws what was measured now, and beside it what others took: the lines of that file, or else those that were measured beside this program.
pub(crate) fn draw(suite: Suite, lines: &[Line], against: Option<&Path>, folder: &Path) -> Result<(), Failure> {
    let measured = if against.is_none() { measured_here() } else { None };
    let mut others = against.or(measured.as_deref()).map_or_else(|| Ok(Vec::new()), read_lines)?;
    // What was measured now is newer.
    others.retain(|line| line.peer != LONGARM);
    if let Some(file) = measured {
        eprintln!("longarm perf: the curves of other systems are those of {}", file.display());
    }
    draw_layouts(suite, lines, &others, folder)
}

/// Where `make bench-peers` leaves its lines, if it has run in the folder that this program was built in.
fn measured_here() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let file = program.parent()?.parent()?.join("peers/lines.jsonl");
    file.is_file().then_some(file)
}

fn read_lines(file: &Path) -> Result<Vec<Line>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    // What others print besides measurements is none of them.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Draws what there is to draw, for each layout.
fn draw_layouts(suite: Suite, lines: &[Line], others: &[Line], folder: &Path) -> Result<(), Failure> {
    let mut layouts: Vec<&str> = lines.iter().map(|line| line.transport.split('-').next().unwrap_or("")).collect();
    layouts.sort_unstable();
    layouts.dedup();
    let mut drawn = 0;
    for layout in layouts {
        let here = |line: &&Line| is_over(line, layout);
        let ours: Vec<&Line> = lines.iter().filter(here).collect();
        let others: Vec<&Line> = others.iter().filter(here).collect();
        let all = pictures(suite, layout, &ours, &others).into_iter();
        drawn += write_pictures(all.map(|(name, picture)| (format!("{name}-{layout}"), picture)).collect(), folder)?;
    }
    if drawn == 0 {
        eprintln!("longarm perf: there is nothing to draw of {}", suite.name());
    }
    Ok(())
}

/// Whether it was measured over this layout, by any of the ways that a system has there.
fn is_over(line: &Line, layout: &str) -> bool {
    line.transport.strip_prefix(layout).is_some_and(|way| way.is_empty() || way.starts_with('-'))
}

/// Writes pictures under their names into a folder, which is made; gives how many.
fn write_pictures(pictures: Vec<NamedPicture>, folder: &Path) -> Result<usize, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for (name, picture) in &pictures {
        let file = folder.join(format!("{name}.svg"));
        std::fs::write(&file, plot::draw(picture)).map_err(|error| format!("{}: {error}", file.display()))?;
        eprintln!("longarm perf: {}", file.display());
    }
    Ok(pictures.len())
}

fn pictures(suite: Suite, layout: &str, ours: &[&Line], others: &[&Line]) -> Vec<NamedPicture> {
    let (name, y, value): (&str, Axis, fn(&Line) -> f64) = match suite {
        Suite::Comb => return of_comb(layout, ours, others),
        Suite::Latency => ("latency", Axis::log("microseconds"), |line| line.lat_us),
        Suite::Bandwidth => ("bandwidth", Axis::log("MB/s"), |line| line.mbps),
        Suite::Lmt => ("lmt", Axis { name: "MB/s".into(), is_log: false }, |line| line.mbps),
        Suite::Collectives | Suite::Alltoall => (suite.name(), Axis::log("microseconds"), |line| line.lat_us),
        _ => return Vec::new(),
    };
    let mut all: Vec<&Line> = ours.to_vec();
    all.extend(others.iter().filter(|other| ours.iter().any(|line| line.op == other.op)));
    let named = |line: &Line| format!("{}{}", line.op, peer_suffix(line));
    let (both, one): (Vec<&Line>, Vec<&Line>) = all.iter().partition(|line| line.op.starts_with("lmt_both_"));
    let picture = |what: &str, y: &Axis, series| {
        let title = format!("longarm perf {name}{what}, {layout}");
        Picture { title, x: Axis::log("bytes"), y: y.clone(), series, first_stands_out: false }
    };
    let curves = series(&one, named, |line| Some((line.bytes as f64, value(line))));
    let mut pictures = match curves.len() {
        0..=CURVES_MAX => vec![(name.to_owned(), picture("", &y, curves))],
        _ => by_operation((name, &y, value), layout, &one),
    };
    if !both.is_empty() {
        let both_ways = series(&both, named, |line| Some((line.bytes as f64, value(line))));
        pictures.push((format!("{name}-both"), picture(", both ranks send", &y, both_ways)));
    }
    let misses = series(&all, named, |line| line.cache_misses.map(|misses| (line.bytes as f64, misses)));
    if !misses.is_empty() {
        pictures.push((format!("{name}-misses"), picture("", &Axis::log("cache misses a message"), misses)));
    }
    pictures
}

/// A picture for each operation that was measured at several sizes.
fn by_operation((name, y, value): (&str, &Axis, fn(&Line) -> f64), layout: &str, lines: &[&Line]) -> Vec<NamedPicture> {
    let mut operations: Vec<&str> = lines.iter().map(|line| line.op.as_str()).collect();
    operations.sort_unstable();
    operations.dedup();
    let picture = |op: &str| {
        let of_it: Vec<&Line> = lines.iter().copied().filter(|line| line.op == op).collect();
        let series = systems(layout, &of_it, value);
        let is_curve = series.iter().any(|(_, points)| points.len() > 1);
        let title = format!("{op}, {layout}: {name}");
        let picture = Picture { title, x: Axis::log("bytes"), y: y.clone(), series, first_stands_out: true };
        is_curve.then(|| (format!("{name}-{op}"), picture))
    };
    operations.into_iter().filter_map(picture).collect()
}

/// One curve for each system that has done an operation: longarm's, what the machine allows, then the quickest of the others, as many as a picture has
/// colours for. Of several rounds the middle one counts.
fn systems(layout: &str, lines: &[&Line], value: fn(&Line) -> f64) -> Vec<Curve> {
    let by_way = |line: &&Line| {
        let way = line.transport.strip_prefix(layout).unwrap_or("");
        Line { peer: format!("{}{way}", line.peer), ..Line::clone(line) }
    };
    let lines: Vec<Line> = lines.iter().filter(|line| !line.peer.ends_with(OWN_INTERFACES)).map(by_way).collect();
    let mut systems: Vec<&str> = lines.iter().map(|line| line.peer.as_str()).collect();
    systems.sort_unstable();
    systems.dedup();
    let mut all: Vec<Vec<Line>> = systems.into_iter().map(|system| merge(&lines, system)).collect();
    let mut best: BTreeMap<u64, f64> = BTreeMap::new();
    for line in all.iter().flatten() {
        let quickest = best.entry(line.bytes).or_insert(line.lat_us);
        *quickest = quickest.min(line.lat_us);
    }
    let place = |system: &str| [LONGARM, LIMIT].iter().position(|first| *first == system).unwrap_or(2);
    // The logarithm of how many times the quickest one's time it takes, over all sizes on average.
    let slowness = |lines: &[Line]| {
        lines.iter().map(|line| (line.lat_us / best[&line.bytes]).ln()).sum::<f64>() / lines.len() as f64
    };
    all.sort_by(|left, right| {
        let by_place = place(&left[0].peer).cmp(&place(&right[0].peer));
        by_place.then(slowness(left).total_cmp(&slowness(right)))
    });
    let drawn: Vec<&Line> = all.iter().take(CURVES_MAX).flatten().collect();
    series(&drawn, |line| line.peer.clone(), |line| Some((line.bytes as f64, value(line))))
}

/// What is left of the processor, and what goes over the network, over the computation between two looks.
fn of_comb(layout: &str, ours: &[&Line], others: &[&Line]) -> Vec<NamedPicture> {
    let mut pictures = Vec::new();
    for method in ["poll", "pww"] {
        let all = ours.iter().chain(others).copied();
        let lines: Vec<&Line> = all.filter(|line| line.op.starts_with(&format!("comb_{method}_"))).collect();
        let (interval, x) = match method {
            "poll" => ("polling", "poll interval, us"),
            _ => ("post, work, wait", "work interval, us"),
        };
        let named = |line: &Line| {
            format!("{} {} kB{}", line.op.rsplit('_').next().unwrap_or(""), line.bytes / 1000, peer_suffix(line))
        };
        let picture = |what: &str, y: &str, value: fn(&Line) -> f64| Picture {
            title: format!("COMB, {interval}, {layout}: {what}"),
            x: Axis::log(x),
            y: Axis { name: y.to_owned(), is_log: false },
            series: series(&lines, named, |line| line.interval_us.map(|interval| (interval, value(line)))),
            first_stands_out: false,
        };
        let left = |line: &Line| line.overlap.as_ref().map_or(0.0, |overlap| overlap.availability);
        let processor = picture("processor", "share of the processor left", left);
        pictures.push((format!("comb-{method}-availability"), processor));
        pictures.push((format!("comb-{method}-bandwidth"), picture("bandwidth", "MB/s", |line| line.mbps)));
    }
    pictures
}

/// What stands behind the name of a curve that is not longarm's.
fn peer_suffix(line: &Line) -> String {
    if line.peer == LONGARM { String::new() } else { format!(" {}", line.peer) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Key, Overlap};
    use crate::micro::sample::Sample;

    fn line(op: &str, bytes: u64, seconds: f64) -> Line {
        Line::new(LONGARM, Key { transport: "tcp", op, bytes }, &Sample::of_batches(vec![seconds]))
    }

    fn of(peer: &str, line: Line) -> Line {
        Line { peer: peer.into(), ..line }
    }

    fn names(pictures: &[NamedPicture]) -> Vec<&str> {
        pictures.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn curves(picture: &Picture) -> Vec<&str> {
        picture.series.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn curves_are_drawn_by_operation_and_those_of_others_beside_them() {
        let ours = [line("put", 64, 2e-6), line("put", 8, 1e-6), line("get", 8, 3e-6)];
        let other = of("other", line("put", 8, 4e-6));
        let unknown = of("other", line("swap", 8, 4e-6));
        let drawn = pictures(Suite::Latency, "tcp", &ours.iter().collect::<Vec<_>>(), &[&other, &unknown]);
        assert_eq!((names(&drawn), curves(&drawn[0].1)), (vec!["latency"], vec!["put", "get", "put other"]));
        assert_eq!(drawn[0].1.series[0].1.iter().map(|point| point.0).collect::<Vec<_>>(), [8.0, 64.0], "by size");
    }

    #[test]
    fn of_many_systems_each_operation_has_a_picture_with_the_quickest() {
        let sizes = [(8, 1e-6), (64, 2e-6)];
        let curve =
            |peer: &str, times: f64| sizes.map(|(bytes, seconds)| of(peer, line("put", bytes, seconds * times)));
        let mut lines = [curve(LONGARM, 2.0), curve(LIMIT, 1.0), curve("armci-longarm", 2.1)].concat();
        // Ten others, the last one the quickest, in another order.
        for number in [3, 1, 4, 10, 5, 9, 2, 6, 8, 7] {
            lines.extend(curve(&format!("other{number}"), 14.0 - f64::from(number)));
        }
        // Three rounds of one of them, and in another one the processors were apart.
        let rounds = [curve("other10", 3.0), curve("other10", 90.0)].concat();
        lines.extend(rounds.into_iter().chain(curve("other10", 200.0).map(|line| Line { apart: true, ..line })));
        // Measured at one size alone, so there is no curve of it.
        lines.push(line("swap", 8, 1e-6));
        // By another way over the same layout: another curve, and a slow one.
        lines.extend(curve("other10", 50.0).map(|line| Line { transport: "tcp-slow".into(), ..line }));
        let drawn = pictures(Suite::Latency, "tcp", &lines.iter().collect::<Vec<_>>(), &[]);
        let best = ["longarm", "limit", "other10", "other9", "other8", "other7", "other6", "other5"];
        assert_eq!((names(&drawn), curves(&drawn[0].1)), (vec!["latency-put"], best.to_vec()));
        let (first, middle) = (&drawn[0].1.series[0].1, &drawn[0].1.series[2].1);
        assert_eq!(first.iter().map(|point| point.0).collect::<Vec<_>>(), [8.0, 64.0]);
        assert!((middle[0].1 - 4.0).abs() < 1e-9, "the middle one of three rounds: {middle:?}");
        assert!(drawn[0].1.first_stands_out);
    }

    #[test]
    fn cache_misses_have_a_picture_where_they_were_counted() {
        let counted = Line { cache_misses: Some(1234.4), ..line("lmt_copy", 4096, 1e-6) };
        let lines = [counted, line("lmt_cma", 4096, 2e-6), line("lmt_both_cma", 4096, 3e-6)];
        let drawn = |lines: &[Line]| pictures(Suite::Lmt, "shm", &lines.iter().collect::<Vec<_>>(), &[]);
        assert_eq!(names(&drawn(&lines)), ["lmt", "lmt-both", "lmt-misses"]);
        assert_eq!(names(&drawn(&lines[1..2])), ["lmt"]);
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
        let other = of("zero copy", line("put", 8, 4e-6));
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
    fn what_was_measured_now_is_drawn_and_not_what_the_other_file_says_of_longarm() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lines.jsonl");
        let before = [line("put", 4096, 1e-6), of("other", line("put", 64, 1e-6))];
        std::fs::write(&file, before.each_ref().map(Line::to_json).join("\n")).unwrap();
        draw(Suite::Latency, &[line("put", 8, 1e-6)], Some(&file), folder.path()).unwrap();
        let picture = std::fs::read_to_string(folder.path().join("latency-tcp.svg")).unwrap();
        assert!(picture.contains("put other") && !picture.contains("4.1 k") && !picture.contains("1 k"), "{picture}");
    }

    #[test]
    fn availability_is_drawn_over_the_interval() {
        let overlap = Overlap { comm_us: 9.0, work_us: 30.0, availability: 0.75, hidden: None };
        let line = Line { interval_us: Some(30.0), overlap: Some(overlap), ..line("comb_poll_get", 5000, 1e-6) };
        let other = of("other", line.clone());
        let unknown = Line { op: "put".into(), ..other.clone() };
        let drawn = pictures(Suite::Comb, "tcp", &[&line], &[&other, &unknown]);
        assert_eq!(drawn[0].0, "comb-poll-availability");
        let curves = ["get 5 kB", "get 5 kB other"].map(|name| (name.to_owned(), vec![(30.0, 0.75)]));
        assert_eq!(drawn[0].1.series, curves);
    }
}
