//! A simulated network for tests, in virtual time, with faults, and with the same result on every
//! run.
//!
//! A [`Fabric`] creates [`Device`]s. Their protection domains, regions, queues and queue pairs are
//! those of devices over UDP, so a test runs the same code as production. Links lose, duplicate,
//! reorder, corrupt and delay packets ([`LinkFaults`]). All random decisions follow from one seed.
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
//! let _written = cq_a.wait_one(None)?;
//! assert_eq!(to.read_vec(0, 1 << 20)?, [7; 1 << 20]);
//! assert!(fabric.counters().lost > 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Virtual time
//! Virtual time advances in steps, from one event to the next, without delay in real time. A posted
//! request is sent in the next step.
//!
//! * In a fabric of [`Fabric::new`], calls that wait advance the time.
//!   [`CompletionQueue::poll`](crate::CompletionQueue::poll) on an empty queue performs one step.
//!   [`wait`](crate::CompletionQueue::wait), [`next`](crate::CompletionQueue::next) and the waits
//!   for asynchronous events perform as many steps as they need. Time limits are virtual. A program
//!   of one thread, or of tasks in one thread, runs unchanged and always in the same order. A wait
//!   that cannot end fails with [`WaitError::Quiet`](crate::WaitError::Quiet).
//! * In a fabric of [`Fabric::manual`], only the `run_` methods of the fabric advance the time. A
//!   wait blocks in real time until another thread runs the fabric.
//! * A fabric of [`Fabric::with_clock`] follows the clock of
//!   [another simulation](#in-another-simulation).
//!
//! ```
//! use std::time::Duration;
//! use urxe::sim::{
//!     DeviceOptions, Fabric, NodeConfig, PausedPackets, Probability, SimCounters, Stalled, Time,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::manual(7);
//! // A device whose socket reads 20 µs after a packet arrives, and merges packets.
//! let merge = Probability::from_percent(50);
//! let node = NodeConfig { read_delay_ns: 20_000, merge, ..NodeConfig::default() };
//! let options = DeviceOptions::new().node(node);
//! let device = fabric.device_with(&[[10, 0, 0, 1].into()], options)?;
//! // A cable that is unplugged for a second.
//! fabric.pause(&device, PausedPackets::Drop, Duration::from_secs(1))?;
//! let run: Result<(), Stalled> = fabric.run_for(Duration::from_secs(2));
//! run?;
//! assert_eq!(fabric.now(), Time::ZERO + Duration::from_secs(2));
//! let counters: SimCounters = fabric.counters();
//! assert_eq!(counters.sent, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Connections
//! [`cm`] connects devices of a fabric by address and port. Each device is a host of its
//! own, with its own ports. Connection messages are packets of the network, so faults apply to
//! them, and all timeouts of connections are virtual:
//!
//! ```
//! use urxe::cm::{self, ConnectError, Listener, Options, RejReason};
//! use urxe::sim::{Fabric, PausedPackets};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::new(3);
//! let (server, client) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
//! let listener = Listener::builder().device(&server).bind("10.0.0.1:7471")?;
//! let options = Options::new().device(&client).private_data(b"version 3");
//! // In one thread, the request is sent before the thread waits for it.
//! let connecting = cm::prepare("10.0.0.1:7471", &options)?.start()?;
//! let request = listener.wait(None)?;
//! assert!(request.peer_private_data().starts_with(b"version 3"));
//! let accepted = request.accept()?;
//! let connected = pollster::block_on(connecting)?;
//! assert_eq!(connected.peer_parameters().qpn, accepted.qp().qpn());
//!
//! // No program listens on this port.
//! match cm::prepare("10.0.0.1:9", &options)?.establish().unwrap_err() {
//!     ConnectError::Rejected { reason: RejReason::INVALID_SERVICE_ID, .. } => {}
//!     other => panic!("{other}"),
//! }
//! // The cable of the server is unplugged. All requests take 77 s of virtual time.
//! fabric.pause(&server, PausedPackets::Drop, Duration::from_secs(100))?;
//! let before = fabric.now();
//! let error = cm::prepare("10.0.0.1:7471", &options)?.establish().unwrap_err();
//! assert!(matches!(error, ConnectError::Unreachable { .. }));
//! assert_eq!((fabric.now() - before).as_secs(), 77);
//! # Ok(())
//! # }
//! ```
//!
//! # In another simulation
//! A fabric can be a part of a larger simulation whose executor owns the time, such as tokio's
//! paused time. [`Fabric::with_clock`] takes the clock, and a task of the executor awaits
//! [`Fabric::drive`]. Then `sleep` and `timeout` of the executor and the timers of the fabric have
//! one time:
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::{Instant, sleep_until, timeout};
//! use urxe::cm::{self, Listener, Options};
//! use urxe::sim::Fabric;
//!
//! # type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
//! // A test has the attribute `#[tokio::test(start_paused = true)]` instead.
//! async fn test() -> Result<()> {
//!     let start = Instant::now();
//!     let fabric = Fabric::with_clock(1, move || start.elapsed());
//!     let network = fabric.clone();
//!     tokio::spawn(async move { network.drive(|at| sleep_until(start + at)).await });
//!
//!     let (server, client) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
//!     let listener = Listener::builder().device(&server).bind("10.0.0.1:7471")?;
//!     let options = Options::new().device(&client);
//!     let connecting = cm::prepare("10.0.0.1:7471", &options)?.start()?;
//!     let accepted = listener.next().await?.prepare(&Options::new())?.await?;
//!     let connected = connecting.await?;
//!     // Nobody sends a message, and five seconds pass.
//!     let nothing = timeout(Duration::from_secs(5), connected.recv_cq().next()).await;
//!     assert!(nothing.is_err() && start.elapsed() >= Duration::from_secs(5));
//!     assert_eq!(fabric.now().as_ns() as u128, start.elapsed().as_nanos());
//! #     drop(accepted);
//!     Ok(())
//! }
//!
//! # fn main() -> Result<()> {
//! # let mut runtime = tokio::runtime::Builder::new_current_thread();
//! # runtime.enable_time().start_paused(true).build()?.block_on(test())
//! # }
//! ```
//!
//! * Only tasks may wait. A blocking call would stop the executor, and so the time.
//! * tokio's timers have a resolution of one millisecond, so packets and timers of the network can
//!   be one millisecond late, always by the same time.
//! * `madsim` has the functions of tokio's `time`, so the same code works there, with
//!   `madsim::time` and `madsim::task::spawn` (version 0.2.34).
//! * In `turmoil` (version 0.6.6), each host has a runtime of its own. No task drives the fabric.
//!   The test calls [`run_until`](Fabric::run_until) after each step, so a packet waits for the
//!   next tick:
//!
//!   ```ignore
//!   let mut sim = turmoil::Builder::new().build();
//!   let fabric = Fabric::with_clock(1, || turmoil::sim_elapsed().unwrap_or_default());
//!   let (server, client) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
//!   // `serve` and `call` are functions of the test that return futures.
//!   sim.host("server", move || serve(server.clone()));
//!   sim.client("client", call(client));
//!   while !sim.step()? {
//!       fabric.run_until(Time::ZERO + sim.elapsed())?;
//!   }
//!   ```
//!
//! * Any other loop uses [`Fabric::next_deadline`] and [`Fabric::run_until`].
//!
//! # Replaying a run
//! [`Fabric::trace_hash`] is equal for two runs with the same seed. A random test prints its seed,
//! and the seed replays the failure. [`Rng`] supplies random numbers that depend on a seed only:
//!
//! ```
//! use urxe::sim::{AddDeviceError, AddNodeError, Fabric, NotInFabric, Rng};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (seed, mut rng) = (42, Rng::new(42));
//! let (fabric, again) = (Fabric::new(seed), Fabric::new(seed));
//! let device = fabric.device([10, 0, 0, 1 + rng.below(9) as u8])?;
//! // Two devices cannot have one address, and a device belongs to one fabric.
//! let address = device.gid(0).unwrap().to_ip();
//! let taken = fabric.device(address).unwrap_err();
//! assert!(matches!(taken, AddDeviceError::Address(AddNodeError::AddressTaken(_))));
//! assert_eq!(again.set_port_active(&device, false), Err(NotInFabric));
//! assert_eq!(fabric.trace_hash(), again.trace_hash());
//! # Ok(())
//! # }
//! ```
//!
#![cfg_attr(feature = "cm", doc = "[`cm`]: crate::cm")]
#![cfg_attr(not(feature = "cm"), doc = "[`cm`]: crate#features")]

mod clock;
#[cfg(feature = "cm")]
mod connections;
mod embedding;
#[cfg(not(feature = "cm"))]
mod no_connections;
mod node;

#[cfg(not(feature = "cm"))]
use no_connections as connections;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use urxe_stack::cq::Wake;
use urxe_stack::device::{Device as Core, DeviceConfig};
use urxe_stack::driver::EventWake;
use urxe_stack::driver::event_descriptor::EventDescriptor;
use urxe_stack::errno::OsError;
use urxe_stack::link::Guid;
use urxe_stack::port::sim::{Fabric as CoreFabric, NodeId, SimNetwork};
use urxe_wire::Gid;

pub use urxe_stack::port::sim::{
    AddNodeError, LinkFaults, NodeConfig, PausedPackets, SimCounters, Stalled,
};
pub use urxe_stack::rng::{Probability, Rng};
pub use urxe_stack::time::Time;

pub(crate) use self::node::SimNode;

use self::clock::{Clock, Pace, WorkSignal};
use self::node::Shared;
use crate::backend::Backend;
use crate::device::{Device, DeviceDescription, Inner};
use crate::domain::DomainRegistry;
use crate::waker_list::{ReadyWakers, WakerList, lock};
use crate::{IcrcPolicy, Limits, PathMtu};

use urxe_stack::port::sim::{Pause, PauseScope};

/// The address for group membership of a device without addresses, which cannot be added.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// Separates the random numbers of devices from those of links and nodes.
const DEVICE_STREAM: u64 = 0xdef1 << 48;

/// The reason why a device was not added to the fabric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddDeviceError {
    /// The addresses are invalid.
    #[error(transparent)]
    Address(#[from] AddNodeError),
    /// No descriptor is available for the asynchronous events of the device.
    #[error("cannot create an event descriptor: {0}; raise the limit of open files (ulimit -n)")]
    EventFd(OsError),
}

/// The device is a device over UDP, or belongs to another fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device does not belong to this simulated network")]
pub struct NotInFabric;

/// The options of a simulated device. Later versions may have more, so a program begins with the
/// [default](Self::default), and sets fields by their names or by the methods:
///
/// ```
/// use urxe::sim::{DeviceOptions, Fabric};
/// use urxe::{Limits, PathMtu};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = DeviceOptions::new()
///     .active_mtu(PathMtu::Mtu1024)
///     .limits(Limits { max_qp: 10, ..Limits::default() });
/// let device = Fabric::new(1).device_with(&[[10, 0, 0, 1].into()], options)?;
/// assert_eq!(device.query().limits.max_qp, 10);
/// assert_eq!(device.query_port().active_mtu, PathMtu::Mtu1024);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// The largest path MTU that the device offers. The [`mtu`](LinkFaults::mtu) of a link must
    /// leave 88 bytes for headers. The default is 4096.
    pub active_mtu: PathMtu,
    /// How received ICRCs are checked.
    pub icrc_policy: IcrcPolicy,
    /// The limits of the device.
    pub limits: Limits,
    /// The behaviour of the device's receiving socket.
    pub node: NodeConfig,
    /// The time after which an accepted connection checks its peer, as
    /// [`DeviceBuilder::keep_alive`](crate::DeviceBuilder::keep_alive). The default is `None`. With
    /// checks, a fabric with a connection is never quiet.
    #[cfg(feature = "cm")]
    pub keep_alive: Option<Duration>,
}

impl DeviceOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`active_mtu`](Self#structfield.active_mtu).
    #[must_use]
    pub fn active_mtu(mut self, mtu: PathMtu) -> Self {
        self.active_mtu = mtu;
        self
    }

    /// Sets [`icrc_policy`](Self#structfield.icrc_policy).
    #[must_use]
    pub fn icrc_policy(mut self, policy: IcrcPolicy) -> Self {
        self.icrc_policy = policy;
        self
    }

    /// Sets [`limits`](Self#structfield.limits).
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets [`node`](Self#structfield.node).
    #[must_use]
    pub fn node(mut self, node: NodeConfig) -> Self {
        self.node = node;
        self
    }

    /// Sets [`keep_alive`](Self#structfield.keep_alive).
    #[cfg(feature = "cm")]
    #[must_use]
    pub fn keep_alive(mut self, period: Duration) -> Self {
        self.keep_alive = Some(period);
        self
    }
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            active_mtu: PathMtu::Mtu4096,
            icrc_policy: IcrcPolicy::default(),
            limits: Limits::default(),
            node: NodeConfig::default(),
            #[cfg(feature = "cm")]
            keep_alive: None,
        }
    }
}

/// A simulated network; see the [module](self). Clones are handles of the same network.
#[derive(Clone)]
pub struct Fabric {
    shared: Arc<Shared>,
    seed: u64,
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fabric = f.debug_struct("Fabric");
        fabric.field("seed", &self.seed).field("now", &self.shared.network.now());
        fabric.finish_non_exhaustive()
    }
}

impl Fabric {
    /// Returns a network without devices, whose time advances when a call waits. All random
    /// decisions follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(seed, Pace::Waits)
    }

    /// Returns a network without devices, whose time only its `run_` methods advance. A program
    /// whose loop owns the time asks [`next_deadline`](Self::next_deadline) for the next event.
    #[must_use]
    pub fn manual(seed: u64) -> Self {
        Self::with(seed, Pace::Program)
    }

    fn with(seed: u64, pace: Pace) -> Self {
        let fabric = CoreFabric::new(seed);
        let network = fabric.network().clone();
        let ready = Arc::new(ReadyWakers::default());
        let work = Arc::new(WorkSignal::new(Arc::clone(&ready)));
        let clock = Clock::new(network.clone(), pace);
        let fabric = Mutex::new(fabric);
        let quiet = Arc::new(WakerList::new(Arc::clone(&ready)));
        Self { shared: Arc::new(Shared { fabric, network, ready, clock, work, quiet }), seed }
    }

    /// Adds a device with one address.
    ///
    /// # Errors
    /// Fails with [`AddDeviceError`] if another device has the address.
    pub fn device(&self, address: impl Into<IpAddr>) -> Result<Device, AddDeviceError> {
        self.device_with(&[address.into()], DeviceOptions::default())
    }

    /// Adds a device with these addresses. The GID table has the same order.
    ///
    /// # Errors
    /// Fails with [`AddDeviceError`] if there is no address, or if another device has one of them.
    pub fn device_with(
        &self,
        addresses: &[IpAddr],
        options: DeviceOptions,
    ) -> Result<Device, AddDeviceError> {
        let ready = Arc::clone(&self.shared.ready);
        let events = Arc::new(WakerList::new(Arc::clone(&ready)));
        let descriptor = Arc::new(
            EventDescriptor::new().map_err(|errno| AddDeviceError::EventFd(OsError::of(errno)))?,
        );
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
            timer_wake: self.shared.work.clone(),
            event_wake: Box::new(EventWake { descriptor: Arc::downgrade(&descriptor), hook }),
            ..DeviceConfig::new(
                gids,
                Rng::stream(self.seed, DEVICE_STREAM | index as u64).next_u64(),
            )
        }));
        let guid = addresses.first().copied().map(Guid::from_address).unwrap_or_default();
        let of = (self.seed, index);
        let (host, detach, service) =
            connections::host(&core, of, (addresses, guid), &options, &self.shared);
        let id = fabric.add(host, addresses)?;
        let port = fabric.port(id).cloned();
        drop(fabric);
        self.network().set_node_config(id, options.node);
        let description = DeviceDescription { name: format!("sim{index}"), guid, link: None };
        let shared = Arc::clone(&self.shared);
        let node = SimNode { core, id, shared, port, descriptor, detach };
        let inner = Inner {
            backend: Backend::Simulated(node),
            description,
            ready,
            events,
            domains: DomainRegistry::default(),
            service: Arc::clone(&service),
        };
        let device = Device::new(inner);
        service.register_device(&device);
        Ok(device)
    }

    /// Sets the behaviour of all links without settings of their own. Packets in flight are not
    /// affected.
    pub fn set_faults(&self, faults: LinkFaults) {
        self.network().set_default_faults(faults);
        self.note_change();
    }

    /// Sets the behaviour of the link from `from` to `to`, in this direction only.
    ///
    /// # Errors
    /// Fails with [`NotInFabric`].
    pub fn set_faults_between(
        &self,
        from: &Device,
        to: &Device,
        faults: LinkFaults,
    ) -> Result<(), NotInFabric> {
        self.network().set_faults(self.node_of(from)?, self.node_of(to)?, faults);
        self.note_change();
        Ok(())
    }

    /// Sets the behaviour of a device's receiving socket.
    ///
    /// # Errors
    /// Fails with [`NotInFabric`].
    pub fn set_node_config(&self, device: &Device, config: NodeConfig) -> Result<(), NotInFabric> {
        self.network().set_node_config(self.node_of(device)?, config);
        self.note_change();
        Ok(())
    }

    /// Stops a device for `duration`. [`PausedPackets::Hold`] models a stopped process,
    /// [`PausedPackets::Drop`] an unplugged cable.
    ///
    /// # Errors
    /// Fails with [`NotInFabric`].
    pub fn pause(
        &self,
        device: &Device,
        packets: PausedPackets,
        duration: Duration,
    ) -> Result<(), NotInFabric> {
        let (from, scope) = (self.now(), PauseScope::Node(self.node_of(device)?));
        self.network().pause(Pause { scope, packets, from, until: from + duration });
        self.note_change();
        Ok(())
    }

    /// Sets the state of a device's port, as an interface does that goes down or up. The device
    /// reports an event, and [`Device::query_port`] returns the state. Packets are not affected;
    /// see [`pause`](Self::pause).
    ///
    /// # Errors
    /// Fails with [`NotInFabric`].
    pub fn set_port_active(&self, device: &Device, active: bool) -> Result<(), NotInFabric> {
        self.node_of(device)?;
        device.core().set_port_active(active);
        self.shared.ready.run();
        Ok(())
    }

    /// Sets the GID table of a device's port, as an interface does whose addresses change. The
    /// device reports the change and asks clients to register again, and [`Device::query_port`]
    /// returns the table. Packets still use the addresses that the device was created with.
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
    /// Fails with [`NotInFabric`].
    pub fn set_gids(&self, device: &Device, gids: &[Gid]) -> Result<(), NotInFabric> {
        self.node_of(device)?;
        device.core().set_gids(gids.to_vec());
        self.shared.ready.run();
        Ok(())
    }

    /// Cuts all links between the devices of `left` and `right`, in both directions, for
    /// `duration`.
    ///
    /// # Errors
    /// Fails with [`NotInFabric`]. No link is cut then.
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
        self.note_change();
        Ok(())
    }

    /// Ends all faults, pauses and cuts. Delays, rates, MTUs and buffers stay.
    pub fn heal(&self) {
        self.network().heal();
        self.note_change();
    }

    /// Returns the virtual time, which starts at 0.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Runs for `duration`. The time advances by `duration`.
    ///
    /// # Errors
    /// Fails with [`Stalled`] if the time does not advance, which is a bug of this library.
    pub fn run_for(&self, duration: Duration) -> Result<(), Stalled> {
        self.run_until(self.now() + duration)
    }

    /// Runs all events up to and including `to`. The time is then `to`, unless it is later already.
    ///
    /// # Errors
    /// Fails with [`Stalled`] if the time does not advance.
    pub fn run_until(&self, to: Time) -> Result<(), Stalled> {
        while self.shared.step(to)? {}
        self.network().advance(to);
        Ok(())
    }

    /// Runs while `go_on` returns true and events occur within `limit`. Returns whether `go_on`
    /// returned false. `go_on` is called before each step and may use devices and their objects.
    ///
    /// # Errors
    /// Fails with [`Stalled`] if the time does not advance.
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

    /// Returns the counters of packets.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.network().counters()
    }

    /// Returns a hash of all events so far, including times and bytes. Two runs of one program with
    /// the same seed have the same hash.
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
