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
//!
//! ```
//! use std::net::IpAddr;
//! use urxe_sim::{LinkFaults, SimNetwork};
//! use urxe_types::port::{Run, Transmit};
//! use urxe_types::rng::Probability;
//!
//! let network = SimNetwork::new(7);
//! let (from, to): (IpAddr, IpAddr) = ("10.0.0.1".parse()?, "10.0.0.2".parse()?);
//! let (sender, receiver) = (network.add_node(&[from])?, network.add_node(&[to])?);
//! let loss = Probability::from_percent(30);
//! let faults = LinkFaults { loss, delay_ns: 500, ..LinkFaults::default() };
//! network.set_faults(sender.node(), receiver.node(), faults);
//!
//! // 64 packets of 100 bytes.
//! let (bytes, segment_size) = (&[0; 6_400], 100);
//! let (from_port, traffic_class, hop_limit) = (4791, 0, 0);
//! sender.transmit(&Run { from, from_port, to, bytes, segment_size, traffic_class, hop_limit });
//!
//! // Virtual time goes from event to event.
//! let mut received = 0;
//! while let Some(at) = network.next_event() {
//!     network.advance(at);
//!     network.deliver(|_, datagrams| received += datagrams.segments().len());
//! }
//! assert!(network.now().as_ns() >= 500);
//! assert_eq!(received as u64, 64 - network.counters().lost);
//! assert!(received < 64);
//! # Ok::<(), Box<dyn std::error::Error>>(())
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
