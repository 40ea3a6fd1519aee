//! What windows are called before they are there.

use longarm_client::WindowIdentity;
use longarm_proto::{AccessKey, Generation, Rank, WindowId};

use crate::error::WindowError;
use crate::stage;

/// A window's number among those of its creator, and generation. Numbers start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) number: u32,
    pub(super) generation: u32,
}

impl Name {
    pub(super) fn word(name: Option<Name>) -> u64 {
        name.map_or(0, |name| u64::from(name.number) << 32 | u64::from(name.generation))
    }

    pub(super) fn read(word: u64) -> Option<Name> {
        let (number, generation) = ((word >> 32) as u32, word as u32);
        (number != 0).then_some(Name { number, generation })
    }

    /// The window that `creator` has given this name.
    pub(super) fn window(self, creator: Rank) -> (WindowId, Generation) {
        (WindowId(u64::from(creator.0) << 32 | u64::from(self.number)), Generation(self.generation))
    }

    /// Without the creator: of a window of the world, all of which rank 0 has named.
    pub(super) fn of(window: WindowId, generation: Generation) -> Name {
        debug_assert_eq!(window.0 >> 32, 0, "a window of the world");
        Name { number: window.0 as u32, generation: generation.0 }
    }
}

/// A name that no window has, and the key that requests for the window will have to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreshName {
    pub(super) name: Name,
    pub(super) key: u64,
}

impl FreshName {
    pub(super) fn with_random_key(name: Name) -> Result<FreshName, WindowError> {
        let mut key = [0; 8];
        match stage::here() {
            // Where ranks of a node update a word together follows from it, and so may when.
            Some(stage) => stage.random(&mut key),
            None => getrandom::fill(&mut key).map_err(|_| WindowError::Door { reason: "no random numbers".into() })?,
        }
        Ok(FreshName { name, key: u64::from_le_bytes(key) })
    }

    pub(super) fn identity(&self, creator: Rank) -> WindowIdentity {
        let (window, generation) = self.name.window(creator);
        WindowIdentity { window, generation, key: AccessKey(self.key) }
    }

    pub(super) fn words(fresh: Option<FreshName>) -> [u64; 2] {
        [Name::word(fresh.map(|fresh| fresh.name)), fresh.map_or(0, |fresh| fresh.key)]
    }

    pub(super) fn read(name: u64, key: u64) -> Option<FreshName> {
        Name::read(name).map(|name| FreshName { name, key })
    }
}
