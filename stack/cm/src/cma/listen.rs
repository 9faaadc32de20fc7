//! Listening on one device or on all devices, including devices that are added later.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use urxe_wire::mad::{PortSpace, ServiceId};

use super::{Cma, CmaError, CmaId, DeviceKey, Id, IdState, System};

/// The largest backlog, and the backlog that 0 selects.
///
/// The kernel's `net.rdma_ucm.max_backlog` is 1024. A client repeats a request beyond the backlog
/// only after 4.8 s, and thousands of clients that start together are faster than any program
/// accepts. A pending request needs about 2 KiB.
const MAX_BACKLOG: usize = 16_384;

impl Cma {
    /// Listens for requests (`rdma_listen`). An identifier that is not bound is first bound to any
    /// port of all addresses.
    ///
    /// At most `backlog` requests wait in the channel. A value of 0 or less selects the maximum.
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the state of the identifier does not allow the call, or the port
    /// is in use.
    pub fn listen(&mut self, id: CmaId, backlog: i32, system: &dyn System) -> Result<(), CmaError> {
        if self.id(id)?.state == IdState::Idle {
            self.bind(id, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), system)?;
        }
        let known = self.id(id)?;
        let (state, options) = (known.state, known.options);
        if state != IdState::AddrBound {
            return Err(CmaError::State { id, state, call: "listen" });
        }
        if options.reuse_addr {
            // A listener must not share its port (cma.c, cma_bind_listen).
            let src = known.src.unwrap_or_else(|| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
            self.id_mut(id)?.options.reuse_addr = false;
            let checked = self.check_port(id, src);
            self.id_mut(id)?.options.reuse_addr = true;
            checked?;
        }
        let keys: Vec<DeviceKey> = match self.id(id)?.device {
            Some(key) => vec![key],
            None => self.devices.keys().copied().collect(),
        };
        for key in keys {
            if let Err(error) = self.listen_on(id, key) {
                self.unlisten(id);
                return Err(error);
            }
        }
        let known = self.id_mut(id)?;
        known.backlog = usize::try_from(backlog)
            .ok()
            .filter(|n| (1..=MAX_BACKLOG).contains(n))
            .unwrap_or(MAX_BACKLOG);
        known.state = IdState::Listen;
        Ok(())
    }

    fn listen_on(&mut self, id: CmaId, key: DeviceKey) -> Result<(), CmaError> {
        let (service, address) = (self.id(id)?.own_service(), self.id(id)?.claimed_address());
        let Some(device) = self.devices.get_mut(&key) else { return Ok(()) };
        if let Some((_, users)) = device.listening.get_mut(&service) {
            *users += 1;
        } else {
            // This module limits the backlog of the program.
            let listener = device.manager.listen(service, None, usize::MAX)?;
            device.listening.insert(service, (listener, 1));
        }
        device.local.begin_listening(address, service);
        self.id_mut(id)?.listens_on.push(key);
        Ok(())
    }

    /// Lets identifiers that listen on all addresses listen on a new device.
    pub(super) fn listen_on_new_device(&mut self, key: DeviceKey) {
        let everywhere = |id: &Id| id.device.is_none() && id.src.is_some();
        let bound: Vec<(CmaId, IdState)> = self
            .ids
            .iter()
            .filter(|(_, id)| everywhere(id))
            .map(|(name, id)| (*name, id.state))
            .collect();
        for (id, state) in bound {
            if let Err(error) = self.claim_on(id, key) {
                tracing::warn!(%error, "cannot listen on the new device");
            } else if state == IdState::Listen
                && let Err(error) = self.listen_on(id, key)
            {
                tracing::warn!(%error, "cannot listen on the new device");
            }
        }
    }

    /// Stops listening.
    pub(super) fn unlisten(&mut self, id: CmaId) {
        let Some(known) = self.ids.get_mut(&id) else { return };
        let keys = std::mem::take(&mut known.listens_on);
        let service = known.own_service();
        for key in keys {
            let Some(device) = self.devices.get_mut(&key) else { continue };
            let Some((listener, users)) = device.listening.get_mut(&service) else { continue };
            *users -= 1;
            if *users == 0 {
                let listener = *listener;
                device.listening.remove(&service);
                let _ = device.manager.unlisten(listener);
            }
        }
    }

    /// Returns the listener for a request to `service` that arrived at `ip`. A listener on that
    /// address takes precedence over a listener on all addresses.
    pub(super) fn listener_for(
        &self,
        key: DeviceKey,
        service: ServiceId,
        ip: IpAddr,
    ) -> Option<CmaId> {
        let (space, port): (PortSpace, u16) = service.port()?;
        let ids = self.ports.of(space, port).iter().copied();
        let fits = |id: &CmaId| {
            let known = &self.ids[id];
            let src = known.src?.ip();
            let listens = known.state == IdState::Listen && known.listens_on.contains(&key);
            let is_all =
                src.is_unspecified() && (!known.af_only() || src.is_ipv4() == ip.is_ipv4());
            let is_this = src.to_canonical() == ip;
            (listens && (is_all || is_this)).then_some(is_this)
        };
        let (_, id) =
            ids.filter_map(|id| Some((fits(&id)?, id))).max_by_key(|(is_this, _)| *is_this)?;
        Some(id)
    }
}
