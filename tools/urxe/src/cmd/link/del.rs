//! `urxe link del`: a device less in the user's list.

use urxe_stack::link::{LinkName, config};

use super::note_environment;
use crate::cmd::{CmdError, Outcome};

/// Arguments of `urxe link del`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The device's name
    name: LinkName,
}

impl Args {
    /// Deletes the device. Programs that use it keep it until they end.
    pub fn run(self) -> Result<Outcome, CmdError> {
        config::remove(&config::file_path()?, &self.name)?;
        note_environment();
        Ok(Outcome::Done)
    }
}
