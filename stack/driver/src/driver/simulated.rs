//! A device of a simulated network with its connections: the counterpart of an [`Engine`].
//!
//! ```text
//!   MADs to QP1 ──> SimulatedHost ──> Connections ──> events
//!   the program's calls ──────────────────^   └──> outbox ──> SimPort, in the next step
//!   next deadline of the fabric: the device's or that of the connections
//! ```
//!
//! No thread runs here: the fabric calls the host in each step of virtual time. MADs pass the same
//! links as data, so faults of the network apply to them. The device has its address alone, so each
//! request goes to its own connections.
//!
//! [`Engine`]: super::Engine

use std::net::{IpAddr, SocketAddr};

use urxe_wire::mad::ServiceId;
use urxe_wire::{Bth, Gid, Qpn, ROCE_PORT};

use super::connections::Connections;
use super::management::{self, ReceivedMad};
use super::outgoing_mads::{OutgoingMad, PACKET_MAX, Uplink, write_packet};
use super::ports::unmatched_packets;
use crate::cm::{CmConfig, CmTransmit};
use crate::cma::{DeviceKey, LocalDevice, System};
use crate::cq::Wake;
use crate::device::counters::Counter;
use crate::device::{Device, ReceiveScratch};
use crate::port::sharing::ListenError;
use crate::port::sim::{SimHost, SimPort};
use crate::port::{Datagrams, Run, Transmit};
use crate::qp::attr::PathMtu;
use crate::sync::{Arc, Mutex, lock};
use crate::time::Time;

/// The index of the only interface of a simulated host.
const INTERFACE: u32 = 1;

/// A device and its connections as a host of a fabric.
pub struct SimulatedHost {
    device: Arc<Device>,
    scratch: ReceiveScratch,
    connections: Arc<Connections>,
    key: DeviceKey,
    outbox: Arc<Outbox>,
}

impl SimulatedHost {
    /// Adds `device` to `connections`, whose clock must be that of the fabric. The host calls
    /// `wake` when a call of the program leaves a MAD to send or an earlier deadline.
    #[must_use]
    pub fn new(
        device: Arc<Device>,
        connections: Arc<Connections>,
        config: CmConfig,
        wake: Arc<dyn Wake>,
    ) -> Self {
        let outbox = Arc::new(Outbox { mads: Mutex::default(), wake });
        let local = Box::new(SimulatedDevice(Arc::clone(&device)));
        let key = connections.attach(local, config, (outbox.clone(), INTERFACE));
        let scratch = ReceiveScratch::collecting_unmatched();
        Self { device, scratch, connections, key, outbox }
    }
}

impl SimHost for SimulatedHost {
    fn receive(&mut self, now: Time, datagrams: &Datagrams<'_>) {
        let Self { device, scratch, connections, key, .. } = self;
        device.receive(now, datagrams, scratch);
        let mads: Vec<ReceivedMad> = unmatched_packets(datagrams, scratch.unmatched.as_ref())
            .filter_map(|packet| management_datagram(device, &packet))
            .collect();
        if !mads.is_empty() {
            connections.receive(*key, mads.into_iter());
        }
    }

    fn handle_timeouts(&mut self, now: Time) {
        self.device.handle_timeouts(now);
        self.connections.handle_timeout(now);
    }

    fn next_deadline(&self) -> Option<Time> {
        let connections = Some(self.connections.deadline()).filter(|at| *at != Time::NEVER);
        self.device.next_deadline().into_iter().chain(connections).min()
    }

    fn transmit_pending(&mut self, now: Time, port: &SimPort) {
        // A driver of sockets sends MADs within the call of the program.
        for mad in std::mem::take(&mut *lock(&self.outbox.mads)) {
            send(port, &mad);
        }
        self.device.transmit_pending(now, port);
    }
}

impl std::fmt::Debug for SimulatedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedHost")
            .field("device", &self.device)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// Removes a device from its connections when the value is dropped, as closing an engine does.
#[derive(Debug)]
pub struct Detach {
    connections: Arc<Connections>,
    key: DeviceKey,
}

impl Detach {
    /// Returns the value for a host's device.
    #[must_use]
    pub fn on_drop(host: &SimulatedHost) -> Self {
        Self { connections: Arc::clone(&host.connections), key: host.key }
    }

    /// Returns the key of the device among its connections.
    #[must_use]
    pub const fn key(&self) -> DeviceKey {
        self.key
    }
}

impl Drop for Detach {
    fn drop(&mut self) {
        self.connections.detach(self.key);
    }
}

/// The routes of a simulated host: each of its addresses reaches all addresses of the same IP
/// version.
#[derive(Clone, Debug)]
pub struct SimulatedRoutes {
    addresses: Vec<IpAddr>,
}

impl SimulatedRoutes {
    /// Returns the routes of a host with these addresses.
    #[must_use]
    pub fn new(addresses: &[IpAddr]) -> Self {
        Self { addresses: addresses.to_vec() }
    }
}

impl System for SimulatedRoutes {
    fn source_for(&self, from: Option<IpAddr>, to: SocketAddr) -> Result<IpAddr, i32> {
        let is_v4 = to.ip().to_canonical().is_ipv4();
        let own = self.addresses.iter().copied().find(|own| own.is_ipv4() == is_v4);
        from.or(own).ok_or(libc::ENETUNREACH)
    }

    fn interface_of(&self, address: IpAddr) -> Option<u32> {
        self.addresses.contains(&address).then_some(INTERFACE)
    }

    fn binds_v6_only(&self) -> bool {
        false
    }
}

/// The MADs of the connections that the next step sends.
struct Outbox {
    mads: Mutex<Vec<CmTransmit>>,
    wake: Arc<dyn Wake>,
}

impl Uplink for Outbox {
    fn send_mads(&self, mads: &[OutgoingMad], _: &mut Vec<u8>) {
        lock(&self.mads).extend(mads.iter().map(|mad| mad.transmit));
        self.wake.wake();
    }

    fn wake(&self) {
        self.wake.wake();
    }
}

/// The part of a simulated device that the core of the connections uses. No other process has its
/// address, so each claim succeeds.
struct SimulatedDevice(Arc<Device>);

impl LocalDevice for SimulatedDevice {
    fn gids(&self) -> Vec<Gid> {
        self.0.gids()
    }

    fn path_mtu(&self) -> PathMtu {
        self.0.active_mtu()
    }

    fn interface(&self) -> u32 {
        INTERFACE
    }

    fn claim(&self, _: Option<IpAddr>, _: ServiceId) -> Result<(), ListenError> {
        Ok(())
    }

    fn release(&self, _: Option<IpAddr>, _: ServiceId) {}
}

/// Returns the MAD in a packet that the device did not match. Drops and counts other packets.
fn management_datagram(device: &Device, packet: &Datagrams<'_>) -> Option<ReceivedMad> {
    let mad = management::destination(packet.bytes).and_then(|_| ReceivedMad::of(packet));
    if mad.is_none() {
        let is_for_management =
            Bth::dest_qp_of(packet.bytes).is_none_or(|qpn| qpn.value() <= Qpn::QP1.value());
        device.counters().add(match is_for_management {
            true => Counter::DropBadMad,
            false => Counter::DropOtherProcess,
        });
    }
    mad
}

fn send(port: &SimPort, mad: &CmTransmit) {
    let (from, to) = (mad.path.local.to_ip(), mad.path.remote.to_ip());
    let (from_port, traffic_class, hop_limit) = (ROCE_PORT, mad.traffic_class, 0);
    let mut packet = [0; PACKET_MAX];
    let Some(len) = write_packet((from, from_port), to, &mad.mad, 0, &mut packet) else {
        return tracing::debug!(%from, %to, "dropped a MAD: the addresses' IP versions differ");
    };
    let bytes = &packet[..len];
    port.transmit(&Run { from, from_port, to, bytes, segment_size: len, traffic_class, hop_limit });
}
