//! The turns of the threads that serve connections: that of the [coordinator](CoordinatorDesk) and that of a [relay](RelayDesk). What they say
//! and decide stands in [`crate::coordinator`] and [`crate::relay`]; here is what is read when, what is sent together, and what waits.
//! Their sockets are behind [`Sockets`], so that they are the same turns over those of a system and over those of a simulator.
//!
//! ```text
//!   ready connections ──▶ desk ──▶ coordinator or relay ──▶ effects ──▶ desk ──▶ lines ──▶ sockets
//! ```

mod coordinator_desk;
mod lines;
#[cfg(test)]
mod mock;
mod relay_desk;
mod sockets;

pub use coordinator_desk::{CoordinatorDesk, Surroundings};
pub use relay_desk::{COORDINATOR, RelayDesk};
pub use sockets::{FLUSH, Readiness, Sockets};
