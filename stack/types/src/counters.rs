//! Counters of a device: the fifteen counters of the kernel's `rdma_rxe` under their kernel names
//! (`rxe_hw_counters.c`), and one for each reason to drop a packet.

use crate::sync::atomic::{AtomicU64, Ordering};

crate::named_enum! {
    /// A counter of a device, with its name in listings.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum Counter: name {
        /// Packets sent.
        SentPkts => "sent_pkts",
        /// Packets received with a correct ICRC.
        RcvdPkts => "rcvd_pkts",
        /// Requests received again.
        DuplicateRequest => "duplicate_request",
        /// Requests received before an earlier one, whether stored or dropped. `rdma_rxe` stores
        /// none and counts only the first, for which it sends a NAK.
        OutOfSeqRequest => "out_of_seq_request",
        /// RNR NAKs received.
        RcvdRnrErr => "rcvd_rnr_err",
        /// RNR NAKs sent.
        SendRnrErr => "send_rnr_err",
        /// Sequence NAKs received.
        RcvdSeqErr => "rcvd_seq_err",
        /// Acknowledgements merged into a later acknowledgement.
        AckDeferred => "ack_deferred",
        /// Work requests that failed because the peer did not respond.
        RetryExceededErr => "retry_exceeded_err",
        /// Work requests that failed because the peer had no receive posted.
        RetryRnrExceededErr => "retry_rnr_exceeded_err",
        /// Number of times that the requester resent packets.
        CompleterRetryErr => "completer_retry_err",
        /// Sends that the system rejected.
        SendErr => "send_err",
        /// Number of times that the link went down.
        LinkDowned => "link_downed",
        /// RDMA operations sent (WRITE, READ, atomics).
        RdmaSends => "rdma_sends",
        /// RDMA operations received.
        RdmaRecvs => "rdma_recvs",

        /// Sequence NAKs sent, for requests that count as lost.
        SendSeqErr => "send_seq_err",
        /// Packets received before an earlier one and stored: responses, and requests, which
        /// `out_of_seq_request` also counts.
        ReorderBuffered => "reorder_buffered",
        /// Stored packets that were processed after the missing packets had arrived.
        ReorderDelivered => "reorder_delivered",
        /// Last packets resent because no response arrived, to detect which packets were lost.
        TailProbes => "tail_probes",
        /// Times that a peer acknowledged packets, but none of the path MTU, until the retries were
        /// exceeded. A router on the path probably has a smaller MTU.
        PathMtuSuspected => "path_mtu_suspected",
        /// Dropped: malformed. The log states the reason.
        DropMalformed => "drop_malformed",
        /// Dropped: wrong ICRC.
        DropIcrc => "drop_icrc",
        /// Dropped: the queue pair does not exist.
        DropNoQp => "drop_no_qp",
        /// Dropped: no queue pair is attached to the multicast group.
        DropNoGroup => "drop_no_group",
        /// Dropped: a multicast group with another queue pair number than 0xffffff, or this number
        /// at a unicast address.
        DropGroupMismatch => "drop_group_mismatch",
        /// Dropped: no process has the process slot.
        DropOtherProcess => "drop_other_process",
        /// Dropped: unread datagrams in the socket of a process that ended.
        DropOrphanedSlot => "drop_orphaned_slot",
        /// Dropped: a request to QP1 for a service without a listener, or a packet to QP1 for a
        /// process without a connection manager.
        DropNoListener => "drop_no_listener",
        /// Dropped: a packet to QP0 or QP1 that is not a valid management datagram.
        DropBadMad => "drop_bad_mad",
        /// Dropped: a packet to QP1 while the queue of management datagrams is full.
        DropMadOverflow => "drop_mad_overflow",
        /// Dropped: the source address is not that of the queue pair's peer.
        DropWrongSource => "drop_wrong_source",
        /// Dropped: another UDP source port than the peer's, and not the expected PSN.
        DropUnknownPort => "drop_unknown_port",
        /// Dropped: the opcode does not belong to the queue pair's service.
        DropWrongService => "drop_wrong_service",
        /// Dropped: the P_Key does not match the queue pair's.
        DropWrongPkey => "drop_wrong_pkey",
        /// Dropped: the Q_Key does not match the queue pair's.
        DropWrongQkey => "drop_wrong_qkey",
        /// Dropped: the queue pair does not receive in its current state.
        DropNotReady => "drop_not_ready",
        /// Dropped: a duplicate that needs no response, or whose response is no longer stored.
        DropDuplicate => "drop_duplicate",
        /// Dropped: out of sequence, while a NAK is outstanding or after the packet was stored.
        DropOutOfSequence => "drop_out_of_sequence",
        /// Dropped: a response to a request that is not outstanding (ghost ACK).
        DropGhostAck => "drop_ghost_ack",
        /// Dropped: a response with a reserved syndrome.
        DropReservedSyndrome => "drop_reserved_syndrome",
        /// Dropped: a response while its packets are being resent, or stored until then.
        DropImpliedNak => "drop_implied_nak",
        /// Dropped: simulated loss, as configured for the device.
        DropSimulated => "drop_simulated",
        /// Received twice, by simulation.
        SimulatedDuplicate => "simulated_duplicate",
        /// Received after later packets, by simulation.
        SimulatedReorder => "simulated_reorder",
        /// Received with flipped bits, by simulation. All but one of 65,536 also count in
        /// `drop_icrc`.
        SimulatedCorrupt => "simulated_corrupt",
        /// Received with a congestion mark, by simulation.
        SimulatedMark => "simulated_mark",
        /// Times that the UDP source port of received packets changed, by simulation.
        SimulatedRebind => "simulated_rebind",
        /// The UDP source port of a connection's peer changed, with the expected PSN.
        SourcePortChanged => "source_port_changed",
        /// Requests rejected: the target's XRC domain does not have the shared receive queue.
        XrcViolation => "xrc_violation",
        /// Number of times that a message found its shared receive queue empty.
        SrqEmpty => "srq_empty",
        /// Dropped: an earlier packet of the message was lost or rejected (UC).
        DropIncomplete => "drop_incomplete",
        /// Dropped: no receive was posted, and the service does not report this to the sender (UC,
        /// UD).
        DropNoReceive => "drop_no_receive",
        /// Dropped: the message does not fit the receive (UC, UD).
        DropTooLong => "drop_too_long",
        /// Dropped: a WRITE without the necessary rights (UC).
        DropNoRight => "drop_no_right",
        /// Dropped: lengths that contradict each other or the path MTU (UC).
        DropBadLength => "drop_bad_length",
        /// Rejected: a peer's access with an unknown key.
        AccessUnknownKey => "access_unknown_key",
        /// Rejected: a peer's access with a former key of a window or fast-registration region, or
        /// with its key while the region is not valid.
        AccessStaleKey => "access_stale_key",
        /// Rejected: a peer's access to a region or window of another protection domain.
        AccessWrongPd => "access_wrong_pd",
        /// Rejected: a peer's access to a window that another queue pair bound.
        AccessWrongQp => "access_wrong_qp",
        /// Rejected: a peer's access that the region or window does not grant.
        AccessDenied => "access_denied",
        /// Rejected: a peer's access outside the region or window.
        AccessOutOfBounds => "access_out_of_bounds",
        /// Rejected: a peer's access to absent pages (on-demand regions).
        AccessNotMapped => "access_not_mapped",
        /// Rejected: a peer's FLUSH to persistence, for memory that is not persistent, or after an
        /// error of the system.
        FlushFailed => "flush_failed",
        /// Rejected: a peer's SEND with invalidate, because of its key.
        InvalidateRefused => "invalidate_refused",
        /// Rejected: a local work request that binds a window, registers or invalidates.
        LocalOpRefused => "local_op_refused",
        /// Data packets of reliable connections received with a congestion mark (CE). The queue
        /// pair's peer receives a CNP.
        EcnMarked => "np_ecn_marked_roce_packets",
        /// Congestion notifications sent.
        CnpSent => "np_cnp_sent",
        /// Congestion notifications received for a queue pair with that peer.
        CnpHandled => "rp_cnp_handled",
        /// Congestion notifications received without a queue pair that reliably sends to their
        /// source.
        CnpIgnored => "rp_cnp_ignored",

        /// Packets received here and forwarded to the process that they belong to.
        Forwarded => "forwarded",
        /// Packets received from another process that forwarded them.
        RcvdForwarded => "rcvd_forwarded",
        /// Packets received from another process through memory that both share.
        RcvdInMemory => "rcvd_in_memory",

        /// Packets received whose ICRC is correct for the expected identification, which follows
        /// from the index in a run.
        IcrcExact => "icrc_exact",
        /// Packets received whose ICRC is correct for another identification.
        IcrcSolved => "icrc_solved",
    }
}

impl Counter {
    /// The number of counters, from the first of [`ALL`](Self::ALL), that `rdma_rxe` has as well.
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
    /// Adds one to `counter`.
    #[inline]
    pub fn add(&self, counter: Counter) {
        self.add_many(counter, 1);
    }

    /// Adds `n` to `counter`.
    #[inline]
    pub fn add_many(&self, counter: Counter, n: u64) {
        self.values[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the current value of `counter`.
    #[must_use]
    pub fn value(&self, counter: Counter) -> u64 {
        self.values[counter as usize].load(Ordering::Relaxed)
    }

    /// Returns all counters with their current values.
    pub fn snapshot(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().map(|counter| (*counter, self.value(*counter)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_fifteen_counters_have_their_names_and_are_first() {
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
