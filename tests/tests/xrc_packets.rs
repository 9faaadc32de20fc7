//! Packets of an XRC queue pair, compared with those of scapy 2.8.0 for the same values.
//! `wire/tests/scapy.rs` explains the frames, and compares their ICRCs, which cover the ports.

use std::net::Ipv4Addr;

use urxe_stack::cq::SrqId;
use urxe_stack::device::DeviceConfig;
use urxe_stack::qp::attr::{QpAttr, QpState, QpType};
use urxe_stack::qp::work_request::{Destination, Payload, Remote, SendFlags, SendOp, SendRequest};
use urxe_test_support::host::{Host, HostOptions};
use urxe_test_support::qp::{attributes, request};
use urxe_test_support::wire::Wire;
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Gid, Psn, Qpn, Rkey};

/// The bytes from BTH to pad.
const XRC_SEND: &str = "a410ffff00000023800000010000034578726373656e6400";
const XRC_WRITE: &str =
    "ab20ffff00000024800000020000034500007f00112233440000123400000006deadbeef77696e646f770000";

/// Returns the first packet of a queue pair that is connected to `peer`.
fn packet(peer: u32, psn: u32, op: SendOp, data: &[u8]) -> String {
    let (own, other) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 7));
    let config = DeviceConfig::new(vec![Gid::from_ip(own.into())], 1);
    let options = HostOptions { qp_type: QpType::XrcSend, ..HostOptions::default() };
    let host = Host::with(own.into(), config, options);
    let attr = QpAttr { sq_psn: Psn::new(psn), ..attributes(other.into(), Qpn::masked(peer)) };
    host.bring_up((host.qp, QpType::XrcSend), &attr, QpState::Rts);
    let to = Destination::XrcSrq { srq: SrqId(0x345) };
    let payload = Payload::Inline(&[data]);
    let request = SendRequest { to, flags: SendFlags::INLINE, payload, ..request(op, &[]) };
    host.post_request(host.qp, &request).unwrap();
    let wire = Wire::default();
    host.transmit(&wire);
    let [sent] = &wire.take()[..] else { panic!("one run") };
    assert_eq!(sent.segments().count(), 1);
    sent.bytes[..sent.bytes.len() - ICRC_LEN].iter().map(|byte| format!("{byte:02x}")).collect()
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
