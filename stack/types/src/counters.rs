//! What a device counts: the fifteen counters of the kernel's `rdma_rxe` under their names there
//! (`rxe_hw_counters.c`), and one for each reason to drop a packet.

use crate::sync::atomic::{AtomicU64, Ordering};

crate::named_enum! {
    /// One counter of a device, named in listings; the kernel's fifteen as there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Counter: name {
        /// Packets sent.
        SentPkts => "sent_pkts",
        /// Packets received whose ICRC held.
        RcvdPkts => "rcvd_pkts",
        /// Requests that had been received before.
        DuplicateRequest => "duplicate_request",
        /// Requests that came before an earlier one: each, whether it was kept or dropped.
        /// `rdma_rxe`, which keeps none, counts only the first, which it asks for.
        OutOfSeqRequest => "out_of_seq_request",
        /// RNR NAKs received.
        RcvdRnrErr => "rcvd_rnr_err",
        /// RNR NAKs sent.
        SendRnrErr => "send_rnr_err",
        /// Sequence NAKs received.
        RcvdSeqErr => "rcvd_seq_err",
        /// Acknowledgements merged into a later one.
        AckDeferred => "ack_deferred",
        /// Work requests that failed because the peer never answered.
        RetryExceededErr => "retry_exceeded_err",
        /// Work requests that failed because the peer never had a receive.
        RetryRnrExceededErr => "retry_rnr_exceeded_err",
        /// Times the requester went back and sent again.
        CompleterRetryErr => "completer_retry_err",
        /// Sends that the system refused.
        SendErr => "send_err",
        /// Times the link went down.
        LinkDowned => "link_downed",
        /// RDMA operations sent (WRITE, READ, atomics).
        RdmaSends => "rdma_sends",
        /// RDMA operations received.
        RdmaRecvs => "rdma_recvs",

        /// Sequence NAKs sent: requests that counted as lost.
        SendSeqErr => "send_seq_err",
        /// Packets that came before an earlier one and were kept for it: requests, which count in
        /// `out_of_seq_request` as well, and answers.
        ReorderBuffered => "reorder_buffered",
        /// Of those, packets whose turn came, and which did as if they had come then.
        ReorderDelivered => "reorder_delivered",
        /// Last packets sent once more because nothing came back, to learn what was lost.
        TailProbes => "tail_probes",
        /// Dropped: malformed, see the log for the reason of each.
        DropMalformed => "drop_malformed",
        /// Dropped: the ICRC does not hold.
        DropIcrc => "drop_icrc",
        /// Dropped: no such queue pair.
        DropNoQp => "drop_no_qp",
        /// Dropped: to a multicast group that no queue pair is attached to.
        DropNoGroup => "drop_no_group",
        /// Dropped: to a multicast group but not to queue pair 0xffffff, or to that at a single
        /// host.
        DropGroupMismatch => "drop_group_mismatch",
        /// Dropped: for a process slot that nobody has.
        DropOtherProcess => "drop_other_process",
        /// Dropped: datagrams that waited in the socket of a process that ended.
        DropOrphanedSlot => "drop_orphaned_slot",
        /// Dropped: to QP1, a request for a service that nobody listens on.
        DropNoListener => "drop_no_listener",
        /// Dropped: to QP0 or QP1, and not a management datagram as it should be.
        DropBadMad => "drop_bad_mad",
        /// Dropped: to QP1, while as many management datagrams wait as can.
        DropMadOverflow => "drop_mad_overflow",
        /// Dropped: from another address than the queue pair's peer.
        DropWrongSource => "drop_wrong_source",
        /// Dropped: the opcode is not of the queue pair's service.
        DropWrongService => "drop_wrong_service",
        /// Dropped: the P_Key is not the queue pair's.
        DropWrongPkey => "drop_wrong_pkey",
        /// Dropped: the Q_Key is not the queue pair's.
        DropWrongQkey => "drop_wrong_qkey",
        /// Dropped: the queue pair does not receive in its state.
        DropNotReady => "drop_not_ready",
        /// Dropped: a duplicate that needs no answer, or whose answer is no longer kept.
        DropDuplicate => "drop_duplicate",
        /// Dropped: out of sequence while a NAK is outstanding, or kept until then.
        DropOutOfSequence => "drop_out_of_sequence",
        /// Dropped: an answer to nothing that is outstanding (ghost ACK).
        DropGhostAck => "drop_ghost_ack",
        /// Dropped: an answer with a reserved syndrome.
        DropReservedSyndrome => "drop_reserved_syndrome",
        /// Dropped: an answer while the same packets are being sent again, or kept until then.
        DropImpliedNak => "drop_implied_nak",
        /// Dropped: lost on purpose, as was asked for when the device was opened.
        DropSimulated => "drop_simulated",
        /// Received a second time, on purpose.
        SimulatedDuplicate => "simulated_duplicate",
        /// Received late, behind others that came after them, on purpose.
        SimulatedReorder => "simulated_reorder",
        /// Received with flipped bits, on purpose. All but one of 65,536 count in `drop_icrc`, too.
        SimulatedCorrupt => "simulated_corrupt",
        /// Received with a mark of congestion, on purpose.
        SimulatedMark => "simulated_mark",
        /// Requests refused: for a shared receive queue that the target's XRC domain does not have.
        XrcViolation => "xrc_violation",
        /// Times a message found its shared receive queue empty.
        SrqEmpty => "srq_empty",
        /// Dropped: of a message of which an earlier packet was lost or refused (UC).
        DropIncomplete => "drop_incomplete",
        /// Dropped: no receive was posted, on a service that does not tell the sender (UC, UD).
        DropNoReceive => "drop_no_receive",
        /// Dropped: the message does not fit the receive (UC, UD).
        DropTooLong => "drop_too_long",
        /// Dropped: a WRITE without the right to do it (UC).
        DropNoRight => "drop_no_right",
        /// Dropped: lengths that contradict each other or the path MTU (UC).
        DropBadLength => "drop_bad_length",
        /// Refused: a peer's access by a key that no region has.
        AccessUnknownKey => "access_unknown_key",
        /// Refused: a peer's access by a key that a window or fast-registration region had, or has
        /// while it is not valid.
        AccessStaleKey => "access_stale_key",
        /// Refused: a peer's access to a region or window of another protection domain.
        AccessWrongPd => "access_wrong_pd",
        /// Refused: a peer's access to a window that another queue pair bound.
        AccessWrongQp => "access_wrong_qp",
        /// Refused: a peer's access that the region or window does not grant.
        AccessDenied => "access_denied",
        /// Refused: a peer's access beyond the bounds of the region or window.
        AccessOutOfBounds => "access_out_of_bounds",
        /// Refused: a peer's access to pages that are not mapped (on-demand regions).
        AccessNotMapped => "access_not_mapped",
        /// Refused: a peer's FLUSH for persistence, of memory that does not last (any more) or that
        /// the system failed to write.
        FlushFailed => "flush_failed",
        /// Refused: a peer's SEND with invalidate, by the key that it names.
        InvalidateRefused => "invalidate_refused",
        /// Refused: an own work request that binds a window, registers or invalidates.
        LocalOpRefused => "local_op_refused",
        /// Received data packets of reliable connections that a router had marked (CE): the queue
        /// pair's peer is told.
        EcnMarked => "np_ecn_marked_roce_packets",
        /// Congestion notifications sent.
        CnpSent => "np_cnp_sent",
        /// Congestion notifications received, for a queue pair that has that peer.
        CnpHandled => "rp_cnp_handled",
        /// Congestion notifications received, for no queue pair that sends reliably to where they
        /// came from.
        CnpIgnored => "rp_cnp_ignored",

        /// Arrived here and passed on to the process that they are for.
        Forwarded => "forwarded",
        /// Received from another process where they arrived.
        RcvdForwarded => "rcvd_forwarded",

        /// Received: the ICRC holds for the identification that the sender's position in a run
        /// tells.
        IcrcExact => "icrc_exact",
        /// Received: the ICRC holds for some identification, which a UDP socket does not show.
        IcrcSolved => "icrc_solved",
    }
}

impl Counter {
    /// How many of [`ALL`](Self::ALL), from the first, `rdma_rxe` has too.
    pub const KERNEL: usize = 15;
}

/// The counters of one device.
#[derive(Debug)]
pub struct Counters {
    values: Box<[AtomicU64]>,
}

impl Default for Counters {
    fn default() -> Self {
        Self { values: Counter::ALL.iter().map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Counters {
    /// Adds one.
    #[inline]
    pub fn add(&self, counter: Counter) {
        self.add_many(counter, 1);
    }

    /// Adds `n`.
    #[inline]
    pub fn add_many(&self, counter: Counter, n: u64) {
        self.values[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn value(&self, counter: Counter) -> u64 {
        self.values[counter as usize].load(Ordering::Relaxed)
    }

    /// Every counter with its value now.
    pub fn snapshot(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().map(|counter| (*counter, self.value(*counter)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_fifteen_come_first_under_their_names() {
        let names: Vec<_> = Counter::ALL[..Counter::KERNEL].iter().map(|c| c.name()).collect();
        assert_eq!(
            names,
            [
                "sent_pkts",
                "rcvd_pkts",
                "duplicate_request",
                "out_of_seq_request",
                "rcvd_rnr_err",
                "send_rnr_err",
                "rcvd_seq_err",
                "ack_deferred",
                "retry_exceeded_err",
                "retry_rnr_exceeded_err",
                "completer_retry_err",
                "send_err",
                "link_downed",
                "rdma_sends",
                "rdma_recvs"
            ]
        );
        let counters = Counters::default();
        counters.add_many(Counter::IcrcSolved, 3);
        assert_eq!(counters.snapshot().last(), Some((Counter::IcrcSolved, 3)));
    }
}
