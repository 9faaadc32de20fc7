//! What was made through a context and is still there: it ends with the context, as in the kernel,
//! although the device goes on where the program has it open once more.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::Arc;

use urxe_stack::cq::{Cq, EventObject};
use urxe_stack::device::{QpHandle, TdId};
use urxe_stack::driver::Engine;
use urxe_stack::memory::{DmId, PdId};
use urxe_stack::qp::work_request::AhHandle;
use urxe_stack::srq::Srq;
use urxe_stack::srq::xrcd::Xrcd;
use urxe_wire::{Lkey, Rkey};

/// The objects of a context.
#[derive(Default)]
pub struct ContextObjects {
    /// How often each queue pair: one of an XRC domain may have been opened more than once.
    qps: HashMap<QpHandle, u32>,
    pub mrs: HashSet<Lkey>,
    /// Windows, by the part of their keys that stays.
    pub mws: HashSet<u32>,
    pub dms: HashSet<DmId>,
    pub ahs: HashSet<AhHandle>,
    /// Protection domains and parent domains.
    pub pds: HashSet<PdId>,
    pub tds: HashSet<TdId>,
    /// With the parent domain that each was made with.
    pub cqs: HashMap<EventObject, (Arc<Cq>, Option<PdId>)>,
    pub srqs: HashMap<EventObject, Arc<Srq>>,
    xrcds: Vec<Arc<Xrcd>>,
    /// The structures that events point to.
    pub elements: HashMap<EventObject, *mut c_void>,
}

impl ContextObjects {
    pub fn add_qp(&mut self, qp: QpHandle) {
        *self.qps.entry(qp).or_default() += 1;
    }

    pub fn remove_qp(&mut self, qp: QpHandle) {
        if let Some(times) = self.qps.get_mut(&qp) {
            *times -= 1;
            if *times == 0 {
                self.qps.remove(&qp);
            }
        }
    }

    /// A domain is held as often as it was opened.
    pub fn add_xrcd(&mut self, xrcd: &Arc<Xrcd>) {
        self.xrcds.push(Arc::clone(xrcd));
    }

    pub fn remove_xrcd(&mut self, xrcd: &Arc<Xrcd>) {
        if let Some(place) = self.xrcds.iter().position(|other| Arc::ptr_eq(other, xrcd)) {
            self.xrcds.swap_remove(place);
        }
    }

    /// Ends all of them, users before what they use. Each fails only if it is gone, which is what
    /// is wanted, or if another context made something with it, as by a domain that it imported:
    /// then it stays as long as the device.
    pub fn destroy_all(self, engine: &Engine) {
        let device = engine.device();
        for qp in
            self.qps.into_iter().flat_map(|(qp, times)| std::iter::repeat_n(qp, times as usize))
        {
            engine.flush_acks(qp);
            let _ = device.destroy_qp_without_wait(engine.now(), qp);
        }
        for srq in self.srqs.into_values() {
            let _ = device.destroy_srq_without_wait(&srq);
        }
        for (cq, parent) in self.cqs.into_values() {
            let _ = cq.destroy_without_wait();
            if let Some(parent) = parent {
                device.release_parent_domain(parent);
            }
        }
        // Windows before the regions that they are bound to, regions before the memory that they
        // are of.
        for mw in self.mws {
            let _ = device.memory().dealloc_mw(Rkey(mw));
        }
        for mr in self.mrs {
            let _ = device.memory().deregister(mr);
        }
        for dm in self.dms {
            let _ = device.memory().free_dm(dm);
        }
        for ah in self.ahs {
            let _ = device.destroy_ah(ah);
        }
        for xrcd in self.xrcds {
            let _ = device.close_xrcd(&xrcd);
        }
        // Parent domains stand on other domains, in no order that is known here: again as long as
        // any goes.
        let (mut left, mut before) = (self.pds, usize::MAX);
        while left.len() < before {
            before = left.len();
            left.retain(|pd| device.dealloc_pd(*pd).is_err());
        }
        for td in self.tds {
            let _ = device.dealloc_td(td);
        }
    }
}
