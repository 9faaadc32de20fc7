//! Management datagrams (MADs): those to QP1 of this process, and those from it.
//!
//! All processes of an address share QP1. A MAD is for the process whose slot is in the identifiers
//! of the MAD, or for the listener of the service id of a request ([`urxe_wire::mad`]).

use std::collections::VecDeque;
use std::net::IpAddr;

use urxe_wire::mad::{Destination, MAD_LEN};
use urxe_wire::{
    Bth, Deth, Ext, IcrcSeed, Opcode, PKey, PacketRepr, PacketView, Psn, QKey, Qpn, ROCE_PORT,
    packet,
};

use crate::cm::CmTransmit;
use crate::port::udp::UdpPort;
use crate::port::{Datagrams, Run, SendOutcome, Transmit};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};

/// The most MADs in the inbox. The receiving thread empties the inbox after each batch. A batch has
/// up to a thousand MADs where the system merges datagrams (four times 64 KiB, 280 bytes each);
/// another thousand may arrive before the thread does so.
const CAPACITY: usize = 4096;
/// The room for a packet with a MAD.
pub(super) const PACKET_MAX: usize = MAD_LEN + 64;

/// A MAD with the addresses and header fields of its packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMad {
    /// The sender's address.
    pub from: IpAddr,
    /// The address that the MAD was sent to.
    pub to: IpAddr,
    /// The sending queue pair; all known peers send from QP1.
    pub src_qp: Qpn,
    /// The P_Key of the packet.
    pub pkey: PKey,
    /// The IP header's type of service or traffic class.
    pub traffic_class: u8,
    /// The MAD.
    pub mad: Box<[u8; MAD_LEN]>,
}

impl ReceivedMad {
    /// Returns the MAD in the only packet of `datagrams`, which must have a [`destination`].
    pub(super) fn of(datagrams: &Datagrams<'_>) -> Option<Self> {
        let packet = PacketView::parse(datagrams.bytes).ok()?;
        let mad = packet.payload().try_into().ok()?;
        Some(Self {
            from: datagrams.from,
            to: datagrams.to,
            src_qp: packet.deth().map_or(Qpn::QP1, |deth| deth.src_qp),
            pkey: packet.pkey(),
            traffic_class: datagrams.traffic_class,
            mad: Box::new(mad),
        })
    }
}

/// Returns the destination of a packet to QP0 or QP1; `None` if the packet is not allowed there.
pub(super) fn destination(bytes: &[u8]) -> Option<Destination> {
    let packet = PacketView::parse(bytes).ok()?;
    let is_fit = packet.dest_qp() == Qpn::QP1
        && packet.opcode() == Opcode::UdSendOnly
        && packet.deth().is_some_and(|deth| deth.qkey == QKey::GSI);
    let destination = Destination::of(packet.payload()).ok()?;
    is_fit.then_some(destination)
}

/// The MADs that wait for the connection manager or for the program.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<VecDeque<ReceivedMad>>,
    /// The number of MADs, so that threads need not lock an empty inbox.
    count: AtomicUsize,
}

impl Inbox {
    /// Adds the only packet of `datagrams`, which must have a [`destination`]. Returns whether
    /// there was room.
    pub fn put(&self, datagrams: &Datagrams<'_>) -> bool {
        let Some(mad) = ReceivedMad::of(datagrams) else { return true };
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= CAPACITY {
            return false;
        }
        waiting.push_back(mad);
        self.count.store(waiting.len(), Ordering::Release);
        true
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub fn take(&self) -> Option<ReceivedMad> {
        let mut waiting = lock(&self.waiting);
        let taken = waiting.pop_front();
        self.count.store(waiting.len(), Ordering::Release);
        taken
    }
}

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
pub(super) fn send_through<'p>(
    mut ports: impl Iterator<Item = &'p UdpPort>,
    mads: &[OutgoingMad],
    bytes: &mut Vec<u8>,
) {
    let Some(OutgoingMad { transmit, .. }) = mads.first() else { return };
    let (from, to) = (transmit.path.local.to_ip(), transmit.path.remote.to_ip());
    let Some(port) = ports.find(|port| port.address() == from) else {
        return tracing::debug!(%from, "dropped MADs: no socket has their source address");
    };
    for run in mads.chunks(port.max_run_segments().max(1)) {
        let outcome = send_run(port, to, run, bytes);
        if outcome == SendOutcome::Dropped && run.len() > 1 {
            // The network device may accept no runs, and a connection that loses a message stalls
            // for seconds.
            for alone in run.chunks(1) {
                send_run(port, to, alone, bytes);
            }
        }
    }
}

fn send_run(port: &UdpPort, to: IpAddr, mads: &[OutgoingMad], bytes: &mut Vec<u8>) -> SendOutcome {
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
    port.transmit(&Run { from, from_port, to, bytes, segment_size, traffic_class, hop_limit: 0 })
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
