//! Port spaces: the ports of this process's identifiers. Between processes, the device claims ports
//! ([`LocalDevice::claim`](super::LocalDevice::claim)).
//!
//! Identifiers may share a port as in the kernel (cma.c, `cma_check_port`):
//!
//! - on different addresses, but not with a wildcard
//! - if both have REUSEADDR and neither listens

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use urxe_wire::mad::PortSpace;

use super::id::Id;
use super::{Cma, CmaError, CmaId, DeviceKey, IdState};

/// The range of ports for identifiers that request any port (`net.ipv4.ip_local_port_range`).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// The identifiers of each port, by port space and number.
#[derive(Debug, Default)]
pub(super) struct Ports {
    bound: HashMap<(PortSpace, u16), Vec<CmaId>>,
}

impl Ports {
    pub fn of(&self, space: PortSpace, port: u16) -> &[CmaId] {
        self.bound.get(&(space, port)).map_or(&[], Vec::as_slice)
    }

    pub fn add(&mut self, space: PortSpace, port: u16, id: CmaId) {
        self.bound.entry((space, port)).or_default().push(id);
    }

    pub fn remove(&mut self, space: PortSpace, port: u16, id: CmaId) {
        if let Some(ids) = self.bound.get_mut(&(space, port)) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.bound.remove(&(space, port));
            }
        }
    }
}

/// Returns the error number if two identifiers must not share a port.
fn conflict(ip: IpAddr, id: &Id, other: &Id) -> Option<i32> {
    let other_ip = other.src.map(|src| src.ip())?;
    if id.options.reuse_addr && other.options.reuse_addr && other.state != IdState::Listen {
        return None;
    }
    if id.af_only() && other.af_only() && ip.is_ipv4() != other_ip.is_ipv4() {
        return None;
    }
    if ip.is_unspecified() || other_ip.is_unspecified() {
        return Some(libc::EADDRNOTAVAIL);
    }
    (ip.to_canonical() == other_ip.to_canonical()).then_some(libc::EADDRINUSE)
}

impl Cma {
    /// Checks that `id` may use the port of `addr`.
    pub(super) fn check_port(&self, id: CmaId, addr: SocketAddr) -> Result<(), CmaError> {
        let known = self.id(id)?;
        let others = self.ports.of(known.space, addr.port()).iter().filter(|other| **other != id);
        for other in others.filter_map(|other| self.ids.get(other)) {
            if let Some(errno) = conflict(addr.ip(), known, other) {
                return Err(CmaError::PortTaken { addr, space: known.space, errno });
            }
        }
        Ok(())
    }

    /// Binds `id` to the port of `addr`, or to any free port if the port is 0. With `exclusively`,
    /// also claims the port among all processes of the device.
    pub(super) fn allocate_port(
        &mut self,
        id: CmaId,
        addr: SocketAddr,
        device: Option<DeviceKey>,
        exclusively: bool,
    ) -> Result<SocketAddr, CmaError> {
        let space = self.id(id)?.space;
        if addr.port() != 0 {
            self.check_port(id, addr)?;
            self.bind_port(id, addr, device, exclusively)?;
            return Ok(addr);
        }
        let count = u64::from(EPHEMERAL.end() - EPHEMERAL.start()) + 1;
        let first = self.rng.below(count);
        for step in 0..count {
            let port = EPHEMERAL.start() + ((first + step) % count) as u16;
            // Clients may share a port, because the peers' ports distinguish them. This uses every
            // port once before any is shared.
            if !self.ports.of(space, port).is_empty() {
                continue;
            }
            let addr = SocketAddr::new(addr.ip(), port);
            match self.bind_port(id, addr, device, exclusively) {
                Ok(()) => return Ok(addr),
                Err(error) if error.errno() == libc::EADDRINUSE => {}
                Err(error) => return Err(error),
            }
        }
        Err(CmaError::NoPortLeft { space })
    }

    fn bind_port(
        &mut self,
        id: CmaId,
        addr: SocketAddr,
        device: Option<DeviceKey>,
        exclusively: bool,
    ) -> Result<(), CmaError> {
        let known = self.id_mut(id)?;
        known.src = Some(addr);
        let space = known.space;
        if exclusively && let Err(error) = self.claim(id, device) {
            self.id_mut(id)?.src = None;
            return Err(error);
        }
        self.ports.add(space, addr.port(), id);
        Ok(())
    }

    /// Claims the port of `id` on its device, or on all devices.
    fn claim(&mut self, id: CmaId, device: Option<DeviceKey>) -> Result<(), CmaError> {
        let keys: Vec<DeviceKey> = match device {
            Some(key) => vec![key],
            None => self.devices.keys().copied().collect(),
        };
        for key in keys {
            if let Err(error) = self.claim_on(id, key) {
                self.release_claims(id);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Claims the port of `id` on one device, unless this process already has the claim.
    pub(super) fn claim_on(&mut self, id: CmaId, key: DeviceKey) -> Result<(), CmaError> {
        let known = self.id(id)?;
        let (service, address) = (known.own_service(), known.claimed_address());
        if known.claimed_on.contains(&key) || self.shares_claim(id, key) {
            return Ok(());
        }
        let Some(device) = self.devices.get(&key) else { return Ok(()) };
        device.local.claim(address, service)?;
        self.id_mut(id)?.claimed_on.push(key);
        Ok(())
    }

    /// Returns whether another identifier of this process has the claim that `id` needs.
    fn shares_claim(&self, id: CmaId, key: DeviceKey) -> bool {
        let Some(known) = self.ids.get(&id) else { return false };
        let port = known.src.map_or(0, |src| src.port());
        let others = self.ports.of(known.space, port).iter().filter(|other| **other != id);
        others.filter_map(|other| self.ids.get(other)).any(|other| {
            other.claimed_on.contains(&key)
                && (other.claimed_address().is_none()
                    || other.claimed_address() == known.claimed_address())
        })
    }

    fn release_claims(&mut self, id: CmaId) {
        let Some(known) = self.ids.get_mut(&id) else { return };
        let keys = std::mem::take(&mut known.claimed_on);
        let (service, address) = (known.own_service(), known.claimed_address());
        let (space, port) = (known.space, known.src.map_or(0, |src| src.port()));
        for key in keys {
            // The claim passes to an identifier that shares the port, so that no other process
            // takes the port.
            let successor = self.ports.of(space, port).iter().copied().find(|other| {
                *other != id
                    && self.ids.get(other).is_some_and(|other| other.claimed_address() == address)
            });
            match successor.and_then(|successor| self.ids.get_mut(&successor)) {
                Some(successor) => successor.claimed_on.push(key),
                None => {
                    if let Some(device) = self.devices.get(&key) {
                        device.local.release(address, service);
                    }
                }
            }
        }
    }

    /// Releases the port of `id`.
    pub(super) fn unbind(&mut self, id: CmaId) {
        self.release_claims(id);
        if let Some(known) = self.ids.get_mut(&id)
            && let Some(src) = known.src
        {
            let space = known.space;
            self.ports.remove(space, src.port(), id);
        }
    }
}
