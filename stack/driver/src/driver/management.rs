//! Management datagrams (MADs) to QP1 of this process.
//!
//! All processes of an address share QP1. A MAD is for the process whose slot is in the identifiers
//! of the MAD, or for the listener of the service id of a request ([`urxe_wire::mad`]).

use std::collections::VecDeque;
use std::net::IpAddr;

use urxe_wire::mad::{Destination, MAD_LEN};
use urxe_wire::{Opcode, PKey, PacketView, QKey, Qpn};

use crate::port::Datagrams;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

/// The most MADs in the inbox. The receiving thread empties the inbox after each batch. A batch has
/// up to a thousand MADs where the system merges datagrams (four times 64 KiB, 280 bytes each);
/// another thousand may arrive before the thread does so.
const CAPACITY: usize = 4096;

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
