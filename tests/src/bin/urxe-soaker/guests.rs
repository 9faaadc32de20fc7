//! Short connections by `rdma_cm`: a client connects, sends one message, gets it back and
//! disconnects.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use urxe::cm::{self, Connection, Listener, Options};
use urxe::{Access, Device, MemoryRegion, ProtectionDomain, RecvRequest, SendRequest, WcOpcode};

use crate::content::fill;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The length of the message in bytes.
const LEN: usize = 10_000;
const TIMEOUT: Duration = Duration::from_secs(20);

/// The connected clients of this process.
pub struct Guests {
    pd: ProtectionDomain,
    listener: Listener,
    connected: Vec<(Connection, MemoryRegion)>,
    pub served: u64,
}

impl Guests {
    /// Listens at an address and port.
    pub fn listen(device: &Device, pd: &ProtectionDomain, at: &str) -> Result<Self> {
        let listener = Listener::builder().device(device).bind(at)?;
        Ok(Self { pd: pd.clone(), listener, connected: Vec::new(), served: 0 })
    }

    /// Accepts new clients, answers messages, and forgets the clients that have disconnected.
    pub fn serve(&mut self) -> Result<()> {
        while let Some(request) = self.listener.try_next() {
            let pending = request.prepare(&options(&self.pd))?;
            let region = self.pd.allocate(LEN, Access::LOCAL_WRITE)?;
            pending.qp().post_recv(&RecvRequest::new(region.slice(..)?))?;
            self.connected.push((pending.establish()?, region));
        }
        let served = &mut self.served;
        let mut result = Ok(());
        self.connected.retain(|(connection, region)| {
            match answer(connection, region) {
                Ok(answers) => *served += answers,
                Err(error) => result = Err(error),
            }
            connection.events().try_next().is_none()
        });
        result
    }
}

fn options(pd: &ProtectionDomain) -> Options {
    Options::new().pd(pd).timeout(TIMEOUT)
}

/// Sends received messages back. Returns their number.
fn answer(connection: &Connection, region: &MemoryRegion) -> Result<u64> {
    let mut answers = 0;
    while let Some(done) = connection.recv_cq().poll_one()? {
        if done.status.is_success() && done.opcode == WcOpcode::Recv {
            let message = region.slice(..done.byte_len as usize)?;
            connection.qp().post_send(&SendRequest::send(message))?;
            answers += 1;
        }
    }
    Ok(answers)
}

/// Connects from an address to a listener, sends a message, and verifies the answer.
pub fn visit(pd: &ProtectionDomain, from: IpAddr, to: SocketAddr, content: u64) -> Result<()> {
    let pending = cm::prepare(to, &options(pd).source_ip(from))?;
    let region = pd.allocate(2 * LEN, Access::LOCAL_WRITE)?;
    pending.qp().post_recv(&RecvRequest::new(region.slice(LEN..)?))?;
    let connection = pending.establish()?;
    let mut message = vec![0; LEN];
    fill(content, 0, &mut message);
    region.write(0, &message)?;
    connection.qp().post_send(&SendRequest::send(region.slice(..LEN)?))?;
    let received = connection.recv_cq().wait_one(Some(TIMEOUT));
    let _ = received.map_err(|error| format!("a connection by rdma_cm fails: {error}"))?;
    if region.read_vec(LEN, LEN)? != message {
        return Err("wrong: the answer over rdma_cm differs".into());
    }
    connection.disconnect();
    Ok(())
}

/// Opens a second device, sends a message from one of its queue pairs to itself, and closes it.
pub fn open_and_close(address: IpAddr, content: u64) -> Result<()> {
    let device = Device::open_address(address)?;
    let (pd, cq) = (device.alloc_pd()?, device.create_cq(8)?);
    let qp = pd.queue_pair(&cq).create()?;
    qp.connect(&qp.endpoint(), &urxe::ConnectOptions::default())?;
    let region = pd.allocate(2 * LEN, Access::LOCAL_WRITE)?;
    qp.post_recv(&RecvRequest::new(region.slice(LEN..)?))?;
    let mut message = vec![0; LEN];
    fill(content, 0, &mut message);
    region.write(0, &message)?;
    qp.post_send(&SendRequest::send(region.slice(..LEN)?).signaled())?;
    for _ in 0..2 {
        let done = cq.wait_one(Some(TIMEOUT));
        let _ = done.map_err(|error| format!("a device that was just opened fails: {error}"))?;
    }
    match region.read_vec(LEN, LEN)? == message {
        true => Ok(()),
        false => Err("wrong: the message of a device to itself differs".into()),
    }
}
