//! The MADs of real kernels (Linux 6.12 as client, Linux 6.1 as server), received and sent.

use std::path::Path;

use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError, traits::PcapReaderIterator};
use urxe_wire::mad::{
    Attribute, Bits, CmMessage, CommId, Guid, Mad, PrivateData, Rep, Req, Rtu, SidrRep, SidrReq,
};
use urxe_wire::{Frame, Gid, PacketView, Qpn};

use crate::cm::table::CmState;
use crate::cm::{CmConfig, CmEventKind, CmPath, CmRoute, ConnectionManager};
use urxe_types::time::Time;

/// Returns the MADs of a capture with their path as the receiver sees it.
fn captured(name: &str) -> Vec<(CmPath, Mad)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wire/testdata").join(name);
    let bytes = std::fs::read(file).unwrap();
    let mut reader = LegacyPcapReader::new(1 << 20, &bytes[..]).unwrap();
    let mut mads = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                if let PcapBlockOwned::Legacy(block) = block
                    && let Ok(frame) = Frame::parse(block.data)
                    && let Ok(packet) = PacketView::parse(frame.udp_payload)
                    && packet.bth().dest_qp == Qpn::QP1
                {
                    let path = CmPath::new(frame.repr.dst.ip(), frame.repr.src.ip());
                    mads.push((path, Mad::parse(packet.payload()).unwrap()));
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return mads,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(e) => panic!("{e:?}"),
        }
    }
}

fn find(mads: &[(CmPath, Mad)], attribute: Attribute) -> (CmPath, Mad) {
    *mads.iter().find(|(_, mad)| mad.message.attribute() == attribute).unwrap()
}

fn manager(guid: Guid) -> ConnectionManager {
    ConnectionManager::new(CmConfig::new(0, 1, guid))
}

fn sent(cm: &mut ConnectionManager) -> (CmPath, Mad) {
    let transmit = cm.poll_transmit().unwrap();
    assert_eq!(cm.poll_transmit(), None);
    (transmit.path, Mad::parse(&transmit.mad).unwrap())
}

/// The REP and the following replies to a kernel equal those of a kernel, except for ids.
#[test]
fn answers_to_a_kernel_are_those_of_a_kernel() {
    for capture in ["rping.pcap", "ucmatose.pcap", "rdma_cs.pcap", "cmtime.pcap", "rstream.pcap"] {
        let mads = captured(capture);
        let (path, req) = find(&mads, Attribute::Req);
        let (_, rep) = find(&mads, Attribute::Rep);
        let (_, rtu) = find(&mads, Attribute::Rtu);
        let (CmMessage::Req(requested), CmMessage::Rep(want)) = (req.message, rep.message) else {
            panic!()
        };
        let mut cm = manager(want.local_ca_guid);
        cm.listen(requested.service_id, Some(path.local), 8).unwrap();
        cm.receive(Time::ZERO, path, &req.to_bytes());
        let event = cm.poll_event().unwrap();
        assert!(matches!(event.kind, CmEventKind::Request { mad, .. } if mad == req), "{capture}");
        // The values that the program chooses.
        let program = Rep {
            local_qpn: want.local_qpn,
            starting_psn: want.starting_psn,
            responder_resources: want.responder_resources,
            initiator_depth: want.initiator_depth,
            rnr_retry_count: want.rnr_retry_count,
            srq: want.srq,
            end_to_end_flow_control: want.end_to_end_flow_control,
            private_data: want.private_data,
            ..Rep::default()
        };
        cm.accept(Time::ZERO, event.id, program, 0).unwrap();
        let (to, got) = sent(&mut cm);
        let want = Rep { local_comm_id: event.id, ..want };
        assert_eq!((to, got), (path, Mad { message: want.into(), ..rep }), "{capture}");
        // The kernel's RTU, with this side's id.
        let CmMessage::Rtu(kernels) = rtu.message else { panic!() };
        let rtu = Mad { message: Rtu { remote_comm_id: event.id, ..kernels }.into(), ..rtu };
        cm.receive(Time::ZERO, path, &rtu.to_bytes());
        assert_eq!(cm.state(event.id), Some(CmState::Established), "{capture}");
        let agreed = cm.agreed(event.id).unwrap();
        assert_eq!(
            (agreed.remote_qpn, agreed.sq_psn),
            (requested.local_qpn, requested.starting_psn)
        );
        assert_eq!((agreed.local_qpn, agreed.rq_psn), (want.local_qpn, want.starting_psn));
        assert_eq!(
            (agreed.path_mtu.value(), agreed.ack_timeout, agreed.retry_count),
            (3, 17, requested.retry_count)
        );
    }
}

/// The REQ for the values of a kernel's program equals the kernel's, except for ids and flow label.
/// The kernel's REP is accepted.
#[test]
fn a_req_like_a_kernels_is_the_kernels() {
    for capture in ["rping.pcap", "ucmatose.pcap", "rdma_cs.pcap", "cmtime.pcap", "rstream.pcap"] {
        let mads = captured(capture);
        let (from_server, kernels) = find(&mads, Attribute::Req);
        let path = CmPath { local: from_server.remote, remote: from_server.local };
        let CmMessage::Req(want) = kernels.message else { panic!() };
        let mut cm = manager(want.local_ca_guid);
        let program = Req {
            service_id: want.service_id,
            local_qpn: want.local_qpn,
            starting_psn: want.starting_psn,
            responder_resources: want.responder_resources,
            initiator_depth: want.initiator_depth,
            remote_cm_response_timeout: Bits::masked(20),
            local_cm_response_timeout: Bits::masked(20),
            max_cm_retries: Bits::masked(15),
            retry_count: want.retry_count,
            rnr_retry_count: want.rnr_retry_count,
            path_mtu: Bits::masked(3),
            pkey: want.pkey,
            srq: want.srq,
            end_to_end_flow_control: want.end_to_end_flow_control,
            primary_flow_label: want.primary_flow_label,
            primary_traffic_class: want.primary_traffic_class,
            primary_hop_limit: 64,
            private_data: want.private_data,
            ..Req::default()
        };
        let route = CmRoute { path, packet_life_time: Bits::masked(16) };
        let id = cm.connect(Time::ZERO, route, program, 0, false).unwrap();
        let (to, got) = sent(&mut cm);
        assert_eq!(
            (to, got.message),
            (path, Req { local_comm_id: id, ..want }.into()),
            "{capture}"
        );

        let (_, rep) = find(&mads, Attribute::Rep);
        let CmMessage::Rep(answer) = rep.message else { panic!() };
        let rep = Mad { message: Rep { remote_comm_id: id, ..answer }.into(), tid: got.tid, ..rep };
        cm.receive(Time::ZERO, path, &rep.to_bytes());
        assert_eq!(cm.state(id), Some(CmState::RepRcvd), "{capture}");
        cm.confirm(Time::ZERO, id, PrivateData::NONE).unwrap();
        let (_, rtu) = sent(&mut cm);
        let want =
            Rtu { local_comm_id: id, remote_comm_id: answer.local_comm_id, ..Rtu::default() };
        assert_eq!((rtu.tid, rtu.message), (got.tid, want.into()), "{capture}");
        let agreed = cm.agreed(id).unwrap();
        assert_eq!((agreed.remote_qpn, agreed.sq_psn), (answer.local_qpn, answer.starting_psn));

        let (_, dreq) = find(&mads, Attribute::Dreq);
        cm.disconnect(Time::ZERO, id, PrivateData::NONE).unwrap();
        let (_, ours) = sent(&mut cm);
        let (CmMessage::Dreq(ours), CmMessage::Dreq(_)) = (ours.message, dreq.message) else {
            panic!()
        };
        assert_eq!(
            (ours.remote_qpn, ours.remote_comm_id),
            (answer.local_qpn, answer.local_comm_id)
        );
    }
}

#[test]
fn a_rej_without_a_listener_equals_the_kernels_byte_for_byte() {
    let mads = captured("reject.pcap");
    let (path, req) = find(&mads, Attribute::Req);
    let (_, want) = find(&mads, Attribute::Rej);
    let mut cm = manager(Guid(1));
    cm.receive(Time::ZERO, path, &req.to_bytes());
    assert_eq!(cm.poll_transmit().unwrap().mad, want.to_bytes());
    assert!(cm.is_idle());

    // The kernel's REJ for this side's request.
    let back = CmPath { local: path.remote, remote: path.local };
    let route = CmRoute { path: back, packet_life_time: Bits::masked(16) };
    let id = cm.connect(Time::ZERO, route, super::pair::request(1), 0, false).unwrap();
    let CmMessage::Rej(rej) = want.message else { panic!() };
    let rej = Mad::new(want.tid, urxe_wire::mad::Rej { remote_comm_id: id, ..rej });
    cm.receive(Time::ZERO, back, &rej.to_bytes());
    assert_eq!(cm.state(id), Some(CmState::Idle));
}

#[test]
fn a_sidr_rep_equals_the_kernels_byte_for_byte() {
    let mads = captured("udaddy.pcap");
    let (path, req) = find(&mads, Attribute::SidrReq);
    let (_, want) = find(&mads, Attribute::SidrRep);
    let (CmMessage::SidrReq(requested), CmMessage::SidrRep(answer)) = (req.message, want.message)
    else {
        panic!()
    };
    let mut cm = manager(Guid(1));
    cm.listen(requested.service_id, None, 8).unwrap();
    cm.receive(Time::ZERO, path, &req.to_bytes());
    let event = cm.poll_event().unwrap();
    let rep = SidrRep { request_id: CommId::NONE, ..answer };
    cm.send_sidr_rep(Time::ZERO, event.id, rep).unwrap();
    assert_eq!(sent(&mut cm), (path, want));
    // After a repeated request, the reply is the same, and the program receives no event.
    cm.receive(Time::ZERO, path, &req.to_bytes());
    assert_eq!(sent(&mut cm), (path, want));
    assert_eq!(cm.poll_event(), None);

    let mut client = manager(Guid(2));
    let program = SidrReq { request_id: CommId::NONE, ..requested };
    let back = CmPath { local: path.remote, remote: path.local };
    let id = client.send_sidr_req(Time::ZERO, (back, 0), program, 1, 1).unwrap();
    let (_, ours) = sent(&mut client);
    assert_eq!(ours.message, SidrReq { request_id: id, ..requested }.into());
    let rep = Mad::new(ours.tid, SidrRep { request_id: id, ..answer });
    client.receive(Time::ZERO, back, &rep.to_bytes());
    let event = client.poll_event().unwrap();
    assert_eq!(event.kind, CmEventKind::Message(rep));
    assert_eq!(Gid::from(path.local.to_ip()), path.local);
}
