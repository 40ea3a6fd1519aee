//! Tables whose keys have the type of what stands there, so that the key of a trunk is never taken for that of a channel.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use slab::Slab;

/// Where a `T` stands in its [`Table`]. Once it has gone the key is another one's, or nobody's.
pub(super) struct Key<T> {
    number: usize,
    table: PhantomData<fn() -> T>,
}

/// The `T`s of a router.
pub(super) struct Table<T>(Slab<T>);

impl<T> Key<T> {
    fn new(number: usize) -> Key<T> {
        Key { number, table: PhantomData }
    }

    /// The key that a poller's token was made of.
    pub(super) fn of_token(number: u64) -> Key<T> {
        Key::new(number as usize)
    }

    /// What of a poller's token tells it from others of its kind.
    pub(super) fn token(self) -> u64 {
        self.number as u64
    }
}

// Not derived: a key is copied and compared whatever its `T` can do.
impl<T> Clone for Key<T> {
    fn clone(&self) -> Key<T> {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Key<T>) -> bool {
        self.number == other.number
    }
}

impl<T> Table<T> {
    pub(super) fn new() -> Table<T> {
        Table(Slab::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key that what is inserted next gets.
    pub(super) fn vacant_key(&self) -> Key<T> {
        Key::new(self.0.vacant_key())
    }

    pub(super) fn insert(&mut self, value: T) -> Key<T> {
        Key::new(self.0.insert(value))
    }

    pub(super) fn contains(&self, key: Key<T>) -> bool {
        self.0.contains(key.number)
    }

    pub(super) fn get(&self, key: Key<T>) -> Option<&T> {
        self.0.get(key.number)
    }

    pub(super) fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        self.0.get_mut(key.number)
    }

    /// # Panics
    /// When nothing stands there.
    pub(super) fn remove(&mut self, key: Key<T>) -> T {
        self.0.remove(key.number)
    }

    pub(super) fn try_remove(&mut self, key: Key<T>) -> Option<T> {
        self.0.try_remove(key.number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        self.0.iter().map(|(number, value)| (Key::new(number), value))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

impl<T> Index<Key<T>> for Table<T> {
    type Output = T;

    fn index(&self, key: Key<T>) -> &T {
        &self.0[key.number]
    }
}

impl<T> IndexMut<Key<T>> for Table<T> {
    fn index_mut(&mut self, key: Key<T>) -> &mut T {
        &mut self.0[key.number]
    }
}
