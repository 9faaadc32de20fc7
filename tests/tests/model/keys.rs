//! The keys of the model, with their ranges and rights.

use std::ops::Range;

use rustix::io::Errno;
use urxe_stack::memory::{Access, Bind};

const PAGE: u64 = 4096;
/// Rights to change bytes, which require the local write right.
pub const CHANGES: Access = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);

/// The kind of object of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A memory region.
    Region,
    /// A window, with the queue pair that bound it, if any.
    Window { is_type_2: bool, bound_by: Option<usize> },
    /// A fast-registration region, with the latest mapping if it is not registered yet: address,
    /// offset in memory, length.
    Fast { staged: Option<(u64, usize, usize)> },
}

/// A key with its range and rights.
#[derive(Clone, Debug)]
pub struct Key {
    pub device: usize,
    pub pd: usize,
    pub kind: Kind,
    /// The current value of the key.
    pub value: u32,
    /// Whether the object is neither deregistered nor deallocated.
    pub exists: bool,
    /// Whether the key grants access.
    pub is_valid: bool,
    /// The address of the first byte in requests.
    pub start: u64,
    /// The offset of the first byte in the device's memory.
    pub base: usize,
    pub len: usize,
    pub access: Access,
    /// The region of a window.
    pub under: Option<usize>,
    /// The state before the latest reregistration.
    pub former: Option<Box<Key>>,
}

impl Key {
    /// Returns the offset in memory of the `len` bytes at `addr`, if `accessor` has the needed
    /// right.
    pub fn admits(
        &self,
        accessor: Accessor,
        need: Access,
        addr: u64,
        len: usize,
    ) -> Result<usize, Refusal> {
        match self.kind {
            // Windows grant access to peers only.
            Kind::Window { .. } if accessor.qp.is_none() => return Err(Refusal::NoKey),
            _ if self.pd != accessor.pd => return Err(Refusal::WrongPd),
            Kind::Window { is_type_2: true, bound_by } if bound_by != accessor.qp => {
                return Err(Refusal::WrongQp);
            }
            _ => {}
        }
        if !self.access.contains(need) {
            return Err(Refusal::NoRight);
        }
        self.place(addr, len)
    }

    /// Returns the offset in memory of the `len` bytes at `addr`, for any accessor.
    fn place(&self, addr: u64, len: usize) -> Result<usize, Refusal> {
        let offset = addr.checked_sub(self.start).ok_or(Refusal::OutOfBounds)?;
        if offset + len as u64 > self.len as u64 {
            return Err(Refusal::OutOfBounds);
        }
        Ok(self.base + offset as usize)
    }
}

/// The changes of a reregistration.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The bytes of the device's memory, and the address of the first byte in requests.
    pub place: Option<(Range<usize>, u64)>,
    pub pd: Option<usize>,
    pub access: Option<Access>,
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key is unknown, removed or invalid.
    NoKey,
    WrongPd,
    /// The window belongs to another queue pair.
    WrongQp,
    NoRight,
    OutOfBounds,
}

/// The subject of an access.
#[derive(Clone, Copy, Debug)]
pub struct Accessor {
    pub device: usize,
    pub pd: usize,
    /// The queue pair through which a peer accesses memory; `None` for the program itself.
    pub qp: Option<usize>,
}

/// All keys, removed ones included.
#[derive(Clone, Debug, Default)]
pub struct Keys(pub Vec<Key>);

impl Keys {
    pub fn find(&self, device: usize, value: u32) -> Option<usize> {
        self.0.iter().position(|key| key.exists && key.device == device && key.value == value)
    }

    /// Returns the offset in memory of the `len` bytes at `addr`, if `accessor` has the needed
    /// right.
    pub fn resolve(
        &self,
        accessor: Accessor,
        value: u32,
        need: Access,
        addr: u64,
        len: usize,
    ) -> Result<usize, Refusal> {
        let key =
            self.find(accessor.device, value).map(|nr| &self.0[nr]).filter(|key| key.is_valid);
        key.ok_or(Refusal::NoKey)?.admits(accessor, need, addr, len)
    }

    /// Returns the offset in memory of the `len` bytes at `addr`, for any accessor.
    pub fn place(
        &self,
        device: usize,
        value: u32,
        addr: u64,
        len: usize,
    ) -> Result<usize, Refusal> {
        self.0[self.find(device, value).ok_or(Refusal::NoKey)?].place(addr, len)
    }

    /// Returns whether windows are bound to this key's region.
    pub fn is_under_windows(&self, nr: usize) -> bool {
        self.0.iter().any(|key| key.exists && key.is_valid && key.under == Some(nr))
    }

    /// Binds a window for a queue pair of `pd`. Returns whether that is permitted.
    pub fn bind(&mut self, device: usize, pd: usize, qp: usize, bind: &Bind) -> bool {
        let Some(nr) = self.find(device, bind.window.value()) else { return false };
        let window = &self.0[nr];
        let Kind::Window { is_type_2, .. } = window.kind else { return false };
        if window.pd != pd || (is_type_2 && (window.is_valid || bind.length == 0)) {
            return false;
        }
        let mut target = None;
        if bind.length != 0 {
            let Some(under) = self.find(device, bind.region.value()) else { return false };
            let region = &self.0[under];
            let inside = bind.addr >= region.start
                && bind.addr - region.start + bind.length <= region.len as u64;
            if matches!(region.kind, Kind::Window { .. })
                || !region.is_valid
                || region.pd != pd
                || !region.access.contains(Access::MW_BIND)
                || (bind.access.intersects(CHANGES) && !region.access.contains(Access::LOCAL_WRITE))
                || !inside
            {
                return false;
            }
            target = Some((under, region.base + (bind.addr - region.start) as usize));
        }
        let window = &mut self.0[nr];
        window.value = window.value & !0xff | bind.new_rkey.value() & 0xff;
        window.is_valid = target.is_some();
        window.under = target.map(|(under, _)| under);
        if let Some((_, base)) = target {
            (window.base, window.start, window.len) = (base, bind.addr, bind.length as usize);
            window.access = bind.access;
            window.kind = Kind::Window { is_type_2, bound_by: is_type_2.then_some(qp) };
        }
        true
    }

    /// Registers a fast-registration region under `value`. Returns whether that is permitted.
    pub fn register_fast(&mut self, device: usize, pd: usize, value: u32, access: Access) -> bool {
        let names = |key: &Key| {
            key.exists
                && key.device == device
                && key.value >> 8 == value >> 8
                && matches!(key.kind, Kind::Fast { .. })
        };
        let Some(key) = self.0.iter_mut().find(|key| names(key)) else { return false };
        let Kind::Fast { staged } = key.kind else { return false };
        if key.pd != pd || key.is_valid || (staged.is_none() && key.len == 0) {
            return false;
        }
        if let Some(mapped) = staged {
            (key.start, key.base, key.len) = mapped;
        }
        key.kind = Kind::Fast { staged: None };
        (key.value, key.access, key.is_valid) = (value, access, true);
        true
    }

    /// Invalidates a key, by the program or by its peer. Returns whether that is permitted.
    pub fn invalidate(
        &mut self,
        device: usize,
        pd: usize,
        qp: usize,
        value: u32,
        by_peer: bool,
    ) -> bool {
        let Some(nr) = self.find(device, value) else { return false };
        let bound_to = self.is_under_windows(nr);
        let key = &mut self.0[nr];
        if key.pd != pd {
            return false;
        }
        match key.kind {
            Kind::Region => return false,
            // Invalidating a free region is no error for the program.
            Kind::Fast { .. } if !key.is_valid => return !by_peer,
            Kind::Fast { .. } if bound_to => return false,
            Kind::Fast { .. } => {}
            Kind::Window { is_type_2, bound_by } => {
                if !is_type_2 || !key.is_valid || bound_by != Some(qp) {
                    return false;
                }
                key.under = None;
            }
        }
        key.is_valid = false;
        true
    }

    /// Checks whether a region may be reregistered (IBTA vol. 1, 11.2.8.8; `ibv_rereg_mr(3)`).
    /// Errors have the numbers of the kernel's `ib_uverbs_rereg_mr`.
    pub fn may_change(&self, nr: usize, change: &Change) -> Result<(), Errno> {
        let key = &self.0[nr];
        let says_nothing = change.place.is_none() && change.pd.is_none() && change.access.is_none();
        let misplaced = change
            .place
            .as_ref()
            .is_some_and(|(range, start)| start % PAGE != range.start as u64 % PAGE);
        let lacks_right = change.access.is_some_and(|access| {
            access.intersects(CHANGES) && !access.contains(Access::LOCAL_WRITE)
        });
        if !key.exists || key.kind != Kind::Region || says_nothing || misplaced || lacks_right {
            return Err(Errno::INVAL);
        }
        if self.is_under_windows(nr) { Err(Errno::BUSY) } else { Ok(()) }
    }

    /// Reregisters a region, which keeps its keys. Absent changes leave a property as before.
    pub fn change(&mut self, nr: usize, change: &Change) {
        let key = &mut self.0[nr];
        key.former = Some(Box::new(Key { former: None, ..key.clone() }));
        if let Some((range, start)) = &change.place {
            (key.base, key.len, key.start) = (range.start, range.len(), *start);
        }
        key.pd = change.pd.unwrap_or(key.pd);
        key.access = change.access.unwrap_or(key.access);
    }
}
