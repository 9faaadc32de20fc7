//! A server with many clients and one pool of receive buffers.
//!
//! Each client has its own connection. All messages use the buffers of one shared receive queue, so
//! the memory grows with the traffic instead of the number of clients. An event reports when few
//! buffers are left.

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
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

fn content(client: usize, message: usize) -> Vec<u8> {
    vec![(client * MESSAGES + message) as u8; 1 + (client * 37 + message * 101) % LEN]
}

pub(crate) fn main() -> Result<()> {
    let server = Device::open_address(Ipv4Addr::new(127, 49, 5, 1))?;
    let (pd, cq) = (server.alloc_pd()?, server.create_cq(256)?);
    let pool = pd.allocate(BUFFERS * LEN, Access::LOCAL_WRITE)?;
    let srq = pd.shared_receive_queue(BUFFERS as u32).limit(4).create()?;
    let post_buffer = |buffer: usize| -> Result<()> {
        let slice = pool.slice(buffer * LEN..(buffer + 1) * LEN)?;
        Ok(srq.post_recv(&RecvRequest::new(slice).wr_id(buffer as u64))?)
    };
    (0..BUFFERS).try_for_each(post_buffer)?;

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
        // There are more messages than buffers. A client without a buffer retries until one is
        // posted.
        for (nr, client) in clients.iter().enumerate() {
            let data = content(nr, message);
            memory.write(nr * LEN, &data)?;
            client.post_send(
                &SendRequest::send(memory.slice(nr * LEN..nr * LEN + data.len())?).signaled(),
            )?;
        }
        if message == 0 {
            // The limit event occurs once. Another server would post more buffers now; here the
            // clients retry.
            let event = server.events().wait(TIMEOUT)?;
            if event.event_type() != AsyncEventType::SrqLimitReached {
                return Err(
                    format!("few buffers are left, but the device reports: {event:?}").into()
                );
            }
        }
        for _ in 0..CLIENTS {
            let received = cq.wait_one(TIMEOUT)?;
            let client = client_of[&received.qp_num];
            let buffer = received.wr_id as usize;
            if pool.read_vec(buffer * LEN, received.byte_len as usize)? != content(client, message)
            {
                return Err(format!(
                    "client {client}: message {message} differs from the one sent"
                )
                .into());
            }
            post_buffer(buffer)?;
        }
        for _ in 0..CLIENTS {
            let _sent = client_cq.wait_one(TIMEOUT)?;
        }
    }
    println!(
        "{CLIENTS} clients sent {MESSAGES} messages each into {BUFFERS} buffers, \
         and an event reported that few were left"
    );
    Ok(())
}
