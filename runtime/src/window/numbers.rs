//! The numbers of windows.

use parking_lot::Mutex;

/// The window numbers that this rank gives out. A number is used again after its window was freed, with the next
/// generation.
pub(crate) struct WindowNumbers(Mutex<Numbers>);

#[derive(Default)]
struct Numbers {
    count: u32,
    free: Vec<(u32, u32)>,
}

impl WindowNumbers {
    pub(crate) fn new() -> WindowNumbers {
        WindowNumbers(Mutex::new(Numbers::default()))
    }

    pub(super) fn take(&self) -> (u32, u32) {
        let mut numbers = self.0.lock();
        numbers.free.pop().unwrap_or_else(|| {
            numbers.count += 1;
            (numbers.count, 1)
        })
    }

    pub(super) fn give_back(&self, number: u32, generation: u32) {
        // A number whose generations are used up is not used again.
        if let Some(generation) = generation.checked_add(1) {
            self.0.lock().free.push((number, generation));
        }
    }
}
