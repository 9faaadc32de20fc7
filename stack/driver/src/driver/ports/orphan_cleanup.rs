//! Packets left in the sockets of processes that ended. Packets for their queue pairs are dropped
//! without an acknowledgement, as packets for a destroyed queue pair are. MADs get a reply here:
//! without one their senders repeat them for a minute and more.

use urxe_wire::mad;

use super::unmatched::{broadcast_to_peers, unmatched_packets};
use super::{Ports, Receiver};
use crate::device::Device;
use crate::device::counters::Counter;
use crate::driver::management;
use crate::port::KeptPacket;
use crate::sync::atomic::Ordering;
use crate::sys::clock;

/// Management datagrams that get a reply at a time; the senders repeat the rest.
const SWEPT_MADS: usize = 1024;

impl Ports {
    /// Drops the packets that wait for processes that ended. If this process has a connection
    /// manager, that gets the management datagrams: it knows no such connection and replies so.
    pub fn sweep(&self, receiver: &mut Receiver, device: &Device) {
        let Receiver { buffers, scratch, .. } = receiver;
        let refuses = self.refuses.load(Ordering::Relaxed);
        for member in self.members().filter(|member| member.has_company()) {
            let mut kept = Vec::new();
            let swept = member.sweep(buffers, |packet| {
                let is_kept = refuses
                    && kept.len() < SWEPT_MADS
                    && management::destination(packet.bytes).is_some();
                if is_kept {
                    kept.push(KeptPacket::new(packet, packet.bytes.into()));
                }
                is_kept
            });
            device.counters().add_many(Counter::DropDeadSlot, swept as u64);
            for packet in &kept {
                let packet = packet.datagrams();
                device.receive(clock::now(), &packet, scratch);
                for packet in unmatched_packets(&packet, scratch.unmatched.as_ref()) {
                    self.deliver_mad(device, &packet);
                    // A MAD with a zero id for its receiver is steered to slot 0 (socket 1),
                    // whichever process it is for.
                    if management::destination(packet.bytes) == Some(mad::Destination::Everyone) {
                        broadcast_to_peers(device, Some(member), &packet);
                    }
                }
            }
        }
    }
}
