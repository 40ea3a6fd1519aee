//! Windows: memory that every rank of a group may read, write and update.

mod accumulate;
mod ahead;
mod allocate;
mod atomic;
mod huge;
pub(crate) mod kept;
mod many;
mod many_handle;
pub(crate) mod map;
mod merged;
mod name;
pub(crate) mod numbers;
mod own_part;
mod proposal;
mod shared;
mod signal;
mod transfer;
mod wait;

pub use accumulate::Update;
pub use ahead::MemoryOfNodes;
pub use many_handle::ManyHandle;
pub use own_part::OwnPart;
pub use shared::Window;
pub(crate) use shared::WindowInner;
pub use wait::Compare;
