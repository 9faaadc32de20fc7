//! The results of a run: rows with their ratios to the floors of the same run.

use serde::Serialize;

use super::case::{Case, Metric};
use super::floor::{Floor, Kind};
use super::runner::{Outcome, Workload};
use super::statistics::{Quantiles, Sample, ratio};
use crate::traffic::operation::Operation;

/// Bandwidth of one operation at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    /// The operation.
    pub operation: Operation,
    /// Bytes of a message.
    pub size: usize,
    /// Payload bits a second, in 10^9.
    pub gbps: f64,
    /// Messages a second, in 10^6.
    pub mmps: f64,
    /// The ratio to the floor with GSO and GRO runs.
    pub of_udp_gso: Option<f64>,
    /// The ratio to the TCP stream.
    pub of_tcp: Option<f64>,
    /// The ratio to the floor with one datagram for each system call.
    pub of_udp_single: Option<f64>,
    /// Payload bits a second of each round, in 10^9.
    pub rounds: Vec<f64>,
    /// Messages of all rounds.
    pub messages: u64,
    /// Messages whose bytes were verified.
    pub verified: u64,
}

/// Latency of one operation at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The operation.
    pub operation: Operation,
    /// Bytes of a message.
    pub size: usize,
    /// Microseconds: half a round trip for SEND, WRITE and WRITE_IMM; from post to completion for
    /// the others.
    pub usec: Quantiles,
    /// The ratio of the median to the spinning floor.
    pub of_spinning: Option<f64>,
    /// The ratio of the median to the blocking floor.
    pub of_blocking: Option<f64>,
    /// Medians of each round.
    pub rounds: Vec<f64>,
    /// Round trips in all rounds.
    pub messages: u64,
    /// Messages whose bytes were verified.
    pub verified: u64,
}

/// A floor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FloorRow {
    /// The name.
    pub floor: String,
    /// Payload bits a second, in 10^9; absent for a ping-pong.
    pub gbps: Option<f64>,
    /// Datagrams a second, in 10^6.
    pub mmps: Option<f64>,
    /// Median microseconds of half a round trip.
    pub usec: Option<f64>,
    /// The lost share.
    pub lost: f64,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// This end's device.
    pub device: String,
    /// The other end's device.
    pub peer: String,
    /// Path MTU in bytes.
    pub mtu: usize,
    /// Rounds of each figure; the report shows their medians.
    pub rounds: u32,
    /// Retransmissions of this end.
    pub retries: u64,
    /// Whether packets went through memory that both processes share.
    pub in_memory: bool,
    /// Bandwidth.
    pub bandwidth: Vec<Bandwidth>,
    /// Latency.
    pub latency: Vec<Latency>,
    /// The floors.
    pub floors: Vec<FloorRow>,
}

impl Report {
    /// Takes the rows of a comparison.
    pub fn take(&mut self, workloads: &[Workload], outcomes: &[Outcome]) {
        let floors = Floors { workloads, outcomes };
        for (workload, outcome) in workloads.iter().zip(outcomes) {
            match workload {
                Workload::Case { case, .. } if case.metric == Metric::Bandwidth => {
                    self.bandwidth.push(floors.bandwidth(case, outcome));
                }
                Workload::Case { case, .. } => self.latency.push(floors.latency(case, outcome)),
                Workload::Floor(floor) => self.take_floor(floor, &outcome.median),
            }
        }
    }

    fn take_floor(&mut self, floor: &Floor, median: &Sample) {
        let moves = median.usec.is_none();
        let row = FloorRow {
            floor: floor.name(),
            gbps: moves.then_some(median.gbps),
            mmps: (moves && floor.kind != Kind::Tcp).then_some(median.mmps),
            usec: median.usec.map(|times| times.p50),
            lost: median.lost,
        };
        // Sizes with the same datagrams share a floor. Only their memory differs, so the first row
        // suffices.
        if self.floors.iter().all(|other| other.floor != row.floor) {
            self.floors.push(row);
        }
    }

    /// Returns the number of verified messages.
    pub fn verified(&self) -> u64 {
        let bandwidth = self.bandwidth.iter().map(|row| row.verified);
        bandwidth.chain(self.latency.iter().map(|row| row.verified)).sum()
    }
}

/// The floors of a comparison.
pub struct Floors<'a> {
    /// The workloads.
    pub workloads: &'a [Workload],
    /// Their results.
    pub outcomes: &'a [Outcome],
}

impl Floors<'_> {
    /// Returns the floor of a kind for a case, with any round time.
    pub fn under(&self, case: &Case, kind: Kind) -> Option<&Sample> {
        let matches = |floor: &Floor| {
            let wanted = Floor::under(case, kind, floor.round());
            Floor { receive_buffer: None, ..*floor } == wanted
        };
        let at = self.workloads.iter().position(|workload| match workload {
            Workload::Floor(floor) => matches(floor),
            Workload::Case { .. } => false,
        })?;
        self.outcomes.get(at).map(|outcome| &outcome.median)
    }

    fn rate(&self, case: &Case, kind: Kind) -> f64 {
        self.under(case, kind).map_or(0.0, |floor| floor.gbps)
    }

    fn bandwidth(&self, case: &Case, outcome: &Outcome) -> Bandwidth {
        let median = &outcome.median;
        let of = |kind| ratio(median.gbps, self.rate(case, kind));
        Bandwidth {
            operation: case.operation,
            size: case.size,
            gbps: median.gbps,
            mmps: median.mmps,
            of_udp_gso: of(Kind::Stream { both: case.bidirectional }),
            of_tcp: of(Kind::Tcp),
            of_udp_single: of(Kind::Single),
            rounds: outcome.rounds.iter().map(|round| round.gbps).collect(),
            messages: median.messages,
            verified: outcome.verified,
        }
    }

    fn latency(&self, case: &Case, outcome: &Outcome) -> Latency {
        let usec = outcome.median.usec.unwrap_or_default();
        let of = |blocking| {
            self.half_round_trip(case, blocking).and_then(|floor| ratio(usec.p50, floor))
        };
        Latency {
            operation: case.operation,
            size: case.size,
            usec,
            of_spinning: of(false),
            of_blocking: of(true),
            rounds: outcome.rounds.iter().filter_map(|round| Some(round.usec?.p50)).collect(),
            messages: outcome.median.messages,
            verified: outcome.verified,
        }
    }

    /// Returns the floor's median time for a case: half a round trip, or a whole one for operations
    /// timed from post to completion. For a message larger than a run, adds the time of the rest as
    /// a stream.
    pub fn half_round_trip(&self, case: &Case, blocking: bool) -> Option<f64> {
        let half = self.under(case, Kind::PingPong { blocking })?.usec?.p50;
        let played =
            Floor::under(case, Kind::PingPong { blocking }, std::time::Duration::ZERO).size;
        let rest_bits = (case.size - played) as f64 * 8.0;
        let rest = match self.rate(case, Kind::Stream { both: false }) {
            _ if rest_bits == 0.0 => 0.0,
            gbps if gbps > 0.0 => rest_bits / gbps / 1e3,
            _ => return None,
        };
        Some(if case.operation.is_ping_pong() { half + rest } else { 2.0 * half + rest })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::case::Limit;
    use super::*;

    const ROUND: Duration = Duration::from_millis(1);

    fn outcome(median: Sample) -> Outcome {
        Outcome { median, rounds: vec![median], verified: 7 }
    }

    fn gbps(gbps: f64) -> Outcome {
        outcome(Sample { gbps, ..Sample::default() })
    }

    fn p50(p50: f64) -> Outcome {
        outcome(Sample {
            usec: Some(Quantiles { p50, ..Quantiles::default() }),
            ..Sample::default()
        })
    }

    fn report(case: Case, figure: Outcome, floors: &[f64]) -> Report {
        let under = Floor::all_under(&case, ROUND);
        assert_eq!(under.len(), floors.len(), "{under:?}");
        let mut workloads = vec![Workload::Case { devices: 0, case }];
        let mut outcomes = vec![figure];
        for (floor, value) in under.into_iter().zip(floors) {
            let moves = !matches!(floor.kind, Kind::PingPong { .. });
            outcomes.push(if moves { gbps(*value) } else { p50(*value) });
            workloads.push(Workload::Floor(floor));
        }
        let mut report = Report::default();
        report.take(&workloads, &outcomes);
        report
    }

    #[test]
    fn bandwidth_is_compared_with_its_three_floors() {
        let case = Case::bandwidth(Operation::Write, 1 << 20, 4096, Limit::Messages(1));
        let report = report(case, gbps(42.0), &[60.0, 21.0, 7.0]);
        let row = &report.bandwidth[0];
        assert_eq!(
            (row.of_udp_gso, row.of_tcp, row.of_udp_single),
            (Some(0.7), Some(2.0), Some(6.0))
        );
        assert_eq!((report.floors.len(), report.verified()), (3, 7));
        assert_eq!(report.floors[0].floor, "UDP GSO+GRO, CRC, copy, 4112 B");
    }

    #[test]
    fn latency_is_compared_with_half_a_round_trip_or_a_whole_one() {
        let send = Case::latency(Operation::Send, 64, 4096, Limit::Messages(1));
        let row = &report(send, p50(3.9), &[3.0, 26.0]).latency[0];
        assert_eq!((row.of_spinning, row.of_blocking), (Some(1.3), Some(0.15)));
        let read = Case::latency(Operation::Read, 64, 4096, Limit::Messages(1));
        assert_eq!(report(read, p50(9.0), &[3.0, 30.0]).latency[0].of_spinning, Some(1.5));
    }

    #[test]
    fn long_messages_add_the_time_of_the_rest_as_a_stream() {
        let case = Case::latency(Operation::Send, 15 * 4096 + 100_000, 4096, Limit::Messages(1));
        // 800,000 bits at 80 Gb/s are 10 us.
        let row = &report(case, p50(30.0), &[20.0, 40.0, 80.0]).latency[0];
        assert_eq!((row.of_spinning, row.of_blocking), (Some(1.0), Some(0.6)));
    }

    #[test]
    fn without_a_floor_there_is_no_ratio() {
        let case = Case::bandwidth(Operation::Write, 64, 4096, Limit::Messages(1));
        let row = &report(case, gbps(1.0), &[0.0, 0.0, 0.0]).bandwidth[0];
        assert_eq!((row.of_udp_gso, row.of_tcp), (None, None));
    }
}
