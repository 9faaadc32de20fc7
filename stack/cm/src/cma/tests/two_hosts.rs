//! The test fixture: two hosts, each with a [`Cma`] and one device, and a network that delivers or
//! loses all MADs.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use urxe_wire::mad::{Guid, PortSpace, ServiceId};
use urxe_wire::{Gid, Qpn};

use crate::cm::{CmConfig, CmPath, CmTransmit};
use crate::cma::{
    ChannelId, Cma, CmaEvent, CmaEventType, CmaId, ConnParam, DeviceKey, LocalDevice, System,
};
use urxe_types::attr::{PathMtu, QpType};
use urxe_types::owner::ListenError;
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_types::time::Time;
use urxe_types::wake::NoWake;

/// The service ids that processes of the address have claimed.
pub type Claims = Arc<Mutex<BTreeSet<u64>>>;

struct Nic {
    address: IpAddr,
    claims: Claims,
}

impl LocalDevice for Nic {
    fn gids(&self) -> Vec<Gid> {
        vec![Gid::ZERO, Gid::from_ip(self.address)]
    }

    fn path_mtu(&self) -> PathMtu {
        PathMtu::Mtu1024
    }

    fn interface(&self) -> u32 {
        2
    }

    fn claim(&self, address: Option<IpAddr>, service: ServiceId) -> Result<(), ListenError> {
        let is_free = lock(&self.claims).insert(service.0);
        let address = address.unwrap_or(self.address);
        is_free.then_some(()).ok_or(ListenError::InUse {
            address,
            service_id: service.0,
            owner: None,
        })
    }

    fn release(&self, _: Option<IpAddr>, service: ServiceId) {
        assert!(lock(&self.claims).remove(&service.0), "{service} was not claimed");
    }
}

/// A host whose routes all use its one address. There is no route to 203.0.113.0/24.
///
/// Another user has 127.0.0.1, which stands for the host's address, if that is a loopback address.
pub struct OneAddress(pub IpAddr);

impl System for OneAddress {
    fn source_for(&self, _: Option<IpAddr>, to: SocketAddr) -> Result<IpAddr, i32> {
        match to.ip() {
            IpAddr::V4(v4) if v4.octets()[0] == 203 => Err(libc::ENETUNREACH),
            _ => Ok(self.0),
        }
    }

    fn interface_of(&self, address: IpAddr) -> Option<u32> {
        match address {
            address if address == self.0 => Some(2),
            // The address of an interface without a device.
            address if address.to_string() == "10.9.9.9" => Some(3),
            _ => None,
        }
    }

    fn localhost(&self) -> Option<IpAddr> {
        Some(self.0).filter(|own| own.is_loopback() && own.is_ipv4())
    }

    fn binds_v6_only(&self) -> bool {
        false
    }
}

pub struct Host {
    pub cma: Cma,
    pub key: DeviceKey,
    pub channel: ChannelId,
    pub system: OneAddress,
    pub claims: Claims,
}

impl Host {
    pub fn new(address: &str, seed: u64) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let mut cma = Cma::new(seed);
        let channel = cma.create_channel(Arc::new(NoWake));
        let (claims, system) = (Claims::default(), OneAddress(address));
        let mut host = Self { cma, key: DeviceKey(0), channel, system, claims };
        host.attach_device();
        host
    }

    /// Adds a device to the host.
    pub fn attach_device(&mut self) {
        let nic = Nic { address: self.system.0, claims: Arc::clone(&self.claims) };
        self.key = self.cma.attach(Box::new(nic), CmConfig::new(0, 5, Guid(5)));
    }

    pub fn id(&mut self, space: PortSpace) -> CmaId {
        let qp_type = if space == PortSpace::UDP { QpType::Ud } else { QpType::Rc };
        self.cma.create_id(self.channel, space, qp_type, 7).unwrap()
    }

    pub fn event(&mut self) -> Option<CmaEvent> {
        self.cma.next_event(self.channel, |_, _| 8)
    }

    #[track_caller]
    pub fn expect(&mut self, event_type: CmaEventType) -> CmaEvent {
        let event = self.event().unwrap_or_else(|| panic!("no event, expected {event_type}"));
        assert_eq!(event.event_type, event_type, "{event:?}");
        event
    }

    pub fn bind(&mut self, id: CmaId, addr: &str) -> Result<(), crate::cma::CmaError> {
        self.cma.bind(id, addr.parse().unwrap(), &self.system)
    }

    pub fn listen(&mut self, space: PortSpace, addr: &str, backlog: i32) -> CmaId {
        let id = self.id(space);
        self.bind(id, addr).unwrap();
        self.cma.listen(id, backlog, &self.system).unwrap();
        id
    }

    /// Returns an identifier that is ready to connect.
    pub fn resolved(&mut self, space: PortSpace, dst: &str) -> CmaId {
        let id = self.id(space);
        self.resolve_addr(id, dst);
        self.resolve_route(id);
        id
    }

    pub fn resolve_addr(&mut self, id: CmaId, dst: &str) {
        self.cma.resolve_addr(id, None, dst.parse().unwrap(), &self.system).unwrap();
        self.expect(CmaEventType::AddrResolved);
    }

    pub fn resolve_route(&mut self, id: CmaId) {
        self.cma.resolve_route(id).unwrap();
        self.expect(CmaEventType::RouteResolved);
    }
}

pub struct TwoHosts {
    pub a: Host,
    pub b: Host,
    pub now: Time,
    /// Whether the network loses all MADs.
    pub is_down: bool,
}

impl TwoHosts {
    pub fn new() -> Self {
        Self::between("10.0.0.1", "10.0.0.2")
    }

    pub fn between(a: &str, b: &str) -> Self {
        let (a, b) = (Host::new(a, 11), Host::new(b, 22));
        Self { a, b, now: Time::from_ns(1), is_down: false }
    }

    /// Delivers MADs until none is in flight.
    pub fn run(&mut self) {
        self.run_inspected(|_| {});
    }

    /// Delivers MADs like [`run`](Self::run), and passes each to `inspect`.
    pub fn run_inspected(&mut self, mut inspect: impl FnMut(&CmTransmit)) {
        loop {
            let from_a = std::iter::from_fn(|| self.a.cma.poll_transmit()).collect::<Vec<_>>();
            let from_b = std::iter::from_fn(|| self.b.cma.poll_transmit()).collect::<Vec<_>>();
            if from_a.is_empty() && from_b.is_empty() {
                return;
            }
            for (_, transmit) in from_a.into_iter().chain(from_b).filter(|_| !self.is_down) {
                inspect(&transmit);
                let CmPath { local, remote } = transmit.path;
                let to = if remote.to_ip() == self.a.system.0 { &mut self.a } else { &mut self.b };
                let path = CmPath { local: remote, remote: local };
                to.cma.receive(self.now, to.key, path, &transmit.mad);
            }
        }
    }

    /// Advances the time until no deadline is left.
    pub fn wait(&mut self) {
        self.run();
        while let Some(at) = self.next_deadline() {
            self.advance_to(at);
        }
    }

    /// Advances the time by `seconds`.
    pub fn pass(&mut self, seconds: u64) {
        let end = self.now.plus_ns(seconds * 1_000_000_000);
        self.run();
        while let Some(at) = self.next_deadline().filter(|at| *at <= end) {
            self.advance_to(at);
        }
        self.now = end;
    }

    fn next_deadline(&self) -> Option<Time> {
        self.a.cma.next_deadline().into_iter().chain(self.b.cma.next_deadline()).min()
    }

    fn advance_to(&mut self, at: Time) {
        self.now = at;
        self.a.cma.handle_timeout(at);
        self.b.cma.handle_timeout(at);
        self.run();
    }

    /// Sends a request to host B, and delivers all MADs.
    pub fn connect(&mut self, id: CmaId, param: &ConnParam<'_>) {
        self.a.cma.connect(self.now, id, param).unwrap();
        self.run();
    }

    /// Sends a request for queue pair `qpn` to `port` of host B, without delivering it.
    pub fn begin(&mut self, port: u16, qpn: u32) -> CmaId {
        let id = self.a.resolved(PortSpace::TCP, &format!("10.0.0.2:{port}"));
        let param = ConnParam { qpn: Qpn::masked(qpn), ..ConnParam::default() };
        self.a.cma.connect(self.now, id, &param).unwrap();
        id
    }

    /// Returns the identifier of a request to host B.
    #[track_caller]
    pub fn request(&mut self) -> CmaId {
        self.b.expect(CmaEventType::ConnectRequest).new_id.unwrap()
    }

    pub fn accept(&mut self, id: CmaId, param: &ConnParam<'_>) {
        self.b.cma.accept(self.now, id, param).unwrap();
        self.run();
    }

    pub fn establish(&mut self, id: CmaId) {
        self.a.cma.establish(self.now, id).unwrap();
        self.run();
    }

    /// Sends a request from host A to host B. Returns the identifiers of the listener, the active
    /// side and the passive side.
    pub fn asked(&mut self, param: &ConnParam<'_>) -> (CmaId, CmaId, CmaId) {
        let listener = self.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
        let active = self.a.resolved(PortSpace::TCP, "10.0.0.2:9");
        self.connect(active, param);
        (listener, active, self.request())
    }

    /// Connects host A to port 9 of host B, and returns both identifiers.
    pub fn connected(&mut self) -> (CmaId, CmaId) {
        let (listener, active, passive) = self.asked(&ConnParam::default());
        self.accept(passive, &ConnParam::default());
        self.a.expect(CmaEventType::ConnectResponse);
        self.establish(active);
        self.b.expect(CmaEventType::Established);
        self.b.cma.destroy_id(self.now, listener).unwrap();
        (active, passive)
    }

    /// Destroys identifiers of both hosts.
    pub fn destroy<const A: usize, const B: usize>(&mut self, of_a: [CmaId; A], of_b: [CmaId; B]) {
        of_a.into_iter().for_each(|id| self.a.cma.destroy_id(self.now, id).unwrap());
        of_b.into_iter().for_each(|id| self.b.cma.destroy_id(self.now, id).unwrap());
    }

    /// Checks that nothing leaks.
    #[track_caller]
    pub fn assert_empty(&mut self) {
        self.wait();
        for host in [&mut self.a, &mut self.b] {
            assert_eq!(host.cma.id_count(), 0);
            assert_eq!(host.event(), None);
            assert!(host.cma.manager(host.key).unwrap().is_idle());
            assert!(lock(&host.claims).is_empty());
        }
    }
}
