//! Bursts: the packets of SENDs and WRITEs that share one ACK request.
//!
//! The last packet of a burst requests the ACK. A burst begins when the window has room for all of
//! it, and is then sent completely, in as many runs as needed. So the peer never holds packets
//! without an ACK request, and ACKs open the window by whole runs.
//!
//! ```text
//!   a packet to send, no burst -> begin_burst: is there credit for all of it?  no -> wait
//!   the last packet of a burst -> extend_burst: may the next message follow?
//!   sent                       -> `left` counts down; at 1 the packet requests the ACK
//! ```
//!
//! Source: IBTA vol. 1, 9.7.5.1 (ACK requests).

use super::requester::{MAX_UNACKNOWLEDGED, Requester};
use crate::path::window::{Credit, PACKET_OVERHEAD};
use crate::qp::attr::QpState;
use crate::qp::context::QpContext;
use crate::qp::qp_core::QpCore;
use crate::qp::queue::SendWqe;
use crate::qp::work_request::SendFlags;

/// The most packets of a burst.
const ACK_EVERY: u32 = 32;

/// The burst that is being sent.
#[derive(Debug, Default)]
#[repr(C)] // `left`, which each packet reads, is first
pub(super) struct Burst {
    /// The number of packets still to be sent; 0 if there is no burst.
    pub left: u32,
    /// The number of packets, as far as they are known.
    packets: u32,
    /// The credit of these packets in bytes.
    bytes: u64,
}

impl Requester {
    /// Begins a burst with the packets of `wqe` from `index` on. Returns `false` if the window has
    /// no room for it.
    pub(super) fn begin_burst(
        &mut self,
        wqe: &SendWqe,
        index: u32,
        cx: &mut QpContext<'_>,
    ) -> bool {
        let packets = self.fitting(wqe.packets - index, cx.path.window.burst()).min(ACK_EVERY);
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

    /// Returns whether other queue pairs that wait for `credit` go first. A retransmission never
    /// yields, because the peer can do nothing before that arrives.
    pub(super) fn yields(&self, credit: Credit, cx: &QpContext<'_>) -> bool {
        cx.turn.yields[credit as usize] && self.cursor_psn == self.sent_psn
    }

    /// Begins a burst of one packet that was sent before, whether or not the window has room. The
    /// burst counts as one of the greatest length, so that this packet itself requests the ACK.
    pub(super) fn begin_burst_of_one(&mut self) {
        self.burst = Burst { left: 1, packets: ACK_EVERY, bytes: 0 };
    }

    /// Adds the first packets of the next entry to the burst, so that one of them requests the ACK.
    pub(super) fn extend_burst(&mut self, qp: &QpCore, cx: &mut QpContext<'_>) {
        if !self.next_is_data(qp) {
            return;
        }
        let wqe = self.queue.wqe(self.cursor + 1);
        // The window may have changed since the burst began.
        let room = cx.path.window.burst().saturating_sub(self.burst.bytes);
        let packets = self.fitting(packet_count(wqe.length, self.mtu), room);
        // A burst of the greatest length gets no packet.
        let packets = packets.min(ACK_EVERY - self.burst.packets);
        let bytes = credit_bytes(wqe, 0, packets, self.mtu);
        if bytes <= room && cx.has_credit(bytes) {
            cx.credit.reserve(bytes);
            self.burst.left += packets;
            self.burst.packets += packets;
            self.burst.bytes += bytes;
        }
    }

    /// Returns how many of `packets` packets of the longest kind fit `bytes`, at least one.
    fn fitting(&self, packets: u32, bytes: u64) -> u32 {
        match packets {
            1 => 1,
            several => {
                let of_longest = bytes / (u64::from(self.mtu) + PACKET_OVERHEAD);
                several.min(of_longest.max(1) as u32)
            }
        }
    }

    /// Returns whether the entry after the cursor sends data at once, so that its packets can
    /// request the ACK.
    fn next_is_data(&self, qp: &QpCore) -> bool {
        let next = self.cursor + 1;
        if next == self.queue.tail() || qp.state != QpState::Rts {
            return false;
        }
        let wqe = self.queue.wqe(next);
        !wqe.op.has_response() && !wqe.op.is_local() && !wqe.flags.contains(SendFlags::FENCE)
    }

    /// Returns the credit that is held for `packets` packets of the head entry, from packet `index`
    /// on. Packets behind the cursor hold no credit.
    pub(super) fn outstanding_credit(&self, wqe: &SendWqe, index: u32, packets: u32) -> u64 {
        let ahead = self.cursor_psn.steps_from(self.una);
        credit_bytes(wqe, index, packets.min(ahead), self.mtu)
    }
}

/// Returns the number of packets of a message of `length` bytes.
#[inline]
pub(super) fn packet_count(length: u32, mtu: u32) -> u32 {
    // Most messages are short, and a division takes long.
    if length <= mtu { 1 } else { length.div_ceil(mtu) }
}

/// Returns the credit in bytes of `packets` packets of a SEND or WRITE, from packet `index` on.
pub(super) fn credit_bytes(wqe: &SendWqe, index: u32, packets: u32, mtu: u32) -> u64 {
    let start = (u64::from(index) * u64::from(mtu)).min(u64::from(wqe.length));
    let end = (u64::from(index + packets) * u64::from(mtu)).min(u64::from(wqe.length));
    end - start + u64::from(packets) * PACKET_OVERHEAD
}
