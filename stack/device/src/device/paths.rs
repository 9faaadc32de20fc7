//! Paths by the addresses of their ends: opened for the first user, closed after the last.

use std::net::IpAddr;

use urxe_wire::{Gid, IcrcSeed, ROCE_PORT};

use super::{Device, PathUse};
use crate::path::{Path, PathKey, Route};
use crate::qp::attr::AddressVector;
use urxe_types::allocate::{self, OutOfMemory};
use urxe_types::sync::lock;

urxe_types::errors! {
    /// The reason why an address vector leads to no peer.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AddressError {
        #[error("sgid_index is {given}, and the port's GID table has no valid entry there; valid \
                 are {valid}")]
        SgidIndex { given: u8, valid: ValidGids } = ENODATA,
        #[error("the local GID {local} (sgid_index {sgid_index}) and the peer's {peer} are of \
                 different IP versions: choose another index")]
        IpVersions { sgid_index: u8, local: Gid, peer: Gid } = EINVAL,
        #[error("the peer's GID {peer} is a multicast group; a connection needs one host's")]
        MulticastPeer { peer: Gid } = EINVAL,
        /// The system has no memory for the path to the peer.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }
}

/// The valid entries of a GID table, for an error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidGids(Vec<(usize, Gid)>);

impl std::fmt::Display for ValidGids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (nr, (index, gid)) in self.0.iter().enumerate() {
            let comma = if nr == 0 { "" } else { ", " };
            write!(f, "{comma}{index} ({gid})")?;
        }
        Ok(())
    }
}

/// The most paths. Beyond this number an address handle has one path to all processes of its peer.
/// The table holds four times as many.
const MAX_PATHS: usize = 1 << 22;

/// The peers to which a path may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peers {
    /// Hosts: for connections.
    Hosts,
    /// Hosts and multicast groups: for datagrams.
    HostsAndGroups,
}

/// Returns the index of a path. Returns the index of some path for a queue pair without one, which
/// sends nothing.
pub(super) fn index_of(path: Option<(u32, IpAddr)>) -> u32 {
    path.map_or(0, |(index, _)| index)
}

impl Device {
    pub(super) fn path_at(&self, index: u32) -> &Path {
        self.paths.at(index).expect("a path is made before a queue pair or a handle uses it")
    }

    /// Makes the path with this index, if it does not exist.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn ensure_path_at(&self, index: u32) -> Result<&Path, OutOfMemory> {
        let made =
            self.paths.ensure(index, |_| Path::new(self.read_budget, self.early_timeout_min))?;
        Ok(made.expect(
            "the table holds a path for each queue pair and address handle, and MAX_PATHS more",
        ))
    }

    /// Returns the path to the process `peer_slot` of the peer that `ah` names, and counts one more
    /// user.
    pub(super) fn take_path(
        &self,
        ah: &AddressVector,
        peers: Peers,
        peer_slot: u8,
    ) -> Result<(u32, IpAddr), AddressError> {
        let key = self.path_key(ah, peers, peer_slot)?;
        Ok((self.take_path_with(key)?, key.peer))
    }

    /// Returns whether one more path may be opened only because a peer has several processes.
    pub(super) fn has_room_for_paths(&self) -> bool {
        lock(&self.control).path_uses.len() < MAX_PATHS
    }

    /// Returns the path with `key`, and counts one more user.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing was counted.
    pub(super) fn take_path_with(&self, key: PathKey) -> Result<u32, OutOfMemory> {
        let mut control = lock(&self.control);
        if let Some(index) = control.paths.get(&key).copied() {
            control.path_uses[index as usize].users += 1;
            return Ok(index);
        }
        let known = control.path_uses.len();
        let index = control.free_paths.last().map_or(known as u32, |index| *index);
        let path = self.ensure_path_at(index)?;
        let error = || OutOfMemory::of::<(PathKey, u32)>(known + 1);
        allocate::reserved(control.paths.try_reserve(1), error)?;
        allocate::reserve(&mut control.path_uses, 1)?;
        // The path comes back without an allocation.
        let more = known + 1 - control.free_paths.len();
        allocate::reserve(&mut control.free_paths, more)?;
        let used = PathUse { key, users: 1 };
        match control.free_paths.pop() {
            Some(index) => control.path_uses[index as usize] = used,
            None => control.path_uses.push(used),
        }
        control.paths.insert(key, index);
        let source_port = self.source_ports.source_port(key.local, key.peer_slot);
        let icrc = IcrcSeed::new(key.local, source_port, key.peer, ROCE_PORT);
        let icrc =
            icrc.expect("path_key() compared the IP versions").with_flush(self.limits.flush_icrc);
        path.open(Route { key, source_port, icrc });
        Ok(index)
    }

    pub(super) fn path_key(
        &self,
        ah: &AddressVector,
        peers: Peers,
        peer_slot: u8,
    ) -> Result<PathKey, AddressError> {
        let gids = lock(&self.gids);
        let sgid_index = if ah.is_global { ah.sgid_index } else { 0 };
        let local = gids.get(usize::from(sgid_index)).copied().filter(|gid| !gid.is_zero());
        let Some(local) = local else {
            let valid =
                gids.iter().copied().enumerate().filter(|(_, gid)| !gid.is_zero()).collect();
            return Err(AddressError::SgidIndex { given: sgid_index, valid: ValidGids(valid) });
        };
        // Without a global route the peer is the device itself: programs made for InfiniBand on one
        // host.
        let peer = if ah.is_global && !ah.dgid.is_zero() { ah.dgid } else { local };
        let (local_ip, peer_ip) = (local.to_ip(), peer.to_ip());
        if local_ip.is_ipv4() != peer_ip.is_ipv4() {
            return Err(AddressError::IpVersions { sgid_index, local, peer });
        }
        if peer_ip.is_multicast() && peers == Peers::Hosts {
            return Err(AddressError::MulticastPeer { peer });
        }
        // The system's route sets the hop limit to a host, as in the kernel. The sender of a
        // multicast message sets its own.
        let hop_limit = if peer_ip.is_multicast() { ah.hop_limit } else { 0 };
        Ok(PathKey {
            local: local_ip,
            peer: peer_ip,
            peer_slot,
            traffic_class: ah.traffic_class,
            hop_limit,
        })
    }

    pub(super) fn release_path(&self, path: Option<(u32, IpAddr)>) {
        let Some((index, _)) = path else { return };
        let mut control = lock(&self.control);
        let used = &mut control.path_uses[index as usize];
        used.users -= 1;
        if used.users == 0 {
            let key = used.key;
            control.paths.remove(&key);
            control.free_paths.push(index);
            self.path_at(index).close();
        }
    }
}
