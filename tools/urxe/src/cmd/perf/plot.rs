//! Plots of a run over all sizes: one in the terminal, one as SVG.

use std::io::Write;
use std::path::Path;

use plotters::prelude::*;
use textplots::{Chart, LabelBuilder, LabelFormat, Plot, Shape};
use urxe_stack::files::{self, Readers, Reserved};

use super::error::PerfError;
use super::report::Report;
use crate::arguments::Size;
use crate::traffic::operation::Operation;

/// Points of the terminal's plot, two by four to a character. The labels follow on the right.
const TERMINAL: (u32, u32) = (90, 60);
/// Pixels of the SVG.
const SVG: (u32, u32) = (1100, 460);
/// Letters in the terminal's plots and colours in the SVG distinguish the operations.
const FONT: &str = "sans-serif";

/// One line of a plot: size and value.
struct Line {
    operation: Operation,
    points: Vec<(f64, f64)>,
}

fn lines(of: impl Iterator<Item = (Operation, usize, f64)>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (operation, size, value) in of {
        let at = lines.iter().position(|line| line.operation == operation).unwrap_or_else(|| {
            lines.push(Line { operation, points: Vec::new() });
            lines.len() - 1
        });
        lines[at].points.push((size as f64, value));
    }
    // An operation with one size has no line.
    lines.retain(|line| line.points.len() > 1);
    lines
}

fn bandwidth(report: &Report) -> Vec<Line> {
    lines(report.bandwidth.iter().map(|row| (row.operation, row.size, row.gbps)))
}

fn latency(report: &Report) -> Vec<Line> {
    lines(report.latency.iter().map(|row| (row.operation, row.size, row.usec.p50)))
}

/// Returns the plots for a terminal, one for each operation, because colours are not available.
pub fn terminal(report: &Report) -> String {
    let mut text = String::new();
    for (what, lines) in [("Gb/s", bandwidth(report)), ("µs, log10", latency(report))] {
        let is_log = what.contains("log");
        for line in lines {
            text.push_str(&format!("\n{}, {what} by size\n", line.operation));
            text.push_str(&braille(&line.points, is_log));
        }
    }
    text
}

fn braille(points: &[(f64, f64)], is_log: bool) -> String {
    let value = |value: f64| if is_log { value.max(1e-3).log10() } else { value };
    let points: Vec<(f32, f32)> =
        points.iter().map(|(size, of)| (size.log2() as f32, value(*of) as f32)).collect();
    let (first, last) = (points[0].0, points[points.len() - 1].0);
    let label = |log2: f32| Size::from_bytes(2f32.powf(log2).round() as usize).to_string();
    let highest = points.iter().map(|point| point.1).fold(0.0, f32::max);
    let shape = Shape::Lines(&points);
    let mut chart =
        Chart::new_with_y_range(TERMINAL.0, TERMINAL.1, first, last, 0.0, highest.max(1e-3) * 1.05);
    let chart = chart.lineplot(&shape).x_label_format(LabelFormat::Custom(Box::new(label)));
    chart.axis();
    chart.figures();
    chart.to_string()
}

/// Checks that the SVG can be written, before the measurement.
///
/// # Errors
/// [`PerfError::Plot`].
pub fn reserve(path: &Path) -> Result<Reserved, PerfError> {
    files::reserve(path, Readers::Umask)
        .map_err(|error| PerfError::Plot { reason: error.to_string() })
}

/// Writes the SVG: bandwidth on the left, latency on the right.
///
/// # Errors
/// [`PerfError::Plot`].
pub fn svg(report: &Report, file: Reserved) -> Result<(), PerfError> {
    write(report, file).map_err(|error| PerfError::Plot { reason: error.to_string() })
}

fn write(report: &Report, file: Reserved) -> Result<(), Box<dyn std::error::Error>> {
    let text = draw(report)?;
    Ok(file.create()?.write_all(text.as_bytes())?)
}

/// Returns the SVG.
fn draw(report: &Report) -> Result<String, Box<dyn std::error::Error>> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, SVG).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(SVG.0 / 2);
    let title = |what| format!("{what}, path MTU {}, median of {}", report.mtu, report.rounds);
    panel(&left, &title("Gb/s"), &bandwidth(report))?;
    panel(&right, &title("µs, half a round trip or post to completion"), &latency(report))?;
    root.present()?;
    drop((left, right, root));
    Ok(text)
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    lines: &[Line],
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let least =
        |of: fn(&(f64, f64)) -> f64| points().map(|point| of(&point)).fold(f64::INFINITY, f64::min);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(|point| of(&point)).fold(0.0, f64::max);
    if lines.is_empty() {
        return Ok(());
    }
    let (sizes, values) =
        (least(|p| p.0)..most(|p| p.0), least(|p| p.1).max(1e-4)..most(|p| p.1) * 1.2);
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 16))
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(56)
        .build_cartesian_2d(sizes.log_scale().base(2.0), values.log_scale())?;
    chart
        .configure_mesh()
        .x_label_formatter(&|size| Size::from_bytes(*size as usize).to_string())
        .x_labels(8)
        .label_style((FONT, 12))
        .draw()?;
    for (nr, line) in lines.iter().enumerate() {
        let colour = Palette99::pick(nr).to_rgba();
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
            .label(line.operation.to_string())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 12))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::report::Bandwidth;
    use super::*;

    fn report() -> Report {
        let row = |operation, size: usize| Bandwidth {
            operation,
            size,
            gbps: (size as f64).sqrt(),
            mmps: 1.0,
            of_udp_gso: None,
            of_tcp: None,
            of_udp_single: None,
            rounds: Vec::new(),
            messages: 1,
            verified: 1,
        };
        let sizes = [2, 64, 4096, 1 << 20];
        let mut bandwidth: Vec<_> = sizes.iter().map(|size| row(Operation::Write, *size)).collect();
        bandwidth.push(row(Operation::FetchAdd, 8));
        Report { bandwidth, mtu: 4096, rounds: 5, ..Report::default() }
    }

    #[test]
    fn the_terminal_shows_each_operation_that_has_sizes() {
        let text = terminal(&report());
        assert!(text.contains("WRITE, Gb/s by size") && text.contains("1 MiB"), "{text}");
        assert!(!text.contains("FETCH_ADD"), "one size is no line");
        assert!(text.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c)), "dots");
    }

    #[test]
    fn the_svg_is_one_with_its_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plot.svg");
        svg(&report(), reserve(&path).unwrap()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
        assert!(text.contains("polyline") && text.contains("WRITE"), "{text}");
        let message = reserve(&folder.path().join("no/such/folder.svg")).unwrap_err().to_string();
        assert!(
            message.contains("there is no plot: cannot write") && message.contains("folder.svg"),
            "{message}"
        );
    }
}
