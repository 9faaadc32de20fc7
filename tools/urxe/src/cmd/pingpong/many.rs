//! Two hosts with many queue pairs on one shared receive queue. The protocol is that of
//! `ibv_srq_pingpong`, so either end may be that program.
//!
//! ```text
//! both:   one SRQ with rx_depth receives, N queue pairs on it;
//!         exchange 256 addresses over TCP for any N; connect
//! client: SEND on each queue pair
//! server: reply on the queue pair of the received message
//! both:   each queue pair sends again when its last SEND completed and a message arrived,
//!         until n messages in total went each way
//! ```
//! That program uses one buffer for sending and receiving, which is initially zero. This end sends
//! the same pattern in every message, so the other end's buffer holds that pattern after the first
//! message. Hence every received byte is known: the pattern. In the first message of a queue pair,
//! a byte may also have the buffer's initial value. Facts: rdma-core,
//! `libibverbs/examples/srq_pingpong.c`.

use std::collections::HashMap;
use std::time::Instant;

use urxe::{
    Access, AckTimeout, Completion, CompletionQueue, ConnectOptions, Device, MemoryRegion, PathMtu,
    QpEndpoint, Qpn, QueuePair, RecvRequest, SendRequest, SharedReceiveQueue,
};

use super::exchange::Address;
use super::summary::Summary;
use super::two_hosts::{End, LINGER, Plan, Role, STALL_LIMIT, Status};
use super::{PingpongError, Wrong, expect_success};
use crate::traffic::error::TrafficError;
use crate::traffic::{Wait, pattern};

/// Addresses of each end in the exchange; those beyond its queue pairs are zero.
pub const MAX_QPS: u32 = 256;
/// Initial values of the other program's buffer.
const FILLS: [u8; 2] = [0, 0x7b];
/// Completions taken at a time.
const TAKEN_MAX: usize = 32;

/// A queue pair and its outstanding events.
struct QpState {
    qp: QueuePair,
    received: u32,
    receive_due: bool,
    send_due: bool,
}

/// One end of the connection.
struct Ends {
    states: Vec<QpState>,
    by_number: HashMap<Qpn, usize>,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    region: MemoryRegion,
    timeout: AckTimeout,
    message: Vec<u8>,
    scratch: Vec<u8>,
}

/// Runs `plan` with `qps` queue pairs.
pub fn run(
    plan: &Plan,
    device: &Device,
    qps: u32,
    status: &mut dyn Status,
) -> Result<Summary, PingpongError> {
    if plan.args.rx_depth < qps {
        return Err(PingpongError::TooFewReceives { qps, given: plan.args.rx_depth });
    }
    let new = |gid_index| Ends::new(plan, device, gid_index, qps);
    let ends = plan.meet(device, status, new)?;
    let start = Instant::now();
    let verified = ends.run(plan)?;
    let elapsed = start.elapsed();
    // If the last acknowledgements are lost, the peer retransmits and needs a reply.
    std::thread::sleep(LINGER);
    let mut summary =
        Summary::new(plan.args.transport, plan.size, plan.iterations, elapsed, device);
    summary.verified = verified;
    Ok(summary)
}

impl Ends {
    fn new(plan: &Plan, device: &Device, gid_index: u8, qps: u32) -> Result<Self, TrafficError> {
        let pd = device.alloc_pd()?;
        // The send buffer, and one buffer for all receives, as in the other program.
        let region = pd.allocate(2 * plan.size, Access::LOCAL_WRITE)?;
        let mut message = vec![0; plan.size];
        pattern::fill(0, &mut message);
        region.write(0, &message)?;
        let cq = device.create_cq(plan.args.rx_depth + qps)?;
        let srq = pd.shared_receive_queue(plan.args.rx_depth).max_sge(1).create()?;
        let mut states = Vec::new();
        for _ in 0..qps {
            let builder = pd.queue_pair(&cq).shared_receive_queue(&srq).sgid_index(gid_index);
            let qp = builder
                .max_send_wr(1)
                .max_send_sge(1)
                .max_inline_data(0)
                .signal_all(true)
                .create()?;
            qp.init(&ConnectOptions::default())?;
            states.push(QpState { qp, received: 0, receive_due: true, send_due: false });
        }
        let by_number = states.iter().enumerate().map(|(nr, state)| (state.qp.qpn(), nr)).collect();
        let (timeout, scratch) = (plan.timeout(), vec![0; plan.size]);
        let ends = Self { states, by_number, srq, cq, region, timeout, message, scratch };
        ends.post_receives(plan.args.rx_depth)?;
        Ok(ends)
    }

    fn post_receives(&self, count: u32) -> Result<(), TrafficError> {
        let size = self.message.len();
        for _ in 0..count {
            self.srq.post_recv(&RecvRequest::new(self.region.slice(size..2 * size)?))?;
        }
        Ok(())
    }

    fn send(&mut self, nr: usize) -> Result<(), TrafficError> {
        let data = self.region.slice(..self.message.len())?;
        let state = &mut self.states[nr];
        state.qp.post_send(&SendRequest::send(data))?;
        (state.receive_due, state.send_due) = (true, true);
        Ok(())
    }

    /// Runs until all messages are sent and received. Returns the number of verified messages.
    fn run(mut self, plan: &Plan) -> Result<u32, PingpongError> {
        let (total, qps) = (plan.iterations, self.states.len() as u32);
        let is_client = plan.role != Role::Server;
        let (mut receives, mut received, mut sent) = (plan.args.rx_depth, 0, 0);
        if is_client {
            (0..self.states.len()).try_for_each(|nr| self.send(nr))?;
        }
        let mut taken = [Completion::default(); TAKEN_MAX];
        while received < total || sent < total {
            let count = Wait::by(plan.args.events).take(&self.cq, &mut taken, STALL_LIMIT)?;
            if count == 0 {
                return Err(PingpongError::Stalled { limit: STALL_LIMIT });
            }
            for completion in &taken[..count] {
                expect_success(completion)?;
                let Some(nr) = self.by_number.get(&completion.qp_num).copied() else {
                    return Err(PingpongError::UnknownQueuePair { given: completion.qp_num });
                };
                if completion.opcode.is_receive() {
                    self.check(nr, is_client, completion)?;
                    (self.states[nr].receive_due, received) = (false, received + 1);
                    receives -= 1;
                    if receives <= qps {
                        self.post_receives(plan.args.rx_depth - receives)?;
                        receives = plan.args.rx_depth;
                    }
                } else {
                    (self.states[nr].send_due, sent) = (false, sent + 1);
                }
                let state = &self.states[nr];
                if sent < total && !state.receive_due && !state.send_due {
                    self.send(nr)?;
                }
            }
        }
        Ok(received)
    }

    /// Verifies every byte of a message that arrived through queue pair `nr`.
    fn check(
        &mut self,
        nr: usize,
        is_client: bool,
        completion: &Completion,
    ) -> Result<(), PingpongError> {
        let (found, expected) = (completion.byte_len as usize, self.message.len());
        let message = u64::from(self.states[nr].received);
        if found != expected {
            return Err(Wrong::Length { message, found, expected }.into());
        }
        self.region.read(expected, &mut self.scratch)?;
        let first_of_client = !is_client && message == 0;
        let is_right = |found: u8, expected: u8| {
            found == expected || (first_of_client && FILLS.contains(&found))
        };
        let wrong = self.scratch.iter().zip(&self.message).position(|(f, e)| !is_right(*f, *e));
        if let Some(offset) = wrong {
            let (found, expected) = (self.scratch[offset], self.message[offset]);
            return Err(Wrong::Byte(pattern::Mismatch { message, offset, found, expected }).into());
        }
        self.states[nr].received += 1;
        Ok(())
    }
}

impl End for Ends {
    const ADDRESSES: usize = MAX_QPS as usize;

    fn addresses(&self) -> Vec<Address> {
        let address = |state: &QpState| {
            let QpEndpoint { gid, qpn, psn } = state.qp.endpoint();
            Address { lid: 0, qpn, psn, gid }
        };
        self.states.iter().map(address).collect()
    }

    fn connect(&mut self, remote: &[Address], mtu: PathMtu) -> Result<(), PingpongError> {
        let unused = |address: &Address| address.qpn == Address::UNUSED.qpn;
        if let Some(given) = remote.iter().position(unused) {
            let wanted = self.states.len() as u32;
            return Err(PingpongError::FewerQueuePairs { given, wanted });
        }
        let options = ConnectOptions::new()
            .path_mtu(mtu)
            .timeout(self.timeout)
            .max_rd_atomic(1)
            .max_dest_rd_atomic(1);
        for (state, Address { gid, qpn, psn, .. }) in self.states.iter().zip(remote) {
            state.qp.connect(&QpEndpoint { gid: *gid, qpn: *qpn, psn: *psn }, &options)?;
        }
        Ok(())
    }
}
