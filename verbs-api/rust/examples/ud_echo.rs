//! A server that answers datagrams of unknown clients. The network header in front of each message
//! identifies the client.

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::Duration;

use urxe::{
    Access, CompletionQueue, Device, GRH_LEN, MemoryRegion, ProtectionDomain, QKey, QpType,
    QueuePair, RecvRequest, SendRequest,
};

const QKEY: QKey = QKey(0x1234_5678);
const MESSAGE: &[u8] = b"is anybody there?";
const TIMEOUT: Duration = Duration::from_secs(10);

struct Host {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
}

fn open(address: Ipv4Addr) -> Result<Host, Box<dyn Error>> {
    let device = Device::open_address(address)?;
    let pd = device.alloc_pd()?;
    let cq = device.create_cq(16)?;
    let qp = pd.queue_pair(&cq).qp_type(QpType::Ud).create()?;
    qp.start_datagrams(QKEY)?;
    let region = pd.allocate(GRH_LEN + 1024, Access::LOCAL_WRITE)?;
    qp.post_recv(&RecvRequest::new(region.slice(..)?))?;
    Ok(Host { pd, cq, qp, region })
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let server = open(Ipv4Addr::new(127, 49, 5, 2))?;
    let client = open(Ipv4Addr::new(127, 49, 5, 1))?;

    // The client knows the address, the queue pair number and the Q_Key of the server.
    let there = client.pd.address_handle(server.qp.endpoint().gid)?;
    let question = urxe::Data::inline(MESSAGE);
    client.qp.post_send(&SendRequest::send(question).to(&there, server.qp.qpn(), QKEY))?;

    // The server knows only the received message.
    let asked = server.cq.wait_one(Some(TIMEOUT))?;
    let bytes = server.region.read_vec(0, asked.byte_len as usize)?;
    let (grh, message) = bytes.split_at(GRH_LEN);
    println!("{} bytes from queue pair {}", message.len(), asked.src_qp);
    let back = server.pd.answer_to(&asked, grh)?;
    let answer = SendRequest::send(urxe::Data::inline(message)).to(&back, asked.src_qp, QKEY);
    server.qp.post_send(&answer)?;

    let answered = client.cq.wait_one(Some(TIMEOUT))?;
    let echo = client.region.read_vec(GRH_LEN, answered.byte_len as usize - GRH_LEN)?;
    println!("the answer: {:?}", String::from_utf8_lossy(&echo));
    if echo != MESSAGE {
        return Err("the answer differs from the question".into());
    }
    Ok(())
}
