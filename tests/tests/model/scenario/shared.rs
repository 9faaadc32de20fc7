//! Shared receive queues: the call that changes them, and what they are afterwards.

use rustix::io::Errno;
use urxe_stack::srq::{SrqAttr, SrqAttrMask};

use super::Scenario;

impl Scenario {
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
        let told = self.srqs[nr].modify(&attr, mask);
        let told = told.map_err(|error| Errno::from_raw_os_error(error.errno()));
        let expected = self.model.modify_srq(nr, max_wr, limit);
        if told == expected { Ok(()) } else { Err(format!("changed: {told:?}, not {expected:?}")) }
    }

    pub(super) fn compare_srqs(&self) -> Result<(), String> {
        for (nr, srq) in self.srqs.iter().enumerate() {
            let SrqAttr { max_wr, srq_limit, .. } = srq.query();
            let told = (srq.len() as usize, max_wr as usize, srq_limit);
            let expected =
                (self.model.shared[nr].len(), self.model.sizes[nr], self.model.limits[nr]);
            if told != expected {
                return Err(format!(
                    "queue {nr}: held, size and limit are {told:?}, not {expected:?}"
                ));
            }
        }
        Ok(())
    }
}
