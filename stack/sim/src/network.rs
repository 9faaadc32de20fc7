//! The network: nodes, links, packets in flight and the virtual clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::IpAddr;

use thiserror::Error;

use super::counters::{Event, SimCounters, Trace};
use super::delay_queue::{DelayQueue, Delayed};
use super::link::{Flow, Link, change_source_port, flip_bits};
use super::link_faults::{LinkFaults, NodeConfig, NodeId, Pause, PauseScope, PausedPackets};
use super::receive::{MAX_RUN_BYTES, Packet, Read, ReceiveBuffer};
use urxe_types::port::{
    Datagrams, JoinError, JoinGroups, MAX_RUN_SEGMENTS, PacketTap, Run, SendOutcome, Transmit,
};
use urxe_types::rng::Rng;
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_types::time::Time;
use urxe_wire::ecn;

/// The maximum number of packets in flight.
const MAX_IN_FLIGHT: usize = 1 << 18;
/// The hop limit of received packets.
const HOP_LIMIT: u8 = 64;
const UDP_HEADER_BYTES: usize = 8;
const IPV4_HEADER_BYTES: usize = 20;
const IPV6_HEADER_BYTES: usize = 40;
/// Separates the random numbers of nodes from those of links.
const NODE_STREAM: u64 = 1 << 63;

/// The reason why a node was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddNodeError {
    /// The node has no address.
    #[error("a node needs at least one address")]
    NoAddress,
    /// Another node has this address.
    #[error("address {0} belongs to another node")]
    AddressTaken(IpAddr),
}

/// A network of nodes in virtual time. Clones are handles of the same network.
#[derive(Clone)]
pub struct SimNetwork {
    state: Arc<Mutex<State>>,
}

/// The sending half of a node.
#[derive(Clone)]
pub struct SimPort {
    state: Arc<Mutex<State>>,
    node: NodeId,
}

struct State {
    seed: u64,
    now: Time,
    nodes: Vec<Node>,
    addresses: BTreeMap<IpAddr, NodeId>,
    groups: Membership,
    links: BTreeMap<(NodeId, NodeId), Link>,
    default_faults: LinkFaults,
    pauses: Vec<Pause>,
    /// Packets in flight by arrival time. Packets with the same time keep the order of sending.
    in_flight: DelayQueue<Packet>,
    counters: SimCounters,
    trace: Trace,
    tap: Option<SimTap>,
}

/// A capture of sent and read packets.
#[derive(Clone)]
struct SimTap {
    tap: Arc<dyn PacketTap>,
    /// The time of day of [`Time::ZERO`], in nanoseconds since 1970.
    epoch_ns: u64,
}

impl SimTap {
    fn wall_ns(&self, now: Time) -> u64 {
        self.epoch_ns.saturating_add(now.as_ns())
    }
}

#[derive(Debug)]
struct Node {
    addresses: Vec<IpAddr>,
    config: NodeConfig,
    rng: Rng,
    buffer: ReceiveBuffer,
}

impl SimNetwork {
    /// Returns a network without nodes at [`Time::ZERO`]. All random decisions follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                seed,
                now: Time::ZERO,
                nodes: Vec::new(),
                addresses: BTreeMap::new(),
                groups: Membership::default(),
                links: BTreeMap::new(),
                default_faults: LinkFaults::default(),
                pauses: Vec::new(),
                in_flight: DelayQueue::default(),
                counters: SimCounters::default(),
                trace: Trace::default(),
                tap: None,
            })),
        }
    }

    /// Adds a node with these addresses.
    ///
    /// # Errors
    /// Fails with [`AddNodeError`] if there is no address, or if another node has one of them.
    pub fn add_node(&self, addresses: &[IpAddr]) -> Result<SimPort, AddNodeError> {
        let mut state = lock(&self.state);
        if addresses.is_empty() {
            return Err(AddNodeError::NoAddress);
        }
        if let Some(taken) = addresses.iter().find(|address| state.addresses.contains_key(address))
        {
            return Err(AddNodeError::AddressTaken(*taken));
        }
        let node = NodeId(state.nodes.len());
        let rng = Rng::stream(state.seed, NODE_STREAM | node.0 as u64);
        state.addresses.extend(addresses.iter().map(|&address| (address, node)));
        state.nodes.push(Node {
            addresses: addresses.to_vec(),
            config: NodeConfig::default(),
            rng,
            buffer: ReceiveBuffer::default(),
        });
        Ok(SimPort { state: Arc::clone(&self.state), node })
    }

    /// Returns the group membership of the node with this address, which may be added later. A
    /// packet to a group reaches all members, including the sender, each over the link to the
    /// member.
    #[must_use]
    pub fn groups_at(&self, address: IpAddr) -> SimGroups {
        SimGroups { network: self.clone(), address }
    }

    /// Lets the node with this address join or leave a group. Returns whether there is such a node
    /// and it has an address of the group's IP version.
    fn change_group(&self, address: IpAddr, group: IpAddr, joins: bool) -> bool {
        let mut state = lock(&self.state);
        let Some(&node) = state.addresses.get(&address) else { return false };
        let same_version = |address: &IpAddr| address.is_ipv4() == group.is_ipv4();
        let reachable =
            state.nodes.get(node.0).is_some_and(|node| node.addresses.iter().any(same_version));
        if reachable {
            state.groups.change(node, group, joins);
        }
        reachable
    }

    /// Captures all sent packets before any fault, and all read packets. The capture shows virtual
    /// time 0 as `epoch_ns`, in nanoseconds since 1970.
    pub fn set_tap(&self, tap: Arc<dyn PacketTap>, epoch_ns: u64) {
        lock(&self.state).tap = Some(SimTap { tap, epoch_ns });
    }

    /// Sets the behaviour of all links without settings of their own. Packets in flight are not
    /// affected.
    pub fn set_default_faults(&self, faults: LinkFaults) {
        lock(&self.state).default_faults = faults;
    }

    /// Sets the behaviour of one direction. Packets in flight are not affected.
    pub fn set_faults(&self, from: NodeId, to: NodeId, faults: LinkFaults) {
        lock(&self.state).link(from, to).faults = Some(faults);
    }

    /// Sets the receiving behaviour of a node. A node of another network is ignored.
    pub fn set_node_config(&self, node: NodeId, config: NodeConfig) {
        if let Some(node) = lock(&self.state).nodes.get_mut(node.0) {
            node.config = config;
        }
    }

    /// Stops a node or link for a while. If a holding and a dropping pause overlap, packets are
    /// dropped.
    pub fn pause(&self, pause: Pause) {
        let mut state = lock(&self.state);
        let now = state.now;
        state.pauses.retain(|known| known.until > now);
        state.pauses.push(pause);
    }

    /// Cuts all links between the nodes of `left` and `right`, in both directions, from `from`
    /// until `until`.
    pub fn partition(
        &self,
        left: &[NodeId],
        right: &[NodeId],
        packets: PausedPackets,
        from: Time,
        until: Time,
    ) {
        for &a in left {
            for &b in right {
                for (sender, receiver) in [(a, b), (b, a)] {
                    let scope = PauseScope::Link { from: sender, to: receiver };
                    self.pause(Pause { scope, packets, from, until });
                }
            }
        }
    }

    /// Ends all faults: loss, duplication, reordering, marks, corruption and pauses. Delays, rates,
    /// MTUs and buffers stay. Held packets arrive next.
    pub fn heal(&self) {
        let mut state = lock(&self.state);
        state.pauses.clear();
        state.default_faults = state.default_faults.healed();
        for link in state.links.values_mut() {
            link.faults = link.faults.as_ref().map(LinkFaults::healed);
        }
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        lock(&self.state).now
    }

    /// Returns the time at which the next packet arrives or can be read. The time may be in the
    /// past for packets that can be read already.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        let state = lock(&self.state);
        let reads = (0..state.nodes.len()).filter_map(|node| state.read_at(NodeId(node)));
        reads.chain(state.in_flight.next_due()).min()
    }

    /// Advances the time to `to` and lets packets arrive up to and including this time. A time in
    /// the past has no effect.
    pub fn advance(&self, to: Time) {
        let mut state = lock(&self.state);
        while let Some(flight) = state.in_flight.pop_due(to) {
            state.now = state.now.max(flight.due);
            state.arrive(flight);
        }
        state.now = state.now.max(to);
    }

    /// Reads all packets that can be read, node by node, and passes them to `receive`, which may
    /// transmit.
    pub fn deliver(&self, mut receive: impl FnMut(NodeId, &Datagrams<'_>)) {
        let ready: Vec<_> = {
            let state = lock(&self.state);
            let nodes = (0..state.nodes.len()).map(NodeId);
            nodes
                .filter(|&node| state.read_at(node).is_some_and(|at| at <= state.now))
                .map(|node| (node, state.nodes[node.0].buffer.len()))
                .collect()
        };
        for (node, packets) in ready {
            let (reads, now, tap) = {
                let mut state = lock(&self.state);
                (state.read(node, packets), state.now, state.tap.clone())
            };
            for read in reads {
                let datagrams = Datagrams {
                    from: read.from,
                    from_port: read.from_port,
                    to: read.to,
                    bytes: &read.bytes,
                    segment_size: read.segment_size,
                    traffic_class: read.traffic_class,
                    hop_limit: HOP_LIMIT,
                };
                if let Some(tap) = &tap {
                    tap.tap.received(tap.wall_ns(now), &datagrams);
                }
                receive(node, &datagrams);
            }
        }
    }

    /// Returns the end of the holding pause that stops `node` now, if there is one.
    #[must_use]
    pub fn stopped_until(&self, node: NodeId) -> Option<Time> {
        let state = lock(&self.state);
        let resumes = state.runs_from(node, state.now);
        (resumes > state.now).then_some(resumes)
    }

    /// Returns whether no packet is in flight or waits to be read.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let state = lock(&self.state);
        state.in_flight.len() == 0 && state.nodes.iter().all(|node| node.buffer.is_empty())
    }

    /// Returns the counters of packets.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        lock(&self.state).counters
    }

    /// Returns a hash of all events so far, including times and bytes.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        lock(&self.state).trace.hash()
    }
}

impl fmt::Debug for SimNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("SimNetwork")
            .field("now", &state.now)
            .field("nodes", &state.nodes.len())
            .field("in_flight", &state.in_flight.len())
            .field("counters", &state.counters)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SimPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimPort").field("node", &self.node).finish_non_exhaustive()
    }
}

impl SimPort {
    /// Returns the node that sends through this port.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }
}

impl Transmit for SimPort {
    /// Refuses ([`SendOutcome::Dropped`]) the same runs as a UDP socket: empty or overlong runs,
    /// too many packets, a source address of another node, and packets that exceed the MTU of the
    /// link.
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        lock(&self.state).transmit(self.node, run)
    }
}

impl State {
    fn link(&mut self, from: NodeId, to: NodeId) -> &mut Link {
        let seed = self.seed;
        let stream = (from.0 as u64) << 32 | to.0 as u64;
        self.links.entry((from, to)).or_insert_with(|| Link::new(Rng::stream(seed, stream)))
    }

    fn transmit(&mut self, sender: NodeId, run: &Run<'_>) -> SendOutcome {
        let own = self.nodes.get(sender.0).is_some_and(|node| node.addresses.contains(&run.from));
        let shape = !run.bytes.is_empty()
            && run.segment_size > 0
            && run.bytes.len() <= MAX_RUN_BYTES
            && run.segments().len() <= MAX_RUN_SEGMENTS
            && run.from.is_ipv4() == run.to.is_ipv4();
        if !own || !shape {
            self.counters.bad_run += 1;
            self.trace.record(self.now, Event::Refused, sender.0, usize::MAX, run.bytes);
            return SendOutcome::Dropped;
        }
        if let Some(tap) = &self.tap {
            tap.tap.sent(tap.wall_ns(self.now), run);
        }
        if !run.to.is_multicast() {
            return match self.addresses.get(&run.to) {
                Some(&receiver) => self.transmit_to(sender, receiver, run),
                None => self.count_unroutable(sender, run),
            };
        }
        let receivers = self.groups.of(run.to);
        if receivers.is_empty() {
            return self.count_unroutable(sender, run);
        }
        let outcomes: Vec<_> =
            receivers.into_iter().map(|receiver| self.transmit_to(sender, receiver, run)).collect();
        // A member whose link refuses the run does not affect the others.
        outcomes
            .into_iter()
            .max_by_key(|outcome| *outcome == SendOutcome::Sent)
            .unwrap_or(SendOutcome::Sent)
    }

    fn count_unroutable(&mut self, sender: NodeId, run: &Run<'_>) -> SendOutcome {
        self.counters.runs += 1;
        self.counters.sent += run.segments().len() as u64;
        self.counters.unroutable += run.segments().len() as u64;
        self.trace.record(self.now, Event::Unroutable, sender.0, usize::MAX, run.bytes);
        SendOutcome::Sent
    }

    fn transmit_to(&mut self, sender: NodeId, receiver: NodeId, run: &Run<'_>) -> SendOutcome {
        let faults = self
            .link(sender, receiver)
            .faults
            .clone()
            .unwrap_or_else(|| self.default_faults.clone());
        let header_bytes =
            UDP_HEADER_BYTES + if run.to.is_ipv4() { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
        if run.segment_size.min(run.bytes.len()) + header_bytes > faults.mtu {
            self.counters.too_big += run.segments().len() as u64;
            self.trace.record(self.now, Event::Refused, sender.0, receiver.0, run.bytes);
            return SendOutcome::Dropped;
        }
        self.counters.runs += 1;
        for (index, payload) in run.segments().enumerate() {
            self.counters.sent += 1;
            self.trace.record(self.now, Event::Sent, sender.0, receiver.0, payload);
            if self.drops(sender, receiver) {
                self.counters.paused += 1;
                continue;
            }
            let (now, mut counters) = (self.now, self.counters);
            let link = self.link(sender, receiver);
            let copies = link.apply(
                now,
                payload.len() + header_bytes,
                run.traffic_class,
                &faults,
                &mut counters,
            );
            self.counters = counters;
            for copy in copies.into_iter().flatten() {
                let mut payload = payload.to_vec();
                // The payload is not empty, because empty runs are refused.
                flip_bits(&mut payload, copy.flips, &mut self.link(sender, receiver).rng);
                let Run { from, from_port, to, .. } = *run;
                if let Some(port) = copy.source_port {
                    change_source_port(&mut payload, Flow { from, from_port, to }, port);
                }
                self.schedule(
                    copy.arrival,
                    Packet {
                        sender,
                        receiver,
                        from,
                        from_port: copy.source_port.unwrap_or(from_port),
                        to,
                        traffic_class: run.traffic_class | if copy.is_marked { ecn::CE } else { 0 },
                        identification: index as u16,
                        payload,
                    },
                );
            }
        }
        SendOutcome::Sent
    }

    fn schedule(&mut self, arrival: Time, packet: Packet) {
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            self.counters.overload += 1;
            return;
        }
        self.in_flight.push(arrival, packet);
    }

    /// Handles a packet that reaches the end of its link at `self.now`.
    fn arrive(&mut self, flight: Delayed<Packet>) {
        let Packet { sender, receiver, .. } = flight.item;
        if self.drops(sender, receiver) {
            self.counters.paused += 1;
            let payload = &flight.item.payload;
            self.trace.record(self.now, Event::Dropped, sender.0, receiver.0, payload);
            return;
        }
        if let Some(until) = self.held_until(sender, receiver) {
            self.counters.held += 1;
            self.trace.record(self.now, Event::Held, sender.0, receiver.0, &flight.item.payload);
            self.in_flight.put_back(flight, until);
            return;
        }
        let Some(node) = self.nodes.get_mut(receiver.0) else { return };
        let (event, overflow) = match node.buffer.push(flight.item, self.now, &node.config) {
            Ok(()) => (Event::Arrived, None),
            Err(packet) => (Event::Overflowed, Some(packet)),
        };
        self.counters.buffer_overflow += u64::from(overflow.is_some());
        self.trace.record(self.now, event, sender.0, receiver.0, &[]);
    }

    /// Reads `packets` packets from the buffer of `node`, and more if they are merged with the last
    /// one.
    fn read(&mut self, node: NodeId, packets: usize) -> VecDeque<Read> {
        let mut reads = VecDeque::new();
        let Some(Node { buffer, config, rng, .. }) = self.nodes.get_mut(node.0) else {
            return reads;
        };
        let mut taken = 0;
        while taken < packets {
            let Some(read) = buffer.read(config, rng) else { break };
            taken += read.segments;
            self.counters.reads += 1;
            self.counters.delivered += read.segments as u64;
            self.counters.merged += read.segments as u64 - 1;
            self.trace.record(self.now, Event::Read, node.0, read.segments, &read.bytes);
            reads.push_back(read);
        }
        reads
    }

    /// Returns the time of the next read of `node`, if packets are in its buffer.
    fn read_at(&self, node: NodeId) -> Option<Time> {
        let state = self.nodes.get(node.0)?;
        let wanted = state.buffer.wants_read_at(&state.config)?;
        Some(self.runs_from(node, wanted))
    }

    /// Returns the first time from `at` on at which no pause stops `node`.
    fn runs_from(&self, node: NodeId, at: Time) -> Time {
        let stops = |pause: &&Pause| {
            pause.scope == PauseScope::Node(node) && pause.packets == PausedPackets::Hold
        };
        let mut at = at;
        // Each iteration skips at least one pause.
        for _ in 0..=self.pauses.len() {
            match self.pauses.iter().filter(stops).find(|pause| pause.covers(at)) {
                Some(pause) => at = pause.until,
                None => break,
            }
        }
        at
    }

    fn drops(&self, from: NodeId, to: NodeId) -> bool {
        self.pauses.iter().any(|pause| {
            pause.packets == PausedPackets::Drop
                && pause.covers(self.now)
                && match pause.scope {
                    PauseScope::Node(node) => node == from || node == to,
                    PauseScope::Link { .. } => pause.scope == PauseScope::Link { from, to },
                }
        })
    }

    /// Returns the end of the pause that holds packets of this link now, if there is one.
    fn held_until(&self, from: NodeId, to: NodeId) -> Option<Time> {
        let holds = |pause: &&Pause| {
            pause.packets == PausedPackets::Hold
                && pause.scope == PauseScope::Link { from, to }
                && pause.covers(self.now)
        };
        self.pauses.iter().filter(holds).map(|pause| pause.until).max()
    }
}

/// The members of multicast groups.
#[derive(Debug, Default)]
pub(super) struct Membership {
    of: BTreeMap<IpAddr, BTreeSet<NodeId>>,
}

impl Membership {
    fn change(&mut self, node: NodeId, group: IpAddr, joins: bool) {
        let nodes = self.of.entry(group).or_default();
        match joins {
            true => nodes.insert(node),
            false => nodes.remove(&node),
        };
        if nodes.is_empty() {
            self.of.remove(&group);
        }
    }

    /// Returns the members of `group`, in order.
    fn of(&self, group: IpAddr) -> Vec<NodeId> {
        self.of.get(&group).into_iter().flatten().copied().collect()
    }
}

/// The group membership of a node, made by [`SimNetwork::groups_at`].
#[derive(Clone, Debug)]
pub struct SimGroups {
    network: SimNetwork,
    address: IpAddr,
}

impl JoinGroups for SimGroups {
    fn join(&self, group: IpAddr) -> Result<(), JoinError> {
        match self.network.change_group(self.address, group, true) {
            true => Ok(()),
            false => Err(JoinError::NoAddress { group }),
        }
    }

    fn leave(&self, group: IpAddr) {
        self.network.change_group(self.address, group, false);
    }
}
