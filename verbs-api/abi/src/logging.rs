//! Log lines on standard error, chosen by the environment variable `URXE_LOG`, as for the `urxe`
//! command.
//!
//! Without it, errors alone are told: a device that cannot be opened, a list of devices that cannot
//! be read. A refused verb is a warning, since programs try things out.

use std::io::{self, IsTerminal};
use std::sync::Once;

use tracing_subscriber::EnvFilter;

const VARIABLE: &str = "URXE_LOG";
const DEFAULT: &str = "error";

/// Starts logging at the first call.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let given = std::env::var(VARIABLE).unwrap_or_default();
        let chosen = if given.trim().is_empty() { DEFAULT } else { &given };
        let (filter, bad) = match EnvFilter::try_new(chosen) {
            Ok(filter) => (filter, None),
            Err(error) => (EnvFilter::new(DEFAULT), Some(error)),
        };
        let logger = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(io::stderr().is_terminal())
            .with_writer(io::stderr)
            .try_init();
        if let Some(error) = bad {
            tracing::error!(
                "{VARIABLE}={given:?} is no log filter ({error}); try {VARIABLE}=debug"
            );
        }
        debug_assert!(logger.is_ok(), "nobody else starts this library's logging");
    });
}
