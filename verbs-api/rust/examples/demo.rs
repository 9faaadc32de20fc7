//! A client announces memory and a server reads it. Each completion calls the function of its
//! request.
//!
//! This is a typical first program of kernel modules that use `rdma_rxe`.
//!
//! ```text
//!   client                                         server
//!   REG_MR with the next key     reg_mr_done
//!   SEND address, length, key -------------------> recv_done     REG_MR of the target
//!                             <------------------- READ          read_done, LOCAL_INV
//!   recv_done                 <------------------- SEND "done"   send_done
//!   LOCAL_INV                    invalidate_done
//! ```
//!
//! Messages use memory without a registration, under the local DMA key of the protection domain.
//! The READ uses a fast-registration region at both ends, as in the kernel.
//!
//! At the end, the server uses an invalid key. This moves both queue pairs to the error state,
//! where requests complete with status 5 (flushed). In RESET, the queue pair refuses requests.

use std::error::Error;
use std::net::Ipv4Addr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use urxe::{
    Access, AddressSpace, Completion, CompletionQueue, ConnectOptions, Device, FastRegion,
    MemoryRegion, PostError, ProtectionDomain, QpState, QueuePair, RecvRequest, RegionSlice,
    RemoteRegion, SendRequest, WaitError, WcStatus,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 3;
const PAGE: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(10);

// The functions that completions call.
const RECV: u64 = 1;
const SEND: u64 = 2;
const REG_MR: u64 = 3;
const READ: u64 = 4;
const LOCAL_INV: u64 = 5;

/// Memory for a message, which any thread may write.
struct Page(Vec<AtomicU8>);

impl Page {
    fn new() -> Self {
        Self((0..PAGE).map(|_| AtomicU8::new(0)).collect())
    }

    fn write(&self, bytes: &[u8]) {
        self.0.iter().zip(bytes).for_each(|(place, byte)| place.store(*byte, Ordering::Relaxed));
    }

    fn read(&self, len: usize) -> Vec<u8> {
        self.0.iter().take(len).map(|place| place.load(Ordering::Relaxed)).collect()
    }
}

struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    // This field is dropped before the memory that its requests use.
    qp: QueuePair,
    everything: AddressSpace,
    inbox: Page,
    outbox: Page,
}

impl End {
    fn open(address: Ipv4Addr) -> Result<Self> {
        let pd = Device::open_address(address)?.alloc_pd()?;
        let cq = pd.device().create_cq(2 * 128)?;
        let qp = pd.queue_pair(&cq).create()?;
        // SAFETY: only `part` makes slices, and this is the first key of the protection domain.
        let everything = unsafe { pd.local_dma_key() }?;
        Ok(Self { pd, cq, qp, everything, inbox: Page::new(), outbox: Page::new() })
    }

    fn part(&self, page: &Page, len: usize) -> RegionSlice<'_> {
        let addr = NonNull::from(page.0.as_slice()).cast();
        // SAFETY: the pages of an end are atomics and are dropped after its queue pair.
        unsafe { self.everything.slice(addr, len.min(page.0.len()) as u32) }
    }

    fn post_recv(&self) -> Result<()> {
        Ok(self.qp.post_recv(&RecvRequest::new(self.part(&self.inbox, PAGE)).wr_id(RECV))?)
    }

    fn send(&self, text: &str) -> Result<()> {
        self.outbox.write(text.as_bytes());
        let message = self.part(&self.outbox, text.len());
        Ok(self.qp.post_send(&SendRequest::send(message).wr_id(SEND).signaled())?)
    }

    fn received(&self, completion: &Completion) -> Result<String> {
        Ok(String::from_utf8(self.inbox.read(completion.byte_len as usize))?)
    }
}

struct Client {
    end: End,
    buffer: MemoryRegion,
    region: FastRegion,
    round: usize,
}

impl Client {
    /// Returns the bytes that the server reads in a round.
    fn content(round: usize) -> Vec<u8> {
        format!("round {round}: data of the client").into_bytes()
    }

    fn register(&mut self) -> Result<()> {
        self.buffer.write(0, &Self::content(self.round))?;
        // The low eight bits of the key change, so a former key gives no access.
        self.region.renew_key();
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        Ok(self
            .end
            .qp
            .post_send(&SendRequest::register(&self.region, rights).wr_id(REG_MR).signaled())?)
    }

    fn done(&mut self, completion: &Completion) -> Result<()> {
        match completion.wr_id {
            REG_MR => self.reg_mr_done(),
            SEND => Ok(()),
            RECV => self.recv_done(completion),
            _ => self.invalidate_done(),
        }
    }

    fn reg_mr_done(&self) -> Result<()> {
        self.end.post_recv()?;
        let announced = self.region.remote().slice(..Self::content(self.round).len() as u64)?;
        println!("client: {announced}");
        self.end.send(&announced.to_string())
    }

    fn recv_done(&self, completion: &Completion) -> Result<()> {
        if self.end.received(completion)? != "done" {
            return Err("the server should have said that it is done".into());
        }
        let invalidate = SendRequest::invalidate(self.region.rkey()).wr_id(LOCAL_INV).signaled();
        Ok(self.end.qp.post_send(&invalidate)?)
    }

    fn invalidate_done(&mut self) -> Result<()> {
        self.round += 1;
        if self.round < ROUNDS { self.register() } else { Ok(()) }
    }
}

struct Server {
    end: End,
    target: MemoryRegion,
    region: FastRegion,
    announced: Option<RemoteRegion>,
    read: Vec<Vec<u8>>,
    answered: usize,
}

impl Server {
    fn done(&mut self, completion: &Completion) -> Result<()> {
        match completion.wr_id {
            RECV => self.recv_done(completion),
            READ => self.read_done(completion),
            _ => {
                self.answered += 1;
                Ok(())
            }
        }
    }

    fn recv_done(&mut self, completion: &Completion) -> Result<()> {
        let there: RemoteRegion = self.end.received(completion)?.parse()?;
        self.announced = Some(there);
        self.end.post_recv()?;
        self.read_from(there)
    }

    fn read_from(&mut self, there: RemoteRegion) -> Result<()> {
        self.region.renew_key();
        // Later requests in the queue may use the key at once.
        self.end.qp.post_send(&SendRequest::register(&self.region, Access::LOCAL_WRITE))?;
        let into = self.region.slice(..there.len as usize)?;
        Ok(self.end.qp.post_send(&SendRequest::read(into, there).wr_id(READ).signaled())?)
    }

    fn read_done(&mut self, completion: &Completion) -> Result<()> {
        self.end.qp.post_send(&SendRequest::invalidate(self.region.rkey()))?;
        self.read.push(self.target.read_vec(0, completion.byte_len as usize)?);
        self.end.send("done")
    }
}

/// Takes the next completion, which must have this status.
fn expect(end: &End, wr_id: u64, status: WcStatus) -> Result<()> {
    let (got_wr_id, got) = match end.cq.wait_one(Some(TIMEOUT)) {
        Ok(completion) => (completion.wr_id, completion.status),
        Err(WaitError::Failed(error)) => (error.wr_id, error.status),
        Err(error) => return Err(error.into()),
    };
    println!("{got_wr_id}: status {} ({got})", got as u32);
    match (got_wr_id, got) == (wr_id, status) {
        true => Ok(()),
        false => Err(format!("expected {status} of {wr_id}, not {got} of {got_wr_id}").into()),
    }
}

pub(crate) fn main() -> Result<()> {
    let end = End::open(Ipv4Addr::new(127, 49, 12, 1))?;
    let buffer = end.pd.allocate(PAGE, Access::LOCAL_WRITE)?;
    let mut region = end.pd.alloc_fast_region(1)?;
    region.map(&buffer, 0..PAGE, 0x40_0000)?;
    let mut client = Client { end, buffer, region, round: 0 };
    let end = End::open(Ipv4Addr::new(127, 49, 12, 2))?;
    let target = end.pd.allocate(PAGE, Access::LOCAL_WRITE)?;
    let mut region = end.pd.alloc_fast_region(1)?;
    region.map(&target, 0..PAGE, 0)?;
    let mut server = Server { end, target, region, announced: None, read: Vec::new(), answered: 0 };
    client.end.qp.connect(&server.end.qp.endpoint(), &ConnectOptions::default())?;
    server.end.qp.connect(&client.end.qp.endpoint(), &ConnectOptions::default())?;

    server.end.post_recv()?;
    client.register()?;
    let started = Instant::now();
    while client.round < ROUNDS || server.answered < ROUNDS {
        if let Some(completion) = client.end.cq.poll_one()? {
            assert_success(&completion)?;
            client.done(&completion)?;
        }
        if let Some(completion) = server.end.cq.poll_one()? {
            assert_success(&completion)?;
            server.done(&completion)?;
        }
        if started.elapsed() > TIMEOUT {
            return Err("nothing completes any more".into());
        }
    }
    let expected: Vec<_> = (0..ROUNDS).map(Client::content).collect();
    if server.read != expected {
        return Err("the server read other bytes than the client wrote".into());
    }

    // The key is invalid. Using it ends the connection at both ends.
    client.end.post_recv()?;
    let Some(gone) = server.announced else { return Err("nothing was announced".into()) };
    server.read_from(gone)?;
    expect(&server.end, READ, WcStatus::RemAccessErr)?;
    expect(&server.end, RECV, WcStatus::WrFlushErr)?;
    expect(&client.end, RECV, WcStatus::WrFlushErr)?;
    client.end.send("too late")?;
    expect(&client.end, SEND, WcStatus::WrFlushErr)?;
    client.end.qp.reset()?;
    match client.end.qp.post_send(&SendRequest::send(client.end.part(&client.end.outbox, 1))) {
        Err(error @ PostError::State { state: QpState::Reset }) => println!("client: {error}"),
        other => {
            return Err(format!("a queue pair in RESET should take nothing, not {other:?}").into());
        }
    }
    Ok(())
}

fn assert_success(completion: &Completion) -> Result<()> {
    match completion.status.is_success() {
        true => Ok(()),
        false => Err(format!("{completion:?}").into()),
    }
}
