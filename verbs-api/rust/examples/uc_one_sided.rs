//! WRITEs over an unreliable connection. A WRITE completes when it is sent, and no acknowledgement
//! follows. Immediate data shows the peer that the WRITE has arrived.

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::Duration;

use urxe::{
    Access, CompletionQueue, ConnectOptions, Device, ProtectionDomain, QpType, QueuePair,
    RecvRequest, SendRequest, WaitError,
};

const LEN: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(10);
/// If a packet is lost, the whole message is lost, and the program must send it again.
const ATTEMPTS: u32 = 20;
const ATTEMPT: Duration = Duration::from_millis(500);

fn open(
    address: Ipv4Addr,
) -> Result<(ProtectionDomain, CompletionQueue, QueuePair), Box<dyn Error>> {
    let device = Device::open_address(address)?;
    let pd = device.alloc_pd()?;
    let cq = device.create_cq(64)?;
    let qp = pd.queue_pair(&cq).qp_type(QpType::Uc).create()?;
    Ok((pd, cq, qp))
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (peer_pd, peer_cq, peer_qp) = open(Ipv4Addr::new(127, 49, 6, 2))?;
    let (pd, cq, qp) = open(Ipv4Addr::new(127, 49, 6, 1))?;
    let options = ConnectOptions::new().access(Access::REMOTE_WRITE);
    peer_qp.connect(&qp.endpoint(), &options)?;
    qp.connect(&peer_qp.endpoint(), &options)?;

    let target = peer_pd.allocate(LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    // The immediate data uses a receive without memory.
    peer_qp.post_recv(&RecvRequest::new(urxe::Gather::EMPTY))?;
    let source = pd.allocate(LEN, Access::empty())?;
    let data: Vec<u8> = (0..LEN).map(|i| (i % 253) as u8).collect();
    source.write(0, &data)?;

    for attempt in 1..=ATTEMPTS {
        let write = SendRequest::write_imm(source.slice(..)?, target.remote(), attempt);
        qp.post_send(&write.wr_id(attempt.into()).signaled())?;
        let sent = cq.wait_one(Some(TIMEOUT))?;
        println!("attempt {}: {} (it has left, no more)", sent.wr_id, sent.status);
        let arrived = match peer_cq.wait_one(Some(ATTEMPT)) {
            Err(WaitError::TimedOut) => continue,
            arrived => arrived?,
        };
        println!("arrived: {} bytes, immediate {:?}", arrived.byte_len, arrived.imm_data());
        if target.read_vec(0, LEN)? != data {
            return Err("the peer has other bytes than were written".into());
        }
        return Ok(());
    }
    Err("nothing arrived".into())
}
