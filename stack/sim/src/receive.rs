//! The receiving socket of a node: a bounded buffer, a delayed read, and merging as by GRO.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::link_faults::{NodeConfig, NodeId};
use urxe_types::port::MAX_RUN_SEGMENTS;
use urxe_types::rng::Rng;
use urxe_types::time::Time;

/// The maximum number of bytes of a run or a merged read: the largest UDP payload over IPv4.
pub const MAX_RUN_BYTES: usize = 65_507;
/// The bytes that Linux charges for a packet in addition to its data: `struct skb_shared_info` and
/// `struct sk_buff`.
const SHARED_INFO_BYTES: usize = 320;
const SK_BUFF_BYTES: usize = 256;
/// The room for headers in front of the packet.
const HEADROOM_BYTES: usize = 64;

/// A packet that arrived at its receiver.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) sender: NodeId,
    pub(super) receiver: NodeId,
    pub(super) from: IpAddr,
    pub(super) from_port: u16,
    pub(super) to: IpAddr,
    pub(super) traffic_class: u8,
    /// The IPv4 identification, which is the index of the packet in its run.
    pub(super) identification: u16,
    pub(super) payload: Vec<u8>,
}

/// Returns the number of bytes that the buffer is charged for a payload of `len` bytes. Linux
/// allocates a power of two.
pub(super) fn charge_bytes(len: usize) -> usize {
    (len + HEADROOM_BYTES + SHARED_INFO_BYTES).next_power_of_two().max(512) + SK_BUFF_BYTES
}

/// The result of one read: [`Datagrams`] with their own bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) from: IpAddr,
    pub(super) from_port: u16,
    pub(super) to: IpAddr,
    pub(super) traffic_class: u8,
    pub(super) segment_size: usize,
    pub(super) segments: usize,
    pub(super) bytes: Vec<u8>,
}

/// The packets that arrived and are not read yet.
#[derive(Debug, Default)]
pub(super) struct ReceiveBuffer {
    packets: VecDeque<Packet>,
    charged_bytes: usize,
    /// The arrival time of the first packet.
    oldest: Time,
}

impl ReceiveBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns the time at which the program reads, unless a pause stops the node.
    pub(super) fn wants_read_at(&self, config: &NodeConfig) -> Option<Time> {
        (!self.is_empty()).then(|| self.oldest.plus_ns(config.read_delay_ns))
    }

    /// Adds a packet. Returns the packet if the buffer is full.
    pub(super) fn push(
        &mut self,
        packet: Packet,
        now: Time,
        config: &NodeConfig,
    ) -> Result<(), Packet> {
        let charge = charge_bytes(packet.payload.len());
        if self.charged_bytes + charge > config.receive_buffer_bytes {
            return Err(packet);
        }
        if self.packets.is_empty() {
            self.oldest = now;
        }
        self.charged_bytes += charge;
        self.packets.push_back(packet);
        Ok(())
    }

    fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.charged_bytes -= charge_bytes(packet.payload.len());
        Some(packet)
    }

    /// Reads the next packet and the following packets that GRO merges with it. They have the same
    /// addresses, ports and traffic class and the size of the first packet. A shorter packet may be
    /// the last.
    pub(super) fn read(&mut self, config: &NodeConfig, rng: &mut Rng) -> Option<Read> {
        let first = self.pop()?;
        let segment_size = first.payload.len();
        let mut read = Read {
            from: first.from,
            from_port: first.from_port,
            to: first.to,
            traffic_class: first.traffic_class,
            segment_size,
            segments: 1,
            bytes: first.payload,
        };
        while segment_size > 0 && read.segments < MAX_RUN_SEGMENTS {
            let Some(next) = self.packets.front() else { break };
            let len = next.payload.len();
            let same_way = (next.from, next.from_port, next.to, next.traffic_class)
                == (read.from, read.from_port, read.to, read.traffic_class);
            let fits = len > 0 && len <= segment_size && read.bytes.len() + len <= MAX_RUN_BYTES;
            if !same_way || !fits || !rng.chance(config.merge) {
                break;
            }
            let Some(next) = self.pop() else { break };
            read.bytes.extend_from_slice(&next.payload);
            read.segments += 1;
            if len < segment_size {
                break;
            }
        }
        Some(read)
    }
}
