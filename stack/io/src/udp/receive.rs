//! Buffers that a UDP port receives into, and what it learns of each datagram.

use std::net::IpAddr;
use std::os::fd::AsFd;

use rustix::io::Errno;

use super::counters::Counters;
use crate::sys::control::Control;
use crate::sys::message::{self, ReceiveSlot};
use urxe_types::port::Datagrams;

/// Room for several received datagrams of any size, made once and used again and again. 64 KiB
/// each.
#[derive(Debug)]
pub struct ReceiveBuffers {
    slots: Vec<ReceiveSlot>,
    /// Of the slots last filled, what is to be known of each; `None` for those that are dropped.
    arrivals: [Option<Arrival>; ReceiveBuffers::MAX],
    /// The last call found something. After one that did, more is likely to wait, and one call
    /// fetches all of it; after one that did not, a call for one costs less, and it does not look
    /// in vain for a second while an answer is due.
    was_filled: bool,
}

/// Datagrams without their bytes, which stay in the slot.
type Arrival = Datagrams<'static>;

impl Default for ReceiveBuffers {
    fn default() -> Self {
        Self::new(Self::MAX)
    }
}

impl ReceiveBuffers {
    /// The largest number of buffers.
    pub const MAX: usize = message::RECEIVE_BATCH;

    /// Room for `count` datagrams, at least one and at most [`MAX`](Self::MAX).
    #[must_use]
    pub fn new(count: usize) -> Self {
        let count = count.clamp(1, Self::MAX);
        let slots = std::iter::repeat_with(ReceiveSlot::default).take(count).collect();
        Self { slots, arrivals: [None; Self::MAX], was_filled: false }
    }

    /// The datagrams received last, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Datagrams<'_>> {
        let both = self.slots.iter().zip(&self.arrivals);
        both.filter_map(|(slot, arrival)| Some(Datagrams { bytes: slot.payload(), ..(*arrival)? }))
    }

    /// Receives what waits on a socket that is bound to the address `to`. Returns how many
    /// datagrams [`iter`](Self::iter) gives.
    pub(super) fn fill(
        &mut self,
        socket: impl AsFd,
        to: IpAddr,
        counters: &Counters,
    ) -> Result<usize, Errno> {
        self.arrivals = [None; Self::MAX];
        let room = if self.was_filled { self.slots.len() } else { 1 };
        let received = message::receive(socket, &mut self.slots[..room]);
        self.was_filled = received.is_ok();
        let filled = received?;
        let mut usable = 0;
        let (mut packets, mut bytes) = (0, 0);
        for (slot, arrival) in self.slots.iter().zip(&mut self.arrivals).take(filled) {
            let length = slot.payload().len();
            if length == 0 {
                counters.received_empty.add(1);
                continue;
            }
            *arrival = read_arrival(slot, to);
            match arrival {
                Some(arrival) => {
                    usable += 1;
                    packets += length.div_ceil(arrival.segment_size) as u64;
                    bytes += length as u64;
                }
                None => counters.received_malformed.add(1),
            }
        }
        counters.received_datagrams.add(usable as u64);
        counters.received_packets.add(packets);
        counters.received_bytes.add(bytes);
        Ok(usable)
    }
}

/// What the kernel says of the datagram in `slot`, which came to the address `to`; `None` if it was
/// cut off, came from no IP address or has a segment size that cannot be.
fn read_arrival(slot: &ReceiveSlot, to: IpAddr) -> Option<Arrival> {
    if slot.is_truncated() {
        return None;
    }
    let from = slot.from()?;
    let mut arrival = Arrival {
        from: from.ip(),
        from_port: from.port(),
        to,
        bytes: &[],
        segment_size: slot.payload().len(),
        traffic_class: 0,
        hop_limit: 0,
    };
    read_control(slot.control(), &mut arrival)?;
    (arrival.segment_size > 0).then_some(arrival)
}

fn read_control(control: &Control, arrival: &mut Arrival) -> Option<()> {
    for message in control.messages() {
        match (message.level, message.kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                arrival.traffic_class = u8::try_from(message.int()?).ok()?;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                arrival.hop_limit = u8::try_from(message.int()?).ok()?;
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                arrival.segment_size = usize::try_from(message.int()?).ok()?;
            }
            _ => {}
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
