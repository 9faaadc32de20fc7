//! The counterpart of `tests/kernel/guest/group.c` over urxe: the same messages and the same
//! output.
//!
//! ```sh
//! urxe-group --address 10.77.0.1 -m 239.77.0.1 -l       # listens
//! urxe-group --address 10.77.0.2 -m 239.77.0.1          # sends
//! ```
//! With `--mckey`, the messages are those of rdma-core's `mckey`: the same Q_Key and size, and
//! arbitrary bytes.

use std::error::Error;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use urxe::{
    Access, AddressVector, CompletionQueue, Counter, Device, GRH_LEN, Gid, MemoryRegion,
    ProtectionDomain, QKey, QpType, QueuePair, RecvRequest, SendRequest, WcFlags, WcOpcode,
    WcStatus,
};
use urxe_tests::kernel::{Counters, peer::pattern};

const QKEY: QKey = QKey(0x4d43_4153);
/// The Q_Key of the port space of `rdma_join_multicast` (RDMA_UDP_QKEY).
const MCKEY_QKEY: QKey = QKey(0x0123_4567);
const HOP_LIMIT: u8 = 4;
const STALL_LIMIT: Duration = Duration::from_secs(20);

/// Sends to a multicast group, or receives from one, and verifies every byte.
#[derive(Debug, Parser)]
struct Arguments {
    /// This end's address
    #[arg(long)]
    address: IpAddr,
    /// The group
    #[arg(short = 'm')]
    group: IpAddr,
    /// Receive messages
    #[arg(short)]
    listen: bool,
    /// Number of messages
    #[arg(short = 'n', default_value_t = 32)]
    count: u32,
    /// Size of each message in bytes
    #[arg(short, default_value_t = 100)]
    size: usize,
    /// Number of receiving queue pairs
    #[arg(short = 'q', default_value_t = 1)]
    queue_pairs: u32,
    /// Send or expect the messages of `mckey`
    #[arg(long)]
    mckey: bool,
}

struct Resources {
    device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
    qkey: QKey,
}

impl Resources {
    fn open(arguments: &Arguments) -> Result<Self, Box<dyn Error>> {
        let device = Device::open_address(arguments.address)?;
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(4096)?;
        let region = pd
            .allocate((GRH_LEN + arguments.size) * arguments.count as usize, Access::LOCAL_WRITE)?;
        let qkey = if arguments.mckey { MCKEY_QKEY } else { QKEY };
        Ok(Self { device, pd, cq, region, qkey })
    }

    fn queue_pair(&self) -> Result<QueuePair, Box<dyn Error>> {
        let qp = self.pd.queue_pair(&self.cq).qp_type(QpType::Ud).max_recv_wr(256).create()?;
        qp.start_datagrams(self.qkey)?;
        Ok(qp)
    }

    fn counters(&self) -> String {
        Counters::line_of(&self.device)
    }
}

fn content(message: u32, len: usize) -> Vec<u8> {
    (0..len).map(|byte| pattern(message, byte)).collect()
}

fn send(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let resources = Resources::open(arguments)?;
    let qp = resources.queue_pair()?;
    let way = resources.pd.address_handle_with(&AddressVector {
        dgid: Gid::from_ip(arguments.group),
        is_global: true,
        sgid_index: resources.device.default_gid_index(),
        hop_limit: HOP_LIMIT,
        port_num: 1,
        ..AddressVector::default()
    })?;
    for message in 0..arguments.count {
        resources.region.write(0, &content(message, arguments.size))?;
        let data = resources.region.slice(..arguments.size)?;
        qp.post_send(
            &SendRequest::send_imm(data, message).to_group(&way, resources.qkey).signaled(),
        )?;
        let sent = resources.cq.wait_one(Some(STALL_LIMIT));
        let _ = sent.map_err(|error| format!("{error}, at message {message}"))?;
    }
    println!("OK {}", arguments.count);
    eprintln!("counters: {}", resources.counters());
    Ok(())
}

fn listen(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let resources = Resources::open(arguments)?;
    let slot = GRH_LEN + arguments.size;
    let all = arguments.count * arguments.queue_pairs;
    let mut listening = Vec::new();
    for _ in 0..arguments.queue_pairs {
        let qp = resources.queue_pair()?;
        qp.attach_mcast(Gid::from_ip(arguments.group))?;
        for message in 0..arguments.count as usize {
            // The messages of all queue pairs are equal, so they may share a place.
            let place = resources.region.slice(message * slot..(message + 1) * slot)?;
            qp.post_recv(&RecvRequest::new(place).wr_id(message as u64))?;
        }
        listening.push((qp, 0));
    }
    println!("joined");
    let mut from = None;
    for done in 0..all {
        let completion = resources.cq.wait_one(Some(STALL_LIMIT)).map_err(|error| {
            format!("{error} after {done} of {all} messages; counters: {}", resources.counters())
        })?;
        let (_, next) = listening
            .iter_mut()
            .find(|(qp, _)| qp.qpn() == completion.qp_num)
            .ok_or("a completion of something else")?;
        let message = std::mem::replace(next, *next + 1);
        let flags = WcFlags::GRH | WcFlags::WITH_IMM;
        let as_due = (completion.status, completion.opcode, completion.wr_id, completion.flags())
            == (WcStatus::Success, WcOpcode::Recv, u64::from(message), flags)
            && completion.byte_len as usize == slot;
        if !as_due {
            return Err(format!("{completion:?}, expected message {message}").into());
        }
        let bytes = resources.region.read_vec(message as usize * slot, slot)?;
        let header = urxe_stack::qp::ud::network_header::NetworkHeader::parse(&bytes)?;
        if header.to != arguments.group {
            return Err(format!("a header that names {}", header.to).into());
        }
        from = Some(header.from);
        if arguments.mckey {
            if completion.imm_data() != Some(completion.src_qp.value()) {
                return Err(
                    format!("{:?} is not the sender's queue pair", completion.imm_data()).into()
                );
            }
        } else if completion.imm_data() != Some(message)
            || bytes[GRH_LEN..] != content(message, arguments.size)
        {
            return Err(format!("message {:?}, expected {message}", completion.imm_data()).into());
        }
    }
    let from = from.map(|from| from.to_string()).unwrap_or_default();
    println!("OK {all} from {from}");
    eprintln!("counters: {}", resources.counters());
    match resources.device.counter(Counter::DropNoGroup) {
        0 => Ok(()),
        stray => Err(format!("{stray} packets to groups without a member").into()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let played = if arguments.listen { listen(&arguments) } else { send(&arguments) };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("urxe-group: {error}");
            ExitCode::FAILURE
        }
    }
}
