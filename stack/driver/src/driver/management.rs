//! Management datagrams: those to QP1 that are for this process, until somebody takes them, and
//! those from it.
//!
//! QP1 belongs to all processes of an address. Which of them gets a datagram is told by the
//! identifiers in it, which carry a process slot, or by the service id of a request
//! ([`urxe_wire::mad`]).

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

/// Datagrams that wait at most. Who receives takes them out after each batch, which has up to a
/// thousand where the system merges datagrams (64 KiB of 280 bytes each, four times); another such
/// thread may be between the two.
const CAPACITY: usize = 4096;

/// A management datagram with what stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMad {
    /// The sender's address.
    pub from: IpAddr,
    /// The address it was sent to.
    pub to: IpAddr,
    /// The sending queue pair, which is the other end's QP1 in all that is known.
    pub src_qp: Qpn,
    /// Its P_Key.
    pub pkey: PKey,
    /// The IP header's type of service or traffic class.
    pub traffic_class: u8,
    /// The datagram itself.
    pub mad: Box<[u8; MAD_LEN]>,
}

/// Whom a packet to QP0 or QP1 is for; `None` if it is not what may be sent there.
pub(super) fn destination(bytes: &[u8]) -> Option<Destination> {
    let packet = PacketView::parse(bytes).ok()?;
    let is_fit = packet.dest_qp() == Qpn::QP1
        && packet.opcode() == Opcode::UdSendOnly
        && packet.deth().is_some_and(|deth| deth.qkey == QKey::GSI);
    let destination = Destination::of(packet.payload()).ok()?;
    is_fit.then_some(destination)
}

/// Those that wait.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<VecDeque<ReceivedMad>>,
    /// How many, for who does not want to lock in vain.
    count: AtomicUsize,
}

impl Inbox {
    /// Takes in the only packet of `datagrams`, which has a [`destination`]; whether there was
    /// room.
    pub fn put(&self, datagrams: &Datagrams<'_>) -> bool {
        let Ok(packet) = PacketView::parse(datagrams.bytes) else { return true };
        let Ok(mad) = packet.payload().try_into() else { return true };
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= CAPACITY {
            return false;
        }
        waiting.push_back(ReceivedMad {
            from: datagrams.from,
            to: datagrams.to,
            src_qp: packet.deth().map_or(Qpn::QP1, |deth| deth.src_qp),
            pkey: packet.pkey(),
            traffic_class: datagrams.traffic_class,
            mad: Box::new(mad),
        });
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

/// An engine as connections use it: its way to the network, and its thread.
pub(super) trait Uplink: Send + Sync {
    /// Sends MADs in their order. All have the addresses and the traffic class of the first, and
    /// all are for one process. `bytes` is room for the packets. A MAD that cannot be sent counts
    /// as lost on the way.
    fn send_mads(&self, mads: &[OutgoingMad], bytes: &mut Vec<u8>);

    /// Wakes the background thread, if it sleeps: the next deadline may be earlier now.
    fn wake(&self);
}

/// A MAD of the connection manager on its way out, from queue pair 1 to queue pair 1.
pub(super) struct OutgoingMad {
    pub uplink: Arc<dyn Uplink>,
    pub transmit: CmTransmit,
}

impl OutgoingMad {
    /// Whether the next one may leave in the same run: all packets of a run come to the socket of
    /// one process.
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

/// Sends MADs in their order, consecutive ones for one process together. `bytes` is room for the
/// packets.
pub(super) fn send(mads: &[OutgoingMad], bytes: &mut Vec<u8>) {
    for together in mads.chunk_by(OutgoingMad::goes_with) {
        if let Some(first) = together.first() {
            first.uplink.send_mads(together, bytes);
        }
    }
}

/// Sends MADs as [`Uplink::send_mads`] does, through that of `ports` which has their address.
pub(super) fn send_through<'p>(
    mut ports: impl Iterator<Item = &'p UdpPort>,
    mads: &[OutgoingMad],
    bytes: &mut Vec<u8>,
) {
    let Some(OutgoingMad { transmit, .. }) = mads.first() else { return };
    let (from, to) = (transmit.path.local.to_ip(), transmit.path.remote.to_ip());
    let Some(port) = ports.find(|port| port.address() == from) else {
        return tracing::debug!(%from, "a MAD has no socket to leave by");
    };
    for run in mads.chunks(port.max_run_segments().max(1)) {
        let outcome = send_run(port, to, run, bytes);
        if outcome == SendOutcome::Dropped && run.len() > 1 {
            // The network device may take no runs, and a connection that loses a message stalls
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
        let mut packet = [0; MAD_LEN + 64];
        match write_packet(port, from_port, to, &mad.transmit.mad, identification, &mut packet) {
            Some(len) => bytes.extend_from_slice(&packet[..len]),
            None => tracing::debug!(%from, %to, "a MAD cannot go between these addresses"),
        }
    }
    // All are equally long.
    let segment_size = bytes.len() / mads.len().max(1);
    port.transmit(&Run { from, from_port, to, bytes, segment_size, traffic_class, hop_limit: 0 })
}

/// The packet with the MAD, which gets the identification; `None` if the addresses are of different
/// IP versions.
fn write_packet(
    port: &UdpPort,
    from_port: u16,
    to: IpAddr,
    mad: &[u8; MAD_LEN],
    identification: u16,
    bytes: &mut [u8],
) -> Option<usize> {
    let seed = IcrcSeed::new(port.address(), from_port, to, ROCE_PORT)?;
    // Nothing looks at the sequence numbers of datagrams.
    let bth = Bth::new(Opcode::UdSendOnly, Qpn::QP1, Psn::new(0));
    let ext = Ext::Deth(Deth { qkey: QKey::GSI, src_qp: Qpn::QP1 });
    let start = PacketRepr::new(bth, ext).emit_headers(bytes).ok()?;
    bytes.get_mut(start..start + MAD_LEN)?.copy_from_slice(mad);
    let end = packet::emit_pad(bytes, start + MAD_LEN)?;
    seed.append(identification, bytes, end)
}
