//! An RPC server, and clients that call it from many tasks of one executor.
//!
//! A request and its answer are messages. The client numbers its calls by immediate data, and the
//! server answers with the same number, in any order. So several tasks share one connection: each
//! waits for the answer to its own call.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use smol::channel::{Sender, bounded};
use smol::future::or;
use urxe::Device;
use urxe::aio::{AsyncConnection, AsyncQueuePair, OperationError, Received};
use urxe::cm::{Listener, Options};

const CLIENTS: usize = 3;
const TASKS: usize = 8;
const CALLS: usize = 25;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The procedure: sorts the bytes of its argument.
fn procedure(request: &Received) -> Vec<u8> {
    let mut bytes = request.to_vec();
    bytes.sort_unstable();
    bytes
}

/// Answers the calls of one client until it disconnects.
async fn serve(connection: AsyncConnection) -> Result<usize> {
    let mut calls = 0;
    loop {
        let request = match connection.recv().await {
            Ok(request) => request,
            Err(OperationError::Disconnected { .. }) => return Ok(calls),
            Err(error) => return Err(error.into()),
        };
        let call = request.imm_data().ok_or("a request has no number")?;
        let answer = procedure(&request);
        // The buffer of the request is free for the next one.
        drop(request);
        connection.send_imm(&answer, call).await?;
        calls += 1;
    }
}

/// A client whose tasks call at the same time.
struct Client {
    connection: AsyncConnection,
    next: AtomicU32,
    waiting: Mutex<HashMap<u32, Sender<Vec<u8>>>>,
}

impl Client {
    async fn connect(server: SocketAddr, device: &Device) -> Result<Self> {
        let builder = AsyncQueuePair::builder().receives(TASKS as u32, 64);
        let connection = builder.connect(server, &Options::new().device(device)).await?;
        Ok(Self { connection, next: AtomicU32::new(0), waiting: Mutex::default() })
    }

    async fn call(&self, argument: &[u8]) -> Result<Vec<u8>> {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = bounded(1);
        self.waiting.lock().unwrap().insert(call, tell);
        self.connection.send_imm(argument, call).await?;
        Ok(told.recv().await?)
    }

    /// Gives the answers to the tasks that wait for them.
    async fn dispatch(&self) -> Result<()> {
        loop {
            let answer = self.connection.recv().await?;
            let call = answer.imm_data().ok_or("an answer has no number")?;
            let tell = self.waiting.lock().unwrap().remove(&call).ok_or("an unknown call")?;
            tell.try_send(answer.to_vec())?;
        }
    }

    /// Calls from several tasks, and verifies the answers.
    async fn run(&self, name: usize) -> Result<()> {
        let executor = smol::LocalExecutor::new();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                executor.spawn(async move {
                    for nr in 0..CALLS {
                        let argument = [9, name as u8, task as u8, nr as u8];
                        let mut sorted = argument;
                        sorted.sort_unstable();
                        let answer = self.call(&argument).await?;
                        assert_eq!(answer, sorted, "the answer is that of this call");
                    }
                    Result::Ok(())
                })
            })
            .collect();
        let calls = async {
            for task in tasks {
                task.await?;
            }
            Ok(())
        };
        // The dispatch ends only with an error.
        executor.run(or(calls, self.dispatch())).await
    }
}

pub(crate) fn main() -> Result<()> {
    let (here, there) =
        (Device::open_address([127, 49, 17, 1])?, Device::open_address([127, 49, 17, 2])?);
    let listener = Listener::builder().device(&here).bind("127.49.17.1:0")?;
    let addr = listener.local_addr();
    smol::block_on(async {
        let server = smol::spawn(async move {
            let mut servers = Vec::new();
            for _ in 0..CLIENTS {
                let builder = AsyncQueuePair::builder().receives(2 * TASKS as u32, 64);
                let connection = builder.accept(listener.next().await?, &Options::new()).await?;
                servers.push(smol::spawn(serve(connection)));
            }
            let mut calls = 0;
            for server in servers {
                calls += server.await?;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(calls)
        });
        for name in 0..CLIENTS {
            let client = Client::connect(addr, &there).await?;
            client.run(name).await?;
            client.connection.close().await?;
            // Nothing can be sent after the end.
            let late = client.connection.send(b"late").await;
            assert_eq!(late, Err(OperationError::Disconnected { peer: addr }));
        }
        let calls = server.await?;
        assert_eq!(calls, CLIENTS * TASKS * CALLS);
        println!("{calls} calls of {CLIENTS} clients, each answer to its own task");
        Ok(())
    })
}
