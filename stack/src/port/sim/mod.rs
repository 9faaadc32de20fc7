//! The simulated network: seeded, in virtual time, deterministic.
//!
//! [`SimNetwork`] carries runs between nodes as the UDP port would: a run goes on the wire as
//! single packets, packets that arrive together may be merged as by GRO. Each direction between two
//! nodes has its own [`LinkFaults`]; [`Pause`]s stop nodes and links for a while. [`Fabric`] moves
//! whole devices over it, all in one thread.
//!
//! Everything follows from the seed and the calls: [`SimNetwork::trace_hash`] is the same for two
//! equal runs. Links and nodes draw from generators of their own, so that a change at one does not
//! move the others. Every queue is bounded, and [`SimCounters`] says what became of each packet.
//!
//! ```text
//!   transmit ─→ MTU ─→ rate, queue ─→ loss ─→ duplicate ─→ corrupt, delay, reorder ─→ pause ─→ buffer ─→ merge ─→ read
//! ```

mod counters;
mod fabric;
mod faults;
mod groups;
pub(super) mod link;
mod network;
mod receive;
mod trace;

#[cfg(test)]
mod tests;

pub use counters::SimCounters;
pub use fabric::{DeviceMachine, Fabric, Machine, Stalled};
pub use faults::{LinkFaults, NodeConfig, Pause, PauseScope, PausedPackets};
pub use groups::SimGroups;
pub use network::{AddNodeError, SimNetwork, SimPort};

/// The most packets of a run or a merged read: what Linux takes in one GSO call.
pub use crate::port::MAX_RUN_SEGMENTS;
/// The most bytes of a run or a merged read: the largest UDP payload over IPv4.
pub const MAX_RUN_BYTES: usize = 65_507;

/// A node of a [`SimNetwork`], in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

impl NodeId {
    /// 0 for the node that was added first, and so on.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}
