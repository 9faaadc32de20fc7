//! The two ends of a test: a kernel's `ibv_*_pingpong` and `peer`, or `urxe pingpong` and
//! `urxe-peer` as an unprivileged user.

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
/// The port on which a guest receives a file, and the time limit of a copy.
const COPY_PORT: u16 = 9099;
const COPY_LIMIT: Duration = Duration::from_secs(180);

/// The family of addresses, and so of GIDs, of the RoCE packets.
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

/// The service of a ping-pong, as in both programs' names and options.
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

/// How long the ends wait for an acknowledgement before they retransmit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryTimeout {
    /// 4 s: a retry then has a cause (`tests/kernel/guest/patient.c` has the reason).
    Long,
    /// 67 ms, as in `ibv_rc_pingpong`, and less in urxe, by the measured round trip: for links with
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

/// Returns server and client: urxe serves a kernel of this series, or is its client.
pub fn roles(testbed: &Testbed, series: Series, serves: bool) -> (Node<'_>, Node<'_>) {
    let (urxe, kernel) = (Node::Urxe(testbed), Node::Kernel(testbed.guest(series)));
    if serves { (urxe, kernel) } else { (kernel, urxe) }
}

/// Returns a command of `urxe` as an unprivileged user, with its device on this address.
pub fn urxe(testbed: &Testbed, address: IpAddr) -> HostCommand {
    testbed.unprivileged(testbed.installed("urxe")).env("URXE_DEVICES", format!("rxe0={address}"))
}

/// One run of a ping-pong of ibverbs-utils.
#[derive(Debug, Clone, Copy)]
pub struct Pingpong {
    pub transport: Transport,
    pub family: Family,
    pub size: u32,
    pub count: u32,
    pub mtu: u16,
    pub retry_timeout: RetryTimeout,
    /// The number of queue pairs on one shared receive queue, as in `ibv_srq_pingpong`. `count` is
    /// the number of messages of all together.
    pub shared: Option<u32>,
}

/// One run of `peer`: each of these operations, `count` times.
#[derive(Debug, Clone, Copy)]
pub struct OperationRun {
    pub family: Family,
    pub operations: &'static [&'static str],
    pub size: u32,
    pub count: u32,
    pub mtu: u16,
    pub retry_timeout: RetryTimeout,
    /// Further options of `peer`: `-I`, `-S 4`.
    pub more: &'static str,
}

impl Pingpong {
    /// Creates a run of 20 messages in each direction.
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

    /// Creates a run of `count` messages in each direction through `qps` queue pairs on one shared
    /// receive queue. An end that has all its messages ends while others are under way, so the
    /// packet counts may differ. A kernel retransmits to that end without limit (for `rdma_rxe`,
    /// seven retries are endless). For a hundred queue pairs, each after 67 ms, an emulated
    /// processor cannot send that much, and its program never gets to end. So the kernel's end uses
    /// the long timeout here.
    pub fn shared(family: Family, size: u32, qps: u32, count: u32) -> Self {
        let (retry_timeout, shared) = (RetryTimeout::Usual, Some(qps));
        Self { count, retry_timeout, shared, ..Self::new(family, size, 1024) }
    }

    /// Runs the ping-pong, on a clean link if the timeout is [`RetryTimeout::Long`].
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

    /// Runs the ping-pong once. urxe's end verifies each received message. A kernel's end verifies
    /// one byte of each page of the last message, as a server only. Returns the counters of urxe's
    /// devices.
    fn once(
        &self,
        testbed: &Testbed,
        server: Node<'_>,
        client: Node<'_>,
    ) -> Result<Vec<Counters>, Failure> {
        Ok(self.open(testbed, server, client)?.start()?.finish()?.counters)
    }

    /// Starts the server. Its device is open when it listens.
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

    /// Checks the output of an end that exited with status 0.
    fn check(&self, node: Node<'_>, output: String) -> Result<Option<Counters>, Failure> {
        match node {
            // ibv_rc_pingpong prints this and exits with status 0.
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
        // The TCP server of ibv_rc_pingpong listens on IPv4 only, for all GIDs.
        let family =
            if matches!(self.server, Node::Kernel(_)) { Family::V4 } else { self.run.family };
        let host = self.server.address(family);
        let playing = self.client.pingpong(&self.run, self.port, Some(host))?;
        Ok(Running { opened: self, playing })
    }
}

/// A run under way.
pub struct Running<'a> {
    opened: Opened<'a>,
    playing: Job,
}

/// The result of a run.
pub struct Ended {
    /// The counters of urxe's devices.
    pub counters: Vec<Counters>,
    /// The outputs of urxe's ends.
    pub output: String,
}

impl Running<'_> {
    /// Waits for both ends.
    pub fn finish(self) -> Result<Ended, Failure> {
        let Self { opened: Opened { run, server, client, serving, .. }, playing } = self;
        let outcome = playing.finish(END_LIMIT)?.ok();
        // If the client failed, its server waits; dropping the job kills the server.
        let outputs = [(client, outcome?), (server, serving.finish(END_LIMIT)?.ok()?)];
        let mut ended = Ended { counters: Vec::new(), output: String::new() };
        for (node, output) in outputs {
            if matches!(node, Node::Urxe(_)) {
                ended.output.push_str(&output);
            }
            ended.counters.extend(run.check(node, output)?);
        }
        Ok(ended)
    }
}

/// The fields of the object of `urxe pingpong --json` that the tests use.
struct Summary {
    verified: u32,
    counters: Counters,
}

impl Summary {
    /// Parses the object behind the other output of the program.
    fn find(output: &str) -> Option<Self> {
        let object: serde_json::Value = serde_json::from_str(&output[output.find('{')?..]).ok()?;
        let verified = u32::try_from(object.get("verified")?.as_u64()?).ok()?;
        let counters = serde_json::from_value(object.get("counters")?.clone()).ok()?;
        Some(Self { verified, counters: Counters::new(counters)? })
    }
}

impl OperationRun {
    /// Creates a run of 20 messages of each operation.
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

    /// Runs the operations, and expects the client to report this failure. `pair` is server and
    /// client.
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

    /// Runs the operations, on a clean link if the timeout is [`RetryTimeout::Long`].
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

    /// Runs the operations once. Both ends verify every byte. Returns the counters of urxe's
    /// devices.
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
                // Datagrams have no path MTU option.
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
                    // The first message must be that of ibv_rc_pingpong with -c.
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

    fn peer(
        self,
        operation_run: &OperationRun,
        port: u16,
        server: Option<IpAddr>,
    ) -> Result<Job, Failure> {
        let OperationRun { size, count, mtu, more, .. } = operation_run;
        let timeout = match operation_run.retry_timeout {
            RetryTimeout::Long => 20,
            RetryTimeout::Usual => 14,
        };
        let role = match server {
            None => "-l".to_owned(),
            Some(server) => {
                let operations = operation_run.operations.join(" ");
                format!("-c {server} -s {size} -n {count} -m {mtu} {more} {operations}")
            }
        };
        match self {
            Self::Kernel(guest) => {
                let gid = guest.gid_index(self.address(operation_run.family))?;
                Ok(guest.start(&format!("peer -g {gid} -p {port} -t {timeout} {role}"))?)
            }
            Self::Urxe(testbed) => {
                let patient = if operation_run.retry_timeout == RetryTimeout::Long {
                    "--patient"
                } else {
                    ""
                };
                let address = self.address(operation_run.family);
                let words = format!("--address {address} -p {port} -t {timeout} {patient} {role}");
                Ok(testbed.unprivileged(testbed.installed("urxe-peer")).words(&words).start()?)
            }
        }
    }

    /// Waits until `serving` listens, which `ibv_rc_pingpong` does not report.
    fn wait_listening(self, serving: &mut Job, port: u16) -> Result<(), Failure> {
        match self {
            Self::Kernel(guest) => Ok(guest.wait_listening(port)?),
            Self::Urxe(_) => Ok(serving.wait_for("listening", START_LIMIT)?),
        }
    }
}

/// Copies a file of this machine to `folder` in the guest under its own name. The guest shares no
/// disk with the machine.
///
/// # Errors
/// [`Failure`] if the file cannot be read here, or has not arrived completely.
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
