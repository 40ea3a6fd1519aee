//! Whole pages of addresses.

/// Addresses from `start` up to `end`, both multiples of the page size, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Extent {
    /// The pages that hold these bytes; `None` for no bytes, and for some behind the last address.
    pub(crate) fn around(start: usize, bytes: usize) -> Option<Extent> {
        let page_bytes = rustix::param::page_size();
        let end = start.checked_add(bytes)?.checked_next_multiple_of(page_bytes)?;
        (bytes > 0).then_some(Extent { start: start - start % page_bytes, end })
    }

    pub(crate) fn bytes(self) -> usize {
        self.end - self.start
    }

    pub(crate) fn covers(self, other: Extent) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    pub(crate) fn overlaps(self, other: Extent) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The least extent that covers both.
    pub(crate) fn union(self, other: Extent) -> Extent {
        Extent { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// Calls for each piece of this extent that none of `kept` covers.
    pub(crate) fn for_each_outside(self, kept: &[Option<Extent>], mut call: impl FnMut(Extent)) {
        let mut start = self.start;
        while start < self.end {
            let kept = || kept.iter().flatten();
            if let Some(holder) = kept().find(|kept| kept.start <= start && start < kept.end) {
                start = holder.end;
                continue;
            }
            let end = kept().map(|kept| kept.start).filter(|next| *next > start).min();
            let end = end.unwrap_or(self.end).min(self.end);
            call(Extent { start, end });
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_rounded_out_to_pages_and_nonsense_is_refused() {
        let page = rustix::param::page_size();
        assert_eq!(Extent::around(page + 1, 1), Some(Extent { start: page, end: 2 * page }));
        assert_eq!(Extent::around(page, page), Some(Extent { start: page, end: 2 * page }));
        assert_eq!(Extent::around(2 * page - 1, 2), Some(Extent { start: page, end: 3 * page }));
        assert_eq!(Extent::around(page, 0), None);
        assert_eq!(Extent::around(usize::MAX - 1, 2), None);
        assert_eq!(Extent::around(usize::MAX - page / 2, 1), None);
    }

    #[test]
    fn what_is_outside_of_kept_extents_comes_in_pieces() {
        let pieces = |kept: &[Option<Extent>]| {
            let mut pieces = Vec::new();
            Extent { start: 10, end: 20 }.for_each_outside(kept, |piece| pieces.push((piece.start, piece.end)));
            pieces
        };
        let kept = |start, end| Some(Extent { start, end });
        assert_eq!(pieces(&[]), [(10, 20)]);
        assert_eq!(pieces(&[None, kept(0, 10), kept(20, 30)]), [(10, 20)]);
        assert_eq!(pieces(&[kept(12, 14), kept(16, 18)]), [(10, 12), (14, 16), (18, 20)]);
        assert_eq!(pieces(&[kept(5, 14), kept(13, 25)]), []);
        assert_eq!(pieces(&[kept(15, 25), kept(0, 11)]), [(11, 15)]);
    }
}
