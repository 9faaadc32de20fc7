//! `urxe link`: lists and changes the devices, as `rdma link` does for kernel devices.

mod edit;
mod show;

use clap::Subcommand;

use super::{CmdError, Outcome};

pub use self::show::print_listing;

/// Arguments of `urxe link`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
}

const AFTER_HELP: &str = "\
The list is a text file, $XDG_CONFIG_HOME/urxe/links or ~/.config/urxe/links. While the list is \
empty, there is one device, rxe0 on 127.0.0.1. The environment variable URXE_DEVICES overrides the \
list.";

#[derive(Debug, Subcommand)]
enum Action {
    /// Show all devices or one (the default action)
    #[command(visible_alias = "list")]
    Show(show::Args),
    /// Add a device on an address or a network interface
    Add(edit::AddArgs),
    /// Delete a device
    #[command(visible_alias = "delete")]
    Del(edit::DelArgs),
}

impl Args {
    /// Runs the action; the default is `show`.
    pub fn run(self) -> Result<Outcome, CmdError> {
        match self.action {
            None => show::Args::default().run(),
            Some(Action::Show(args)) => args.run(),
            Some(Action::Add(args)) => args.run(),
            Some(Action::Del(args)) => args.run(),
        }
    }
}
