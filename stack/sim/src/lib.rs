//! The simulated network: seeded, in virtual time, deterministic.
//!
//! [`SimNetwork`] carries runs between nodes as the UDP port would: a run goes on the wire as
//! single packets, packets that arrive together may be merged as by GRO. Each direction between two
//! nodes has its own [`LinkFaults`]; [`Pause`]s stop nodes and links for a while. [`Fabric`] moves
//! whole devices over it, all in one thread.
//!
//! [`impairment`] does to the packets of a real port what a bad network does.
//!
//! Everything follows from the seed and the calls: [`SimNetwork::trace_hash`] is the same for two
//! equal runs. Links and nodes draw from generators of their own, so that a change at one does not
//! move the others. Every queue is bounded, and [`SimCounters`] says what became of each packet.
//!
//! ```text
//!   transmit ─→ MTU ─→ rate, queue ─→ loss ─→ duplicate ─→ corrupt, delay, reorder ─→ pause ─→ buffer ─→ merge ─→ read
//! ```

#![forbid(unsafe_code)]

mod counters;
mod delay_queue;
mod fabric;
pub mod impairment;
mod link;
mod link_faults;
mod network;
mod receive;

#[cfg(test)]
mod tests;

pub use counters::SimCounters;
pub use fabric::{DeviceHost, Fabric, SimHost, Stalled};
pub use link_faults::{LinkFaults, NodeConfig, NodeId, Pause, PauseScope, PausedPackets};
pub use network::{AddNodeError, SimGroups, SimNetwork, SimPort};
pub use receive::MAX_RUN_BYTES;
pub use urxe_types::port::MAX_RUN_SEGMENTS;
