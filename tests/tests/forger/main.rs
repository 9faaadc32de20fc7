//! The packet forger: attackers that send packets with a valid ICRC to a device.
//!
//! - An *off-path* attacker knows addresses, ports and queue pair numbers, but no PSN. The data of
//!   the connection must be right. The connection must stay up without a retransmission, and the
//!   device must send no more than the attacker.
//! - An *on-path* attacker reads, changes, drops, repeats and delays the packets of a connection,
//!   and adds some. No memory beyond that of the keys on the wire may change. Every work request
//!   completes once, and a connection ends for a reported reason.
//! - A *hostile peer* knows everything, and has a key to one region. No other memory may change. A
//!   call sends a bounded number of bytes, and a connection ends for a reported reason. It attacks
//!   each service in each state.
//! - The attackers of [`sockets`] send over the sockets of a network namespace. These tests need
//!   root in a namespace of their own:
//!
//! ```text
//! unshare --map-root-user --net cargo test -p urxe-tests --test forger -- --ignored
//! ```
//!
//! `URXE_FORGED` is the number of packets of each attacker (default: half a million). `URXE_SEED`
//! replays a run.

mod forge;
mod hostile_peer;
mod off_path;
mod on_path;
mod sockets;

/// The forged packets of each attacker in CI.
const FORGED: u64 = 500_000;
/// The most bytes of a call: 2 MiB and a run.
const CALL_BYTES: usize = (2 << 20) + (64 << 10);
/// Bytes of an attacked buffer.
const MEMORY: usize = 1 << 16;
/// The range of a buffer that a peer may read and write.
const OPEN: std::ops::Range<usize> = 0x4000..0x5000;
/// The range of receives and READs.
const RECEIVES: std::ops::Range<usize> = 0x8000..0xa000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn seed() -> u64 {
    let seed = number("URXE_SEED", 1);
    println!("URXE_SEED={seed} replays this run");
    seed
}
