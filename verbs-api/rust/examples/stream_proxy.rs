//! A proxy that carries TCP connections over RDMA, two processes.
//!
//! ```text
//!   TCP client ──TCP──> client ──RdmaStream──> server ──TCP──> TCP server
//! ```
//!
//! These commands carry port 8080 of this host to a web server on port 80:
//!
//! ```text
//! cargo run --release -p urxe --example stream_proxy -- server 127.0.0.1:7471 127.0.0.1:80
//! cargo run --release -p urxe --example stream_proxy -- client 127.0.0.1:8080 127.0.0.1:7471
//! ```
//!
//! Each end of a connection is passed on as what it is:
//!
//! | one side | the other side |
//! |---|---|
//! | ends its data, and still reads | the same |
//! | TCP reset | [`RdmaStream::abort`]: the peer reads `StreamError::Reset` |
//! | any `StreamError`: a reset, a killed process, a vanished host | TCP reset |
//!
//! The kernel reports a TCP reset to one call. If the TCP program writes at that time, its write
//! fails, and a later read returns the end of the stream.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use urxe::stream::{RdmaListener, RdmaStream};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The interval of checks whether the host of the peer is there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Relays until both directions have ended. Returns the number of bytes to RDMA and to TCP.
async fn relay(mut tcp: TcpStream, mut rdma: RdmaStream) -> io::Result<(u64, u64)> {
    let keep_alive = rdma.keep_alive();
    tokio::spawn(async move {
        while keep_alive.send() {
            tokio::time::sleep(KEEP_ALIVE).await;
        }
    });
    // Shuts one side down when the other one has ended.
    let relayed = copy_bidirectional(&mut tcp, &mut rdma).await;
    if relayed.is_err() {
        // The bytes are incomplete. An orderly end would hide that from both programs.
        rdma.abort();
        tcp.set_zero_linger()?;
    }
    relayed
}

/// Relays, and reports how the connection of `peer` ended.
async fn relay_and_report(peer: SocketAddr, tcp: TcpStream, rdma: RdmaStream) {
    match relay(tcp, rdma).await {
        Ok((to_rdma, to_tcp)) => println!("{peer}: {to_rdma} bytes to RDMA, {to_tcp} to TCP"),
        Err(error) => eprintln!("{peer}: {error}"),
    }
}

/// Accepts RDMA streams at `listen`, and connects to the TCP server `to`.
async fn server(listen: SocketAddr, to: SocketAddr) -> Result<Infallible> {
    let listener = RdmaListener::bind(listen)?;
    println!("listening on {}", listener.local_addr());
    loop {
        let (rdma, peer) = listener.accept().await?;
        tokio::spawn(async move {
            match TcpStream::connect(to).await {
                Ok(tcp) => relay_and_report(peer, tcp, rdma).await,
                Err(error) => {
                    eprintln!("{peer}: cannot connect to {to}: {error}");
                    rdma.abort();
                }
            }
        });
    }
}

/// Accepts TCP connections at `listen`, and connects to the proxy `to` over RDMA.
async fn client(listen: SocketAddr, to: SocketAddr) -> Result<Infallible> {
    let listener = TcpListener::bind(listen).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (tcp, peer) = listener.accept().await?;
        tokio::spawn(async move {
            match RdmaStream::builder().timeout(CONNECT_TIMEOUT).connect(to).await {
                Ok(rdma) => relay_and_report(peer, tcp, rdma).await,
                Err(error) => {
                    eprintln!("{peer}: cannot connect to {to}: {error}");
                    if let Err(error) = tcp.set_zero_linger() {
                        eprintln!("{peer}: {error}");
                    }
                }
            }
        });
    }
}

pub(crate) fn run(args: &[&str]) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match args {
        ["server", listen, to] => runtime.block_on(server(listen.parse()?, to.parse()?))?,
        ["client", listen, to] => runtime.block_on(client(listen.parse()?, to.parse()?))?,
        _ => {
            return Err("usage: stream_proxy server RDMA_ADDR:PORT TCP_ADDR:PORT, \
                        or stream_proxy client TCP_ADDR:PORT RDMA_ADDR:PORT"
                .into());
        }
    };
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}
