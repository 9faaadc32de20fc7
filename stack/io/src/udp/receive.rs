//! Buffers that a UDP port receives into, with the addresses and header fields of each datagram.

use std::net::IpAddr;
use std::os::fd::AsFd;

use rustix::io::Errno;

use super::counters::Counters;
use crate::sys::control::Control;
use crate::sys::message::{self, ReceiveSlot};
use urxe_types::allocate::OutOfMemory;
use urxe_types::port::Datagrams;

/// Buffers of 64 KiB for several received datagrams, allocated once.
#[derive(Debug)]
pub struct ReceiveBuffers {
    slots: Vec<ReceiveSlot>,
    /// The addresses and header fields of the slots filled last; `None` for dropped datagrams.
    arrivals: [Option<Arrival>; ReceiveBuffers::MAX],
    /// Whether the last call received something. Then more datagrams are likely, and the next call
    /// receives all of them. Otherwise a call for a single datagram costs less: the kernel does not
    /// look for a second one while a reply is pending.
    was_filled: bool,
}

/// Datagrams without their bytes, which are in the slot.
type Arrival = Datagrams<'static>;

impl ReceiveBuffers {
    /// The largest number of buffers.
    pub const MAX: usize = message::RECEIVE_BATCH;

    /// Makes `count` buffers, at least one and at most [`MAX`](Self::MAX).
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(count: usize) -> Result<Self, OutOfMemory> {
        let count = count.clamp(1, Self::MAX);
        let slots = (0..count).map(|_| ReceiveSlot::new()).collect::<Result<_, _>>()?;
        Ok(Self { slots, arrivals: [None; Self::MAX], was_filled: false })
    }

    /// Returns the datagrams received last, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Datagrams<'_>> {
        let both = self.slots.iter().zip(&self.arrivals);
        both.filter_map(|(slot, arrival)| Some(Datagrams { bytes: slot.payload(), ..(*arrival)? }))
    }

    /// Receives from a socket that is bound to the address `to`. Returns the number of datagrams
    /// that [`iter`](Self::iter) returns.
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

/// Returns addresses and header fields of the datagram in `slot`, which arrived at the address
/// `to`. Returns `None` if the datagram was truncated, has no IP source address or has an
/// impossible segment size.
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
