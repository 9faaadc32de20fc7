//! Checks the ends whose connection must break, because one of the two nodes stops sending and
//! receiving for good.
//!
//! Such an end may see successes in order, then one "transport retry counter exceeded" if a request
//! was outstanding, then flush errors for all other requests, each once and in order, receives
//! included. An end that only waits for messages never detects the loss. The failure must not come
//! before all retries have failed.

#[cfg(test)]
mod tests;

use urxe_stack::cq::{Completion, WcStatus};
use urxe_stack::time::Time;

use super::generate::timeout_ns;
use super::plan::{EndId, EndPlan, Plan, Queue};

/// Transmissions of a packet: the first one and all retries of a plan's queue pairs.
const TRANSMISSIONS: u64 = 8;
/// More than a round trip in a network without faults, including the RNR timers of a plan.
const ROUND_TRIP_NS: u64 = 2_000_000;

/// The observations of one such end.
#[derive(Clone, Debug)]
pub struct PeerLossChecker {
    end: EndId,
    /// The time at which the node fell silent.
    silent_from: Time,
    /// The index of the next send that may complete.
    next_send: usize,
    next_recv: usize,
    failed: bool,
    faults: Vec<String>,
}

impl PeerLossChecker {
    /// Creates a checker of an end that loses its peer at `silent_from`.
    #[must_use]
    pub fn new(end: EndId, silent_from: Time) -> Self {
        Self { end, silent_from, next_send: 0, next_recv: 0, failed: false, faults: Vec::new() }
    }

    /// Returns whether the connection has broken. Afterwards nothing is posted.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns the number of sends that are known to be complete.
    #[must_use]
    pub fn sends_complete(&self) -> usize {
        self.next_send
    }

    /// Returns the number of completed receives.
    #[must_use]
    pub fn recvs_complete(&self) -> usize {
        self.next_recv
    }

    /// Returns the faults found.
    #[must_use]
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Checks a completion of this end.
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
        // A successful completion may skip unsignalled requests; a flushed one may not.
        if !in_order || !(expected..index).all(|skipped| !self.failed && silent(&skipped)) {
            return self.fault(format!("send {index} completed, {expected} was next"));
        }
        self.next_send = index + 1;
        match (self.failed, status) {
            (false, WcStatus::Success) | (true, WcStatus::WrFlushErr) => {}
            (false, WcStatus::RetryExcErr) => {
                self.failed = true;
                // The last response may precede the silence by a round trip with an RNR wait.
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

    /// Checks that all posted requests have completed.
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
