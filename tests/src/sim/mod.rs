//! The fault simulation: random programs on devices in a bad network, and a checker of the outcome.
//!
//! ```text
//! seed ─→ generate ─→ Plan ─┬─→ run (devices, simulated network) ─→ actual outcome ─┐
//!                           └─→ Model (replay in post order) ─→ expected outcome ───┴─→ Checker
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`plan`] | a run as plain data: devices, memory, connections, work requests, faults |
//! | [`generate`] | a plan from a seed |
//! | [`model`] | the outcome of a plan: memory images, received messages, atomics' old values |
//! | [`run`] | carries a plan out |
//! | [`host`] | one device with its program's memory, queue pairs and injected bug |
//! | [`keys`] | keys that a peer invalidates or releases, and their successors |
//! | [`checker`] | compares a run with the model and reports each difference |
//! | [`peer_loss`] | checks the ends whose connection must break |
//!
//! Each plan has one outcome. Each direction of a connection has memory of its own at both ends,
//! except for cells to which several directions only add. Where the specification leaves the
//! outcome open (a READ and a later WRITE of the same bytes without a fence), the model knows all
//! permitted values.

pub mod checker;
pub mod generate;
pub mod host;
pub mod keys;
pub mod model;
pub mod peer_loss;
pub mod plan;
pub mod run;
