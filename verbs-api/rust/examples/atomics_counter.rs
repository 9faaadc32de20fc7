//! Several clients and their server increment one counter in the server's memory, by fetch-and-add.
//!
//! Each addition returns the former value, so each number is assigned exactly once. At the end, the
//! one that finds the final number resets the counter by compare-and-swap.

use std::error::Error;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use urxe::{
    Access, CompletionQueue, ConnectOptions, Device, MemoryRegion, QueuePair, RemoteRegion,
    SendRequest,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CLIENTS: u8 = 3;
const EACH: u64 = 200;
/// The server takes as many numbers as one client.
const ALL: u64 = (CLIENTS as u64 + 1) * EACH;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

/// A client on an address of its own.
struct Client {
    cq: CompletionQueue,
    qp: QueuePair,
    before: MemoryRegion,
}

impl Client {
    fn connect(address: Ipv4Addr, server: &QueuePair) -> Result<Self> {
        let device = Device::open_address(address)?;
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(16)?;
        let qp = pd.queue_pair(&cq).create()?;
        let before = pd.allocate(8, Access::LOCAL_WRITE)?;
        qp.connect(&server.endpoint(), &ConnectOptions::default())?;
        server.connect(&qp.endpoint(), &ConnectOptions::default())?;
        Ok(Self { cq, qp, before })
    }

    /// Performs an atomic operation and returns the former value.
    fn operate(&self, request: &SendRequest<'_>) -> Result<u64> {
        self.qp.post_send(request)?;
        let _done = self.cq.wait_one(TIMEOUT)?;
        Ok(self.before.load_u64(0)?)
    }

    fn take_numbers(&self, counter: RemoteRegion) -> Result<Vec<u64>> {
        let before = self.before.slice(..)?;
        let add = SendRequest::fetch_add(before, counter, 1).signaled();
        let taken = (0..EACH).map(|_| self.operate(&add)).collect::<Result<_>>()?;
        // The client that finds the final number resets the counter to 0.
        self.operate(&SendRequest::compare_swap(before, counter, ALL, 0).signaled())?;
        Ok(taken)
    }
}

pub(crate) fn main() -> Result<()> {
    let device = Device::open_address(Ipv4Addr::new(127, 49, 3, 1))?;
    let pd = device.alloc_pd()?;
    let cq = device.create_cq(16)?;
    let region = pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
    let counter = region.remote();

    // The server has one queue pair for each client.
    let mut connections = Vec::new();
    let mut clients = Vec::new();
    for nr in 0..CLIENTS {
        let connection = pd.queue_pair(&cq).create()?;
        let client = Client::connect(Ipv4Addr::new(127, 49, 3, 10 + nr), &connection)?;
        connections.push(connection);
        clients.push(client);
    }

    let threads: Vec<_> = clients
        .into_iter()
        .map(|client| thread::spawn(move || client.take_numbers(counter)))
        .collect();
    let mut taken = Vec::new();
    for _ in 0..EACH {
        taken.push(region.fetch_add_u64(0, 1)?);
    }
    // The server may be the last to take a number.
    region.compare_swap_u64(0, ALL, 0)?;
    for thread in threads {
        taken.extend(thread.join().map_err(|_| "a client panicked")??);
    }

    taken.sort_unstable();
    if !taken.into_iter().eq(0..ALL) {
        return Err("a number was assigned twice or never".into());
    }
    if region.load_u64(0)? != 0 {
        return Err("the counter was not reset".into());
    }
    println!("{CLIENTS} clients and the server took {ALL} numbers, each exactly once");
    Ok(())
}
