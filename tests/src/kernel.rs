//! A real `rdma_rxe` peer on any x86-64 machine: Debian's kernels 6.1 and 6.12 in QEMU, without
//! KVM.
//!
//! ```text
//!   network namespace urxe-k-<pid>
//!   ┌─────────────────────────────────────────────────────────────────────────┐
//!   │ urxe, unprivileged        br0 10.77.0.1, fd77::1                        │
//!   │ (HostCommand)      ┌───────┴────────┐                                   │
//!   │                  tap1             tap2                                  │
//!   │             ┌──────┴──────┐  ┌──────┴──────┐                            │
//!   │             │ QEMU: 6.1   │  │ QEMU: 6.12  │   rxe0 on eth0             │
//!   │             │ 10.77.0.11  │  │ 10.77.0.12  │   a shell on TCP port 7777 │
//!   │             └─────────────┘  └─────────────┘                            │
//!   └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`Testbed::open`] makes all of it and drops all of it; it needs root and what
//! `tests/kernel/setup.sh` installs. The calling process itself enters the namespace, so open it
//! first and on the main thread. What is missing is an [`Error::Missing`] with the remedy, never a
//! test left out.
//!
//! - Commands run in a guest ([`Guest::start`], [`Guest::run`]) or beside the guests
//!   ([`HostCommand`]); both are a [`Job`] with output, exit status and a time limit, killed when
//!   dropped.
//! - Faults ([`Guest::impair`]) are `tc netem` on the guest's own end of its link, in both
//!   directions and for RoCE packets alone: guests' kernels have netem while the host's may not,
//!   and the control connections stay whole.
//! - [`Counters`] are the kernel's own (`rdma statistic`): they tell a clean run from one healed by
//!   retries.
//! - `tests/kernel/guest/peer.c` plays what `ibv_rc_pingpong` does not: READ, WRITE, atomics,
//!   immediate data, both roles.

mod counters;
mod error;
mod faults;
mod guest;
mod image;
mod job;
mod network;
pub mod peer;
mod requirements;
mod testbed;

pub use counters::Counters;
pub use error::Error;
pub use faults::Impairment;
pub use guest::Guest;
pub use image::{Image, Kernel};
pub use job::{Finished, HostCommand, Job};
pub use network::{Capture, HOST_V4, HOST_V6, Network};
pub use requirements::{Requirements, Series};
pub use testbed::Testbed;
