//! The fifteen counters of `rdma_rxe`, as `rdma statistic show link` prints them.

use std::{collections::BTreeMap, fmt};

use super::Error;

/// Counters that move only when a packet was lost, late, twice or damaged: a retry, or the reason for one. A packet
/// whose ICRC is wrong has no counter of its own; the kernel drops it, so these see it as a lost one.
const OF_TROUBLE: [&str; 9] = [
    "duplicate_request",
    "out_of_seq_request",
    "rcvd_rnr_err",
    "send_rnr_err",
    "rcvd_seq_err",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "completer_retry_err",
    "send_err",
];

/// A reading, or the difference of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Parses `link rxe0/1 sent_pkts 0 rcvd_pkts 0 …`.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let malformed = || Error::Malformed { what: "rdma statistic", text: text.to_owned() };
        let mut words = text.split_whitespace();
        if words.next() != Some("link") || words.next().is_none() {
            return Err(malformed());
        }
        let mut counters = BTreeMap::new();
        while let Some(name) = words.next() {
            let value = words.next().and_then(|word| word.parse().ok()).ok_or_else(malformed)?;
            counters.insert(name.to_owned(), value);
        }
        if OF_TROUBLE.iter().all(|name| counters.contains_key(*name)) {
            Ok(Self(counters))
        } else {
            Err(malformed())
        }
    }

    /// What happened since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |(name, value): (&String, &u64)| {
            (name.clone(), value - earlier.0.get(name).copied().unwrap_or_default())
        };
        Self(self.0.iter().map(difference).collect())
    }

    /// One of them by the kernel's name for it; 0 when it has none such.
    pub fn value(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Those that have moved though nothing was lost, duplicated or damaged; empty for a clean run.
    pub fn trouble(&self) -> Self {
        Self(
            OF_TROUBLE
                .iter()
                .map(|name| ((*name).to_owned(), self.value(name)))
                .filter(|(_, n)| *n > 0)
                .collect(),
        )
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {value}", if place == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Counters;

    const QUIET: &str = "link rxe0/1 sent_pkts 10 rcvd_pkts 4 duplicate_request 0 out_of_seq_request 0 rcvd_rnr_err 0 \
        send_rnr_err 0 rcvd_seq_err 0 ack_deferred 0 retry_exceeded_err 0 retry_rnr_exceeded_err 0 \
        completer_retry_err 0 send_err 0 link_downed 0 rdma_sends 2 rdma_recvs 2 \n";

    #[test]
    fn a_clean_run_has_no_trouble() {
        let before = Counters::parse(QUIET).unwrap();
        let after = Counters::parse(&QUIET.replace("sent_pkts 10", "sent_pkts 25")).unwrap();
        assert_eq!(after.since(&before).value("sent_pkts"), 15);
        assert!(after.since(&before).trouble().is_empty());
    }

    #[test]
    fn a_retry_is_trouble() {
        let before = Counters::parse(QUIET).unwrap();
        let after =
            Counters::parse(&QUIET.replace("completer_retry_err 0", "completer_retry_err 2")).unwrap();
        assert_eq!(after.since(&before).trouble().to_string(), "completer_retry_err 2");
    }

    #[test]
    fn another_output_is_an_error() {
        for text in
            ["", "link", "link rxe0/1 sent_pkts", "link rxe0/1 sent_pkts x", "link rxe0/1 sent_pkts 1"]
        {
            assert!(Counters::parse(text).is_err(), "{text}");
        }
    }
}
