//! Latency, bandwidth and message rate, of longarm ([`rank`]) and of the machine ([`limits`]).

pub(crate) mod buffer;
pub(crate) mod limits;
pub(crate) mod processors;
pub(crate) mod rank;
pub(crate) mod sample;
