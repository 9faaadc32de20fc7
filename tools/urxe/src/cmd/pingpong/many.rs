//! Two hosts with many queue pairs on one shared receive queue, in step with `ibv_srq_pingpong` so
//! that either end may be that program.
//!
//! ```text
//! both: one SRQ with rx_depth receives, N queue pairs on it; exchange 256 addresses over TCP whatever N is; connect
//! client: SEND on each queue pair ->      server: answers on the queue pair that a message came through
//! each queue pair sends again when its last SEND completed and a message came; until n came and n went, over all together
//! ```
//! That program has one buffer for all it sends and receives, which is zero in the beginning. This
//! end sends the same pattern in every message, so that the other end's buffer is that pattern once
//! a message has arrived. Hence every byte that comes is known: the pattern; in the first message
//! of a queue pair, where the client's buffer was still being filled, the pattern or what was there
//! before. Facts: rdma-core, `libibverbs/examples/srq_pingpong.c`.

use std::collections::HashMap;
use std::time::Instant;

use urxe::{
    Access, Completion, CompletionQueue, ConnectOptions, CqError, Device, Gid, MemoryRegion,
    PathMtu, QpEndpoint, Qpn, QueuePair, RecvRequest, SendRequest, SharedReceiveQueue, WaitError,
};
use urxe_wire::Psn;

use super::exchange::{Address, Exchange, ExchangeError};
use super::summary::Summary;
use super::two_hosts::{LINGER, Listener, Plan, Role, STALL_LIMIT};
use super::{PingpongError, Wrong, expect_success, pattern};
use crate::cmd::common::verb_error::VerbError;

/// Addresses of each end in the exchange; those beyond its queue pairs are zero.
pub const MAX_QPS: u32 = 256;
/// What the other program's buffer may have been filled with before a message came.
const FILLS: [u8; 2] = [0, 0x7b];
/// Completions taken at a time.
const TAKEN_MAX: usize = 32;
const UNUSED: Address = Address { lid: 0, qpn: Qpn::masked(0), psn: Psn::new(0), gid: Gid::ZERO };

/// One queue pair and what it waits for.
struct Lane {
    qp: QueuePair,
    received: u32,
    receive_due: bool,
    send_due: bool,
}

/// One end.
struct Ends {
    lanes: Vec<Lane>,
    by_number: HashMap<Qpn, usize>,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    region: MemoryRegion,
    message: Vec<u8>,
    scratch: Vec<u8>,
}

/// Runs `plan` with `qps` queue pairs.
pub fn run(
    plan: &Plan,
    device: &Device,
    qps: u32,
    told: &mut dyn Listener,
) -> Result<Summary, PingpongError> {
    if plan.rx_depth < qps {
        return Err(PingpongError::TooFewReceives { qps, given: plan.rx_depth });
    }
    let mtu = plan.mtu_on(device);
    let (ends, is_client) = match &plan.role {
        Role::Server => {
            let mut exchange = plan.accept(device, told)?;
            let ends = Ends::new(plan, device, &exchange, qps)?;
            let remote = receive(&mut exchange, qps)?;
            ends.connect(plan, mtu, &exchange, &remote)?;
            ends.send_addresses(&mut exchange)?;
            exchange.receive_done()?;
            ends.tell(&remote, told);
            (ends, false)
        }
        Role::Client(host) => {
            let mut exchange = plan.reach(host)?;
            let ends = Ends::new(plan, device, &exchange, qps)?;
            ends.send_addresses(&mut exchange)?;
            let remote = receive(&mut exchange, qps)?;
            exchange.send_done()?;
            ends.connect(plan, mtu, &exchange, &remote)?;
            ends.tell(&remote, told);
            (ends, true)
        }
    };
    let start = Instant::now();
    let verified = ends.play(plan, is_client)?;
    let elapsed = start.elapsed();
    // The last acknowledgements may get lost, and the peer would then ask for them.
    std::thread::sleep(LINGER);
    let mut summary = Summary::new(plan.transport, plan.size, plan.iterations, elapsed, device);
    summary.verified = verified;
    Ok(summary)
}

/// The other end's addresses; what stands for queue pairs that it does not have is not looked at.
fn receive(exchange: &mut Exchange, qps: u32) -> Result<Vec<Address>, PingpongError> {
    let mut remote = Vec::new();
    for nr in 0..MAX_QPS {
        match exchange.receive() {
            Ok(address) if nr < qps => remote.push(address),
            Ok(_) => {}
            Err(ExchangeError::NotAnAddress { .. }) if nr >= qps => {}
            Err(error) => return Err(error.into()),
        }
    }
    match remote.iter().position(|address| address.qpn == UNUSED.qpn) {
        Some(given) => Err(PingpongError::FewerQueuePairs { given, wanted: qps }),
        None => Ok(remote),
    }
}

impl Ends {
    fn new(plan: &Plan, device: &Device, exchange: &Exchange, qps: u32) -> Result<Self, VerbError> {
        let gid_index = plan.own_gid(device, exchange);
        let pd = device.alloc_pd()?;
        // What is sent, and one place for all that is received, as there.
        let region = pd.allocate(2 * plan.size, Access::LOCAL_WRITE)?;
        let mut message = vec![0; plan.size];
        pattern::fill(0, &mut message);
        region.write(0, &message)?;
        let cq = device.create_cq(plan.rx_depth + qps)?;
        let srq = pd.shared_receive_queue(plan.rx_depth).max_sge(1).create()?;
        let mut lanes = Vec::new();
        for _ in 0..qps {
            let builder = pd.queue_pair(&cq).shared_receive_queue(&srq).sgid_index(gid_index);
            let qp = builder
                .max_send_wr(1)
                .max_send_sge(1)
                .max_inline_data(0)
                .signal_all(true)
                .create()?;
            qp.init(&ConnectOptions::default())?;
            lanes.push(Lane { qp, received: 0, receive_due: true, send_due: false });
        }
        let by_number = lanes.iter().enumerate().map(|(nr, lane)| (lane.qp.qpn(), nr)).collect();
        let ends = Self { lanes, by_number, srq, cq, region, message, scratch: vec![0; plan.size] };
        ends.post_receives(plan.rx_depth)?;
        Ok(ends)
    }

    fn post_receives(&self, count: u32) -> Result<(), VerbError> {
        let size = self.message.len();
        for _ in 0..count {
            self.srq.post_recv(&RecvRequest::new(self.region.slice(size..2 * size)?))?;
        }
        Ok(())
    }

    fn address(&self, nr: usize) -> Address {
        self.lanes.get(nr).map_or(UNUSED, |lane| {
            let QpEndpoint { gid, qpn, psn } = lane.qp.endpoint();
            Address { lid: 0, qpn, psn, gid }
        })
    }

    fn send_addresses(&self, exchange: &mut Exchange) -> Result<(), ExchangeError> {
        (0..MAX_QPS as usize).try_for_each(|nr| exchange.send(&self.address(nr)))
    }

    fn connect(
        &self,
        plan: &Plan,
        mtu: PathMtu,
        exchange: &Exchange,
        remote: &[Address],
    ) -> Result<(), VerbError> {
        let options = ConnectOptions {
            path_mtu: Some(mtu),
            timeout: plan.timeout(),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            ..ConnectOptions::default()
        };
        for (lane, remote) in self.lanes.iter().zip(remote) {
            let gid = if remote.gid.is_zero() { Gid::from_ip(exchange.peer()) } else { remote.gid };
            lane.qp.connect(&QpEndpoint { gid, qpn: remote.qpn, psn: remote.psn }, &options)?;
        }
        Ok(())
    }

    fn tell(&self, remote: &[Address], told: &mut dyn Listener) {
        for (nr, remote) in remote.iter().enumerate() {
            told.exchanged(&self.address(nr), remote);
        }
    }

    fn send(&mut self, nr: usize) -> Result<(), VerbError> {
        let data = self.region.slice(..self.message.len())?;
        let lane = &mut self.lanes[nr];
        lane.qp.post_send(&SendRequest::send(data))?;
        (lane.receive_due, lane.send_due) = (true, true);
        Ok(())
    }

    /// Until all messages have come and gone; how many came, every byte of each right.
    fn play(mut self, plan: &Plan, is_client: bool) -> Result<u32, PingpongError> {
        let (total, qps) = (plan.iterations, self.lanes.len() as u32);
        let (mut receives, mut received, mut sent) = (plan.rx_depth, 0, 0);
        if is_client {
            (0..self.lanes.len()).try_for_each(|nr| self.send(nr))?;
        }
        let mut taken = [Completion::default(); TAKEN_MAX];
        while received < total || sent < total {
            let count = self.take(plan, &mut taken)?;
            for completion in &taken[..count] {
                expect_success(completion)?;
                let Some(nr) = self.by_number.get(&completion.qp_num).copied() else {
                    return Err(PingpongError::UnknownQueuePair { given: completion.qp_num });
                };
                if completion.opcode.is_receive() {
                    self.check(nr, is_client, completion)?;
                    (self.lanes[nr].receive_due, received) = (false, received + 1);
                    receives -= 1;
                    if receives <= qps {
                        self.post_receives(plan.rx_depth - receives)?;
                        receives = plan.rx_depth;
                    }
                } else {
                    (self.lanes[nr].send_due, sent) = (false, sent + 1);
                }
                let lane = &self.lanes[nr];
                if sent < total && !lane.receive_due && !lane.send_due {
                    self.send(nr)?;
                }
            }
        }
        Ok(received)
    }

    fn take(&self, plan: &Plan, out: &mut [Completion]) -> Result<usize, PingpongError> {
        let stalled = PingpongError::Stalled { limit: STALL_LIMIT };
        if plan.events {
            return match self.cq.wait(out, Some(STALL_LIMIT)) {
                Ok(count) => Ok(count),
                Err(WaitError::TimedOut) => Err(stalled),
                Err(error) => Err(VerbError::from(error).into()),
            };
        }
        let started = Instant::now();
        loop {
            match self.cq.poll(out).map_err(|error: CqError| VerbError::from(error))? {
                0 if started.elapsed() > STALL_LIMIT => return Err(stalled),
                0 => {}
                count => return Ok(count),
            }
        }
    }

    /// Checks every byte of a message that came through queue pair `nr`.
    fn check(
        &mut self,
        nr: usize,
        is_client: bool,
        completion: &Completion,
    ) -> Result<(), PingpongError> {
        let (found, expected) = (completion.byte_len as usize, self.message.len());
        let message = u64::from(self.lanes[nr].received);
        if found != expected {
            return Err(Wrong::Length { message, found, expected }.into());
        }
        self.region.read(expected, &mut self.scratch).map_err(VerbError::from)?;
        let first_of_client = !is_client && message == 0;
        let is_right = |found: u8, expected: u8| {
            found == expected || (first_of_client && FILLS.contains(&found))
        };
        let wrong = self.scratch.iter().zip(&self.message).position(|(f, e)| !is_right(*f, *e));
        if let Some(offset) = wrong {
            let (found, expected) = (self.scratch[offset], self.message[offset]);
            return Err(Wrong::Byte(pattern::Mismatch { message, offset, found, expected }).into());
        }
        self.lanes[nr].received += 1;
        Ok(())
    }
}
