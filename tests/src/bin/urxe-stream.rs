//! An `RdmaStream` in place of rdma-core's `rstream` or `riostream`: the same order of transfers,
//! with every byte verified.
//!
//! ```sh
//! urxe-stream -b 10.77.0.1:7471 -S 1000000 -C 10 -I 2     # rstream -T v -S … -s 10.77.0.1 -p 7471
//! urxe-stream -s 10.77.0.1:7471 -S 1000000 -C 10 -I 2     # rstream -T v -S … -b 10.77.0.1 -p 7471
//! urxe-stream -s 10.77.0.1:7471 --mapped                  # riostream -T v … -b 10.77.0.1 -p 7471
//! ```
//!
//! A pair begins with 16 bytes in each direction. Then the client sends `C` blocks of `S` bytes,
//! and receives as many, `I` times. The bytes of a direction count from 0.
//!
//! With `--mapped`, each end writes its blocks into memory of the other, all to the same place. The
//! last byte of a turn's last block is a marker, which counts the turns of both ends. The receiver
//! polls the marker, and verifies that block.
//!
//! Sources: rdma-core, `librdmacm/examples/rstream.c`, `riostream.c` and `common.c`.

use std::error::Error;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use urxe::Access;
use urxe::stream::{IoMapping, RdmaStream};

/// The bytes that both ends exchange first.
const SYNC: usize = 16;
const LIMIT: Duration = Duration::from_secs(50);
/// The time between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);

/// The time between two looks at a marker.
const LOOK: Duration = Duration::from_micros(100);

/// Runs the transfers of rstream or riostream with one peer.
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
    /// Write into mapped memory, as riostream does
    #[arg(long)]
    mapped: bool,
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

    /// Writes `count` blocks to the memory of the peer. The last one has the marker.
    async fn write(&mut self, len: usize, count: usize, marker: u8) -> Result<(), Box<dyn Error>> {
        // The former marker is the last byte of the others.
        let mut block = vec![marker.wrapping_sub(1); len];
        for _ in 1..count {
            self.stream.write_at(0, &block).await?;
        }
        block = counting(&mut self.sent, len - 1);
        block.push(marker);
        Ok(self.stream.write_at(0, &block).await?)
    }

    /// Waits for the marker, and verifies the block.
    async fn await_block(&mut self, of: &IoMapping, marker: u8) -> Result<(), Box<dyn Error>> {
        let len = of.len() - 1;
        while of.load_u8(len)? != marker {
            sleep(LOOK).await;
        }
        match of.read_vec(0, len)? == counting(&mut self.received, len) {
            true => Ok(()),
            false => Err("a mapped block has wrong bytes".into()),
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
        match RdmaStream::builder().peer_mappings(1).connect(addr).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => sleep(AGAIN).await,
            connected => return connected,
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments { size, count, iterations, mapped, .. } = arguments;
    let stream = match (arguments.bind, arguments.server) {
        (Some(addr), _) => {
            let listener = RdmaStream::builder().peer_mappings(1).bind(addr)?;
            println!("listening");
            listener.accept().await?.0
        }
        (None, Some(addr)) => connect(addr).await?,
        (None, None) => return Err("-b or -s is required".into()),
    };
    let is_client = arguments.bind.is_none();
    let mut peer = Peer { stream, sent: 0, received: 0 };
    if mapped {
        return run_mapped(&mut peer, is_client, (size, count, iterations)).await;
    }
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

/// Runs the transfers of riostream.
async fn run_mapped(
    peer: &mut Peer,
    is_client: bool,
    (size, count, iterations): (usize, usize, usize),
) -> Result<(), Box<dyn Error>> {
    let region = peer.stream.pd().allocate(size, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    // No turn has this marker for a long time.
    region.write(size - 1, &[u8::MAX])?;
    let mapping = peer.stream.map(region)?;
    let mut sync = [0; SYNC];
    if is_client {
        peer.stream.write_all(&sync).await?;
    }
    peer.stream.read_exact(&mut sync).await?;
    if !is_client {
        peer.stream.write_all(&sync).await?;
    }
    let mut marker = 0_u8;
    for _ in 0..iterations {
        for writes in [is_client, !is_client] {
            match writes {
                true => peer.write(size, count, marker).await?,
                false => peer.await_block(&mapping, marker).await?,
            }
            marker = marker.wrapping_add(1);
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
