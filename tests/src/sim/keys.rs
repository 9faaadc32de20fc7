//! Keys that become invalid during a run and their replacement. A peer invalidates
//! fast-registration regions and type 2 windows. It cannot invalidate type 1 windows, so it
//! announces by a message that it no longer uses them. The program then replaces the key.

use std::collections::BTreeMap;
use std::sync::Arc;

use urxe_stack::device::Device;
use urxe_stack::memory::{Access, AccessError, Accessor, Bind, Buffer, Mr, MwType, PdId, inc_rkey};
use urxe_test_support::simulation::error_text;
use urxe_wire::{Lkey, Rkey};

use super::host::{Host, HostQp, access};
use super::plan::{EndId, Naming, Plan, RegionPlan, Role};

const PAGE: usize = 4096;

/// A bound window, with all values for binding again.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    region: Lkey,
    /// The first address in the region.
    addr: u64,
    access: Access,
}

/// A key that a peer invalidated or released.
#[derive(Clone, Copy, Debug)]
pub struct ReplacedKey {
    by: Accessor,
    /// The registration under the former key `rkey`.
    mr: Mr,
    /// The key that replaced the former key.
    now: Rkey,
    /// Whether the former key was valid when it was replaced.
    rebound: bool,
}

impl ReplacedKey {
    /// Returns whether the key belongs to a type 1 window.
    #[must_use]
    pub fn is_rebound(&self) -> bool {
        self.rebound
    }
}

/// Returns a region's first address, the address for peers, and the access flag that follows.
pub(super) fn start(naming: Naming, addr: *mut u8) -> (u64, u64, Access) {
    let into_page = (addr.addr() % PAGE) as u64;
    match naming {
        Naming::ZeroBased => (into_page, 0, Access::ZERO_BASED),
        Naming::Page(page) => (page + into_page, page + into_page, Access::empty()),
    }
}

/// Registers a fast-registration region over the whole of `region` under its first key.
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

/// Registers the region under a window. The region's own key grants peers nothing.
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

/// Binds the windows for the peers that invalidate them, and puts their keys into `mrs`.
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
    /// Handles a completion by which the peer of `end` invalidated `rkey`. Checks that the key
    /// grants nothing any more, and gives the region the next key.
    ///
    /// # Errors
    /// A fault of the former or the new key, as a text.
    pub fn replace_key(&self, end: EndId, rkey: Rkey) -> Result<ReplacedKey, String> {
        let memory = self.device().memory();
        let found = self.mrs.iter().position(|mr| mr.rkey == rkey);
        let index =
            found.ok_or_else(|| format!("{rkey} was invalidated, but belongs to no region"))?;
        let (mr, by) = self.lent(end, index);
        if self.pin(by, &mr, rkey).is_ok() {
            return Err(format!("{rkey} was invalidated and still grants access"));
        }
        let next = inc_rkey(rkey);
        let now = match self.windows.get(&index) {
            Some(window) => error_text(memory.bind(&window.bind(rkey, next, mr.len), by))?,
            None => error_text(memory.register_fast(next, mr.access, mr.pd)).map(|()| next)?,
        };
        let replaced = ReplacedKey { by, mr, now, rebound: false };
        self.check(&replaced)?;
        Ok(replaced)
    }

    /// Handles a message by which the peer of `end` releases a region with a type 1 window. Binds
    /// the window again, which ends the former key.
    ///
    /// # Errors
    /// A fault of the former or the new key, as a text.
    pub fn rebind(&self, end: EndId, region: usize) -> Result<ReplacedKey, String> {
        let (mr, by) = self.lent(end, region);
        self.pin(by, &mr, mr.rkey)
            .map_err(|error| format!("{} is a valid key but grants no access: {error}", mr.rkey))?;
        let window = self.windows.get(&region).ok_or("a region without a window")?;
        let next = if self.keeps_keys() { mr.rkey } else { inc_rkey(mr.rkey) };
        let bind = window.bind(mr.rkey, next, mr.len);
        let now = error_text(self.device().memory().bind(&bind, by))?;
        let replaced = ReplacedKey { by, mr, now, rebound: true };
        self.check(&replaced)?;
        Ok(replaced)
    }

    /// Checks that only the new key grants access to the region.
    ///
    /// # Errors
    /// The fault, as a text.
    pub fn check(&self, replaced: &ReplacedKey) -> Result<(), String> {
        let ReplacedKey { by, mr, now, .. } = *replaced;
        if self.pin(by, &mr, mr.rkey).is_ok() {
            return Err(format!("{} was invalidated and grants access again", mr.rkey));
        }
        self.pin(by, &mr, now).map_err(|error| format!("{now} replaced {}: {error}", mr.rkey))
    }

    /// Returns a region, and its peer through the queue pair of `end`.
    fn lent(&self, end: EndId, region: usize) -> (Mr, Accessor) {
        let mr = self.mrs[region];
        (mr, Accessor { pd: mr.pd, qpn: Some(self.qps[&end].handle.qpn()) })
    }

    /// Checks that a key lets `by` write to the whole of a region.
    fn pin(&self, by: Accessor, mr: &Mr, key: Rkey) -> Result<(), AccessError> {
        let len = mr.len as u64;
        self.device().memory().pin(key.0, by, Access::REMOTE_WRITE, mr.iova, len).map(drop)
    }
}
