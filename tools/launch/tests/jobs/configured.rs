//! A configuration: the environment's and the program's do the same.

use longarm::World;
use longarm::config::Config;
use longarm::error::WindowError;

use super::transfers;

/// Some that show in what a program does, and some that change how it is done.
pub const VARIABLES: &[(&str, &str)] = &[
    ("LONGARM_HEAP_BYTES", "1m"),
    ("LONGARM_WINDOW_BYTES_MAX", "64m"),
    ("LONGARM_ENCRYPT", "yes"),
    ("LONGARM_EAGER_BYTES", "256"),
    ("LONGARM_SPIN_US", "0"),
    ("LONGARM_CONNECTIONS_MAX", "0"),
];

/// The same, set by name.
pub fn by_names() -> Config {
    let mut config = Config::default();
    for (name, value) in VARIABLES {
        config.set(name, value).expect("the value is accepted");
    }
    config
}

/// The same as fields.
pub fn by_fields() -> Config {
    let mut config = Config::default();
    config.heap_bytes = 1 << 20;
    config.window_bytes_max = 64 << 20;
    config.encrypt = true;
    config.eager_bytes = 256;
    config.spin_us = 0;
    config.connections_max = 0;
    config
}

/// What these values make of a program.
pub fn used(world: &World) {
    let entries = world.config().entries();
    for (name, value) in VARIABLES {
        let entry = entries.iter().find(|entry| entry.name == *name).expect("the name is known");
        assert_eq!(entry.value, *value, "{name}");
        assert!(world.config().is_set(name), "{name}");
    }
    assert_eq!(world.heap_collective().expect("a heap").bytes(), 1 << 20);
    let too_large = world.allocate_collective::<u8>((64 << 20) + 1);
    assert!(matches!(too_large, Err(WindowError::TooLarge { bytes_max, .. }) if bytes_max == 64 << 20));
    transfers::words(world);
}
