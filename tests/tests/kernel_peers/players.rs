//! The two ends of a test, whichever program plays them: a kernel's `ibv_rc_pingpong` and `peer`, or urxe's counterparts,
//! unprivileged.

use std::{net::IpAddr, path::Path, time::Duration};

use urxe_tests::kernel::{Error, Guest, HOST_V4, HOST_V6, HostCommand, Job, Lab};

use crate::case::Failure;

const START_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(30);

/// Which addresses, and so which GIDs, the RoCE packets have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }
}

/// How long the programs in a guest wait for an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// 4 s: a retry then has a cause (`tests/kernel/guest/patient.c` says why).
    Long,
    /// 67 ms, as `ibv_rc_pingpong` sets it: for links with faults.
    Usual,
}

/// An end of a test.
#[derive(Debug, Clone, Copy)]
pub enum Node<'a> {
    /// A guest's kernel.
    Kernel(&'a Guest),
    /// urxe, as an unprivileged user beside the guests.
    Urxe(&'a Lab),
}

/// One run of `ibv_rc_pingpong`'s exchange.
#[derive(Debug, Clone, Copy)]
pub struct Pingpong {
    pub family: Family,
    pub size: u32,
    pub count: u32,
    pub mtu: u16,
    pub patience: Patience,
}

/// One run of `peer`: the operations named, each `count` times.
#[derive(Debug, Clone, Copy)]
pub struct Play {
    pub family: Family,
    pub operations: &'static [&'static str],
    pub size: u32,
    pub count: u32,
    pub mtu: u16,
    pub patience: Patience,
    /// As `peer` takes them: `-I`, `-S 4`.
    pub more: &'static str,
}

impl Pingpong {
    /// 20 messages each way.
    pub fn new(family: Family, size: u32, mtu: u16) -> Self {
        Self { family, size, count: 20, mtu, patience: Patience::Long }
    }

    /// Runs it; `ibv_rc_pingpong` verifies the bytes it receives, and the other end its own.
    pub fn run(&self, lab: &Lab, server: Node<'_>, client: Node<'_>) -> Result<(), Failure> {
        let port = lab.port();
        let mut serving = server.pingpong(self, port, None)?;
        server.wait_listening(&mut serving, port)?;
        // Its TCP server listens on IPv4 alone, whatever the GIDs are.
        let host = server.address(Family::V4);
        let outcome = client.pingpong(self, port, Some(host))?.finish(END_LIMIT)?.ok();
        // A client that failed leaves its server waiting: dropping stops it.
        let outputs = [outcome?, serving.finish(END_LIMIT)?.ok()?];
        // ibv_rc_pingpong says this and exits with 0.
        match outputs.into_iter().find(|output| output.contains("invalid data")) {
            None => Ok(()),
            Some(output) => Err(Failure::Unsaid {
                command: "ibv_rc_pingpong -c".to_owned(),
                output,
                wanted: "valid data".to_owned(),
            }),
        }
    }
}

impl Play {
    /// 20 of each.
    pub fn new(family: Family, operations: &'static [&'static str], size: u32, mtu: u16) -> Self {
        Self { family, operations, size, count: 20, mtu, patience: Patience::Long, more: "" }
    }

    /// Runs it and expects the client to say that it failed, and why. Server and client are a pair.
    pub fn fails_with(&self, lab: &Lab, pair: (Node<'_>, Node<'_>), why: &str) -> Result<(), Failure> {
        let output = match self.run(lab, pair.0, pair.1) {
            Err(Failure::Harness(Error::Status { output, .. })) => output,
            Err(failure) => return Err(failure),
            Ok(()) => "no error".to_owned(),
        };
        if output.contains(why) {
            return Ok(());
        }
        let command = format!("{} {}", self.operations.join(" "), self.more);
        Err(Failure::Unsaid { command, output, wanted: why.to_owned() })
    }

    /// Runs it; both ends verify.
    pub fn run(&self, lab: &Lab, server: Node<'_>, client: Node<'_>) -> Result<(), Failure> {
        let port = lab.port();
        let mut serving = server.peer(self, port, None)?;
        serving.wait_for("listening", START_LIMIT)?;
        let played = client.peer(self, port, Some(server.address(self.family)))?.finish(END_LIMIT)?;
        let command = played.command.clone();
        let output = played.ok()?;
        serving.finish(END_LIMIT)?.ok()?;
        let wanted = self.operations.iter().map(|name| format!("OK {name} {} {}", self.size, self.count));
        for wanted in wanted {
            if !output.lines().any(|line| line == wanted) {
                return Err(Failure::Unsaid { command, output, wanted });
            }
        }
        Ok(())
    }
}

impl Node<'_> {
    pub fn address(self, family: Family) -> IpAddr {
        match (self, family) {
            (Self::Kernel(guest), Family::V4) => guest.v4(),
            (Self::Kernel(guest), Family::V6) => guest.v6(),
            (Self::Urxe(_), Family::V4) => HOST_V4,
            (Self::Urxe(_), Family::V6) => HOST_V6,
        }
    }

    fn pingpong(self, run: &Pingpong, port: u16, server: Option<IpAddr>) -> Result<Job, Failure> {
        let Pingpong { size, count, mtu, .. } = run;
        match self {
            Self::Kernel(guest) => {
                let preload = match run.patience {
                    Patience::Long => "LD_PRELOAD=/usr/lib/patient.so ",
                    Patience::Usual => "",
                };
                let gid = guest.gid_index(self.address(run.family))?;
                let host = server.map(|address| address.to_string()).unwrap_or_default();
                let options = format!("-d rxe0 -g {gid} -p {port} -s {size} -n {count} -m {mtu} -c");
                Ok(guest.start(&format!("{preload}ibv_rc_pingpong {options} {host}"))?)
            }
            Self::Urxe(lab) => {
                let command = urxe_peer(lab, self.address(run.family), port, server)?.arg("--pingpong");
                Ok(command
                    .args(["-s", &size.to_string(), "-n", &count.to_string(), "-m", &mtu.to_string()])
                    .start()?)
            }
        }
    }

    fn peer(self, play: &Play, port: u16, server: Option<IpAddr>) -> Result<Job, Failure> {
        let Play { size, count, mtu, more, .. } = play;
        let timeout = match play.patience {
            Patience::Long => 20,
            Patience::Usual => 14,
        };
        let role = match server {
            None => "-l".to_owned(),
            Some(server) => {
                format!("-c {server} -s {size} -n {count} -m {mtu} {more} {}", play.operations.join(" "))
            }
        };
        match self {
            Self::Kernel(guest) => {
                let gid = guest.gid_index(self.address(play.family))?;
                Ok(guest.start(&format!("peer -g {gid} -p {port} -t {timeout} {role}"))?)
            }
            Self::Urxe(lab) => {
                let command = urxe_peer(lab, self.address(play.family), port, server)?;
                if server.is_none() {
                    return Ok(command.start()?);
                }
                let command =
                    command.args(["-s", &size.to_string(), "-n", &count.to_string(), "-m", &mtu.to_string()]);
                Ok(command.args(more.split_whitespace()).args(play.operations).start()?)
            }
        }
    }

    /// Waits until `serving` listens; `ibv_rc_pingpong` does not say when it does.
    fn wait_listening(self, serving: &mut Job, port: u16) -> Result<(), Failure> {
        match self {
            Self::Kernel(guest) => Ok(guest.wait_listening(port)?),
            Self::Urxe(_) => Ok(serving.wait_for("listening", START_LIMIT)?),
        }
    }
}

/// `urxe-peer` in one of its roles.
fn urxe_peer(lab: &Lab, address: IpAddr, port: u16, server: Option<IpAddr>) -> Result<HostCommand, Failure> {
    let program = lab.install(Path::new(env!("CARGO_BIN_EXE_urxe-peer")))?;
    let command =
        lab.unprivileged(program).args(["--address", &address.to_string(), "-p", &port.to_string()]);
    Ok(match server {
        None => command.arg("-l"),
        Some(server) => command.args(["-c", &server.to_string()]),
    })
}
