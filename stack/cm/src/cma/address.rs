//! Addresses and routes: binding, and selecting the device for a peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use urxe_wire::Gid;

use super::{Cma, CmaError, CmaEventType, CmaId, DeviceKey, IdState, System};
use urxe_types::attr::PathMtu;
use urxe_types::errno::OsError;

/// The reason why an address was not resolved.
#[derive(Clone, Copy)]
enum ResolveError {
    /// The system has no route. The call fails with the system's error number.
    NoRoute(i32),
    /// The call fails with another error.
    Call(CmaError),
    /// The program receives an event with this error number.
    Event(i32),
}

impl From<CmaError> for ResolveError {
    fn from(error: CmaError) -> Self {
        Self::Call(error)
    }
}

/// The parameters of a path record for a connection's packets, except the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Type of service of the packets.
    pub traffic_class: u8,
    /// Packet life time: 4.096 µs · 2^n, 0 to 31.
    pub packet_life_time: u8,
    /// Path MTU.
    pub path_mtu: PathMtu,
}

impl Cma {
    /// Binds an identifier to an address and a port (`rdma_bind_addr`). The address must belong to
    /// a device, or be the wildcard. Port 0 selects any free port.
    ///
    /// The address 127.0.0.1 or ::1 without a device counts as the wildcard, as in the kernel
    /// (cma.c, `cma_any_addr`), because libfabric binds to it to find devices. Other loopback
    /// addresses may belong to devices of other processes. If another user has 127.0.0.1, it
    /// stands for the address of the built-in device ([`System::localhost`]), also in
    /// [`resolve_addr`](Self::resolve_addr).
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the identifier is already bound, no device has the address, or
    /// the port is in use.
    pub fn bind(
        &mut self,
        id: CmaId,
        addr: SocketAddr,
        system: &dyn System,
    ) -> Result<(), CmaError> {
        let state = self.id(id)?.state;
        if state != IdState::Idle {
            return Err(CmaError::State { id, state, call: "bind" });
        }
        let addr = self.wildcard_for_localhost(self.for_localhost(addr, system));
        let (device, local) = match addr.ip().is_unspecified() {
            true => (None, Gid::ZERO),
            false => {
                let key =
                    self.device_with(addr.ip()).ok_or_else(|| bind_error(addr.ip(), system))?;
                (Some(key), Gid::from_ip(addr.ip().to_canonical()))
            }
        };
        // Like rdma_bind_addr in cma.c.
        self.id_mut(id)?.is_bound_af_only = addr.is_ipv4() || system.binds_v6_only();
        self.allocate_port(id, addr, device, true)?;
        let known = self.id_mut(id)?;
        (known.device, known.local, known.state) = (device, local, IdState::AddrBound);
        Ok(())
    }

    /// Returns the address of the device for which 127.0.0.1 stands.
    fn for_localhost(&self, addr: SocketAddr, system: &dyn System) -> SocketAddr {
        let is_localhost = addr.ip().to_canonical() == IpAddr::V4(Ipv4Addr::LOCALHOST);
        let device = system.localhost().filter(|ip| self.device_with(*ip).is_some());
        match device.filter(|_| is_localhost && self.device_with(addr.ip()).is_none()) {
            Some(device) => SocketAddr::new(device, addr.port()),
            None => addr,
        }
    }

    fn wildcard_for_localhost(&self, addr: SocketAddr) -> SocketAddr {
        let any: IpAddr = match addr.ip() {
            ip if self.device_with(ip).is_some() => return addr,
            IpAddr::V4(Ipv4Addr::LOCALHOST) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(Ipv6Addr::LOCALHOST) => Ipv6Addr::UNSPECIFIED.into(),
            _ => return addr,
        };
        SocketAddr::new(any, addr.port())
    }

    /// Binds an identifier to its device and resolves the peer's address (`rdma_resolve_addr`).
    ///
    /// The program receives `ADDR_RESOLVED`, or `ADDR_ERROR` with ENODEV if the route uses an
    /// interface without a device. The kernel also reports `ADDR_ERROR` for a neighbour that does
    /// not answer, because it needs the hardware address. Here the system resolves the hardware
    /// address when the REQ is sent, and a peer that does not answer causes `UNREACHABLE`.
    ///
    /// # Errors
    /// Fails with [`CmaError`], without an event, if the state of the identifier or the address
    /// does not allow the call, or the system has no route.
    pub fn resolve_addr(
        &mut self,
        id: CmaId,
        src: Option<SocketAddr>,
        dst: SocketAddr,
        system: &dyn System,
    ) -> Result<(), CmaError> {
        let known = self.id(id)?;
        let state = known.state;
        if !matches!(state, IdState::Idle | IdState::AddrBound) {
            return Err(CmaError::State { id, state, call: "resolve an address" });
        }
        if state == IdState::Idle
            && let Some(src) = src.filter(|src| !src.ip().is_unspecified() || src.port() != 0)
        {
            self.bind(id, src, system)?;
        }
        let dst = self.for_localhost(dst, system);
        let own = self.id(id)?.src.filter(|own| !own.ip().is_unspecified());
        if own.is_some_and(|own| own.is_ipv4() != dst.is_ipv4()) {
            return Err(CmaError::Families { dst });
        }
        match self.bind_to_route(id, dst, system) {
            Ok(()) => self.notify_type(id, CmaEventType::AddrResolved),
            // In the kernel, the call itself looks up the route. A handler reports everything else.
            Err(ResolveError::NoRoute(errno)) => {
                return Err(CmaError::NoRoute { dst, errno: OsError::new(errno) });
            }
            Err(ResolveError::Call(error)) => return Err(error),
            Err(ResolveError::Event(errno)) => {
                self.notify_status(id, CmaEventType::AddrError, -errno)
            }
        }
        Ok(())
    }

    /// Selects the device for `dst` and binds the identifier to it.
    fn bind_to_route(
        &mut self,
        id: CmaId,
        dst: SocketAddr,
        system: &dyn System,
    ) -> Result<(), ResolveError> {
        let no_loopback = ResolveError::Call(CmaError::NoDevice { ip: dst.ip() });
        let known = self.id(id)?;
        let bound = known.device;
        let own = known.src.map(|src| src.ip()).filter(|ip| !ip.is_unspecified());
        let dst = match dst.ip().is_unspecified() {
            true => {
                SocketAddr::new(self.loopback(dst.is_ipv4(), bound).ok_or(no_loopback)?, dst.port())
            }
            false => dst,
        };
        let peer = dst.ip().to_canonical();
        let source = match bound {
            // The peer is this host, on the same device, so the system's routes do not matter.
            Some(key) if self.has_address(key, peer) => None,
            // A group is reached through the bound device.
            Some(_) if peer.is_multicast() => None,
            _ => Some(system.source_for(own, dst).map_err(ResolveError::NoRoute)?.to_canonical()),
        };
        let (key, local) = match (bound, own) {
            (Some(key), Some(own)) => (key, own.to_canonical()),
            _ => {
                // Without a source address, the bound device has the peer's address, which is also
                // the source.
                self.device_for_route(peer, source.unwrap_or(peer), system)
                    .ok_or(ResolveError::Event(libc::ENODEV))?
            }
        };
        let wildcard = self.id(id)?.src;
        match wildcard {
            // The identifier was bound to a port on all addresses. Now it uses one address.
            Some(src) => self.id_mut(id)?.src = Some(SocketAddr::new(local, src.port())),
            None => {
                let any = SocketAddr::new(local, 0);
                self.allocate_port(id, any, Some(key), false)?;
            }
        }
        let known = self.id_mut(id)?;
        known.device = Some(key);
        known.local = Gid::from_ip(local);
        known.remote = Gid::from_ip(peer);
        known.dst = Some(dst);
        known.state = IdState::AddrResolved;
        Ok(())
    }

    /// Resolves the route (`rdma_resolve_route`), which is fully known in RoCE. The program
    /// receives `ROUTE_RESOLVED`.
    ///
    /// The program never receives `ROUTE_ERROR`, which reports errors of InfiniBand's subnet
    /// administration. For RoCE the kernel's call itself fails (cma.c, `cma_resolve_iboe_route`).
    /// If the device is removed meanwhile, the C ABI reports this as librdmacm does
    /// (`verbs-api/abi/src/cm/event.rs`).
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the address is not resolved, or the route already is.
    pub fn resolve_route(&mut self, id: CmaId) -> Result<(), CmaError> {
        let known = self.id_mut(id)?;
        let state = known.state;
        if state != IdState::AddrResolved {
            return Err(CmaError::State { id, state, call: "resolve a route" });
        }
        known.state = IdState::RouteResolved;
        known.apply_route_options();
        self.notify_type(id, CmaEventType::RouteResolved);
        Ok(())
    }

    /// Uses a route from the program (`RDMA_OPTION_IB_PATH`; cma.c, `rdma_set_ib_path`) instead of
    /// resolving one. The program receives `ROUTE_RESOLVED`.
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the address is not resolved, or the route already is.
    pub fn set_route(&mut self, id: CmaId, route: Route) -> Result<(), CmaError> {
        self.resolve_route(id)?;
        let known = self.id_mut(id)?;
        known.traffic_class = route.traffic_class;
        known.packet_life_time = route.packet_life_time;
        known.chosen_mtu = Some(route.path_mtu);
        Ok(())
    }

    /// Returns the device that has an address.
    pub(super) fn device_with(&self, ip: IpAddr) -> Option<DeviceKey> {
        self.devices.keys().copied().find(|key| self.has_address(*key, ip.to_canonical()))
    }

    fn has_address(&self, key: DeviceKey, ip: IpAddr) -> bool {
        self.devices.get(&key).is_some_and(|device| device.local.gids().contains(&Gid::from_ip(ip)))
    }

    /// Returns the device and the source address for packets that the system would send from
    /// `source`.
    ///
    /// This is the device with that address, or else a device on the same interface. The kernel
    /// also selects the device by the interface.
    fn device_for_route(
        &self,
        peer: IpAddr,
        source: IpAddr,
        system: &dyn System,
    ) -> Option<(DeviceKey, IpAddr)> {
        if let Some(key) = self.device_with(source) {
            return Some((key, source));
        }
        if let Some(key) = self.device_with(peer) {
            return Some((key, peer));
        }
        let interface = system.interface_of(source)?;
        let on_interface =
            self.devices.iter().filter(|(_, device)| device.local.interface() == interface);
        on_interface
            .filter_map(|(key, _)| Some((*key, self.address_of(*key, source.is_ipv4())?)))
            .next()
    }

    /// Returns the first address of a device with this IP version.
    fn address_of(&self, key: DeviceKey, is_v4: bool) -> Option<IpAddr> {
        let gids = self.devices.get(&key)?.local.gids();
        gids.into_iter()
            .filter(|gid| !gid.is_zero())
            .map(Gid::to_ip)
            .find(|ip| ip.is_ipv4() == is_v4)
    }

    /// Returns the address of this host for connections to itself.
    fn loopback(&self, is_v4: bool, bound: Option<DeviceKey>) -> Option<IpAddr> {
        let mut keys =
            self.devices.keys().copied().filter(|key| bound.is_none_or(|bound| bound == *key));
        keys.find_map(|key| self.address_of(key, is_v4))
    }
}

/// Returns the error for binding to an address that no device has.
fn bind_error(ip: IpAddr, system: &dyn System) -> CmaError {
    // All of 127.0.0.0/8 belongs to this host, although interfaces show only one address of it.
    if ip.to_canonical().is_loopback() || system.interface_of(ip.to_canonical()).is_some() {
        CmaError::NoDevice { ip }
    } else {
        CmaError::NotLocal { ip }
    }
}
