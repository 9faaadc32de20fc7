//! A log in a file of another host. Its records survive a power failure of that host, and no
//! program of that host takes part.
//!
//! ```text
//!   writer                                        the log's host: a mapped file
//!   WRITE the record       --------------------->  after the last record
//!   FLUSH the record       --------------------->  the record is on the disk
//!   ATOMIC WRITE the end   --------------------->  the record belongs to the log
//!   FLUSH the end          --------------------->  the end is on the disk
//! ```
//!
//! The writer posts the four requests together. The host executes them in order.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::net::Ipv4Addr;
use std::time::Duration;

use urxe::{
    Access, CompletionQueue, ConnectOptions, Device, MapFileError, MemoryRegion, PlacementType,
    ProtectionDomain, QueuePair, RegMrError, RemoteRegion, SendRequest,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LEN: usize = 1 << 16;
/// The offset of the end mark, and the offset of the first record.
const END: u64 = 0;
const FIRST: u64 = 64;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));
const RIGHTS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::FLUSH_GLOBAL);

/// Maps the log. Returns the placement that a FLUSH can achieve.
fn map(pd: &ProtectionDomain, file: &File) -> Result<(MemoryRegion, PlacementType)> {
    match pd.map_file(file, 0, LEN, RIGHTS | Access::FLUSH_PERSISTENT) {
        Ok(log) => Ok((log, PlacementType::PERSISTENCE)),
        Err(MapFileError::Register(error @ RegMrError::NotPersistent { .. })) => {
            println!("the log survives the program, but no power failure: {error}");
            Ok((pd.map_file(file, 0, LEN, RIGHTS)?, PlacementType::GLOBAL_VISIBILITY))
        }
        Err(error) => Err(error.into()),
    }
}

struct Writer {
    cq: CompletionQueue,
    qp: QueuePair,
    outbox: MemoryRegion,
    log: RemoteRegion,
    placement: PlacementType,
    end: u64,
}

impl Writer {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        let (start, len) = (self.end, record.len());
        self.end += len as u64;
        self.outbox.write(8, record)?;
        self.outbox.store_u64(0, self.end)?;
        let there = self.log.slice(start..self.end)?;
        let end = self.log.slice(END..END + 8)?;
        self.qp.post_send_batch(&[
            SendRequest::write(self.outbox.slice(8..8 + len)?, there),
            SendRequest::flush(there, len as u32, self.placement),
            SendRequest::atomic_write(self.outbox.slice(..8)?, end),
            SendRequest::flush(end, 8, self.placement).signaled(),
        ])?;
        let _done = self.cq.wait_one(TIMEOUT)?;
        Ok(())
    }
}

pub(crate) fn main() -> Result<()> {
    // The file is next to the program, because the folder of temporary files is often in memory.
    let path = std::env::current_exe()?.with_extension(format!("log-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    file.set_len(LEN as u64)?;

    let host = Device::open_address(Ipv4Addr::new(127, 49, 15, 1))?.alloc_pd()?;
    let (log, placement) = map(&host, &file)?;
    log.store_u64(END as usize, FIRST)?;
    let host_cq = host.device().create_cq(1)?;
    let host_qp = host.queue_pair(&host_cq).create()?;

    let pd = Device::open_address(Ipv4Addr::new(127, 49, 15, 2))?.alloc_pd()?;
    let cq = pd.device().create_cq(16)?;
    let qp = pd.queue_pair(&cq).create()?;
    qp.connect(&host_qp.endpoint(), &ConnectOptions::default())?;
    host_qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    let outbox = pd.allocate(4096, Access::empty())?;
    let mut writer = Writer { cq, qp, outbox, log: log.remote(), placement, end: FIRST };
    for record in ["one;", "two;", "three;"] {
        writer.append(record.as_bytes())?;
    }

    // After a power failure, a program would have only the file.
    let mut found = Vec::new();
    file.read_to_end(&mut found)?;
    let (end, records) = found.split_at(FIRST as usize);
    let end = u64::from_ne_bytes(end[..8].try_into()?);
    let records = std::str::from_utf8(&records[..(end - FIRST) as usize])?;
    println!("the log holds {records}");
    if records == "one;two;three;" {
        Ok(())
    } else {
        Err("the log differs from the written records".into())
    }
}
