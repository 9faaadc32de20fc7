//! An echo server with a thousand clients, all connected at the same time, over one device, one
//! completion queue and one pool of receive buffers.
//!
//! No thread waits for a single client. Each connection becomes a future, which any executor may
//! await. Clients post their receives before they connect, so every message finds a receive.

use std::collections::HashMap;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use urxe::cm::{self, Connection, Establishing, Listener, Options};
use urxe::{
    Access, CompletionQueue, Data, Device, MemoryRegion, QpCap, QpState, Qpn, RecvRequest,
    SendRequest, SharedReceiveQueue, WcOpcode,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CLIENTS: usize = 1000;
const ROUNDS: usize = 3;
const LEN: usize = 64;
/// The receive buffers of the server. There are fewer buffers than clients, so some clients must
/// retry.
const BUFFERS: usize = 256;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));

const CAP: QpCap = QpCap {
    max_send_wr: 2 * ROUNDS as u32,
    max_recv_wr: 1,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline_data: LEN as u32,
};

fn content(client: usize, round: usize) -> [u8; LEN] {
    let mut message = [(client * 31 + round) as u8; LEN];
    message[..8].copy_from_slice(&(client as u64).to_be_bytes());
    message[8..16].copy_from_slice(&(round as u64).to_be_bytes());
    message
}

/// Returns all connections when all of them are established.
fn all(establishing: Vec<Establishing>) -> Result<Vec<Connection>> {
    let made: Vec<Connection> =
        establishing.into_iter().map(pollster::block_on).collect::<std::result::Result<_, _>>()?;
    let ready = made.iter().filter(|connection| connection.qp().state() == QpState::Rts).count();
    match ready {
        CLIENTS => Ok(made),
        _ => Err(format!("{ready} of {CLIENTS} are connected at once").into()),
    }
}

struct Server {
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    pool: MemoryRegion,
    options: Options,
}

impl Server {
    fn new(device: &Device) -> Result<Self> {
        let (pd, cq) = (device.alloc_pd()?, device.create_cq(8 * CLIENTS as u32)?);
        let srq = pd.shared_receive_queue(BUFFERS as u32).create()?;
        let pool = pd.allocate(BUFFERS * LEN, Access::LOCAL_WRITE)?;
        let cap = QpCap { max_recv_wr: 0, max_recv_sge: 0, ..CAP };
        let options = Options::new().pd(&pd).cq(&cq).shared_receive_queue(&srq).cap(cap);
        let server = Self { cq, srq, pool, options };
        (0..BUFFERS).try_for_each(|buffer| server.post_buffer(buffer))?;
        Ok(server)
    }

    fn post_buffer(&self, buffer: usize) -> Result<()> {
        let slice = self.pool.slice(buffer * LEN..(buffer + 1) * LEN)?;
        Ok(self.srq.post_recv(&RecvRequest::new(slice).wr_id(buffer as u64))?)
    }

    fn serve(&self, listener: &Listener) -> Result<()> {
        let accept = |_| -> Result<Establishing> {
            Ok(listener.wait(TIMEOUT)?.prepare(&self.options)?.start()?)
        };
        let clients: HashMap<Qpn, Connection> =
            all((0..CLIENTS).map(accept).collect::<Result<_>>()?)?
                .into_iter()
                .map(|connection| (connection.qp().qpn(), connection))
                .collect();
        let mut echoed = 0;
        while echoed < CLIENTS * ROUNDS {
            let done = self.cq.wait_one(TIMEOUT)?;
            let buffer = done.wr_id as usize;
            if done.opcode == WcOpcode::Recv {
                let message =
                    self.pool.slice(buffer * LEN..buffer * LEN + done.byte_len as usize)?;
                let echo = SendRequest::send(message).wr_id(done.wr_id).signaled();
                match clients.get(&done.qp_num) {
                    Some(client) => client.qp().post_send(&echo)?,
                    // The client has disconnected, so the buffer is posted again for another
                    // message.
                    None => self.post_buffer(buffer)?,
                }
            } else {
                // The echo has arrived. The buffer is posted again.
                echoed += 1;
                self.post_buffer(buffer)?;
            }
        }
        Ok(())
    }
}

fn talk(device: &Device, to: SocketAddr) -> Result<()> {
    let (pd, cq) = (device.alloc_pd()?, device.create_cq(4 * CLIENTS as u32)?);
    let inboxes = pd.allocate(CLIENTS * LEN, Access::LOCAL_WRITE)?;
    let receive = |client: usize| -> Result<RecvRequest<'_>> {
        Ok(RecvRequest::new(inboxes.slice(client * LEN..(client + 1) * LEN)?).wr_id(client as u64))
    };
    let options = Options::new().pd(&pd).cq(&cq).cap(CAP);
    let ask = |client| -> Result<Establishing> {
        let pending = cm::prepare(to, &options)?;
        pending.qp().post_recv(&receive(client)?)?;
        Ok(pending.start()?)
    };
    let clients = all((0..CLIENTS).map(ask).collect::<Result<_>>()?)?;
    for round in 0..ROUNDS {
        for (client, connection) in clients.iter().enumerate() {
            connection.qp().post_send(&SendRequest::send(Data::inline(&content(client, round))))?;
        }
        let mut heard = vec![false; CLIENTS];
        for _ in 0..CLIENTS {
            let echo = cq.wait_one(TIMEOUT)?;
            let client = echo.wr_id as usize;
            if inboxes.read_vec(client * LEN, echo.byte_len as usize)? != content(client, round) {
                return Err(format!("client {client}: round {round}: the echo differs").into());
            }
            heard[client] = true;
            clients[client].qp().post_recv(&receive(client)?)?;
        }
        if heard.contains(&false) {
            return Err(format!("round {round}: some client got no echo, another two").into());
        }
    }
    println!("{CLIENTS} clients, connected at once, got {ROUNDS} echoes each");
    Ok(())
}

pub(crate) fn main() -> Result<()> {
    let here = Device::open_address(Ipv4Addr::new(127, 49, 14, 1))?;
    let there = Device::open_address(Ipv4Addr::new(127, 49, 14, 2))?;
    let listener = Listener::builder().device(&here).bind("127.49.14.1:0")?;
    let to = listener.local_addr();
    let server = Server::new(&here)?;
    thread::scope(|threads| {
        let serving = threads.spawn(|| server.serve(&listener));
        let talked = talk(&there, to);
        let served = serving.join().map_err(|_| "the server panicked")?;
        talked.and(served)
    })
}
