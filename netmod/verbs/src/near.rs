//! Which of several devices is near: which NUMA node it hangs on, and how far that is from the processors that we may use.

use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};

/// Where the system tells.
pub(crate) const SYSTEM: &str = "/sys";

/// How far a device is from the processors of the calling thread, in the system's measure: 10 is on the same node. `None`: the system
/// does not say, as with devices made of software, and where there is one node only.
pub(crate) fn distance(system: &Path, device: &str) -> Option<u32> {
    let folder = system.join("class/infiniband").join(device).join("device/numa_node");
    // -1 stands for none.
    let node: usize = std::fs::read_to_string(folder).ok()?.trim().parse().ok()?;
    let usable = sched_getaffinity(None).ok()?;
    let nodes = std::fs::read_dir(system.join("devices/system/node")).ok()?;
    let of_node = nodes.filter_map(|entry| {
        let folder = entry.ok()?.path();
        let processors = std::fs::read_to_string(folder.join("cpulist")).ok()?;
        if !holds_any(&processors, &usable) {
            return None;
        }
        let distances = std::fs::read_to_string(folder.join("distance")).ok()?;
        distances.split_whitespace().nth(node)?.parse().ok()
    });
    of_node.min()
}

/// Whether a list like `0-3,8` names one of the set.
fn holds_any(list: &str, set: &CpuSet) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else { return false };
        (first..=last.min(CpuSet::MAX_CPU - 1)).any(|processor| set.is_set(processor))
    })
}

/// Which of these is taken, and why: the nearest, and the first of those that are equally near or of which nothing is known.
pub(crate) fn nearest(distances: &[Option<u32>]) -> Option<(usize, String)> {
    let known = |distance: &Option<u32>| distance.unwrap_or(u32::MAX);
    let (place, least) = distances.iter().map(known).enumerate().min_by_key(|(place, distance)| (*distance, *place))?;
    let count = distances.len();
    let is_alone = distances.iter().filter(|distance| known(distance) == least).count() == 1;
    let why = match (count, is_alone) {
        (1, _) => "the only device with an active port".to_owned(),
        (_, true) => format!("the nearest of {count} devices with an active port, at NUMA distance {least}"),
        (_, false) if least == u32::MAX => format!("the first of {count} devices with an active port"),
        (_, false) => format!("the first of {count} devices with an active port that is at NUMA distance {least}"),
    };
    Some((place, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_taken_and_the_first_of_equals() {
        let taken = |distances: &[Option<u32>]| nearest(distances).map(|(place, _)| place);
        assert_eq!(taken(&[]), None);
        assert_eq!(taken(&[Some(21), Some(10), Some(10)]), Some(1));
        assert_eq!(taken(&[None, Some(21), None]), Some(1), "what is known comes first");
        assert_eq!(taken(&[None, None]), Some(0));
        let (_, why) = nearest(&[Some(21), Some(10)]).unwrap();
        assert_eq!(why, "the nearest of 2 devices with an active port, at NUMA distance 10");
    }

    #[test]
    fn the_distance_is_that_from_the_nodes_whose_processors_we_may_use() {
        // Not named after longarm: tests of faults, which may run meanwhile, look for what jobs leave behind.
        let folder = std::env::temp_dir().join(format!("near-device-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        // All processors of this machine are on the second node.
        write("devices/system/node/node0/cpulist", "\n");
        write("devices/system/node/node0/distance", "10 21\n");
        write("devices/system/node/node1/cpulist", "0-1023\n");
        write("devices/system/node/node1/distance", "21 10\n");
        for (device, node) in [("far0", "0\n"), ("near0", "1\n"), ("soft0", "-1\n")] {
            write(&format!("class/infiniband/{device}/device/numa_node"), node);
        }
        let found = ["far0", "near0", "soft0", "none0"].map(|device| distance(&folder, device));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [Some(21), Some(10), None, None]);
    }
}
