//! Devices: which there are, opening one, what it can do.

use std::fmt;
use std::net::IpAddr;
#[cfg(feature = "capture")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use urxe_stack::device::counters::Counter;
use urxe_stack::device::{IcrcPolicy, Limits};
use urxe_stack::driver::{Engine, EngineConfig, Hooks, OpenEngineError};
use urxe_stack::link::{
    self, GidEntry, Guid, LinkError, LinkName, LinkSpec, ParseError, ResolvedLink, Source,
};
use urxe_stack::memory::CopyMode;
use urxe_stack::port::faults::FaultSpec;
#[cfg(feature = "capture")]
use urxe_stack::port::tap::Tap;
use urxe_stack::qp::attr::PathMtu;
use urxe_stack::rng::Probability;
use urxe_wire::Gid;

use crate::backend::Backend;
use crate::cm::Service;
use crate::domain::DomainRegistry;
use crate::waker_list::{ReadyWakers, WakerList};

urxe_stack::errors! {
    /// Why a device was not opened.
    #[derive(Debug, thiserror::Error)]
    pub enum OpenError {
        #[error("not a device name: {0}")]
        Name(#[source] ParseError) = EINVAL,
        /// The list of devices, or the name is not in it.
        #[error(transparent)] Link(#[from] LinkError),
        /// Its sockets, its thread.
        #[error(transparent)] Engine(#[from] OpenEngineError),
        #[error("cannot make the capture {}: {error}", path.display())]
        Capture {
            path: PathBuf,
            #[source] error: std::io::Error,
        } = error.raw_os_error().unwrap_or(EIO),
    }
}

/// One device that could be opened: an entry of [`devices`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    spec: LinkSpec,
}

impl DeviceInfo {
    /// Its name, as `rxe0`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.spec.name.as_str()
    }

    /// What it is made from: an address or a network interface.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.spec.source
    }

    pub(crate) fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Its addresses, GIDs and MTU on this machine now.
    ///
    /// # Errors
    /// [`LinkError`] if the machine has no such address or interface.
    pub fn resolve(&self) -> Result<ResolvedLink, LinkError> {
        link::resolve(&self.spec)
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self) -> Result<Device, OpenError> {
        Device::builder().open_link(&self.spec)
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

/// The devices of this process (`ibv_get_device_list`): from the environment variable
/// `URXE_DEVICES` (`rxe0=10.0.0.1,rxe1=eth0`), else from the user's list (`urxe link`), else one,
/// `rxe0` on 127.0.0.1.
///
/// # Errors
/// [`LinkError`] if the list cannot be read or has a mistake.
pub fn devices() -> Result<Vec<DeviceInfo>, LinkError> {
    Ok(link::configured()?.links.into_iter().map(|spec| DeviceInfo { spec }).collect())
}

/// Options of a device over UDP; made by [`Device::builder`].
#[derive(Clone, Debug, Default)]
pub struct DeviceBuilder {
    config: EngineConfig,
    #[cfg(feature = "capture")]
    capture: Option<PathBuf>,
}

impl DeviceBuilder {
    /// Bytes of receive buffer to ask the system for. By default as much as is useful and granted.
    #[must_use]
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.config.receive_buffer = Some(bytes);
        self
    }

    /// How received ICRCs are checked. By default [`IcrcPolicy::Solve`].
    #[must_use]
    pub fn icrc_policy(mut self, policy: IcrcPolicy) -> Self {
        self.config.icrc_policy = policy;
        self
    }

    /// Whether to send several packets in one call where the kernel can (UDP GSO). By default yes.
    #[must_use]
    pub fn gso(mut self, on: bool) -> Self {
        self.config.gso = on;
        self
    }

    /// Whether to receive merged datagrams where the kernel can (UDP GRO). By default yes.
    #[must_use]
    pub fn gro(mut self, on: bool) -> Self {
        self.config.gro = on;
        self
    }

    /// Where keys, queue pair numbers and first PSNs come from. By default of the operating system,
    /// so that nobody can guess them; with a known seed, anybody who reaches the port can.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = Some(seed);
        self
    }

    /// What the device shall be able to do. By default what `rdma_rxe` can.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// How likely it is that a packet which has arrived is lost before the device sees it: a bad
    /// link, simulated over real sockets. What was lost counts as [`Counter::DropSimulated`]; which
    /// packets those are follows from the [`seed`](Self::seed). By default none is. More faults:
    /// [`faults`](Self::faults); better simulations: [`sim`](crate::sim).
    #[must_use]
    pub fn loss(mut self, chance: Probability) -> Self {
        self.config.faults.link.loss = chance;
        self
    }

    /// What happens to packets that have arrived before the device sees them: a bad network,
    /// simulated over real sockets.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let faults = "loss=1%,reorder=0.5%,late=200us,duplicate=0.1%,delay=50us,seed=7".parse()?;
    /// let device = urxe::Device::builder().faults(faults).open("rxe0")?;
    /// # Ok(()) }
    /// ```
    /// The decisions follow from the faults' seed, else from the device's, and from a packet's
    /// number since the device was opened.
    #[must_use]
    pub fn faults(mut self, faults: FaultSpec) -> Self {
        self.config.faults = faults;
        self
    }

    /// No packet is sent again earlier than this while its acknowledgement may still come, whatever
    /// round trips were measured; the queue pair's own timeout
    /// ([`ConnectOptions::timeout`](crate::ConnectOptions::timeout)) stands beside it. By default
    /// 40 ms. More suits a peer that may stall: an emulated machine, a process in a debugger.
    #[must_use]
    pub fn early_timeout_min(mut self, least: Duration) -> Self {
        self.config.early_timeout_min = least;
        self
    }

    /// Whether packets of reliable connections say that their sender heeds congestion (ECT(0) in
    /// the IP header), so that routers mark them before they drop any. By default they do; a
    /// network that cannot stand it is rare. Marks that come anyhow are told to the peer, and what
    /// peers tell is obeyed, in any case.
    #[must_use]
    pub fn ecn(mut self, ecn: bool) -> Self {
        self.config.ecn = ecn;
        self
    }

    /// Whether packets to devices of this process that were opened with it as well (and to itself)
    /// go to them directly, over no socket: some times as fast. By default they do. Captures,
    /// counters and what the verbs tell are the same; but tcpdump, netem or a firewall on the
    /// interface meet such packets only if this is off.
    #[must_use]
    pub fn direct(mut self, on: bool) -> Self {
        self.config.direct = on;
        self
    }

    /// Whether bytes of registered memory move by system calls instead of instructions, for a
    /// microsecond and a half more each: what a program has unmapped while it was registered is
    /// then a protection error of whoever reaches for it, and not the end of the process. By
    /// default only [on-demand](crate::Access::ON_DEMAND) regions and files that may shrink are
    /// treated so. Helps to find such mistakes in programs that register memory of their own
    /// ([`ProtectionDomain::register`](crate::ProtectionDomain::register)); atomic operations stay
    /// instructions.
    #[must_use]
    pub fn checked_copies(mut self, on: bool) -> Self {
        self.config.copies = if on { CopyMode::Checked } else { CopyMode::Direct };
        self
    }

    /// Records every packet in this file (feature `capture`), as pcapng with whole frames; replaces
    /// what the file held.
    #[cfg(feature = "capture")]
    #[must_use]
    pub fn capture(mut self, path: impl AsRef<Path>) -> Self {
        self.capture = Some(path.as_ref().to_owned());
        self
    }

    /// Records every packet in a tap (feature `capture`), which other devices may share.
    #[cfg(feature = "capture")]
    #[must_use]
    pub fn tap(mut self, tap: Arc<Tap>) -> Self {
        self.config.tap = Some(tap);
        self
    }

    /// Opens the device of that name among [`devices`].
    ///
    /// # Errors
    /// [`OpenError`]; it names what there is.
    pub fn open(self, name: &str) -> Result<Device, OpenError> {
        let name: LinkName = name.parse().map_err(OpenError::Name)?;
        let configured = link::configured()?;
        let spec = configured.find(&name)?.clone();
        self.open_link(&spec)
    }

    /// Opens a device of its own, in no list, on one address of this machine. Every address of
    /// 127/8 is one.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_address(self, address: impl Into<IpAddr>) -> Result<Device, OpenError> {
        let name = LinkSpec::built_in().name;
        self.open_link(&LinkSpec { name, source: Source::Address(address.into()) })
    }

    /// Opens a device of its own, in no list, with all addresses of a network interface.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_interface(self, interface: &str) -> Result<Device, OpenError> {
        let name = LinkSpec::built_in().name;
        self.open_link(&LinkSpec { name, source: Source::Interface(interface.to_owned()) })
    }

    /// Opens the device of a link.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_link(self, spec: &LinkSpec) -> Result<Device, OpenError> {
        self.open_within(spec, Service::new())
    }

    /// Opens the device of a link, whose connections are those of `service`.
    pub(crate) fn open_within(
        mut self,
        spec: &LinkSpec,
        service: Arc<Service>,
    ) -> Result<Device, OpenError> {
        #[cfg(feature = "capture")]
        if let Some(path) = self.capture {
            let tap = Tap::create(&path).map_err(|error| OpenError::Capture { path, error })?;
            self.config.tap = Some(Arc::new(tap));
        }
        let ready = Arc::clone(service.ready());
        let events = Arc::new(WakerList::new(Arc::clone(&ready)));
        self.config.connections = Some(Arc::clone(service.connections()));
        self.config.hooks =
            Hooks { events: Some(Arc::clone(&events) as _), after_progress: Some(ready.clone()) };
        let engine = Engine::open(spec, self.config)?;
        let link = engine.link();
        let description = DeviceDescription {
            name: link.spec.name.to_string(),
            guid: link.node_guid,
            link: Some(link.clone()),
        };
        let key = engine.connection_key();
        let device = Device {
            inner: Arc::new(Inner {
                backend: Backend::Udp(engine),
                description,
                ready,
                events,
                domains: DomainRegistry::default(),
                service: Some(Arc::clone(&service)),
            }),
        };
        if let Some(key) = key {
            service.register_device(key, &device);
        }
        Ok(device)
    }
}

/// What a device is, apart from what it does.
#[derive(Debug)]
pub(crate) struct DeviceDescription {
    pub name: String,
    pub guid: Guid,
    pub link: Option<ResolvedLink>,
}

/// An open device (`struct ibv_context`). Cheap to clone; it closes when the last clone and the
/// last object made from it are gone, in whatever order.
///
/// ServiceDevices UDP it has one socket for each of its addresses and one background thread, which serves
/// peers' one-sided operations while the program does something else.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<Inner>,
}

/// See [`Device::identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceIdentity(usize);

pub(crate) struct Inner {
    pub backend: Backend,
    pub description: DeviceDescription,
    /// Wakers to be called once no lock is held.
    pub ready: Arc<ReadyWakers>,
    /// Who waits for asynchronous events.
    pub events: Arc<WakerList>,
    /// The protection domains that can be imported.
    pub domains: DomainRegistry,
    /// The connections it is part of; none in a simulated network.
    pub service: Option<Arc<Service>>,
}

impl Device {
    /// Opens the device of that name among [`devices`].
    ///
    /// # Errors
    /// [`OpenError`]; it names what there is.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        Self::builder().open(name)
    }

    /// Opens a device on one address of this machine, with default options.
    ///
    /// # Errors
    /// [`OpenError`]; an address in use is reported with a free one.
    pub fn open_address(address: impl Into<IpAddr>) -> Result<Self, OpenError> {
        Self::builder().open_address(address)
    }

    /// Options, and then opening.
    #[must_use]
    pub fn builder() -> DeviceBuilder {
        DeviceBuilder::default()
    }

    /// Its name, as `rxe0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.description.name
    }

    /// What it can do and what it is (`ibv_query_device`).
    #[must_use]
    pub fn query(&self) -> DeviceAttr {
        DeviceAttr {
            node_guid: self.inner.description.guid,
            limits: *self.core().limits(),
            port_count: 1,
        }
    }

    /// The device's clock, in nanoseconds (`ibv_query_rt_values_ex`): what completions are stamped
    /// with. ServiceDevices UDP it is the system's monotonic clock, in a simulated network the virtual one.
    #[must_use]
    pub fn clock_ns(&self) -> u64 {
        self.inner.backend.now().as_ns()
    }

    /// The time of day of a stamp of the device's clock, in nanoseconds since 1970
    /// (`ibv_wc_read_completion_wallclock_ns`); `None` in a simulated network, whose time is not
    /// the world's. As exact as the clocks are set: a step of the wall clock since then shifts the
    /// answer.
    #[must_use]
    pub fn wallclock_ns(&self, timestamp_ns: u64) -> Option<u64> {
        let Backend::Udp(_) = &self.inner.backend else { return None };
        let age_ns = self.clock_ns().saturating_sub(timestamp_ns);
        Some(urxe_stack::sys::clock::wall_ns().saturating_sub(age_ns))
    }

    /// Its one port (`ibv_query_port`, `ibv_query_gid_table`).
    #[must_use]
    pub fn query_port(&self) -> PortAttr {
        PortAttr {
            is_active: self.core().is_port_active(),
            max_mtu: self.core().limits().max_mtu,
            active_mtu: self.core().active_mtu(),
            max_msg_sz: self.core().limits().max_msg_sz,
            gids: self.inner.backend.gids(),
        }
    }

    /// The link that it was opened for, as it was then; `None` in a simulated network.
    #[must_use]
    pub fn link(&self) -> Option<&ResolvedLink> {
        self.inner.description.link.as_ref()
    }

    /// The GID at `index` of the port's table (`ibv_query_gid`), which is zero if its address went.
    #[must_use]
    pub fn gid(&self, index: u8) -> Option<Gid> {
        self.core().gids().get(usize::from(index)).copied()
    }

    /// The index of the GID that suits most: the first that peers can reach, an IPv4 one if there
    /// is any.
    #[must_use]
    pub fn default_gid_index(&self) -> u8 {
        let gids = self.inner.backend.gids();
        let v4 = gids.iter().position(|entry| entry.assigned && entry.gid.to_ipv4().is_some());
        let index = v4.or_else(|| gids.iter().position(|entry| entry.assigned)).unwrap_or(0);
        u8::try_from(index).unwrap_or(0)
    }

    /// Every counter with its value now: the fifteen of `rdma_rxe` first, then one for each reason
    /// to drop a packet.
    pub fn counters(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        self.core().counters().snapshot()
    }

    /// One counter's value now.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.core().counters().value(counter)
    }

    pub(crate) fn core(&self) -> &urxe_stack::device::Device {
        self.inner.backend.core()
    }

    /// Destroys an object whose last handle goes, which `kept` says cannot fail. Leaves alone what
    /// a child inherited by `fork`.
    pub(crate) fn destroy<E: fmt::Debug + PartialEq>(
        &self,
        kept: &str,
        destroy: impl FnOnce(&urxe_stack::device::Device) -> Result<(), E>,
    ) {
        if !self.inner.backend.is_inherited() {
            let gone = destroy(self.core());
            debug_assert_eq!(gone, Ok(()), "{kept}");
        }
    }

    /// Calls whom the last call woke. Not under any lock: a waker may do anything.
    pub(crate) fn run_ready_wakers(&self) {
        self.inner.ready.run();
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// What tells it from the other open devices of this process.
    pub(crate) fn identity(&self) -> DeviceIdentity {
        DeviceIdentity(Arc::as_ptr(&self.inner).addr())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name())
            .field("core", self.core())
            .finish_non_exhaustive()
    }
}

/// What a device is and can do (`struct ibv_device_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAttr {
    /// Its globally unique identifier.
    pub node_guid: Guid,
    /// What it can do.
    pub limits: Limits,
    /// Number of ports, which are counted from 1.
    pub port_count: u8,
}

/// A port (`struct ibv_port_attr`) with its GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAttr {
    /// Whether the interface is up, with a carrier. [`Device::events`] tell when that changes.
    pub is_active: bool,
    /// The largest path MTU of any port.
    pub max_mtu: PathMtu,
    /// The largest path MTU that fits the link.
    pub active_mtu: PathMtu,
    /// The longest message in bytes.
    pub max_msg_sz: u64,
    /// The GID table. A place whose address went has the zero GID. [`Device::events`] tell of
    /// changes.
    pub gids: Vec<GidEntry>,
}
