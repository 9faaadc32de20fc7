//! A device: the table of queue pairs and paths, with its memory, counters, events and timers.
//!
//! A [`Device`] is `Sync` and sans-IO: verbs, packets and time go in by `&self`, packets go out
//! through a [`Transmit`](urxe_types::port::Transmit) that the caller brings. It is the same over
//! UDP, in the simulated network and under a fuzzer.
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
//! | `objects` | creating, changing, destroying |
//! | `post` | posting work requests, and which of them wait for others |
//! | `srqs` | shared receive queues |
//! | [`ah`] | address handles |
//! | [`multicast`] | groups, and who is attached |
//! | `paths` | paths by the address that they lead to |
//! | `accept` | which bytes become a packet: shape and ICRC |
//! | `receive` | from a datagram to the queue pairs |
//! | `timeouts` | from the timers to the queue pairs |
//! | `transmit` | from the queue pairs to the port |
//! | `slot_table` | tables whose entries never move |

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
pub use self::paths::AddressError;
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
use urxe_types::port::{EveryGroup, JoinGroups};
use urxe_types::rng::Rng;
use urxe_types::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_types::work_request::AhHandle;

/// What a device is made of.
pub struct DeviceConfig {
    /// The GID table of its one port.
    pub gids: Vec<Gid>,
    /// The largest path MTU that fits the link.
    pub active_mtu: PathMtu,
    /// Whether its port is active at first.
    pub port_active: bool,
    /// Its process's slot among those that share the address.
    pub process_slot: u8,
    /// Where keys, queue pair numbers and first PSNs come from: of the operating system where
    /// strangers send packets.
    pub seed: u64,
    /// How many packets the port sends in one call.
    pub max_run_segments: usize,
    /// Bytes of READ responses that may be on their way at once from one peer: what the receive
    /// buffer holds.
    pub read_budget: u64,
    /// No retransmission before the local ACK timeout comes earlier than this, whatever round trips
    /// were measured. Longer is better where the peer may stall: an emulated machine, a process in
    /// a debugger.
    pub early_timeout_min: Duration,
    /// Packets of reliable connections say that their sender heeds marks of routers (ECT(0)).
    pub ecn: bool,
    /// The UDP source ports of its packets.
    pub source_ports: Box<dyn SourcePorts>,
    /// How its port joins multicast groups.
    pub groups: Box<dyn JoinGroups>,
    /// How received ICRCs are checked.
    pub icrc_policy: IcrcPolicy,
    /// How bytes of registered memory move.
    pub copies: CopyMode,
    /// What it can do.
    pub limits: Limits,
    /// Called when an asynchronous event came.
    pub event_wake: Box<dyn Wake>,
    /// Called when the next deadline became earlier, so that who sleeps sleeps shorter.
    pub timer_wake: Arc<dyn Wake>,
}

/// Says which UDP port a device's packets come from. The ICRC covers it, so it must be known before
/// they are made.
pub trait SourcePorts: Send + Sync {
    /// The source port of packets from `local` to the process slot `peer_slot` of any peer. Called
    /// when a path is opened.
    fn source_port(&self, local: IpAddr, peer_slot: u8) -> u16;
}

impl<T: SourcePorts + ?Sized> SourcePorts for Arc<T> {
    fn source_port(&self, local: IpAddr, peer_slot: u8) -> u16 {
        (**self).source_port(local, peer_slot)
    }
}

/// The same for all.
impl SourcePorts for u16 {
    fn source_port(&self, _local: IpAddr, _peer_slot: u8) -> u16 {
        *self
    }
}

impl DeviceConfig {
    /// A device with these GIDs and everything else as a simulation wants it: nothing is woken, all
    /// follows from `seed`.
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

/// Names a queue pair of a device. It stays valid as a name when the queue pair is destroyed: every
/// use then fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpHandle {
    index: u32,
    qpn: Qpn,
}

impl QpHandle {
    /// The queue pair's number.
    #[must_use]
    pub const fn qpn(self) -> Qpn {
        self.qpn
    }
}

/// See the module.
pub struct Device {
    limits: Limits,
    active_mtu: PathMtu,
    max_run_segments: usize,
    read_budget: u64,
    early_timeout_min: Duration,
    ecn: bool,
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
    srqs: SrqTable,
    paths: SlotTable<Path>,
    ahs: AhTable,
    groups: Groups,
    /// Index of queue pair 1, if there is one.
    gsi: AtomicU32,
    /// Paths with something to send.
    ready_paths: ReadyList,
    /// Among what is to be sent is more than acknowledgements.
    data_pending: AtomicBool,
    timers: Timers,
    /// When completion queues tell what they hold back.
    moderation_timers: Arc<ModerationTimers>,
    cq_quota: CqQuota,
    rng: Mutex<Rng>,
    control: Mutex<Control>,
}

/// A queue pair's place in the table: the queue pair itself, in cache lines that are nobody else's.
#[repr(C, align(64))]
struct QpSlot {
    /// Its place in its path's list of queue pairs with work.
    link: ReadyLink,
    /// Its place in its path's list of queue pairs blocked at a post.
    blocked_at_post: ReadyLink,
    qp: Mutex<Option<Qp>>,
}

impl QpSlot {
    fn new(_index: u32) -> Self {
        Self { link: ReadyLink::new(), blocked_at_post: ReadyLink::new(), qp: Mutex::new(None) }
    }
}

/// What only creating and destroying touch.
#[derive(Default)]
struct Control {
    /// Free indices of queue pairs, each with the generation of its next use.
    free_qps: VecDeque<(u32, u32)>,
    /// Indices never used so far begin here.
    fresh_qp: u32,
    qps: u32,
    last_pd: u32,
    pds: HashMap<PdId, Domain>,
    last_td: u32,
    /// Thread domains, each with the number of parent domains that have it.
    tds: HashMap<TdId, u32>,
    xrcds: Vec<Arc<Xrcd>>,
    free_srqs: FreeList<SrqId>,
    free_ahs: FreeList<AhHandle>,
    last_cq: u32,
    /// Index of the path to each peer.
    paths: HashMap<PathKey, u32>,
    /// Who uses each path, by index.
    path_uses: Vec<PathUse>,
    free_paths: Vec<u32>,
    /// There is a queue pair 1.
    gsi: bool,
}

struct PathUse {
    key: PathKey,
    users: u32,
}

impl Device {
    /// A device without any object.
    #[must_use]
    pub fn new(config: DeviceConfig) -> Self {
        let mut rng = Rng::stream(config.seed, 0x6465_7669_6365);
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
            source_ports: config.source_ports,
            icrc_policy: config.icrc_policy,
            gids: Mutex::new(config.gids),
            port_active: AtomicBool::new(config.port_active),
            pkeys: [PKey::DEFAULT],
            counters: Arc::default(),
            events: Arc::new(AsyncEvents::new(config.event_wake)),
            qps: SlotTable::new(),
            srqs: SrqTable::new(),
            paths: SlotTable::new(),
            ahs: AhTable::new(),
            groups: Groups::new(config.groups),
            gsi: AtomicU32::new(objects::NO_GSI),
            ready_paths: ReadyList::new(),
            data_pending: AtomicBool::new(false),
            timers: Timers::new(Arc::clone(&config.timer_wake)),
            moderation_timers: Arc::new(ModerationTimers::new(config.timer_wake)),
            cq_quota: CqQuota::default(),
            rng: Mutex::new(rng),
            control: Mutex::default(),
        }
    }

    /// What it can do.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The largest path MTU of its port.
    #[must_use]
    pub fn active_mtu(&self) -> PathMtu {
        self.active_mtu
    }

    /// Its port's GID table.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        lock(&self.gids).clone()
    }

    /// Replaces its port's GID table; an empty place has the zero GID. Tells of the change (`GID
    /// table change`), and that what was made known to others under the former addresses is to be
    /// made known anew (`client reregistration`). Paths stay as they are: packets from an address
    /// that is gone are dropped by the port.
    pub fn set_gids(&self, gids: Vec<Gid>) {
        let changed = std::mem::replace(&mut *lock(&self.gids), gids.clone()) != gids;
        if changed {
            self.events.push(AsyncEvent::Port(PortEventType::GidChange, 1));
            self.events.push(AsyncEvent::Port(PortEventType::ClientReregister, 1));
        }
    }

    /// Whether its port is active.
    #[must_use]
    pub fn is_port_active(&self) -> bool {
        self.port_active.load(Ordering::Acquire)
    }

    /// The port came up or went down: tells it (`port active`, `port error`) if that is a change.
    /// Queue pairs stay as they are; their retries decide how long an interruption they survive.
    pub fn set_port_active(&self, active: bool) {
        if self.port_active.swap(active, Ordering::AcqRel) != active {
            let event = if active { PortEventType::PortActive } else { PortEventType::PortErr };
            self.events.push(AsyncEvent::Port(event, 1));
        }
    }

    /// Its port's P_Key table.
    #[must_use]
    pub fn pkeys(&self) -> &[PKey] {
        &self.pkeys
    }

    /// Its registered memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What it counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What arrived with a wrong P_Key and a wrong Q_Key, as a port reports it (`bad_pkey_cntr`,
    /// `qkey_viol_cntr`): sixteen bits that stop at their end, as in the kernel (rxe_recv.c).
    #[must_use]
    pub fn port_violations(&self) -> (u16, u16) {
        let of = |counter| u16::try_from(self.counters.value(counter)).unwrap_or(u16::MAX);
        (of(Counter::DropWrongPkey), of(Counter::DropWrongQkey))
    }

    /// Queue pair 1, for management datagrams, if there is one.
    #[must_use]
    pub fn gsi(&self) -> Option<QpHandle> {
        let index = self.gsi.load(Ordering::Acquire);
        (index != objects::NO_GSI).then_some(QpHandle { index, qpn: objects::GSI_QPN })
    }

    /// Its asynchronous events.
    #[must_use]
    pub fn events(&self) -> &Arc<AsyncEvents> {
        &self.events
    }

    /// How many queue pairs there are.
    #[must_use]
    pub fn qp_count(&self) -> u32 {
        lock(&self.control).qps
    }

    /// Bytes of requests on their way, and of READ responses asked for, over all paths: both 0 when
    /// nothing is outstanding.
    #[must_use]
    pub fn bytes_in_flight(&self) -> (u64, u64) {
        let paths = lock(&self.control).path_uses.len() as u32;
        let windows = (0..paths).filter_map(|index| self.paths.at(index)).map(|path| &path.window);
        windows.fold((0, 0), |(requests, reads), window| {
            (requests + window.in_flight(), reads + window.reads_in_flight())
        })
    }

    /// A first PSN that nobody can guess.
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
