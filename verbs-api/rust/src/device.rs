//! Devices: the configured devices, opening a device, its attributes and counters.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use urxe_stack::device::Limits;
use urxe_stack::device::counters::Counter;
use urxe_stack::driver::OpenEngineError;
use urxe_stack::files::OutputFileError;
use urxe_stack::link::{
    self, GidEntry, Guid, LinkError, LinkSpec, ParseError, ResolvedLink, Source,
};
use urxe_stack::port::udp::PathError;
use urxe_stack::qp::attr::PathMtu;
use urxe_stack::time::Time;
use urxe_wire::Gid;

use crate::backend::Backend;
use crate::cm::Service;
use crate::domain::DomainRegistry;
use crate::waker_list::{ReadyWakers, WakerList};

mod builder;
mod identity;

pub use builder::DeviceBuilder;
pub(crate) use identity::{DeviceIdentity, NamedDevices};

urxe_stack::errors! {
    /// The reason why a device was not opened.
    #[derive(Debug, thiserror::Error)]
    pub enum OpenError {
        /// The text is neither a name nor `name=source`.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

    #[cfg(feature = "cm")]
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

pub(crate) struct Inner {
    pub backend: Backend,
    pub description: DeviceDescription,
    /// Wakers to call when the current thread holds no lock.
    pub ready: Arc<ReadyWakers>,
    /// The wakers of threads and tasks that wait for asynchronous events.
    pub events: Arc<WakerList>,
    /// The protection domains that can be imported.
    pub domains: DomainRegistry,
    #[cfg_attr(not(feature = "cm"), expect(dead_code, reason = "only `cm` asks for it"))]
    pub service: Arc<Service>,
}

impl Inner {
    /// Returns the name and the link of the device, for errors: `rxe0=127.0.0.1`.
    fn label(&self) -> String {
        match &self.description.link {
            Some(link) => link.spec.to_string(),
            None => {
                let gids = self.backend.core().gids();
                let used = gids.into_iter().find(|gid| !gid.is_zero());
                let address = used.map(|gid| IpAddr::from(gid.0).to_canonical());
                let address = address.map(|address| format!("={address}")).unwrap_or_default();
                format!("{}{address}", self.description.name)
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        DeviceIdentity::of(self).forget();
    }
}

impl Device {
    /// Returns the device with this state, which is open from now on.
    pub(crate) fn new(inner: Inner) -> Self {
        let inner = Arc::new(inner);
        DeviceIdentity::of(&inner).record(&inner.label());
        Self { inner }
    }

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

    /// Returns the last error of packets to `peer` within this time, as an ICMP message or this
    /// system reported it. The device keeps the errors of 16 peers. Any host can forge an ICMP
    /// message, so the error may explain why a peer does not answer, and proves nothing.
    #[must_use]
    pub fn path_error(&self, peer: IpAddr, within: Duration) -> Option<PathError> {
        let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        let since_ns = self.inner.backend.now().as_ns().saturating_sub(within_ns);
        self.inner.backend.path_error(peer, Time::from_ns(since_ns))
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
        DeviceIdentity::of(&self.inner)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name())
            .field("gids", &self.core().gids())
            .finish_non_exhaustive()
    }
}

/// The attributes of a device (`struct ibv_device_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceAttr {
    /// The globally unique identifier of the device.
    pub node_guid: Guid,
    /// The limits of the device.
    pub limits: Limits,
    /// The number of ports. Port numbers start at 1.
    pub port_count: u8,
}

/// The attributes of a port (`struct ibv_port_attr`), with its GID table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
