//! What the machine counts while a thread works: cache misses, where it has a counter for them that may be used.

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};

/// Counts of this thread, or why there are none.
pub(crate) struct Misses(Result<Counter, std::io::Error>);

impl Misses {
    /// Of the last cache, also while the kernel copies for the thread: some ways leave it all to the kernel.
    pub(crate) fn of_caches() -> Misses {
        Misses::of(Hardware::CACHE_MISSES)
    }

    fn of(event: impl Into<Event>) -> Misses {
        let mut builder = Builder::new().kind(event);
        builder.include_kernel();
        Misses(builder.build())
    }

    /// Why nothing is counted, and what to do.
    pub(crate) fn refusal(&self) -> Option<String> {
        let error = self.0.as_ref().err()?;
        Some(match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                format!("{error}. Set kernel.perf_event_paranoid to 1 or less, or run it as root")
            }
            std::io::ErrorKind::NotFound | std::io::ErrorKind::Unsupported => {
                "this machine, or the virtual one, has no counters of the processor".to_owned()
            }
            _ => error.to_string(),
        })
    }

    /// From nothing.
    pub(super) fn start(&mut self) {
        let Ok(counter) = &mut self.0 else { return };
        if let Err(error) = counter.reset().and_then(|()| counter.enable()) {
            self.0 = Err(error);
        }
    }

    /// How many there were since the start.
    pub(super) fn stop(&mut self) -> Option<u64> {
        let Ok(counter) = &mut self.0 else { return None };
        match counter.disable().and_then(|()| counter.read()) {
            Ok(count) => Some(count),
            Err(error) => {
                self.0 = Err(error);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use perf_event::events::Software;

    use super::*;

    #[test]
    fn what_happens_between_start_and_stop_is_counted() {
        // This one the kernel counts by itself, so machines without counters have it too.
        let mut faults = Misses::of(Software::PAGE_FAULTS);
        if let Some(refusal) = faults.refusal() {
            eprintln!("left out: this process may count nothing: {refusal}");
            return;
        }
        let touched = |pages: usize| {
            let mut memory = memmap2::MmapMut::map_anon(pages * 4096).unwrap();
            memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        };
        touched(500);
        faults.start();
        touched(100);
        let counted = faults.stop().unwrap();
        assert!((1..400).contains(&counted), "{counted} of about 100");
        touched(500);
        assert_eq!(faults.stop(), Some(counted), "nothing is counted behind the stop");
    }
}
