//! Reregistration: a region keeps its keys and gets another place, domain or rights (IBTA vol. 1,
//! 11.2.8.8; `ibv_rereg_mr(3)`; for the numbers of what is refused, `ib_uverbs_rereg_mr` of the
//! kernel).

use std::ops::Range;

use rustix::io::Errno;
use urxe_stack::memory::Access;

use super::{CHANGES, Key, Keys, Kind};

const PAGE: u64 = 4096;

/// What of a region changes.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Bytes of the device's memory, and the address of the first, as requests name it.
    pub place: Option<(Range<usize>, u64)>,
    pub pd: Option<usize>,
    pub access: Option<Access>,
}

impl Keys {
    /// Whether a region may be changed so; if not, why.
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

    /// What is not said stays.
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
