//! The connection manager (IBTA vol. 1, chapter 12), which connects the queue pairs of two
//! programs.
//!
//! A process has one [`ConnectionManager`] for queue pair 1 of each device. Like the rest of the
//! core it is sans-IO. Inputs are MADs with their source, calls, and time. Outputs are MADs to
//! send, events for the program, and the next deadline. The connection manager knows queue pairs
//! only by number. Its caller modifies the queue pairs with the values of
//! [`ConnectionManager::agreed`].
//!
//! ```text
//!  listen, connect, accept, ... ──> ┌──────────────────────────────┐ ──> poll_event
//!                   receive(MAD) ──> │ connections, listeners       │ ──> poll_transmit
//!                   handle_timeout ─>│ step(state, input) -> action │ ──> next_deadline
//!                                    └──────────────────────────────┘
//! ```
//!
//! | file | subject |
//! |---|---|
//! | [`table`] | the states, and the transition table |
//! | [`ids`] | communication ids and transaction ids |
//! | `connection` | one connection and its negotiated parameters |
//! | `calls` | the calls of a program |
//! | `receive` | the processing of received MADs |
//! | `keep_alive` | probes of the passive side |
//! | `last_message` | the message to the peer if the process ends |
//! | `stateless_reply` | replies without a connection |
//! | `limits` | the limits on entries that unknown peers create |
//! | `request_window` | the limit on requests in flight to one address |
//! | `counters` | counters |
//!
//! # Protection against unknown peers
//!
//! A REQ or SIDR_REQ creates state only for a listener with space in its backlog. The connections
//! that were accepted but not confirmed by the peer, and those in TIMEWAIT, have limits
//! (`limits`). Own connections, those of peers, and answers to SIDR_REQs have limits of their own.
//! Peers choose timeouts within bounds (`connection`). A reply goes to
//! the source address of the MAD and is not longer than the MAD. A MAD for a connection is valid
//! only between the two addresses of the connection. Every MAD without an effect increments a
//! counter.

mod calls;
mod connection;
mod counters;
pub mod ids;
mod keep_alive;
mod last_message;
pub(crate) mod limits;
mod receive;
mod request_window;
mod stateless_reply;
pub mod table;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use urxe_wire::Gid;
use urxe_wire::mad::{Attribute, Bits, CommId, Guid, MAD_LEN, Mad, ServiceId};

pub use self::calls::{CmError, CmRoute, ListenerId};
pub use self::connection::{Agreed, CmPath, ack_timeout};
use self::connection::{Connection, Origin, PendingRequest, exponent_ns};
pub use self::counters::{CmCounters, CmDrop, CmEviction};
use self::ids::{CommIds, MAX_CONNECTIONS};
use self::limits::PeerEntries;
use self::request_window::{RequestWindows, SendState};
use self::table::{Action, CmState, Input, Step};
use urxe_types::rng::SecretRng;
use urxe_types::time::Time;

/// Configuration of a connection manager.
#[derive(Clone, Copy, Debug)]
pub struct CmConfig {
    /// Slot of the process on its address.
    pub slot: u8,
    /// Seed for communication ids.
    pub seed: u64,
    /// Node GUID of the device.
    pub ca_guid: Guid,
    /// Longest time until the device acknowledges: 4.096 µs · 2^n. The kernel's `rdma_rxe` reports
    /// 15.
    pub ack_delay: Bits<5>,
    /// Largest number of own connections, of connections of peers, and of service id resolutions of
    /// peers, each at most [`MAX_CONNECTIONS`].
    pub max_connections: usize,
    /// Largest number of connections that were accepted and not yet confirmed by the peer.
    pub max_half_open: usize,
    /// Largest number of connections in TIMEWAIT, answered SIDR_REQs included.
    pub max_timewait: usize,
    /// Whether [`ConnectionManager::poll_last_message`] returns the changes of last messages.
    pub reports_last_messages: bool,
    /// The time in nanoseconds after which the passive side of an established connection checks
    /// whether the peer still has the connection, or `None` for no checks.
    pub keep_alive_ns: Option<u64>,
}

impl CmConfig {
    /// Returns a configuration with the default limits.
    #[must_use]
    pub const fn new(slot: u8, seed: u64, ca_guid: Guid) -> Self {
        let ack_delay = Bits::masked(15);
        Self {
            slot,
            seed,
            ca_guid,
            ack_delay,
            max_connections: MAX_CONNECTIONS,
            max_half_open: 16_384,
            max_timewait: 16_384,
            reports_last_messages: false,
            keep_alive_ns: None,
        }
    }
}

/// A MAD to send from queue pair 1 to queue pair 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmTransmit {
    /// Source and destination address.
    pub path: CmPath,
    /// Type of service or traffic class of the packet, which is that of the connection.
    pub traffic_class: u8,
    /// The bytes of the MAD.
    pub mad: [u8; MAD_LEN],
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmEvent {
    /// The connection.
    pub id: CommId,
    /// The kind of event, with its data.
    pub kind: CmEventKind,
}

/// The kind of a connection's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEventKind {
    /// A REQ or SIDR_REQ arrived. With a listener, the connection is new. Without one, both sides
    /// requested the connection, and this side became the passive side.
    Request {
        /// The listener.
        listener: Option<ListenerId>,
        /// The REQ or SIDR_REQ.
        mad: Mad,
    },
    /// A message of the peer moved the connection to its next state.
    Message(Mad),
    /// Data arrived before the RTU, so the connection is established.
    Established,
    /// The message remained without a reply after all retries.
    TimedOut(Attribute),
    /// The peer of an established connection no longer replies to keep-alive probes.
    PeerLost,
    /// TIMEWAIT ended. No packet of the connection is in flight, so the queue pair may be reused.
    TimewaitExit,
}

/// A service id, on one or all addresses, with its pending requests.
#[derive(Clone, Copy, Debug)]
struct Listener {
    service_id: ServiceId,
    local: Option<Gid>,
    backlog: usize,
    pending: usize,
}

/// The connection manager of one process on one device.
#[derive(Debug)]
pub struct ConnectionManager {
    config: CmConfig,
    ids: CommIds,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    by_id: BTreeMap<CommId, usize>,
    /// The number of connections of each origin.
    counts: [usize; Origin::COUNT],
    listeners: BTreeMap<u32, Listener>,
    next_listener: u32,
    by_service: BTreeMap<(ServiceId, Option<Gid>), u32>,
    /// Connections by the peer's address and id, to recognize duplicates of a REQ.
    by_remote_id: BTreeMap<(Gid, CommId), usize>,
    /// Connections by the peer's address and queue pair, to recognize stale connections.
    by_remote_qp: BTreeMap<(Gid, u32), usize>,
    /// SIDR_REQs of peers, by address and request id.
    by_request: BTreeMap<(Gid, CommId), usize>,
    /// This side's own requests that the peer may send as well (peer-to-peer).
    peers: BTreeMap<(CmPath, ServiceId), usize>,
    timers: BTreeSet<(Time, usize)>,
    request_windows: RequestWindows,
    half_open: PeerEntries,
    timewait: PeerEntries,
    transmits: VecDeque<CmTransmit>,
    events: VecDeque<CmEvent>,
    /// Connections whose last message may have changed.
    changed: Vec<CommId>,
    counters: CmCounters,
}

impl ConnectionManager {
    /// Returns a connection manager without listeners and connections.
    ///
    /// # Panics
    /// Panics if the slot is not below [`MAX_PROCESS_SLOTS`](urxe_types::qpn::MAX_PROCESS_SLOTS).
    #[must_use]
    pub fn new(config: CmConfig) -> Self {
        Self {
            config: CmConfig {
                max_connections: config.max_connections.min(MAX_CONNECTIONS),
                ..config
            },
            ids: CommIds::new(config.slot, SecretRng::stream(config.seed, 0x434d_4944)),
            connections: Vec::new(),
            free: Vec::new(),
            by_id: BTreeMap::new(),
            counts: [0; Origin::COUNT],
            listeners: BTreeMap::new(),
            next_listener: 0,
            by_service: BTreeMap::new(),
            by_remote_id: BTreeMap::new(),
            by_remote_qp: BTreeMap::new(),
            by_request: BTreeMap::new(),
            peers: BTreeMap::new(),
            timers: BTreeSet::new(),
            request_windows: RequestWindows::default(),
            half_open: PeerEntries::default(),
            timewait: PeerEntries::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            changed: Vec::new(),
            counters: CmCounters::default(),
        }
    }

    /// Returns the next MAD to send. The caller must repeat this until it returns `None`, after
    /// every other call.
    pub fn poll_transmit(&mut self) -> Option<CmTransmit> {
        self.transmits.pop_front()
    }

    /// Returns the next event for the program.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Returns the time at which [`ConnectionManager::handle_timeout`] must be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.timers
            .first()
            .map(|&(deadline, _)| deadline)
            .into_iter()
            .chain(self.request_windows.next_check())
            .min()
    }

    /// Retransmits requests without a reply, ends those without retries left, and ends TIMEWAIT.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(peer) = self.request_windows.stalled_peer(now) {
            self.send_queued(now, peer);
        }
        while let Some(&(deadline, index)) = self.timers.first() {
            if deadline > now {
                return;
            }
            self.on_deadline(index, now);
        }
    }

    fn on_deadline(&mut self, index: usize, now: Time) {
        let Some(connection) = self.connections[index].as_ref() else {
            unreachable!("a removed connection has no timer")
        };
        if connection.state == CmState::Established && self.send_probe(index, now) {
            return;
        }
        let connection = self.at_mut(index);
        let input = match &mut connection.pending_request {
            None if connection.state == CmState::Established => Input::PeerLost,
            None => Input::TimewaitExit,
            Some(pending_request) if pending_request.retries_left == 0 => Input::RetriesExhausted,
            Some(pending_request) => {
                pending_request.retries_left -= 1;
                let (attribute, mad, interval_ns) =
                    (pending_request.attribute, pending_request.mad, pending_request.interval_ns);
                // An unknown peer may have forged the address of its REQ. Such an address gets two
                // REPs and a REJ, and a REP for each repetition of the REQ.
                let is_first = pending_request.retries_left + 1 == connection.max_cm_retries;
                if is_first || connection.state != CmState::RepSent {
                    let route = connection.route();
                    self.transmit(route, attribute, mad, true);
                }
                return self.arm(index, now.plus_ns(interval_ns));
            }
        };
        let pending_request =
            connection.pending_request.as_ref().map(|pending_request| pending_request.attribute);
        let state = connection.state;
        let Some(step) = table::step(state, input) else {
            unreachable!("every state with a timer has a row for {input}, but not {state}")
        };
        if step.action == Action::SendTimeoutRej {
            self.send_timeout_rej(index);
        }
        self.enter(index, step.next, now);
        let kind = match pending_request {
            Some(attribute) => CmEventKind::TimedOut(attribute),
            None if state == CmState::Established => CmEventKind::PeerLost,
            None => CmEventKind::TimewaitExit,
        };
        self.notify(index, kind);
        self.reap(index);
    }

    /// Returns the state of a connection.
    #[must_use]
    pub fn state(&self, id: CommId) -> Option<CmState> {
        self.find(id).map(|index| self.at(index).state)
    }

    /// Returns the negotiated parameters. They are complete after a REQ or a REP has arrived.
    #[must_use]
    pub fn agreed(&self, id: CommId) -> Option<&Agreed> {
        self.find(id).map(|index| &self.at(index).agreed)
    }

    /// Returns the addresses of a connection.
    #[must_use]
    pub fn path(&self, id: CommId) -> Option<CmPath> {
        self.find(id).map(|index| self.at(index).path)
    }

    /// Returns the number of connections, including those in TIMEWAIT.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// Returns the number of connections in each state, including TIMEWAIT. Omits unused states.
    pub fn states(&self) -> impl Iterator<Item = (CmState, u64)> {
        let mut counts = BTreeMap::new();
        for connection in self.connections.iter().flatten() {
            *counts.entry(connection.state).or_insert(0) += 1;
        }
        counts.into_iter()
    }

    /// Returns whether no connection is left: no table entry, no timer, no MAD to send and no
    /// event.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let counts = [
            self.connection_count(),
            self.by_remote_id.len(),
            self.by_remote_qp.len(),
            self.by_request.len(),
            self.peers.len(),
            self.timers.len(),
            self.request_windows.queued(),
            self.by_id.len(),
            self.half_open.len(),
            self.timewait.len(),
            self.listeners.values().map(|listener| listener.pending).sum(),
            self.transmits.len(),
            self.events.len(),
        ];
        counts.iter().all(|count| *count == 0)
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &CmCounters {
        &self.counters
    }

    /// Returns the index of a connection that the program has not released.
    fn find(&self, id: CommId) -> Option<usize> {
        let index = *self.by_id.get(&id)?;
        (!self.at(index).is_released).then_some(index)
    }

    fn at(&self, index: usize) -> &Connection {
        self.connections[index].as_ref().expect("indices are of connections that exist")
    }

    fn at_mut(&mut self, index: usize) -> &mut Connection {
        self.connections[index].as_mut().expect("indices are of connections that exist")
    }

    fn transmit(
        &mut self,
        (path, traffic_class): (CmPath, u8),
        attribute: Attribute,
        mad: [u8; MAD_LEN],
        is_retry: bool,
    ) {
        self.counters.count_sent(attribute, is_retry);
        self.transmits.push_back(CmTransmit { path, traffic_class, mad });
    }

    fn notify(&mut self, index: usize, kind: CmEventKind) {
        let Connection { id, is_released, .. } = *self.at(index);
        if !is_released {
            self.events.push_back(CmEvent { id, kind });
        }
    }

    /// Sets the only timer of a connection.
    fn arm(&mut self, index: usize, deadline: Time) {
        let old = std::mem::replace(&mut self.at_mut(index).deadline, deadline);
        self.timers.remove(&(old, index));
        if deadline != Time::NEVER {
            self.timers.insert((deadline, index));
        }
    }

    /// Adds a connection, with a new id.
    fn insert(
        &mut self,
        origin: Origin,
        make: impl FnOnce(CommId) -> Connection,
    ) -> Result<usize, CmError> {
        let max = self.config.max_connections;
        if self.counts[origin as usize] >= max {
            return Err(CmError::TooMany { max });
        }
        self.counts[origin as usize] += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let id = self.ids.id(|id| self.by_id.contains_key(&id));
        self.by_id.insert(id, index);
        let connection = make(id);
        debug_assert_eq!(connection.origin, origin);
        self.connections[index] = Some(Box::new(connection));
        Ok(index)
    }

    /// Removes a connection that is idle and that the program has released.
    fn reap(&mut self, index: usize) {
        let Connection { id, origin, state, is_released, .. } = *self.at(index);
        if is_released && state == CmState::Idle {
            self.arm(index, Time::NEVER);
            self.by_id.remove(&id);
            self.counts[origin as usize] -= 1;
            self.connections[index] = None;
            self.free.push(index);
        }
    }

    /// Returns a table of entries, and its limit.
    fn table(&mut self, of: CmEviction) -> (&mut PeerEntries, usize) {
        match of {
            CmEviction::HalfOpen => (&mut self.half_open, self.config.max_half_open),
            CmEviction::Timewait => (&mut self.timewait, self.config.max_timewait),
        }
    }

    /// Moves a connection between the tables with limits. If the table is full, evicts an entry.
    fn move_between_tables(&mut self, index: usize, old: CmState, new: CmState, now: Time) {
        let (old, new) = (table_of(old), table_of(new));
        if old == new {
            return;
        }
        let peer = self.at(index).path.remote;
        if let (Some(old), Some(age)) = (old, self.at_mut(index).age.take()) {
            self.table(old).0.remove(peer, age);
        }
        let Some(new) = new else { return };
        let (table, max) = self.table(new);
        let victim = if table.len() >= max { table.victim() } else { None };
        let age = table.insert(peer, index);
        self.at_mut(index).age = Some(age);
        if let Some(victim) = victim {
            self.counters.count_evicted(new);
            let waits_for = self.at(victim).pending_request.as_ref().map(|sent| sent.attribute);
            self.enter(victim, CmState::Idle, now);
            let kind = waits_for.map_or(CmEventKind::TimewaitExit, CmEventKind::TimedOut);
            self.notify(victim, kind);
            self.reap(victim);
        }
    }

    /// Changes the state of a connection, and updates everything that depends on the state: the
    /// look-up tables, the limits and the timer for TIMEWAIT.
    fn enter(&mut self, index: usize, next: CmState, now: Time) {
        let reports_last_message = self.config.reports_last_messages;
        let connection = self.at_mut(index);
        let (id, state) = (connection.id, std::mem::replace(&mut connection.state, next));
        if state == next {
            return;
        }
        let pending_request = connection.pending_request.take();
        let wait_ns = exponent_ns(connection.wait_exponent.into());
        let Connection {
            remote_id, path, listener, agreed: Agreed { remote_qpn, req, .. }, ..
        } = *connection;
        let service_id = req.service_id;
        if state.is_pending() && !next.is_pending() {
            connection.listener = None;
            if let Some(listener) = listener.and_then(|number| self.listeners.get_mut(&number)) {
                listener.pending -= 1;
            }
        }
        let remote_qp = (path.remote, remote_qpn.value());
        if !next.holds_remote_qp() && self.by_remote_qp.get(&remote_qp) == Some(&index) {
            self.by_remote_qp.remove(&remote_qp);
        }
        if !next.awaits_rep() && self.peers.get(&(path, service_id)) == Some(&index) {
            self.peers.remove(&(path, service_id));
        }
        if next == CmState::Idle {
            for map in [&mut self.by_remote_id, &mut self.by_request] {
                if map.get(&(path.remote, remote_id)) == Some(&index) {
                    map.remove(&(path.remote, remote_id));
                }
            }
        }
        let probe = self.update_keep_alive(index, pending_request.as_ref(), now);
        self.arm(index, if next == CmState::Timewait { now.plus_ns(wait_ns) } else { probe });
        if reports_last_message {
            self.changed.push(id);
        }
        self.move_between_tables(index, state, next, now);
        if let Some(PendingRequest { send_state, .. }) = pending_request {
            self.request_windows.complete(now, path.remote, send_state);
            self.send_queued(now, path.remote);
        }
    }

    /// Sends queued requests for which the window has space.
    fn send_queued(&mut self, now: Time, peer: Gid) {
        while let Some((id, send_state)) = self.request_windows.pop_ready(peer) {
            let waits = |connection: &&mut Box<Connection>| {
                connection
                    .pending_request
                    .as_ref()
                    .is_some_and(|pending_request| pending_request.send_state == SendState::Queued)
            };
            let index = self.by_id.get(&id).copied();
            let connection =
                index.and_then(|index| self.connections.get_mut(index)?.as_mut()).filter(waits);
            let Some((index, connection)) = index.zip(connection) else {
                // The connection ended before its request was sent.
                self.request_windows.complete(now, peer, send_state);
                continue;
            };
            let route = connection.route();
            let Some(pending_request) = connection.pending_request.as_mut() else { continue };
            pending_request.send_state = send_state;
            let PendingRequest { attribute, mad, interval_ns, .. } = *pending_request;
            self.transmit(route, attribute, mad, false);
            self.arm(index, now.plus_ns(interval_ns));
        }
    }

    /// Sends a message, or queues it for its window, and retransmits it until a reply arrives.
    fn send_request(&mut self, index: usize, mad: &Mad, next: CmState, now: Time) {
        self.enter(index, next, now);
        let connection = self.at_mut(index);
        let attribute = mad.message.attribute();
        let (bytes, interval_ns, route) =
            (mad.to_bytes(), connection.interval_ns, connection.route());
        let (id, retries_left) = (connection.id, connection.max_cm_retries);
        let send_state = self.request_windows.register(now, route.0.remote, id);
        self.at_mut(index).pending_request =
            Some(PendingRequest { attribute, mad: bytes, interval_ns, retries_left, send_state });
        if send_state != SendState::Queued {
            self.transmit(route, attribute, bytes, false);
            self.arm(index, now.plus_ns(interval_ns));
        }
    }

    /// Sends a message once, and stores it for duplicates of the request.
    fn send_reply(&mut self, index: usize, mad: &Mad, next: CmState, now: Time) {
        let bytes = self.store_reply(index, mad, next, now);
        self.transmit(self.at(index).route(), mad.message.attribute(), bytes, false);
    }

    /// Stores a message for duplicates of the request.
    fn store_reply(&mut self, index: usize, mad: &Mad, next: CmState, now: Time) -> [u8; MAD_LEN] {
        self.enter(index, next, now);
        let bytes = mad.to_bytes();
        self.at_mut(index).last_reply = Some(bytes);
        bytes
    }

    /// Returns the table's step for a call.
    fn call(&self, index: usize, call: Input) -> Result<Step, CmError> {
        let Connection { id, state, .. } = *self.at(index);
        table::step(state, call).ok_or(CmError::State { id, state, call })
    }

    fn require(&self, id: CommId) -> Result<usize, CmError> {
        self.find(id).ok_or(CmError::UnknownId(id))
    }
}

/// Returns the table with a limit that holds the connections in this state.
const fn table_of(state: CmState) -> Option<CmEviction> {
    if state.is_half_open() {
        Some(CmEviction::HalfOpen)
    } else if matches!(state, CmState::Timewait) {
        Some(CmEviction::Timewait)
    } else {
        None
    }
}
