//! The options of a device over UDP, and opening it.

use std::net::IpAddr;
#[cfg(feature = "capture")]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use urxe_stack::device::{IcrcPolicy, Limits};
use urxe_stack::driver::{Engine, EngineConfig, Hooks};
use urxe_stack::files::OutputFileError;
use urxe_stack::link::{self, LinkName, LinkSpec, Source};
use urxe_stack::memory::CopyMode;
#[cfg(feature = "sim")]
use urxe_stack::port::faults::FaultSpec;
#[cfg(feature = "capture")]
use urxe_stack::port::tap::Tap;
#[cfg(feature = "sim")]
use urxe_stack::rng::Probability;

use super::{Device, DeviceDescription, Inner, OpenError};
use crate::backend::Backend;
use crate::cm::Service;
use crate::domain::DomainRegistry;
use crate::waker_list::WakerList;

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
    /// real sockets (feature `sim`). The default is 0.
    ///
    /// [`DropSimulated`](crate::Counter::DropSimulated) counts the lost packets. The
    /// [`seed`](Self::seed) determines which packets are lost. See [`faults`](Self::faults) for
    /// other faults and [`sim`](crate::sim) for whole simulated networks.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn loss(mut self, chance: Probability) -> Self {
        self.config.faults.link.loss = chance;
        self
    }

    /// Sets the faults of received packets, to simulate a bad network over real sockets (feature
    /// `sim`).
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
    #[cfg(feature = "sim")]
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

    /// Sets whether send queues are strict, as those of NICs. The default is `false`.
    ///
    /// An entry of a send queue is then in use until the program polls a completion: its own, or
    /// that of a later request. Failed requests complete as well. By default, as in `rdma_rxe`, an
    /// entry is free as soon as its request is acknowledged. Use strict queues to test whether a
    /// program [signals](crate::SendRequest::signaled) and polls often enough for a NIC.
    ///
    /// ```
    /// use urxe::{Access, Data, Device, PostError, SendRequest};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Device::builder().strict_queues(true).open_address([127, 49, 10, 24])?;
    /// let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
    /// let qp = pd.queue_pair(&cq).max_send_wr(2).create()?;
    /// # qp.connect(&qp.endpoint(), &Default::default())?;
    /// # let region = pd.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let write = SendRequest::write(Data::inline(b"text"), region.remote());
    /// qp.post_send(&write)?;
    /// qp.post_send(&write.clone().signaled())?;
    /// # while cq.is_empty() { std::thread::yield_now() }
    /// // Both requests are acknowledged, but the completion is not polled yet.
    /// assert_eq!(qp.post_send(&write), Err(PostError::NotPolled { capacity: 2 }));
    /// let _second = cq.wait_one(None)?;
    /// qp.post_send(&write)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn strict_queues(mut self, strict: bool) -> Self {
        self.config.strict_queues = strict;
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

    /// Sets whether the peers of connections get a message if this process is killed, calls `_exit`
    /// or executes another program. The default is `true`. A second process without descriptors,
    /// the watcher, then starts with the first connection. It shares the memory of this process and
    /// ends with it, up to half a second later. There is none under valgrind and sanitizers.
    /// Connections need the feature `cm`.
    #[cfg(feature = "cm")]
    #[must_use]
    pub fn watcher(mut self, watcher: bool) -> Self {
        self.config.watcher = watcher;
        self
    }

    /// Sets the time after which an accepted connection checks whether its peer still has it, and
    /// again after each such time. By default there are no checks.
    ///
    /// A program that only waits for messages then learns that the host of its peer disappeared. If
    /// the peer gives no reply for five seconds more, the connection ends as if the peer had
    /// disconnected it. The check repeats the REP, which any connection manager answers.
    /// Connections need the feature `cm`.
    #[cfg(feature = "cm")]
    #[must_use]
    pub fn keep_alive(mut self, period: Duration) -> Self {
        self.config.keep_alive = Some(period.max(Duration::from_secs(1)));
        self
    }

    /// Sets whether the sockets take ICMP errors of sent packets, such as "port unreachable". The
    /// default is `true`. They appear in the log, in errors of `cm` and in
    /// [`Device::path_error`]. They end nothing, because any host can forge an ICMP message.
    #[must_use]
    pub fn icmp_errors(mut self, take: bool) -> Self {
        self.config.icmp_errors = take;
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

    /// Sets whether packets to other processes of this user on this host go through memory that
    /// both processes share, instead of sockets. Both devices must have this option. The default is
    /// `true`. A device with faults uses sockets. Captures and counters are the same. Tools such as
    /// tcpdump, netem and firewalls see these packets only if the option is off.
    #[must_use]
    pub fn shared_memory(mut self, on: bool) -> Self {
        self.config.shared_memory = on;
        self
    }

    /// Sets the most time that the background thread looks for the next request instead of
    /// sleeping, in percent of one processor. The default is 20; 0 turns it off, and values above
    /// 100 mean 100.
    ///
    /// A process whose program neither polls nor waits answers READs, WRITEs and atomics by that
    /// thread. While requests arrive less than 100 µs after each other, the thread looks for the
    /// next one, because a sleep and a wake-up take longer. It sleeps as before if other threads
    /// want its processor, or if the process may use one processor only.
    #[must_use]
    pub fn spin_share(mut self, percent: u8) -> Self {
        self.config.spin_share = percent;
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

    /// Opens the configured device with this name; see [`devices`](super::devices).
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
        self.open_link(&LinkSpec::new(name, Source::Address(address.into())))
    }

    /// Opens a device that is not in the list of configured devices, with all addresses of a
    /// network interface.
    ///
    /// # Errors
    /// Fails with [`OpenError`].
    pub fn open_interface(self, interface: &str) -> Result<Device, OpenError> {
        let name = LinkSpec::built_in().name;
        self.open_link(&LinkSpec::new(name, Source::Interface(interface.to_owned())))
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

    /// Opens the capture, which the devices of all later clones share.
    pub(crate) fn open_capture(&mut self) -> Result<(), OutputFileError> {
        #[cfg(feature = "capture")]
        if let Some(path) = self.capture.take() {
            let tap = Tap::create(path)?;
            let tap = if self.capture_headers { tap.headers_only() } else { tap };
            self.config.tap = Some(Arc::new(tap));
        }
        Ok(())
    }

    /// Opens the device of a link, with `service` as its connection service.
    pub(crate) fn open_within(
        mut self,
        spec: &LinkSpec,
        service: Arc<Service>,
    ) -> Result<Device, OpenError> {
        self.open_capture()?;
        let ready = Arc::clone(service.ready());
        let events = Arc::new(WakerList::new(Arc::clone(&ready)));
        service.configure(&mut self.config);
        self.config.hooks =
            Hooks { events: Some(Arc::clone(&events) as _), after_progress: Some(ready.clone()) };
        let engine = Engine::open(spec, self.config)?;
        let link = engine.link();
        let description = DeviceDescription {
            name: link.spec.name.to_string(),
            guid: link.node_guid,
            link: Some(link.clone()),
        };
        let device = Device::new(Inner {
            backend: Backend::Udp(engine),
            description,
            ready,
            events,
            domains: DomainRegistry::default(),
            service: Arc::clone(&service),
        });
        service.register_device(&device);
        Ok(device)
    }
}
