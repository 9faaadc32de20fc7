//! One connection to several workers of a host (XRC). Each worker grants access to a window of its
//! memory.
//!
//! ```text
//!   client                       host: one target; each worker has a queue and a protection domain
//!   SEND to worker 0, 1, …  -->  the worker binds a window and returns its key
//!   READ through the window -->
//! ```
//!
//! A window of type 1 belongs to a protection domain, so the client of the target can use it. The
//! worker binds the window on a queue pair that is connected to itself.

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::Duration;

use urxe::{
    Access, CompletionQueue, ConnectOptions, Data, Device, MemoryRegion, MemoryWindow, MwType,
    ProtectionDomain, QpType, QueuePair, RecvRequest, RemoteRegion, SendRequest,
    SharedReceiveQueue, WaitError, WcStatus, XrcDomain,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const WORKERS: usize = 3;
const LEN: usize = 4096;
/// The part of the memory to which a worker grants access.
const SHOWN: std::ops::Range<usize> = 1024..1088;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

struct Worker {
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    /// A queue pair that is connected to itself, for binds.
    binder: QueuePair,
    window: MemoryWindow,
    region: MemoryRegion,
    inbox: MemoryRegion,
}

impl Worker {
    fn new(device: &Device, domain: &XrcDomain, number: usize) -> Result<Self> {
        let (pd, cq): (ProtectionDomain, _) = (device.alloc_pd()?, device.create_cq(16)?);
        let srq = pd.shared_receive_queue(8).xrc(domain, &cq).create()?;
        let binder = pd.queue_pair(&cq).create()?;
        binder.connect(&binder.endpoint(), &ConnectOptions::default())?;
        let region = pd.allocate(LEN, Access::LOCAL_WRITE | Access::MW_BIND)?;
        region.write(SHOWN.start, &[number as u8 + 1; SHOWN.end - SHOWN.start])?;
        let inbox = pd.allocate(64, Access::LOCAL_WRITE)?;
        srq.post_recv(&RecvRequest::new(inbox.slice(..)?))?;
        let window = pd.alloc_window_of_type(MwType::Type1)?;
        Ok(Self { srq, cq, binder, window, region, inbox })
    }

    /// Answers a request with a window. Returns the region for the client.
    fn serve(&mut self) -> Result<RemoteRegion> {
        let request = self.cq.wait_one(TIMEOUT)?;
        if self.inbox.read_vec(0, request.byte_len as usize)? != b"show" {
            return Err("that was no request".into());
        }
        let part = self.region.slice(SHOWN)?;
        let bind = SendRequest::bind(&mut self.window, part, Access::REMOTE_READ).signaled();
        self.binder.post_send(&bind)?;
        let _done = self.cq.wait_one(TIMEOUT)?;
        self.window.remote().ok_or_else(|| "it was just bound".into())
    }

    fn hide(&mut self) -> Result<()> {
        self.binder.post_send(&SendRequest::unbind(&mut self.window).signaled())?;
        let _done = self.cq.wait_one(TIMEOUT)?;
        Ok(())
    }
}

pub(crate) fn main() -> Result<()> {
    let host = Device::open_address(Ipv4Addr::new(127, 49, 16, 1))?;
    let domain = host.new_xrc_domain()?;
    let target = domain.target()?;
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        workers.push(Worker::new(&host, &domain, number)?);
    }

    let pd = Device::open_address(Ipv4Addr::new(127, 49, 16, 2))?.alloc_pd()?;
    let cq = pd.device().create_cq(16)?;
    let qp = pd.queue_pair(&cq).qp_type(QpType::XrcSend).create()?;
    qp.connect(&target.endpoint(), &ConnectOptions::default())?;
    target.connect(&qp.endpoint(), &ConnectOptions::default())?;
    let copy = pd.allocate(LEN, Access::LOCAL_WRITE)?;
    for (number, worker) in workers.iter_mut().enumerate() {
        qp.post_send(&SendRequest::send(Data::inline(b"show")).to_srq(worker.srq.id()).signaled())?;
        let _done = cq.wait_one(TIMEOUT)?;
        // In a real program, a message returns the key. Here both ends are one program.
        let shown = worker.serve()?;
        println!("worker {number} shows {shown}");
        let into = copy.slice(..shown.len as usize)?;
        qp.post_send(&SendRequest::read(into, shown).to_srq(worker.srq.id()).signaled())?;
        let _done = cq.wait_one(TIMEOUT)?;
        if copy.read_vec(0, shown.len as usize)? != vec![number as u8 + 1; SHOWN.len()] {
            return Err(format!("worker {number} showed something else").into());
        }
    }

    // After the worker unbinds its window, the client has no access.
    let worker = &mut workers[0];
    let shown = worker.window.remote().ok_or("it is bound")?;
    worker.hide()?;
    let read = SendRequest::read(copy.slice(..8)?, shown).to_srq(worker.srq.id()).signaled();
    qp.post_send(&read)?;
    match cq.wait_one(TIMEOUT) {
        Err(WaitError::Failed(refused)) if refused.status == WcStatus::RemAccessErr => {
            println!("READ after the unbind: {refused}");
            Ok(())
        }
        other => Err(format!("the unbound window should have refused: {other:?}").into()),
    }
}
