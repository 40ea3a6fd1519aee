//! The machine as longarm sees it: processors, caches, memory, and what the kernel allows.
//!
//! Everything is read from `/sys` and `/proc` plus a few harmless system calls. Files that are absent (containers,
//! other kernels, processors without cache descriptions) leave `None` or an empty list behind: this module never fails
//! and never panics, and it decides nothing. Decisions that follow from the machine stand in [`crate::config`].

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;

use rustix::fs::MemfdFlags;
use rustix::process::Resource;
use serde::Serialize;

/// What the machine offers to this process.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Release of the kernel, such as "6.8.0".
    pub kernel: Option<String>,
    /// What the processor calls itself.
    pub processor_model: Option<String>,
    /// Processors that this process may use, in ascending order.
    pub processors: Vec<Processor>,
    /// Processors that are online, allowed or not.
    pub processors_online: Option<u32>,
    /// Caches of the first allowed processor, in ascending order of level.
    pub caches: Vec<Cache>,
    /// Size of a page in bytes.
    pub page_bytes: u64,
    /// Memory of the machine.
    pub memory_total_bytes: Option<u64>,
    /// Memory that can be had without swapping.
    pub memory_available_bytes: Option<u64>,
    /// Limit of the control group (version 2) of this process. `None`: no limit, or not known.
    pub memory_limit_bytes: Option<u64>,
    /// How many bytes may be locked. `None`: unlimited.
    pub locked_memory_bytes: Option<u64>,
    /// How the kernel treats promises of memory.
    pub overcommit: Option<Overcommit>,
    /// How many descriptors this process may have open, now. `None`: unlimited.
    pub descriptors: Option<u64>,
    /// How many descriptors this process may ask for. `None`: unlimited.
    pub descriptors_max: Option<u64>,
    /// Huge pages.
    pub huge_pages: HugePages,
    /// Whether sealed memory files can be made.
    pub memfd: bool,
    /// Whether one rank may read and write the memory of another one.
    pub cross_memory_attach: CrossMemoryAttach,
}

/// One processor, as the scheduler counts them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Processor {
    /// The scheduler's number of it.
    pub number: u32,
    /// The core it belongs to, unique only inside a package.
    pub core: Option<u32>,
    /// The package (socket) it sits in.
    pub package: Option<u32>,
    /// The memory node (NUMA) it is close to.
    pub memory_node: Option<u32>,
}

/// One cache that a processor uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// 1 is the closest to the processor.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Its size in bytes.
    pub bytes: u64,
    /// Size of a line in bytes.
    pub line_bytes: Option<u32>,
    /// The processors that share it.
    pub processors: Vec<u32>,
    /// How many cores share it: `processors` without counting the threads of one core twice.
    pub cores: u32,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// How the kernel treats promises of memory (`vm.overcommit_memory`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Overcommit {
    /// 0: obvious excess is refused.
    Heuristic,
    /// 1: everything is granted.
    Always,
    /// 2: never more than swap and a share of the memory. Large sparse windows may be refused.
    Never,
}

/// Huge pages on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HugePages {
    /// Size of a transparent huge page in bytes.
    pub page_bytes: Option<u64>,
    /// Mode for ordinary memory: "always", "madvise" or "never".
    pub transparent: Option<String>,
    /// Mode for shared memory, windows included: "always", "within_size", "advise", "never", "deny" or "force".
    pub shared: Option<String>,
    /// Whether `LONGARM_HUGE_PAGES` can have windows in huge pages, whatever the mode: from Linux 6.1 on, unless that is "deny".
    pub on_request: bool,
    /// Pages put aside by the administrator.
    pub reserved: Option<u64>,
    /// How many of these are free.
    pub reserved_free: Option<u64>,
}

/// Whether one rank may read and write the memory of another one of the same user (`process_vm_readv`), as far as the
/// kernel's settings tell. A filter on system calls (seccomp) can still forbid it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CrossMemoryAttach {
    /// Nothing stands against it.
    Allowed,
    /// Yama allows it for descendants only: a rank has to permit the others by `prctl`.
    OnPermission,
    /// Yama allows it for administrators, and this process is one.
    AsAdministrator,
    /// Yama forbids it to this process.
    Forbidden,
}

impl fmt::Display for CrossMemoryAttach {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Allowed => "allowed",
            Self::OnPermission => "allowed when the target permits it (yama ptrace_scope 1)",
            Self::AsAdministrator => "allowed to this user (yama ptrace_scope 2)",
            Self::Forbidden => "forbidden (yama)",
        })
    }
}

impl fmt::Display for Overcommit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Heuristic => "heuristic",
            Self::Always => "always",
            Self::Never => "never (large sparse windows may be refused)",
        })
    }
}

impl fmt::Display for CacheKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Data => "data",
            Self::Instruction => "instruction",
            Self::Unified => "unified",
        })
    }
}

impl Machine {
    /// Looks at the machine. Takes some milliseconds where there are hundreds of processors.
    pub fn probe() -> Machine {
        let allowed = processors_allowed();
        let meminfo = read("/proc/meminfo").unwrap_or_default();
        let descriptors = rustix::process::getrlimit(Resource::Nofile);
        Machine {
            kernel: read("/proc/sys/kernel/osrelease"),
            processor_model: processor_model(),
            caches: allowed.first().map(|first| caches_of(*first)).unwrap_or_default(),
            processors: allowed.into_iter().map(Processor::probe).collect(),
            processors_online: read("/sys/devices/system/cpu/online").map(|list| parse_list(&list).len() as u32),
            page_bytes: rustix::param::page_size() as u64,
            memory_total_bytes: meminfo_bytes(&meminfo, "MemTotal"),
            memory_available_bytes: meminfo_bytes(&meminfo, "MemAvailable"),
            memory_limit_bytes: control_group_limit_bytes(),
            locked_memory_bytes: rustix::process::getrlimit(Resource::Memlock).current,
            overcommit: overcommit(),
            descriptors: descriptors.current,
            descriptors_max: descriptors.maximum,
            huge_pages: HugePages::probe(&meminfo),
            memfd: rustix::fs::memfd_create("longarm-probe", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).is_ok(),
            cross_memory_attach: cross_memory_attach(),
        }
    }

    /// The numbers of the allowed processors.
    pub fn processor_numbers(&self) -> Vec<u32> {
        self.processors.iter().map(|processor| processor.number).collect()
    }
}

impl Processor {
    fn probe(number: u32) -> Processor {
        let folder = format!("/sys/devices/system/cpu/cpu{number}");
        Processor {
            number,
            core: read_number(format!("{folder}/topology/core_id")),
            package: read_number(format!("{folder}/topology/physical_package_id")),
            memory_node: memory_node_of(&folder),
        }
    }
}

const HUGE_PAGE_FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

/// Size of a transparent huge page in bytes, a power of two.
pub(crate) fn huge_page_bytes() -> Option<u64> {
    read_number(format!("{HUGE_PAGE_FOLDER}/hpage_pmd_size")).filter(|bytes: &u64| bytes.is_power_of_two())
}

/// Whether Linux of this release, such as "6.12.3-generic", makes huge pages of memory that is named to it.
fn collapses_on_request(release: &str) -> bool {
    let leading = |text: &str| text.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u32>().ok();
    let mut numbers = release.split('.').map(|text| leading(text).unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(1))
}

impl HugePages {
    fn probe(meminfo: &str) -> HugePages {
        let (page_bytes, shared) = (huge_page_bytes(), read(format!("{HUGE_PAGE_FOLDER}/shmem_enabled")));
        let shared = shared.and_then(|modes| selected_mode(&modes));
        let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_default();
        HugePages {
            on_request: page_bytes.is_some() && shared.as_deref() != Some("deny") && collapses_on_request(&kernel),
            page_bytes,
            transparent: read(format!("{HUGE_PAGE_FOLDER}/enabled")).and_then(|modes| selected_mode(&modes)),
            shared,
            reserved: meminfo_number(meminfo, "HugePages_Total"),
            reserved_free: meminfo_number(meminfo, "HugePages_Free"),
        }
    }
}

/// The processors that the calling thread may run on, in ascending order. At least one number.
pub fn processors_allowed() -> Vec<u32> {
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        let numbers = 0..rustix::thread::CpuSet::MAX_CPU;
        let allowed: Vec<u32> = numbers.filter(|number| set.is_set(*number)).map(|number| number as u32).collect();
        if !allowed.is_empty() {
            return allowed;
        }
    }
    // The call has room for 1024 processors; the kernel's own text has room for all.
    let status = read("/proc/thread-self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let allowed = parse_list(list);
    if !allowed.is_empty() {
        return allowed;
    }
    let count = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    (0..count).collect()
}

/// What two processes have in common exactly when they can share memory and a loopback: the running system, the network that it
/// shows them, in which a descriptor can be handed over, and the user, who alone may take it. In containers the processes must
/// be numbered alike, too, for neighbours name each other's. The name of the host says nothing of all this.
pub fn machine_name() -> String {
    let boot = read("/proc/sys/kernel/random/boot_id").unwrap_or_else(host_name);
    let space = |kind: &str| {
        let link = fs::read_link(format!("/proc/self/ns/{kind}"));
        link.map(|link| link.display().to_string()).unwrap_or_default()
    };
    let user = rustix::process::geteuid().as_raw();
    format!("{boot} {} {} {} {user}", space("net"), space("pid"), space("user"))
}

/// What the machine calls itself.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The caches that a processor uses, in ascending order of level. Empty where the kernel does not describe them.
pub fn caches_of(processor: u32) -> Vec<Cache> {
    let threads_per_core = threads_per_core_of(processor);
    let folders = cache_folders_of(processor);
    let mut caches: Vec<Cache> = folders.filter_map(|folder| read_cache(&folder, threads_per_core)).collect();
    caches.sort_by_key(|cache| (cache.level, cache.kind != CacheKind::Data));
    caches
}

/// The one of [`caches_of`] that [`last_cache`] finds. The kernel writes down what is in each file when it is read, and each rank
/// asks this when it starts, so no other one is read: those that are farther from the processor are listed behind.
fn last_cache_of(processor: u32) -> Option<Cache> {
    let folders: Vec<String> = cache_folders_of(processor).collect();
    let holds_data = |folder: &&String| kind_of_cache(folder) != CacheKind::Instruction;
    let folder = folders.iter().rev().find(holds_data)?;
    read_cache(folder, threads_per_core_of(processor))
}

/// The last cache of the first processor that this process may use. It is read once: a process may read its configuration several times
/// while it starts.
pub fn last_cache_here() -> Option<&'static Cache> {
    static HERE: OnceLock<Option<Cache>> = OnceLock::new();
    HERE.get_or_init(|| processors_allowed().first().and_then(|first| last_cache_of(*first))).as_ref()
}

/// One folder for each cache.
fn cache_folders_of(processor: u32) -> impl Iterator<Item = String> {
    let folders = (0..).map(move |index| format!("/sys/devices/system/cpu/cpu{processor}/cache/index{index}"));
    // The first one that is missing ends the list.
    folders.take_while(|folder| Path::new(folder).exists())
}

fn threads_per_core_of(processor: u32) -> u32 {
    let siblings = read(format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"));
    siblings.map_or(1, |list| parse_list(&list).len().max(1) as u32)
}

fn kind_of_cache(folder: &str) -> CacheKind {
    match read(format!("{folder}/type")).as_deref() {
        Some("Data") => CacheKind::Data,
        Some("Instruction") => CacheKind::Instruction,
        _ => CacheKind::Unified,
    }
}

fn read_cache(folder: &str, threads_per_core: u32) -> Option<Cache> {
    let level = read_number(format!("{folder}/level"))?;
    let bytes = read(format!("{folder}/size")).and_then(|size| parse_size(&size))?;
    let processors = read(format!("{folder}/shared_cpu_list")).map(|list| parse_list(&list)).unwrap_or_default();
    let cores = (processors.len() as u32).div_ceil(threads_per_core).max(1);
    let line_bytes = read_number(format!("{folder}/coherency_line_size"));
    Some(Cache { level, kind: kind_of_cache(folder), bytes, line_bytes, processors, cores })
}

/// The largest cache that holds data and is farthest from the processor.
pub fn last_cache(caches: &[Cache]) -> Option<&Cache> {
    caches.iter().filter(|cache| cache.kind != CacheKind::Instruction).max_by_key(|cache| (cache.level, cache.bytes))
}

fn processor_model() -> Option<String> {
    let text = read("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.starts_with("model name") || line.starts_with("CPU implementer"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_node_of(processor_folder: &str) -> Option<u32> {
    let entries = fs::read_dir(processor_folder).ok()?;
    entries.flatten().find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

fn overcommit() -> Option<Overcommit> {
    match read_number("/proc/sys/vm/overcommit_memory")? {
        0 => Some(Overcommit::Heuristic),
        1 => Some(Overcommit::Always),
        2 => Some(Overcommit::Never),
        _ => None,
    }
}

fn cross_memory_attach() -> CrossMemoryAttach {
    // Without yama only the ordinary rule stands: same user.
    match read_number("/proc/sys/kernel/yama/ptrace_scope").unwrap_or(0) {
        0 => CrossMemoryAttach::Allowed,
        _ if may_trace() => CrossMemoryAttach::AsAdministrator,
        1 => CrossMemoryAttach::OnPermission,
        _ => CrossMemoryAttach::Forbidden,
    }
}

/// Whether this process has the capability to trace others. Yama's highest setting forbids it to everybody.
fn may_trace() -> bool {
    const CAPABILITY_SYS_PTRACE: u64 = 1 << 19;
    let forbidden_to_all = read_number("/proc/sys/kernel/yama/ptrace_scope") == Some(3);
    let status = read("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    !forbidden_to_all && effective & CAPABILITY_SYS_PTRACE != 0
}

/// The smallest limit on the way from this process's control group to the root.
fn control_group_limit_bytes() -> Option<u64> {
    let groups = read("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let root = Path::new("/sys/fs/cgroup");
    let mut folder = root.join(own.trim_start_matches('/'));
    let mut limit = None;
    while folder.starts_with(root) {
        // "max" stands for no limit and does not parse.
        let here: Option<u64> = read_number(folder.join("memory.max"));
        limit = limit.into_iter().chain(here).min();
        if !folder.pop() {
            break;
        }
    }
    limit
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn read_number<T: FromStr>(path: impl AsRef<Path>) -> Option<T> {
    read(path)?.parse().ok()
}

fn meminfo_number(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    meminfo_number(meminfo, name)?.checked_mul(1024)
}

/// The word in brackets of "always [madvise] never".
fn selected_mode(modes: &str) -> Option<String> {
    Some(modes.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Numbers of a list such as "0-3,8,10-11". What cannot be read is left out.
fn parse_list(list: &str) -> Vec<u32> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?))
    });
    ranges.flat_map(|(first, last)| first..=last).collect()
}

/// Bytes of a size as the kernel writes it: "48K", "2M".
fn parse_size(size: &str) -> Option<u64> {
    let (digits, unit) = match size.strip_suffix('K') {
        Some(digits) => (digits, 1024),
        None => match size.strip_suffix('M') {
            Some(digits) => (digits, 1024 * 1024),
            None => (size, 1),
        },
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_processors_is_read_as_ranges_and_single_numbers() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list(""), [0; 0]);
        assert_eq!(parse_list("x,5"), [5]);
    }

    #[test]
    fn a_cache_size_is_read_with_its_unit() {
        assert_eq!(parse_size("48K"), Some(49152));
        assert_eq!(parse_size("2M"), Some(2 << 20));
        assert_eq!(parse_size("17"), Some(17));
        assert_eq!(parse_size("big"), None);
    }

    #[test]
    fn the_mode_in_brackets_is_the_selected_one() {
        assert_eq!(selected_mode("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(selected_mode("always"), None);
    }

    #[test]
    fn huge_pages_on_request_need_linux_6_1() {
        assert!(["6.1.0-13-amd64", "6.18.44", "10.0.1", "6.1-rc3"].iter().all(|release| collapses_on_request(release)));
        assert!(!["6.0.19", "5.15.0-91-generic", "", "x.y"].iter().any(|release| collapses_on_request(release)));
    }

    #[test]
    fn a_name_in_meminfo_is_matched_whole() {
        let text = "MemTotalX:  1 kB\nMemTotal:   24 kB\nHugePages_Free:  3";
        assert_eq!(meminfo_bytes(text, "MemTotal"), Some(24 * 1024));
        assert_eq!(meminfo_number(text, "HugePages_Free"), Some(3));
        assert_eq!(meminfo_number(text, "Mem"), None);
    }

    #[test]
    fn this_machine_has_a_processor_and_an_unknown_processor_has_no_cache() {
        let machine = Machine::probe();
        assert!(!machine.processors.is_empty());
        assert!(machine.processor_numbers().is_sorted());
        assert!(machine.page_bytes.is_power_of_two());
        assert!(caches_of(u32::MAX).is_empty());
    }

    #[test]
    fn the_last_cache_is_never_one_for_instructions() {
        let cache = |level, kind| Cache { level, kind, bytes: 1, line_bytes: None, processors: vec![], cores: 1 };
        let caches = [cache(1, CacheKind::Data), cache(2, CacheKind::Unified), cache(3, CacheKind::Instruction)];
        assert_eq!(last_cache(&caches).map(|cache| cache.level), Some(2));
        assert_eq!(last_cache(&[]), None);
    }

    #[test]
    fn the_last_cache_read_alone_is_the_last_one_of_all() {
        for processor in processors_allowed().into_iter().chain([u32::MAX]) {
            assert_eq!(last_cache_of(processor).as_ref(), last_cache(&caches_of(processor)));
        }
    }
}
