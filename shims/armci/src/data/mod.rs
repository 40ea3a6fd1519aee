//! Put, get and accumulate of every shape.

pub mod blocking;
pub mod flag;
pub(crate) mod handles;
pub mod nonblocking;
pub mod rmw;
pub mod strides;
mod transfer;
pub mod value;
mod vector;
pub mod wait;
