//! `urxe perf`: bandwidth, message rate and latency, as ratios to the performance of the machine
//! without RDMA.
//!
//! | file | subject |
//! |---|---|
//! | `options` | the command line |
//! | `case`, `error` | a measurement, and the reasons why it is impossible |
//! | `protocol`, `responder` | the protocol between the ends; the end that executes commands |
//! | `runner` | the measuring end: devices, alternating comparisons |
//! | `session`, `end` | a case at one end: queue pairs, region, prepared requests |
//! | `stream`, `latency` | the measured loops |
//! | `verify` | the verification of received data |
//! | `cpu_affinity` | the processors of the threads of a ping-pong |
//! | `floor` | plain UDP and TCP between the same two processes |
//! | `statistics`, `report` | medians, percentiles, ratios; rows |
//! | `table`, `plot` | the output |
//! | `addresses` | one address compared with two |
//! | `targets` | the project's targets, and their results |
//!
//! The measured loops use the crate `urxe` as a program does. They post prepared requests and poll
//! into an array. They allocate nothing and read no data that a program would not read.

mod addresses;
mod case;
mod cpu_affinity;
mod end;
mod error;
mod floor;
mod latency;
mod options;
mod plot;
mod protocol;
mod report;
mod responder;
mod runner;
mod session;
mod statistics;
mod stream;
mod table;
mod targets;
mod two_hosts;
mod verify;

use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use urxe::DeviceBuilder;
use urxe::sim::Probability;

use crate::cmd::{CmdError, Outcome};
use crate::output;
use crate::traffic::device::Choice;
use crate::traffic::error::TrafficError;
use crate::traffic::peer::Peer;
use crate::traffic::variables;

pub use error::PerfError;
pub use options::Args;

use protocol::DeviceOptions;
use report::Report;
use runner::{Addresses, Runner, Workload, budget};

/// The hidden option of the peer process.
const PEER_OPTION: &str = "--as-peer-process";
/// The default file of the plot of `--all`.
const SVG: &str = "urxe-perf.svg";

impl Args {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// [`CmdError`].
    pub fn run(self) -> Result<Outcome, CmdError> {
        if self.as_peer_process {
            responder::of_parent()?;
            return Ok(Outcome::Done);
        }
        if self.targets {
            return targets::run(&self);
        }
        let choice = Choice::new(&self.devices).map_err(PerfError::from)?;
        if self.listen {
            two_hosts::listen(&choice, self.port)?;
            return Ok(Outcome::Done);
        }
        if self.compare_addresses {
            return addresses::run(&self, &choice);
        }
        let path = self.svg.as_deref().unwrap_or(Path::new(SVG));
        let has_plot = self.all && !self.json;
        let plot = has_plot.then(|| plot::reserve(path)).transpose()?;
        let report = self.measure(&choice)?;
        output::print(self.json, &report, |out| -> Result<(), CmdError> {
            table::print(&report, out)?;
            if let Some(file) = plot {
                write!(out, "{}", plot::terminal(&report))?;
                plot::svg(&report, file)?;
                writeln!(out, "\nThe plot as SVG: {}", path.display())?;
            }
            Ok(())
        })?;
        Ok(Outcome::Done)
    }

    fn measure(&self, choice: &Choice) -> Result<Report, PerfError> {
        // Impossible cases are refused before any process is started. The path MTU does not matter
        // here.
        self.cases(4096)?;
        let (mut runner, devices) = match &self.connect {
            Some(host) => two_hosts::connect(choice, host, self.port, &self.device_options())?,
            None => local(choice, &self.device_options(), self.addresses)?,
        };
        let mtu = runner.fitting_mtu(devices, self.mtu)?;
        let groups: Vec<Vec<Workload>> =
            self.cases(mtu)?.iter().map(|group| self.workloads(group, devices)).collect();
        let progress = Progress::new(groups.iter().map(Vec::as_slice), self.rounds);
        let (device, peer) = runner.links(devices);
        let mut report = Report { device, peer, mtu, rounds: self.rounds, ..Report::default() };
        for workloads in &groups {
            let outcomes =
                runner.compare(workloads, self.rounds, |workload| progress.step(workload))?;
            report.take(workloads, &outcomes);
        }
        report.retries = runner.retries(devices);
        report.in_memory = runner.received_in_memory(devices) > 0;
        Ok(report)
    }
}

/// Starts a peer process on this machine and opens both devices.
fn local(
    choice: &Choice,
    options: &DeviceOptions,
    addresses: Addresses,
) -> Result<(Runner, usize), PerfError> {
    let mut runner = Runner::new(Peer::start(&["perf", PEER_OPTION])?);
    let devices = runner.open(choice, options, addresses)?;
    Ok((runner, devices))
}

/// Returns the builder for a device with these options.
fn builder(options: &DeviceOptions) -> Result<DeviceBuilder, TrafficError> {
    let mut builder = variables::builder()?;
    if options.loss_per_million > 0 {
        builder = builder.loss(Probability::from_ppm(options.loss_per_million));
    }
    if let Some(bytes) = options.receive_buffer {
        builder = builder.receive_buffer(bytes);
    }
    if let Some(is_on) = options.shared_memory {
        builder = builder.shared_memory(is_on);
    }
    Ok(builder)
}

/// Returns the peak memory of this process in bytes (`VmHWM`, proc(5)), or 0 if unknown.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The progress bar, after a note about the expected time.
struct Progress(ProgressBar);

impl Progress {
    fn new<'a>(groups: impl Iterator<Item = &'a [Workload]>, rounds: u32) -> Self {
        let (mut time, mut steps) = (Duration::ZERO, 0);
        for group in groups {
            time += budget(group, rounds);
            steps += group.len() * rounds as usize;
        }
        output::note(&format!(
            "this takes about {:.0} seconds, and uses two processors",
            time.as_secs_f64().ceil()
        ));
        Self(output::progress_bar(steps))
    }

    fn step(&self, workload: &Workload) {
        self.0.set_message(match workload {
            Workload::Case { case, .. } => format!("{} {} B", case.operation, case.size),
            Workload::Floor(floor) => floor.name(),
        });
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
