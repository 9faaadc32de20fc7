//! Calls that create, change and remove regions, windows and fast-registration regions.

use urxe_stack::memory::{Access, Memory, Mr, MwType, PdId};
use urxe_wire::{Lkey, Rkey};

use super::{Scenario, errno, error_context, expect_equal};
use crate::keys::{Change, Key, Kind};
use crate::operation::Operation;

const PAGE: usize = 4096;

impl Scenario {
    pub(super) fn act_on_keys(&mut self, operation: &Operation) -> Result<(), String> {
        let blank = |device, pd, kind, value| Key {
            device,
            pd,
            kind,
            value,
            exists: true,
            is_valid: false,
            start: 0,
            base: 0,
            len: 0,
            access: Access::empty(),
            under: None,
            former: None,
        };
        match operation.clone() {
            Operation::Register { device, pd, range, start, access } => {
                let host = &self.hosts[device];
                // The address must have the memory's own offset in its page.
                let start = start + ((host.buffer.addr().addr() + range.start) % PAGE) as u64;
                let (memory, pd_id) = self.memory(device, pd);
                let mr = memory.register_buffer(pd_id, &host.buffer, range.clone(), start, access);
                let mr = error_context(mr, "registration")?;
                let key = blank(device, pd, Kind::Region, mr.rkey.value());
                let (base, len) = (range.start, range.len());
                self.model.keys.0.push(Key { is_valid: true, start, base, len, access, ..key });
            }
            Operation::Reregister { key, change } => return self.reregister(key, &change),
            Operation::AllocWindow { device, pd, is_type_2 } => {
                let kind = if is_type_2 { MwType::Type2 } else { MwType::Type1 };
                let (memory, pd_id) = self.memory(device, pd);
                let key = error_context(memory.alloc_mw(pd_id, kind), "a window")?;
                let kind = Kind::Window { is_type_2, bound_by: None };
                self.model.keys.0.push(blank(device, pd, kind, key.value()));
            }
            Operation::AllocFast { device, pd } => {
                let (memory, pd_id) = self.memory(device, pd);
                let key = error_context(memory.alloc_fast(pd_id, 4), "a region")?;
                self.model.keys.0.push(blank(device, pd, Kind::Fast { staged: None }, key.value()));
            }
            Operation::Map { key: nr, range } => {
                let key = &mut self.model.keys.0[nr];
                let host = &self.hosts[key.device];
                let start = (host.buffer.addr().addr() + range.start) as u64;
                let parts = [(&host.buffer, range.clone())];
                let memory = host.device.memory();
                error_context(
                    memory.map_fast_buffers(Rkey(key.value), &parts, PAGE, start),
                    "a mapping",
                )?;
                key.kind = Kind::Fast { staged: Some((start, range.start, range.len())) };
            }
            Operation::DeallocWindow { key } => {
                let Key { device, pd, value, .. } = self.model.keys.0[key];
                let (memory, _) = self.memory(device, pd);
                error_context(memory.dealloc_mw(Rkey(value)), "a window that goes")?;
                self.model.remove_key(key);
            }
            Operation::Deregister { key } => {
                let Key { device, pd, value, .. } = self.model.keys.0[key];
                let (memory, _) = self.memory(device, pd);
                let may = self.model.may_go(key);
                expect_equal("deregistered", memory.deregister(Lkey(value)).is_ok(), may)?;
                self.model.count(if may { "deregistered" } else { "busy with windows" });
                if may {
                    self.model.remove_key(key);
                }
            }
            other => return Err(format!("not about keys: {other:?}")),
        }
        Ok(())
    }

    /// Returns the memory of a device, and one of its protection domains.
    fn memory(&self, device: usize, pd: usize) -> (&Memory, PdId) {
        (self.hosts[device].device.memory(), self.hosts[device].pds[pd])
    }

    fn reregister(&mut self, nr: usize, change: &Change) -> Result<(), String> {
        let Key { device, value, .. } = self.model.keys.0[nr];
        let host = &self.hosts[device];
        let place = change.place.clone().map(|(range, start)| (&host.buffer, range, start));
        let pd = change.pd.map(|pd| host.pds[pd]);
        let changed = host.device.memory().reregister_buffer(Lkey(value), place, pd, change.access);
        let actual = changed.map_err(|error| errno(error.errno()));
        expect_equal("reregistered", actual.map(drop), self.model.reregister(nr, change))?;
        let Ok(actual) = actual else { return Ok(()) };
        let Key { start, len, access, pd, .. } = self.model.keys.0[nr];
        let pd = self.hosts[device].pds[pd];
        let expected = Mr { lkey: Lkey(value), rkey: Rkey(value), iova: start, len, access, pd };
        expect_equal("reregistered as", actual, expected)
    }
}
