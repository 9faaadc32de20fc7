//! Grants a peer access to memory for one transfer, as storage protocols do.
//!
//! The client registers a buffer by a work request and announces it in a message. The server READs
//! the buffer and answers with a SEND that invalidates the key. After the answer the server has no
//! access to the buffer: a later READ with the key fails.

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::Duration;

use urxe::{
    Access, Completion, CompletionQueue, ConnectOptions, Device, ProtectionDomain, QueuePair,
    RecvRequest, RemoteRegion, SendRequest, WaitError, WcStatus,
};

const LEN: usize = 100_000;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

struct Host {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
}

impl Host {
    fn open(address: Ipv4Addr) -> Result<Self, Box<dyn Error>> {
        let device = Device::open_address(address)?;
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(16)?;
        let qp = pd.queue_pair(&cq).create()?;
        Ok(Self { pd, cq, qp })
    }

    /// Takes the next completion, which must be the success of this request.
    fn done(&self, wr_id: u64) -> Result<Completion, Box<dyn Error>> {
        let completion = self.cq.wait_one(TIMEOUT)?;
        if completion.wr_id != wr_id {
            return Err(format!("expected the success of {wr_id}, not {completion:?}").into());
        }
        Ok(completion)
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let client = Host::open(Ipv4Addr::new(127, 49, 5, 1))?;
    let server = Host::open(Ipv4Addr::new(127, 49, 5, 2))?;
    client.qp.connect(&server.qp.endpoint(), &ConnectOptions::default())?;
    server.qp.connect(&client.qp.endpoint(), &ConnectOptions::default())?;

    // The data of the client and a region for its pages, which start at the second page of the
    // buffer.
    let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
    let buffer = client.pd.allocate(4096 + LEN, Access::LOCAL_WRITE)?;
    buffer.write(4096, &data)?;
    let mut region = client.pd.alloc_fast_region(LEN.div_ceil(4096) as u32)?;
    region.map(&buffer, 4096..4096 + LEN, 0x10_0000)?;

    // Both ends post a receive.
    let inboxes = [
        client.pd.allocate(256, Access::LOCAL_WRITE)?,
        server.pd.allocate(256, Access::LOCAL_WRITE)?,
    ];
    client.qp.post_recv(&RecvRequest::new(inboxes[0].slice(..)?).wr_id(10))?;
    server.qp.post_recv(&RecvRequest::new(inboxes[1].slice(..)?).wr_id(20))?;

    // Register, then announce. The message is sent when the key is valid.
    let announcement = region.remote().to_string();
    let outbox = client.pd.allocate(announcement.len(), Access::empty())?;
    outbox.write(0, announcement.as_bytes())?;
    client.qp.post_send_batch(&[
        SendRequest::register(&region, Access::REMOTE_READ),
        SendRequest::send(outbox.slice(..)?).wr_id(11).signaled(),
    ])?;
    let _done = client.done(11)?;

    // The server reads, then answers and invalidates the key.
    let request = server.done(20)?;
    let text = String::from_utf8(inboxes[1].read_vec(0, request.byte_len as usize)?)?;
    println!("the server may read {text}");
    let there: RemoteRegion = text.parse()?;
    let copy = server.pd.allocate(LEN, Access::LOCAL_WRITE)?;
    server.qp.post_send(&SendRequest::read(copy.slice(..)?, there).wr_id(21).signaled())?;
    let _done = server.done(21)?;
    if copy.read_vec(0, LEN)? != data {
        return Err("the server read other bytes than the client wrote".into());
    }
    server.qp.post_send(
        &SendRequest::send_invalidate(urxe::Data::EMPTY, there.rkey).wr_id(22).signaled(),
    )?;

    // The answer ends the transfer.
    let answer = client.done(10)?;
    println!("the client's key {:?} is gone", answer.invalidated_rkey());
    if answer.invalidated_rkey() != Some(region.rkey()) || region.is_valid() {
        return Err("the key should have been invalidated".into());
    }
    let _done = server.done(22)?;

    // A READ with the former key fails.
    server.qp.post_send(&SendRequest::read(copy.slice(..)?, there).wr_id(23))?;
    match server.cq.wait_one(TIMEOUT) {
        Err(WaitError::Failed(refused)) if refused.status == WcStatus::RemAccessErr => {
            println!("READ under the former key: {refused}");
            Ok(())
        }
        other => Err(format!("the former key should have been refused: {other:?}").into()),
    }
}
