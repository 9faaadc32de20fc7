//! One device of a simulated run, with its program's memory and queue pairs, and the injected bugs
//! that change its packets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use urxe_stack::cq::Cq;
use urxe_stack::device::{Device, DeviceConfig, IcrcPolicy, QpHandle};
use urxe_stack::memory::{Access, Buffer, Mr, PdId};
use urxe_stack::port::Datagrams;
use urxe_stack::port::sim::{DeviceHost, SimHost, SimPort};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpCap, QpState, QpType};
use urxe_stack::qp::work_request::{Remote, Sge};
use urxe_stack::rng::{Probability, Rng};
use urxe_stack::time::Time;
use urxe_test_support::qp::{self, REMOTE, bring_up};
use urxe_test_support::wire::PacketRun;
use urxe_wire::{Gid, PacketView, Psn, Qpn};

use super::keys::{self, Window};
use super::plan::{
    ConnectionPlan, CqSharing, EndId, EndPlan, Piece, Place, Plan, Queue, RegionPlan, Role,
};

/// A bug of the stack, injected to test the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// Flips a bit of some received payloads and recomputes the ICRC.
    FlipPayload(Probability),
    /// Moves the address in some received RETHs by a little and recomputes the ICRC.
    MoveAddress(Probability),
    /// Delivers some received requests again with the next PSN.
    RepeatAsNew(Probability),
    /// Changes bytes outside the registered regions when packets arrive.
    StrayWrite(Probability),
    /// Binds a type 1 window again under the same key.
    KeepKeys,
}

/// A device, its program's memory and its queue pairs.
#[derive(Debug)]
pub struct Host {
    host: DeviceHost,
    /// The registered regions, in the order of the plan.
    pub mrs: Vec<Mr>,
    /// The queue pairs, by end.
    pub qps: BTreeMap<EndId, HostQp>,
    pd: PdId,
    address: IpAddr,
    /// The windows over regions, by region.
    pub(super) windows: BTreeMap<usize, Window>,
    bug: Option<(InjectedBug, Rng)>,
    /// The memory. Declared last, so that the device, which refers to the memory, is dropped first.
    memory: Arc<Buffer>,
}

/// A queue pair and its completion queues.
#[derive(Clone, Debug)]
pub struct HostQp {
    /// The queue pair.
    pub handle: QpHandle,
    /// Completions of sends.
    pub send_cq: Arc<Cq>,
    /// Completions of receives.
    pub recv_cq: Arc<Cq>,
}

/// Returns the address of a device of a plan.
#[must_use]
pub fn address(plan: &Plan, device: usize) -> IpAddr {
    urxe_test_support::simulation::address(device as u8 + 1, plan.devices[device].ipv6)
}

impl Host {
    /// Creates device `device` of `plan`, with filled and registered memory and queue pairs.
    ///
    /// # Panics
    /// If the stack refuses an object of the plan.
    #[must_use]
    pub fn new(plan: &Plan, device: usize, bug: Option<InjectedBug>) -> Self {
        let device_plan = &plan.devices[device];
        let address = address(plan, device);
        let seed = Rng::stream(plan.seed, 0x2_0000 + device as u64).next_u64();
        let mut config = DeviceConfig::new(vec![Gid::from_ip(address)], seed);
        config.icrc_policy = IcrcPolicy::Strict;
        let core = Device::new(config);
        let memory = Arc::new(Buffer::new(device_plan.memory_bytes).expect("a few MiB of memory"));
        memory.write(0, &plan.initial_image(device)).expect("the image is as long as the memory");
        let pd = core.alloc_pd().expect("the first protection domain");
        let mut mrs: Vec<Mr> = device_plan
            .regions
            .iter()
            .map(|region| match region.role {
                Role::Disposable => keys::fast_region(&core, pd, &memory, region),
                Role::Windowed | Role::Rebound => {
                    keys::region_for_window(&core, pd, &memory, region)
                }
                _ => register(&core, pd, &memory, region),
            })
            .collect();
        let qps = create_qps(plan, device, &core, pd);
        let windows = keys::bind_windows(plan, &core, &qps, &mut mrs);
        Self {
            host: DeviceHost::new(Arc::new(core)),
            mrs,
            qps,
            pd,
            address,
            windows,
            bug: bug.map(|bug| (bug, Rng::stream(seed, 1))),
            memory,
        }
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        self.host.device()
    }

    /// Returns the device's address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns whether windows keep their keys, as an injected bug.
    pub(super) fn keeps_keys(&self) -> bool {
        matches!(self.bug, Some((InjectedBug::KeepKeys, _)))
    }

    /// Returns the protection domain.
    #[must_use]
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// Returns bytes of the program's memory.
    ///
    /// # Panics
    /// If the range is outside the memory.
    #[must_use]
    pub fn read(&self, range: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        self.memory.read(range.start, &mut bytes).expect("a range of the memory");
        bytes
    }

    /// Returns a piece of memory as a scatter-gather entry.
    #[must_use]
    pub fn sge(&self, piece: Piece) -> Sge {
        let mr = &self.mrs[piece.region];
        Sge {
            addr: mr.iova.wrapping_add(piece.offset as u64),
            length: piece.len as u32,
            lkey: mr.lkey,
        }
    }

    /// Returns a place in memory as a peer addresses it.
    #[must_use]
    pub fn remote(&self, place: Place) -> Remote {
        let mr = &self.mrs[place.region];
        Remote { addr: mr.iova.wrapping_add(place.offset as u64), rkey: mr.rkey }
    }

    /// Brings the queue pair of `end` to RTS.
    ///
    /// # Panics
    /// If the device refuses a transition.
    pub fn connect(&self, plan: &Plan, end: EndId, peer_qpn: Qpn) {
        let connection = &plan.connections[end.connection];
        let (own, peer) = (plan.end(end), plan.end(end.peer()));
        let attr = attributes(connection, own, peer, address(plan, peer.device), peer_qpn);
        let qp = (self.qps[&end].handle, QpType::Rc);
        bring_up(self.device(), Time::ZERO, qp, &attr, QpState::Rts)
            .unwrap_or_else(|refused| panic!("{end}: {refused}"));
    }

    fn receive_with_bug(&mut self, now: Time, datagrams: &Datagrams<'_>) {
        let Some((bug, rng)) = &mut self.bug else { return };
        for packet in datagrams.segments() {
            let mut bytes = packet.to_vec();
            let mut again = None;
            match *bug {
                InjectedBug::FlipPayload(chance) if rng.chance(chance) => {
                    flip_payload(&mut bytes, rng)
                }
                InjectedBug::MoveAddress(chance) if rng.chance(chance) => move_address(&mut bytes),
                InjectedBug::RepeatAsNew(chance) if rng.chance(chance) => {
                    again = with_next_psn(&bytes)
                }
                InjectedBug::StrayWrite(chance) if rng.chance(chance) => {
                    let byte = [rng.next_u32() as u8];
                    // No region of any plan contains the first bytes.
                    self.memory.write(rng.index(60), &byte).expect("the first bytes");
                }
                _ => {}
            }
            for bytes in std::iter::once(bytes).chain(again) {
                let (is_other, segment_size) = (bytes != packet, bytes.len());
                let mut run = PacketRun::new(datagrams.from, datagrams.to, bytes, segment_size);
                run.from_port = datagrams.from_port;
                if is_other {
                    run.seal();
                }
                let bytes = &run.bytes;
                self.host.receive(now, &Datagrams { bytes, segment_size, ..*datagrams });
            }
        }
    }
}

impl SimHost for Host {
    fn receive(&mut self, now: Time, datagrams: &Datagrams<'_>) {
        if self.bug.is_some() {
            self.receive_with_bug(now, datagrams);
        } else {
            self.host.receive(now, datagrams);
        }
    }

    fn handle_timeouts(&mut self, now: Time) {
        self.host.handle_timeouts(now);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.host.next_deadline()
    }

    fn transmit_pending(&mut self, now: Time, port: &SimPort) {
        self.host.transmit_pending(now, port);
    }
}

pub(super) fn access(role: Role) -> Access {
    let local = Access::LOCAL_WRITE;
    match role {
        Role::Source => Access::empty(),
        Role::Destination => local,
        Role::Target => local | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::FLUSH_GLOBAL,
        Role::Cells | Role::SharedCells => local | Access::REMOTE_ATOMIC,
        Role::Disposable | Role::Windowed | Role::Rebound => local | Access::REMOTE_WRITE,
    }
}

fn register(device: &Device, pd: PdId, memory: &Arc<Buffer>, region: &RegionPlan) -> Mr {
    let range = region.range.clone();
    let (_, iova, flag) = keys::start(region.naming, memory.addr().wrapping_add(range.start));
    let access = access(region.role) | flag;
    device
        .memory()
        .register_buffer(pd, memory, range, iova, access)
        .unwrap_or_else(|error| panic!("{region:?}: {error}"))
}

fn create_qps(plan: &Plan, device: usize, core: &Device, pd: PdId) -> BTreeMap<EndId, HostQp> {
    let mut shared: BTreeMap<(Option<EndId>, bool), Arc<Cq>> = BTreeMap::new();
    let entries: u32 = plan.ends().map(|(_, end)| end.send_depth + end.recv_depth).sum();
    let mut qps = BTreeMap::new();
    for (id, end) in plan.ends().filter(|(_, end)| end.device == device) {
        let [send_cq, recv_cq] = [Queue::Send, Queue::Recv].map(|queue| {
            let key = match plan.devices[device].cqs {
                CqSharing::OnePerDevice => (None, false),
                CqSharing::OnePerQp => (Some(id), false),
                CqSharing::OnePerQueue => (Some(id), queue == Queue::Recv),
            };
            let cq = shared.entry(key).or_insert_with(|| {
                core.create_cq(entries, None, 0)
                    .unwrap_or_else(|error| panic!("completion queue: {error}"))
            });
            Arc::clone(cq)
        });
        let init = QpInit {
            recv_cq: Arc::clone(&recv_cq),
            cap: QpCap {
                max_send_wr: end.send_depth,
                max_recv_wr: end.recv_depth,
                max_send_sge: end.max_sge,
                max_recv_sge: end.max_sge,
                max_inline_data: end.max_inline,
            },
            sq_sig_all: end.all_signaled,
            ..qp::init(QpType::Rc, pd, &send_cq)
        };
        let handle = core.create_qp(&init).unwrap_or_else(|error| panic!("{id}: {error}"));
        qps.insert(id, HostQp { handle, send_cq, recv_cq });
    }
    qps
}

/// Returns the attributes for the transitions to RTS.
fn attributes(
    connection: &ConnectionPlan,
    own: &EndPlan,
    peer: &EndPlan,
    peer_address: IpAddr,
    peer_qpn: Qpn,
) -> QpAttr {
    let attr = qp::attributes(peer_address, peer_qpn);
    QpAttr {
        access_flags: Access::LOCAL_WRITE | REMOTE | Access::FLUSH_GLOBAL,
        ah: AddressVector { hop_limit: 64, ..attr.ah },
        path_mtu: PathMtu::at_most(connection.mtu).unwrap_or_default(),
        rq_psn: Psn::new(peer.first_psn),
        sq_psn: Psn::new(own.first_psn),
        max_dest_rd_atomic: own.max_dest_rd_atomic,
        max_rd_atomic: own.max_rd_atomic,
        min_rnr_timer: own.min_rnr_timer,
        timeout: own.timeout,
        ..attr
    }
}

fn flip_payload(bytes: &mut [u8], rng: &mut Rng) {
    let Ok(packet) = PacketView::parse(bytes) else { return };
    let payload = packet.payload();
    if payload.is_empty() {
        return;
    }
    let start = packet.info().headers_len();
    let at = start + rng.index(payload.len());
    bytes[at] ^= 1 << rng.index(8);
}

fn move_address(bytes: &mut [u8]) {
    let Ok(packet) = PacketView::parse(bytes) else { return };
    if packet.reth().is_some_and(|reth| reth.dma_len > 16) {
        // In every packet of a reliable connection, the RETH follows the BTH and starts with the
        // address.
        bytes[12 + 7] ^= 1;
    }
}

fn with_next_psn(bytes: &[u8]) -> Option<Vec<u8>> {
    let packet = PacketView::parse(bytes).ok()?;
    packet.info().is_request.then(|| {
        let mut again = bytes.to_vec();
        again[9..12].copy_from_slice(&packet.psn().next().to_be_bytes());
        again
    })
}
