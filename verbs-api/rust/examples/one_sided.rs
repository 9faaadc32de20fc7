//! Writes into a peer's memory and reads it back. The peer's program takes no part in the
//! transfers.
//!
//! The peer allocates a region and sends its address and key. After that, it only reads its own
//! memory: it polls the last byte, which is written last.

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use urxe::{
    Access, CompletionQueue, ConnectOptions, Device, ProtectionDomain, QueuePair, RemoteRegion,
    SendRequest,
};

const LEN: usize = 4 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);

fn open(
    address: Ipv4Addr,
) -> Result<(ProtectionDomain, CompletionQueue, QueuePair), Box<dyn Error>> {
    let device = Device::open_address(address)?;
    let pd = device.alloc_pd()?;
    let cq = device.create_cq(16)?;
    let qp = pd.queue_pair(&cq).create()?;
    Ok((pd, cq, qp))
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // The peer grants access to its memory.
    let (peer_pd, _peer_cq, peer_qp) = open(Ipv4Addr::new(127, 49, 2, 2))?;
    let peer_region =
        peer_pd.allocate(LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)?;

    // This end. It needs two lines of text from the peer.
    let (pd, cq, qp) = open(Ipv4Addr::new(127, 49, 2, 1))?;
    let (endpoint, memory) = (peer_qp.endpoint().to_string(), peer_region.remote().to_string());
    println!("the peer is at {endpoint}\nits memory is  {memory}");
    qp.connect(&endpoint.parse()?, &ConnectOptions::default())?;
    peer_qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    let there: RemoteRegion = memory.parse()?;

    let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8 + 1).collect();
    let source = pd.allocate(LEN, Access::empty())?;
    source.write(0, &data)?;
    qp.post_send(&SendRequest::write(source.slice(..)?, there).wr_id(1).signaled())?;

    // The peer sees the new last byte, and then all new bytes.
    let started = Instant::now();
    while peer_region.load_u8(LEN - 1)? == 0 {
        if started.elapsed() > TIMEOUT {
            return Err("the write did not arrive".into());
        }
        std::thread::yield_now();
    }
    if peer_region.read_vec(0, LEN)? != data {
        return Err("the peer has other bytes than were written".into());
    }
    let written = cq.wait_one(Some(TIMEOUT))?;
    println!("WRITE of {LEN} bytes: {}", written.status);

    // The READ of both halves.
    let target = pd.allocate(LEN, Access::LOCAL_WRITE)?;
    let half = LEN / 2;
    let reads = [
        SendRequest::read(target.slice(..half)?, there.slice(..half as u64)?),
        SendRequest::read(target.slice(half..)?, there.slice(half as u64..)?).wr_id(2).signaled(),
    ];
    qp.post_send_batch(&reads)?;
    let read = cq.wait_one(Some(TIMEOUT))?;
    println!("READ of {LEN} bytes: {}", read.status);
    if (read.wr_id, target.read_vec(0, LEN)?) != (2, data) {
        return Err("other bytes came back than were written".into());
    }
    println!("every byte was right");
    Ok(())
}
