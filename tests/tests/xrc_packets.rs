//! What an XRC queue pair sends is what another implementation makes of the same values: scapy
//! 2.8.0, whose frames and how they were made stand in `wire/tests/scapy.rs`. ICRCs are compared
//! there, since they cover the ports.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use urxe_stack::cq::SrqId;
use urxe_stack::device::{Device, DeviceConfig};
use urxe_stack::port::{Run, SendOutcome, Transmit};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_stack::qp::transition;
use urxe_stack::qp::wr::{Destination, Payload, Remote, SendFlags, SendOp, SendRequest};
use urxe_stack::time::Time;
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Gid, Psn, Qpn, Rkey};

/// From BTH to pad.
const XRC_SEND: &str = "a410ffff00000023800000010000034578726373656e6400";
const XRC_WRITE: &str =
    "ab20ffff00000024800000020000034500007f00112233440000123400000006deadbeef77696e646f770000";

#[derive(Default)]
struct Sent(Mutex<Vec<Vec<u8>>>);

impl Transmit for Sent {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        self.0.lock().unwrap().extend(run.segments().map(<[u8]>::to_vec));
        SendOutcome::Sent
    }
}

/// The one packet that a queue pair connected to `peer` sends first.
fn packet(peer: u32, psn: u32, op: SendOp, data: &[u8]) -> String {
    let (own, other) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 7));
    let device = Device::new(DeviceConfig::new(vec![Gid::from_ip(IpAddr::V4(own))], 1));
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(8, None, 0).unwrap();
    let cap = QpCap {
        max_send_wr: 4,
        max_recv_wr: 0,
        max_send_sge: 1,
        max_recv_sge: 0,
        max_inline_data: 64,
    };
    let (send_cq, recv_cq) = (Arc::clone(&cq), cq);
    let init =
        QpInit { qp_type: QpType::XrcSend, pd, send_cq, recv_cq, srq: None, cap, sq_sig_all: true };
    let qp = device.create_qp(&init).unwrap();
    let attr = QpAttr {
        port_num: 1,
        path_mtu: PathMtu::Mtu1024,
        dest_qp_num: Qpn::masked(peer),
        sq_psn: Psn::new(psn),
        max_rd_atomic: 1,
        timeout: 14,
        ah: AddressVector {
            dgid: Gid::from_ip(IpAddr::V4(other)),
            is_global: true,
            port_num: 1,
            ..AddressVector::default()
        },
        ..QpAttr::default()
    };
    for (from, to) in [
        (QpState::Reset, QpState::Init),
        (QpState::Init, QpState::Rtr),
        (QpState::Rtr, QpState::Rts),
    ] {
        let mask =
            transition::attributes(from, to, QpType::XrcSend).unwrap().required | QpAttrMask::STATE;
        device.modify_qp(Time::ZERO, qp, &QpAttr { qp_state: to, ..attr }, mask).unwrap();
    }
    let to = Destination::XrcSrq { srq: SrqId(0x345) };
    let payload = Payload::Inline(&[data]);
    let request = SendRequest { wr_id: 1, op, to, flags: SendFlags::INLINE, payload };
    device.post_send(Time::ZERO, qp, &[request]).unwrap();
    let sent = Sent::default();
    device.transmit_pending(Time::ZERO, &sent);
    let sent = sent.0.into_inner().unwrap();
    assert_eq!(sent.len(), 1);
    sent[0][..sent[0].len() - ICRC_LEN].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_send_names_its_queue_behind_the_bth() {
    assert_eq!(packet(0x23, 1, SendOp::Send, b"xrcsend"), XRC_SEND);
}

#[test]
fn a_write_names_its_queue_before_its_target() {
    let remote = Remote { addr: 0x7f00_1122_3344, rkey: Rkey(0x1234) };
    assert_eq!(
        packet(0x24, 2, SendOp::WriteImm { remote, imm: 0xdead_beef }, b"window"),
        XRC_WRITE
    );
}
