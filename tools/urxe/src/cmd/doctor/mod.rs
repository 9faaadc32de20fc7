//! `urxe doctor`: tests what this machine supports, and prints consequences and advice.

mod probe;

use std::io::Write;
use std::net::IpAddr;

use comfy_table::ContentArrangement;
use serde::Serialize;

use self::probe::{Outcome as Verdict, Probe, processes};
use crate::cmd::{CmdError, Outcome};
use crate::output;

/// Columns of the table where no terminal defines the width.
const WIDTH: u16 = 110;

/// Arguments of `urxe doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything is tried on loopback addresses of this machine; no packet leaves it.
Exit code 0: devices work, if perhaps slower than they could. 1: something that devices cannot do without fails.")]
pub struct Args {
    /// For machines: an object with the verdict and all probes
    #[arg(long)]
    json: bool,
    /// Only open a device on an address that another process uses: the second process of a probe
    #[arg(long, hide = true, value_name = "ADDRESS")]
    join: Option<IpAddr>,
}

impl Args {
    /// Runs all probes and prints their results.
    pub fn run(self) -> Result<Outcome, CmdError> {
        if let Some(address) = self.join {
            return processes::join(address);
        }
        let mut probes = probe::run();
        if probes.iter().all(|probe| probe.outcome != Verdict::Fails) {
            probes.push(processes::probe());
        }
        let works = probes.iter().all(|probe| probe.outcome != Verdict::Fails);
        let mut out = output::stdout();
        if self.json {
            output::json(&mut out, &Report { works, probes: &probes })?;
        } else {
            print(&mut out, &probes, works)?;
        }
        out.flush()?;
        Ok(if works { Outcome::Done } else { Outcome::Failed })
    }
}

/// The table, then the advice, then the verdict.
fn print(out: &mut dyn Write, probes: &[Probe], works: bool) -> Result<(), CmdError> {
    let mut table = output::table(&["tried", "outcome", "seen", "what follows"], 4);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    for probe in probes {
        let outcome = probe.outcome.to_string();
        table.add_row([probe.name, &outcome, &probe.detail, &probe.consequence]);
    }
    writeln!(out, "{table}")?;
    let advised: Vec<_> =
        probes.iter().filter_map(|probe| Some((probe.name, probe.advice.as_ref()?))).collect();
    if !advised.is_empty() {
        writeln!(out, "\nWhat to change:")?;
        for (name, advice) in advised {
            writeln!(out, "- {name}: {advice}")?;
        }
    }
    let count = |verdict| probes.iter().filter(|probe| probe.outcome == verdict).count();
    let (fails, limited) = (count(Verdict::Fails), count(Verdict::Limited));
    match (works, limited) {
        (true, 0) => writeln!(out, "\nDevices work on this machine.")?,
        (true, _) => writeln!(
            out,
            "\nDevices work on this machine; {limited} of the above could be better."
        )?,
        (false, _) => writeln!(
            out,
            "\nDevices do not work on this machine: {fails} of the above must change."
        )?,
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    works: bool,
    probes: &'a [Probe],
}
