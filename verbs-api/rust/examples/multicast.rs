//! One publisher, three subscribers of a multicast group: a message that is sent once arrives at
//! each of them.
//!
//! All on this machine's loopback interface, which Linux lets IPv4 groups work on for everybody.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use urxe::{
    Access, CompletionQueue, Data, Device, GRH_LEN, Gid, MemoryRegion, ProtectionDomain, QKey,
    QpType, QueuePair, RecvRequest, SendRequest,
};

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 49, 6));
const QKEY: QKey = QKey(0x0123_4567);
const PATIENCE: Duration = Duration::from_secs(10);

struct Host {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
}

fn open(host: u8) -> Result<Host, Box<dyn Error>> {
    let device = Device::open_address(Ipv4Addr::new(127, 49, 6, host))?;
    let pd = device.alloc_pd()?;
    let cq = device.create_cq(16)?;
    let qp = pd.queue_pair(&cq).qp_type(QpType::Ud).create()?;
    qp.start_datagrams(QKEY)?;
    let region = pd.allocate(GRH_LEN + 1024, Access::LOCAL_WRITE)?;
    Ok(Host { pd, cq, qp, region })
}

impl Host {
    fn publish(&self, message: &[u8]) -> Result<(), Box<dyn Error>> {
        let everybody = self.pd.address_handle(Gid::from_ip(GROUP))?;
        let request = SendRequest::send(Data::inline(message)).to_group(&everybody, QKEY);
        self.qp.post_send(&request.signaled())?;
        // An address handle stays until what was posted to it is sent.
        self.cq.wait_one(Some(PATIENCE))?;
        Ok(())
    }

    fn expect(&self, message: &[u8]) -> Result<(), Box<dyn Error>> {
        let completion = self.cq.wait_one(Some(PATIENCE))?;
        let got = self.region.read_vec(GRH_LEN, completion.byte_len as usize - GRH_LEN)?;
        println!("{}: {}", self.qp.endpoint().gid, String::from_utf8_lossy(&got));
        if got == message { Ok(()) } else { Err("another message".into()) }
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let publisher = open(1)?;
    let mut subscribers = Vec::new();
    for host in 2..=4 {
        let subscriber = open(host)?;
        subscriber.qp.attach_mcast(Gid::from_ip(GROUP))?;
        for _ in 0..2 {
            subscriber.qp.post_recv(&RecvRequest::new(subscriber.region.slice(..)?))?;
        }
        subscribers.push(subscriber);
    }
    publisher.publish(b"to all three")?;
    for subscriber in &subscribers {
        subscriber.expect(b"to all three")?;
    }

    // One has heard enough. What the next one gets is what it would have got.
    subscribers[2].qp.detach_mcast(Gid::from_ip(GROUP))?;
    publisher.publish(b"to the other two")?;
    for subscriber in &subscribers[..2] {
        subscriber.expect(b"to the other two")?;
    }
    if subscribers[2].cq.wait_one(Some(Duration::from_millis(50))).is_ok() {
        return Err("a message came to who had left".into());
    }
    Ok(())
}
