//! The command line of `urxe perf`, and the cases that follow from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use urxe::PathMtu;

use super::case::{Case, CaseError, INLINE_MAX, Limit, Metric};
use super::error::PerfError;
use super::floor::Floor;
use super::protocol::DeviceOptions;
use super::runner::{Addresses, Workload};
use super::targets;
use crate::arguments::Size;
use crate::arguments::path_mtu;
use crate::traffic::Wait;
use crate::traffic::operation::{ATOMIC_SIZE, Operation};
use crate::traffic::selection::DeviceArgs;

/// Seconds of a round.
const ROUND: f64 = 0.1;
/// Seconds of a round with `--all`.
const ROUND_ALL: f64 = 0.05;
/// Seconds of a round with `--targets`.
const ROUND_TARGETS: f64 = 0.3;
/// The default sizes.
const SIZES: [usize; 3] = [64, 64 << 10, 1 << 20];
/// The largest size of `--all`, as in perftest; the smallest is 2.
const ALL_MAX: usize = 8 << 20;

/// Arguments of `urxe perf`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Operations to measure [default: all]
    #[arg(value_name = "OPERATION")]
    pub operations: Vec<Operation>,
    /// Measure only bandwidth and message rate
    #[arg(long, conflicts_with = "latency")]
    pub bandwidth: bool,
    /// Measure only latency
    #[arg(long)]
    pub latency: bool,

    /// Message sizes, such as 64,4K,1M [default: 64,64K,1M]
    #[arg(short, long, value_delimiter = ',', value_name = "SIZES", visible_alias = "sizes")]
    pub size: Vec<Size>,
    /// Measure all sizes from 2 B to 8 MiB, and plot them
    #[arg(short, long, conflicts_with = "size")]
    pub all: bool,
    /// Messages of each queue pair in a round, instead of a time
    #[arg(short = 'n', long, value_name = "N", visible_alias = "iters", conflicts_with = "duration",
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub iterations: Option<u64>,
    /// Seconds of a round [default: 0.1; 0.05 with --all; 0.3 with --targets]
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Rounds of each figure, alternating with the floors; the median is shown
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// Number of queue pairs
    #[arg(short, long, value_name = "N", default_value_t = 1, visible_alias = "qp")]
    pub qps: u32,
    /// Outstanding sends of each queue pair
    #[arg(short = 't', long, value_name = "N", default_value_t = 128, visible_alias = "depth")]
    pub tx_depth: u32,
    /// Work requests posted by one call
    #[arg(short = 'l', long, value_name = "N", default_value_t = 1)]
    pub post_list: u32,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the largest that fits]
    #[arg(short, long, value_parser = path_mtu)]
    pub mtu: Option<PathMtu>,
    /// Send from both ends at once
    #[arg(short, long)]
    pub bidirectional: bool,
    /// Sleep on completion events instead of polling
    #[arg(short, long)]
    pub events: bool,
    /// Copy messages of up to this many bytes when they are posted
    #[arg(short = 'I', long, value_name = "BYTES", default_value = "0", hide_default_value = true,
        value_parser = inline)]
    pub inline: usize,
    /// Latency of WRITE: only read memory, as ib_write_lat does; the device's thread receives
    #[arg(long)]
    pub spin_memory: bool,
    /// Let the target of WRITE, READ and atomics poll, instead of its device's thread
    #[arg(long)]
    pub target_polls: bool,
    /// Memory of the messages of one direction, for all queue pairs together [default: 1M, or one
    /// message]
    #[arg(long, value_name = "SIZE")]
    pub working_set: Option<Size>,
    /// Receive buffer to request from the kernel, which doubles the value [default: 8M]
    #[arg(long, value_name = "SIZE")]
    pub receive_buffer: Option<Size>,

    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Address of the second process
    #[arg(long, default_value = "two")]
    pub addresses: Addresses,
    /// Measure with one address and with two, and print the ratio
    #[arg(long, conflicts_with_all = ["addresses", "all", "two_hosts"])]
    pub compare_addresses: bool,
    /// Measure the project's targets, and report for each whether the result meets the target
    #[arg(long, conflicts_with_all = ["operations", "bandwidth", "latency", "size", "all",
        "iterations", "qps", "tx_depth", "post_list", "mtu", "bidirectional", "events", "inline",
        "spin_memory", "target_polls", "working_set", "receive_buffer", "device", "links",
        "addresses", "compare_addresses", "two_hosts", "svg"])]
    pub targets: bool,
    /// Measure only targets whose name contains this text
    #[arg(long, value_name = "TEXT", requires = "targets", value_parser = part_of_row)]
    pub row: Option<String>,

    /// Wait for another host's urxe perf --connect, and execute its commands
    #[arg(long, group = "two_hosts", conflicts_with_all = ["connect", "operations", "bandwidth",
        "latency", "size", "all", "iterations", "duration", "rounds", "qps", "tx_depth",
        "post_list", "mtu", "bidirectional", "events", "inline", "spin_memory", "target_polls",
        "working_set", "receive_buffer", "addresses", "json", "svg"])]
    pub listen: bool,
    /// Measure with the host where urxe perf --listen runs
    #[arg(long, value_name = "HOST", group = "two_hosts", conflicts_with = "addresses")]
    pub connect: Option<String>,
    /// TCP port of the control connection
    #[arg(short, long, requires = "two_hosts", default_value_t = 18516)]
    pub port: u16,

    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
    /// File of the plot of --all
    #[arg(long, value_name = "FILE.svg", requires = "all", conflicts_with = "json")]
    pub svg: Option<PathBuf>,

    /// Be the peer process
    #[arg(long, hide = true, exclusive = true)]
    pub as_peer_process: bool,
}

const AFTER_HELP: &str = "\
Without --listen and --connect, a second process on another loopback address is the peer. In \
alternation with each figure, the run measures the floor between the same two processes: plain UDP \
with GSO and GRO, CRC and copy; one datagram a call; ping-pong; TCP. Figures differ between \
machines; the ratios to the floor show the cost of the stack.

Two hosts:
  there: urxe perf --listen -d ADDRESS
  here:  urxe perf --connect THERE -d ADDRESS
The listening end has no authentication: any host that reaches its TCP port may run the one \
measurement. Listen only on a network that you trust.

Exit code 0: measured, and all verified data was correct; with --targets: all targets hold. \
1: otherwise.";

fn seconds(text: &str) -> Result<f64, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=60.0).contains(seconds));
    seconds.ok_or("a round lasts 0.001 to 60 seconds")
}

fn part_of_row(text: &str) -> Result<String, String> {
    if targets::names().any(|name| name.contains(text)) {
        return Ok(text.to_owned());
    }
    let names: Vec<_> = targets::names().collect();
    Err(format!("no row has it in its name; the rows are: {}", names.join("; ")))
}

fn inline(text: &str) -> Result<usize, String> {
    let bytes = text.parse::<Size>().map(Size::bytes).ok().or_else(|| (text == "0").then_some(0));
    bytes
        .filter(|bytes| *bytes <= INLINE_MAX)
        .ok_or(format!("inline data has at most {INLINE_MAX} bytes"))
}

impl Args {
    /// Returns how long a round lasts.
    pub fn round(&self) -> Duration {
        let usual = match self {
            Self { targets: true, .. } => ROUND_TARGETS,
            Self { all: true, .. } => ROUND_ALL,
            _ => ROUND,
        };
        Duration::from_secs_f64(self.duration.unwrap_or(usual))
    }

    /// Returns the options for opening devices.
    pub fn device_options(&self) -> DeviceOptions {
        DeviceOptions {
            receive_buffer: self.receive_buffer.map(Size::bytes),
            ..DeviceOptions::default()
        }
    }

    fn metrics(&self) -> &'static [Metric] {
        match (self.bandwidth, self.latency) {
            (true, _) => &[Metric::Bandwidth],
            (_, true) => &[Metric::Latency],
            _ => &[Metric::Bandwidth, Metric::Latency],
        }
    }

    fn sizes(&self) -> Vec<usize> {
        if self.all {
            return (1..).map(|log2| 1usize << log2).take_while(|size| *size <= ALL_MAX).collect();
        }
        if self.size.is_empty() {
            SIZES.to_vec()
        } else {
            self.size.iter().map(|size| size.bytes()).collect()
        }
    }

    /// Returns all cases for a path MTU, grouped by size.
    ///
    /// # Errors
    /// [`PerfError::Case`].
    pub fn cases(&self, mtu: usize) -> Result<Vec<Vec<Case>>, PerfError> {
        let operations = if self.operations.is_empty() {
            Operation::ALL.to_vec()
        } else {
            self.operations.clone()
        };
        let (atomics, messages): (Vec<_>, Vec<_>) =
            operations.iter().partition(|operation| operation.is_atomic());
        let mut groups = Vec::new();
        for size in self.sizes().into_iter().filter(|_| !messages.is_empty()) {
            groups.push(self.group(&messages, size, mtu)?);
        }
        if !atomics.is_empty() {
            // Atomics have a fixed size, which a default selection does not contradict.
            let asked = self
                .size
                .first()
                .filter(|_| messages.is_empty())
                .map_or(ATOMIC_SIZE, |size| size.bytes());
            groups.push(self.group(&atomics, asked, mtu)?);
        }
        // A default selection contains all possible cases. A case that the user named must be
        // possible.
        let everything = self.operations.is_empty() || self.metrics().len() > 1;
        let mut skipped = None;
        let mut kept = Vec::new();
        for group in groups {
            let mut cases = Vec::new();
            for case in group {
                match case.check() {
                    Ok(()) => cases.push(case),
                    Err(error @ CaseError::WriteEvents) if everything => skipped = Some(error),
                    Err(error) => return Err(error.into()),
                }
            }
            if !cases.is_empty() {
                kept.push(cases);
            }
        }
        match skipped {
            Some(error) if kept.is_empty() => Err(error.into()),
            _ => Ok(kept),
        }
    }

    fn group(
        &self,
        operations: &[Operation],
        size: usize,
        mtu: usize,
    ) -> Result<Vec<Case>, PerfError> {
        let limit = self.iterations.map_or_else(|| Limit::after(self.round()), Limit::Messages);
        let mut cases = Vec::new();
        for &metric in self.metrics() {
            for &operation in operations {
                let only = self.metrics().len() == 1;
                let bandwidth = metric == Metric::Bandwidth;
                let usual = Case::bandwidth(operation, size, mtu, limit);
                let case = Case {
                    metric,
                    size,
                    // With both metrics, each option applies to the metric that supports the
                    // option.
                    qps: if bandwidth || only { self.qps } else { 1 },
                    list: if bandwidth || only { self.post_list } else { 1 },
                    bidirectional: self.bidirectional && (bandwidth || only),
                    depth: self.tx_depth,
                    wait: Wait::by(self.events),
                    inline: operation.carries_data() && size <= self.inline,
                    spin_memory: self.spin_memory && self.spins(operation, metric),
                    target_polls: self.target_polls,
                    working_set: self.working_set.map_or(usual.working_set, Size::bytes),
                    ..usual
                };
                cases.push(case);
            }
        }
        self.check_inline(&cases)?;
        Ok(cases)
    }

    /// Returns whether `--spin-memory` applies to this case. If it applies to no case, it stays
    /// set, so that the check refuses it.
    fn spins(&self, operation: Operation, metric: Metric) -> bool {
        let possible = (self.operations.is_empty() || self.operations.contains(&Operation::Write))
            && self.metrics().contains(&Metric::Latency);
        !possible || (operation == Operation::Write && metric == Metric::Latency)
    }

    /// Refuses `--inline` if no selected operation carries data.
    fn check_inline(&self, cases: &[Case]) -> Result<(), PerfError> {
        let none = !self.operations.is_empty()
            && !self.operations.iter().any(|operation| operation.carries_data());
        if self.inline > 0
            && none
            && let Some(case) = cases.first()
        {
            return Ok(Case { inline: true, ..*case }.check()?);
        }
        Ok(())
    }

    /// Returns the workloads of a group's comparison: its cases, then their floors, each once.
    pub fn workloads(&self, group: &[Case], devices: usize) -> Vec<Workload> {
        let mut workloads: Vec<Workload> =
            group.iter().map(|case| Workload::Case { devices, case: *case }).collect();
        for floor in group.iter().flat_map(|case| Floor::all_under(case, self.round())) {
            let floor = Floor { receive_buffer: self.receive_buffer.map(Size::bytes), ..floor };
            if !workloads.contains(&Workload::Floor(floor)) {
                workloads.push(Workload::Floor(floor));
            }
        }
        workloads
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        let words = std::iter::once("perf").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args).map_err(|error| error.to_string())
    }

    fn cases(line: &str) -> Result<Vec<Case>, String> {
        let groups = parse(line)?.cases(4096).map_err(|error| error.to_string())?;
        Ok(groups.concat())
    }

    #[test]
    fn everything_is_measured_by_default() {
        let all = cases("").unwrap();
        assert_eq!(
            all.len(),
            2 * (3 * 4 + 2),
            "two metrics, three sizes of four operations, two atomics"
        );
        assert_eq!(cases("write --latency --size 64").unwrap().len(), 1);
        assert_eq!(cases("write --all --bandwidth").unwrap().len(), 23);
        let sizes: Vec<_> =
            cases("read --all --bandwidth").unwrap().iter().map(|case| case.size).collect();
        assert_eq!((sizes[0], sizes[22]), (2, 8 << 20));
    }

    #[test]
    fn options_go_to_the_metric_that_they_mean_something_to() {
        let both = cases("send -s 64 -q 4 -l 16 -b -I 64").unwrap();
        assert_eq!(
            (both[0].qps, both[0].list, both[0].bidirectional, both[0].inline),
            (4, 16, true, true)
        );
        assert_eq!(
            (both[1].qps, both[1].list, both[1].bidirectional, both[1].inline),
            (1, 1, false, true)
        );
        let spins = |line| cases(line).unwrap().iter().filter(|case| case.spin_memory).count();
        assert_eq!(spins("--spin-memory -s 64"), 1);
        // Everything with events: all but the latency of WRITE.
        assert_eq!(cases("--events -s 64").unwrap().len(), 2 * 6 - 1);
    }

    #[test]
    fn wrong_combinations_get_clear_errors() {
        for (line, expected) in [
            ("--bandwidth --latency", "cannot be used with"),
            ("--all --size 64", "cannot be used with"),
            ("-n 5 -D 1", "cannot be used with"),
            ("--targets write", "cannot be used with"),
            ("--targets --json --qps 2", "cannot be used with"),
            ("--targets -d rxe0", "cannot be used with"),
            ("--targets --link rxe0=lo", "cannot be used with"),
            ("--listen --connect there", "cannot be used with"),
            ("--listen --json", "cannot be used with"),
            ("--compare-addresses --addresses one", "cannot be used with"),
            ("--compare-addresses --connect there", "cannot be used with"),
            ("--svg x.svg", "--all"),
            ("--port 5", "required"),
            ("--row loss", "--targets"),
            ("--targets --row lossy", "the rows are: WRITE and SEND of 1 MiB"),
            ("-D 0", "0.001 to 60 seconds"),
            ("-D 61", "0.001 to 60 seconds"),
            ("-I 2K", "at most 1024"),
            ("--mtu 1500", "256, 512, 1024, 2048 or 4096"),
            ("--size 1G", "as in 64, 4K or 1M"),
            ("--addresses three", "possible values: one, two"),
            ("swap", "possible values: send, write, write-imm, read, fetch-add, cmp-swap"),
            ("write --latency --spin-memory --events", "creates no event"),
            ("write --latency --qps 2", "one outstanding message"),
            ("write --latency --post-list 2", "one outstanding message"),
            (
                "send --bandwidth --post-list 64 --tx-depth 32",
                "the posting list is 64; the allowed range is 1 to 32",
            ),
            (
                "send --bandwidth --post-list 129 --tx-depth 1000",
                "the posting list is 129; the allowed range is 1 to 128",
            ),
            ("send --spin-memory", "--spin-memory applies to the latency of WRITE"),
            ("write --bandwidth --spin-memory", "--spin-memory applies to the latency of WRITE"),
            ("fetch-add --size 64", "atomic operations move 8 bytes"),
            ("read -I 64", "READ of 64 bytes cannot be inline"),
            ("write --bandwidth -s 64K --working-set 4K", "does not hold one message"),
            ("-q 0", "the number of queue pairs is 0"),
        ] {
            let error = cases(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn floors_are_measured_once_for_all_cases_that_share_them() {
        let args = parse("send write read -s 64K").unwrap();
        let groups = args.cases(4096).unwrap();
        let workloads = args.workloads(&groups[0], 0);
        let floors =
            workloads.iter().filter(|workload| matches!(workload, Workload::Floor(_))).count();
        // Stream, TCP, one a call; two ping-pongs.
        assert_eq!((workloads.len() - floors, floors), (6, 5), "{workloads:?}");
    }
}
