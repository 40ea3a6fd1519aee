//! Benchmarks of longarm beside what the machine allows.
