//! urxe's counterpart of `tests/kernel/guest/peer.c`: the same options, the same protocol, the same
//! output.
//!
//! ```sh
//! urxe-peer --address 10.77.0.1 -l
//! urxe-peer --address 10.77.0.1 -c 10.77.0.11 -s 65536 -n 20 SEND WRITE READ
//! ```

use std::{net::IpAddr, process::ExitCode};

use clap::Parser;
use urxe::PathMtu;
use urxe_tests::kernel::peer::{Operation, PeerConfig, PlayConfig, play, serve};

/// Plays RC operations against another peer, and verifies every byte.
#[derive(Debug, Parser)]
struct Arguments {
    /// Serve one client.
    #[arg(short, conflicts_with = "connect")]
    listen: bool,
    /// Play against the server at this host.
    #[arg(short, value_name = "HOST", required_unless_present = "listen")]
    connect: Option<String>,
    /// This end's address.
    #[arg(long)]
    address: IpAddr,
    /// TCP port of the control connection.
    #[arg(short, default_value_t = 18600)]
    port: u16,
    /// Path MTU.
    #[arg(short, default_value_t = 1024)]
    mtu: usize,
    /// Message size in bytes.
    #[arg(short, default_value_t = 4096)]
    size: u32,
    /// Messages of each operation.
    #[arg(short = 'n', default_value_t = 16)]
    count: u32,
    /// Messages outstanding.
    #[arg(short = 'q', default_value_t = 16)]
    depth: u32,
    /// READs and atomics outstanding.
    #[arg(short = 'a', default_value_t = 4)]
    rd_atomic: u8,
    /// Scatter-gather entries.
    #[arg(short = 'S', default_value_t = 1)]
    sges: u32,
    /// Send inline.
    #[arg(short = 'I')]
    inline: bool,
    /// Local ACK timeout, as a code.
    #[arg(short, default_value_t = 14)]
    timeout: u8,
    /// Send nothing again before the local ACK timeout.
    #[arg(long)]
    patient: bool,
    /// Retry count.
    #[arg(short, default_value_t = 7)]
    retry_cnt: u8,
    /// RNR retry count.
    #[arg(short = 'R', default_value_t = 7)]
    rnr_retry: u8,
    /// Minimal RNR timer, as a code.
    #[arg(short = 'T', default_value_t = 12)]
    min_rnr_timer: u8,
    /// Flip these bits of the rkey (hexadecimal).
    #[arg(short = 'k', default_value = "0", value_parser = hexadecimal)]
    rkey_flip: u32,
    /// Post receives so many milliseconds late.
    #[arg(short = 'D', default_value_t = 0)]
    delay_ms: u64,
    /// SEND SEND_IMM SEND_INV WRITE WRITE_IMM FLUSH ATOMIC_WRITE READ MW_WRITE MW_READ MW1_WRITE
    /// INV_THEN_WRITE FAA CAS CAS_MISS
    operations: Vec<Operation>,
}

fn hexadecimal(text: &str) -> Result<u32, std::num::ParseIntError> {
    u32::from_str_radix(text, 16)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(mtu) = PathMtu::at_most(arguments.mtu).filter(|mtu| mtu.bytes() == arguments.mtu)
    else {
        eprintln!("urxe-peer: path MTU {}: 256, 512, 1024, 2048 or 4096", arguments.mtu);
        return ExitCode::from(2);
    };
    let config = PeerConfig {
        address: arguments.address,
        port: arguments.port,
        mtu,
        rd_atomic: arguments.rd_atomic,
        sges: arguments.sges,
        timeout: arguments.timeout,
        patient: arguments.patient,
        retry_cnt: arguments.retry_cnt,
        rnr_retry: arguments.rnr_retry,
        min_rnr_timer: arguments.min_rnr_timer,
        delay_ms: arguments.delay_ms,
    };
    let outcome = match &arguments.connect {
        None => serve(&config),
        Some(host) => {
            let plan = PlayConfig {
                operations: arguments.operations,
                size: arguments.size,
                count: arguments.count,
                depth: arguments.depth,
                inline: arguments.inline,
                rkey_flip: arguments.rkey_flip,
            };
            play(&config, &plan, host)
        }
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
