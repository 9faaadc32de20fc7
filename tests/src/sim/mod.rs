//! The fault simulation: random programs on devices in a bad network, and a judge of what came out.
//!
//! ```text
//!   seed ─→ generate ─→ Plan ─┬─→ run (devices, simulated network, virtual time) ─→ completions, memory ─┐
//!                             └─→ Model (replay in post order, no network) ─→ what must come out ────────┴─→ Checker
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`plan`] | what a run does: devices, memory, connections, work requests, faults; plain data |
//! | [`generate`] | a plan from a seed |
//! | [`model`] | what a plan must lead to: memory images, received messages, atomics' old values |
//! | [`run`] | carries a plan out |
//! | [`host`] | one device with its program's memory, queue pairs and saboteur |
//! | [`keys`] | keys that a peer takes away or is done with, and their successors |
//! | [`checker`] | compares what happened with the model; tells each difference |
//! | [`peer_loss`] | judges the ends whose connection must break |
//!
//! The plan is made so that its outcome is one: each direction of a connection has memory of its
//! own at both ends, but for cells that several directions only add to. Where the specification
//! leaves the outcome open (a READ and a later WRITE of the same bytes without a fence), the model
//! knows all permitted values.

pub mod checker;
pub mod generate;
pub mod host;
pub mod keys;
pub mod model;
pub mod peer_loss;
pub mod plan;
pub mod run;
