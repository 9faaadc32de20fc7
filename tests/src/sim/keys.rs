//! Keys that come and go: fast-registration regions and type 2 windows of a host, which a peer
//! takes away, and type 1 windows, which it cannot; and what the program does when a completion
//! says that one is gone, or that the peer is done with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use urxe_stack::device::Device;
use urxe_stack::memory::{Access, AccessError, Accessor, Bind, Buffer, Mr, MwType, PdId, inc_rkey};
use urxe_test_support::simulation::say;
use urxe_wire::{Lkey, Rkey};

use super::host::{Host, HostQp, access};
use super::plan::{EndId, Naming, Plan, RegionPlan, Role};

const PAGE: usize = 4096;

/// A bound window: what binding it anew takes.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    region: Lkey,
    /// First address in the region.
    addr: u64,
    access: Access,
}

/// A key that a peer took away, or was done with.
#[derive(Clone, Copy, Debug)]
pub struct Renewed {
    by: Accessor,
    /// What it stood for; `rkey` is the former key.
    mr: Mr,
    /// The key that replaced it.
    now: Rkey,
    /// It replaced it while it was valid.
    rebound: bool,
}

impl Renewed {
    /// Whether a window of type 1 has it.
    #[must_use]
    pub fn is_rebound(&self) -> bool {
        self.rebound
    }
}

/// Where a region begins in its own addresses, and as whom its peers name it.
pub(super) fn start(naming: Naming, addr: *mut u8) -> (u64, u64, Access) {
    let into_page = (addr.addr() % PAGE) as u64;
    match naming {
        Naming::ZeroBased => (into_page, 0, Access::ZERO_BASED),
        Naming::Page(page) => (page + into_page, page + into_page, Access::empty()),
    }
}

/// A fast-registration region over the whole of `region`, valid under its first key.
pub(super) fn fast_region(
    core: &Device,
    pd: PdId,
    memory: &Arc<Buffer>,
    region: &RegionPlan,
) -> Mr {
    let range = region.range.clone();
    let (mapped, iova, flag) = start(region.naming, memory.addr().wrapping_add(range.start));
    let access = access(region.role) | flag;
    let pages = (range.len() / PAGE + 2) as u32;
    let rkey =
        core.memory().alloc_fast(pd, pages).unwrap_or_else(|error| panic!("{range:?}: {error}"));
    let parts = [(memory, range.clone())];
    let done = core.memory().map_fast_buffers(rkey, &parts, PAGE, mapped);
    done.unwrap_or_else(|error| panic!("{range:?} at {mapped:#x}: {error}"));
    let done = core.memory().register_fast(rkey, access, pd);
    done.unwrap_or_else(|error| panic!("{range:?} at {mapped:#x}: {error}"));
    Mr { lkey: Lkey(rkey.0), rkey, iova, len: range.len(), access, pd }
}

/// The region under a window. Its own key grants peers nothing.
pub(super) fn region_for_window(
    core: &Device,
    pd: PdId,
    memory: &Arc<Buffer>,
    region: &RegionPlan,
) -> Mr {
    let range = region.range.clone();
    let (iova, ..) = start(region.naming, memory.addr().wrapping_add(range.start));
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let registered = core.memory().register_buffer(pd, memory, range.clone(), iova, access);
    registered.unwrap_or_else(|error| panic!("{range:?} at {iova:#x}: {error}"))
}

/// Binds the windows for the peers that take them away, and puts their keys into `mrs`.
pub(super) fn bind_windows(
    plan: &Plan,
    core: &Device,
    qps: &BTreeMap<EndId, HostQp>,
    mrs: &mut [Mr],
) -> BTreeMap<usize, Window> {
    let mut windows = BTreeMap::new();
    for (&end, qp) in qps {
        let regions = &plan.devices[plan.end(end).device].regions;
        for (_, index) in plan.invalidated(end.peer()) {
            let kind = match regions[index].role {
                Role::Windowed => MwType::Type2,
                Role::Rebound => MwType::Type1,
                _ => continue,
            };
            let mr = &mut mrs[index];
            let zero = if regions[index].naming == Naming::ZeroBased {
                Access::ZERO_BASED
            } else {
                Access::empty()
            };
            let window =
                Window { region: mr.lkey, addr: mr.iova, access: access(Role::Windowed) | zero };
            let key = core.memory().alloc_mw(mr.pd, kind).unwrap_or_else(|error| panic!("{error}"));
            let bind = window.bind(key, key, mr.len);
            let by = Accessor { pd: mr.pd, qpn: Some(qp.handle.qpn()) };
            mr.rkey =
                core.memory().bind(&bind, by).unwrap_or_else(|error| panic!("{end}: {error}"));
            mr.access = window.access;
            if !zero.is_empty() {
                mr.iova = 0;
            }
            windows.insert(index, window);
        }
    }
    windows
}

impl Window {
    fn bind(&self, window: Rkey, new_rkey: Rkey, len: usize) -> Bind {
        let Self { region, addr, access } = *self;
        Bind { window, new_rkey, region, addr, length: len as u64, access }
    }
}

impl Host {
    /// The peer of `end` took `rkey` away, a completion says: nothing may go through it any more.
    /// Gives its region the next key.
    ///
    /// # Errors
    /// What is wrong with the former key or the new one.
    pub fn renew(&self, end: EndId, rkey: Rkey) -> Result<Renewed, String> {
        let memory = self.device().memory();
        let found = self.mrs.iter().position(|mr| mr.rkey == rkey);
        let index =
            found.ok_or_else(|| format!("{rkey} was invalidated, which is no key of a region"))?;
        let (mr, by) = self.lent(end, index);
        if self.pin(by, &mr, rkey).is_ok() {
            return Err(format!("{rkey} was invalidated and still grants access"));
        }
        let next = inc_rkey(rkey);
        let now = match self.windows.get(&index) {
            Some(window) => say(memory.bind(&window.bind(rkey, next, mr.len), by))?,
            None => say(memory.register_fast(next, mr.access, mr.pd)).map(|()| next)?,
        };
        let renewed = Renewed { by, mr, now, rebound: false };
        self.check(&renewed)?;
        Ok(renewed)
    }

    /// The peer of `end` says that it is done with a region that has a type 1 window: binds it
    /// anew, which ends the former key.
    ///
    /// # Errors
    /// What is wrong with the former key or the new one.
    pub fn rebind(&self, end: EndId, region: usize) -> Result<Renewed, String> {
        let (mr, by) = self.lent(end, region);
        self.pin(by, &mr, mr.rkey)
            .map_err(|error| format!("{} is a valid key and grants nothing: {error}", mr.rkey))?;
        let window = self.windows.get(&region).ok_or("a region without a window")?;
        let next = if self.keeps_keys() { mr.rkey } else { inc_rkey(mr.rkey) };
        let bind = window.bind(mr.rkey, next, mr.len);
        let now = say(self.device().memory().bind(&bind, by))?;
        let renewed = Renewed { by, mr, now, rebound: true };
        self.check(&renewed)?;
        Ok(renewed)
    }

    /// Whether the new key, and the new key alone, stands for the region.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, renewed: &Renewed) -> Result<(), String> {
        let Renewed { by, mr, now, .. } = *renewed;
        if self.pin(by, &mr, mr.rkey).is_ok() {
            return Err(format!("{} was taken away and grants access again", mr.rkey));
        }
        self.pin(by, &mr, now).map_err(|error| format!("{now} replaced {}: {error}", mr.rkey))
    }

    /// A region, and its peer by the queue pair of `end`.
    fn lent(&self, end: EndId, region: usize) -> (Mr, Accessor) {
        let mr = self.mrs[region];
        (mr, Accessor { pd: mr.pd, qpn: Some(self.qps[&end].handle.qpn()) })
    }

    /// Whether a key lets `by` write to the whole of a region.
    fn pin(&self, by: Accessor, mr: &Mr, key: Rkey) -> Result<(), AccessError> {
        let len = mr.len as u64;
        self.device().memory().pin(key.0, by, Access::REMOTE_WRITE, mr.iova, len).map(drop)
    }
}
