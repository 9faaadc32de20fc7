//! The judge of ends whose connection must break: one of the two nodes falls silent for good.
//!
//! What such an end may see is: successes in order, then, if anything was outstanding, one
//! "transport retry counter exceeded", then everything else that was posted as flushed, each once
//! and in order, the receives too. An end that waits for messages alone never learns that its peer
//! is gone. The failure must not come before the retries are over.

#[cfg(test)]
mod tests;

use urxe_stack::cq::{Completion, WcStatus};
use urxe_stack::time::Time;

use super::generate::timeout_ns;
use super::plan::{EndId, EndPlan, Plan, Queue};

/// Retries of every queue pair of a plan, and the first transmission.
const TRANSMISSIONS: u64 = 8;
/// More than a round trip takes in a network without faults, with the wait that a plan's RNR timers
/// ask for.
const ROUND_TRIP_NS: u64 = 2_000_000;

/// What one such end has seen.
#[derive(Clone, Debug)]
pub struct PeerLossChecker {
    end: EndId,
    /// When the node fell silent.
    silent_from: Time,
    /// Index of the send that may complete next.
    next_send: usize,
    next_recv: usize,
    failed: bool,
    faults: Vec<String>,
}

impl PeerLossChecker {
    /// Of an end that loses its peer, or everyone, at `silent_from`.
    #[must_use]
    pub fn new(end: EndId, silent_from: Time) -> Self {
        Self { end, silent_from, next_send: 0, next_recv: 0, failed: false, faults: Vec::new() }
    }

    /// Whether the connection has broken: nothing more is posted.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// How many sends are known to be complete.
    #[must_use]
    pub fn sends_complete(&self) -> usize {
        self.next_send
    }

    /// How many receives are complete.
    #[must_use]
    pub fn recvs_complete(&self) -> usize {
        self.next_recv
    }

    /// What is not as it must be.
    #[must_use]
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// A completion of this end.
    pub fn completion(&mut self, plan: &Plan, completion: &Completion, now: Time) {
        let code = completion.wr_id ^ plan.seed << 48;
        let index = (code & 0x7fff_ffff) as usize;
        if code >> 31 & 1 == 1 {
            self.recv(index, completion.status);
        } else {
            self.send(plan.end(self.end), index, completion.status, now);
        }
        let queue = if code >> 31 & 1 == 1 { Queue::Recv } else { Queue::Send };
        if plan.wr_id(self.end, queue, index) != completion.wr_id {
            self.fault(format!("unknown wr_id {:#x}", completion.wr_id));
        }
    }

    fn send(&mut self, plan: &EndPlan, index: usize, status: WcStatus, now: Time) {
        let expected = self.next_send;
        let silent = |index: &usize| !plan.all_signaled && !plan.sends[*index].signaled;
        let in_order = index >= expected && index < plan.sends.len();
        // Successes pass over unsignalled requests; what is flushed is not passed over.
        if !in_order || !(expected..index).all(|skipped| !self.failed && silent(&skipped)) {
            return self.fault(format!("send {index} completed, {expected} was next"));
        }
        self.next_send = index + 1;
        match (self.failed, status) {
            (false, WcStatus::Success) | (true, WcStatus::WrFlushErr) => {}
            (false, WcStatus::RetryExcErr) => {
                self.failed = true;
                // The last answer may be as old as a round trip with an RNR wait when the node
                // falls silent.
                let patience_ns = TRANSMISSIONS * timeout_ns(plan.timeout) - ROUND_TRIP_NS;
                if now < self.silent_from.plus_ns(patience_ns) {
                    self.fault(format!(
                        "send {index} gave up at {now}, the node was silent from {}",
                        self.silent_from
                    ));
                }
            }
            _ => self.fault(format!("send {index}: {status}")),
        }
    }

    fn recv(&mut self, index: usize, status: WcStatus) {
        let expected = self.next_recv;
        if index != expected {
            return self.fault(format!("recv {index} completed, {expected} was next"));
        }
        self.next_recv = index + 1;
        let wanted = if self.failed { WcStatus::WrFlushErr } else { WcStatus::Success };
        if status != wanted {
            self.fault(format!("recv {index}: {status}, not {wanted}"));
        }
    }

    /// The end of the run: whatever was posted must have come to an end.
    pub fn finish(&mut self, plan: &Plan, sends_posted: usize, recvs_posted: usize) {
        let end = plan.end(self.end);
        let silent = |index: usize| !end.all_signaled && !end.sends[index].signaled;
        let open = (self.next_send..sends_posted).find(|&index| self.failed || !silent(index));
        if let Some(index) = open {
            self.fault(format!("send {index} has not completed"));
        }
        if self.failed && self.next_recv < recvs_posted {
            self.fault(format!("recv {} has not been flushed", self.next_recv));
        }
    }

    fn fault(&mut self, what: String) {
        if self.faults.len() < 5 {
            self.faults.push(format!("{}: {what}", self.end));
        }
    }
}
