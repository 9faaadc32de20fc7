//! Bursts: the packets of SENDs and WRITEs that share one request for an acknowledgement.
//!
//! Packets leave in bursts, of which the last asks for an acknowledgement. A burst is begun when
//! the window has room for all of it, and is then sent whole, in one go and in as many runs as it
//! takes: so the peer is never left with packets that it was not asked to acknowledge, and the
//! window opens by whole runs and not by crumbs.
//!
//! ```text
//!   a packet to send, no burst -> begin_burst: is there credit for all of it?  no -> it waits
//!   the last packet of a burst -> extend_burst: may the next message follow in it?
//!   sent                       -> `left` counts down; at 1 the packet asks for the ACK
//! ```
//!
//! Sources: IBTA vol. 1, 9.7.5.1 (ACK requests).

use super::requester::{MAX_UNACKNOWLEDGED, Requester};
use crate::path::window::{Credit, PACKET_OVERHEAD};
use crate::qp::attr::QpState;
use crate::qp::context::QpContext;
use crate::qp::qp_core::QpCore;
use crate::qp::queue::SendWqe;
use crate::qp::work_request::SendFlags;

/// At least every so many packets ask for an acknowledgement.
const ACK_EVERY: u32 = 32;

/// The burst that is being sent.
#[derive(Debug, Default)]
#[repr(C)] // `left`, which each packet looks at, stands first
pub(super) struct Burst {
    /// Packets that are still to be sent; 0 if none was begun.
    pub left: u32,
    /// Its packets, as far as they are known.
    packets: u32,
    /// What they are charged.
    bytes: u64,
}

impl Requester {
    /// Begins a burst with the packets of `wqe` from `index` on, if the window has room for it.
    pub(super) fn begin_burst(
        &mut self,
        wqe: &SendWqe,
        index: u32,
        cx: &mut QpContext<'_>,
    ) -> bool {
        let packets = match wqe.packets - index {
            1 => 1,
            left => {
                let of_longest = cx.path.window.burst() / (u64::from(self.mtu) + PACKET_OVERHEAD);
                left.min(ACK_EVERY).min(of_longest.max(1) as u32)
            }
        };
        let bytes = credit_bytes(wqe, index, packets, self.mtu);
        let unacknowledged = self.cursor_psn.steps_from(self.una);
        if self.yields(Credit::Send, cx)
            || unacknowledged >= MAX_UNACKNOWLEDGED
            || !cx.has_credit(bytes)
        {
            return false;
        }
        cx.credit.reserve(bytes);
        self.burst = Burst { left: packets, packets, bytes };
        true
    }

    /// Whether others are before it. What is sent again goes before all of them: its peer can do
    /// nothing until it comes.
    pub(super) fn yields(&self, credit: Credit, cx: &QpContext<'_>) -> bool {
        cx.turn.yields[credit as usize] && self.cursor_psn == self.sent_psn
    }

    /// Lets one packet pass that was there before, and asks for its acknowledgement, whatever the
    /// window has room for.
    pub(super) fn begin_burst_of_one(&mut self) {
        self.burst = Burst { left: 1, packets: 1, bytes: u64::from(self.mtu) + PACKET_OVERHEAD };
    }

    /// Lets the next entry's first packets follow in the same burst, so that one of them asks for
    /// the acknowledgement.
    pub(super) fn extend_burst(&mut self, qp: &QpCore, cx: &mut QpContext<'_>) {
        if !self.next_is_data(qp) {
            return;
        }
        let (length, mtu) = (self.queue.wqe(self.cursor + 1).length, self.mtu);
        // What the window says may have changed since the burst began.
        let room = cx.path.window.burst().saturating_sub(self.burst.bytes);
        let of_longest = room / (u64::from(mtu) + PACKET_OVERHEAD);
        let (packets, fits) = if length <= mtu {
            (1, u64::from(length) + PACKET_OVERHEAD <= room)
        } else {
            (length.div_ceil(mtu).min(of_longest as u32), of_longest > 0)
        };
        let packets = packets.min(ACK_EVERY - self.burst.packets);
        let bytes = u64::from(length).min(u64::from(packets) * u64::from(mtu))
            + u64::from(packets) * PACKET_OVERHEAD;
        if packets > 0 && fits && cx.has_credit(bytes) {
            cx.credit.reserve(bytes);
            self.burst.left += packets;
            self.burst.packets += packets;
            self.burst.bytes += bytes;
        }
    }

    /// Whether the entry after the cursor will send data at once, so that its packets can carry the
    /// ACK request.
    fn next_is_data(&self, qp: &QpCore) -> bool {
        let next = self.cursor + 1;
        if next == self.queue.tail() || qp.state != QpState::Rts {
            return false;
        }
        let wqe = self.queue.wqe(next);
        !wqe.op.has_response() && !wqe.op.is_local() && !wqe.flags.contains(SendFlags::FENCE)
    }

    /// What `packets` packets of the head entry are charged from its packet `index` on, as far as
    /// they are.
    pub(super) fn outstanding_credit(&self, wqe: &SendWqe, index: u32, packets: u32) -> u64 {
        let ahead = self.cursor_psn.steps_from(self.una);
        credit_bytes(wqe, index, packets.min(ahead), self.mtu)
    }
}

/// Bytes charged for `packets` packets of a SEND or WRITE from its packet `index` on.
pub(super) fn credit_bytes(wqe: &SendWqe, index: u32, packets: u32, mtu: u32) -> u64 {
    let start = (u64::from(index) * u64::from(mtu)).min(u64::from(wqe.length));
    let end = (u64::from(index + packets) * u64::from(mtu)).min(u64::from(wqe.length));
    end - start + u64::from(packets) * PACKET_OVERHEAD
}
