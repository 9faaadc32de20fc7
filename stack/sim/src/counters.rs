//! What became of every packet.

/// Packets by their fate; one to a multicast group counts once for each node that it goes to. After
/// the last arrival [`accepted`](Self::accepted) = [`fates`](Self::fates).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Handed in by the nodes and not refused.
    pub sent: u64,
    /// Second copies that links made.
    pub duplicated: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost because the queue of a link of limited rate was full.
    pub queue_overflow: u64,
    /// Dropped by a pause.
    pub paused: u64,
    /// To an address that no node has, or to a group that none joined.
    pub unroutable: u64,
    /// Dropped because the receiver's buffer was full.
    pub buffer_overflow: u64,
    /// Dropped because more packets were on the way than the network keeps.
    pub overload: u64,
    /// Read by the nodes.
    pub delivered: u64,

    /// Refused to the sender because the link's MTU is smaller. Not in `sent`.
    pub too_big: u64,
    /// Refused to the sender because the run was empty, too long or had too many segments. Not in
    /// `sent`.
    pub bad_run: u64,
    /// Copies that arrived with flipped bits. Also counted where they ended.
    pub corrupted: u64,
    /// Packets marked, as by a router whose queue grows. Also counted where their copies ended.
    pub marked: u64,
    /// Copies made late on purpose. Also counted where they ended.
    pub reordered: u64,
    /// Times that a copy waited for the end of a pause. Also counted where it ended.
    pub held: u64,
    /// Packets that were merged to the one before them. Also in `delivered`.
    pub merged: u64,
    /// Runs handed in and not refused.
    pub runs: u64,
    /// Reads: single packets or merged ones.
    pub reads: u64,
}

impl SimCounters {
    /// Copies that came into being.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.sent + self.duplicated
    }

    /// Copies whose way has ended.
    #[must_use]
    pub fn fates(&self) -> u64 {
        self.lost
            + self.queue_overflow
            + self.paused
            + self.unroutable
            + self.buffer_overflow
            + self.overload
            + self.delivered
    }
}
