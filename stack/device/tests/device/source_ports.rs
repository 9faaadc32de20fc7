//! Source ports of packets to an address of several processes: one for each process.

use std::mem::take;

use urxe_device::device::qpn::{MANAGEMENT_SLOT, SLOT_SHIFT, peer_slot};
use urxe_wire::QKey;

use super::*;

const FIRST: u16 = 50_000;

/// The peer slots of the paths that a device has opened. The source port shows the slot.
#[derive(Clone, Default)]
pub struct OpenedPaths(Arc<Mutex<Vec<u8>>>);

impl SourcePorts for OpenedPaths {
    fn source_port(&self, _local: IpAddr, peer_slot: u8) -> u16 {
        self.0.lock().unwrap().push(peer_slot);
        FIRST + u16::from(peer_slot)
    }
}

impl OpenedPaths {
    /// Returns the slots of the paths opened since the last call.
    pub fn take(&self) -> Vec<u8> {
        take(&mut *self.0.lock().unwrap())
    }
}

/// Returns a host of this service, and the paths that it opens.
pub fn host(qp_type: QpType) -> (Host, OpenedPaths) {
    let opened = OpenedPaths::default();
    let mut config = DeviceConfig::new(vec![Gid::from_ip(A.into())], 1);
    config.source_ports = Box::new(opened.clone());
    (Host::with(A.into(), config, HostOptions { qp_type, ..HostOptions::default() }), opened)
}

fn of_slot(slot: u32, number: u32) -> Qpn {
    Qpn::masked(slot << SLOT_SHIFT | number)
}

/// Sends a message to each of these queue pairs. Returns source port and destination of each
/// packet; the ICRC was made for that port.
fn send(host: &Host, ah: AhHandle, to: &[Qpn]) -> Vec<(u16, Qpn)> {
    for &qpn in to {
        let (to, flags) = (to_qp(ah, qpn, QKey(7)), SendFlags::INLINE);
        let payload = Payload::Inline(&[b"to one of many"]);
        let request = SendRequest { to, flags, payload, ..request(SendOp::Send, &[]) };
        host.post_request(host.qp, &request).unwrap();
    }
    let wire = Wire::default();
    host.transmit(&wire);
    let runs = wire.take();
    runs.iter().flat_map(|run| Packet::sent(run).map(|(qpn, _)| (run.from_port, qpn))).collect()
}

#[test]
fn datagrams_to_each_process_of_a_peer_come_from_a_port_of_their_own() {
    let (host, opened) = host(QpType::Ud);
    start(&host, host.qp, QpType::Ud);
    let ah = host.ah(B.into());
    let to = [
        of_slot(3, 9),
        of_slot(5, 9),
        of_slot(3, 8),
        of_slot(0, 2),
        Qpn::QP1,
        of_slot(63, 1),
        of_slot(5, 9),
    ];
    let sent = send(&host, ah, &to);
    assert_eq!(sent, to.map(|qpn| (FIRST + u16::from(peer_slot(qpn)), qpn)));
    assert_eq!(peer_slot(Qpn::QP1), MANAGEMENT_SLOT);
    // The paths are opened once and closed with the handle.
    let mut slots = opened.take();
    assert_eq!(slots.len(), 5);
    host.device.destroy_ah(ah).unwrap();
    send(&host, host.ah(B.into()), &to);
    let mut again = opened.take();
    slots.sort_unstable();
    again.sort_unstable();
    assert_eq!(again, slots, "each is opened anew");
}

#[test]
fn a_group_is_one_destination_although_its_number_looks_like_a_slot() {
    let (host, opened) = host(QpType::Ud);
    start(&host, host.qp, QpType::Ud);
    let ah = host.ah([239, 1, 2, 3].into());
    let port = FIRST + u16::from(MANAGEMENT_SLOT);
    assert_eq!(send(&host, ah, &[Qpn::MULTICAST]), [(port, Qpn::MULTICAST)]);
    assert_eq!(opened.take().len(), 1);
}

#[test]
fn connections_to_each_process_of_a_peer_have_a_port_of_their_own() {
    let (host, opened) = host(QpType::Rc);
    for slot in [0, 7, 63] {
        host.connect_qp(host.create_qp(), of_slot(slot, 1234), B);
    }
    assert_eq!(opened.take(), [0, 7, 63]);
}
