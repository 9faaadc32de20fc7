//! The counters of an end: the fifteen of `rdma_rxe`, by the names of `rdma statistic show link`,
//! or those of urxe, which include them.

use std::{collections::BTreeMap, fmt};

use super::Error;

/// Counters that move only when a packet was lost, late, duplicated or damaged. All counters of
/// urxe that begin with [`DROPPED`] belong to them.
const FAULT_COUNTERS: [&str; 9] = [
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

/// The prefix of urxe's counters of dropped packets.
const DROPPED: &str = "drop_";

const SENT: &str = "sent_pkts";
const RECEIVED: &str = "rcvd_pkts";

/// A reading, or the difference of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Parses lines like `sent_pkts:0`, one for each file of `hw_counters`.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        Self::from_words(text.split([':', '\n']).filter(|word| !word.is_empty()))
            .ok_or_else(|| Error::Malformed { what: "counters", text: text.to_owned() })
    }

    /// Returns all counters of a device of urxe in one line, each name followed by the value.
    #[must_use]
    pub fn line_of(device: &urxe::Device) -> String {
        let each = device.counters().map(|(counter, value)| format!("{} {value}", counter.name()));
        each.collect::<Vec<_>>().join(" ")
    }

    /// Parses the line `counters: sent_pkts 0 rcvd_pkts 0 …` in the output of `urxe-peer`.
    ///
    /// # Errors
    /// [`Error::Malformed`] when there is no such line.
    pub fn of_urxe_peer(output: &str) -> Result<Self, Error> {
        let line = output.lines().find_map(|line| line.strip_prefix("counters: "));
        line.and_then(|line| Self::from_words(line.split_whitespace())).ok_or_else(|| {
            Error::Malformed { what: "output of urxe-peer", text: output.to_owned() }
        })
    }

    fn from_words<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut counters = BTreeMap::new();
        while let Some(name) = words.next() {
            counters.insert(name.to_owned(), words.next()?.parse().ok()?);
        }
        Self::new(counters)
    }

    /// Creates counters from names and values. Returns `None` if a required counter is missing.
    pub fn new(counters: BTreeMap<String, u64>) -> Option<Self> {
        let mut needed = FAULT_COUNTERS.iter().chain(&[SENT, RECEIVED]);
        needed.all(|name| counters.contains_key(*name)).then_some(Self(counters))
    }

    /// Returns the number of sent packets.
    pub fn sent(&self) -> u64 {
        self.value(SENT)
    }

    /// Returns the number of received packets with a correct ICRC.
    pub fn received(&self) -> u64 {
        self.value(RECEIVED)
    }

    /// Returns the difference to an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |(name, value): (&String, &u64)| {
            (name.clone(), value - earlier.0.get(name).copied().unwrap_or_default())
        };
        Self(self.0.iter().map(difference).collect())
    }

    /// Returns a counter by the kernel's name, or 0 if the counter is absent.
    pub fn value(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Returns the counters that moved although a clean link loses, duplicates and damages nothing.
    pub fn faults(&self) -> Self {
        let is_fault = |name: &str| FAULT_COUNTERS.contains(&name) || name.starts_with(DROPPED);
        let moved = self.0.iter().filter(|(name, value)| is_fault(name) && **value > 0);
        Self(moved.map(|(name, value)| (name.clone(), *value)).collect())
    }

    /// Returns the names of the counters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns whether there are no counters.
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

    const QUIET: &str = "\
        sent_pkts:10\nrcvd_pkts:4\nduplicate_request:0\nout_of_seq_request:0\n\
        rcvd_rnr_err:0\nsend_rnr_err:0\nrcvd_seq_err:0\nack_deferred:0\n\
        retry_exceeded_err:0\nretry_rnr_exceeded_err:0\ncompleter_retry_err:0\n\
        send_err:0\nlifespan:10\nlink_downed:0\nrdma_sends:2\nrdma_recvs:2\n";

    #[test]
    fn a_clean_run_has_no_trouble() {
        let before = Counters::parse(QUIET).unwrap();
        let after = Counters::parse(&QUIET.replace("sent_pkts:10", "sent_pkts:25")).unwrap();
        assert_eq!(after.since(&before).value("sent_pkts"), 15);
        assert!(after.since(&before).faults().is_empty());
    }

    #[test]
    fn a_retry_is_a_fault() {
        let before = Counters::parse(QUIET).unwrap();
        let after =
            Counters::parse(&QUIET.replace("completer_retry_err:0", "completer_retry_err:2"))
                .unwrap();
        assert_eq!(after.since(&before).faults().to_string(), "completer_retry_err 2");
    }

    #[test]
    fn a_packet_that_urxe_drops_is_trouble() {
        let line = format!("counters: {}", QUIET.replace([':', '\n'], " ").trim_end());
        let output = format!("OK SEND 1 20\n{line} drop_icrc 1 icrc_exact 3\n");
        let counters = Counters::of_urxe_peer(&output).unwrap();
        assert_eq!((counters.sent(), counters.received()), (10, 4));
        assert_eq!(counters.faults().to_string(), "drop_icrc 1");
        assert!(Counters::of_urxe_peer("OK SEND 1 20\n").is_err());
    }

    #[test]
    fn another_output_is_an_error() {
        for text in ["", "sent_pkts", "sent_pkts:x", "sent_pkts:1"] {
            assert!(Counters::parse(text).is_err(), "{text}");
        }
    }
}
