//! Two ends exchange messages and check every byte.
//!
//! `cargo run --example ping_pong` runs both ends in one process, over UDP on two loopback
//! addresses. The server has a thread of its own. On two machines, the endpoints would be exchanged
//! over TCP, also as lines of text.

use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use urxe::{
    Access, CompletionQueue, ConnectOptions, Device, MemoryRegion, QueuePair, RecvRequest,
    SendRequest,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: u8 = 200;
const LEN: usize = 4096;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

/// One end. It sends from the first half of its region and receives into the second half.
struct End {
    sends: CompletionQueue,
    receives: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
}

impl End {
    /// Opens a device, posts a receive before the peer can send, and connects.
    fn connect(address: Ipv4Addr, tell: &Sender<String>, hear: &Receiver<String>) -> Result<Self> {
        let device = Device::open_address(address)?;
        let pd = device.alloc_pd()?;
        let (sends, receives) = (device.create_cq(16)?, device.create_cq(16)?);
        let qp = pd.queue_pair(&sends).recv_cq(&receives).signal_all(true).create()?;
        let region = pd.allocate(2 * LEN, Access::LOCAL_WRITE)?;
        let end = Self { sends, receives, qp, region };

        let options = ConnectOptions::default();
        end.qp.init(&options)?;
        end.make_room()?;
        tell.send(end.qp.endpoint().to_string())?;
        end.qp.connect(&hear.recv()?.parse()?, &options)?;
        Ok(end)
    }

    fn make_room(&self) -> Result<()> {
        Ok(self.qp.post_recv(&RecvRequest::new(self.region.slice(LEN..)?))?)
    }

    fn send(&self, content: u8) -> Result<()> {
        self.region.write(0, &[content; LEN])?;
        self.qp.post_send(&SendRequest::send(self.region.slice(..LEN)?))?;
        let _sent = self.sends.wait_one(TIMEOUT)?;
        Ok(())
    }

    fn receive(&self, content: u8) -> Result<()> {
        let _received = self.receives.wait_one(TIMEOUT)?;
        if self.region.read_vec(LEN, LEN)? != [content; LEN] {
            return Err(format!("the message is not {LEN} times {content}").into());
        }
        self.make_room()
    }
}

pub(crate) fn main() -> Result<()> {
    let (tell_server, server_hears) = channel();
    let (tell_client, client_hears) = channel();
    let server = thread::spawn(move || -> Result<()> {
        let end = End::connect(Ipv4Addr::new(127, 49, 1, 2), &tell_client, &server_hears)?;
        for round in 0..ROUNDS {
            end.receive(round)?;
            end.send(!round)?;
        }
        Ok(())
    });
    let end = End::connect(Ipv4Addr::new(127, 49, 1, 1), &tell_server, &client_hears)?;
    let started = Instant::now();
    for round in 0..ROUNDS {
        end.send(round)?;
        end.receive(!round)?;
    }
    let each = started.elapsed() / u32::from(ROUNDS);
    server.join().map_err(|_| "the server panicked")??;
    println!(
        "{ROUNDS} messages of {LEN} bytes went to and fro, each in {each:?}, \
         and every byte was right"
    );
    Ok(())
}
