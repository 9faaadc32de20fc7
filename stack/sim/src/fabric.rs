//! Devices, the network and time, tied together in one thread.
//!
//! ```text
//!   loop: next of (packet arrival, read, device deadline) → receive → handle_timeouts → transmit_pending
//! ```
//!
//! A host that a held pause stops neither reads nor runs its timers; what it owes it does when
//! it resumes.

use std::net::IpAddr;

use thiserror::Error;

use super::counters::SimCounters;
use super::link_faults::NodeId;
use super::network::{AddNodeError, SimNetwork, SimPort};
use urxe_device::device::{Device, ReceiveScratch};
use urxe_types::port::Datagrams;
use urxe_types::sync::Arc;
use urxe_types::time::Time;

/// Rounds at one instant after which the time is said to stand still.
const MAX_ROUNDS_AT_ONE_TIME: u32 = 100_000;

/// What the fabric moves: packets and time in, packets and the next deadline out.
pub trait SimHost {
    /// Takes packets that arrived.
    fn receive(&mut self, now: Time, datagrams: &Datagrams<'_>);
    /// Does what is due at `now`.
    fn handle_timeouts(&mut self, now: Time);
    /// When [`handle_timeouts`](Self::handle_timeouts) is next due.
    fn next_deadline(&self) -> Option<Time>;
    /// Sends what can be sent at `now`.
    fn transmit_pending(&mut self, now: Time, port: &SimPort);
}

/// A [`Device`] as a host: with what a receiving thread keeps between datagrams.
#[derive(Debug)]
pub struct DeviceHost {
    device: Arc<Device>,
    scratch: ReceiveScratch,
}

impl DeviceHost {
    /// `device`, which others may use at the same time.
    #[must_use]
    pub fn new(device: Arc<Device>) -> Self {
        Self { device, scratch: ReceiveScratch::default() }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl SimHost for DeviceHost {
    fn receive(&mut self, now: Time, datagrams: &Datagrams<'_>) {
        self.device.receive(now, datagrams, &mut self.scratch);
    }

    fn handle_timeouts(&mut self, now: Time) {
        self.device.handle_timeouts(now);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.device.next_deadline()
    }

    fn transmit_pending(&mut self, now: Time, port: &SimPort) {
        self.device.transmit_pending(now, port);
    }
}

/// The time stood still: some host or link goes on for ever at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("time stands still at {at}: {MAX_ROUNDS_AT_ONE_TIME} rounds without an end")]
pub struct Stalled {
    /// The instant.
    pub at: Time,
}

/// Hosts on a network. A node's host is found by its [`NodeId`].
#[derive(Debug)]
pub struct Fabric<H> {
    network: SimNetwork,
    members: Vec<Member<H>>,
    rounds_at_now: u32,
}

#[derive(Debug)]
struct Member<H> {
    host: H,
    port: SimPort,
}

impl<H: SimHost> Fabric<H> {
    /// A fabric without hosts; everything random in it follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { network: SimNetwork::new(seed), members: Vec::new(), rounds_at_now: 0 }
    }

    /// Connects `host` with these addresses.
    ///
    /// # Errors
    /// If there is no address, or another host has one of them.
    pub fn add(&mut self, host: H, addresses: &[IpAddr]) -> Result<NodeId, AddNodeError> {
        let port = self.network.add_node(addresses)?;
        let node = port.node();
        self.members.push(Member { host, port });
        Ok(node)
    }

    /// The network, for its faults, pauses and counters. Only this fabric may add nodes and move
    /// its time.
    #[must_use]
    pub fn network(&self) -> &SimNetwork {
        &self.network
    }

    /// What became of the packets up to now.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.network.counters()
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.network.now()
    }

    /// The host of `node`, if `node` is of this fabric.
    #[must_use]
    pub fn host(&self, node: NodeId) -> Option<&H> {
        self.members.get(node.index()).map(|member| &member.host)
    }

    /// The host of `node`, to use it. What it has to send afterwards, it sends at the next step.
    pub fn host_mut(&mut self, node: NodeId) -> Option<&mut H> {
        self.members.get_mut(node.index()).map(|member| &mut member.host)
    }

    /// All hosts, in the order of their nodes.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &H> {
        self.members.iter().map(|member| &member.host)
    }

    /// When something next happens, if ever. What hosts can send at once they send with the next
    /// step.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        let due = self.members.iter().filter_map(|member| {
            let resumes = self.network.stopped_until(member.port.node());
            match (member.host.next_deadline(), resumes) {
                (Some(deadline), Some(resumes)) => Some(deadline.max(resumes)),
                (deadline, resumes) => deadline.or(resumes),
            }
        });
        due.chain(self.network.next_event()).min()
    }

    /// Lets all hosts send, then moves to the next event if it comes no later than `limit` and
    /// handles it. True if there was one; otherwise the time stays.
    ///
    /// # Errors
    /// If the time stands still.
    pub fn step(&mut self, limit: Time) -> Result<bool, Stalled> {
        self.transmit_pending();
        let before = self.now();
        let Some(next) =
            self.next_event().map(|next| next.max(before)).filter(|&next| next <= limit)
        else {
            return Ok(false);
        };
        self.rounds_at_now = if next > before { 0 } else { self.rounds_at_now + 1 };
        if self.rounds_at_now > MAX_ROUNDS_AT_ONE_TIME {
            return Err(Stalled { at: before });
        }
        self.network.advance(next);
        let Self { network, members, .. } = self;
        network.deliver(|node, datagrams| {
            if let Some(member) = members.get_mut(node.index()) {
                member.host.receive(next, datagrams);
            }
        });
        for member in self.running() {
            if member.host.next_deadline().is_some_and(|deadline| deadline <= next) {
                member.host.handle_timeouts(next);
            }
        }
        self.transmit_pending();
        Ok(true)
    }

    /// Runs up to and including `to`; the time is `to` afterwards.
    ///
    /// # Errors
    /// If the time stands still.
    pub fn run_until(&mut self, to: Time) -> Result<(), Stalled> {
        while self.step(to)? {}
        self.network.advance(to);
        Ok(())
    }

    /// Runs while `go_on` says so, asked before each step, and something happens up to `limit`.
    /// True if `go_on` ended it.
    ///
    /// # Errors
    /// If the time stands still.
    pub fn run_while(
        &mut self,
        limit: Time,
        mut go_on: impl FnMut(&mut Self) -> bool,
    ) -> Result<bool, Stalled> {
        loop {
            if !go_on(self) {
                return Ok(true);
            }
            if !self.step(limit)? {
                return Ok(!go_on(self));
            }
        }
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Member<H>> {
        let Self { network, members, .. } = self;
        members.iter_mut().filter(|member| network.stopped_until(member.port.node()).is_none())
    }

    fn transmit_pending(&mut self) {
        let now = self.now();
        for member in self.running() {
            member.host.transmit_pending(now, &member.port);
        }
    }
}
