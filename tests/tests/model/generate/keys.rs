//! Verbs on keys: creation, change and removal of regions, windows and fast-registration regions.

use std::ops::Range;

use urxe_stack::memory::Access;

use super::Generator;
use crate::keys::{Accessor, CHANGES, Change, Key, Kind};
use crate::operation::{MEMORY, Operation};
use crate::specification::Model;

/// The maximum number of keys of a device.
const MAX_KEYS: usize = 24;

impl Generator {
    /// Returns a part of a device's memory, a multiple of eight bytes long.
    pub(super) fn part(&mut self) -> Range<usize> {
        let len = 8 * (1 + self.rng.index(250));
        let start = 8 * self.rng.index((MEMORY - len) / 8);
        start..start + len
    }

    /// Returns the registration of a new region.
    pub(super) fn registration(&mut self, device: usize, pd: usize) -> Operation {
        let (range, start) = (self.part(), u64::from(self.rng.next_u32()) << 12);
        Operation::Register { device, pd, range, start, access: self.access() }
    }

    pub(super) fn access(&mut self) -> Access {
        let rights = [
            Access::REMOTE_WRITE,
            Access::REMOTE_READ,
            Access::REMOTE_ATOMIC,
            Access::FLUSH_GLOBAL,
            Access::MW_BIND,
            Access::LOCAL_WRITE,
        ];
        let mut access = Access::empty();
        for right in rights {
            if self.percent(75) {
                access |= right;
            }
        }
        match access.intersects(CHANGES) {
            _ if self.percent(15) => access & !CHANGES & !Access::LOCAL_WRITE,
            true => access | Access::LOCAL_WRITE,
            false => access,
        }
    }

    pub(super) fn keys(&mut self, model: &Model) -> Operation {
        let (device, pd) = (self.rng.index(2), usize::from(self.percent(25)));
        let of_device = |key: &&Key| key.exists && key.device == device;
        let room = model.keys.0.iter().filter(of_device).count() < MAX_KEYS;
        let some = self.rng.index(model.keys.0.len().max(1));
        let key = model.keys.0.get(some).filter(|key| key.exists);
        match (self.rng.index(9), key.map(|key| key.kind)) {
            (0..=1, _) if room => self.registration(device, pd),
            (2, _) if room => Operation::AllocWindow { device, pd, is_type_2: self.percent(70) },
            (3, _) if room => Operation::AllocFast { device, pd },
            (4..=5, Some(Kind::Window { .. })) => Operation::DeallocWindow { key: some },
            (4..=5, Some(Kind::Region)) => Operation::Deregister { key: some },
            (8, _) => self.reregistration(model, device, some),
            (6, Some(Kind::Fast { .. })) => Operation::Deregister { key: some },
            (_, Some(Kind::Fast { .. })) => Operation::Map { key: some, range: self.part() },
            _ => {
                let qp = self.rng.pick(&[0, 1, 2, 3, 4, 5]);
                if !model.waiting[qp].is_empty() {
                    return Operation::Resume { qp };
                }
                self.local_request(model, qp)
            }
        }
    }

    /// Returns a reregistration of a region with another place, domain or rights, mostly.
    fn reregistration(&mut self, model: &Model, device: usize, some: usize) -> Operation {
        let keys = &model.keys;
        let of_device = |nr: &usize| keys.0[*nr].device == device;
        let is_region = |nr: &usize| keys.0[*nr].exists && keys.0[*nr].kind == Kind::Region;
        let regions: Vec<usize> = (0..keys.0.len()).filter(of_device).filter(is_region).collect();
        let (bound, unbound): (Vec<usize>, Vec<usize>) =
            regions.iter().copied().partition(|nr| keys.is_under_windows(*nr));
        let wrong = self.percent(15);
        let is_gone = keys.0.get(some).is_some_and(|key| !key.exists && key.kind == Kind::Region);
        // One fault at a time.
        let any_of = match (wrong, self.rng.index(4)) {
            (true, 0) if is_gone => vec![some],
            (true, _) => unbound,
            (false, 0) => bound,
            (false, _) => regions,
        };
        if any_of.is_empty() {
            return Operation::AllocWindow { device, pd: 0, is_type_2: true };
        }
        let key = self.rng.pick(&any_of);
        let fields = if wrong { self.rng.index(8) } else { 1 + self.rng.index(7) };
        let mut change = Change::default();
        if fields & 1 != 0 {
            let (range, page) = (self.part(), u64::from(self.rng.next_u32()) << 12);
            let start = page + range.start as u64 % (1 << 12);
            change.place = Some((range, start + if wrong { 8 } else { 0 }));
        }
        if fields & 2 != 0 {
            change.pd = Some(usize::from(self.percent(25)));
        }
        if fields & 4 != 0 {
            let access = self.access();
            change.access = Some(if wrong { access - Access::LOCAL_WRITE } else { access });
        }
        Operation::Reregister { key, change }
    }

    /// Returns the former states of regions that no longer grant `accessor` the same access after a
    /// reregistration.
    pub(super) fn former_regions(
        model: &Model,
        accessor: Accessor,
        need: Access,
        len: usize,
    ) -> Vec<&Key> {
        let former_regions = model.keys.0.iter().filter(|key| key.exists).filter_map(|key| {
            let former = key.former.as_deref()?;
            let is_other = key.admits(accessor, need, former.start, 1).is_err();
            (key.device == accessor.device && is_other).then_some(former)
        });
        former_regions
            .filter(|former| former.admits(accessor, need, former.start, len).is_ok())
            .collect()
    }
}
