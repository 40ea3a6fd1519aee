//! The numbers of windows.

use parking_lot::Mutex;

use super::name::{FreshName, Name};

/// The window numbers that this rank gives out. A number is used again after its window was freed, with the next
/// generation.
pub(crate) struct WindowNumbers(Mutex<Numbers>);

#[derive(Default)]
struct Numbers {
    count: u32,
    free: Vec<Name>,
    /// Of windows that not every node has forgotten yet, for all that this rank knows.
    resting: Vec<Name>,
    /// What the next window of the world will be called, as all ranks were told with the one before.
    announced: Option<FreshName>,
}

impl WindowNumbers {
    pub(crate) fn new() -> WindowNumbers {
        WindowNumbers(Mutex::new(Numbers::default()))
    }

    pub(super) fn take(&self) -> Name {
        let mut numbers = self.0.lock();
        numbers.free.pop().unwrap_or_else(|| {
            numbers.count += 1;
            Name { number: numbers.count, generation: 1 }
        })
    }

    /// What the window of the world that is made now was said to be called. Forgotten here, for whoever fails now may not hear what the
    /// others do.
    pub(super) fn take_announced(&self) -> Option<FreshName> {
        self.0.lock().announced.take()
    }

    /// The first rank has told all what the next window of the world will be called.
    pub(super) fn announce(&self, next: Option<FreshName>) {
        self.0.lock().announced = next;
    }

    /// It is given back when all ranks have met again: each node forgets a window before its ranks do that. A program whose threads call
    /// collectives of the world in an order that only the free decides is wrong, as every program without one order for all ranks.
    pub(super) fn rest(&self, name: Name) {
        self.0.lock().resting.push(name);
    }

    /// All ranks have met since the last number was to rest.
    pub(super) fn have_met(&self) {
        let rested = std::mem::take(&mut self.0.lock().resting);
        rested.into_iter().for_each(|name| self.give_back(name));
    }

    pub(super) fn give_back(&self, Name { number, generation }: Name) {
        // A number whose generations are used up is not used again.
        if let Some(generation) = generation.checked_add(1) {
            self.0.lock().free.push(Name { number, generation });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_rests_until_all_have_met_and_comes_again_with_the_next_generation() {
        let numbers = WindowNumbers::new();
        let name = |number, generation| Name { number, generation };
        assert_eq!((numbers.take(), numbers.take()), (name(1, 1), name(2, 1)));
        numbers.rest(name(1, 1));
        assert_eq!(numbers.take(), name(3, 1), "a node may still have the first window");
        numbers.have_met();
        assert_eq!(numbers.take(), name(1, 2));
        numbers.have_met();
        assert_eq!(numbers.take(), name(4, 1), "it rested once");
        numbers.rest(name(4, u32::MAX));
        numbers.have_met();
        assert_eq!(numbers.take(), name(5, 1), "its generations are used up");
    }
}
