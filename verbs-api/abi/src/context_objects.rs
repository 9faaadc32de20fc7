//! The objects of a context. Closing the context destroys them, as in the kernel, while other
//! contexts may keep the device open.

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
    /// How often each queue pair was created or opened: a queue pair of an XRC domain can be opened
    /// more than once.
    qps: HashMap<QpHandle, u32>,
    pub mrs: HashSet<Lkey>,
    /// Windows, by the upper 24 bits of their keys.
    pub mws: HashSet<u32>,
    pub dms: HashSet<DmId>,
    pub ahs: HashSet<AhHandle>,
    /// Protection domains and parent domains.
    pub pds: HashSet<PdId>,
    pub tds: HashSet<TdId>,
    /// Each completion queue with its parent domain.
    pub cqs: HashMap<EventObject, (Arc<Cq>, Option<PdId>)>,
    pub srqs: HashMap<EventObject, Arc<Srq>>,
    xrcds: Vec<Arc<Xrcd>>,
    /// The structures that events name, by object.
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

    /// Adds an XRC domain, once for each time that it was opened.
    pub fn add_xrcd(&mut self, xrcd: &Arc<Xrcd>) {
        self.xrcds.push(Arc::clone(xrcd));
    }

    pub fn remove_xrcd(&mut self, xrcd: &Arc<Xrcd>) {
        if let Some(place) = self.xrcds.iter().position(|other| Arc::ptr_eq(other, xrcd)) {
            self.xrcds.swap_remove(place);
        }
    }

    /// Destroys all objects, users before the objects that they use. An object that another context
    /// uses, for example through an imported domain, stays until the device closes. Other failures
    /// mean that the object is gone already, so errors are ignored.
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
                device.release_domain(parent);
            }
        }
        // Windows before the regions that they are bound to, regions before their device memory.
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
        // Parent domains refer to other domains in no known order: repeat while any can be
        // deallocated.
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
