//! Huge pages for memory that processes share: the processor then finds an address by one entry for 2 MiB in place of 512.
//!
//! The system makes none of shared memory by itself where `shmem_enabled` is `never`, its default. `MADV_COLLAPSE` (Linux 6.1) asks for one
//! page at a time and says whether it was had, whatever that setting is, but for `deny`.

use std::io;

use crate::region::RegionMut;

/// What a region has of huge pages after [`RegionMut::take_huge_pages`].
#[derive(Debug)]
pub struct TakenHugePages {
    /// How many lie wholly inside the region.
    pub wanted: usize,
    /// How many of these there are now.
    pub taken: usize,
    /// Why there are not all: what the system said last.
    pub refusal: Option<io::Error>,
}

impl RegionMut<'_> {
    /// Makes huge pages of the region, as far as whole ones lie in it: all their memory is taken from the system now, near the
    /// processor of the calling thread, if nothing is there yet. The bytes stay as they are; others may use them meanwhile.
    ///
    /// The region is of a memfd, mapped so that huge pages of the file lie at multiples of `huge_page_bytes`, a power of two, else
    /// none is taken. If the system has none of a size left, or knows no such request, the rest is left as it is.
    ///
    /// # Panics
    /// If `huge_page_bytes` is no power of two.
    #[must_use = "the system may have refused"]
    pub fn take_huge_pages(self, huge_page_bytes: usize) -> TakenHugePages {
        assert!(huge_page_bytes.is_power_of_two(), "a page is a power of two");
        let before = self.as_ptr().addr().wrapping_neg() % huge_page_bytes;
        let wanted = self.len().saturating_sub(before) / huge_page_bytes;
        let mut all = TakenHugePages { wanted, taken: 0, refusal: None };
        for number in 0..wanted {
            let page = self.slice(before + number * huge_page_bytes, huge_page_bytes);
            // The system finds a place near whoever has touched it, and refuses what nobody has.
            page.slice(0, 1).copy_to_slice(&mut [0]);
            match collapse(page) {
                Ok(()) => all.taken += 1,
                Err(error) => {
                    let may_succeed_elsewhere = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY));
                    all.refusal = Some(error);
                    if !may_succeed_elsewhere {
                        break;
                    }
                }
            }
        }
        all
    }
}

fn collapse(page: RegionMut<'_>) -> io::Result<()> {
    // SAFETY: the region is mapped by its contract; the system changes which memory is behind these addresses, and no byte of it.
    match unsafe { libc::madvise(page.as_mut_ptr().cast(), page.len(), libc::MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_are_wanted() {
        let mut bytes = vec![7; 4096];
        let start = bytes.as_ptr().addr();
        let page = 1024;
        let region = RegionMut::from_slice(&mut bytes);
        let first = start.next_multiple_of(page) - start;
        assert_eq!(region.take_huge_pages(page).wanted, (4096 - first) / page);
        assert_eq!(region.slice(first, page - 1).take_huge_pages(page).wanted, 0);
        assert_eq!(region.slice(first, page).take_huge_pages(page).wanted, 1);
        assert_eq!(region.slice(first + 1, page).take_huge_pages(page).wanted, 0);
    }

    #[test]
    fn what_is_missing_has_a_reason_and_no_byte_changes() {
        let mut bytes = vec![7; 3 << 12];
        let pages = RegionMut::from_slice(&mut bytes).take_huge_pages(1 << 12);
        assert_eq!(pages.refusal.is_some(), pages.taken < pages.wanted, "{pages:?}");
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
