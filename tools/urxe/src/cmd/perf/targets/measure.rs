//! The measurements of the rows.

use std::time::Duration;

use super::row::Bound::{self, AtLeast, AtMost};
use super::row::{Check, Row};
use crate::cmd::perf::PerfError;
use crate::cmd::perf::case::{Case, Limit, Metric, WORKING_SET};
use crate::cmd::perf::floor::{Floor, Kind};
use crate::cmd::perf::protocol::DeviceOptions;
use crate::cmd::perf::report::Floors;
use crate::cmd::perf::runner::{Addresses, Outcome, Runner, Workload};
use crate::cmd::perf::statistics::Sample;
use crate::cmd::perf::{Progress, local};
use crate::traffic::Wait;
use crate::traffic::device::Choice;
use crate::traffic::operation::Operation;

/// The request that grants a default receive buffer; the kernel doubles it to 208 KiB.
const SMALL_BUFFER: usize = 104 << 10;
/// The request that grants 8 MiB.
const LARGE_BUFFER: usize = 4 << 20;
/// Messages that must all arrive over the small buffer.
const MANY: u64 = 1_000_000;
/// Bytes of each of these messages.
const MANY_SIZE: usize = 4096;
/// The memory limit of a stream, in bytes.
const RESIDENT_MAX: u64 = 64 << 20;
/// Lost packets per million on the lossy link.
const LOSS_PER_MILLION: u32 = 10_000;
/// Bytes of a working set that no cache near a processor holds.
const COLD: usize = 64 << 20;
/// The number of queue pairs that is compared with one.
const MANY_QPS: u32 = 64;
const STREAM: Kind = Kind::Stream { both: false };
const MTU: usize = 4096;

/// The devices of rows over sockets.
const SOCKETS: DeviceOptions =
    DeviceOptions { receive_buffer: None, loss_per_million: 0, shared_memory: Some(false) };
/// The devices of rows in shared memory.
const MEMORY: DeviceOptions = DeviceOptions { shared_memory: Some(true), ..SOCKETS };

/// The most rounds until packets go through shared memory.
const MAX_OPENING_ROUNDS: u32 = 200;

/// The parameters of all rows.
struct Bench {
    round: Duration,
    rounds: u32,
}

type Checks = Result<Vec<Check>, PerfError>;

/// The name of a row, and its measurement.
type Plan = (&'static str, fn(&Bench) -> Checks);

/// The rows.
static ROWS: [Plan; 21] = [
    ("WRITE and SEND of 1 MiB, path MTU 4096", |bench| {
        bench.streams(
            &[Operation::Write, Operation::Send],
            1 << 20,
            MTU,
            &[(STREAM, 0.70), (Kind::Tcp, 1.8)],
        )
    }),
    ("READ of 1 MiB", |bench| bench.streams(&[Operation::Read], 1 << 20, MTU, &[(STREAM, 0.60)])),
    ("64 KiB messages", |bench| {
        bench.streams(&[Operation::Write, Operation::Send], 64 << 10, MTU, &[(STREAM, 0.55)])
    }),
    ("path MTU 1024, 1 MiB", |bench| {
        bench.streams(&[Operation::Write, Operation::Send], 1 << 20, 1024, &[(STREAM, 0.60)])
    }),
    ("64 B WRITE, lists of 32", Bench::lists),
    ("64 B WRITE one by one, depth 128", Bench::one_by_one),
    ("64 B latency, polling", |bench| bench.polling_latency(&SOCKETS, 1.3)),
    ("64 B latency, events", Bench::event_latency),
    ("64 B READ and atomics, target without polling", |bench| bench.idle_targets(&SOCKETS)),
    ("208 KiB receive buffers", Bench::small_buffers),
    ("10^6 messages over 208 KiB", Bench::many_messages),
    ("1 % random loss", Bench::loss),
    ("64 queue pairs, 1 MiB in all", Bench::queue_pairs),
    ("memory of a 1 MiB stream", Bench::memory),
    ("both processes on one address", Bench::one_address),
    ("shared memory: WRITE and SEND of 4 KiB, 64 KiB and 1 MiB", Bench::memory_streams),
    ("shared memory beside a bare ring: 4 KiB, 64 KiB and 1 MiB, warm and cold", Bench::rings),
    ("shared memory: 64 B latency, polling", |bench| bench.polling_latency(&MEMORY, 0.25)),
    ("shared memory: 64 B READ and atomics, target without polling", |bench| {
        bench.idle_targets(&MEMORY)
    }),
    ("shared memory: 64 B WRITE one by one", |bench| bench.memory_against_sockets(1, 2.0)),
    ("shared memory: 64 B WRITE, lists of 32", Bench::memory_lists),
];

/// Returns the names of all rows.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|(name, _)| *name)
}

/// Measures the rows whose names contain `part`, or all.
pub fn all(round: Duration, rounds: u32, part: Option<&str>) -> Vec<Row> {
    let plans: Vec<_> =
        ROWS.iter().filter(|(name, _)| part.is_none_or(|part| name.contains(part))).collect();
    let bench = Bench { round, rounds };
    let row = |(nr, (what, measure)): (usize, &Plan)| {
        crate::output::note(&format!("row {} of {}: {what}", nr + 1, plans.len()));
        Row::new(what, measure(&bench).map_err(|error| crate::output::describe(&error)))
    };
    plans.iter().copied().enumerate().map(row).collect()
}

/// Workloads with their results.
struct Comparison {
    workloads: Vec<Workload>,
    outcomes: Vec<Outcome>,
}

impl Comparison {
    /// Returns the median of a case, and its floor's.
    fn against(&self, nr: usize, kind: Kind) -> (Sample, Sample) {
        let Workload::Case { case, .. } = self.workloads[nr] else {
            unreachable!("cases come first")
        };
        let floors = Floors { workloads: &self.workloads, outcomes: &self.outcomes };
        let floor = floors.under(&case, kind).copied().unwrap_or_default();
        (self.outcomes[nr].median, floor)
    }
}

impl Bench {
    fn limit(&self) -> Limit {
        Limit::after(self.round)
    }

    /// Starts new processes with these devices.
    fn runner(&self, options: &[DeviceOptions]) -> Result<Runner, PerfError> {
        let (mut runner, _) = local(&Choice::free_loopback(), &options[0], Addresses::Two)?;
        for options in &options[1..] {
            runner.open(&Choice::free_loopback(), options, Addresses::Two)?;
        }
        if options[0] == MEMORY {
            self.open_rings(&mut runner)?;
        }
        Ok(runner)
    }

    /// Exchanges messages until the first pair of devices uses shared memory. The background
    /// threads of both processes agree on it after the first messages.
    fn open_rings(&self, runner: &mut Runner) -> Result<(), PerfError> {
        let case = Case::latency(Operation::Send, 64, MTU, self.limit());
        for _ in 0..MAX_OPENING_ROUNDS {
            self.run(runner, vec![Workload::Case { devices: 0, case }], 1)?;
            if runner.received_in_memory(0) > 0 {
                return Ok(());
            }
        }
        Err(PerfError::NotInMemory)
    }

    fn run(
        &self,
        runner: &mut Runner,
        workloads: Vec<Workload>,
        rounds: u32,
    ) -> Result<Comparison, PerfError> {
        let progress = Progress::new(std::iter::once(workloads.as_slice()), rounds);
        let outcomes = runner.compare(&workloads, rounds, |workload| progress.step(workload))?;
        Ok(Comparison { workloads, outcomes })
    }

    /// Compares cases on one pair of devices with floors of these kinds.
    fn compare(
        &self,
        options: &DeviceOptions,
        cases: &[Case],
        kinds: &[Kind],
    ) -> Result<Comparison, PerfError> {
        let mut runner = self.runner(std::slice::from_ref(options))?;
        self.run(&mut runner, self.workloads(cases, kinds), self.rounds)
    }

    fn workloads(&self, cases: &[Case], kinds: &[Kind]) -> Vec<Workload> {
        let mut workloads: Vec<_> =
            cases.iter().map(|case| Workload::Case { devices: 0, case: *case }).collect();
        for case in cases {
            for kind in kinds {
                let floor = Workload::Floor(Floor::under(case, *kind, self.round));
                if !workloads.contains(&floor) {
                    workloads.push(floor);
                }
            }
        }
        workloads
    }

    /// Compares the bandwidth of each operation with each floor; the numbers are the least ratios.
    fn streams(
        &self,
        operations: &[Operation],
        size: usize,
        mtu: usize,
        floors: &[(Kind, f64)],
    ) -> Checks {
        self.streams_of(&SOCKETS, operations, size, mtu, floors)
    }

    fn streams_of(
        &self,
        options: &DeviceOptions,
        operations: &[Operation],
        size: usize,
        mtu: usize,
        floors: &[(Kind, f64)],
    ) -> Checks {
        let case = |operation: &Operation| Case::bandwidth(*operation, size, mtu, self.limit());
        let cases: Vec<_> = operations.iter().map(case).collect();
        let kinds: Vec<_> = floors.iter().map(|(kind, _)| *kind).collect();
        let comparison = self.compare(options, &cases, &kinds)?;
        let mut checks = Vec::new();
        for (nr, case) in cases.iter().enumerate() {
            let name = case.operation.to_string();
            for &(kind, least) in floors {
                let (figure, floor) = comparison.against(nr, kind);
                let against = (&*Floor::under(case, kind, self.round).name(), floor.gbps);
                checks.push(Check::ratio(&name, figure.gbps, "Gb/s", against, AtLeast(least)));
            }
        }
        Ok(checks)
    }

    fn small_writes(&self, list: u32, kind: Kind, bound: Bound) -> Checks {
        let case = Case { list, ..Case::bandwidth(Operation::Write, 64, MTU, self.limit()) };
        let comparison = self.compare(&SOCKETS, &[case], &[kind])?;
        let (figure, floor) = comparison.against(0, kind);
        let against = Floor::under(&case, kind, self.round).name();
        Ok(vec![Check::ratio("WRITE", figure.mmps, "10^6/s", (&against, floor.mmps), bound)])
    }

    fn lists(&self) -> Checks {
        self.small_writes(32, STREAM, AtLeast(0.25))
    }

    fn one_by_one(&self) -> Checks {
        self.small_writes(1, Kind::Single, AtLeast(4.0))
    }

    /// Compares streams in shared memory with TCP.
    fn memory_streams(&self) -> Checks {
        let operations = [Operation::Write, Operation::Send];
        let mut checks = Vec::new();
        for size in [4 << 10, 64 << 10, 1 << 20] {
            checks.extend(self.streams_of(&MEMORY, &operations, size, MTU, &[(Kind::Tcp, 2.0)])?);
        }
        Ok(checks)
    }

    /// Compares streams in shared memory with a bare ring, with a working set that the processor's
    /// cache holds and with a larger one.
    fn rings(&self) -> Checks {
        let mut checks = Vec::new();
        for (name, working_set) in [("warm", WORKING_SET), ("cold", COLD)] {
            for size in [4 << 10, 64 << 10, 1 << 20] {
                let cases = [Operation::Write, Operation::Send].map(|operation| Case {
                    working_set,
                    ..Case::bandwidth(operation, size, MTU, self.limit())
                });
                let comparison = self.compare(&MEMORY, &cases, &[Kind::Ring])?;
                for (nr, case) in cases.iter().enumerate() {
                    let (figure, floor) = comparison.against(nr, Kind::Ring);
                    let name = format!("{} {name}", case.operation);
                    let against = (&*Floor::under(case, Kind::Ring, self.round).name(), floor.gbps);
                    checks.push(Check::ratio(&name, figure.gbps, "Gb/s", against, AtLeast(0.6)));
                }
            }
        }
        Ok(checks)
    }

    /// Compares the rate of small WRITEs in shared memory with the rate over sockets.
    fn memory_against_sockets(&self, list: u32, least: f64) -> Checks {
        let case = Case { list, ..Case::bandwidth(Operation::Write, 64, MTU, self.limit()) };
        let mut runner = self.runner(&[MEMORY, SOCKETS])?;
        let workloads = [0, 1].map(|devices| Workload::Case { devices, case }).to_vec();
        let comparison = self.run(&mut runner, workloads, self.rounds)?;
        let [memory, sockets] = [0, 1].map(|nr: usize| comparison.outcomes[nr].median.mmps);
        Ok(vec![Check::ratio("WRITE", memory, "10^6/s", ("sockets", sockets), AtLeast(least))])
    }

    /// Compares lists of 32 small WRITEs in shared memory with single ones.
    fn memory_lists(&self) -> Checks {
        let one = Case::bandwidth(Operation::Write, 64, MTU, self.limit());
        let comparison = self.compare(&MEMORY, &[Case { list: 32, ..one }, one], &[])?;
        let [lists, one] = [0, 1].map(|nr: usize| comparison.outcomes[nr].median.mmps);
        Ok(vec![Check::ratio("WRITE", lists, "10^6/s", ("one by one", one), AtLeast(1.5))])
    }

    fn latency(
        &self,
        options: &DeviceOptions,
        cases: &[Case],
        blocking: bool,
    ) -> Result<Vec<(Case, Outcome, f64)>, PerfError> {
        let comparison = self.compare(options, cases, &[Kind::PingPong { blocking }])?;
        let floors = Floors { workloads: &comparison.workloads, outcomes: &comparison.outcomes };
        let figure = |(case, outcome): (&Case, &Outcome)| {
            (*case, outcome.clone(), floors.half_round_trip(case, blocking).unwrap_or(0.0))
        };
        Ok(cases.iter().zip(&comparison.outcomes).map(figure).collect())
    }

    fn polling_latency(&self, options: &DeviceOptions, most: f64) -> Checks {
        let cases =
            [Operation::Send, Operation::Write].map(|op| Case::latency(op, 64, MTU, self.limit()));
        let mut checks = Vec::new();
        for (case, outcome, floor) in self.latency(options, &cases, false)? {
            let usec = outcome.median.usec.unwrap_or_default();
            let name = format!("{} p50", case.operation);
            let against = ("spinning half round trip", floor);
            checks.push(Check::ratio(&name, usec.p50, "µs", against, AtMost(most)));
            let name = format!("{} p99", case.operation);
            checks.push(Check::ratio(&name, usec.p99, "µs", ("its p50", usec.p50), AtMost(2.0)));
        }
        Ok(checks)
    }

    fn event_latency(&self) -> Checks {
        let case =
            Case { wait: Wait::Events, ..Case::latency(Operation::Send, 64, MTU, self.limit()) };
        let figures = self.latency(&SOCKETS, &[case], true)?;
        let check = |(_, outcome, floor): &(Case, Outcome, f64)| {
            let p50 = outcome.median.usec.unwrap_or_default().p50;
            Check::ratio("SEND p50", p50, "µs", ("blocking half round trip", *floor), AtMost(1.3))
        };
        Ok(figures.iter().map(check).collect())
    }

    /// Compares the latency of operations to a target that does not poll with that to one that
    /// polls.
    fn idle_targets(&self, options: &DeviceOptions) -> Checks {
        let operations = [Operation::Read, Operation::FetchAdd, Operation::CmpSwap];
        let pair = |operation: Operation| {
            let idle = Case::latency(operation, 64, MTU, self.limit());
            [idle, Case { target_polls: true, ..idle }]
        };
        let cases: Vec<_> = operations.iter().copied().flat_map(pair).collect();
        let comparison = self.compare(options, &cases, &[])?;
        let check = |(nr, operation): (usize, &Operation)| {
            let p50 = |nr: usize| comparison.outcomes[nr].median.usec.unwrap_or_default().p50;
            let against = ("target that polls", p50(2 * nr + 1));
            let name = format!("{operation} p50");
            Check::ratio(&name, p50(2 * nr), "µs", against, AtMost(1.5))
        };
        Ok(operations.iter().enumerate().map(check).collect())
    }

    /// Compares the bandwidth of a case on the second pair of devices with the first.
    fn versus(&self, options: [DeviceOptions; 2], case: Case, against: &str, least: f64) -> Checks {
        let mut runner = self.runner(&options)?;
        let workloads = [1, 0].map(|devices| Workload::Case { devices, case }).to_vec();
        let comparison = self.run(&mut runner, workloads, self.rounds)?;
        let [figure, other] = [0, 1].map(|nr: usize| comparison.outcomes[nr].median.gbps);
        let name = case.operation.to_string();
        Ok(vec![Check::ratio(&name, figure, "Gb/s", (against, other), AtLeast(least))])
    }

    fn small_buffers(&self) -> Checks {
        let case = Case::bandwidth(Operation::Write, 1 << 20, MTU, self.limit());
        let of = |bytes| DeviceOptions { receive_buffer: Some(bytes), ..SOCKETS };
        self.versus([of(LARGE_BUFFER), of(SMALL_BUFFER)], case, "with 8 MiB", 0.5)
    }

    fn many_messages(&self) -> Checks {
        let case = Case::bandwidth(Operation::Write, MANY_SIZE, MTU, Limit::Messages(MANY));
        let small = DeviceOptions { receive_buffer: Some(SMALL_BUFFER), ..SOCKETS };
        let mut runner = self.runner(&[small])?;
        // A failed message would end the comparison with its status.
        let comparison = self.run(&mut runner, vec![Workload::Case { devices: 0, case }], 1)?;
        let done = comparison.outcomes[0].median.messages as f64;
        let against = ("sent", MANY as f64);
        Ok(vec![Check::ratio("WRITE completed", done, "messages", against, AtLeast(1.0))])
    }

    fn loss(&self) -> Checks {
        let case = Case::bandwidth(Operation::Write, 1 << 20, MTU, self.limit());
        let lossy = DeviceOptions { loss_per_million: LOSS_PER_MILLION, ..SOCKETS };
        self.versus([SOCKETS, lossy], case, "without loss", 0.2)
    }

    fn queue_pairs(&self) -> Checks {
        let one =
            Case::bandwidth(Operation::Write, (1 << 20) / MANY_QPS as usize, MTU, self.limit());
        let many = Case { qps: MANY_QPS, depth: one.depth / MANY_QPS, ..one };
        let comparison = self.compare(&SOCKETS, &[many, one], &[])?;
        let [many, one] = [0, 1].map(|nr: usize| comparison.outcomes[nr].median.gbps);
        Ok(vec![Check::ratio("WRITE", many, "Gb/s", ("one queue pair", one), AtLeast(0.9))])
    }

    fn memory(&self) -> Checks {
        let case = Case::bandwidth(Operation::Write, 1 << 20, MTU, self.limit());
        let mut runner = self.runner(&[SOCKETS])?;
        self.run(&mut runner, vec![Workload::Case { devices: 0, case }], 1)?;
        let mebibytes = runner.resident()? as f64 / f64::from(1 << 20);
        let limit = ("limit", RESIDENT_MAX as f64 / f64::from(1 << 20));
        Ok(vec![Check::ratio("larger process", mebibytes, "MiB", limit, AtMost(1.0))])
    }

    /// Compares one address with two, alternately.
    fn one_address(&self) -> Checks {
        let streams = [64, 64 << 10, 1 << 20]
            .map(|size| Case::bandwidth(Operation::Write, size, MTU, self.limit()));
        let latencies =
            [Operation::Send, Operation::Write].map(|op| Case::latency(op, 64, MTU, self.limit()));
        let mut runner = self.runner(&[SOCKETS])?;
        let (two, one) = (0, runner.open_on_one_address(0, &SOCKETS)?);
        let pair = |case: Case| [one, two].map(|devices| Workload::Case { devices, case });
        let cases: Vec<Case> = streams.into_iter().chain(latencies).collect();
        let comparison =
            self.run(&mut runner, cases.iter().copied().flat_map(pair).collect(), self.rounds)?;
        let check = |(case, outcomes): (&Case, &[Outcome])| {
            let size = crate::arguments::Size::from_bytes(case.size);
            let name = format!("{} {size}", case.operation);
            let [one, two] = [0, 1].map(|nr: usize| outcomes[nr].median);
            match case.metric {
                Metric::Bandwidth => {
                    let against = ("two addresses", two.gbps);
                    Check::ratio(&name, one.gbps, "Gb/s", against, AtLeast(0.95))
                }
                Metric::Latency => {
                    let [one, two] = [one, two].map(|sample| sample.usec.unwrap_or_default().p50);
                    Check::ratio(
                        &format!("{name} p50"),
                        one,
                        "µs",
                        ("two addresses", two),
                        AtMost(1.05),
                    )
                }
            }
        };
        Ok(cases.iter().zip(comparison.outcomes.chunks_exact(2)).map(check).collect())
    }
}
