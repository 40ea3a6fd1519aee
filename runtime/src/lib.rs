//! One-sided communication: read, write and update another process's memory without asking it.

pub mod bootstrap;
pub mod config;
pub mod topology;
