//! The numbers of windows.

use parking_lot::Mutex;

/// The window numbers that this rank gives out. A number is used again after its window was freed, with the next
/// generation.
pub(crate) struct WindowNumbers(Mutex<Numbers>);

#[derive(Default)]
struct Numbers {
    count: u32,
    free: Vec<(u32, u32)>,
    /// Of windows that not every node has forgotten yet, for all that this rank knows.
    resting: Vec<(u32, u32)>,
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

    /// It is given back when all ranks have met again: each node forgets a window before its ranks do that. A program whose threads call
    /// collectives of the world in an order that only the free decides is wrong, as every program without one order for all ranks.
    pub(super) fn rest(&self, number: u32, generation: u32) {
        self.0.lock().resting.push((number, generation));
    }

    /// All ranks have met since the last number was to rest.
    pub(super) fn have_met(&self) {
        let rested = std::mem::take(&mut self.0.lock().resting);
        for (number, generation) in rested {
            self.give_back(number, generation);
        }
    }

    pub(super) fn give_back(&self, number: u32, generation: u32) {
        // A number whose generations are used up is not used again.
        if let Some(generation) = generation.checked_add(1) {
            self.0.lock().free.push((number, generation));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_rests_until_all_have_met_and_comes_again_with_the_next_generation() {
        let numbers = WindowNumbers::new();
        assert_eq!((numbers.take(), numbers.take()), ((1, 1), (2, 1)));
        numbers.rest(1, 1);
        assert_eq!(numbers.take(), (3, 1), "a node may still have the first window");
        numbers.have_met();
        assert_eq!(numbers.take(), (1, 2));
        numbers.have_met();
        assert_eq!(numbers.take(), (4, 1), "it rested once");
        numbers.rest(4, u32::MAX);
        numbers.have_met();
        assert_eq!(numbers.take(), (5, 1), "its generations are used up");
    }
}
