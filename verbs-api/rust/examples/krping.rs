//! The RDMA ping of the kernel (krping): the server READs the data of the client and WRITEs it
//! back.
//!
//! ```text
//!   client                               server
//!   announces its source --------------> READs it
//!                        <-------------- "go ahead"
//!   announces its sink   --------------> WRITEs the same data
//!                        <-------------- "go ahead"
//!   compares
//! ```
//!
//! Both ends wait on a completion channel. Arming a completion queue returns whether completions
//! are already present (`IB_CQ_REPORT_MISSED_EVENTS`). These create no event, so the program must
//! poll them before it waits.

use std::error::Error;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use urxe::{
    Access, ArmKind, Completion, CompletionChannel, CompletionQueue, ConnectOptions, Data, Device,
    Gather, MemoryRegion, ProtectionDomain, QueuePair, RecvRequest, RemoteRegion, SendRequest,
    WcStatus,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const COUNT: usize = 20;
const SIZE: usize = 65_000;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

const RECV: u64 = 1;
const DONE: u64 = 2;
const MARKER: u64 = 3;

struct Side {
    pd: ProtectionDomain,
    channel: CompletionChannel,
    cq: CompletionQueue,
    qp: QueuePair,
    inbox: MemoryRegion,
}

impl Side {
    fn open(address: Ipv4Addr) -> Result<Self> {
        let device = Device::open_address(address)?;
        let (pd, channel) = (device.alloc_pd()?, device.create_channel()?);
        let cq = channel.create_cq(16)?;
        let qp = pd.queue_pair(&cq).max_inline_data(128).create()?;
        let inbox = pd.allocate(128, Access::LOCAL_WRITE)?;
        Ok(Self { pd, channel, cq, qp, inbox })
    }

    fn post_recv(&self) -> Result<()> {
        Ok(self.qp.post_recv(&RecvRequest::new(self.inbox.slice(..)?).wr_id(RECV))?)
    }

    /// Waits for the next completion.
    fn next(&self) -> Result<Completion> {
        loop {
            if let Some(completion) = self.cq.poll_one()? {
                return Ok(completion);
            }
            let missed = self.cq.arm(ArmKind::Next);
            if !missed {
                self.channel.wait(TIMEOUT)?;
            }
        }
    }

    fn expect(&self, wr_id: u64) -> Result<Completion> {
        let completion = self.next()?;
        match (completion.wr_id, completion.status) == (wr_id, WcStatus::Success) {
            true => Ok(completion),
            false => Err(format!("expected the success of {wr_id}, not {completion:?}").into()),
        }
    }

    /// Sends a message without a completion, because only awaited requests are signaled.
    fn say(&self, text: &str) -> Result<()> {
        Ok(self.qp.post_send(&SendRequest::send(Data::inline(text.as_bytes())))?)
    }

    fn hear(&self) -> Result<String> {
        let message = self.expect(RECV)?;
        let text = String::from_utf8(self.inbox.read_vec(0, message.byte_len as usize)?)?;
        self.post_recv()?;
        Ok(text)
    }

    /// Drains the connection (`ib_drain_qp`): posts a marker after all other requests of both
    /// queues.
    fn drain(self) -> Result<()> {
        self.qp.set_error()?;
        self.qp.post_send(&SendRequest::send(Data::EMPTY).wr_id(MARKER))?;
        self.qp.post_recv(&RecvRequest::new(Gather::EMPTY).wr_id(MARKER))?;
        let mut markers = 0;
        while markers < 2 {
            let completion = self.next()?;
            if completion.status != WcStatus::WrFlushErr {
                return Err(format!("expected a flush, not {completion:?}").into());
            }
            markers += u32::from(completion.wr_id == MARKER);
        }
        Ok(())
    }
}

fn serve(side: Side) -> Result<()> {
    let buffer = side.pd.allocate(SIZE, Access::LOCAL_WRITE)?;
    for _ in 0..COUNT {
        let source: RemoteRegion = side.hear()?.parse()?;
        side.qp.post_send(&SendRequest::read(buffer.slice(..)?, source).wr_id(DONE).signaled())?;
        let _done = side.expect(DONE)?;
        side.say("go ahead")?;
        let sink: RemoteRegion = side.hear()?.parse()?;
        side.qp.post_send(&SendRequest::write(buffer.slice(..)?, sink).wr_id(DONE).signaled())?;
        let _done = side.expect(DONE)?;
        side.say("go ahead")?;
    }
    // The last message of the client ends the rounds.
    side.hear()?;
    side.drain()
}

fn ping(side: Side) -> Result<()> {
    let source = side.pd.allocate(SIZE, Access::REMOTE_READ)?;
    let sink = side.pd.allocate(SIZE, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    for round in 0..COUNT {
        let data: Vec<u8> = (0..SIZE).map(|at| ((at + round) % 251) as u8).collect();
        source.write(0, &data)?;
        for memory in [&source, &sink] {
            side.say(&memory.remote().to_string())?;
            if side.hear()? != "go ahead" {
                return Err("the server should have let the client go ahead".into());
            }
        }
        if sink.read_vec(0, SIZE)? != data {
            return Err(format!("round {round}: other bytes came back than were sent").into());
        }
    }
    println!("{COUNT} rounds of {SIZE} bytes there and back");
    side.qp.post_send(&SendRequest::send(Data::inline(b"bye")).wr_id(DONE).signaled())?;
    let _done = side.expect(DONE)?;
    side.drain()
}

pub(crate) fn main() -> Result<()> {
    let client = Side::open(Ipv4Addr::new(127, 49, 13, 1))?;
    let server = Side::open(Ipv4Addr::new(127, 49, 13, 2))?;
    client.qp.connect(&server.qp.endpoint(), &ConnectOptions::default())?;
    server.qp.connect(&client.qp.endpoint(), &ConnectOptions::default())?;
    [&client, &server].into_iter().try_for_each(Side::post_recv)?;
    thread::scope(|threads| {
        let serving = threads.spawn(|| serve(server));
        let pinged = ping(client);
        let served = serving.join().map_err(|_| "the server panicked")?;
        pinged.and(served)
    })
}
