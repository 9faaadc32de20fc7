//! The program's buffer: regions with gaps between them, and the parts that must never change.

use std::sync::LazyLock;

use urxe_stack::memory::{Access, Accessor, Bind, Mr, MwType};
use urxe_stack::qp::work_request::Sge;
use urxe_wire::{Lkey, Rkey};

use super::Scenario;
use crate::device::plan::Place;

pub(super) const GAP: usize = 512;
/// Length and access rights of each region, and whether it belongs to the queue pairs' domain. The
/// last ones are special.
pub(super) const REGIONS: [(usize, Access, bool); 7] = [
    (10 << 10, Access::LOCAL_WRITE.union(REMOTE), true),
    (4 << 10, Access::REMOTE_READ, true),
    (6000, Access::LOCAL_WRITE, true),
    (4 << 10, Access::LOCAL_WRITE.union(REMOTE), false),
    (5001, Access::LOCAL_WRITE.union(Access::REMOTE_WRITE), true),
    (9000, Access::LOCAL_WRITE.union(REMOTE), true),
    (4 << 10, REMOTE, true),
];
/// The index of a fast-registration region, whose key peers and work requests may invalidate.
pub(super) const FAST: usize = 5;
/// The index of a window over a region of its own.
pub(super) const WINDOW: usize = 6;
pub(super) const REMOTE: Access =
    Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);
/// Regions that must never change, besides the gaps.
pub(super) const CONSTANT: [usize; 2] = [1, 3];

/// The initial contents of the buffer.
pub(super) static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..64usize << 10).map(|at| (at.wrapping_mul(167) >> 3) as u8 ^ 0xc3).collect()
});

impl Scenario {
    /// Returns the address, length and key of a place.
    pub fn remote(&self, place: Place) -> (u64, u32, u32) {
        let nr = usize::from(place.region % 8) % REGIONS.len();
        let key = self.keys[nr] ^ if place.region > 240 { u32::from(place.region) } else { 0 };
        let base = self.buffer.addr() as u64 + self.offsets[nr] as u64;
        let offset = u64::from(place.offset) % (REGIONS[nr].0 as u64 + 64);
        // Mostly aligned, sometimes before the region.
        let offset = if place.offset & 7 == 5 { offset } else { offset & !7 };
        let addr = if place.offset > 0xff00 { base.wrapping_sub(offset) } else { base + offset };
        (addr, u32::from(place.length), key)
    }

    pub(super) fn sge(&self, place: Place) -> Sge {
        let (addr, length, key) = self.remote(place);
        Sge { addr, length: length % 12_000, lkey: Lkey(key) }
    }

    /// Returns a bind of the window to all of its region.
    pub(super) fn bind(&self, new_rkey: Rkey) -> Bind {
        let (region, addr) = self.under_window.map_or((Lkey(0), 0), |mr| (mr.lkey, mr.iova));
        let (length, access, _) = REGIONS[WINDOW];
        Bind {
            window: Rkey(self.keys[WINDOW]),
            new_rkey,
            region,
            addr,
            length: length as u64,
            access,
        }
    }

    pub(super) fn toggle_region(&mut self, nr: usize) {
        if let Some(mr) = self.regions[nr].take() {
            let under = if nr == WINDOW { self.under_window.take() } else { None };
            if let Some(under) = under {
                self.device.memory().dealloc_mw(mr.rkey).expect("it is allocated");
                self.device.memory().deregister(under.lkey).expect("no window is left");
            } else {
                self.device.memory().deregister(mr.lkey).expect("it is registered");
            }
            return;
        }
        let (len, access, own) = REGIONS[nr];
        let pd = self.pds[usize::from(!own)];
        let start = self.offsets[nr];
        let iova = (self.buffer.addr() as usize + start) as u64;
        let memory = self.device.memory();
        let under = if nr == WINDOW { Access::LOCAL_WRITE | Access::MW_BIND } else { access };
        let mut mr = Mr { lkey: Lkey(0), rkey: Rkey(0), iova, len, access, pd };
        if nr == FAST {
            mr.rkey = memory.alloc_fast(pd, 4).expect("there are many");
            mr.lkey = Lkey(mr.rkey.value());
            let parts = [(&self.buffer, start..start + len)];
            memory.map_fast_buffers(mr.rkey, &parts, 4096, iova).expect("a good mapping");
            memory.register_fast(mr.rkey, access, pd).expect("it is mapped and free");
        } else {
            mr = memory
                .register_buffer(pd, &self.buffer, start..start + len, iova, under)
                .expect("a good region");
        }
        if nr == WINDOW {
            // The first queue pair's window, or, without a queue pair, a window of the whole
            // domain.
            let qpn = self.qps[0].handle.map(|handle| handle.qpn());
            let kind = if qpn.is_some() { MwType::Type2 } else { MwType::Type1 };
            self.under_window = Some(mr);
            mr.rkey = memory.alloc_mw(pd, kind).expect("there are many");
            self.keys[nr] = mr.rkey.value();
            memory.bind(&self.bind(mr.rkey), Accessor { pd, qpn }).expect("a good window");
        }
        self.keys[nr] = mr.rkey.value();
        self.regions[nr] = Some(mr);
    }

    pub(super) fn check_memory(&self) {
        let mut bytes = vec![0; self.buffer.len()];
        self.buffer.read(0, &mut bytes).expect("inside");
        let mut start = 0;
        let mut check = |end: usize, next: usize| {
            if bytes[start..end] != PATTERN[start..end] {
                let at = (start..end).find(|at| bytes[*at] != PATTERN[*at]);
                panic!("byte {at:?} of the buffer was written and must not be");
            }
            start = next;
        };
        for nr in (0..REGIONS.len()).filter(|nr| !CONSTANT.contains(nr)) {
            check(self.offsets[nr], self.offsets[nr] + REGIONS[nr].0);
        }
        check(bytes.len(), bytes.len());
    }
}
