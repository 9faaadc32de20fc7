//! The two ends of a test, whichever program plays them: a kernel's `ibv_*_pingpong` and `peer`, or
//! `urxe pingpong` and `urxe-peer`, unprivileged.

use std::{
    io::Write as _,
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use urxe_tests::kernel::{
    Counters, Error, Guest, HOST_V4, HOST_V6, HostCommand, Job, Series, Testbed,
};

use crate::{
    case::{Failure, must_contain},
    clean::on_clean_link,
};

const START_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(30);
/// Where a guest receives a file, and how long that may take.
const COPY_PORT: u16 = 9099;
const COPY_LIMIT: Duration = Duration::from_secs(180);

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

/// The service of a ping-pong, as both programs' names and options have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Rc,
    Uc,
    Ud,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
        }
    }
}

/// How long the ends wait for an acknowledgement before they send again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryTimeout {
    /// 4 s: a retry then has a cause (`tests/kernel/guest/patient.c` says why).
    Long,
    /// 67 ms, as `ibv_rc_pingpong` sets it, and urxe less, by what it measures: for links with
    /// faults.
    Usual,
}

/// An end of a test.
#[derive(Debug, Clone, Copy)]
pub enum Node<'a> {
    /// A guest's kernel.
    Kernel(&'a Guest),
    /// urxe, as an unprivileged user beside the guests.
    Urxe(&'a Testbed),
}

/// Server and client: urxe serves a kernel of this series, or is its client.
pub fn roles(testbed: &Testbed, series: Series, serves: bool) -> (Node<'_>, Node<'_>) {
    let (urxe, kernel) = (Node::Urxe(testbed), Node::Kernel(testbed.guest(series)));
    if serves { (urxe, kernel) } else { (kernel, urxe) }
}

/// `urxe` as an unprivileged user, with its device on this address.
pub fn urxe(testbed: &Testbed, address: IpAddr) -> HostCommand {
    testbed.unprivileged(testbed.installed("urxe")).env("URXE_DEVICES", format!("rxe0={address}"))
}

/// One run of the exchange of `ibv_rc_pingpong` and its like.
#[derive(Debug, Clone, Copy)]
pub struct Pingpong {
    pub transport: Transport,
    pub family: Family,
    pub size: u32,
    pub count: u32,
    pub mtu: u16,
    pub retry_timeout: RetryTimeout,
    /// So many queue pairs on one shared receive queue, as `ibv_srq_pingpong`; the messages are
    /// those of all together.
    pub shared: Option<u32>,
}

/// One run of `peer`: the operations named, each `count` times.
#[derive(Debug, Clone, Copy)]
pub struct OperationRun {
    pub family: Family,
    pub operations: &'static [&'static str],
    pub size: u32,
    pub count: u32,
    pub mtu: u16,
    pub retry_timeout: RetryTimeout,
    /// As `peer` takes them: `-I`, `-S 4`.
    pub more: &'static str,
}

impl Pingpong {
    /// 20 messages each way.
    pub fn new(family: Family, size: u32, mtu: u16) -> Self {
        let transport = Transport::Rc;
        Self {
            transport,
            family,
            size,
            count: 20,
            mtu,
            retry_timeout: RetryTimeout::Long,
            shared: None,
        }
    }

    /// `count` messages each way through `qps` queue pairs on one shared receive queue. An end that
    /// has seen its share goes while others are still under way, so the counters_during of packets need not
    /// check_all_received. What they send to it a kernel sends again for ever (for `rdma_rxe` seven retries
    /// have no end): of a hundred queue pairs, each 67 ms, that is more than an emulated processor
    /// can send, and its program never gets to see that it may go as well. So the kernel's are
    /// patient here, too.
    pub fn shared(family: Family, size: u32, qps: u32, count: u32) -> Self {
        let (retry_timeout, shared) = (RetryTimeout::Usual, Some(qps));
        Self { count, retry_timeout, shared, ..Self::new(family, size, 1024) }
    }

    /// Runs it, on a clean link unless the kernel's [`RetryTimeout`] is the usual.
    pub fn run(
        &self,
        testbed: &Testbed,
        server: Node<'_>,
        client: Node<'_>,
    ) -> Result<(), Failure> {
        match self.retry_timeout {
            RetryTimeout::Long => on_clean_link(testbed, || self.once(testbed, server, client)),
            RetryTimeout::Usual => self.once(testbed, server, client).map(drop),
        }
    }

    /// Runs it once. urxe's end verifies each message that it receives; a kernel's, as a server
    /// only, a byte of each page of the last one. The counters of urxe's devices.
    fn once(
        &self,
        testbed: &Testbed,
        server: Node<'_>,
        client: Node<'_>,
    ) -> Result<Vec<Counters>, Failure> {
        Ok(self.open(testbed, server, client)?.start()?.finish()?.counters)
    }

    /// Starts the server. When it listens, its device is open.
    pub fn open<'a>(
        &self,
        testbed: &Testbed,
        server: Node<'a>,
        client: Node<'a>,
    ) -> Result<Opened<'a>, Failure> {
        let port = testbed.port();
        let mut serving = server.pingpong(self, port, None)?;
        server.wait_listening(&mut serving, port)?;
        Ok(Opened { run: *self, server, client, port, serving })
    }

    /// What an end that ended with 0 has said.
    fn check(&self, node: Node<'_>, output: String) -> Result<Option<Counters>, Failure> {
        match node {
            // ibv_rc_pingpong says this and exits with 0.
            Node::Kernel(_) if output.contains("invalid data") => {
                Err(Failure::missing_output("ibv_rc_pingpong -c", output, "valid data"))
            }
            Node::Kernel(_) => Ok(None),
            Node::Urxe(_) => match Summary::find(&output) {
                Some(summary)
                    if summary.verified == self.count
                        || (self.shared.is_some() && summary.verified > self.count) =>
                {
                    Ok(Some(summary.counters))
                }
                _ => Err(Failure::missing_output(
                    "urxe pingpong",
                    output,
                    "that each message was verified",
                )),
            },
        }
    }
}

/// A run whose server listens.
pub struct Opened<'a> {
    run: Pingpong,
    server: Node<'a>,
    client: Node<'a>,
    port: u16,
    serving: Job,
}

impl<'a> Opened<'a> {
    /// Starts the client.
    pub fn start(self) -> Result<Running<'a>, Failure> {
        // The TCP server of ibv_rc_pingpong listens on IPv4 alone, whatever the GIDs are.
        let family =
            if matches!(self.server, Node::Kernel(_)) { Family::V4 } else { self.run.family };
        let host = self.server.address(family);
        let playing = self.client.pingpong(&self.run, self.port, Some(host))?;
        Ok(Running { opened: self, playing })
    }
}

/// A run on its way.
pub struct Running<'a> {
    opened: Opened<'a>,
    playing: Job,
}

/// What came of a run.
pub struct Ended {
    /// The counters of urxe's devices.
    pub counters: Vec<Counters>,
    /// What urxe's ends have said.
    pub said: String,
}

impl Running<'_> {
    /// Waits for both ends.
    pub fn finish(self) -> Result<Ended, Failure> {
        let Self { opened: Opened { run, server, client, serving, .. }, playing } = self;
        let outcome = playing.finish(END_LIMIT)?.ok();
        // A client that failed leaves its server waiting: dropping stops it.
        let outputs = [(client, outcome?), (server, serving.finish(END_LIMIT)?.ok()?)];
        let mut ended = Ended { counters: Vec::new(), said: String::new() };
        for (node, output) in outputs {
            if matches!(node, Node::Urxe(_)) {
                ended.said.push_str(&output);
            }
            ended.counters.extend(run.check(node, output)?);
        }
        Ok(ended)
    }
}

/// The object that `urxe pingpong --json` prints, as far as it is of interest here.
struct Summary {
    verified: u32,
    counters: Counters,
}

impl Summary {
    /// Finds it behind what is said while the program runs.
    fn find(output: &str) -> Option<Self> {
        let object: serde_json::Value = serde_json::from_str(&output[output.find('{')?..]).ok()?;
        let verified = u32::try_from(object.get("verified")?.as_u64()?).ok()?;
        let counters = serde_json::from_value(object.get("counters")?.clone()).ok()?;
        Some(Self { verified, counters: Counters::new(counters)? })
    }
}

impl OperationRun {
    /// 20 of each.
    pub fn new(family: Family, operations: &'static [&'static str], size: u32, mtu: u16) -> Self {
        Self {
            family,
            operations,
            size,
            count: 20,
            mtu,
            retry_timeout: RetryTimeout::Long,
            more: "",
        }
    }

    /// Runs it and expects the client to say that it failed, and why. Server and client are a pair.
    pub fn fails_with(
        &self,
        testbed: &Testbed,
        pair: (Node<'_>, Node<'_>),
        why: &str,
    ) -> Result<(), Failure> {
        let output = match self.once(testbed, pair.0, pair.1) {
            Err(Failure::Harness(Error::Status { output, .. })) => output,
            Err(failure) => return Err(failure),
            Ok(_) => "no error".to_owned(),
        };
        must_contain(&format!("{} {}", self.operations.join(" "), self.more), &output, why)
    }

    /// Runs it, on a clean link unless the kernel's [`RetryTimeout`] is the usual.
    pub fn run(
        &self,
        testbed: &Testbed,
        server: Node<'_>,
        client: Node<'_>,
    ) -> Result<(), Failure> {
        match self.retry_timeout {
            RetryTimeout::Long => on_clean_link(testbed, || self.once(testbed, server, client)),
            RetryTimeout::Usual => self.once(testbed, server, client).map(drop),
        }
    }

    /// Runs it once; both ends verify. The counters of urxe's devices.
    pub fn once(
        &self,
        testbed: &Testbed,
        server: Node<'_>,
        client: Node<'_>,
    ) -> Result<Vec<Counters>, Failure> {
        let port = testbed.port();
        let mut serving = server.peer(self, port, None)?;
        serving.wait_for("listening", START_LIMIT)?;
        let played =
            client.peer(self, port, Some(server.address(self.family)))?.finish(END_LIMIT)?;
        let command = played.command.clone();
        let output = played.ok()?;
        let served = serving.finish(END_LIMIT)?.ok()?;
        let wanted =
            self.operations.iter().map(|name| format!("OK {name} {} {}", self.size, self.count));
        for wanted in wanted {
            if !output.lines().any(|line| line == wanted) {
                return Err(Failure::missing_output(command, output, wanted));
            }
        }
        let of_urxe = [(client, output), (server, served)];
        let of_urxe = of_urxe.iter().filter(|(node, _)| matches!(node, Node::Urxe(_)));
        Ok(of_urxe.map(|(_, output)| Counters::of_urxe_peer(output)).collect::<Result<_, _>>()?)
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
        let Pingpong { transport, size, count, mtu, .. } = run;
        let transport = transport.name();
        match self {
            Self::Kernel(guest) => {
                let preload = match (run.retry_timeout, run.shared) {
                    (RetryTimeout::Long, _) => "LD_PRELOAD=/usr/lib/patient.so ",
                    (RetryTimeout::Usual, None) => "LD_PRELOAD=/usr/lib/lingering.so ",
                    (RetryTimeout::Usual, Some(_)) => {
                        "LD_PRELOAD=/usr/lib/patient.so:/usr/lib/lingering.so "
                    }
                };
                let gid = guest.gid_index(self.address(run.family))?;
                let host = server.map(|address| address.to_string()).unwrap_or_default();
                // Datagrams have no path MTU to agree on.
                let is_ud = run.transport == Transport::Ud;
                let mtu = if is_ud { String::new() } else { format!("-m {mtu}") };
                let options = format!("-d rxe0 -g {gid} -p {port} -s {size} -n {count} {mtu}");
                let program = match run.shared {
                    None => format!("ibv_{transport}_pingpong -c"),
                    Some(qps) => format!("ibv_srq_pingpong -q {qps}"),
                };
                Ok(guest.start(&format!("{preload}{program} {options} {host}"))?)
            }
            Self::Urxe(testbed) => {
                let role = match server {
                    None if run.shared.is_some() => "--listen".to_owned(),
                    // The first message must be as ibv_rc_pingpong makes it with -c.
                    None => "--listen --chk".to_owned(),
                    Some(server) => format!("--connect {server}"),
                };
                let shared = run.shared.map(|qps| format!("--srq {qps}")).unwrap_or_default();
                let patient =
                    if run.retry_timeout == RetryTimeout::Long { "--patient" } else { "" };
                let options = format!("-p {port} -s {size} -n {count} -m {mtu} {shared} {patient}");
                let words = format!("pingpong --transport {transport} --json {options} {role}");
                Ok(urxe(testbed, self.address(run.family)).words(&words).start()?)
            }
        }
    }

    fn peer(self, play: &OperationRun, port: u16, server: Option<IpAddr>) -> Result<Job, Failure> {
        let OperationRun { size, count, mtu, more, .. } = play;
        let timeout = match play.retry_timeout {
            RetryTimeout::Long => 20,
            RetryTimeout::Usual => 14,
        };
        let role = match server {
            None => "-l".to_owned(),
            Some(server) => {
                let operations = play.operations.join(" ");
                format!("-c {server} -s {size} -n {count} -m {mtu} {more} {operations}")
            }
        };
        match self {
            Self::Kernel(guest) => {
                let gid = guest.gid_index(self.address(play.family))?;
                Ok(guest.start(&format!("peer -g {gid} -p {port} -t {timeout} {role}"))?)
            }
            Self::Urxe(testbed) => {
                let patient =
                    if play.retry_timeout == RetryTimeout::Long { "--patient" } else { "" };
                let address = self.address(play.family);
                let words = format!("--address {address} -p {port} -t {timeout} {patient} {role}");
                Ok(testbed.unprivileged(testbed.installed("urxe-peer")).words(&words).start()?)
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

/// Copies a file of this machine to `folder` in the guest, which has no disk in common with it,
/// under its own name.
///
/// # Errors
/// [`Failure`]: it cannot be read here, or not all of it has arrived there.
pub fn copy_to_guest(guest: &Guest, file: &Path, folder: &str) -> Result<(), Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let io =
        |source| Error::Io { action: format!("copy {} into the guest", file.display()), source };
    let bytes = std::fs::read(file).map_err(io)?;
    let receiving = guest.start(&format!(
        "mkdir -p {folder} && cd {folder} && nc -l -p {COPY_PORT} >{name} && wc -c <{name}"
    ))?;
    guest.wait_listening(COPY_PORT)?;
    let mut to_guest = TcpStream::connect(SocketAddr::new(guest.v4(), COPY_PORT)).map_err(io)?;
    to_guest.write_all(&bytes).and_then(|()| to_guest.shutdown(Shutdown::Write)).map_err(io)?;
    let output = receiving.finish(COPY_LIMIT)?.ok()?;
    if output.trim() == bytes.len().to_string() {
        return Ok(());
    }
    Err(Failure::missing_output("nc", output, format!("{} bytes", bytes.len())))
}
