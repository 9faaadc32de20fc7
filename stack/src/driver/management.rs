//! Management datagrams to QP1 that are for this process, until somebody takes them.
//!
//! QP1 belongs to all processes of an address. Which of them gets a datagram is told by the identifiers in it, which carry a process
//! slot, or by the service id of a request ([`urxe_wire::mad`]).

use std::collections::VecDeque;
use std::net::IpAddr;

use urxe_wire::mad::{Destination, MAD_LEN};
use urxe_wire::{Opcode, PKey, PacketView, QKey, Qpn};

use crate::port::Datagrams;
use crate::sync::{Mutex, lock};

/// The Q_Key of QP1 (IBTA 10.2.5).
const QP1_QKEY: QKey = QKey(0x8001_0000);
/// Datagrams that wait at most. The kernel's QP1 has as many receives (IB_MAD_QP_RECV_SIZE).
const CAPACITY: usize = 512;

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
        && packet.deth().is_some_and(|deth| deth.qkey == QP1_QKEY);
    let destination = Destination::of(packet.payload()).ok()?;
    is_fit.then_some(destination)
}

/// Those that wait.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<VecDeque<ReceivedMad>>,
}

impl Inbox {
    /// Takes in the only packet of `datagrams`, which has a [`destination`]; whether there was room.
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
        true
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    pub fn take(&self) -> Option<ReceivedMad> {
        lock(&self.waiting).pop_front()
    }
}
