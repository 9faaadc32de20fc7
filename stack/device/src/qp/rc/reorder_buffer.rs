//! Packets that arrived before their predecessors. They are kept until the missing packet arrives
//! or counts as lost.
//!
//! In a network with several queues or paths, packets overtake each other by some places, for
//! microseconds. To go back each time would cost a round trip and all packets in flight. To keep
//! some packets costs one copy of each.
//!
//! ```text
//!   missing 5:   6 7 stored    (5) 5 6 7 executed, in order
//!                6 7 8 … 13 stored, 14:    5 is lost
//!                6 7 stored, no more for some time: 5 is lost
//! ```
//!
//! **How many.** [`MAX`] packets of at most the path MTU: 33 KiB at 4 KiB. A loss within a stream
//! is detected by the ninth packet behind it. That packet is usually in the same run, so there is
//! no delay. A lower limit (TCP uses three) requests packets that are about to arrive. Whole runs
//! that overtake each other would take tens of times the memory.
//!
//! **How far.** A request counts as early up to [`REACH`] PSNs before its turn. Each further one
//! means a loss. Otherwise a forged request with any later PSN would be kept until its turn came,
//! because the timer starts again with each delivery. So an attacker would need no PSN.
//!
//! **How long.** Behind the last packets of a burst too few packets follow, so a timer decides. It
//! runs for a quarter of the shortest round trip, between 0.1 ms and 1 ms
//! ([`Window::reordering_ns`](crate::path::window::Window::reordering_ns)). The timer starts with
//! the first stored packet, and again when some packets were delivered.
//!
//! The receiver requests the lost packet, and the sender sends everything from there on
//! (go-back-N). So all stored packets are dropped, and executed when they arrive again. After the
//! request, [`super::gap_timer`] decides, and nothing is stored.
//!
//! A queue pair has a buffer from the first early packet until the buffer was unused for
//! [`IDLE_NS`]. Within that time nothing is allocated.

use urxe_wire::{PacketView, Psn};

use urxe_types::time::Time;

/// The most packets that are stored.
pub(super) const MAX: usize = 8;
/// The most PSNs by which a request may be early. A READ takes a PSN for each of its responses, so
/// the request behind an overtaken READ is early by more than one.
pub(super) const REACH: i32 = 256;
/// The time in nanoseconds after which an unused buffer is freed.
const IDLE_NS: u64 = 10_000_000;

/// The outcome of storing an early packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Insert {
    /// The packet is stored.
    Stored,
    /// The packet was stored before.
    Duplicate,
    /// There is no room for the packet, or the system has no memory.
    Full,
}

/// The early packets of one half of a queue pair.
#[derive(Debug)]
pub(super) struct ReorderBuffer {
    /// The time at which the missing packet counts as lost. While nothing is stored: the time at
    /// which the buffer is freed.
    due: Time,
    /// The packets in PSN order.
    packets: Vec<(Psn, Vec<u8>)>,
    /// Free memory for the next packets.
    buffers: Vec<Vec<u8>>,
}

impl ReorderBuffer {
    fn new() -> Box<Self> {
        let (packets, buffers) = (Vec::with_capacity(MAX), Vec::with_capacity(MAX));
        Box::new(Self { due: Time::NEVER, packets, buffers })
    }

    /// Stores a copy of `packet` if there is room. `due` is the time at which the missing packet
    /// counts as lost; this applies if nothing is stored yet.
    pub fn insert(
        buffer: &mut Option<Box<Self>>,
        packet: &PacketView<'_>,
        mtu: u32,
        due: Time,
    ) -> Insert {
        let psn = packet.psn();
        let buffer = buffer.get_or_insert_with(Self::new);
        let place = buffer.packets.partition_point(|(other, _)| other.precedes(psn));
        if buffer.packets.get(place).is_some_and(|(other, _)| *other == psn) {
            return Insert::Duplicate;
        }
        if buffer.packets.len() == MAX || packet.payload_len() > mtu as usize {
            return Insert::Full;
        }
        if buffer.packets.is_empty() {
            buffer.due = due;
        }
        let mut bytes = buffer.buffers.pop().unwrap_or_default();
        if bytes.try_reserve(packet.packet_len()).is_err() {
            // Without memory, the packet is as good as lost, and the peer sends it again.
            return Insert::Full;
        }
        packet.append_to(&mut bytes);
        buffer.packets.insert(place, (psn, bytes));
        Insert::Stored
    }

    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the time of the timer, or [`Time::NEVER`] if there is no buffer.
    #[inline]
    pub fn deadline(buffer: Option<&Self>) -> Time {
        buffer.map_or(Time::NEVER, |buffer| buffer.due)
    }

    /// Handles the timer at `now`. Returns whether the missing packet counts as lost. Frees a
    /// buffer that was unused for too long.
    pub fn is_due(buffer: &mut Option<Box<Self>>, now: Time) -> bool {
        let due = buffer.as_ref().filter(|buffer| now >= buffer.due);
        let is_lost = due.is_some_and(|buffer| !buffer.is_empty());
        if due.is_some() && !is_lost {
            *buffer = None;
        }
        is_lost
    }

    /// Returns the packet with the lowest PSN.
    pub fn first(&self) -> Option<PacketView<'_>> {
        let (_, bytes) = self.packets.first()?;
        // The packet was parsed when it arrived.
        PacketView::parse(bytes).ok()
    }

    /// Removes the packet with the lowest PSN.
    pub fn remove_first(&mut self) {
        let (_, mut bytes) = self.packets.remove(0);
        bytes.clear();
        self.buffers.push(bytes);
    }

    /// Starts the timer again after packets were delivered. `due` is the time at which the missing
    /// packet counts as lost, if packets are still stored.
    pub fn rearm(&mut self, now: Time, due: Time) {
        self.due = if self.is_empty() { now.plus_ns(IDLE_NS) } else { due };
    }

    /// Drops all packets. Returns their number and the highest PSN.
    pub fn clear(&mut self, now: Time) -> (usize, Option<Psn>) {
        let (count, highest) = (self.packets.len(), self.packets.last().map(|(psn, _)| *psn));
        while !self.is_empty() {
            self.remove_first();
        }
        self.rearm(now, Time::NEVER);
        (count, highest)
    }
}

#[cfg(test)]
mod tests {
    use urxe_wire::{Bth, Ext, Opcode, PacketRepr, Qpn};

    use super::*;

    const MTU: u32 = 256;
    const DUE: Time = Time::from_ns(100);

    fn insert(buffer: &mut Option<Box<ReorderBuffer>>, psn: u32, payload: &[u8]) -> Insert {
        let bth = Bth::new(Opcode::RcSendOnly, Qpn::masked(5), Psn::masked(psn));
        let mut bytes = [0; 1024];
        let end = PacketRepr::new(bth, Ext::None).emit(payload, &mut bytes).unwrap();
        let packet = PacketView::parse(&bytes[..end + urxe_wire::packet::ICRC_LEN]).unwrap();
        ReorderBuffer::insert(buffer, &packet, MTU, DUE)
    }

    /// Removes all packets in order. Returns the PSN and the first payload byte of each.
    fn delivered(buffer: &mut ReorderBuffer) -> Vec<(u32, u8)> {
        let mut delivered = Vec::new();
        while let Some(packet) = buffer.first() {
            delivered.push((packet.psn().value(), packet.payload()[0]));
            buffer.remove_first();
        }
        delivered
    }

    #[test]
    fn packets_are_delivered_in_psn_order_and_unchanged() {
        let mut buffer = None;
        for (psn, byte) in [(1, 1), (0xff_ffff, 2), (3, 3), (0, 4)] {
            assert_eq!(insert(&mut buffer, psn, &[byte; 100]), Insert::Stored);
        }
        assert_eq!(insert(&mut buffer, 0, &[9; 100]), Insert::Duplicate);
        let mut buffer = buffer.unwrap();
        assert_eq!(delivered(&mut buffer), [(0xff_ffff, 2), (0, 4), (1, 1), (3, 3)]);
        // The memory is used again for longer and for shorter packets.
        let mut buffer = Some(buffer);
        insert(&mut buffer, 8, &[8; 256]);
        insert(&mut buffer, 7, &[7; 4]);
        assert_eq!(delivered(&mut buffer.unwrap()), [(7, 7), (8, 8)]);
    }

    #[test]
    fn the_number_and_the_length_of_packets_are_limited() {
        let mut buffer = None;
        assert_eq!(insert(&mut buffer, 50, &[0; MTU as usize + 4]), Insert::Full);
        for psn in 0..MAX as u32 {
            assert_eq!(insert(&mut buffer, psn, &[0; MTU as usize]), Insert::Stored);
        }
        assert_eq!(insert(&mut buffer, 3, &[0; 4]), Insert::Duplicate);
        assert_eq!(insert(&mut buffer, 50, &[0; 4]), Insert::Full);
        let mut buffer = buffer.unwrap();
        assert_eq!(buffer.clear(DUE), (MAX, Some(Psn::new(MAX as u32 - 1))));
        assert!(buffer.is_empty());
        assert_eq!(buffer.clear(DUE), (0, None));
    }

    #[test]
    fn the_timer_reports_a_loss_and_frees_an_idle_buffer() {
        let mut buffer = None;
        assert_eq!(ReorderBuffer::deadline(buffer.as_deref()), Time::NEVER);
        insert(&mut buffer, 7, &[0; 4]);
        assert_eq!(ReorderBuffer::deadline(buffer.as_deref()), DUE);
        assert!(!ReorderBuffer::is_due(&mut buffer, Time::from_ns(99)));
        assert!(ReorderBuffer::is_due(&mut buffer, DUE));
        buffer.as_mut().unwrap().clear(DUE);
        let idle = ReorderBuffer::deadline(buffer.as_deref());
        assert_eq!(idle, DUE.plus_ns(IDLE_NS));
        assert!(!ReorderBuffer::is_due(&mut buffer, DUE) && buffer.is_some());
        assert!(!ReorderBuffer::is_due(&mut buffer, idle) && buffer.is_none());
    }
}
