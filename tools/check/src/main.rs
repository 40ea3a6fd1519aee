//! The rules of the source tree that a machine can hold.
fn main() {}
