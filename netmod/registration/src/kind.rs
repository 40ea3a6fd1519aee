//! Which memory may be kept registered: private memory without a file behind it.
//!
//! What another process, a file or a segment of System V can take away (a truncated file, a punched hole, `shmdt`)
//! goes without an event, so the registration of such memory lasts for one use only.

use std::fs::File;
use std::io::{BufRead, BufReader};

use rustix::io::Errno;

use crate::extent::Extent;
use crate::system;

const MAPS: &str = "/proc/self/maps";

/// The list of this process's mappings, kept open.
#[derive(Debug)]
pub(crate) struct Maps(Option<File>);

impl Maps {
    pub(crate) fn open() -> Maps {
        Maps(File::open(MAPS).ok())
    }

    /// Whether all mappings among these addresses are private memory. `false` where that cannot be told.
    pub(crate) fn are_private(&self, extent: Extent) -> bool {
        let Some(maps) = &self.0 else { return false };
        let mut address = extent.start;
        while address < extent.end {
            match system::mapping_at(maps, address) {
                Ok(Some((mapping, is_private))) if mapping.start < extent.end => {
                    if !is_private {
                        return false;
                    }
                    address = mapping.end;
                }
                Ok(_) => return true,
                Err(Errno::NOTTY) => return are_private_by_the_list(extent),
                Err(_) => return false,
            }
        }
        true
    }
}

/// The same for kernels that do not answer questions. It reads the whole list up to there, which gets long in large
/// programs.
fn are_private_by_the_list(extent: Extent) -> bool {
    let Ok(maps) = File::open(MAPS) else { return false };
    let mut maps = BufReader::with_capacity(1 << 14, maps);
    let mut line = String::new();
    loop {
        line.clear();
        match maps.read_line(&mut line) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
        let Some((mapping, is_private)) = parse(&line) else { return false };
        if mapping.start >= extent.end {
            return true;
        }
        if mapping.overlaps(extent) && !is_private {
            return false;
        }
    }
}

/// A line of the list: which addresses, and whether they are private and without a file.
fn parse(line: &str) -> Option<(Extent, bool)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let extent = Extent { start: address(start)?, end: address(end)? };
    let is_private = fields.next()?.ends_with('p');
    // Behind the offset and the device.
    let inode = fields.nth(2)?;
    Some((extent, is_private && inode == "0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, page_bytes};

    #[test]
    fn both_ways_of_asking_tell_private_memory_from_a_file() {
        let maps = Maps::open();
        let extent = |start, bytes| Extent { start, end: start + bytes };
        let private = Mapping::new(4);
        private.unmap(1, 1);
        let program = File::open("/proc/self/exe").unwrap();
        let file = Mapping::of_file(&program, 1);
        for (extent, is_private) in [
            (extent(private.start, private.bytes), true),
            (extent(file.start, page_bytes()), false),
            // All there is.
            (extent(0, usize::MAX), false),
        ] {
            assert_eq!(maps.are_private(extent), is_private);
            assert_eq!(are_private_by_the_list(extent), is_private);
        }
    }

    #[test]
    fn mappings_of_the_heap_are_private_and_others_are_not() {
        let kind = |line: &str| parse(line).map(|(extent, is_private)| (extent.start, extent.end, is_private));
        assert_eq!(kind("1000-3000 rw-p 00000000 00:00 0   [heap]\n"), Some((0x1000, 0x3000, true)));
        assert_eq!(kind("1000-3000 rw-p 00000000 00:00 0\n"), Some((0x1000, 0x3000, true)));
        assert_eq!(kind("1000-3000 rw-s 00000000 00:00 0 /SYSV00000000 (deleted)\n"), Some((0x1000, 0x3000, false)));
        assert_eq!(kind("1000-3000 rw-p 00000000 00:0f 77 /anon_hugepage (deleted)\n"), Some((0x1000, 0x3000, false)));
        assert_eq!(kind("1000-3000 rw-p 00000000\n"), None);
        assert_eq!(kind("nonsense"), None);
    }
}
