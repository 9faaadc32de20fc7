//! Compares a run with both processes on one address with a run on two addresses.

use serde::Serialize;

use super::case::Metric;
use super::options::Args;
use super::runner::{Addresses, Outcome as Figure, Workload};
use super::statistics::ratio;
use super::{PerfError, Progress, local, table};
use crate::arguments::Size;
use crate::cmd::{CmdError, Outcome};
use crate::output;
use crate::traffic::device::Choice;
use crate::traffic::operation::Operation;

/// A pair of figures: bandwidth in Gb/s, or latency in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    operation: Operation,
    metric: Metric,
    size: usize,
    one: f64,
    two: f64,
    /// The improvement with one address; above 1, one address is faster.
    one_to_two: Option<f64>,
}

/// Measures and prints the comparison.
///
/// # Errors
/// [`CmdError`]; also if processes cannot share an address.
pub fn run(args: &Args, choice: &Choice) -> Result<Outcome, CmdError> {
    let rows = measure(args, choice)?;
    output::print(args.json, &rows, |out| {
        let heads = ["operation", "unit", "size", "one\naddress", "two\naddresses", "one to\ntwo"];
        let mut shown = output::table(&heads, 2);
        for row in &rows {
            shown.add_row([
                row.operation.to_string(),
                if row.metric == Metric::Bandwidth { "Gb/s" } else { "µs p50" }.to_owned(),
                Size::from_bytes(row.size).to_string(),
                table::figure(row.one),
                table::figure(row.two),
                table::times(row.one_to_two),
            ]);
        }
        writeln!(out, "{shown}\nOne to two: above 1, one address is faster.")
    })?;
    Ok(Outcome::Done)
}

fn measure(args: &Args, choice: &Choice) -> Result<Vec<Row>, PerfError> {
    args.cases(4096)?;
    let (mut runner, two) = local(choice, &args.device_options(), Addresses::Two)?;
    let one = runner.open_on_one_address(two, &args.device_options())?;
    let mtu = runner.fitting_mtu(two, args.mtu)?;
    let pairs = |case| [one, two].map(|devices| Workload::Case { devices, case });
    let groups: Vec<Vec<Workload>> = args
        .cases(mtu)?
        .iter()
        .map(|group| group.iter().flat_map(|case| pairs(*case)).collect())
        .collect();
    let progress = Progress::new(groups.iter().map(Vec::as_slice), args.rounds);
    let mut rows = Vec::new();
    for workloads in &groups {
        let outcomes =
            runner.compare(workloads, args.rounds, |workload| progress.step(workload))?;
        for (pair, figures) in workloads.chunks_exact(2).zip(outcomes.chunks_exact(2)) {
            if let Workload::Case { case, .. } = pair[0] {
                rows.push(row(case.operation, case.metric, case.size, &figures[0], &figures[1]));
            }
        }
    }
    Ok(rows)
}

fn row(operation: Operation, metric: Metric, size: usize, one: &Figure, two: &Figure) -> Row {
    let figure = |of: &Figure| match metric {
        Metric::Bandwidth => of.median.gbps,
        Metric::Latency => of.median.usec.unwrap_or_default().p50,
    };
    let (one, two) = (figure(one), figure(two));
    let one_to_two = if metric == Metric::Bandwidth { ratio(one, two) } else { ratio(two, one) };
    Row { operation, metric, size, one, two, one_to_two }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{Quantiles, Sample};
    use super::*;

    #[test]
    fn above_one_is_faster_for_both_metrics() {
        let figure = |gbps: f64, p50: f64| Figure {
            median: Sample {
                gbps,
                usec: Some(Quantiles { p50, ..Quantiles::default() }),
                ..Sample::default()
            },
            rounds: Vec::new(),
            verified: 0,
        };
        let of = |metric| {
            row(Operation::Send, metric, 64, &figure(30.0, 2.0), &figure(20.0, 3.0)).one_to_two
        };
        assert_eq!((of(Metric::Bandwidth), of(Metric::Latency)), (Some(1.5), Some(1.5)));
    }
}
