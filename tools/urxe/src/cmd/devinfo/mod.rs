//! `urxe devinfo`: prints device attributes in the format of `ibv_devinfo`, so that the same
//! scripts can read both.

mod attributes;
mod print;

use urxe_stack::link;

pub use attributes::{DEVICE_CAP_FLAGS, cap_flags};

use crate::cmd::{CmdError, Outcome, processes};
use crate::output;
use crate::traffic::error::TrafficError;
use crate::traffic::selection::DeviceArgs;

/// Arguments of `urxe devinfo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    devices: DeviceArgs,
    /// Show only this port; each device has only port 1
    #[arg(short = 'i', long = "ib-port", value_name = "PORT",
        value_parser = clap::value_parser!(u8).range(1..=1))]
    port: Option<u8>,
    /// Show only the devices' names
    #[arg(short, long)]
    list: bool,
    /// Show every attribute
    #[arg(short, long)]
    verbose: bool,
    /// Print a JSON array with every attribute of every device
    #[arg(long, conflicts_with_all = ["list", "verbose"])]
    json: bool,
}

impl Args {
    /// Prints the attributes. A device that cannot exist on this machine is reported on standard
    /// error.
    pub fn run(self) -> Result<Outcome, CmdError> {
        let selection = self.devices.select()?;
        if self.list {
            output::print(false, &(), |out| print::list(out, &selection.links))?;
            return Ok(Outcome::Done);
        }
        let mut outcome = Outcome::Done;
        let mut devices = Vec::new();
        for spec in &selection.links {
            match link::resolve(spec) {
                Ok(resolved) => {
                    let processes = processes::of(&resolved);
                    devices.push((attributes::device(&resolved, &processes), processes));
                }
                Err(error) => {
                    let device = selection.describe(std::slice::from_ref(spec));
                    output::report(&TrafficError::Device { device, error: error.into() });
                    outcome = Outcome::Failed;
                }
            }
        }
        let objects: Vec<_> = devices.iter().map(|(device, _)| device).collect();
        output::print(self.json, &objects, |out| {
            devices.iter().try_for_each(|device| print::device(out, device, self.verbose))
        })?;
        Ok(outcome)
    }
}
