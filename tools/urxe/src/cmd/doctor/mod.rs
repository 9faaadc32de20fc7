//! `urxe doctor`: tests what this machine supports, and prints consequences and advice.

mod probe;

use std::io::Write;
use std::net::IpAddr;

use serde::Serialize;

use self::probe::{Outcome as Verdict, Probe, processes};
use crate::cmd::{CmdError, Outcome};
use crate::output;

/// Columns before the texts of a probe.
const INDENT: usize = 12;

/// Arguments of `urxe doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
All probes use loopback addresses of this machine; no packet leaves the machine.

Exit code 0: devices work, perhaps with limits. 1: a required feature fails.")]
pub struct Args {
    /// Print a JSON object with the verdict and all probes
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
        let report = Report { works, probes: &probes };
        output::print(self.json, &report, |out| print(out, &probes, works))?;
        Ok(if works { Outcome::Done } else { Outcome::Failed })
    }
}

/// Prints each probe with its consequence and advice, then the summary.
fn print(out: &mut dyn Write, probes: &[Probe], works: bool) -> Result<(), CmdError> {
    for Probe { name, outcome, detail, consequence, advice } in probes {
        writeln!(out, "{outcome:<INDENT$}{name}")?;
        let parts = [
            ("seen:", Some(&**detail)),
            ("so:", Some(consequence)),
            ("advice:", advice.as_deref()),
        ];
        for (head, text) in parts {
            if let Some(text) = text {
                let first = format!("  {head:<0$}", INDENT - 2);
                writeln!(out, "{}", output::wrap(&first, &" ".repeat(INDENT), text))?;
            }
        }
    }
    let count = |verdict| probes.iter().filter(|probe| probe.outcome == verdict).count();
    let (fails, limited) = (count(Verdict::Fails), count(Verdict::Limited));
    let summary = match (works, limited) {
        (true, 0) => "Devices work on this machine.".to_owned(),
        (true, _) => {
            format!("Devices work on this machine; {limited} of the above could be better.")
        }
        (false, _) => {
            format!("Devices do not work on this machine: {fails} of the above must change.")
        }
    };
    writeln!(out, "\n{}", output::wrap("", "", &summary))?;
    Ok(())
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    works: bool,
    probes: &'a [Probe],
}
