//! Real `rdma_rxe` peers on any x86-64 machine: Debian's kernels 6.1 and 6.12 in QEMU, without KVM.
//! With `URXE_KERNEL_ARCH=aarch64` they are AArch64 kernels.
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
//! [`Testbed::open`] creates all of this, and dropping the testbed removes it. It needs root and
//! the installation of `tests/kernel/setup.sh`. The calling process enters the namespace, so open
//! the testbed first and on the main thread. A missing requirement is an [`Error::Missing`] with
//! the remedy, never a skipped test.
//!
//! - Commands run in a guest ([`Guest::start`], [`Guest::run`]) or beside the guests
//!   ([`HostCommand`]). Both are a [`Job`] with output, exit status and a time limit, and are
//!   killed when dropped.
//! - Faults ([`Guest::impair`]) are `tc netem` on the guest's own end of the link, in both
//!   directions and for RoCE packets only. The guests' kernels have netem while the host's may not,
//!   and control connections stay unaffected.
//! - [`Counters`] are the kernel's own (`rdma statistic`). They distinguish a clean run from a run
//!   with retries.
//! - `tests/kernel/guest/peer.c` runs the operations that `ibv_rc_pingpong` lacks: READ, WRITE,
//!   atomics and immediate data, in both roles.

mod architecture;
mod counters;
mod error;
mod faults;
mod guest;
mod image;
mod job;
mod network;
pub mod peer;
mod requirements;
pub mod stalls;
mod testbed;

pub use architecture::Architecture;
pub use counters::Counters;
pub use error::Error;
pub use faults::Impairment;
pub use guest::{Guest, Machine};
pub use image::{Image, Kernel};
pub use job::{Finished, HostCommand, Job};
pub use network::{Capture, HOST_V4, HOST_V6, Network};
pub use requirements::{Requirements, Series};
pub use testbed::Testbed;
