//! A simulated network for tests: devices of the same types, in virtual time, with faults, the same
//! on every run.
//!
//! A [`Fabric`] makes [`Device`]s. What is made from them (domains, regions, queues, queue pairs)
//! is what is made from devices over UDP, so the code under test is the code that runs in earnest.
//! Packets go through links that lose, repeat, reorder, damage and delay them ([`LinkFaults`]), and
//! everything random follows from one seed.
//!
//! # Who moves the time
//! Virtual time passes only when somebody asks for something to happen, and then jumps from event
//! to event, however long that would be.
//! * In a fabric from [`Fabric::new`], whoever would wait:
//!   [`CompletionQueue::poll`](crate::CompletionQueue::poll) on an empty queue takes one step (as
//!   over UDP it receives), and [`wait`](crate::CompletionQueue::wait),
//!   [`next`](crate::CompletionQueue::next) and their like for asynchronous events take as many as
//!   they need. Their timeouts are virtual. A program of one thread, or of tasks in one thread,
//!   then runs unchanged and the same way every time. A wait that nothing can ever end is reported
//!   ([`WaitError::Quiet`](crate::WaitError::Quiet)) rather than slept through.
//! * In a fabric from [`Fabric::manual`], only the `run_` functions of the fabric: polls just look.
//!   Waiting sleeps in real time until another thread runs the fabric.
//!
//! A step does not happen inside posting: what is posted leaves with the next step.
//!
//! ```
//! use urxe::sim::{Probability, Fabric, LinkFaults};
//! use urxe::{Access, ConnectOptions, SendRequest, WcStatus};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::new(42);
//! fabric.set_faults(LinkFaults { loss: Probability::from_percent(5), ..LinkFaults::default() });
//! let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
//! let (pd_a, pd_b) = (a.alloc_pd()?, b.alloc_pd()?);
//! let (cq_a, cq_b) = (a.create_cq(16)?, b.create_cq(16)?);
//! let (qp_a, qp_b) = (pd_a.queue_pair(&cq_a).create()?, pd_b.queue_pair(&cq_b).create()?);
//! qp_a.connect(&qp_b.endpoint(), &ConnectOptions::default())?;
//! qp_b.connect(&qp_a.endpoint(), &ConnectOptions::default())?;
//!
//! let from = pd_a.allocate(1 << 20, Access::empty())?;
//! let to = pd_b.allocate(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! from.write(0, &[7; 1 << 20])?;
//! qp_a.post_send(&SendRequest::write(from.slice(..)?, to.remote()).signaled())?;
//! assert_eq!(cq_a.wait_one(None)?.status, WcStatus::Success);
//! assert_eq!(to.read_vec(0, 1 << 20)?, [7; 1 << 20]);
//! assert!(fabric.counters().lost > 0);
//! # Ok(())
//! # }
//! ```

mod node;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use urxe_stack::cq::Wake;
use urxe_stack::device::{Device as Core, DeviceConfig};
use urxe_stack::driver::EventWake;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::link::Guid;
use urxe_stack::port::sim::{DeviceHost, Fabric as CoreFabric, SimNetwork};
use urxe_wire::Gid;

pub use urxe_stack::port::sim::{
    AddNodeError, LinkFaults, NodeConfig, NodeId, PausedPackets, SimCounters, Stalled,
};
pub use urxe_stack::rng::{Probability, Rng};
pub use urxe_stack::time::Time;

pub(crate) use self::node::{Advance, SimNode};

use self::node::Shared;
use crate::backend::Backend;
use crate::device::{Device, DeviceDescription, Inner};
use crate::domain::DomainRegistry;
use crate::waker_list::{ReadyWakers, WakerList, lock};
use crate::{IcrcPolicy, Limits, PathMtu};

use urxe_stack::port::sim::{Pause, PauseScope};

/// Where a device without an address would be, if there could be one.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// Tells the generators of devices from those of links and nodes.
const DEVICE_STREAM: u64 = 0xdef1 << 48;

/// Why the fabric has no such device.
#[derive(Debug, thiserror::Error)]
pub enum AddDeviceError {
    /// Its addresses.
    #[error(transparent)]
    Address(#[from] AddNodeError),
    /// No descriptor for its asynchronous events is left.
    #[error("cannot make an event descriptor: {0}; raise the limit of open files (ulimit -n)")]
    EventFd(rustix::io::Errno),
}

/// The device is over UDP, or of another fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device is not of this simulated network")]
pub struct NotInFabric;

/// What a simulated device can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The largest path MTU that the device offers. Links carry IP packets up to their own
    /// [`mtu`](LinkFaults::mtu), which has to leave room for 88 bytes of headers. By default 4096.
    pub active_mtu: PathMtu,
    /// How received ICRCs are checked.
    pub icrc_policy: IcrcPolicy,
    /// The device's limits.
    pub limits: Limits,
    /// How the device's socket behaves.
    pub node: NodeConfig,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            active_mtu: PathMtu::Mtu4096,
            icrc_policy: IcrcPolicy::default(),
            limits: Limits::default(),
            node: NodeConfig::default(),
        }
    }
}

/// A simulated network; see the [module](self). Clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct Fabric {
    shared: Arc<Shared>,
    seed: u64,
}

impl Fabric {
    /// A network without devices. Everything random in it follows from `seed`. Whoever waits moves
    /// the time.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(seed, false)
    }

    /// The same, whose time is moved by its `run_` functions only.
    #[must_use]
    pub fn manual(seed: u64) -> Self {
        Self::with(seed, true)
    }

    fn with(seed: u64, manual: bool) -> Self {
        let fabric = CoreFabric::new(seed);
        let network = fabric.network().clone();
        let ready = Arc::new(ReadyWakers::default());
        Self {
            shared: Arc::new(Shared { fabric: Mutex::new(fabric), network, ready, manual }),
            seed,
        }
    }

    /// Adds a device with one address.
    ///
    /// # Errors
    /// [`AddDeviceError`]: another device has the address.
    pub fn device(&self, address: impl Into<IpAddr>) -> Result<Device, AddDeviceError> {
        self.device_with(&[address.into()], DeviceOptions::default())
    }

    /// Adds a device with these addresses, in the order of its GID table.
    ///
    /// # Errors
    /// [`AddDeviceError`]: there is no address, or another device has one of them.
    pub fn device_with(
        &self,
        addresses: &[IpAddr],
        options: DeviceOptions,
    ) -> Result<Device, AddDeviceError> {
        let ready = Arc::clone(&self.shared.ready);
        let events = Arc::new(WakerList::new(Arc::clone(&ready)));
        let descriptor = Arc::new(EventFd::new().map_err(AddDeviceError::EventFd)?);
        let hook = Some(Arc::clone(&events) as Arc<dyn Wake>);
        let gids: Vec<Gid> = addresses.iter().map(|address| Gid::from_ip(*address)).collect();
        let mut fabric = lock(&self.shared.fabric);
        let index = fabric.hosts().len();
        let core = Arc::new(Core::new(DeviceConfig {
            active_mtu: options.active_mtu,
            icrc_policy: options.icrc_policy,
            limits: options.limits,
            groups: Box::new(
                self.network().groups_at(addresses.first().copied().unwrap_or(NOWHERE)),
            ),
            event_wake: Box::new(EventWake { descriptor: Arc::clone(&descriptor), hook }),
            ..DeviceConfig::new(
                gids,
                Rng::stream(self.seed, DEVICE_STREAM | index as u64).next_u64(),
            )
        }));
        let id = fabric.add(DeviceHost::new(Arc::clone(&core)), addresses)?;
        drop(fabric);
        self.network().set_node_config(id, options.node);
        let description = DeviceDescription {
            name: format!("sim{index}"),
            guid: addresses.first().copied().map(Guid::from_address).unwrap_or_default(),
            link: None,
        };
        let backend =
            Backend::Simulated(SimNode { core, id, shared: Arc::clone(&self.shared), descriptor });
        let domains = DomainRegistry::default();
        Ok(Device {
            inner: Arc::new(Inner { backend, description, ready, events, domains, service: None }),
        })
    }

    /// Sets how all links behave that have no faults of their own. Packets on the way are not
    /// affected.
    pub fn set_faults(&self, faults: LinkFaults) {
        self.network().set_default_faults(faults);
    }

    /// Sets how the one direction behaves that leads from `from` to `to`.
    ///
    /// # Errors
    /// [`NotInFabric`].
    pub fn set_faults_between(
        &self,
        from: &Device,
        to: &Device,
        faults: LinkFaults,
    ) -> Result<(), NotInFabric> {
        self.network().set_faults(self.node_of(from)?, self.node_of(to)?, faults);
        Ok(())
    }

    /// Sets how a device's socket behaves.
    ///
    /// # Errors
    /// [`NotInFabric`].
    pub fn set_node_config(&self, device: &Device, config: NodeConfig) -> Result<(), NotInFabric> {
        self.network().set_node_config(self.node_of(device)?, config);
        Ok(())
    }

    /// Stops a device from now on for `duration`. [`PausedPackets::Hold`]: like a process that is
    /// stopped.
    /// [`PausedPackets::Drop`]: like a cable that is pulled.
    ///
    /// # Errors
    /// [`NotInFabric`].
    pub fn pause(
        &self,
        device: &Device,
        packets: PausedPackets,
        duration: Duration,
    ) -> Result<(), NotInFabric> {
        let (from, scope) = (self.now(), PauseScope::Node(self.node_of(device)?));
        self.network().pause(Pause { scope, packets, from, until: from + duration });
        Ok(())
    }

    /// Takes a device's port down or up, as its interface would: its events tell it, and
    /// [`Device::query_port`] shows it. Packets go on: use [`pause`](Self::pause) to stop them.
    ///
    /// # Errors
    /// [`NotInFabric`].
    pub fn set_port_active(&self, device: &Device, active: bool) -> Result<(), NotInFabric> {
        self.node_of(device)?;
        device.core().set_port_active(active);
        self.shared.ready.run();
        Ok(())
    }

    /// Gives a device's port another GID table, as addresses of its interface that come and go
    /// would: its events tell of the change and that what was made known under former addresses is
    /// to be made known anew, and [`Device::query_port`] shows the table. Packets go to the
    /// addresses that the device was made with.
    ///
    /// ```
    /// use urxe::{AsyncEvent, Gid, PortEventType, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fabric = Fabric::new(1);
    /// let device = fabric.device([10, 0, 0, 1])?;
    /// let gids = [[10, 0, 0, 1], [10, 0, 0, 9]].map(|address| Gid::from_ip(address.into()));
    /// fabric.set_gids(&device, &gids)?;
    /// for event in [PortEventType::GidChange, PortEventType::ClientReregister] {
    ///     assert_eq!(device.events().wait(None)?, AsyncEvent::Port(event, 1));
    /// }
    /// assert_eq!(device.gid(1), Some(gids[1]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotInFabric`].
    pub fn set_gids(&self, device: &Device, gids: &[Gid]) -> Result<(), NotInFabric> {
        self.node_of(device)?;
        device.core().set_gids(gids.to_vec());
        self.shared.ready.run();
        Ok(())
    }

    /// Cuts all links between the devices of `left` and those of `right`, both ways, from now on
    /// for `duration`.
    ///
    /// # Errors
    /// [`NotInFabric`]; then nothing is cut.
    pub fn partition(
        &self,
        left: &[&Device],
        right: &[&Device],
        packets: PausedPackets,
        duration: Duration,
    ) -> Result<(), NotInFabric> {
        let ids = |side: &[&Device]| {
            side.iter().map(|device| self.node_of(device)).collect::<Result<Vec<_>, _>>()
        };
        let from = self.now();
        self.network().partition(&ids(left)?, &ids(right)?, packets, from, from + duration);
        Ok(())
    }

    /// Ends all faults, pauses and cuts. Delays, rates, MTUs and buffers stay.
    pub fn heal(&self) {
        self.network().heal();
    }

    /// The present virtual time, which begins at 0.
    #[must_use]
    pub fn now(&self) -> Time {
        self.network().now()
    }

    /// Lets happen what happens in the next `duration`; the time is that much later afterwards.
    ///
    /// # Errors
    /// [`Stalled`]: the time stands still, which is a mistake in this library.
    pub fn run_for(&self, duration: Duration) -> Result<(), Stalled> {
        self.run_until(self.now() + duration)
    }

    /// Lets happen what happens up to and including `to`; the time is `to` afterwards, unless it is
    /// later already.
    ///
    /// # Errors
    /// [`Stalled`].
    pub fn run_until(&self, to: Time) -> Result<(), Stalled> {
        while self.shared.step(to)? {}
        self.network().advance(to);
        Ok(())
    }

    /// Runs while `go_on` says so, asked before each step, and something happens in the next
    /// `limit`. Whether `go_on` ended it. `go_on` may use devices and everything made from them.
    ///
    /// # Errors
    /// [`Stalled`].
    pub fn run_while(
        &self,
        limit: Duration,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<bool, Stalled> {
        let limit = self.now() + limit;
        loop {
            if !go_on() {
                return Ok(true);
            }
            if !self.shared.step(limit)? {
                return Ok(!go_on());
            }
        }
    }

    /// What became of the packets up to now.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.network().counters()
    }

    /// A hash of all that happened up to now, times and bytes included. Two runs of one program
    /// with one seed have the same.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.network().trace_hash()
    }

    fn network(&self) -> &SimNetwork {
        &self.shared.network
    }

    fn node_of(&self, device: &Device) -> Result<NodeId, NotInFabric> {
        match &device.inner.backend {
            Backend::Simulated(node) if Arc::ptr_eq(&node.shared, &self.shared) => Ok(node.id),
            _ => Err(NotInFabric),
        }
    }
}
