//! Log lines on standard error, chosen by the environment variable `URXE_LOG`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// The environment variable that chooses.
const VARIABLE: &str = "URXE_LOG";

/// `URXE_LOG` does not follow its grammar.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE}={given:?} is no log filter; try {VARIABLE}=debug or {VARIABLE}=urxe_device=trace"
)]
pub struct BadFilter {
    /// The value.
    given: String,
    /// What is wrong with it.
    #[source]
    error: ParseError,
}

/// Starts logging for the life of the process; by `default` if the environment variable does not
/// choose.
pub fn start(default: &str) -> Result<(), BadFilter> {
    let given = std::env::var(VARIABLE).unwrap_or_default();
    let filter = if given.trim().is_empty() { default } else { &given };
    let filter =
        EnvFilter::try_new(filter).map_err(|error| BadFilter { given: given.clone(), error })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
    Ok(())
}
