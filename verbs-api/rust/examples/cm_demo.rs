//! A client connects and announces memory. The server reads the memory and invalidates its key.
//!
//! This is a typical first program of kernel modules that use `rdma_cm`.
//!
//! ```text
//!   client                                         server
//!   connect ("demo 1") --------------------------> CONNECT_REQUEST
//!                      <-------------------------- accept ("demo 1")
//!   REG_MR, SEND address, length, key -----------> RECV
//!                      <-------------------------- READ
//!   RECV, key invalidated <----------------------- SEND "done", with invalidate
//!   disconnect ----------------------------------> DISCONNECTED
//! ```
//!
//! The server rejects clients with another version, and its answer has its own version.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use urxe::cm::{self, ConnectError, Connection, ConnectionEvent, Listener, Options, Pending};
use urxe::{Access, Data, Device, MemoryRegion, RecvRequest, RemoteRegion, SendRequest};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 3;
const PAGE: usize = 4096;
const VERSION: &[u8] = b"demo 1";
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

struct End {
    connection: Connection,
    inbox: MemoryRegion,
}

impl End {
    /// Posts a receive before the peer can send.
    fn establish(pending: Pending) -> Result<Self> {
        let inbox = pending.pd().allocate(PAGE, Access::LOCAL_WRITE)?;
        pending.qp().post_recv(&RecvRequest::new(inbox.slice(..)?))?;
        Ok(Self { connection: pending.establish()?, inbox })
    }

    fn perform(&self, request: SendRequest<'_>) -> Result<()> {
        self.connection.qp().post_send(&request.signaled())?;
        let _sent = self.connection.send_cq().wait_one(TIMEOUT)?;
        Ok(())
    }

    fn hear(&self) -> Result<String> {
        let message = self.connection.recv_cq().wait_one(TIMEOUT)?;
        let text = String::from_utf8(self.inbox.read_vec(0, message.byte_len as usize)?)?;
        self.connection.qp().post_recv(&RecvRequest::new(self.inbox.slice(..)?))?;
        Ok(text)
    }
}

/// Returns the bytes that the server reads in a round.
fn content(round: usize) -> Vec<u8> {
    format!("round {round}: data of the client").into_bytes()
}

fn serve(listener: &Listener) -> Result<()> {
    let request = loop {
        let request = listener.wait(TIMEOUT)?;
        match request.peer_private_data().starts_with(VERSION) {
            true => break request,
            false => request.reject(VERSION)?,
        }
    };
    let end = End::establish(request.prepare(&Options::new().private_data(VERSION))?)?;
    let target = end.connection.pd().allocate(PAGE, Access::LOCAL_WRITE)?;
    for round in 0..ROUNDS {
        let there: RemoteRegion = end.hear()?.parse()?;
        end.perform(SendRequest::read(target.slice(..there.len as usize)?, there))?;
        if target.read_vec(0, there.len as usize)? != content(round) {
            return Err(format!(
                "round {round}: the server read other bytes than the client wrote"
            )
            .into());
        }
        end.perform(SendRequest::send_invalidate(Data::inline(b"done"), there.rkey))?;
    }
    match end.connection.events().wait(TIMEOUT)? {
        ConnectionEvent::Disconnected => Ok(()),
        other => Err(format!("{other} instead of the end").into()),
    }
}

fn announce(device: &Device, to: SocketAddr) -> Result<()> {
    let options = Options::new().device(device);
    match cm::prepare(to, &options.clone().private_data(b"demo 0"))?.establish() {
        Err(ConnectError::Rejected { peer_private_data, .. })
            if peer_private_data.starts_with(VERSION) => {}
        other => return Err(format!("version 0 should be refused, not {other:?}").into()),
    }
    let end = End::establish(cm::prepare(to, &options.private_data(VERSION))?)?;
    let buffer = end.connection.pd().allocate(PAGE, Access::LOCAL_WRITE)?;
    let mut region = end.connection.pd().alloc_fast_region(1)?;
    region.map(&buffer, 0..PAGE, 0x40_0000)?;
    for round in 0..ROUNDS {
        let data = content(round);
        buffer.write(0, &data)?;
        region.renew_key();
        end.perform(SendRequest::register(&region, Access::LOCAL_WRITE | Access::REMOTE_READ))?;
        let announced = region.remote().slice(..data.len() as u64)?;
        println!("client: {announced}");
        end.perform(SendRequest::send(Data::inline(announced.to_string().as_bytes())))?;
        if end.hear()? != "done" {
            return Err("the server should have said that it is done".into());
        }
        if region.is_valid() {
            return Err("the server should have taken the key away".into());
        }
    }
    end.connection.disconnect();
    Ok(())
}

pub(crate) fn main() -> Result<()> {
    let here = Device::open_address(Ipv4Addr::new(127, 49, 15, 1))?;
    let there = Device::open_address(Ipv4Addr::new(127, 49, 15, 2))?;
    let listener = Listener::builder().device(&here).bind("0.0.0.0:0")?;
    let to = (Ipv4Addr::new(127, 49, 15, 1), listener.local_addr().port()).into();
    thread::scope(|threads| {
        let serving = threads.spawn(|| serve(&listener));
        let announced = announce(&there, to);
        let served = serving.join().map_err(|_| "the server panicked")?;
        announced.and(served)
    })
}
