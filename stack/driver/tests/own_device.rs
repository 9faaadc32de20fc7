//! Datagrams of a device to itself, over its socket and without a socket.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use urxe_stack::cq::{Completion, Cq, WcOpcode, WcStatus};
use urxe_stack::device::QpHandle;
use urxe_stack::driver::{Engine, EngineConfig};
use urxe_stack::link::LinkSpec;
use urxe_stack::memory::{Access, Buffer, PdId};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{AddressVector, QpAttr, QpState, QpType};
use urxe_stack::qp::work_request::{Destination, Payload, RecvRequest, SendOp, SendRequest, Sge};
use urxe_test_support::qp::{address_vector, bring_up_by, datagram_attributes, init, request};
use urxe_wire::QKey;

const QKEY: QKey = QKey(0x1234);
/// Bytes before each message.
const HEADER: usize = 40;
/// Bytes of a receive.
const ROOM: usize = 128;
const MESSAGES: u64 = 16;

fn started(engine: &Engine, pd: PdId, cq: &Arc<Cq>) -> QpHandle {
    let init = QpInit { sq_sig_all: true, ..init(QpType::Ud, pd, cq) };
    let qp = engine.device().create_qp(&init).unwrap();
    let modify = |attr: &QpAttr, mask| engine.modify_qp(qp, attr, mask);
    bring_up_by(QpType::Ud, &datagram_attributes(QKEY), QpState::Rts, modify).unwrap();
    qp
}

fn next(engine: &Engine, cq: &Cq) -> Completion {
    let (start, mut out) = (Instant::now(), [Completion::default()]);
    while engine.poll(cq, &mut out).unwrap() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "no completion");
    }
    assert_eq!(out[0].status, WcStatus::Success);
    out[0]
}

/// Sends from one queue pair of the device to another, and to itself. Returns how many packets were
/// sent directly, and how many in all.
fn exchange(address: Ipv4Addr, direct: bool) -> (u64, u64) {
    let spec: LinkSpec = format!("rxe0={address}").parse().unwrap();
    let engine = Engine::open(&spec, EngineConfig { direct, ..EngineConfig::default() }).unwrap();
    let device = engine.device();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(64, None, 0).unwrap();
    let (from, other) = (started(&engine, pd, &cq), started(&engine, pd, &cq));
    let buffer = Arc::new(Buffer::new(ROOM).unwrap());
    let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
    let mr = device.memory().register_buffer(pd, &buffer, 0..ROOM, 0, access).unwrap();
    let attr = AddressVector { hop_limit: 64, ..address_vector(address.into()) };
    let ah = device.create_ah(pd, &attr).unwrap();
    for wr_id in 0..MESSAGES {
        for to in [other, from] {
            let sges = [Sge { addr: 0, length: ROOM as u32, lkey: mr.lkey }];
            engine.post_recv(to, &[RecvRequest { wr_id, sges: &sges }]).unwrap();
            let text = wr_id.to_le_bytes();
            let request = SendRequest {
                wr_id,
                to: Destination::Datagram { ah, qpn: to.qpn(), qkey: QKEY },
                payload: Payload::Inline(&[&text]),
                ..request(SendOp::Send, &[])
            };
            engine.post_send(from, &[request]).unwrap();
            let mut both = [next(&engine, &cq), next(&engine, &cq)];
            both.sort_by_key(|completion| completion.opcode == WcOpcode::Recv);
            let [sent, received] = both;
            assert_eq!((sent.opcode, sent.wr_id), (WcOpcode::Send, wr_id));
            assert_eq!((received.opcode, received.wr_id), (WcOpcode::Recv, wr_id));
            assert_eq!((received.src_qp, received.qp_num), (from.qpn(), to.qpn()));
            assert_eq!(received.byte_len as usize, HEADER + text.len());
            let mut bytes = [0; HEADER + 8];
            buffer.read(0, &mut bytes).unwrap();
            let ip = address.octets();
            assert_eq!(
                (&bytes[32..36], &bytes[36..40], &bytes[40..]),
                (&ip[..], &ip[..], &text[..])
            );
        }
    }
    let counters = engine.ports().map(|port| port.counters());
    counters.fold((0, 0), |(direct, sent), of| (direct + of.sent_directly, sent + of.sent_packets))
}

#[test]
fn datagrams_to_the_own_device_come_back_directly() {
    let all = 2 * MESSAGES;
    assert_eq!(exchange(Ipv4Addr::new(127, 77, 5, 1), true), (all, all));
}

#[test]
fn datagrams_to_the_own_device_come_back_over_its_socket() {
    assert_eq!(exchange(Ipv4Addr::new(127, 77, 5, 2), false), (0, 2 * MESSAGES));
}
