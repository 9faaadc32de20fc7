//! A client and a server that connect by address and port, tested over a bad network in virtual
//! time.
//!
//! The server accepts clients that know its version and rejects others. The functions `serve` and
//! `ask` use no type of the simulation, so a program runs them over UDP as well.
//! `SEED=3 cargo run --example cm_simulation` replays one run.

use std::error::Error;
use std::net::SocketAddr;

use urxe::cm::{self, ConnectError, ConnectionEvent, Listener, Options};
use urxe::sim::{Fabric, LinkFaults, Probability};
use urxe::{Access, Data, RecvRequest, SendRequest};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const VERSION: &[u8] = b"version 2";

/// Serves all clients until the task is dropped. Answers a message by its length.
async fn serve(listener: &Listener) -> Result<()> {
    loop {
        let request = listener.next().await?;
        if !request.peer_private_data().starts_with(VERSION) {
            request.reject(VERSION)?;
            continue;
        }
        let pending = request.prepare(&Options::new())?;
        let inbox = pending.pd().allocate(64, Access::LOCAL_WRITE)?;
        pending.qp().post_recv(&RecvRequest::new(inbox.slice(..)?))?;
        let connection = pending.await?;
        let message = connection.recv_cq().next().await?;
        let answer = message.byte_len.to_be_bytes();
        connection.qp().post_send(&SendRequest::send(Data::inline(&answer)))?;
        while connection.events().next().await? != ConnectionEvent::Disconnected {}
    }
}

/// Connects, sends a message, and returns the answer.
async fn ask(to: SocketAddr, options: &Options, message: &[u8]) -> Result<u32> {
    let pending = cm::prepare(to, options)?;
    let inbox = pending.pd().allocate(64, Access::LOCAL_WRITE)?;
    pending.qp().post_recv(&RecvRequest::new(inbox.slice(..)?))?;
    let connection = pending.await?;
    connection.qp().post_send(&SendRequest::send(Data::inline(message)))?;
    let _answer = connection.recv_cq().next().await?;
    let answer = inbox.read_vec(0, 4)?;
    connection.close().await?;
    Ok(u32::from_be_bytes(answer.try_into().map_err(|_| "a short answer")?))
}

async fn clients(to: SocketAddr, options: &Options) -> Result<()> {
    let right = options.clone().private_data(VERSION);
    for len in [5, 8, 13] {
        assert_eq!(ask(to, &right, &vec![7; len as usize]).await?, len);
    }
    let wrong = options.clone().private_data(b"version 1");
    let refused = ask(to, &wrong, b"hello").await.unwrap_err();
    match refused.downcast_ref::<ConnectError>() {
        Some(ConnectError::Rejected { peer_private_data, .. }) => {
            assert!(peer_private_data.starts_with(VERSION));
        }
        _ => return Err(refused),
    }
    Ok(())
}

/// Performs one run and returns the hash of all events in the network.
fn run(seed: u64) -> Result<u64> {
    let fabric = Fabric::new(seed);
    fabric.set_faults(LinkFaults {
        loss: Probability::from_percent(5),
        duplicate: Probability::from_percent(5),
        reorder: Probability::from_percent(5),
        ..LinkFaults::default()
    });
    let (server, client) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
    let listener = Listener::builder().device(&server).bind("10.0.0.1:7471")?;
    let (to, options) = (listener.local_addr(), Options::new().device(&client));
    // The tasks of one thread. The server ends with the clients.
    smol::block_on(smol::future::or(clients(to, &options), serve(&listener)))?;
    let (sent, lost) = (fabric.counters().sent, fabric.counters().lost);
    println!("seed {seed}: {} of virtual time, {sent} packets, {lost} lost", fabric.now());
    Ok(fabric.trace_hash())
}

pub(crate) fn main() -> Result<()> {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse()?],
        Err(_) => (1..=5).collect(),
    };
    for seed in seeds {
        let first = run(seed).map_err(|error| format!("seed {seed}: {error}"))?;
        assert_eq!(first, run(seed)?, "seed {seed} replays");
    }
    Ok(())
}
