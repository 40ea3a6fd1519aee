//! The programs that pages show, compiled and run as tests: `cargo test -p longarm-pages`.
//!
//! They stand here and not in the crate `longarm`, because what is published of that holds no page outside its folder.
#![forbid(unsafe_code)]

/// The programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmePage;

/// The programs of the page about the Rust interface.
#[cfg(doctest)]
#[doc = include_str!("../../src/api.md")]
struct ApiPage;

/// The first program of a reader.
#[cfg(doctest)]
#[doc = include_str!("../../src/getting-started.md")]
struct GettingStartedPage;

/// A program that is tested in the simulator.
#[cfg(doctest)]
#[doc = include_str!("../../src/simulating.md")]
struct SimulatingPage;
