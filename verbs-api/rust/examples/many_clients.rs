//! A server with many clients and one pool of receive buffers.
//!
//! Each client has a connection of its own; their messages take the buffers of one shared receive
//! queue, so that memory grows with the traffic and not with the number of clients. When few are
//! left, the limit's event tells it.

use std::collections::HashMap;
use std::error::Error;
use std::net::Ipv4Addr;
use std::time::Duration;

use urxe::{Access, AsyncEventType, ConnectOptions, Device, QueuePair, RecvRequest, SendRequest};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CLIENTS: usize = 20;
const MESSAGES: usize = 10;
const BUFFERS: usize = 16;
const LEN: usize = 1024;
const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

fn content(client: usize, message: usize) -> Vec<u8> {
    vec![(client * MESSAGES + message) as u8; 1 + (client * 37 + message * 101) % LEN]
}

pub(crate) fn main() -> Result<()> {
    let server = Device::open_address(Ipv4Addr::new(127, 49, 5, 1))?;
    let (pd, cq) = (server.alloc_pd()?, server.create_cq(256)?);
    let pool = pd.allocate(BUFFERS * LEN, Access::LOCAL_WRITE)?;
    let srq = pd.shared_receive_queue(BUFFERS as u32).limit(4).create()?;
    let hand_in = |buffer: usize| -> Result<()> {
        let slice = pool.slice(buffer * LEN..(buffer + 1) * LEN)?;
        Ok(srq.post_recv(&RecvRequest::new(slice).wr_id(buffer as u64))?)
    };
    (0..BUFFERS).try_for_each(hand_in)?;

    let hosts = Device::open_address(Ipv4Addr::new(127, 49, 5, 2))?;
    let (client_pd, client_cq) = (hosts.alloc_pd()?, hosts.create_cq(256)?);
    let memory = client_pd.allocate(CLIENTS * LEN, Access::empty())?;
    let mut clients: Vec<QueuePair> = Vec::new();
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        let client = client_pd.queue_pair(&client_cq).create()?;
        let connection = pd.queue_pair(&cq).shared_receive_queue(&srq).create()?;
        client.connect(&connection.endpoint(), &ConnectOptions::default())?;
        connection.connect(&client.endpoint(), &ConnectOptions::default())?;
        clients.push(client);
        connections.push(connection);
    }
    let client_of: HashMap<_, _> =
        connections.iter().enumerate().map(|(nr, qp)| (qp.qpn(), nr)).collect();

    for message in 0..MESSAGES {
        // More messages than buffers: who finds none is asked to wait, until one is handed in
        // again.
        for (nr, client) in clients.iter().enumerate() {
            let data = content(nr, message);
            memory.write(nr * LEN, &data)?;
            client.post_send(
                &SendRequest::send(memory.slice(nr * LEN..nr * LEN + data.len())?).signaled(),
            )?;
        }
        if message == 0 {
            // The limit tells once. A server would hand in more buffers now; this one lets its
            // clients wait.
            let event = server.events().wait(PATIENCE)?;
            if event.event_type() != AsyncEventType::SrqLimitReached {
                return Err(format!("few buffers are left, but the device tells: {event:?}").into());
            }
        }
        for _ in 0..CLIENTS {
            let received = cq.wait_one(PATIENCE)?;
            let client = client_of[&received.qp_num];
            let buffer = received.wr_id as usize;
            if pool.read_vec(buffer * LEN, received.byte_len as usize)? != content(client, message)
            {
                return Err(
                    format!("client {client}: message {message} is not what it sent").into()
                );
            }
            hand_in(buffer)?;
        }
        for _ in 0..CLIENTS {
            let sent = client_cq.wait_one(PATIENCE)?;
            if !sent.status.is_success() {
                return Err(sent.status.to_string().into());
            }
        }
    }
    println!(
        "{CLIENTS} clients sent {MESSAGES} messages each into {BUFFERS} buffers, and the limit told that few were left"
    );
    Ok(())
}
