//! The event loop, which drives hosts, the network and virtual time in one thread.
//!
//! ```text
//!   loop: next of (packet arrival, read, device deadline)
//!         → receive → handle_timeouts → transmit_pending
//! ```
//!
//! A host that is stopped by a pause neither reads packets nor runs timers. When it resumes, the
//! host handles the packets and timers that became due meanwhile.

use std::net::IpAddr;

use thiserror::Error;

use super::counters::SimCounters;
use super::link_faults::NodeId;
use super::network::{AddNodeError, SimNetwork, SimPort};
use urxe_device::device::{Device, ReceiveScratch};
use urxe_types::port::Datagrams;
use urxe_types::sync::Arc;
use urxe_types::time::Time;

/// The number of steps at one time after which the time counts as stalled.
const MAX_ROUNDS_AT_ONE_TIME: u32 = 100_000;

/// A host in the fabric. Packets and the time go in; packets and the next deadline come out.
pub trait SimHost {
    /// Handles received packets.
    fn receive(&mut self, now: Time, datagrams: &Datagrams<'_>);
    /// Runs all timers that are due at `now`.
    fn handle_timeouts(&mut self, now: Time);
    /// Returns the time of the next call of [`handle_timeouts`](Self::handle_timeouts).
    fn next_deadline(&self) -> Option<Time>;
    /// Sends all packets that can be sent at `now`.
    fn transmit_pending(&mut self, now: Time, port: &SimPort);
}

/// A [`Device`] as a host, with the scratch state of a receiving thread.
#[derive(Debug)]
pub struct DeviceHost {
    device: Arc<Device>,
    scratch: ReceiveScratch,
}

impl DeviceHost {
    /// Returns a host for `device`. Other threads may use the device at the same time.
    #[must_use]
    pub fn new(device: Arc<Device>) -> Self {
        Self { device, scratch: ReceiveScratch::default() }
    }

    /// Returns the device.
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

/// The time does not advance: a host or link has an unlimited number of events at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("virtual time does not advance at {at}: {MAX_ROUNDS_AT_ONE_TIME} steps at one time")]
#[non_exhaustive]
pub struct Stalled {
    /// The time at which the fabric stalled.
    pub at: Time,
}

/// Hosts in a network. A [`NodeId`] identifies a host.
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
    /// Returns a fabric without hosts. All random decisions follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { network: SimNetwork::new(seed), members: Vec::new(), rounds_at_now: 0 }
    }

    /// Adds a host with these addresses.
    ///
    /// # Errors
    /// Fails with [`AddNodeError`] if there is no address, or if another host has one of them.
    pub fn add(&mut self, host: H, addresses: &[IpAddr]) -> Result<NodeId, AddNodeError> {
        let port = self.network.add_node(addresses)?;
        let node = port.node();
        self.members.push(Member { host, port });
        Ok(node)
    }

    /// Returns the network, for its faults, pauses and counters. Only this fabric may add nodes and
    /// advance the time.
    #[must_use]
    pub fn network(&self) -> &SimNetwork {
        &self.network
    }

    /// Returns the counters of packets.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.network.counters()
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.network.now()
    }

    /// Returns the host of `node`, if the node belongs to this fabric.
    #[must_use]
    pub fn host(&self, node: NodeId) -> Option<&H> {
        self.members.get(node.index()).map(|member| &member.host)
    }

    /// Returns the host of `node`, if the node belongs to this fabric. Its pending packets are sent
    /// in the next step.
    pub fn host_mut(&mut self, node: NodeId) -> Option<&mut H> {
        self.members.get_mut(node.index()).map(|member| &mut member.host)
    }

    /// Returns the sending half of `node`, if the node belongs to this fabric. It is for packets
    /// that leave before the next step.
    #[must_use]
    pub fn port(&self, node: NodeId) -> Option<&SimPort> {
        self.members.get(node.index()).map(|member| &member.port)
    }

    /// Returns an iterator over all hosts, in the order of their nodes.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &H> {
        self.members.iter().map(|member| &member.host)
    }

    /// Returns the time of the next event. Packets that hosts can send at once do not count as
    /// events; the next step sends them.
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

    /// Sends the pending packets of all hosts, and returns the time of the next event, which is not
    /// in the past.
    pub fn next_deadline(&mut self) -> Option<Time> {
        self.transmit_pending();
        let now = self.now();
        self.next_event().map(|next| next.max(now))
    }

    /// Sends the pending packets of all hosts, then runs the next event unless it comes after
    /// `limit`. Returns whether there was such an event. Without one, the time does not change.
    ///
    /// # Errors
    /// Fails with [`Stalled`] if the time does not advance.
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

    /// Runs all events up to and including `to`. The time is then `to`.
    ///
    /// # Errors
    /// Fails with [`Stalled`] if the time does not advance.
    pub fn run_until(&mut self, to: Time) -> Result<(), Stalled> {
        while self.step(to)? {}
        self.network.advance(to);
        Ok(())
    }

    /// Runs while `go_on` returns true and events occur up to `limit`. Returns whether `go_on`
    /// returned false. `go_on` is called before each step.
    ///
    /// # Errors
    /// Fails with [`Stalled`] if the time does not advance.
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
