//! The counterpart of `tests/kernel/guest/peer.c` over urxe: the same options, protocol and output.
//!
//! ```sh
//! urxe-peer --address 10.77.0.1 -l
//! urxe-peer --address 10.77.0.1 -c 10.77.0.11 -s 65536 -n 20 SEND WRITE READ
//! ```

use std::process::ExitCode;

use clap::Parser;
use urxe_tests::kernel::peer::{ClientConfig, PeerConfig, run_client, serve};

/// Runs RC operations against another peer, and verifies every byte.
#[derive(Debug, Parser)]
struct Arguments {
    /// Serve one client
    #[arg(short, conflicts_with = "connect")]
    listen: bool,
    /// Run the operations against the server on this host
    #[arg(short, value_name = "HOST", required_unless_present = "listen")]
    connect: Option<String>,
    #[command(flatten)]
    config: PeerConfig,
    #[command(flatten)]
    plan: ClientConfig,
}

fn main() -> ExitCode {
    let Arguments { connect, config, plan, .. } = Arguments::parse();
    let outcome = match connect {
        None => serve(&config),
        Some(host) => run_client(&config, &plan, &host),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("urxe-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
