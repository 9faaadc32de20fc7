//! One publisher and three subscribers of a multicast group. A message is sent once and arrives at
//! each subscriber.
//!
//! All of them use the loopback interface of this machine, where Linux supports IPv4 groups for
//! ordinary users.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use urxe::{
    Access, CompletionQueue, Data, Device, GRH_LEN, Gid, MemoryRegion, ProtectionDomain, QKey,
    QpType, QueuePair, RecvRequest, SendRequest, WaitError,
};

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 49, 6));
const QKEY: QKey = QKey(0x0123_4567);
const TIMEOUT: Duration = Duration::from_secs(10);

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
        // The address handle must exist until the message is sent.
        let _sent = self.cq.wait_one(Some(TIMEOUT))?;
        Ok(())
    }

    fn expect(&self, message: &[u8]) -> Result<(), Box<dyn Error>> {
        let completion = self.cq.wait_one(Some(TIMEOUT))?;
        let got = self.region.read_vec(GRH_LEN, completion.byte_len as usize - GRH_LEN)?;
        println!("{}: {:?}", self.qp.endpoint().gid, String::from_utf8_lossy(&got));
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

    // One subscriber leaves the group.
    subscribers[2].qp.detach_mcast(Gid::from_ip(GROUP))?;
    publisher.publish(b"to the other two")?;
    for subscriber in &subscribers[..2] {
        subscriber.expect(b"to the other two")?;
    }
    let waited = subscribers[2].cq.wait_one(Some(Duration::from_millis(50)));
    if waited != Err(WaitError::TimedOut) {
        return Err("a subscriber received a message after it left the group".into());
    }
    Ok(())
}
