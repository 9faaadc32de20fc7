//! Runs the examples that are two processes, each with a device on an address of its own.
//!
//! A process is this test program again: the test `process` runs an example with the arguments of
//! an environment variable.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Result, blocking_echo, rpc, stream_proxy};

const ARGUMENTS: &str = "URXE_TEST_EXAMPLE";

#[test]
#[ignore = "other tests start it"]
fn process() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let arguments: Vec<&str> = arguments.split(' ').collect();
    println!();
    match arguments.split_first().unwrap() {
        (&"blocking_echo", rest) => blocking_echo::run(rest).unwrap(),
        (&"rpc", rest) => rpc::run(rest).unwrap(),
        (&"stream_proxy", rest) => stream_proxy::run(rest).unwrap(),
        other => panic!("{other:?}"),
    }
}

struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Process {
    fn start(device: &str, arguments: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::process", "--ignored", "--nocapture"])
            .env(ARGUMENTS, arguments)
            .env("URXE_DEVICES", format!("rxe0={device}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Returns the rest of the next line that begins with `start`.
    fn line(&mut self, start: &str) -> String {
        let found = self.lines.find_map(|line| Some(line.unwrap().strip_prefix(start)?.to_owned()));
        found.unwrap_or_else(|| panic!("the process ended without {start:?}"))
    }

    fn listening(&mut self) -> SocketAddr {
        self.line("listening on ").parse().unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A test may have killed it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn blocking_echo_serves_several_clients() {
    let mut server = Process::start("127.49.23.1", "blocking_echo server 127.49.23.1:0");
    let to = server.listening();
    let mut clients = [2, 3].map(|host| {
        Process::start(&format!("127.49.23.{host}"), &format!("blocking_echo client {to}"))
    });
    for client in &mut clients {
        assert_eq!(client.line("1000 echoes of "), to.to_string());
        assert!(client.child.wait().unwrap().success());
    }
    for _ in &clients {
        assert!(server.line("127.49.23.").ends_with(" is gone after 1000 messages"));
    }
}

#[test]
fn rpc_answers_several_clients() {
    let mut server = Process::start("127.49.18.1", "rpc server 127.49.18.1:0");
    let to = server.listening();
    let mut clients = [2, 3]
        .map(|host| Process::start(&format!("127.49.18.{host}"), &format!("rpc client {to}")));
    for client in &mut clients {
        assert_eq!(client.line("1000 answers of "), format!("{to}, each to its own call"));
        assert!(client.child.wait().unwrap().success());
    }
    for _ in &clients {
        assert!(server.line("127.49.18.").ends_with(" is gone after 1000 calls"));
    }
}

/// Both processes of the proxy, and the address at which it accepts TCP connections.
fn proxy(net: u8, to: SocketAddr) -> ([Process; 2], SocketAddr) {
    let host = |host| format!("127.49.{net}.{host}");
    let mut server = Process::start(&host(1), &format!("stream_proxy server {}:0 {to}", host(1)));
    let arguments = format!("stream_proxy client 127.0.0.1:0 {}", server.listening());
    let mut client = Process::start(&host(2), &arguments);
    let at = client.listening();
    ([server, client], at)
}

/// A TCP server whose connections go through a proxy.
struct Proxied {
    listener: TcpListener,
    processes: [Process; 2],
    at: SocketAddr,
}

impl Proxied {
    async fn start(net: u8) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (processes, at) = proxy(net, listener.local_addr()?);
        Ok(Self { listener, processes, at })
    }

    /// Returns both ends of a connection, the connecting end first. Each has sent a byte.
    async fn connect(&self) -> Result<[TcpStream; 2]> {
        let mut client = TcpStream::connect(self.at).await?;
        client.write_all(b"c").await?;
        let (mut server, _) = self.listener.accept().await?;
        server.write_all(b"s").await?;
        let mut byte = [0];
        client.read_exact(&mut byte).await?;
        assert_eq!(&byte, b"s");
        server.read_exact(&mut byte).await?;
        assert_eq!(&byte, b"c");
        Ok([client, server])
    }
}

fn in_tasks(test: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?
        .block_on(async { tokio::time::timeout(std::time::Duration::from_secs(60), test).await? })
}

async fn read_to_end(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn bytes(len: u32, factor: u32) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(factor) >> 9) as u8).collect()
}

#[test]
fn the_proxy_passes_each_half_close_on() -> Result<()> {
    in_tasks(async {
        let proxied = Proxied::start(19).await?;
        let (question, answer) = (bytes(1 << 20, 7_919), bytes(2 << 20, 104_729));
        for end in 0..2 {
            let mut ends = proxied.connect().await?;
            ends.rotate_left(end);
            let [mut first, mut second] = ends;
            // The end that asks shuts down first. The other one answers after it has read the end.
            let asking = async {
                first.write_all(&question).await?;
                first.shutdown().await?;
                read_to_end(&mut first).await
            };
            let answering = async {
                let read = read_to_end(&mut second).await?;
                second.write_all(&answer).await?;
                second.shutdown().await?;
                std::io::Result::Ok(read)
            };
            let (asked, answered) = smol::future::try_zip(asking, answering).await?;
            assert!(asked == answer && answered == question, "the bytes differ");
        }
        Ok(())
    })
}

#[test]
fn the_proxy_passes_a_reset_on_as_a_reset() -> Result<()> {
    in_tasks(async {
        let proxied = Proxied::start(20).await?;
        for end in 0..2 {
            let mut ends = proxied.connect().await?;
            ends.rotate_left(end);
            let [reset, mut other] = ends;
            reset.set_zero_linger()?;
            drop(reset);
            let error = other.read(&mut [0]).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "end {end}");
        }
        Ok(())
    })
}

#[test]
fn a_killed_proxy_resets_both_connections() -> Result<()> {
    in_tasks(async {
        let mut proxied = Proxied::start(21).await?;
        let [mut client, _server] = proxied.connect().await?;
        proxied.processes[0].kill();
        let error = client.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        Ok(())
    })
}

#[test]
fn the_proxy_resets_a_connection_that_it_cannot_carry() -> Result<()> {
    in_tasks(async {
        let Proxied { listener, processes: _processes, at } = Proxied::start(22).await?;
        // No program listens at the target any more.
        drop(listener);
        let mut client = TcpStream::connect(at).await?;
        let error = client.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        Ok(())
    })
}
