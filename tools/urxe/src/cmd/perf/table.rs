//! Prints a report as tables.

use std::io::{self, Write};

use super::report::Report;
use crate::arguments::Size;
use crate::output;

/// Prints the report.
///
/// # Errors
/// The output is closed.
pub fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Report { device, peer, mtu, rounds, .. } = report;
    let head = format!(
        "{device} <-> {peer}, RC over UDP port 4791, path MTU {mtu}, medians of {rounds} rounds"
    );
    writeln!(out, "{}", output::wrap("", "", &head))?;
    if !report.bandwidth.is_empty() {
        let heads = [
            "bandwidth",
            "size",
            "Gb/s",
            "10^6\nmsg/s",
            "vs UDP\nGSO",
            "vs\nTCP",
            "vs one\na call",
        ];
        let mut table = output::table(&heads, 1);
        for row in &report.bandwidth {
            table.add_row([
                row.operation.to_string(),
                Size::from_bytes(row.size).to_string(),
                figure(row.gbps),
                format!("{:.3}", row.mmps),
                times(row.of_udp_gso),
                times(row.of_tcp),
                times(row.of_udp_single),
            ]);
        }
        writeln!(out, "\n{table}")?;
    }
    if !report.latency.is_empty() {
        let heads = ["latency", "size", "µs\np50", "p90", "p99", "p99.9", "vs\nspin", "vs\nsleep"];
        let mut table = output::table(&heads, 1);
        for row in &report.latency {
            let usec = row.usec;
            table.add_row([
                row.operation.to_string(),
                Size::from_bytes(row.size).to_string(),
                figure(usec.p50),
                figure(usec.p90),
                figure(usec.p99),
                figure(usec.p999),
                times(row.of_spinning),
                times(row.of_blocking),
            ]);
        }
        writeln!(out, "\n{table}")?;
    }
    if !report.floors.is_empty() {
        let mut table = output::table(&["floor", "Gb/s", "10^6/s", "µs\np50", "lost"], 1);
        for row in &report.floors {
            table.add_row([
                row.floor.clone(),
                row.gbps.map_or_else(String::new, figure),
                row.mmps.map_or_else(String::new, |mmps| format!("{mmps:.3}")),
                row.usec.map_or_else(String::new, figure),
                format!("{:.1} %", row.lost * 100.0),
            ]);
        }
        writeln!(out, "\n{table}")?;
    }
    print_notes(report, out)
}

/// Prints the explanations of the tables, and the result of the verification.
fn print_notes(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let again = match report.retries {
        0 => "no retransmission".to_owned(),
        1 => "1 retransmission".to_owned(),
        retries => format!("{retries} retransmissions"),
    };
    let mut lines = vec![
        "vs: ratio to a floor of this run, measured alternately. Figures depend on the machine; \
         the ratios are stable."
            .to_owned(),
    ];
    if !report.latency.is_empty() {
        lines.push(
            "Latency: half a round trip for SEND, WRITE and WRITE_IMM; post to completion for the \
             others, against a whole round trip. Spin and sleep: a UDP ping-pong that spins, or \
             blocks. Each end is bound to its own processor."
                .to_owned(),
        );
    }
    if report.in_memory {
        lines.push(
            "The packets went through memory that both processes share. With URXE_SHM=off, they \
             use sockets."
                .to_owned(),
        );
    }
    lines.push(format!(
        "{} messages verified after the rounds, every byte; {again}.",
        report.verified()
    ));
    lines.iter().try_for_each(|line| writeln!(out, "{}", output::wrap("", "  ", line)))
}

/// Returns a value with three significant digits.
pub fn figure(value: f64) -> String {
    let digits = match value {
        _ if value >= 100.0 => 0,
        _ if value >= 10.0 => 1,
        _ if value >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Returns a ratio.
pub fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let shown = [0.0123, 0.5, 1.234, 12.34, 123.4, 12345.6].map(figure);
        assert_eq!(shown, ["0.012", "0.500", "1.23", "12.3", "123", "12346"]);
        assert_eq!((times(Some(0.7)).as_str(), times(None).as_str()), ("0.700", "–"));
    }
}
