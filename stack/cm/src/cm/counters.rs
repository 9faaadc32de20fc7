//! What the connection manager counts: MADs by message as the kernel does (cm.c's `cm_tx_msgs`,
//! `cm_tx_retries`, `cm_rx_msgs`, `cm_rx_duplicates`), and one counter for each reason to drop one.

use urxe_wire::mad::{Attribute, MadError};

urxe_types::named_enum! {
    /// Why a MAD that parses has no effect, named in listings.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum CmDrop: name {
        /// No communication has the id. A REP, DREQ or LAP is answered all the same.
        UnknownId => "cm_drop_unknown_id",
        /// It comes from another address than the communication's, or to another.
        WrongSource => "cm_drop_wrong_source",
        /// The message has no place in the communication's state.
        WrongState => "cm_drop_wrong_state",
        /// A DREQ names another queue pair.
        WrongQpn => "cm_drop_wrong_qpn",
        /// The listener's backlog is full. Not answered, so that the peer tries again.
        BacklogFull => "cm_drop_backlog_full",
        /// Too many peers have been answered and not been heard of again. Not answered, so that the
        /// peer tries again.
        HalfOpenFull => "cm_drop_half_open_full",
    }
}

/// The counters of a connection manager. Arrays by message are in the order of [`Attribute::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CmCounters {
    /// MADs sent.
    pub tx_msgs: [u64; 11],
    /// Of those, sent again because no answer came, or because the peer repeated its question.
    pub tx_retries: [u64; 11],
    /// MADs received that parse.
    pub rx_msgs: [u64; 11],
    /// Of those, received before.
    pub rx_duplicates: [u64; 11],
    /// What is no MAD of communication management, by [`MadError::index`].
    pub malformed: [u64; MadError::NAMES.len()],
    /// What was dropped, in the order of [`CmDrop::ALL`].
    pub dropped: [u64; CmDrop::ALL.len()],
}

const fn at(attribute: Attribute) -> usize {
    (attribute.id() - Attribute::Req.id()) as usize
}

impl CmCounters {
    /// MADs of a kind received.
    #[must_use]
    pub const fn received(&self, attribute: Attribute) -> u64 {
        self.rx_msgs[at(attribute)]
    }

    /// MADs of a kind sent.
    #[must_use]
    pub const fn sent(&self, attribute: Attribute) -> u64 {
        self.tx_msgs[at(attribute)]
    }

    /// MADs of a kind received before.
    #[must_use]
    pub const fn duplicates(&self, attribute: Attribute) -> u64 {
        self.rx_duplicates[at(attribute)]
    }

    /// MADs dropped for a reason.
    #[must_use]
    pub const fn dropped(&self, reason: CmDrop) -> u64 {
        self.dropped[reason as usize]
    }

    /// All of them with their names: MADs as the kernel's files beneath `ports/1`, such as
    /// `cm_rx_msgs/req`.
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
        messages.chain(malformed).chain(dropped)
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

    pub(super) const fn count_dropped(&mut self, reason: CmDrop) {
        self.dropped[reason as usize] += 1;
    }
}
