//! Explicit congestion notification: what routers say of a path before they drop, and how a peer is
//! told.
//!
//! ```text
//!   sender ── ECT(0) ──> router ── CE ──> receiver        data
//!      └────────────────── CNP ─────────────┘             at most one in 50 µs a queue pair
//! ```
//! Packets of reliable connections say in the two low bits of their traffic class that their sender
//! heeds marks. A router whose queue grows marks them (CE) instead of dropping some later. The
//! receiver tells the sender by a congestion notification packet (CNP), and the sender takes back
//! its window ([`CongestionEstimator`](super::congestion::CongestionEstimator)). A peer that knows
//! no CNPs, as the kernel's `rdma_rxe`, drops them, and goes on as before.
//!
//! Sources: RFC 3168, 5 (the bits); IBTA vol. 1, annex A17.9 (marks, CNPs: the peer's number, BECN,
//! sixteen zero bytes).

use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Bth, Ext, Opcode, PKey, Psn, Qpn};

use super::pending_list::BoundedList;
use super::run::RunBuffer;

/// A queue pair tells its peer no more often.
pub(crate) const CNP_PAUSE_NS: u64 = 50_000;
/// So many wait at a path at most; a mark that is not told comes again.
const MAX_WAITING: usize = 256;
/// A CNP's reserved field.
const RESERVED_LEN: usize = 16;

/// A congestion notification, as much of it as differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cnp {
    pub to: Qpn,
    pub pkey: PKey,
}

impl Cnp {
    /// Bytes of its packet.
    pub const LEN: usize = Bth::LEN + RESERVED_LEN + ICRC_LEN;

    /// Appends its packet to a run that [takes](RunBuffer::takes) it.
    pub fn append_to(self, run: &mut RunBuffer) {
        let bth =
            Bth { pkey: self.pkey, becn: true, ..Bth::new(Opcode::Cnp, self.to, Psn::masked(0)) };
        let appended: Result<(), std::convert::Infallible> =
            run.append(bth, Ext::None, RESERVED_LEN, |reserved| {
                reserved.fill(0);
                Ok(())
            });
        debug_assert_eq!(appended, Ok(()));
    }
}

/// Notifications that left their queue pairs and wait at their path.
pub(crate) type CnpList = BoundedList<Cnp, MAX_WAITING>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded() {
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
        assert!(taken.is_empty(), "of a former peer");
    }
}
