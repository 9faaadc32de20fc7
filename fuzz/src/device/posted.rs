//! The properties of completions.

use std::collections::VecDeque;

use urxe_stack::cq::{Completion, WcStatus};

/// The work requests of one queue pair that have not completed.
#[derive(Default)]
pub struct Posted {
    sends: VecDeque<(u64, bool)>,
    recvs: VecDeque<u64>,
    /// Whether a send, or a receive, completed in error, so that only flushes may follow.
    send_failed: bool,
    recv_failed: bool,
}

impl Posted {
    /// Records a posted send. `signalled`: its success is reported.
    pub fn send(&mut self, wr_id: u64, signalled: bool) {
        self.sends.push_back((wr_id, signalled));
    }

    /// Records a posted receive.
    pub fn recv(&mut self, wr_id: u64) {
        self.recvs.push_back(wr_id);
    }

    /// Checks a completion of this queue pair.
    pub fn completed(&mut self, c: &Completion) {
        if c.opcode.is_receive() && self.recvs.contains(&c.wr_id) {
            let oldest = self.recvs.pop_front();
            assert_eq!(oldest, Some(c.wr_id), "receives complete in order: {c:?}");
            assert!(!self.recv_failed || c.status == WcStatus::WrFlushErr, "after an error: {c:?}");
            self.recv_failed |= !c.status.is_success();
            return;
        }
        assert!(!c.opcode.is_receive(), "a receive that was not posted, or completed twice: {c:?}");
        loop {
            let oldest = self.sends.pop_front();
            let (wr_id, signalled) =
                oldest.unwrap_or_else(|| panic!("not posted, or completed twice: {c:?}"));
            if wr_id == c.wr_id {
                assert!(signalled || !c.status.is_success(), "not signalled: {c:?}");
                break;
            }
            assert!(!signalled && !self.send_failed, "{wr_id} was skipped by {c:?}");
        }
        assert!(!self.send_failed || c.status == WcStatus::WrFlushErr, "after an error: {c:?}");
        self.send_failed |= !c.status.is_success();
    }

    /// Records a transition from SQE to RTS, after which sends may succeed again.
    pub fn sending_recovered(&mut self) {
        self.send_failed = false;
    }

    /// Checks a queue pair in error after all completions were polled: no work request may remain
    /// that must complete.
    pub fn must_be_flushed(&self) {
        assert!(self.recvs.is_empty(), "receives were not flushed: {:?}", self.recvs);
        assert!(
            self.sends.iter().all(|(_, signalled)| !signalled),
            "sends were not flushed: {:?}",
            self.sends
        );
    }

    #[cfg(test)]
    pub fn receives(&self) -> usize {
        self.recvs.len()
    }

    /// Records a transition to RESET, which discards all work requests.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}
