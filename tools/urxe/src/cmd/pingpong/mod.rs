//! `urxe pingpong`: moves data and verifies every byte, on this host or between two hosts.
//!
//! | file | subject |
//! |---|---|
//! | `local` | the default run: this process and a peer process on another loopback address |
//! | `responder`, `protocol` | the peer process, and the protocol between the two processes |
//! | `two_hosts` | `--listen` and `--connect`, compatible with `ibv_{rc,uc,ud}_pingpong` |
//! | `many` | `--srq`, compatible with `ibv_srq_pingpong` |
//! | `exchange` | the exchange of addresses over TCP |
//! | `endpoint` | one end: device, region, queue pair |
//! | `transport` | the services, and their differences |
//! | `datagrams` | additional state of UD: address handle, header before a message |
//! | `report`, `summary` | the output |
//! | `error` | the errors |

mod datagrams;
mod endpoint;
mod error;
mod exchange;
mod local;
mod many;
mod protocol;
mod report;
mod responder;
mod summary;
mod transport;
mod two_hosts;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use urxe::{Completion, PathMtu};

use crate::arguments::Size;
use crate::arguments::path_mtu;
use crate::cmd::{CmdError, Outcome};
use crate::output;
use crate::traffic::device::Choice;
use crate::traffic::selection::DeviceArgs;

pub use error::PingpongError;
use error::Wrong;
use exchange::Address;
use transport::Transport;
use two_hosts::Role;

/// The hidden option of the peer process.
const PEER_OPTION: &str = "--as-peer-process";
/// Outstanding messages.
const DEPTH: u32 = 64;
/// Outstanding READs and atomics.
const RD_ATOMIC: u8 = 16;

/// Arguments of `urxe pingpong`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Wait for another host: urxe pingpong --connect, or ibv_rc_pingpong (ibv_uc_pingpong,
    /// ibv_ud_pingpong with --transport)
    #[arg(long, group = "two_hosts", conflicts_with = "connect")]
    listen: bool,
    /// Connect to a host that listens: urxe pingpong --listen, or ibv_rc_pingpong
    #[arg(long, value_name = "HOST", group = "two_hosts")]
    connect: Option<String>,

    /// The service: reliable connection, unreliable connection, or datagrams of up to the path MTU
    #[arg(short, long, value_enum, default_value_t, value_name = "SERVICE")]
    transport: Transport,
    #[command(flatten)]
    devices: DeviceArgs,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the largest that fits; 1024 with two hosts,
    /// except with ud]
    #[arg(short, long, value_parser = path_mtu)]
    mtu: Option<PathMtu>,
    /// Number of messages, each way with two hosts [default: 1000; without another host fewer, if
    /// they take too long]
    #[arg(short = 'n', long, value_name = "N", visible_alias = "iters",
        value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    iterations: Option<u32>,
    /// Sleep on completion events instead of polling
    #[arg(short, long)]
    events: bool,
    /// Record all packets in this file, as pcapng
    #[arg(long, value_name = "FILE.pcapng")]
    capture: Option<PathBuf>,
    /// Record only the headers of packets, without payload
    #[arg(long, requires = "capture")]
    capture_headers: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,

    /// Message sizes, such as 64,4K,1M [default: 64,4K,64K,1M; with uc 64,4K,64K; with ud 64,1K,4K]
    #[arg(long, value_delimiter = ',', value_name = "SIZES", conflicts_with = "two_hosts")]
    sizes: Option<Vec<Size>>,
    /// Use only two sizes, and fewer messages
    #[arg(long, conflicts_with_all = ["two_hosts", "sizes"])]
    quick: bool,

    /// TCP port on which the hosts exchange their addresses
    #[arg(short, long, requires = "two_hosts", default_value_t = 18515, help_heading = TWO_HOSTS)]
    port: u16,
    /// Bytes of a message [default: 4096; with ud 2048]
    #[arg(short, long, requires = "two_hosts", help_heading = TWO_HOSTS)]
    size: Option<Size>,
    /// Posted receives
    #[arg(short, long, requires = "two_hosts", default_value_t = 500, value_name = "N",
        help_heading = TWO_HOSTS, value_parser = clap::value_parser!(u32).range(2..=65_536))]
    rx_depth: u32,
    /// Index of the local GID [default: the GID of the TCP connection's address]
    #[arg(short, long, requires = "two_hosts", value_name = "INDEX", help_heading = TWO_HOSTS)]
    gid_idx: Option<u8>,
    /// Listening: the first message must have the bytes of ibv_rc_pingpong -c; all others are
    /// verified anyway
    #[arg(short, long, requires = "two_hosts", help_heading = TWO_HOSTS)]
    chk: bool,
    /// Number of queue pairs on one shared receive queue, as ibv_srq_pingpong -q N (default 16);
    /// the number of messages is that of all queue pairs together
    #[arg(long, requires = "two_hosts", conflicts_with = "chk", value_name = "N",
        help_heading = TWO_HOSTS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(many::MAX_QPS)))]
    srq: Option<u32>,
    /// For a peer that may stall, such as in an emulator or a debugger: retransmit only after 4 s
    #[arg(long, requires = "two_hosts", help_heading = TWO_HOSTS)]
    patient: bool,
    /// Port of the device; each device has only port 1
    #[arg(short, long, requires = "two_hosts", value_name = "PORT", help_heading = TWO_HOSTS,
        value_parser = clap::value_parser!(u8).range(1..=1))]
    ib_port: Option<u8>,
    /// Service level; RoCEv2 packets do not carry a service level
    #[arg(short = 'l', long, requires = "two_hosts", value_name = "LEVEL", help_heading = TWO_HOSTS,
        value_parser = clap::value_parser!(u8).range(0..=15))]
    sl: Option<u8>,

    /// Be the peer process
    #[arg(long, hide = true, exclusive = true)]
    as_peer_process: bool,
}

const TWO_HOSTS: &str = "With --listen or --connect";

const AFTER_HELP: &str = "\
Without --listen and --connect, a second process on another loopback address is the peer. All \
operations run between the two, and every byte is verified.

With a host that has an RDMA device and Debian's ibverbs-utils:
  there: ibv_rc_pingpong -g 1 -c
  here:  urxe pingpong --connect THERE
or:
  here:  urxe pingpong --listen -d ADDRESS
  there: ibv_rc_pingpong -g 1 -c HERE

Both ends need the same --mtu, --size and --iterations. --transport uc and ud correspond to \
ibv_uc_pingpong and ibv_ud_pingpong; a lost message ends the run.

Exit code 0: all data was correct. 1: wrong data, or a failure.";

/// Time limit of each of a row's two phases.
const BUDGET: Duration = Duration::from_millis(300);
/// Time limit of a phase with `--quick`.
const QUICK_BUDGET: Duration = Duration::from_millis(100);
/// Messages of each phase.
const ITERATIONS: u32 = 1000;
/// Messages of each phase with `--quick`.
const QUICK_ITERATIONS: u32 = 200;

impl Args {
    /// Runs the subcommand.
    pub fn run(self) -> Result<Outcome, CmdError> {
        if self.as_peer_process {
            return responder::run();
        }
        let _without_effect = (self.ib_port, self.sl);
        if self.srq.is_some() && self.transport != Transport::Rc {
            return Err(CmdError::Usage(
                "--srq goes with --transport rc only, as ibv_srq_pingpong; see --help",
            ));
        }
        let choice = Choice::new(&self.devices).map_err(PingpongError::from)?;
        let role = match &self.connect {
            Some(host) => Role::Client(host.clone()),
            None if self.listen => Role::Server,
            None => return self.run_local(choice),
        };
        self.run_two_hosts(choice, role)
    }

    fn run_local(self, choice: Choice) -> Result<Outcome, CmdError> {
        let usual = if self.quick { QUICK_ITERATIONS } else { ITERATIONS };
        let budget = if self.quick { QUICK_BUDGET } else { BUDGET };
        let (json, iterations) = (self.json, self.iterations.unwrap_or(usual));
        let budget = self.iterations.is_none().then_some(budget);
        let plan = local::Plan { choice, iterations, budget, args: self };
        let report = plan.run()?;
        output::print(json, &report, |out| report.print(out))?;
        Ok(Outcome::Done)
    }

    fn run_two_hosts(self, choice: Choice, role: Role) -> Result<Outcome, CmdError> {
        let size = self.size.map_or(self.transport.properties().two_hosts_size, Size::bytes);
        let iterations = self.iterations.unwrap_or(ITERATIONS);
        let mut status = StatusLines { json: self.json };
        let plan = two_hosts::Plan { role, choice, size, iterations, args: self };
        let summary = plan.run(&mut status)?;
        output::print(status.json, &summary, |out| writeln!(out, "{summary}"))?;
        Ok(Outcome::Done)
    }
}

/// Status lines of a run between two hosts. They are written to standard output, or to standard
/// error if standard output has JSON.
struct StatusLines {
    json: bool,
}

impl StatusLines {
    fn say(&self, line: &str) {
        if self.json { output::error_line(line) } else { output::line(line) }
    }

    fn address(&self, whose: &str, address: &Address) {
        let Address { lid, qpn, psn, gid } = address;
        let (qpn, psn) = (qpn.value(), psn.value());
        self.say(&format!(
            "  {whose} address:  LID {lid:#06x}, QPN {qpn:#08x}, PSN {psn:#08x}, GID {gid}"
        ));
    }
}

impl two_hosts::Status for StatusLines {
    fn listening(&mut self, on: SocketAddr) {
        self.say(&format!("listening on TCP {on}"));
    }

    fn exchanged(&mut self, local: &Address, remote: &Address) {
        self.address("local", local);
        self.address("remote", remote);
    }
}

/// Checks that a completion is a success.
fn expect_success(completion: &Completion) -> Result<(), PingpongError> {
    let Completion { wr_id: message, status, .. } = *completion;
    if status.is_success() { Ok(()) } else { Err(PingpongError::Status { message, status }) }
}

/// Checks that a completion is the success of this message.
fn expect(completion: &Completion, message: u64) -> Result<(), PingpongError> {
    expect_success(completion)?;
    let found = completion.wr_id;
    if found == message { Ok(()) } else { Err(Wrong::Order { found, expected: message }.into()) }
}
