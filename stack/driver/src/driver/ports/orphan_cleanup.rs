//! What is left in the sockets of processes that ended: packets for their queue pairs, which nobody
//! acknowledges, as nobody does for a queue pair that a kernel has destroyed; and what their peers
//! ask, go on asking for a minute and more, and are answered here.

use urxe_wire::mad::Destination;

use super::unmatched::{broadcast_to_peers, stray_packets};
use super::{Ports, Receiver};
use crate::device::Device;
use crate::device::counters::Counter;
use crate::driver::management;
use crate::port::KeptPacket;
use crate::sync::atomic::Ordering;
use crate::sys::clock;

/// Management datagrams that are answered at a time; of more, the rest is asked again.
const SWEPT_MADS: usize = 1024;

impl Ports {
    /// Throws away what waits for processes that ended. Management datagrams are answered in their
    /// stead, if this process has a connection manager: it knows nothing of what they are about,
    /// and says so, and their senders need not ask for a minute and more.
    pub fn sweep(&self, receiver: &mut Receiver, device: &Device) {
        let Receiver { buffers, scratch, .. } = receiver;
        let answers = self.refuses.load(Ordering::Relaxed);
        for member in self.members().filter(|member| member.has_company()) {
            let mut kept = Vec::new();
            let swept = member.sweep(buffers, |packet| {
                let is_kept = answers
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
                for packet in stray_packets(&packet, scratch.unmatched.as_ref()) {
                    self.deliver_mad(device, &packet);
                    // It came to the lowest slot only because it names none.
                    if management::destination(packet.bytes) == Some(Destination::Everyone) {
                        broadcast_to_peers(device, Some(member), &packet);
                    }
                }
            }
        }
    }
}
