//! One end of a case: region, completion queue, queue pairs, and the positions in their rings of
//! prepared requests.
//!
//! ```text
//!   region   | source: sent data, results of atomics
//!            | destination: received data, READ data, counters
//! ```
//! Each half has the size of the case's window. The requests of a ring are created once and posted
//! repeatedly, so a timed loop allocates nothing.

use std::time::{Duration, Instant};

use urxe::{
    Completion, CompletionQueue, ConnectOptions, Data, Device, Gather, MemoryRegion, PathMtu,
    QpEndpoint, QueuePair, RecvRequest, RemoteRegion, SendRequest,
};

use super::case::Case;
use super::error::PerfError;
use super::protocol::{Ends, Sent};
use crate::traffic::error::{TrafficError, unexpected};
use crate::traffic::operation::{ATOMIC_SIZE, Operation};
use crate::traffic::pattern;
use crate::traffic::{ALL_ACCESS, Wait};

/// Outstanding READs and atomics of a queue pair.
const RD_ATOMIC: u8 = 16;
/// Completions taken at a time.
const TAKEN: usize = 64;
/// Receives posted at a time.
const RECEIVES_AT_ONCE: u32 = 16;
/// Time limit of a sleep for an event, because the thread must notice the end of the round.
const MAX_SLEEP: Duration = Duration::from_millis(20);
/// Empty polls between two reads of the clock.
const POLLS_BETWEEN: u32 = 1024;
/// Time without a completion after which the run fails.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// The position of the queue pair number in a work request's identifier; the low bits hold the
/// message count.
const QP_SHIFT: u32 = 32;

/// The constant part of a session.
#[derive(Debug)]
pub struct End {
    pub case: Case,
    pub region: MemoryRegion,
    pub cq: CompletionQueue,
    pub qps: Vec<QueuePair>,
    /// The peer's region, after the connection.
    pub remote: Option<RemoteRegion>,
    /// The bytes of a message.
    pub message: Vec<u8>,
}

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpState {
    /// Sends without a completion.
    pub outstanding: u32,
    /// Position in the ring of sends.
    pub next_send: usize,
    /// Sends since the last one with a completion.
    pub unsignaled: u32,
    /// Messages sent in this round.
    pub sent: u64,
    /// Position of the round's first send in the ring.
    pub first: usize,
    /// Positions of the ring that this round has used, from `first` on.
    pub touched: usize,
    /// Position in the ring of receives.
    pub next_receive: usize,
    /// Completed receives that are not posted again.
    pub receives_due: u32,
    /// Messages received in this round.
    pub received: u64,
    /// Position of the round's first receive in the ring.
    pub received_from: usize,
}

/// The variable part of a session.
#[derive(Debug)]
pub struct QpStates {
    pub qps: Vec<QpState>,
    taken: [Completion; TAKEN],
    polls: u32,
    silent_since: Option<Instant>,
}

impl End {
    /// Creates the region, the completion queue, and queue pairs in INIT.
    ///
    /// # Errors
    /// [`PerfError::Case`], [`PerfError::Traffic`].
    pub fn new(device: &Device, case: Case) -> Result<Self, PerfError> {
        case.check()?;
        let window = case.window();
        let pd = device.alloc_pd()?;
        let region = pd.allocate(2 * window, ALL_ACCESS)?;
        let receives = receives(&case);
        let cq = device.create_cq(case.qps * (case.depth + receives))?;
        let inline = if case.inline { case.size } else { 0 };
        let make = |_| -> Result<QueuePair, TrafficError> {
            let qp = pd
                .queue_pair(&cq)
                .max_send_wr(case.depth)
                .max_recv_wr(receives)
                .max_send_sge(1)
                .max_recv_sge(1)
                .max_inline_data(u32::try_from(inline).unwrap_or(u32::MAX))
                .create()?;
            qp.init(&ConnectOptions::default())?;
            Ok(qp)
        };
        let qps = (0..case.qps).map(make).collect::<Result<_, _>>()?;
        let message = pattern::without_zeros(case.size);
        for slot in 0..window / case.size {
            region.write(slot * case.size, &message)?;
        }
        Ok(Self { case, region, cq, qps, remote: None, message })
    }

    /// Returns the addresses that the other end connects to.
    pub fn ends(&self) -> Ends {
        let endpoints = self.qps.iter().map(|qp| qp.endpoint().to_string()).collect();
        Ends { endpoints, region: self.region.remote().to_string() }
    }

    /// Connects all queue pairs.
    ///
    /// # Errors
    /// [`PerfError::Traffic`].
    pub fn connect(&mut self, ends: &Ends) -> Result<(), PerfError> {
        if ends.endpoints.len() != self.qps.len() {
            return Err(unexpected(format!("{} endpoints", ends.endpoints.len())).into());
        }
        let options = ConnectOptions::new()
            .path_mtu(PathMtu::at_most(self.case.mtu))
            .max_rd_atomic(RD_ATOMIC)
            .max_dest_rd_atomic(RD_ATOMIC);
        for (qp, text) in self.qps.iter().zip(&ends.endpoints) {
            let endpoint: QpEndpoint = text.parse().map_err(|_| unexpected(text))?;
            qp.connect(&endpoint, &options)?;
        }
        self.remote = Some(ends.region.parse().map_err(|_| unexpected(&ends.region))?);
        Ok(())
    }

    /// Returns the prepared sends of queue pair `nr`.
    ///
    /// # Errors
    /// [`PerfError::Traffic`]: not connected, or the peer's region is too small.
    pub fn sends(&self, nr: usize) -> Result<Vec<SendRequest<'_>>, PerfError> {
        let every = self.case.signal_every() as usize;
        let make = |index| {
            let request = self.send(nr, index)?;
            let signaled = (index + 1) % every == 0;
            Ok(if signaled { request.wr_id(identifier(nr, every)).signaled() } else { request })
        };
        (0..self.case.ring_len()).map(make).collect()
    }

    fn send(&self, nr: usize, index: usize) -> Result<SendRequest<'_>, PerfError> {
        let Case { operation, size, .. } = self.case;
        let (window, slot) = (self.case.window(), self.case.slot(nr, index) * size);
        let at = |offset: usize| self.region.slice(offset..offset + size);
        let there = |offset: usize, len: usize| {
            let region = self.remote.ok_or_else(|| unexpected("not connected"))?;
            let range = offset as u64..(offset + len) as u64;
            region.slice(range).map_err(|error| unexpected(error.to_string()))
        };
        let data = || -> Result<Data<'_>, TrafficError> {
            Ok(if self.case.inline { Data::inline(&self.message) } else { at(slot)?.into() })
        };
        let counter = window + nr * ATOMIC_SIZE;
        Ok(match operation {
            Operation::Send => SendRequest::send(data()?),
            Operation::Write => SendRequest::write(data()?, there(window + slot, size)?),
            Operation::WriteImm => {
                SendRequest::write_imm(data()?, there(window + slot, size)?, nr as u32)
            }
            Operation::Read => SendRequest::read(at(window + slot)?, there(slot, size)?),
            Operation::FetchAdd => {
                SendRequest::fetch_add(at(slot)?, there(counter, ATOMIC_SIZE)?, 1)
            }
            Operation::CmpSwap => {
                SendRequest::compare_swap(at(slot)?, there(counter, ATOMIC_SIZE)?, 0, 0)
            }
        })
    }

    /// Returns the prepared receives of queue pair `nr`.
    ///
    /// # Errors
    /// [`PerfError::Traffic`].
    pub fn receives(&self, nr: usize) -> Result<Vec<RecvRequest<'_>>, PerfError> {
        let (size, window) = (self.case.size, self.case.window());
        let make = |index| {
            let into = if self.case.operation == Operation::Send {
                let offset = window + self.case.slot(nr, index) * size;
                self.region.slice(offset..offset + size)?.into()
            } else {
                Gather::EMPTY
            };
            Ok(RecvRequest::new(into).wr_id(identifier(nr, 1)))
        };
        (0..self.case.ring_len()).map(make).collect()
    }

    /// Clears the destination, so that arriving data is detected.
    ///
    /// # Errors
    /// [`PerfError::Traffic`].
    pub fn clear(&self) -> Result<(), PerfError> {
        let window = self.case.window();
        let blank = vec![0; window.min(1 << 20)];
        for start in (0..window).step_by(blank.len()) {
            let len = blank.len().min(window - start);
            self.region.write(window + start, &blank[..len])?;
        }
        Ok(())
    }

    /// Posts the first receives of all queue pairs.
    ///
    /// # Errors
    /// [`PerfError::Traffic`].
    pub fn fill_receives(&self, states: &mut QpStates) -> Result<(), PerfError> {
        for (nr, qp) in self.qps.iter().enumerate() {
            let ring = self.receives(nr)?;
            for _ in 0..receives(&self.case) {
                let state = &mut states.qps[nr];
                qp.post_recv(&ring[state.next_receive])?;
                state.next_receive = (state.next_receive + 1) % ring.len();
            }
        }
        Ok(())
    }
}

impl QpStates {
    /// Returns the initial state for a case.
    pub fn new(case: &Case) -> Self {
        Self {
            qps: vec![QpState::default(); case.qps as usize],
            taken: [Completion::default(); TAKEN],
            polls: 0,
            silent_since: None,
        }
    }

    /// Resets the counts before a round.
    pub fn begin(&mut self) {
        for state in &mut self.qps {
            (state.sent, state.touched, state.received) = (0, 0, 0);
            if state.unsignaled == 0 {
                state.next_send = 0;
            }
            state.first = state.next_send;
        }
        self.silent_since = None;
    }

    /// Advances the start positions of the receives after a round.
    pub fn end(&mut self, ring_len: usize) {
        for state in &mut self.qps {
            state.received_from =
                (state.received_from + (state.received % ring_len as u64) as usize) % ring_len;
        }
    }

    /// Returns the messages sent in this round, by queue pair.
    pub fn sent(&self) -> Vec<Sent> {
        self.qps
            .iter()
            .map(|state| Sent { messages: state.sent, first: state.first, places: state.touched })
            .collect()
    }

    /// Returns the messages sent in this round.
    pub fn sent_in_all(&self) -> u64 {
        self.qps.iter().map(|state| state.sent).sum()
    }

    /// Takes completions, or sleeps until one arrives, and counts them. Returns their number.
    ///
    /// # Errors
    /// [`PerfError::Status`], [`PerfError::Traffic`].
    pub fn take(&mut self, end: &End) -> Result<usize, PerfError> {
        let count = end.case.wait.take_some(&end.cq, &mut self.taken, MAX_SLEEP)?;
        for completion in &self.taken[..count] {
            if !completion.status.is_success() {
                return Err(PerfError::Status {
                    operation: end.case.operation,
                    status: completion.status,
                });
            }
            let (nr, messages) = (completion.wr_id >> QP_SHIFT, completion.wr_id as u32);
            let Some(state) = self.qps.get_mut(nr as usize) else { continue };
            if completion.opcode.is_receive() {
                state.received += 1;
                state.receives_due += 1;
            } else {
                state.outstanding -= messages;
            }
        }
        Ok(count)
    }

    /// Posts completed receives again, several at a time.
    ///
    /// # Errors
    /// [`PerfError::Traffic`].
    pub fn post_receives(
        &mut self,
        end: &End,
        rings: &[Vec<RecvRequest<'_>>],
    ) -> Result<(), PerfError> {
        for ((state, ring), qp) in self.qps.iter_mut().zip(rings).zip(&end.qps) {
            while state.receives_due >= RECEIVES_AT_ONCE {
                let len = (RECEIVES_AT_ONCE as usize).min(ring.len() - state.next_receive);
                let requests = &ring[state.next_receive..state.next_receive + len];
                qp.post_recv_batch(requests)?;
                state.next_receive = (state.next_receive + len) % ring.len();
                state.receives_due -= len as u32;
            }
        }
        Ok(())
    }

    /// Records a poll without completions. Reads the clock occasionally, and fails if the stall
    /// lasts too long.
    ///
    /// # Errors
    /// [`PerfError::Stalled`].
    pub fn check_stall(&mut self, end: &End) -> Result<(), PerfError> {
        self.polls = self.polls.wrapping_add(1);
        if end.case.wait == Wait::Events || self.polls.is_multiple_of(POLLS_BETWEEN) {
            let since = *self.silent_since.get_or_insert_with(Instant::now);
            if since.elapsed() > STALL_LIMIT {
                return Err(PerfError::Stalled { limit: STALL_LIMIT });
            }
        }
        Ok(())
    }

    /// Records a poll with completions.
    pub fn record_progress(&mut self) {
        self.silent_since = None;
    }

    /// Returns whether this poll should make the expensive checks.
    pub fn should_check_end(&self, end: &End) -> bool {
        end.case.wait == Wait::Events || self.polls.is_multiple_of(64)
    }
}

/// Returns the number of receives posted to each queue pair.
fn receives(case: &Case) -> u32 {
    if case.operation.is_received() { (2 * case.depth).max(64) } else { 1 }
}

/// Returns a work request's identifier: the queue pair, and the number of messages that its
/// completion covers.
pub fn identifier(nr: usize, messages: usize) -> u64 {
    (nr as u64) << QP_SHIFT | messages as u64
}
