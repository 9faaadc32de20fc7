//! The table of address handles, in which a queue pair finds the path of a datagram.
//!
//! Each entry has its own lock. A thread takes it under the lock of a queue pair, for a copy of a
//! few bytes.

use std::net::IpAddr;

use urxe_types::attr::AddressVector;
use urxe_types::ids::PdId;
use urxe_types::qpn::peer_slot;
use urxe_types::sync::{Mutex, lock};
use urxe_types::work_request::{AhHandle, PostError};
use urxe_wire::Qpn;

use crate::path::PathKey;
use crate::slot_table::SlotTable;

/// An address handle.
#[derive(Clone, Debug)]
pub(crate) struct Ah {
    pub generation: u32,
    pub pd: PdId,
    /// The protection domain whose queue pairs may use the handle: `pd`, or the domain that `pd` is
    /// a parent domain of.
    pub base: PdId,
    pub attr: AddressVector,
    /// The key of the path to all processes of the peer that are not in `to_slots`.
    pub key: PathKey,
    pub path: u32,
    /// The paths to single processes, by slot.
    pub to_slots: Vec<(u8, u32)>,
}

impl Ah {
    fn to_slot(&self, slot: u8) -> Option<u32> {
        self.to_slots.iter().find(|(of, _)| *of == slot).map(|(_, path)| *path)
    }

    fn path_to(&self, qpn: Qpn) -> (u32, IpAddr) {
        (self.to_slot(peer_slot(qpn)).unwrap_or(self.path), self.key.peer)
    }

    /// Returns the slot of the process that messages to `qpn` go to, if the handle has no path to
    /// that slot.
    pub fn missing_slot(&self, qpn: Qpn) -> Option<u8> {
        let slot = peer_slot(qpn);
        (slot != self.key.peer_slot
            && !self.key.peer.is_multicast()
            && self.to_slot(slot).is_none())
        .then_some(slot)
    }
}

/// The address handles of a device.
#[derive(Debug)]
pub(crate) struct AhTable {
    pub slots: SlotTable<Mutex<Option<Ah>>>,
}

impl AhTable {
    pub const fn new() -> Self {
        Self { slots: SlotTable::new() }
    }

    pub fn with<T>(&self, handle: AhHandle, use_it: impl FnOnce(&mut Ah) -> T) -> Option<T> {
        let mut slot = lock(self.slots.at(handle.index)?);
        slot.as_mut().filter(|ah| ah.generation == handle.generation).map(use_it)
    }

    /// Returns the path of messages over `handle` to `qpn`. `None` if the handle was destroyed.
    pub fn path_of(&self, handle: AhHandle, qpn: Qpn) -> Option<(u32, IpAddr)> {
        self.with(handle, |ah| ah.path_to(qpn))
    }

    /// Returns the path of a message that a queue pair of protection domain `pd` posts.
    ///
    /// # Errors
    /// [`PostError::NoAh`] or [`PostError::AhOfOtherPd`].
    pub fn path_for(
        &self,
        pd: PdId,
        handle: AhHandle,
        qpn: Qpn,
    ) -> Result<(u32, IpAddr), PostError> {
        let path = self.with(handle, |ah| (ah.base == pd).then(|| ah.path_to(qpn)));
        path.ok_or(PostError::NoAh)?.ok_or(PostError::AhOfOtherPd)
    }
}
