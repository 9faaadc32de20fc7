//! An `RdmaStream` in place of rdma-core's `rstream`: the same order of transfers, with every byte
//! verified.
//!
//! ```sh
//! urxe-stream -b 10.77.0.1:7471 -S 1000000 -C 10 -I 2     # rstream -T v -S … -s 10.77.0.1 -p 7471
//! urxe-stream -s 10.77.0.1:7471 -S 1000000 -C 10 -I 2     # rstream -T v -S … -b 10.77.0.1 -p 7471
//! ```
//!
//! A pair begins with 16 bytes in each direction. Then the client sends `C` blocks of `S` bytes,
//! and receives as many, `I` times. The bytes of a direction count from 0 (rdma-core,
//! `librdmacm/examples/rstream.c` and `common.c`).

use std::error::Error;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use urxe::stream::{RdmaListener, RdmaStream};

/// The bytes that both ends exchange first.
const SYNC: usize = 16;
const LIMIT: Duration = Duration::from_secs(50);
/// The time between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);

/// Runs the transfers of rstream with one peer.
#[derive(Debug, Parser)]
struct Arguments {
    /// Serve one client on this address and port
    #[arg(short, value_name = "ADDRESS:PORT", conflicts_with = "server")]
    bind: Option<SocketAddr>,
    /// Connect to this address and port
    #[arg(short, value_name = "ADDRESS:PORT", required_unless_present = "bind")]
    server: Option<SocketAddr>,
    /// Bytes of a block
    #[arg(short = 'S', default_value_t = 3000)]
    size: usize,
    /// Blocks of a direction
    #[arg(short = 'C', default_value_t = 60)]
    count: usize,
    /// Times that both directions alternate
    #[arg(short = 'I', default_value_t = 3)]
    iterations: usize,
}

/// A stream, and the next byte of each direction.
struct Peer {
    stream: RdmaStream,
    sent: u8,
    received: u8,
}

impl Peer {
    async fn send(&mut self, len: usize) -> Result<(), Box<dyn Error>> {
        let block = counting(&mut self.sent, len);
        Ok(self.stream.write_all(&block).await?)
    }

    async fn receive(&mut self, len: usize) -> Result<(), Box<dyn Error>> {
        let mut block = vec![0; len];
        self.stream.read_exact(&mut block).await?;
        match block == counting(&mut self.received, len) {
            true => Ok(()),
            false => Err("a block has wrong bytes".into()),
        }
    }

    /// Ends this side, and reads that of the peer to its end.
    async fn end(&mut self) -> Result<(), Box<dyn Error>> {
        self.stream.shutdown().await?;
        match self.stream.read(&mut [0]).await? {
            0 => Ok(()),
            _ => Err("the peer sent more than expected".into()),
        }
    }
}

fn counting(next: &mut u8, len: usize) -> Vec<u8> {
    let start = *next;
    *next = start.wrapping_add(len as u8);
    (0..len).map(|index| start.wrapping_add(index as u8)).collect()
}

/// Connects as soon as the server listens.
async fn connect(addr: SocketAddr) -> std::io::Result<RdmaStream> {
    loop {
        match RdmaStream::connect(addr).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => sleep(AGAIN).await,
            connected => return connected,
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments { size, count, iterations, .. } = arguments;
    let stream = match (arguments.bind, arguments.server) {
        (Some(addr), _) => {
            let listener = RdmaListener::bind(addr)?;
            println!("listening");
            listener.accept().await?.0
        }
        (None, Some(addr)) => connect(addr).await?,
        (None, None) => return Err("-b or -s is required".into()),
    };
    let is_client = arguments.bind.is_none();
    let mut peer = Peer { stream, sent: 0, received: 0 };
    let transfers = std::iter::repeat_n((size, count), iterations);
    for (size, count) in std::iter::once((SYNC, 1)).chain(transfers) {
        for sends in [is_client, !is_client] {
            for _ in 0..count {
                if sends { peer.send(size).await? } else { peer.receive(size).await? }
            }
        }
    }
    peer.end().await
}

fn main() -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(async {
            let limited = timeout(LIMIT, run(Arguments::parse())).await;
            limited.unwrap_or_else(|late| Err(late.into()))
        }),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => {
            println!("every byte is as expected");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("urxe-stream: {error}");
            ExitCode::FAILURE
        }
    }
}
