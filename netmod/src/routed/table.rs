//! Tables whose keys have the type of their table, so that the key of a trunk is never taken for that of a channel. They say nothing of
//! what stands there: a trunk has the keys of its channels, and a channel that of its trunk.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use slab::Slab;

/// Where something stands in a [`Table`] of the kind `K`. Once it has gone the key is another one's, or nobody's.
pub(super) struct Key<K> {
    number: usize,
    table: PhantomData<fn() -> K>,
}

/// The `T`s of a router.
pub(super) struct Table<K, T> {
    slab: Slab<T>,
    kind: PhantomData<fn() -> K>,
}

/// The table of trunks.
pub(super) enum Trunks {}
/// That of channels.
pub(super) enum Channels {}

/// Where a router has a trunk.
pub(super) type TrunkKey = Key<Trunks>;
/// Where a router has a channel. Its number is another thing: both ends of the trunk know that one.
pub(super) type ChannelKey = Key<Channels>;

impl<K> Key<K> {
    fn new(number: usize) -> Key<K> {
        Key { number, table: PhantomData }
    }

    /// The key that a poller's token was made of.
    pub(super) fn of_token(number: u64) -> Key<K> {
        Key::new(number as usize)
    }

    /// What of a poller's token tells it from others of its kind.
    pub(super) fn token(self) -> u64 {
        self.number as u64
    }
}

// Not derived: a key is copied and compared whatever its kind can do.
impl<K> Clone for Key<K> {
    fn clone(&self) -> Key<K> {
        *self
    }
}

impl<K> Copy for Key<K> {}

impl<K> PartialEq for Key<K> {
    fn eq(&self, other: &Key<K>) -> bool {
        self.number == other.number
    }
}

impl<K, T> Table<K, T> {
    pub(super) fn new() -> Table<K, T> {
        Table { slab: Slab::new(), kind: PhantomData }
    }

    pub(super) fn insert(&mut self, value: T) -> Key<K> {
        Key::new(self.slab.insert(value))
    }

    pub(super) fn get(&self, key: Key<K>) -> Option<&T> {
        self.slab.get(key.number)
    }

    pub(super) fn get_mut(&mut self, key: Key<K>) -> Option<&mut T> {
        self.slab.get_mut(key.number)
    }

    /// # Panics
    /// When nothing stands there.
    pub(super) fn remove(&mut self, key: Key<K>) -> T {
        self.slab.remove(key.number)
    }

    pub(super) fn try_remove(&mut self, key: Key<K>) -> Option<T> {
        self.slab.try_remove(key.number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key<K>, &T)> {
        self.slab.iter().map(|(number, value)| (Key::new(number), value))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slab.iter_mut().map(|(_, value)| value)
    }
}

impl<K, T> Index<Key<K>> for Table<K, T> {
    type Output = T;

    fn index(&self, key: Key<K>) -> &T {
        &self.slab[key.number]
    }
}

impl<K, T> IndexMut<Key<K>> for Table<K, T> {
    fn index_mut(&mut self, key: Key<K>) -> &mut T {
        &mut self.slab[key.number]
    }
}
