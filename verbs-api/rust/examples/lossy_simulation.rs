//! A test of a small protocol over a bad network, in virtual time and in one thread.
//!
//! The protocol is a log. The writer appends a record by RDMA WRITE, then moves the end mark by
//! WRITE with immediate data. The reader then takes the new records. It must read each record once
//! and in order, whatever the network does. `SEED=3 cargo run --example lossy_simulation` replays
//! one run.

use std::error::Error;
use std::time::Duration;

use urxe::sim::{Fabric, LinkFaults, PausedPackets, Probability};
use urxe::{
    Access, CompletionQueue, ConnectOptions, Data, Device, Gather, MemoryRegion, QueuePair,
    RecvRequest, SendRequest,
};

const RECORDS: u32 = 300;
const RECORD_LEN: usize = 3000;

/// The code under test uses no type of the simulation.
struct Writer {
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
}

struct Reader {
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
}

impl Writer {
    fn append(&self, nr: u32, log: urxe::RemoteRegion) -> Result<(), Box<dyn Error>> {
        self.region.write(0, &record(nr))?;
        let place = log.slice((nr as usize * RECORD_LEN) as u64..)?;
        self.qp.post_send_batch(&[
            SendRequest::write(self.region.slice(..)?, place),
            SendRequest::write_imm(Data::EMPTY, log, nr + 1).signaled(),
        ])?;
        let _appended = self.cq.wait_one(None)?;
        Ok(())
    }
}

impl Reader {
    /// Takes the records since `end` and returns the new end.
    fn take(&self, end: u32) -> Result<u32, Box<dyn Error>> {
        let completion = self.cq.wait_one(None)?;
        let new_end = completion.imm_data().ok_or("a message without an end mark")?;
        for nr in end..new_end {
            let got = self.region.read_vec(nr as usize * RECORD_LEN, RECORD_LEN)?;
            if got != record(nr) {
                return Err(format!("record {nr} differs from the appended one").into());
            }
        }
        self.qp.post_recv(&RecvRequest::new(Gather::EMPTY))?;
        Ok(new_end)
    }
}

fn record(nr: u32) -> Vec<u8> {
    (0..RECORD_LEN as u32).map(|i| (i.wrapping_mul(31) ^ nr.wrapping_mul(97)) as u8).collect()
}

fn ends(a: &Device, b: &Device) -> Result<(Writer, Reader), Box<dyn Error>> {
    let (pd_a, pd_b) = (a.alloc_pd()?, b.alloc_pd()?);
    let (cq_a, cq_b) = (a.create_cq(16)?, b.create_cq(16)?);
    let (qp_a, qp_b) = (pd_a.queue_pair(&cq_a).create()?, pd_b.queue_pair(&cq_b).create()?);
    qp_a.connect(&qp_b.endpoint(), &ConnectOptions::default())?;
    qp_b.connect(&qp_a.endpoint(), &ConnectOptions::default())?;
    let record = pd_a.allocate(RECORD_LEN, Access::empty())?;
    let log =
        pd_b.allocate(RECORDS as usize * RECORD_LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    for _ in 0..8 {
        qp_b.post_recv(&RecvRequest::new(Gather::EMPTY))?;
    }
    Ok((Writer { cq: cq_a, qp: qp_a, region: record }, Reader { cq: cq_b, qp: qp_b, region: log }))
}

/// Performs one run and returns the hash of all events in the network.
fn run(seed: u64) -> Result<u64, Box<dyn Error>> {
    let fabric = Fabric::new(seed);
    fabric.set_faults(LinkFaults {
        loss: Probability::from_percent(5),
        duplicate: Probability::from_percent(2),
        reorder: Probability::from_percent(5),
        corrupt: Probability::from_percent(1),
        ..LinkFaults::default()
    });
    let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
    let (writer, reader) = ends(&a, &b)?;
    let mut end = 0;
    for nr in 0..RECORDS {
        if nr == RECORDS / 2 {
            // The cable is unplugged. The timeouts of the connection tolerate 200 ms.
            fabric.pause(&b, PausedPackets::Drop, Duration::from_millis(200))?;
        }
        writer.append(nr, reader.region.remote())?;
        end = reader.take(end)?;
    }
    if end != RECORDS {
        return Err(format!("{end} records of {RECORDS}").into());
    }
    let counters = fabric.counters();
    println!(
        "seed {seed}: {RECORDS} records right, {} of virtual time, \
         {} packets, {} lost, {} twice, {} damaged",
        fabric.now(),
        counters.sent,
        counters.lost + counters.paused,
        counters.duplicated,
        counters.corrupted
    );
    Ok(fabric.trace_hash())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse()?],
        Err(_) => (1..=5).collect(),
    };
    for seed in seeds {
        if run(seed).map_err(|error| format!("seed {seed}: {error}"))? != run(seed)? {
            return Err(format!("seed {seed} did not replay").into());
        }
    }
    Ok(())
}
