//! The harnesses of the tests: the fault simulation, Debian's programs, and real kernels as peers.

// A reader copies these programs, which the compiler accepts without a warning.
#![doc(test(attr(deny(unused_must_use))))]

pub mod kernel;
pub mod process;
pub mod programs;
pub mod sim;

/// The Rust programs of the book, which run as tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../docs/rust.md")]
pub struct BookPrograms;
