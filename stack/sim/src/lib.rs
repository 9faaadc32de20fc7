//! A simulated network in virtual time. A seed determines all random decisions.
//!
//! [`SimNetwork`] transfers runs between nodes as the UDP port does: a run is sent as single
//! packets, and packets that arrive together may be merged as by GRO. Each direction between two
//! nodes has its own [`LinkFaults`]. A [`Pause`] stops a node or a link for a while. [`Fabric`]
//! drives whole devices in one thread.
//!
//! [`impairment`] applies the same faults to packets of a real port.
//!
//! The result follows from the seed and the calls only: [`SimNetwork::trace_hash`] is the same for
//! two equal runs. Nodes and links have separate random number generators, so a change of one does
//! not affect the others. All queues are bounded, and [`SimCounters`] counts the fate of each
//! packet.
//!
//! ```text
//!   transmit ─→ MTU ─→ rate, queue ─→ loss ─→ duplicate ─→ corrupt, delay, reorder
//!            ─→ pause ─→ buffer ─→ merge ─→ read
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
