//! Address handles: the destinations of datagrams, which work requests name.
//!
//! A handle uses the path to its peer, and one path more for each process of the peer that it sent
//! a message to. Messages to two processes must not come from one port, because the receiver would
//! merge them. The path to a process is opened when the first such message is posted.
//!
//! A work request only names the handle. The queue pair looks the handle up when the message is
//! sent; a handle that was destroyed meanwhile fails the request (as in `rdma_rxe`, rxe_req.c).

use urxe_wire::{Gid, Grh, Qpn};

use super::paths::{AddressError, Peers};
use super::{Control, Device};
use crate::ah_table::Ah;
use crate::cq::{Completion, WcFlags};
use crate::path::PathKey;
use urxe_memory::PdId;
use urxe_types::allocate::OutOfMemory;
use urxe_types::attr::AddressVector;
use urxe_types::qpn::MANAGEMENT_SLOT;
use urxe_types::sync::{Mutex, lock};
use urxe_types::work_request::AhHandle;
use urxe_wire::network_header::{NetworkHeader, NetworkHeaderError};

urxe_types::errors! {
    /// The reason why an address handle was not created.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CreateAhError {
        #[error("there is no such protection domain: it was deallocated")]
        NoPd = EINVAL,
        #[error("port_num is {given}; the device has port 1 only")]
        Port { given: u8 } = EINVAL,
        #[error("is_global is 0: an address handle of RoCE needs a GRH with the destination in \
                 dgid")]
        NotGlobal = EINVAL,
        /// The address.
        #[error(transparent)] Address(#[from] AddressError),
        #[error("the device has {allowed} address handles and all are in use")]
        NoneLeft { allowed: u32 } = ENOMEM,
        /// The system has no memory for the handle.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }

    /// The reason why an address handle was not destroyed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DestroyAhError {
        #[error("no such address handle: it was destroyed before")]
        NoAh = EINVAL,
    }

    /// The reason why a completion has no address for a reply.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AhFromWcError {
        #[error("the completion has no GRH (IBV_WC_GRH): it is not of a received datagram")]
        NoGrh = EINVAL,
        /// The first 40 bytes of the receive buffer.
        #[error(transparent)] Header(#[from] NetworkHeaderError) = EINVAL,
        #[error("the datagram was sent to {gid}, which is not in the port's GID table")]
        NotOurs { gid: Gid } = EINVAL,
    }
}

impl Device {
    /// Creates an address handle for a host or a multicast group (`ibv_create_ah`).
    ///
    /// # Errors
    /// [`CreateAhError`].
    pub fn create_ah(&self, pd: PdId, attr: &AddressVector) -> Result<AhHandle, CreateAhError> {
        if attr.port_num != 1 {
            return Err(CreateAhError::Port { given: attr.port_num });
        }
        if !attr.is_global {
            return Err(CreateAhError::NotGlobal);
        }
        let key = self.path_key(attr, Peers::HostsAndGroups, MANAGEMENT_SLOT)?;
        let (handle, base) = self.take_ah(&mut lock(&self.control), pd)?;
        let placed = self.ahs.slots.ensure(handle.index, |_| Mutex::new(None)).and_then(|slot| {
            let path = self.take_path_with(key)?;
            let (generation, attr, to_slots) = (handle.generation, *attr, Vec::new());
            let ah = Ah { generation, pd, base, attr, key, path, to_slots };
            *lock(slot.expect("the table holds max_ah")) = Some(ah);
            Ok(handle)
        });
        if placed.is_err() {
            let mut control = lock(&self.control);
            control.count(pd, |domain| &mut domain.ahs, -1);
            control.free_ahs.put(handle);
        }
        Ok(placed?)
    }

    /// Takes a free handle. Returns it with the protection domain that it belongs to.
    fn take_ah(&self, control: &mut Control, pd: PdId) -> Result<(AhHandle, PdId), CreateAhError> {
        let base = control.base_of(pd).ok_or(CreateAhError::NoPd)?;
        let allowed = self.limits.max_ah;
        let handle = control.free_ahs.take(allowed, |index| AhHandle { index, generation: 0 })?;
        control.count(pd, |domain| &mut domain.ahs, i32::from(handle.is_some()));
        Ok((handle.ok_or(CreateAhError::NoneLeft { allowed })?, base))
    }

    /// Destroys an address handle. Messages over the handle that were not sent yet fail.
    ///
    /// # Errors
    /// [`DestroyAhError::NoAh`].
    pub fn destroy_ah(&self, handle: AhHandle) -> Result<(), DestroyAhError> {
        let slot = self.ahs.slots.at(handle.index).ok_or(DestroyAhError::NoAh)?;
        let ah = lock(slot)
            .take_if(|ah| ah.generation == handle.generation)
            .ok_or(DestroyAhError::NoAh)?;
        for path in ah.to_slots.iter().map(|(_, path)| *path).chain([ah.path]) {
            self.release_path(Some((path, ah.key.peer)));
        }
        let mut control = lock(&self.control);
        control.count(ah.pd, |domain| &mut domain.ahs, -1);
        let generation = handle.generation.wrapping_add(1);
        control.free_ahs.put(AhHandle { generation, ..handle });
        Ok(())
    }

    /// Opens the path of a message over `handle` to `qpn`, if the message is the first to its
    /// process of the peer. The caller must hold no queue pair. If the table of paths is full,
    /// or the system has no memory, messages take the path to all the peer's processes.
    pub(super) fn ensure_path(&self, handle: AhHandle, qpn: Qpn) {
        let missing = self.ahs.with(handle, |ah| ah.missing_slot(qpn).map(|slot| (slot, ah.key)));
        if let Some((slot, key)) = missing.flatten() {
            self.open_path(handle, qpn, PathKey { peer_slot: slot, ..key });
        }
    }

    #[cold]
    fn open_path(&self, handle: AhHandle, qpn: Qpn, key: PathKey) {
        if !self.has_room_for_paths() {
            return;
        }
        let Ok(path) = self.take_path_with(key) else { return };
        // Meanwhile, another thread may have destroyed the handle or opened the path.
        let added = self.ahs.with(handle, |ah| {
            let is_missing = ah.missing_slot(qpn).is_some();
            if is_missing {
                ah.to_slots.push((key.peer_slot, path));
            }
            is_missing
        });
        if added != Some(true) {
            self.release_path(Some((path, key.peer)));
        }
    }

    /// Returns the attributes with which an address handle was created. `None` for a destroyed
    /// handle.
    #[must_use]
    pub fn query_ah(&self, handle: AhHandle) -> Option<AddressVector> {
        self.ahs.with(handle, |ah| ah.attr)
    }

    /// Returns the address for a reply to a received datagram (`ibv_init_ah_from_wc`). `grh` is the
    /// first 40 bytes of its receive buffer. The reply to a multicast message comes from the port's
    /// first address of the same IP version.
    ///
    /// # Errors
    /// [`AhFromWcError`].
    pub fn ah_from_wc(
        &self,
        completion: &Completion,
        grh: &[u8],
    ) -> Result<AddressVector, AhFromWcError> {
        if !completion.flags().contains(WcFlags::GRH) {
            return Err(AhFromWcError::NoGrh);
        }
        let header = NetworkHeader::parse(grh)?;
        let (dgid, own) = (Gid::from_ip(header.from), Gid::from_ip(header.to));
        let gids = lock(&self.gids);
        let answers = |gid: &Gid| match header.to.is_multicast() {
            true => !gid.is_zero() && gid.to_ip().is_ipv4() == header.to.is_ipv4(),
            false => *gid == own,
        };
        let index = gids.iter().position(answers).and_then(|index| u8::try_from(index).ok());
        Ok(AddressVector {
            dgid,
            flow_label: header.flow_label,
            sgid_index: index.ok_or(AhFromWcError::NotOurs { gid: own })?,
            hop_limit: header.hop_limit,
            traffic_class: header.traffic_class,
            sl: completion.sl,
            dlid: completion.slid,
            port_num: 1,
            is_global: true,
            ..AddressVector::default()
        })
    }
}

const _: () = assert!(Grh::LEN == NetworkHeader::LEN);
