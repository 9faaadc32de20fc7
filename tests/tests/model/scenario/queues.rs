//! Completions and events, compared with the model; changes and properties of shared receive
//! queues.

use urxe_stack::cq::{Completion, WcOpcode};
use urxe_stack::qp::attr::QpType;
use urxe_stack::srq::{SrqAttr, SrqAttrMask};

use super::{CQ_DEPTH, Scenario, errno, error_context, expect_equal};
use crate::operation::{Cq, QPS};
use crate::specification::Done;

impl Scenario {
    fn done_of(&self, wc: &Completion) -> Result<Done, String> {
        let (wr_id, status, qp) = (wc.wr_id, wc.status, self.qp_of(wc.qp_num)?);
        let none = Done::new(qp, wr_id, status, wc.opcode);
        if !status.is_success() {
            return Ok(none);
        }
        let brings =
            matches!(wc.opcode, WcOpcode::RdmaRead | WcOpcode::CompSwap | WcOpcode::FetchAdd);
        let received = wc.opcode.is_receive();
        let len = if received || brings { wc.byte_len as usize } else { 0 };
        let is_datagram = received && QPS[qp].qp_type == QpType::Ud;
        let from = if is_datagram { Some(self.qp_of(wc.src_qp)?) } else { None };
        let invalidated = wc.invalidated_rkey().map(|key| key.value());
        Ok(Done { len, imm: wc.imm_data(), invalidated, from, ..none })
    }

    /// Polls the polled queues and compares their completions. Of the others, compares the numbers
    /// of completions.
    pub(super) fn compare_completions(&mut self) -> Result<(), String> {
        let mut out = vec![Completion::default(); CQ_DEPTH as usize];
        for (name, cq) in &self.cqs {
            let held = self.model.done.get(name).map_or(0, |done| done.len());
            if self.model.unpolled.contains(name) {
                expect_equal(&format!("{name:?} holds"), cq.len(), held)?;
                continue;
            }
            let count = error_context(cq.poll(&mut out), "polling")?;
            let actual =
                out[..count].iter().map(|wc| self.done_of(wc)).collect::<Result<Vec<_>, _>>()?;
            let mut expected: Vec<Done> = self.model.done.remove(name).unwrap_or_default().into();
            for done in &mut expected {
                // An error completion has only `wr_id`, status and queue pair.
                if !done.status.is_success() {
                    done.opcode = actual
                        .iter()
                        .find(|t| t.wr_id == done.wr_id)
                        .map_or(done.opcode, |t| t.opcode);
                }
            }
            if actual != expected {
                return Err(format!(
                    "{name:?}: completions\n  {actual:?}\nand not\n  {expected:?}"
                ));
            }
        }
        self.compare_notifications()
    }

    fn compare_notifications(&mut self) -> Result<(), String> {
        let mut actual: Vec<Cq> = Vec::new();
        for (nr, host) in self.hosts.iter().enumerate() {
            while let Some(event) = host.channel.next_event() {
                let name = self.cq_names[event.context as usize];
                let cq = &self.cqs[&name];
                expect_equal(&format!("{event:?}"), (event.cq, nr), (cq.id(), name.device()))?;
                cq.ack_events(1);
                actual.push(name);
            }
        }
        actual.sort();
        let mut expected = std::mem::take(&mut self.model.notified);
        expected.sort();
        expect_equal("events for", actual, expected)
    }

    pub(super) fn modify_srq(
        &mut self,
        nr: usize,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), String> {
        let mut mask = SrqAttrMask::empty();
        mask.set(SrqAttrMask::MAX_WR, max_wr.is_some());
        mask.set(SrqAttrMask::LIMIT, limit.is_some());
        let (max_wr_given, srq_limit) = (max_wr.unwrap_or(0), limit.unwrap_or(0));
        let attr = SrqAttr { max_wr: max_wr_given, srq_limit, max_sge: 0 };
        let actual = self.srqs[nr].modify(&attr, mask);
        let actual = actual.map_err(|error| errno(error.errno()));
        expect_equal("changed", actual, self.model.modify_srq(nr, max_wr, limit))
    }

    pub(super) fn compare_srqs(&self) -> Result<(), String> {
        for (nr, srq) in self.srqs.iter().enumerate() {
            let SrqAttr { max_wr, srq_limit, .. } = srq.query();
            let actual = (srq.len() as usize, max_wr as usize, srq_limit);
            let expected =
                (self.model.shared[nr].len(), self.model.sizes[nr], self.model.limits[nr]);
            expect_equal(&format!("queue {nr}: held, size and limit"), actual, expected)?;
        }
        Ok(())
    }
}
