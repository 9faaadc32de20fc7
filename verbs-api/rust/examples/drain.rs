//! Drains a connection before it is destroyed, as storage protocols of the kernel do
//! (`ib_drain_qp`), and finds the client of a completion by its queue pair number.
//!
//! A server has several clients and one completion queue with a completion channel. After arming
//! the queue, the server polls it once more, so it misses no completion. At the end, receives and
//! sends are still posted. The server moves the queue pairs to the error state and posts a marker
//! to each queue. The marker completes after all earlier requests, which complete as flushed.

use std::collections::HashMap;
use std::error::Error;
use std::net::Ipv4Addr;
use std::time::Duration;

use urxe::{
    Access, ArmKind, Completion, CompletionChannel, CompletionQueue, ConnectOptions, Data, Device,
    Gather, Qpn, QueuePair, RecvRequest, SendRequest, WcStatus,
};

const CLIENTS: usize = 3;
const RECEIVES: u64 = 8;
/// The identifier of a marker.
const MARKER: u64 = u64::MAX;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

/// The state of a client.
struct Client {
    name: String,
    qp: QueuePair,
    messages: u32,
    flushed: u64,
    markers: u32,
}

struct Server {
    channel: CompletionChannel,
    cq: CompletionQueue,
    /// The clients by queue pair number.
    clients: HashMap<Qpn, Client>,
}

impl Server {
    /// Handles completions until `done` returns true.
    fn run(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), Box<dyn Error>> {
        while !done(self) {
            // Completions that arrived before arming create no event, so the queue is polled again.
            if !self.cq.arm(ArmKind::Next) && self.cq.is_empty() {
                self.channel.wait(TIMEOUT)?;
            }
            while let Some(completion) = self.cq.poll_one()? {
                self.take(&completion)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, completion: &Completion) -> Result<(), Box<dyn Error>> {
        let client = self
            .clients
            .get_mut(&completion.qp_num)
            .ok_or("a completion of an unknown queue pair")?;
        match completion.status {
            WcStatus::Success => client.messages += 1,
            WcStatus::WrFlushErr if completion.wr_id == MARKER => client.markers += 1,
            WcStatus::WrFlushErr if client.markers < 2 => client.flushed += 1,
            status => return Err(format!("{}: {status}", client.name).into()),
        }
        Ok(())
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open_address(Ipv4Addr::new(127, 49, 11, 2))?;
    let pd = device.alloc_pd()?;
    let channel = device.create_channel()?;
    let cq = channel.create_cq(256)?;
    let inbox = pd.allocate(64, Access::LOCAL_WRITE)?;
    let mut server = Server { channel, cq, clients: HashMap::new() };

    let peer = Device::open_address(Ipv4Addr::new(127, 49, 11, 1))?;
    let (peer_pd, peer_cq) = (peer.alloc_pd()?, peer.create_cq(64)?);
    let mut peers = Vec::new();
    for number in 0..CLIENTS {
        let (here, there) =
            (pd.queue_pair(&server.cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
        here.connect(&there.endpoint(), &ConnectOptions::default())?;
        there.connect(&here.endpoint(), &ConnectOptions::default())?;
        for wr_id in 0..RECEIVES {
            here.post_recv(&RecvRequest::new(inbox.slice(..)?).wr_id(wr_id))?;
        }
        peers.push(there);
        let name = format!("client {number}");
        let client = Client { name, qp: here, messages: 0, flushed: 0, markers: 0 };
        server.clients.insert(client.qp.qpn(), client);
    }

    // Client n sends n + 1 messages.
    for (number, peer) in peers.iter().enumerate() {
        for _ in 0..=number {
            peer.post_send(&SendRequest::send(Data::inline(b"hello")))?;
        }
    }
    let expected: u32 = (1..=CLIENTS as u32).sum();
    server.run(|server| {
        server.clients.values().map(|client| client.messages).sum::<u32>() >= expected
    })?;

    // Moves each queue pair to the error state and posts a marker to both queues.
    for client in server.clients.values() {
        client.qp.set_error()?;
        client.qp.post_send(&SendRequest::send(Data::EMPTY).wr_id(MARKER))?;
        client.qp.post_recv(&RecvRequest::new(Gather::EMPTY).wr_id(MARKER))?;
    }
    server.run(|server| server.clients.values().all(|client| client.markers == 2))?;
    for client in server.clients.values() {
        println!(
            "{}: {} messages, {} receives flushed",
            client.name, client.messages, client.flushed
        );
        if u64::from(client.messages) + client.flushed != RECEIVES {
            return Err("every receive should have completed, once".into());
        }
    }
    // No completion follows the markers, so memory and queue pairs can be dropped.
    match server.cq.poll_one()? {
        None => Ok(()),
        Some(late) => Err(format!("a completion after the marker: {late:?}").into()),
    }
}
