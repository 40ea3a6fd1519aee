//! What the tests share: memory to unmap, and a registrar that records.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod mapping;

#[path = "../../../verbs/tests/skipped/mod.rs"]
mod skipped;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use longarm_registration::{Cache, CacheError, Options, RegisterError, Registrar, Watch};

use mapping::page_bytes;

/// What a device would know: which registrations there are.
#[derive(Default)]
pub struct Device {
    /// Start and length, by number.
    pub registered: BTreeMap<u64, (usize, usize)>,
    pub made: u64,
    /// How many bytes it takes at the most; none for no bound.
    pub bytes_max: Option<usize>,
    /// How often the next calls are refused with an error of the system.
    pub failures: u32,
}

impl Device {
    pub fn bytes(&self) -> usize {
        self.registered.values().map(|(_, bytes)| bytes).sum()
    }
}

/// Gives every registration a number, and remembers those that exist.
#[derive(Clone, Default)]
pub struct Recording(pub Arc<Mutex<Device>>);

/// A registration: what the first byte of each page was when it was made, which a card would go on seeing.
pub struct Recorded {
    device: Arc<Mutex<Device>>,
    pub number: u64,
    pub start: usize,
    /// By page; empty unless the addresses are real.
    pub content: Vec<u8>,
}

/// The same, for memory that exists.
#[derive(Clone, Default)]
pub struct Looking(pub Recording);

impl Registrar for Recording {
    type Handle = Recorded;
    fn register(&self, start: usize, bytes: usize) -> Result<Recorded, RegisterError> {
        let mut device = self.0.lock().unwrap();
        assert!(start.is_multiple_of(page_bytes()) && bytes.is_multiple_of(page_bytes()) && bytes > 0);
        if device.failures > 0 {
            device.failures -= 1;
            return Err(RegisterError::System { errno: 5 });
        }
        if device.bytes_max.is_some_and(|bytes_max| device.bytes() + bytes > bytes_max) {
            return Err(RegisterError::Limit { bytes });
        }
        device.made += 1;
        let number = device.made;
        device.registered.insert(number, (start, bytes));
        Ok(Recorded { device: Arc::clone(&self.0), number, start, content: Vec::new() })
    }
}

impl Registrar for Looking {
    type Handle = Recorded;
    fn register(&self, start: usize, bytes: usize) -> Result<Recorded, RegisterError> {
        let mut made = self.0.register(start, bytes)?;
        made.content = mapping::first_bytes(start, bytes).ok_or(RegisterError::BadRange { start, bytes })?;
        Ok(made)
    }
}

impl Recorded {
    /// What the card sees at this address, which begins a page.
    pub fn sees(&self, address: usize) -> u8 {
        self.content[(address - self.start) / page_bytes()]
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let removed = self.device.lock().unwrap().registered.remove(&self.number);
        assert!(removed.is_some(), "deregistered twice");
    }
}

/// A cache that watches memory, or none where the kernel does not let us, which the output tells.
pub fn watching<R: Registrar>(registrar: R, options: Options) -> Option<Cache<R>> {
    match Cache::new(registrar, Options { watch: Watch::Userfault, ..options }) {
        Ok(cache) => Some(cache),
        Err(error @ CacheError::Userfault { .. }) => {
            skipped::skipped(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}
