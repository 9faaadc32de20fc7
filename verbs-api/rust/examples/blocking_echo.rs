//! An echo server and a client, two processes, whose calls block.
//!
//! ```text
//! cargo run --release -p urxe --example blocking_echo -- server 127.0.0.1:7471
//! cargo run --release -p urxe --example blocking_echo -- client 127.0.0.1:7471
//! ```
//!
//! Without configuration both use the device on 127.0.0.1. On two hosts, `urxe link add rxe0 eth0`
//! configures one on each, and ADDR is the address of the server.
//!
//! The server has a thread for each client. Both ends post their receives before the connection is
//! established, so each message finds a receive.

use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use urxe::cm::{self, ConnectRequest, Connection, Listener, Options};
use urxe::{
    Access, Completion, CompletionQueue, MemoryRegion, RecvRequest, SendRequest, WaitError,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const MESSAGES: u32 = 1000;
/// The maximum length of a message in bytes.
const LONGEST: usize = 1024;
/// The receives of the server for each client.
const RECEIVES: usize = 16;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

/// Returns a message, whose length and bytes follow from its number.
fn message(number: u32) -> Vec<u8> {
    let len = number as usize * 31 % LONGEST;
    (0..len).map(|at| ((at as u32).wrapping_mul(number | 1) >> 3) as u8).collect()
}

/// Returns the receive into the part `slot` of the memory. Its completion has the number as
/// `wr_id`.
fn receive(memory: &MemoryRegion, slot: u64) -> Result<RecvRequest<'_>> {
    let start = slot as usize * LONGEST;
    Ok(RecvRequest::new(memory.slice(start..start + LONGEST)?).wr_id(slot))
}

/// Returns the next completion, or `None` if the client has disconnected or died.
fn next(cq: &CompletionQueue, connection: &Connection) -> Result<Option<Completion>> {
    match cq.wait_one(None) {
        Ok(done) => Ok(Some(done)),
        Err(WaitError::Failed(_)) if connection.is_disconnected() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns each message of a client until it disconnects. Returns the number of messages.
fn serve(request: ConnectRequest) -> Result<u32> {
    let pending = request.prepare(&Options::new())?;
    let memory = pending.pd().allocate(RECEIVES * LONGEST, Access::LOCAL_WRITE)?;
    for slot in 0..RECEIVES as u64 {
        pending.qp().post_recv(&receive(&memory, slot)?)?;
    }
    let connection = pending.establish()?;
    let mut echoes = 0;
    while let Some(received) = next(connection.recv_cq(), &connection)? {
        let start = received.wr_id as usize * LONGEST;
        let echo = memory.slice(start..start + received.byte_len as usize)?;
        connection.qp().post_send(&SendRequest::send(echo).signaled())?;
        // The memory belongs to the echo until the client has acknowledged it.
        let Some(_sent) = next(connection.send_cq(), &connection)? else { break };
        connection.qp().post_recv(&receive(&memory, received.wr_id)?)?;
        echoes += 1;
    }
    Ok(echoes)
}

/// Serves each client in a thread of its own, until the process is killed.
fn server(addr: SocketAddr) -> Result<()> {
    let listener = Listener::bind(addr)?;
    println!("listening on {}", listener.local_addr());
    for request in listener.incoming() {
        let request = request?;
        let peer = request.peer_addr();
        thread::spawn(move || match serve(request) {
            Ok(echoes) => println!("{peer} is gone after {echoes} messages"),
            Err(error) => eprintln!("{peer}: {error}"),
        });
    }
    Ok(())
}

fn client(addr: SocketAddr) -> Result<()> {
    let pending = cm::prepare(addr, &Options::new().timeout(Duration::from_secs(5)))?;
    // The first part is for echoes, the second for messages.
    let memory = pending.pd().allocate(2 * LONGEST, Access::LOCAL_WRITE)?;
    pending.qp().post_recv(&receive(&memory, 0)?)?;
    let connection = pending.establish()?;
    for number in 0..MESSAGES {
        let message = message(number);
        memory.write(LONGEST, &message)?;
        let data = memory.slice(LONGEST..LONGEST + message.len())?;
        connection.qp().post_send(&SendRequest::send(data).signaled())?;
        let _sent = connection.send_cq().wait_one(TIMEOUT)?;
        let echo = connection.recv_cq().wait_one(TIMEOUT)?;
        if memory.read_vec(0, echo.byte_len as usize)? != message {
            return Err(format!("the echo of message {number} is wrong").into());
        }
        connection.qp().post_recv(&receive(&memory, 0)?)?;
    }
    connection.close().wait(TIMEOUT)?;
    println!("{MESSAGES} echoes of {addr}");
    Ok(())
}

pub(crate) fn run(args: &[&str]) -> Result<()> {
    match args {
        ["server", addr] => server(addr.parse()?),
        ["client", addr] => client(addr.parse()?),
        _ => Err("usage: blocking_echo server ADDR:PORT, or blocking_echo client ADDR:PORT".into()),
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}
