//! A place in a list of regions, from where bytes are copied on.

use longarm_memory::{Region, RegionMut};

/// A place in a list of regions.
pub(super) struct Walk<'a> {
    regions: &'a [Region<'a>],
    at: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(regions: &'a [Region<'a>]) -> Walk<'a> {
        Walk { regions, at: 0 }
    }

    pub(super) fn copy_to(&mut self, target: RegionMut<'_>) {
        let mut done = 0;
        while done < target.len() {
            let region = self.regions[0];
            let bytes = (region.len() - self.at).min(target.len() - done);
            target.slice(done, bytes).copy_from(region.slice(self.at, bytes));
            done += bytes;
            self.at += bytes;
            if self.at == region.len() {
                (self.regions, self.at) = (&self.regions[1..], 0);
            }
        }
    }
}
