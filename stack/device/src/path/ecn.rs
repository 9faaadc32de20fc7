//! Explicit congestion notification: marks of routers, and the packets that report them to the
//! sender.
//!
//! ```text
//!   sender ── ECT(0) ──> router ── CE ──> receiver        data
//!      └────────────────── CNP ─────────────┘             at most one in 50 µs a queue pair
//! ```
//!
//! Packets of reliable connections announce ECN in the two low bits of their traffic class
//! (ECT(0)). A router whose queue grows marks them (CE) instead of dropping some later. The
//! receiver reports marks to the sender by a congestion notification packet (CNP), and the sender
//! reduces its window ([`CongestionEstimator`](super::congestion::CongestionEstimator)). A peer
//! without CNPs, such as the kernel's `rdma_rxe`, drops them and does not slow down.
//!
//! Sources: RFC 3168, 5 (the bits); IBTA vol. 1, annex A17.9 (marks; a CNP has the peer's number,
//! BECN and sixteen zero bytes).

use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Bth, Ext, Opcode, PKey, PacketRepr, Psn, Qpn};

use super::pending_list::BoundedList;
use super::run::RunBuffer;

/// The shortest time between two notifications of a queue pair, in nanoseconds.
pub(crate) const CNP_INTERVAL_NS: u64 = 50_000;
/// The most notifications that wait at a path. A mark whose notification was dropped is followed by
/// others.
const MAX_WAITING: usize = 256;
/// The bytes of the reserved field of a CNP.
const RESERVED_LEN: usize = 16;

/// The fields in which congestion notifications differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cnp {
    pub to: Qpn,
    pub pkey: PKey,
}

impl Cnp {
    /// The bytes of the packet.
    pub const LEN: usize = Bth::LEN + RESERVED_LEN + ICRC_LEN;

    /// Appends the packet to a run that [takes](RunBuffer::takes) it.
    pub fn append_to(self, run: &mut RunBuffer<'_>) {
        let bth =
            Bth { pkey: self.pkey, becn: true, ..Bth::new(Opcode::Cnp, self.to, Psn::masked(0)) };
        let appended: Result<(), std::convert::Infallible> =
            run.append(PacketRepr::new(bth, Ext::None), RESERVED_LEN, |reserved| {
                reserved.fill(0);
                Ok(())
            });
        debug_assert_eq!(appended, Ok(()));
    }
}

/// The notifications that wait at a path.
pub(crate) type CnpList = BoundedList<Cnp, MAX_WAITING>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded() {
        let list = CnpList::default();
        let cnp = Cnp { to: Qpn::masked(7), pkey: PKey::DEFAULT };
        let has_room = || list.add(std::iter::once(cnp)).1 == 0;
        assert_eq!((0..2 * MAX_WAITING).filter(|_| has_room()).count(), MAX_WAITING);
        let mut taken = Vec::new();
        list.take(&mut taken);
        assert_eq!(taken, vec![cnp; MAX_WAITING]);
        taken.clear();
        list.take(&mut taken);
        assert!(taken.is_empty());
        assert!(has_room(), "there is room again");
        list.clear();
        list.take(&mut taken);
        assert!(taken.is_empty(), "the list was cleared");
    }
}
