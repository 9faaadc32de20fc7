//! The model of keys: IBTA vol. 1, 10.6 and 11.2.8.
//!
//! An object is a region, a fast-registration region or a window. Its key grants access while it is
//! valid.

use urxe_stack::memory::{Access, Bind};

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A region.
    Region,
    /// A fast-registration region, with the mapping that the next registration uses.
    Fast { staged: Option<Range> },
    /// A window, with the connection that bound it, and the index of the region below it.
    Window { is_type_2: bool, by_handle: bool, qp: Option<usize>, below: Option<usize> },
}

/// Bytes of the memory, with the address of the first one in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The address of the first byte in requests.
    pub start: u64,
    /// The offset of the first byte in the memory.
    pub base: usize,
    /// The length in bytes.
    pub len: usize,
}

/// An object that exists.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its protection domain.
    pub pd: usize,
    /// Its key at present.
    pub key: u32,
    /// Whether the key grants access.
    pub is_valid: bool,
    /// Its memory.
    pub range: Range,
    /// The rights that its key grants.
    pub access: Access,
}

/// The user of a key.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// The protection domain.
    pub pd: usize,
    /// The connection of a peer; `None` for the owner.
    pub qp: Option<usize>,
}

/// All objects; `None` for those that have ended.
#[derive(Debug, Default)]
pub struct Model(pub Vec<Option<Object>>);

impl Range {
    /// Returns the offset in the memory of `len` bytes at `addr`.
    fn locate(&self, addr: u64, len: u64) -> Option<usize> {
        let inside = addr.checked_sub(self.start)?;
        let end = inside.checked_add(len)?;
        (end <= self.len as u64).then_some(self.base + inside as usize)
    }
}

impl Object {
    fn is_window(&self) -> bool {
        matches!(self.kind, Kind::Window { .. })
    }

    /// Returns whether calls that ignore the low byte of a key mean this object.
    fn is_named_by(&self, key: u32) -> bool {
        match self.kind {
            Kind::Region => self.key == key,
            _ => self.key >> 8 == key >> 8,
        }
    }
}

impl Model {
    fn find(&self, is_it: impl Fn(&Object) -> bool) -> Option<usize> {
        self.0.iter().position(|object| object.as_ref().is_some_and(&is_it))
    }

    fn get(&self, nr: usize) -> Option<&Object> {
        self.0.get(nr)?.as_ref()
    }

    fn is_below_windows(&self, nr: usize) -> bool {
        let region = |object: &Object| match object.kind {
            Kind::Window { below, .. } if object.is_valid => below,
            _ => None,
        };
        self.find(|object| region(object) == Some(nr)).is_some()
    }

    /// Returns the offset in the memory of `len` bytes at `addr`, if the key grants them.
    pub fn resolve(
        &self,
        user: User,
        key: u32,
        need: Access,
        addr: u64,
        len: u64,
    ) -> Option<usize> {
        let nr = self.find(|object| object.is_valid && object.key == key)?;
        let object = self.get(nr)?;
        let is_permitted = match object.kind {
            Kind::Window { is_type_2, qp, .. } => {
                user.qp.is_some() && (!is_type_2 || qp == user.qp)
            }
            _ => true,
        };
        let is_granted = object.pd == user.pd && is_permitted && object.access.contains(need);
        object.range.locate(addr, len).filter(|_| is_granted)
    }

    /// Returns whether a region may be changed.
    pub fn changeable(&self, key: u32) -> Option<usize> {
        let nr = self.find(|object| object.kind == Kind::Region && object.key == key)?;
        (!self.is_below_windows(nr)).then_some(nr)
    }

    /// Returns the fast-registration region that a key names.
    pub fn fast(&self, key: u32) -> Option<usize> {
        self.find(|object| matches!(object.kind, Kind::Fast { .. }) && object.is_named_by(key))
    }

    /// Ends a region. Returns whether that is permitted.
    pub fn deregister(&mut self, key: u32) -> bool {
        let is_it = |object: &Object| !object.is_window() && object.is_named_by(key);
        let found = self.find(is_it).filter(|nr| !self.is_below_windows(*nr));
        found.map(|nr| self.0[nr] = None).is_some()
    }

    /// Ends a window. Returns whether that is permitted.
    pub fn deallocate(&mut self, key: u32) -> bool {
        let found = self.find(|object| object.is_window() && object.is_named_by(key));
        found.map(|nr| self.0[nr] = None).is_some()
    }

    /// Makes a fast-registration region valid. Returns whether that is permitted.
    pub fn register_fast(&mut self, pd: usize, key: u32, access: Access) -> bool {
        let Some(Some(object)) = self.fast(key).map(|nr| &mut self.0[nr]) else { return false };
        let Kind::Fast { staged } = object.kind else { return false };
        let lacks =
            access.intersects(Access::REMOTE_CHANGE) && !access.contains(Access::LOCAL_WRITE);
        let is_mapped = staged.is_some() || object.range.len > 0;
        if object.pd != pd || object.is_valid || !is_mapped || lacks {
            return false;
        }
        // Every mapping has the addresses of the process.
        object.range = staged.unwrap_or(object.range);
        object.kind = Kind::Fast { staged: None };
        (object.key, object.is_valid, object.access) = (key, true, access);
        true
    }

    /// Binds a window. Returns whether that is permitted.
    pub fn bind(&mut self, pd: usize, qp: usize, bind: &Bind) -> bool {
        let named = bind.window.value();
        let is_it = |object: &Object| match object.kind {
            Kind::Window { by_handle: true, .. } => object.is_named_by(named),
            Kind::Window { .. } => object.key == named,
            _ => false,
        };
        let Some(nr) = self.find(is_it) else { return false };
        let window = self.0[nr].expect("it was found");
        let Kind::Window { is_type_2, by_handle, .. } = window.kind else { return false };
        if window.pd != pd || is_type_2 && (window.is_valid || bind.length == 0) {
            return false;
        }
        let mut below = None;
        if bind.length != 0 {
            let Some((region, base)) = self.target(pd, bind) else { return false };
            below = Some((region, Range { start: bind.addr, base, len: bind.length as usize }));
        }
        self.0[nr] = Some(Object {
            kind: Kind::Window {
                is_type_2,
                by_handle,
                qp: is_type_2.then_some(qp),
                below: below.map(|(region, _)| region),
            },
            key: named & !0xff | bind.new_rkey.value() & 0xff,
            is_valid: below.is_some(),
            range: below.map_or(window.range, |(_, range)| range),
            access: bind.access,
            ..window
        });
        true
    }

    /// Returns the region of a bind, and the offset in the memory.
    fn target(&self, pd: usize, bind: &Bind) -> Option<(usize, usize)> {
        let key = bind.region.0;
        let nr = self.find(|object| object.is_valid && !object.is_window() && object.key == key)?;
        let region = self.get(nr)?;
        let changes = bind.access.intersects(Access::REMOTE_CHANGE);
        let permits = region.pd == pd
            && region.access.contains(Access::MW_BIND)
            && !region.access.contains(Access::ZERO_BASED)
            && (!changes || region.access.contains(Access::LOCAL_WRITE));
        let base = region.range.locate(bind.addr, bind.length)?;
        permits.then_some((nr, base))
    }

    /// Invalidates a key, by the owner or by its peer. Returns whether that is permitted.
    pub fn invalidate(&mut self, user: User, key: u32, by_peer: bool) -> bool {
        let Some(nr) = self.find(|object| object.key == key) else { return false };
        let is_below = self.is_below_windows(nr);
        let Some(object) = &mut self.0[nr] else { return false };
        if object.pd != user.pd {
            return false;
        }
        match &mut object.kind {
            Kind::Region => return false,
            // Invalidating an invalid region is no error for the owner.
            Kind::Fast { .. } if !object.is_valid => return !by_peer,
            Kind::Fast { .. } if is_below => return false,
            Kind::Fast { .. } => {}
            Kind::Window { is_type_2, qp, below, .. } => {
                if !*is_type_2 || !object.is_valid || *qp != user.qp {
                    return false;
                }
                *below = None;
            }
        }
        object.is_valid = false;
        true
    }
}
