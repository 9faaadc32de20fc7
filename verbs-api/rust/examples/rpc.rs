//! An RPC server and a client, two processes.
//!
//! ```text
//! cargo run --release -p urxe --example rpc -- server 127.0.0.1:7471
//! cargo run --release -p urxe --example rpc -- client 127.0.0.1:7471
//! ```
//!
//! Without configuration both use the device on 127.0.0.1. On two hosts, `urxe link add rxe0 eth0`
//! configures one on each, and ADDR is the address of the server.
//!
//! Several tasks share the connection of the client. A request and its answer have the number of
//! the call as immediate data, so the server may answer in any order. Arguments and answers are
//! longer than inline data, so each task has a buffer of its own.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use urxe::aio::{AsyncConnection, AsyncQueuePair, OperationError, Received};
use urxe::cm::{ConnectRequest, Listener, Options};
use urxe::{Access, MemoryRegion};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CALLS: u32 = 1000;
/// The tasks of a client, each of which has one call outstanding.
const TASKS: u32 = 8;
/// The maximum length of an argument or an answer in bytes.
const LONGEST: usize = 1024;
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The procedure: sorts the bytes of its argument.
fn procedure(mut argument: Vec<u8>) -> Vec<u8> {
    argument.sort_unstable();
    argument
}

/// Returns the argument of a call, whose length and bytes follow from its number.
fn argument(call: u32) -> Vec<u8> {
    let len = call as usize * 31 % LONGEST;
    (0..len).map(|at| ((at as u32).wrapping_mul(call | 1) >> 3) as u8).collect()
}

/// Returns the number of the call.
fn number(message: &Received) -> Result<u32> {
    Ok(message.imm_data().ok_or("the message has no number")?)
}

/// Accepts a client, and answers its calls until it disconnects.
async fn serve(request: ConnectRequest) -> Result<u32> {
    // The client has at most `TASKS` calls outstanding, so each request finds a receive.
    let builder = AsyncQueuePair::builder().receives(TASKS, LONGEST);
    let connection = builder.accept(request, &Options::new()).await?;
    let mut calls = 0;
    loop {
        let request = match connection.recv().await {
            Ok(request) => request,
            Err(OperationError::Disconnected { .. }) => return Ok(calls),
            Err(error) => return Err(error.into()),
        };
        let (call, argument) = (number(&request)?, request.to_vec());
        // The receive is posted again before the client can send the next request.
        drop(request);
        let answer = connection.pd().share_bytes(&procedure(argument))?;
        connection.send_imm(answer, call).await?;
        calls += 1;
    }
}

/// Serves each client in a task of its own, until the process is killed.
async fn server(addr: SocketAddr) -> Result<()> {
    let listener = Listener::bind(addr)?;
    println!("listening on {}", listener.local_addr());
    loop {
        let request = listener.next().await?;
        let peer = request.peer_addr();
        tokio::spawn(async move {
            match serve(request).await {
                Ok(calls) => println!("{peer} is gone after {calls} calls"),
                Err(error) => eprintln!("{peer}: {error}"),
            }
        });
    }
}

struct Client {
    connection: AsyncConnection,
    next: AtomicU32,
    waiting: Mutex<HashMap<u32, oneshot::Sender<Vec<u8>>>>,
}

impl Client {
    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<u32, oneshot::Sender<Vec<u8>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the procedure. `buffer` belongs to the calling task.
    async fn call(&self, call: u32, buffer: &Arc<MemoryRegion>, bytes: &[u8]) -> Result<Vec<u8>> {
        let (tell, told) = oneshot::channel();
        self.waiting().insert(call, tell);
        buffer.write(0, bytes)?;
        self.connection.send_imm(buffer.share(..bytes.len())?, call).await?;
        let answer = tokio::time::timeout(CALL_TIMEOUT, told).await;
        // A call that timed out does not wait any more.
        self.waiting().remove(&call);
        Ok(answer.map_err(|_| format!("no answer to call {call} within {CALL_TIMEOUT:?}"))??)
    }

    /// Passes each answer to the task that waits for it, until the connection ends.
    async fn dispatch(&self) -> Result<()> {
        let ended = loop {
            let answer = match self.connection.recv().await {
                Ok(answer) => answer,
                Err(OperationError::Disconnected { .. }) => break Ok(()),
                Err(error) => break Err(error.into()),
            };
            if let Some(tell) = self.waiting().remove(&number(&answer)?) {
                // The call may have timed out meanwhile.
                let _ = tell.send(answer.to_vec());
            }
        };
        // The calls that still wait fail.
        self.waiting().clear();
        ended
    }

    /// Calls until all numbers are used, and verifies each answer. Returns the number of calls.
    async fn run(&self) -> Result<u32> {
        let buffer = Arc::new(self.connection.pd().allocate(LONGEST, Access::empty())?);
        let mut verified = 0;
        loop {
            let call = self.next.fetch_add(1, Ordering::Relaxed);
            if call >= CALLS {
                return Ok(verified);
            }
            let argument = argument(call);
            let answer = self.call(call, &buffer, &argument).await?;
            if answer != procedure(argument) {
                return Err(format!("the answer to call {call} is wrong").into());
            }
            verified += 1;
        }
    }
}

async fn client(addr: SocketAddr) -> Result<()> {
    let options = Options::new().timeout(Duration::from_secs(5));
    let builder = AsyncQueuePair::builder().receives(TASKS, LONGEST);
    let connection = builder.connect(addr, &options).await?;
    let (next, waiting) = (AtomicU32::new(0), Mutex::default());
    let client = Arc::new(Client { connection, next, waiting });
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.run().await })
        })
        .collect();
    let dispatching = {
        let client = Arc::clone(&client);
        tokio::spawn(async move { client.dispatch().await })
    };
    let mut verified = 0;
    for task in tasks {
        verified += task.await??;
    }
    client.connection.close().await?;
    dispatching.await??;
    println!("{verified} answers of {addr}, each to its own call");
    Ok(())
}

pub(crate) fn run(args: &[&str]) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    match args {
        ["server", addr] => runtime.block_on(server(addr.parse()?)),
        ["client", addr] => runtime.block_on(client(addr.parse()?)),
        _ => Err("usage: rpc server ADDR:PORT, or rpc client ADDR:PORT".into()),
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}
