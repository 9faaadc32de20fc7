//! Devices: the configured devices, opening a device, its attributes and counters.

use std::fmt;
use std::net::IpAddr;
#[cfg(feature = "capture")]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use urxe_stack::device::counters::Counter;
use urxe_stack::device::{IcrcPolicy, Limits};
use urxe_stack::driver::{Engine, EngineConfig, Hooks, OpenEngineError};
use urxe_stack::files::OutputFileError;
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
    /// The reason why a device was not opened.
    #[derive(Debug, thiserror::Error)]
    pub enum OpenError {
        #[error("not a device name: {0}")]
        Name(#[source] ParseError) = EINVAL,
        /// The list of devices cannot be read, has no device of this name, or names a missing
        /// interface.
        #[error(transparent)] Link(#[from] LinkError),
        /// The sockets or the background thread cannot be created.
        #[error(transparent)] Engine(#[from] OpenEngineError),
        /// The file of the capture cannot be written.
        #[error(transparent)] Capture(#[from] OutputFileError),
    }
}

/// A configured device: an entry of [`devices`].
///
/// ```
/// use urxe::{DeviceInfo, ResolvedLink, Source};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// for listed in urxe::devices()? {
///     let listed: DeviceInfo = listed;
///     match listed.source() {
///         Source::Address(address) => println!("{}: address {address}", listed.name()),
///         Source::Interface(interface) => println!("{}: interface {interface}", listed.name()),
///     }
///     let link: ResolvedLink = listed.resolve()?;
///     println!("path MTU {}, GIDs {:?}", link.path_mtu, link.gids);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    spec: LinkSpec,
}

impl DeviceInfo {
    /// Returns the name of the device, for example `rxe0`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.spec.name.as_str()
    }

    /// Returns the address or network interface of the device.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.spec.source
    }

    pub(crate) fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Returns the current addresses, GIDs and MTU of the device.
    ///
    /// # Errors
    /// Fails with [`LinkError`] if the machine has no such address or interface.
    pub fn resolve(&self) -> Result<ResolvedLink, LinkError> {
        link::resolve(&self.spec)
    }

    /// Opens the device with default options.
    ///
    /// # Errors
    /// Fails with [`OpenError`].
    pub fn open(&self) -> Result<Device, OpenError> {
        Device::builder().open_link(&self.spec)
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

/// Returns the configured devices (`ibv_get_device_list`).
///
/// The first of these sources is used:
/// 1. the environment variable `URXE_DEVICES`, for example `rxe0=10.0.0.1,rxe1=eth0`;
/// 2. the list of the user (`urxe link`);
/// 3. one device, `rxe0` on 127.0.0.1.
///
/// # Errors
/// Fails with [`LinkError`] if the list cannot be read or has a syntax error.
pub fn devices() -> Result<Vec<DeviceInfo>, LinkError> {
    Ok(link::configured()?.links.into_iter().map(|spec| DeviceInfo { spec }).collect())
}

/// The options of a device over UDP, made by [`Device::builder`].
///
/// ```
/// use std::time::Duration;
/// use urxe::{Counter, Device, DeviceBuilder, FlushIcrc, IcrcPolicy, Limits};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // For peers that compute the ICRC of FLUSH packets as the specification does.
/// let flush_icrc = FlushIcrc::Standard;
/// let builder: DeviceBuilder = Device::builder()
///     .limits(Limits { max_qp: 1000, flush_icrc, ..Limits::default() })
///     .icrc_policy(IcrcPolicy::Strict)
///     .early_timeout_min(Duration::from_millis(100))
///     .gso(false);
/// let device = builder.open_address([127, 49, 10, 20])?;
/// assert_eq!(device.query().limits.max_qp, 1000);
/// assert_eq!(device.counter(Counter::DropSimulated), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct DeviceBuilder {
    config: EngineConfig,
    #[cfg(feature = "capture")]
    capture: Option<PathBuf>,
    #[cfg(feature = "capture")]
    capture_headers: bool,
}

impl DeviceBuilder {
    /// Sets the number of bytes of receive buffer to request from the system. By default the
    /// builder requests a useful size and accepts the size that the system grants.
    #[must_use]
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.config.receive_buffer = Some(bytes);
        self
    }

    /// Sets how received ICRCs are checked. The default is [`IcrcPolicy::Solve`].
    #[must_use]
    pub fn icrc_policy(mut self, policy: IcrcPolicy) -> Self {
        self.config.icrc_policy = policy;
        self
    }

    /// Sets whether several packets are sent by one system call if the kernel can (UDP GSO). The
    /// default is `true`.
    #[must_use]
    pub fn gso(mut self, on: bool) -> Self {
        self.config.gso = on;
        self
    }

    /// Sets whether merged datagrams are received if the kernel can (UDP GRO). The default is
    /// `true`.
    #[must_use]
    pub fn gro(mut self, on: bool) -> Self {
        self.config.gro = on;
        self
    }

    /// Sets the seed of keys, queue pair numbers and first PSNs. By default they follow from random
    /// numbers of the operating system and cannot be guessed. If the seed is known, every host that
    /// reaches the port can guess them.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = Some(seed);
        self
    }

    /// Sets the limits of the device. The defaults are those of `rdma_rxe`.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// Sets the probability that the device loses a received packet, to simulate a bad link over
    /// real sockets. The default is 0.
    ///
    /// [`Counter::DropSimulated`] counts the lost packets. The [`seed`](Self::seed) determines
    /// which packets are lost. See [`faults`](Self::faults) for other faults and
    /// [`sim`](crate::sim) for whole simulated networks.
    #[must_use]
    pub fn loss(mut self, chance: Probability) -> Self {
        self.config.faults.link.loss = chance;
        self
    }

    /// Sets the faults of received packets, to simulate a bad network over real sockets.
    ///
    /// ```
    /// use urxe::{Device, FaultError, FaultSpec};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = "loss=1%,reorder=0.5%,late=200us,duplicate=0.1%,delay=50us,seed=7";
    /// let faults: FaultSpec = text.parse()?;
    /// let device = Device::builder().faults(faults).open_address([127, 49, 10, 21])?;
    /// assert!(matches!("loss=1".parse::<FaultSpec>(), Err(FaultError::Value { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The decisions follow from the seed of the faults, or else of the device, and from the number
    /// of packets since the device was opened.
    #[must_use]
    pub fn faults(mut self, faults: FaultSpec) -> Self {
        self.config.faults = faults;
        self
    }

    /// Sets the minimum of the early timeout, which retransmits a packet after an estimated
    /// round-trip time. The timeout of the queue pair
    /// ([`ConnectOptions::timeout`](crate::ConnectOptions::timeout)) applies in addition. The
    /// default is 40 ms. A higher value suits a peer that may stall, such as an emulated machine or
    /// a process in a debugger.
    #[must_use]
    pub fn early_timeout_min(mut self, least: Duration) -> Self {
        self.config.early_timeout_min = least;
        self
    }

    /// Sets whether packets of reliable connections are ECN-capable (ECT(0) in the IP header), so
    /// that routers mark them instead of dropping them. The default is `true`. Disable ECN only for
    /// a network that drops such packets. The device always reports received marks to the peer and
    /// always reacts to reports of the peer.
    #[must_use]
    pub fn ecn(mut self, ecn: bool) -> Self {
        self.config.ecn = ecn;
        self
    }

    /// Sets whether the device compares the UDP source ports of a peer's packets. The default is
    /// `true`: a packet from a port that the peer has not used is handled only if its sender knows
    /// the expected PSN or repeats a recent packet. Disable the check for a peer that sends each
    /// packet of a connection from another port; its lost packets are then requested at once.
    #[must_use]
    pub fn port_check(mut self, check: bool) -> Self {
        self.config.port_check = check;
        self
    }

    /// Sets whether the sockets believe the path MTU of ICMP messages. The default is `false`,
    /// because any host can forge such a message, and then no larger packet is sent for ten
    /// minutes. With `false`, packets may have the MTU of the interface. If a router has a smaller
    /// MTU, connect with a smaller [`path_mtu`](crate::ConnectOptions::path_mtu).
    #[must_use]
    pub fn icmp_mtu(mut self, believe: bool) -> Self {
        self.config.icmp_mtu = believe;
        self
    }

    /// Sets whether packets to other devices of this process bypass the sockets, which is several
    /// times faster. Both devices must have this option, and a device also sends to itself this
    /// way. The default is `true`. Captures and counters are the same. Tools such as tcpdump, netem
    /// and firewalls see these packets only if the option is off.
    #[must_use]
    pub fn direct(mut self, on: bool) -> Self {
        self.config.direct = on;
        self
    }

    /// Sets whether the device copies registered memory by system calls, which takes about 1.4 µs
    /// more for each copy.
    ///
    /// An access to memory that the program unmapped then fails with a protection error instead of
    /// ending the process. This helps to find such errors in programs that register their own
    /// memory ([`ProtectionDomain::register`](crate::ProtectionDomain::register)). By default only
    /// [on-demand](crate::Access::ON_DEMAND) regions and files that may shrink are copied this way.
    /// A helper process executes atomic operations on that memory.
    #[must_use]
    pub fn checked_copies(mut self, on: bool) -> Self {
        self.config.copies = if on { CopyMode::Checked } else { CopyMode::Direct };
        self
    }

    /// Captures all packets in a pcapng file that only this user may read (feature `capture`). An
    /// existing file of this user is overwritten. A file of another user and a symbolic link are
    /// refused.
    #[cfg(feature = "capture")]
    #[must_use]
    pub fn capture(mut self, path: impl AsRef<Path>) -> Self {
        self.capture = Some(path.as_ref().to_owned());
        self
    }

    /// Sets whether the [capture](Self::capture) omits payload (feature `capture`). The default is
    /// `false`. The capture then has the headers and the original length of each packet.
    #[cfg(feature = "capture")]
    #[must_use]
    pub fn capture_headers(mut self, on: bool) -> Self {
        self.capture_headers = on;
        self
    }

    /// Captures all packets by a tap (feature `capture`), which several devices may share.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use urxe::{Device, OutputFileError, Tap};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // A folder is not a file.
    /// let error: OutputFileError = Tap::create("/").unwrap_err();
    /// println!("{error}");
    /// // A real program passes a file, or calls `Tap::create` with a path.
    /// let tap = Arc::new(Tap::new(std::io::sink()));
    /// let device = Device::builder().tap(Arc::clone(&tap)).open_address([127, 49, 10, 22])?;
    /// # drop(device);
    /// println!("{} packets", tap.packets());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "capture")]
    #[must_use]
    pub fn tap(mut self, tap: Arc<Tap>) -> Self {
        self.config.tap = Some(tap);
        self
    }

    /// Opens the configured device with this name; see [`devices`].
    ///
    /// # Errors
    /// Fails with [`OpenError`], which lists the configured devices.
    pub fn open(self, name: &str) -> Result<Device, OpenError> {
        let name: LinkName = name.parse().map_err(OpenError::Name)?;
        let configured = link::configured()?;
        let spec = configured.find(&name)?.clone();
        self.open_link(&spec)
    }

    /// Opens a device that is not in the list of configured devices, on one address of this
    /// machine. All addresses in 127/8 belong to the machine.
    ///
    /// # Errors
    /// Fails with [`OpenError`].
    pub fn open_address(self, address: impl Into<IpAddr>) -> Result<Device, OpenError> {
        let name = LinkSpec::built_in().name;
        self.open_link(&LinkSpec { name, source: Source::Address(address.into()) })
    }

    /// Opens a device that is not in the list of configured devices, with all addresses of a
    /// network interface.
    ///
    /// # Errors
    /// Fails with [`OpenError`].
    pub fn open_interface(self, interface: &str) -> Result<Device, OpenError> {
        let name = LinkSpec::built_in().name;
        self.open_link(&LinkSpec { name, source: Source::Interface(interface.to_owned()) })
    }

    /// Opens the device of a link.
    ///
    /// ```
    /// use urxe::{Device, LinkError, LinkSpec, OpenEngineError, OpenError, Source};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let spec: LinkSpec = "rxe7=127.49.10.23".parse()?;
    /// assert_eq!(spec.source, Source::Address([127, 49, 10, 23].into()));
    /// let device = Device::builder().open_link(&spec)?;
    /// assert_eq!(device.name(), "rxe7");
    /// // An address of another machine (RFC 5737).
    /// let foreign: LinkSpec = "rxe8=192.0.2.1".parse()?;
    /// match Device::builder().open_link(&foreign).unwrap_err() {
    ///     OpenError::Engine(OpenEngineError::Link(LinkError::NoSuchAddress { given, .. })) => {
    ///         println!("{given} is not an address of this machine");
    ///     }
    ///     other => panic!("{other}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`OpenError`].
    pub fn open_link(self, spec: &LinkSpec) -> Result<Device, OpenError> {
        self.open_within(spec, Service::new())
    }

    /// Opens the device of a link, with `service` as its connection service.
    pub(crate) fn open_within(
        mut self,
        spec: &LinkSpec,
        service: Arc<Service>,
    ) -> Result<Device, OpenError> {
        #[cfg(feature = "capture")]
        if let Some(path) = self.capture {
            let tap = Tap::create(path)?;
            let tap = if self.capture_headers { tap.headers_only() } else { tap };
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

/// The name and the link of a device.
#[derive(Debug)]
pub(crate) struct DeviceDescription {
    pub name: String,
    pub guid: Guid,
    pub link: Option<ResolvedLink>,
}

/// An open device (`struct ibv_context`).
///
/// Cloning is cheap. The device is closed when the last clone and the last object of it are
/// dropped, in any order. A device over UDP has one socket for each of its addresses. Its
/// background thread serves one-sided operations of peers while the program is busy.
///
/// ```
/// use urxe::{Device, DeviceAttr, Gid, GidEntry, Guid, PathMtu, PortAttr};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::open_address([127, 49, 10, 24])?;
/// let DeviceAttr { node_guid, limits, port_count } = device.query();
/// let guid: Guid = node_guid;
/// println!("{guid}: {port_count} port, up to {} queue pairs", limits.max_qp);
/// let port: PortAttr = device.query_port();
/// assert!(port.is_active && port.active_mtu <= PathMtu::Mtu4096);
/// let GidEntry { gid, .. } = port.gids[usize::from(device.default_gid_index())];
/// assert_eq!(gid, Gid::from_ip([127, 49, 10, 24].into()));
/// for (counter, value) in device.counters().filter(|(_, value)| *value > 0) {
///     println!("{}: {value}", counter.name());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<Inner>,
}

/// Distinguishes the open devices of this process; see [`Device::identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceIdentity(usize);

/// The devices of the objects that a work request names.
///
/// Keys and handles are numbers of one device. On another device the same number may denote another
/// object, for example memory with another owner. A request for such a device is therefore refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedDevices {
    None,
    One(DeviceIdentity),
    Several,
}

impl NamedDevices {
    /// Adds the device of one more object.
    pub(crate) fn and(self, device: DeviceIdentity) -> Self {
        match self {
            Self::None => Self::One(device),
            Self::One(other) if other == device => self,
            Self::One(_) | Self::Several => Self::Several,
        }
    }

    /// Returns whether no object belongs to another device than `device`.
    pub(crate) fn is_within(self, device: &Device) -> bool {
        match self {
            Self::None => true,
            Self::One(named) => named == device.identity(),
            Self::Several => false,
        }
    }
}

pub(crate) struct Inner {
    pub backend: Backend,
    pub description: DeviceDescription,
    /// Wakers to call when the current thread holds no lock.
    pub ready: Arc<ReadyWakers>,
    /// The wakers of threads and tasks that wait for asynchronous events.
    pub events: Arc<WakerList>,
    /// The protection domains that can be imported.
    pub domains: DomainRegistry,
    /// The connection service, except in a simulated network.
    pub service: Option<Arc<Service>>,
}

impl Device {
    /// Opens the configured device with this name; see [`devices`].
    ///
    /// # Errors
    /// Fails with [`OpenError`], which lists the configured devices.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        Self::builder().open(name)
    }

    /// Opens a device on one address of this machine, with default options.
    ///
    /// # Errors
    /// Fails with [`OpenError`]. If the address is in use, the message suggests a free one.
    pub fn open_address(address: impl Into<IpAddr>) -> Result<Self, OpenError> {
        Self::builder().open_address(address)
    }

    /// Returns the builder of a device.
    #[must_use]
    pub fn builder() -> DeviceBuilder {
        DeviceBuilder::default()
    }

    /// Returns the name of the device, for example `rxe0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.description.name
    }

    /// Returns the attributes of the device (`ibv_query_device`).
    #[must_use]
    pub fn query(&self) -> DeviceAttr {
        DeviceAttr {
            node_guid: self.inner.description.guid,
            limits: *self.core().limits(),
            port_count: 1,
        }
    }

    /// Returns the time of the device's clock, in nanoseconds (`ibv_query_rt_values_ex`).
    /// Completions have timestamps of this clock. It is the monotonic clock of the system, or the
    /// virtual clock of a simulated network.
    #[must_use]
    pub fn clock_ns(&self) -> u64 {
        self.inner.backend.now().as_ns()
    }

    /// Converts a timestamp of the device's clock to the time of day, in nanoseconds since 1970
    /// (`ibv_wc_read_completion_wallclock_ns`). Returns `None` in a simulated network. If the time
    /// of day was set after the timestamp, the result is wrong by the same amount.
    #[must_use]
    pub fn wallclock_ns(&self, timestamp_ns: u64) -> Option<u64> {
        let Backend::Udp(_) = &self.inner.backend else { return None };
        let age_ns = self.clock_ns().saturating_sub(timestamp_ns);
        Some(urxe_stack::sys::clock::wall_ns().saturating_sub(age_ns))
    }

    /// Returns the attributes of the port (`ibv_query_port`, `ibv_query_gid_table`).
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

    /// Returns the link of the device as it was when the device was opened. Returns `None` in a
    /// simulated network.
    #[must_use]
    pub fn link(&self) -> Option<&ResolvedLink> {
        self.inner.description.link.as_ref()
    }

    /// Returns the GID at `index` of the port's table (`ibv_query_gid`). The GID of a removed
    /// address is zero.
    #[must_use]
    pub fn gid(&self, index: u8) -> Option<Gid> {
        self.core().gids().get(usize::from(index)).copied()
    }

    /// Returns the index of the first GID that peers can reach. IPv4 GIDs are preferred.
    #[must_use]
    pub fn default_gid_index(&self) -> u8 {
        let gids = self.inner.backend.gids();
        let v4 = gids.iter().position(|entry| entry.assigned && entry.gid.to_ipv4().is_some());
        let index = v4.or_else(|| gids.iter().position(|entry| entry.assigned)).unwrap_or(0);
        u8::try_from(index).unwrap_or(0)
    }

    /// Returns all counters with their current values: the fifteen counters of `rdma_rxe`, then one
    /// counter for each reason to drop a packet, and others.
    pub fn counters(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        self.core().counters().snapshot()
    }

    /// Returns the current value of a counter.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.core().counters().value(counter)
    }

    pub(crate) fn core(&self) -> &urxe_stack::device::Device {
        self.inner.backend.core()
    }

    /// Destroys an object whose last handle is dropped. `kept` is the reason why this cannot fail.
    /// In a forked child, this function does nothing.
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

    /// Calls the wakers that became ready. The caller must hold no lock, because a waker may do
    /// anything.
    pub(crate) fn run_ready_wakers(&self) {
        self.inner.ready.run();
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns a value that distinguishes this device from the other open devices of the process.
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

/// The attributes of a device (`struct ibv_device_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAttr {
    /// The globally unique identifier of the device.
    pub node_guid: Guid,
    /// The limits of the device.
    pub limits: Limits,
    /// The number of ports. Port numbers start at 1.
    pub port_count: u8,
}

/// The attributes of a port (`struct ibv_port_attr`), with its GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAttr {
    /// Whether the interface is up and has a carrier. [`Device::events`] report changes.
    pub is_active: bool,
    /// The largest path MTU of all ports.
    pub max_mtu: PathMtu,
    /// The largest path MTU that fits the link.
    pub active_mtu: PathMtu,
    /// The length of the longest message, in bytes.
    pub max_msg_sz: u64,
    /// The GID table. The entry of a removed address is the zero GID. [`Device::events`] report
    /// changes.
    pub gids: Vec<GidEntry>,
}
