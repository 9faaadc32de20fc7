//! Management datagrams (MADs) of the connection manager, from QP1 of this process to QP1 of peers.

use std::net::IpAddr;

use urxe_wire::mad::{Destination, MAD_LEN};
use urxe_wire::{Bth, Deth, Ext, IcrcSeed, Opcode, PacketRepr, Psn, QKey, Qpn, ROCE_PORT, packet};

use super::ports::Ports;
use crate::cm::CmTransmit;
use crate::port::udp::UdpPort;
use crate::port::{Run, SendOutcome, Transmit};
use crate::sync::Arc;

/// The room for a packet with a MAD.
pub(super) const PACKET_MAX: usize = MAD_LEN + 64;

/// The part of an engine that connections use: its sockets and its thread.
pub(super) trait Uplink: Send + Sync {
    /// Sends MADs in order. All must have the addresses and the traffic class of the first, and be
    /// for one process. `bytes` is a buffer for the packets. A MAD that cannot be sent counts as
    /// lost.
    fn send_mads(&self, mads: &[OutgoingMad], bytes: &mut Vec<u8>);

    /// Wakes a sleeping background thread, because the next deadline may be earlier now.
    fn wake(&self);
}

/// A MAD of the connection manager to be sent, from QP1 to QP1.
pub(super) struct OutgoingMad {
    pub uplink: Arc<dyn Uplink>,
    pub transmit: CmTransmit,
}

impl OutgoingMad {
    /// Returns whether `next` may leave in the same run: all packets of a run arrive at the socket
    /// of one process.
    fn goes_with(&self, next: &Self) -> bool {
        let (mine, its) = (&self.transmit, &next.transmit);
        let one_process = |mad: &CmTransmit| match Destination::of(&mad.mad) {
            Ok(destination @ (Destination::Slot(_) | Destination::Service(_))) => Some(destination),
            _ => None,
        };
        let destination = one_process(mine);
        Arc::ptr_eq(&self.uplink, &next.uplink)
            && (mine.path, mine.traffic_class) == (its.path, its.traffic_class)
            && destination.is_some()
            && destination == one_process(its)
    }
}

/// Sends MADs in order, and consecutive MADs for one process in one run. `bytes` is a buffer for
/// the packets.
pub(super) fn send(mads: &[OutgoingMad], bytes: &mut Vec<u8>) {
    for together in mads.chunk_by(OutgoingMad::goes_with) {
        if let Some(first) = together.first() {
            first.uplink.send_mads(together, bytes);
        }
    }
}

/// Sends MADs as [`Uplink::send_mads`] does, through the one of `ports` that has their address.
///
/// MADs for a process go through the ring that its data takes, so that they arrive behind the data.
pub(super) fn send_through(ports: &Ports, mads: &[OutgoingMad], bytes: &mut Vec<u8>) {
    let Some(OutgoingMad { transmit, .. }) = mads.first() else { return };
    let (from, to) = (transmit.path.local.to_ip(), transmit.path.remote.to_ip());
    let Some(port) = ports.port_at(from) else {
        return tracing::debug!(%from, "dropped MADs: no socket has their source address");
    };
    let ring = match Destination::of(&transmit.mad) {
        Ok(Destination::Slot(slot)) => {
            ports.rings().filter(|rings| rings.is_open(from, to, slot)).map(|rings| (rings, slot))
        }
        _ => None,
    };
    let send = |run: &Run<'_>| {
        let in_memory = ring.and_then(|(rings, slot)| rings.transmit(port, slot, run));
        in_memory.unwrap_or_else(|| port.transmit(run))
    };
    for run in mads.chunks(port.max_run_segments().max(1)) {
        let outcome = send_run(port, to, run, bytes, send);
        if outcome == SendOutcome::Dropped && run.len() > 1 {
            // The network device may accept no runs, and a connection that loses a message stalls
            // for seconds.
            for alone in run.chunks(1) {
                send_run(port, to, alone, bytes, send);
            }
        }
    }
}

fn send_run(
    port: &UdpPort,
    to: IpAddr,
    mads: &[OutgoingMad],
    bytes: &mut Vec<u8>,
    send: impl Fn(&Run<'_>) -> SendOutcome,
) -> SendOutcome {
    let (from, from_port) = (port.address(), port.port_towards(0));
    let traffic_class = mads.first().map_or(0, |first| first.transmit.traffic_class);
    bytes.clear();
    for (mad, identification) in mads.iter().zip(0..) {
        let mut packet = [0; PACKET_MAX];
        match write_packet((from, from_port), to, &mad.transmit.mad, identification, &mut packet) {
            Some(len) => bytes.extend_from_slice(&packet[..len]),
            None => {
                tracing::debug!(%from, %to, "dropped a MAD: the addresses' IP versions differ")
            }
        }
    }
    // All MADs have the same length.
    let segment_size = bytes.len() / mads.len().max(1);
    send(&Run { from, from_port, to, bytes, segment_size, traffic_class, hop_limit: 0 })
}

/// Writes the packet with the MAD for this source address and port, and for this IPv4
/// identification. Returns its length; `None` if the addresses are of different IP versions.
pub(super) fn write_packet(
    (from, from_port): (IpAddr, u16),
    to: IpAddr,
    mad: &[u8; MAD_LEN],
    identification: u16,
    bytes: &mut [u8],
) -> Option<usize> {
    let seed = IcrcSeed::new(from, from_port, to, ROCE_PORT)?;
    let end = write_without_icrc(mad, bytes)?;
    seed.append(identification, bytes, end)
}

/// Writes the packet with the MAD up to its ICRC. Returns its length, or `None` if `bytes` is too
/// short.
pub(super) fn write_without_icrc(mad: &[u8; MAD_LEN], bytes: &mut [u8]) -> Option<usize> {
    // Receivers ignore the sequence numbers of datagrams.
    let bth = Bth::new(Opcode::UdSendOnly, Qpn::QP1, Psn::new(0));
    let ext = Ext::Deth(Deth { qkey: QKey::GSI, src_qp: Qpn::QP1 });
    let start = PacketRepr::new(bth, ext).emit_headers(bytes).ok()?;
    bytes.get_mut(start..start + MAD_LEN)?.copy_from_slice(mad);
    packet::emit_pad(bytes, start + MAD_LEN)
}
