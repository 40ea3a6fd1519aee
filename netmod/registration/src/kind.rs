//! Which memory may be kept registered: private memory without a file behind it.
//!
//! What another process, a file or a segment of System V can take away (a truncated file, a punched hole, `shmdt`)
//! goes without an event, so the registration of such memory lasts for one use only.

use std::fs::File;
use std::io::{BufRead, BufReader};

use crate::extent::Extent;

/// Whether all mappings among these addresses are private and anonymous. `false` where that cannot be told.
pub(crate) fn is_private_memory(extent: Extent) -> bool {
    let Ok(maps) = File::open("/proc/self/maps") else { return false };
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

/// A line of that file: which addresses, and whether they are private and without a file.
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
