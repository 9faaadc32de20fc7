//! The output of the default run: a table, or a JSON object.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use super::transport::Transport;
use crate::arguments::Size;
use crate::cmd::CmdError;
use crate::output;
use crate::traffic::operation::Operation;

/// One operation at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The operation.
    pub operation: Operation,
    /// Bytes of each message.
    pub size: usize,
    /// Messages of both phases.
    pub messages: u64,
    /// Messages whose bytes the receiving end verified.
    pub verified: u64,
    /// Bits a second with many outstanding messages, in 10^9.
    pub gbps: f64,
    /// Median latency of a single message in microseconds: half a round trip for SEND, from post to
    /// completion for the others.
    pub usec: f64,
    /// 99th percentile of this latency.
    pub usec_p99: f64,
}

impl Row {
    /// Returns the row of `each` single message and of `messages` in `elapsed` with many on the
    /// way; all of them were verified.
    pub fn new(
        operation: Operation,
        size: usize,
        mut each: Vec<Duration>,
        messages: u64,
        elapsed: Duration,
    ) -> Self {
        each.sort_unstable();
        let at = |hundredth: usize| {
            let index = (each.len() * hundredth / 100).min(each.len().saturating_sub(1));
            each.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        let bits = messages as f64 * size as f64 * 8.0;
        let gbps = if elapsed.is_zero() { 0.0 } else { bits / elapsed.as_secs_f64() / 1e9 };
        let total = messages + each.len() as u64;
        Self {
            operation,
            size,
            messages: total,
            verified: total,
            gbps,
            usec: at(50),
            usec_p99: at(99),
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// This process's device.
    pub device: String,
    /// The peer process's device.
    pub peer: String,
    /// The service.
    pub transport: Transport,
    /// Path MTU in bytes.
    pub mtu: usize,
    /// Retransmissions of both ends.
    pub retries: u64,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Report {
    /// Prints the table.
    pub fn print(&self, out: &mut dyn Write) -> Result<(), CmdError> {
        let Self { device, peer, transport, mtu, .. } = self;
        let head = format!("{device} <-> {peer}, {transport} over UDP port 4791, path MTU {mtu}");
        writeln!(out, "{}\n", output::wrap("", "", &head))?;
        let heads = ["operation", "size", "verified", "Gb/s", "µs", "µs p99"];
        let mut table = output::table(&heads, 1);
        for row in &self.rows {
            let size = Size::from_bytes(row.size).to_string();
            table.add_row([
                row.operation.to_string(),
                size,
                row.verified.to_string(),
                format!("{:.*}", if row.gbps < 1.0 { 3 } else { 2 }, row.gbps),
                format!("{:.1}", row.usec),
                format!("{:.1}", row.usec_p99),
            ]);
        }
        writeln!(out, "{table}")?;
        let messages: u64 = self.rows.iter().map(|row| row.verified).sum();
        let (latency, throughput, loss) = if transport.is_reliable() {
            let retries = match self.retries {
                0 => "no retransmission".to_owned(),
                1 => "1 retransmission".to_owned(),
                retries => format!("{retries} retransmissions"),
            };
            ("half a round trip for SEND, post to completion for the others", "many", retries)
        } else {
            let loss = format!("none lost ({transport} does not retransmit)");
            ("half a round trip", "several returned", loss)
        };
        for line in [
            format!("µs: median latency of a single message; {latency}."),
            format!("Gb/s: with {throughput} messages outstanding."),
            format!("All {messages} messages verified, every byte; {loss}."),
        ] {
            writeln!(out, "{}", output::wrap("", "  ", &line))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_and_the_slowest_of_a_hundred() {
        let each: Vec<_> = (1..=200).rev().map(Duration::from_micros).collect();
        let row = Row::new(Operation::Write, 1000, each, 1000, Duration::from_millis(1));
        assert_eq!((row.usec, row.usec_p99), (101.0, 199.0));
        assert!((row.gbps - 8.0).abs() < 1e-9, "{}", row.gbps);
        assert_eq!((row.messages, row.verified), (1200, 1200));
    }

    #[test]
    fn rows_of_few_messages() {
        let one = Row::new(Operation::Send, 1, vec![Duration::from_micros(7)], 1, Duration::ZERO);
        assert_eq!((one.usec, one.usec_p99, one.gbps), (7.0, 7.0, 0.0));
        assert_eq!(Row::new(Operation::Send, 1, Vec::new(), 0, Duration::ZERO).usec, 0.0);
    }
}
