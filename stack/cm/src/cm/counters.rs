//! Counters of the connection manager: MADs by message like the kernel (cm.c's `cm_tx_msgs`,
//! `cm_tx_retries`, `cm_rx_msgs`, `cm_rx_duplicates`), and one counter for each reason to drop a
//! MAD.

use urxe_wire::mad::{Attribute, MadError};

urxe_types::named_enum! {
    /// The reason why a valid MAD has no effect, with the counter's name in listings.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum CmDrop: name {
        /// No connection has the id. A REP, DREQ or LAP is still answered.
        UnknownId => "cm_drop_unknown_id",
        /// Source or destination address differ from those of the connection.
        WrongSource => "cm_drop_wrong_source",
        /// The state of the connection does not allow the message.
        WrongState => "cm_drop_wrong_state",
        /// The DREQ names another queue pair.
        WrongQpn => "cm_drop_wrong_qpn",
        /// The listener's backlog is full. The peer receives no reply and tries again.
        BacklogFull => "cm_drop_backlog_full",
    }
}

urxe_types::named_enum! {
    /// The table from which a new entry evicted an old one, with the counter's name in listings.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum CmEviction: name {
        /// An accepted connection that its peer had not confirmed. The peer may ask again.
        HalfOpen => "cm_evicted_half_open",
        /// A connection in TIMEWAIT, or an answered SIDR_REQ. Its time ended early.
        Timewait => "cm_evicted_timewait",
    }
}

/// The counters of a connection manager. Arrays by message have the order of [`Attribute::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CmCounters {
    /// MADs sent.
    pub tx_msgs: [u64; 11],
    /// MADs sent again, because no reply arrived or because the peer repeated its request.
    pub tx_retries: [u64; 11],
    /// Valid MADs received.
    pub rx_msgs: [u64; 11],
    /// MADs received again.
    pub rx_duplicates: [u64; 11],
    /// Packets that are not MADs of the connection manager, by [`MadError::index`].
    pub malformed: [u64; MadError::NAMES.len()],
    /// MADs dropped, in the order of [`CmDrop::ALL`].
    pub dropped: [u64; CmDrop::ALL.len()],
    /// Entries evicted, in the order of [`CmEviction::ALL`].
    pub evicted: [u64; CmEviction::ALL.len()],
}

const fn at(attribute: Attribute) -> usize {
    (attribute.id() - Attribute::Req.id()) as usize
}

impl CmCounters {
    /// Returns the number of MADs of this type received.
    #[must_use]
    pub const fn received(&self, attribute: Attribute) -> u64 {
        self.rx_msgs[at(attribute)]
    }

    /// Returns the number of MADs of this type sent.
    #[must_use]
    pub const fn sent(&self, attribute: Attribute) -> u64 {
        self.tx_msgs[at(attribute)]
    }

    /// Returns the number of MADs of this type received again.
    #[must_use]
    pub const fn duplicates(&self, attribute: Attribute) -> u64 {
        self.rx_duplicates[at(attribute)]
    }

    /// Returns the number of MADs dropped for this reason.
    #[must_use]
    pub const fn dropped(&self, reason: CmDrop) -> u64 {
        self.dropped[reason as usize]
    }

    /// Returns the number of entries evicted from this table.
    #[must_use]
    pub const fn evicted(&self, from: CmEviction) -> u64 {
        self.evicted[from as usize]
    }

    /// Returns all counters with their names. MADs have the names of the kernel's files below
    /// `ports/1`, such as `cm_rx_msgs/req`.
    pub fn named(&self) -> impl Iterator<Item = (String, u64)> {
        let by_message = [
            ("cm_tx_msgs", &self.tx_msgs),
            ("cm_tx_retries", &self.tx_retries),
            ("cm_rx_msgs", &self.rx_msgs),
            ("cm_rx_duplicates", &self.rx_duplicates),
        ];
        let messages = by_message.into_iter().flat_map(|(group, values)| {
            let name = move |attribute: &Attribute| {
                format!("{group}/{}", attribute.name().to_ascii_lowercase())
            };
            Attribute::ALL.iter().map(name).zip(values.iter().copied())
        });
        let malformed = MadError::NAMES
            .into_iter()
            .map(|name| format!("cm_malformed/{name}"))
            .zip(self.malformed);
        let dropped =
            CmDrop::ALL.into_iter().map(|reason| (reason.name().to_owned(), self.dropped(reason)));
        let evicted =
            CmEviction::ALL.into_iter().map(|from| (from.name().to_owned(), self.evicted(from)));
        messages.chain(malformed).chain(dropped).chain(evicted)
    }

    pub(super) const fn count_received(&mut self, attribute: Attribute) {
        self.rx_msgs[at(attribute)] += 1;
    }

    pub(super) const fn count_duplicate(&mut self, attribute: Attribute) {
        self.rx_duplicates[at(attribute)] += 1;
    }

    pub(super) const fn count_sent(&mut self, attribute: Attribute, is_retry: bool) {
        self.tx_msgs[at(attribute)] += 1;
        self.tx_retries[at(attribute)] += is_retry as u64;
    }

    pub(super) const fn count_malformed(&mut self, reason: MadError) {
        self.malformed[reason.index()] += 1;
    }

    pub(super) const fn count_evicted(&mut self, from: CmEviction) {
        self.evicted[from as usize] += 1;
    }

    pub(super) const fn count_dropped(&mut self, reason: CmDrop) {
        self.dropped[reason as usize] += 1;
    }
}
