//! Pictures of what jobs of few and of many ranks take, from the lines of `longarm-scale`.

use crate::line::{LONGARM, Line};
use crate::plot::{Axis, Picture, series};

/// How the operations of such lines begin.
const PREFIX: &str = "scale_";
/// What they call what the ranks ran on, as pictures call it.
const MACHINES: [(&str, &str); 4] = [
    ("cluster", "a processor each, and a network"),
    ("cluster-routers", "a processor each, a network, and routers"),
    ("shared", "all on the processors of one machine"),
    ("shared-routers", "all on the processors of one machine, and routers"),
];
/// What is no time, and stands where others have bytes: what the picture is called, what it shows, and the axis.
const COUNTS: [(&str, &str, &str); 3] = [
    ("connections", "Connections of the server that has most of them", "connections"),
    ("sockets", "Sockets of the node that has most of them", "sockets"),
    ("memory", "Memory of a node, on average", "bytes"),
];

/// Whether a line is one of `longarm-scale`.
pub(crate) fn is_of_scale(line: &Line) -> bool {
    line.op.starts_with(PREFIX)
}

/// All pictures that there are lines for, with the names of their files.
pub(crate) fn pictures(lines: &[Line]) -> Vec<(String, Picture)> {
    let mut all = Vec::new();
    for (machine, title) in MACHINES {
        let here: Vec<&Line> = lines.iter().filter(|line| line.transport == machine).collect();
        let time = |line: &Line| (line.lat_us > 0.0).then_some((f64::from(line.np), line.lat_us));
        let times = series(&here, name, time);
        let title = format!("Time by ranks: {title}");
        all.push((
            format!("scale-{machine}"),
            Picture {
                title,
                x: Axis::log("ranks"),
                y: Axis::log("microseconds"),
                series: times,
                first_stands_out: false,
            },
        ));
    }
    for (counted, title, axis) in COUNTS {
        let of_it: Vec<&Line> = lines.iter().filter(|line| line.op.strip_prefix(PREFIX) == Some(counted)).collect();
        let count = |line: &Line| (line.bytes > 0).then_some((f64::from(line.np), line.bytes as f64));
        let curve = |line: &Line| format!("{}{}", line.transport, measured(line));
        let (x, y) = (Axis::log("ranks"), Axis::log(axis));
        let picture =
            Picture { title: title.to_owned(), x, y, series: series(&of_it, curve, count), first_stands_out: false };
        all.push((format!("{PREFIX}{counted}").replace('_', "-"), picture));
    }
    all.retain(|(_, picture)| !picture.series.is_empty());
    all
}

/// What a curve is called.
fn name(line: &Line) -> String {
    format!("{}{}", line.op.trim_start_matches(PREFIX).replace('_', "-"), measured(line))
}

fn measured(line: &Line) -> &'static str {
    if line.peer == LONGARM { ", measured" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Key;
    use crate::micro::sample::Sample;

    fn line(peer: &str, transport: &str, op: &str, np: u32) -> Line {
        let sample = Sample::of_batches(vec![f64::from(np) * 1e-6]);
        Line { np, ..Line::new(peer, Key { transport, op, bytes: 8 }, &sample) }
    }

    #[test]
    fn simulated_and_measured_times_are_curves_over_ranks() {
        let lines = [
            line("simulated", "shared", "scale_barrier", 64),
            line("simulated", "shared", "scale_barrier", 4),
            line(LONGARM, "shared", "scale_barrier", 4),
            Line { lat_us: 0.0, ..line("simulated", "cluster", "scale_connections", 4) },
        ];
        let drawn = pictures(&lines);
        let names: Vec<&str> = drawn.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["scale-shared", "scale-connections"], "nothing else was measured on the cluster");
        let close = |points: &[(f64, f64)]| points.iter().map(|(x, y)| (*x, y.round())).collect::<Vec<_>>();
        let series: Vec<(&str, Vec<(f64, f64)>)> =
            drawn[0].1.series.iter().map(|(name, points)| (name.as_str(), close(points))).collect();
        let expected = [("barrier", vec![(4.0, 4.0), (64.0, 64.0)]), ("barrier, measured", vec![(4.0, 4.0)])];
        assert_eq!(series, expected);
        assert!(is_of_scale(&lines[0]) && !is_of_scale(&line(LONGARM, "tcp", "barrier", 4)));
    }
}
