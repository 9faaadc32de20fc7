//! A device: the table of queue pairs and paths, with its memory, counters, events and timers.
//!
//! A [`Device`] is `Sync` and sans-IO. Verbs, packets and the time are calls by `&self`. Packets
//! leave through a [`Transmit`](urxe_types::port::Transmit) that the caller passes. The device is
//! the same over UDP, in the simulated network and under a fuzzer.
//!
//! ```text
//!   verbs ----> queue pair --listed on--> path --listed on--> device
//!                  ^                        |                    |
//!   receive -------+                        +---- run ------> transmit_pending(port)
//!   handle_timeouts
//! ```
//!
//! | file | subject |
//! |---|---|
//! | [`domains`] | protection, parent and thread domains |
//! | `objects` | creating, changing and destroying queue pairs and completion queues |
//! | `post` | posting work requests, and the requests that wait for others |
//! | `srqs` | shared receive queues and XRC domains |
//! | [`ah`] | address handles |
//! | [`multicast`] | multicast groups and the queue pairs attached to them |
//! | `paths` | paths by the addresses of their ends |
//! | `accept` | checks of shape and ICRC that make a packet of bytes |
//! | `receive` | delivery of datagrams to queue pairs; marks and congestion notifications |
//! | `timeouts` | expired timers of queue pairs |
//! | `transmit` | runs of packets from the queue pairs to the port |

mod accept;
pub mod ah;
pub mod domains;
pub mod multicast;
mod objects;
mod paths;
mod post;
mod receive;
pub(crate) mod srqs;
mod timeouts;
mod transmit;

pub use urxe_types::{counters, limits, qpn};

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use urxe_wire::{Gid, PKey, Qpn, ROCE_PORT};

pub use self::accept::IcrcPolicy;
pub use self::domains::{AllocParentDomainError, DeallocPdError, DeallocTdError, TdId};
pub use self::limits::Limits;
pub use self::objects::{CreateCqError, CreateQpError, DestroyQpError, ModifyError, OpenQpError};
pub use self::paths::{AddressError, ValidGids};
pub use self::receive::{ReceiveScratch, Unmatched};

use self::counters::{Counter, Counters};
use self::domains::Domain;
use self::multicast::Groups;
use self::qpn::QpNumbers;
use crate::ah_table::AhTable;
use crate::cq::queue::CqQuota;
use crate::cq::{AsyncEvent, AsyncEvents, ModerationTimers, NoWake, PortEventType, SrqId, Wake};
use crate::path::ready::{ReadyLink, ReadyList};
use crate::path::window::EARLY_TIMEOUT_MIN;
use crate::path::{Path, PathKey};
use crate::qp::Qp;
use crate::qp::attr::PathMtu;
use crate::slot_table::{FreeList, SlotTable};
use crate::srq::xrcd::Xrcd;
use crate::srq::{MAX_SRQS, SrqTable};
use crate::timers::Timers;
use urxe_memory::{CopyMode, Memory, PdId};
use urxe_types::allocate::OutOfMemory;
use urxe_types::port::{EveryGroup, JoinGroups};
use urxe_types::rng::SecretRng;
use urxe_types::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_types::work_request::AhHandle;

/// The configuration of a device.
pub struct DeviceConfig {
    /// The GID table of the port.
    pub gids: Vec<Gid>,
    /// The largest path MTU that fits the link.
    pub active_mtu: PathMtu,
    /// Whether the port is active at first.
    pub port_active: bool,
    /// The process's slot among those that share the address.
    pub process_slot: u8,
    /// The seed of keys, queue pair numbers and first PSNs. Must come from the operating system if
    /// strangers can send packets.
    pub seed: u64,
    /// The most packets that the port sends in one call.
    pub max_run_segments: usize,
    /// The bytes of READ responses in flight from one peer: as many as the receive buffer holds.
    pub read_budget: u64,
    /// The shortest time before a retransmission, whatever round trips were measured. The local ACK
    /// timeout may be shorter. A longer time suits a peer that may stall: an emulated machine, a
    /// process in a debugger.
    pub early_timeout_min: Duration,
    /// Whether packets of reliable connections announce ECN (ECT(0)), so that routers mark them.
    pub ecn: bool,
    /// Whether a packet from another UDP source port than the peer's needs the expected PSN.
    pub port_check: bool,
    /// Whether entries of send queues stay in use until a completion of theirs, or of a later
    /// request, is polled ([`strict_sends`](crate::cq::queue)).
    pub strict_queues: bool,
    /// The UDP source ports of the device's packets.
    pub source_ports: Box<dyn SourcePorts>,
    /// The port's functions to join and leave multicast groups.
    pub groups: Box<dyn JoinGroups>,
    /// The check of received ICRCs.
    pub icrc_policy: IcrcPolicy,
    /// The way in which bytes of registered memory are copied.
    pub copies: CopyMode,
    /// The device's capabilities.
    pub limits: Limits,
    /// Called after an asynchronous event.
    pub event_wake: Box<dyn Wake>,
    /// Called when the next deadline moves to an earlier time, so that the driver can shorten its
    /// wait.
    pub timer_wake: Arc<dyn Wake>,
}

/// The UDP source ports of a device's packets. The ICRC covers the port, so the port must be known
/// before a packet is made.
pub trait SourcePorts: Send + Sync {
    /// Returns the source port of packets from `local` to the process slot `peer_slot` of any peer.
    /// Called when a path is opened.
    fn source_port(&self, local: IpAddr, peer_slot: u8) -> u16;
}

impl<T: SourcePorts + ?Sized> SourcePorts for Arc<T> {
    fn source_port(&self, local: IpAddr, peer_slot: u8) -> u16 {
        (**self).source_port(local, peer_slot)
    }
}

/// One port for all packets.
impl SourcePorts for u16 {
    fn source_port(&self, _local: IpAddr, _peer_slot: u8) -> u16 {
        *self
    }
}

impl DeviceConfig {
    /// Returns the configuration of a simulated device with these GIDs: it wakes no thread, and its
    /// behaviour follows from `seed` alone.
    #[must_use]
    pub fn new(gids: Vec<Gid>, seed: u64) -> Self {
        Self {
            gids,
            active_mtu: PathMtu::Mtu4096,
            port_active: true,
            process_slot: 0,
            seed,
            max_run_segments: 64,
            read_budget: 96 << 10,
            early_timeout_min: EARLY_TIMEOUT_MIN,
            ecn: true,
            port_check: true,
            strict_queues: false,
            source_ports: Box::new(ROCE_PORT),
            groups: Box::new(EveryGroup),
            icrc_policy: IcrcPolicy::default(),
            copies: CopyMode::default(),
            limits: Limits::default(),
            event_wake: Box::new(NoWake),
            timer_wake: Arc::new(NoWake),
        }
    }
}

/// The name of a queue pair of a device. After the queue pair was destroyed, every use of the name
/// fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpHandle {
    index: u32,
    qpn: Qpn,
}

impl QpHandle {
    /// Returns the queue pair's number.
    #[must_use]
    pub const fn qpn(self) -> Qpn {
        self.qpn
    }
}

/// The device. See the [module](self).
pub struct Device {
    limits: Limits,
    active_mtu: PathMtu,
    max_run_segments: usize,
    read_budget: u64,
    early_timeout_min: Duration,
    ecn: bool,
    port_check: bool,
    strict_queues: bool,
    source_ports: Box<dyn SourcePorts>,
    icrc_policy: IcrcPolicy,
    gids: Mutex<Vec<Gid>>,
    port_active: AtomicBool,
    pkeys: [PKey; 1],
    memory: Memory,
    counters: Arc<Counters>,
    events: Arc<AsyncEvents>,
    numbers: QpNumbers,
    qps: SlotTable<QpSlot>,
    /// Boxed like the table of address handles and the control state, so that a device with its
    /// surroundings is no allocation above [`LARGE`](urxe_types::allocate::LARGE).
    srqs: Box<SrqTable>,
    paths: SlotTable<Path>,
    ahs: Box<AhTable>,
    groups: Groups,
    /// The index of queue pair 1, or `NO_GSI`.
    gsi: AtomicU32,
    /// Paths with something to send.
    ready_paths: ReadyList,
    /// The ready paths have more to send than a few acknowledgements.
    data_pending: AtomicBool,
    /// The budget of the last call that sent has left paths over.
    has_leftover: AtomicBool,
    timers: Timers,
    /// The times at which completion queues report delayed events.
    moderation_timers: Arc<ModerationTimers>,
    cq_quota: CqQuota,
    rng: Mutex<SecretRng>,
    control: Box<Mutex<Control>>,
}

/// A queue pair's entry in the table, in cache lines of its own.
#[repr(C, align(64))]
struct QpSlot {
    /// Its link in its path's list of ready queue pairs.
    link: ReadyLink,
    /// Its link in its path's list of queue pairs blocked at a post.
    blocked_at_post: ReadyLink,
    qp: Mutex<Option<Qp>>,
}

impl QpSlot {
    fn new(_index: u32) -> Self {
        Self { link: ReadyLink::new(), blocked_at_post: ReadyLink::new(), qp: Mutex::new(None) }
    }
}

/// The state that only creating and destroying use.
#[derive(Default)]
struct Control {
    /// Free indices of queue pairs, each with the generation of its next use.
    free_qps: VecDeque<(u32, u32)>,
    /// The first index that was never used.
    fresh_qp: u32,
    qps: u32,
    last_pd: u32,
    pds: HashMap<PdId, Domain>,
    last_td: u32,
    /// Thread domains, each with the number of its parent domains.
    tds: HashMap<TdId, u32>,
    xrcds: Vec<Arc<Xrcd>>,
    free_srqs: FreeList<SrqId>,
    free_ahs: FreeList<AhHandle>,
    last_cq: u32,
    /// The index of the path to each peer.
    paths: HashMap<PathKey, u32>,
    /// The number of users of each path, by index.
    path_uses: Vec<PathUse>,
    free_paths: Vec<u32>,
    /// The device has a queue pair 1.
    gsi: bool,
}

struct PathUse {
    key: PathKey,
    users: u32,
}

impl Device {
    /// Returns a device without objects, for programs that do not survive the lack of memory.
    ///
    /// # Panics
    /// Panics if the system has no memory. [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn new(config: DeviceConfig) -> Self {
        Self::try_new(config).expect("a device needs 100 KiB of memory")
    }

    /// Returns a device without objects.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new(config: DeviceConfig) -> Result<Self, OutOfMemory> {
        let device = Self::without_paths(config);
        // It stands for no path in calls into a queue pair.
        device.ensure_path_at(paths::index_of(None))?;
        Ok(device)
    }

    fn without_paths(config: DeviceConfig) -> Self {
        let mut rng = SecretRng::stream(config.seed, 0x6465_7669_6365);
        Self {
            memory: Memory::with_limits(rng.next_u64(), config.limits.memory(), config.copies),
            numbers: QpNumbers::new(config.process_slot, rng.next_u64()),
            limits: Limits {
                max_qp: config.limits.max_qp.min(qpn::MAX_QPS),
                max_srq: config.limits.max_srq.min(MAX_SRQS),
                ..config.limits
            },
            active_mtu: config.active_mtu,
            max_run_segments: config.max_run_segments,
            read_budget: config.read_budget,
            early_timeout_min: config.early_timeout_min,
            ecn: config.ecn,
            port_check: config.port_check,
            strict_queues: config.strict_queues,
            source_ports: config.source_ports,
            icrc_policy: config.icrc_policy,
            gids: Mutex::new(config.gids),
            port_active: AtomicBool::new(config.port_active),
            pkeys: [PKey::DEFAULT],
            counters: Arc::default(),
            events: Arc::new(AsyncEvents::new(config.event_wake)),
            qps: SlotTable::new(),
            srqs: Box::new(SrqTable::new()),
            paths: SlotTable::new(),
            ahs: Box::new(AhTable::new()),
            groups: Groups::new(config.groups),
            gsi: AtomicU32::new(objects::NO_GSI),
            ready_paths: ReadyList::new(),
            data_pending: AtomicBool::new(false),
            has_leftover: AtomicBool::new(false),
            timers: Timers::new(Arc::clone(&config.timer_wake)),
            // A completion queue may outlive the device.
            moderation_timers: Arc::new(ModerationTimers::new(Arc::new(Arc::downgrade(
                &config.timer_wake,
            )))),
            cq_quota: CqQuota::default(),
            rng: Mutex::new(rng),
            control: Box::default(),
        }
    }

    /// Returns the device's capabilities.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the largest path MTU of the port.
    #[must_use]
    pub fn active_mtu(&self) -> PathMtu {
        self.active_mtu
    }

    /// Returns the GID table of the port.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        lock(&self.gids).clone()
    }

    /// Replaces the GID table of the port; an empty entry has the zero GID. If the table changes,
    /// raises the events `GID table change` and `client reregistration`: programs must announce
    /// services again under the new addresses. Paths stay as they are, and the port drops packets
    /// from an address that is gone.
    pub fn set_gids(&self, gids: Vec<Gid>) {
        let changed = std::mem::replace(&mut *lock(&self.gids), gids.clone()) != gids;
        if changed {
            self.events.push(AsyncEvent::Port(PortEventType::GidChange, 1));
            self.events.push(AsyncEvent::Port(PortEventType::ClientReregister, 1));
        }
    }

    /// Returns whether the port is active.
    #[must_use]
    pub fn is_port_active(&self) -> bool {
        self.port_active.load(Ordering::Acquire)
    }

    /// Sets whether the port is active. A change raises the event `port active` or `port error`.
    /// Queue pairs stay as they are; their retries decide how long an interruption they survive.
    pub fn set_port_active(&self, active: bool) {
        if self.port_active.swap(active, Ordering::AcqRel) != active {
            let event = if active { PortEventType::PortActive } else { PortEventType::PortErr };
            self.events.push(AsyncEvent::Port(event, 1));
        }
    }

    /// Returns the P_Key table of the port.
    #[must_use]
    pub fn pkeys(&self) -> &[PKey] {
        &self.pkeys
    }

    /// Returns the device's registered memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the device's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the numbers of packets with a wrong P_Key and with a wrong Q_Key, as a port reports
    /// them (`bad_pkey_cntr`, `qkey_viol_cntr`): sixteen bits that stop at their maximum, as in the
    /// kernel (rxe_recv.c).
    #[must_use]
    pub fn port_violations(&self) -> (u16, u16) {
        let of = |counter| u16::try_from(self.counters.value(counter)).unwrap_or(u16::MAX);
        (of(Counter::DropWrongPkey), of(Counter::DropWrongQkey))
    }

    /// Returns queue pair 1, the one of management datagrams, if there is one.
    #[must_use]
    pub fn gsi(&self) -> Option<QpHandle> {
        let index = self.gsi.load(Ordering::Acquire);
        (index != objects::NO_GSI).then_some(QpHandle { index, qpn: objects::GSI_QPN })
    }

    /// Returns the device's asynchronous events.
    #[must_use]
    pub fn events(&self) -> &Arc<AsyncEvents> {
        &self.events
    }

    /// Returns the number of queue pairs.
    #[must_use]
    pub fn qp_count(&self) -> u32 {
        lock(&self.control).qps
    }

    /// Returns the numbers of objects, by the names of `rdma resource show`.
    #[must_use]
    pub fn object_counts(&self) -> [(&'static str, u64); 5] {
        let mr = self.memory.count();
        let control = lock(&self.control);
        [
            ("pd", control.pds.len() as u64),
            ("cq", self.cq_quota.taken().into()),
            ("qp", control.qps.into()),
            ("mr", mr.into()),
            ("srq", control.free_srqs.in_use().into()),
        ]
    }

    /// Returns the bytes of requests in flight and of outstanding READ responses, over all paths.
    /// Both are 0 when nothing is outstanding.
    #[must_use]
    pub fn bytes_in_flight(&self) -> (u64, u64) {
        let paths = lock(&self.control).path_uses.len() as u32;
        let windows = (0..paths).filter_map(|index| self.paths.at(index)).map(|path| &path.window);
        windows.fold((0, 0), |(requests, reads), window| {
            (requests + window.in_flight(), reads + window.reads_in_flight())
        })
    }

    /// Returns a first PSN that strangers cannot guess.
    #[must_use]
    pub fn random_psn(&self) -> urxe_wire::Psn {
        urxe_wire::Psn::new(lock(&self.rng).next_u32())
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("gids", &self.gids())
            .field("qps", &self.qp_count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
