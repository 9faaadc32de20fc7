//! A READ response has the data from before the next request, even if both arrive together. The
//! kernel's `rdma_rxe` reads all data of a READ before it executes the next request.

use urxe_stack::cq::WcStatus::Success;
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{PathMtu, QpAttr, QpState, QpType};
use urxe_test_support::lab::{
    DESTINATION, Lab, MTU, PEER, PEER_QPN, Packet, TARGET, answered, atomic_response, atomic_write,
    compare_swap, fetch_add, lab, read_request, read_response, request, reth, send_only,
    write_only,
};
use urxe_test_support::qp::attributes;
use urxe_wire::{Ext, Ieth, ImmDt, NakCode, Opcode, Psn, Qpn, Rkey, Syndrome};

use Opcode::{RcReadResponseOnly, RcSendOnlyInv, RcWriteOnlyImm};

const ACK: Syndrome = Syndrome::ACK;
const SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequence);
/// Two READs of this length exceed the data that a queue pair saves (64 KiB).
const LONG: usize = 40 << 10;
const LONG_PACKETS: u32 = (LONG / MTU) as u32;

fn response(psn: u32, msn: u32, data: &[u8]) -> Packet {
    read_response(RcReadResponseOnly, psn, msn, data)
}

#[test]
fn a_request_that_arrives_with_a_read_does_not_change_its_data() {
    let key = |lab: &Lab| lab.mr.rkey;
    type Case = (&'static str, fn(&Lab, Rkey) -> Packet);
    let cases: [Case; 5] = [
        ("WRITE", |_, key| write_only(101, TARGET, key, b"12345678")),
        ("WRITE before the READ's last byte", |_, key| {
            write_only(101, TARGET + 7, key, b"12345678")
        }),
        ("FETCH ADD", |_, key| fetch_add(101, TARGET, key, 1)),
        ("COMPARE SWAP", |lab, key| compare_swap(101, TARGET, key, lab.word(TARGET), 1)),
        ("ATOMIC WRITE", |_, key| atomic_write(101, TARGET, key, *b"12345678")),
    ];
    for (name, request) in cases {
        let lab = lab();
        let before = lab.memory(TARGET, 8);
        lab.receive(read_request(100, TARGET, key(&lab), 8));
        lab.receive(request(&lab, key(&lab)));
        assert_ne!(lab.memory(TARGET, 8), before, "{name}: executed before the response is sent");
        let sent = lab.sent();
        assert_eq!(sent[0], response(100, 1, &before), "{name}");
        assert_eq!(sent[1].psn, 101, "{name}");
        assert_eq!(sent.len(), 2, "{name}");
    }
}

/// An atomic of 8 bytes changes the middle of a READ, and the next READ has the new data.
#[test]
fn each_read_has_the_data_of_its_place() {
    let lab = lab();
    let key = lab.mr.rkey;
    let before = lab.memory(TARGET, 24);
    let word = lab.word(TARGET + 8);
    lab.receive(read_request(100, TARGET, key, 24));
    lab.receive(fetch_add(101, TARGET + 8, key, 1));
    lab.receive(read_request(102, TARGET, key, 24));
    lab.receive(write_only(103, TARGET + 16, key, b"12345678"));
    let mut between = before.clone();
    between[8..16].copy_from_slice(&word.wrapping_add(1).to_ne_bytes());
    lab.expect([
        response(100, 1, &before),
        atomic_response(101, 2, word),
        response(102, 3, &between),
        answered(103, ACK, 4),
    ]);
    assert_eq!(lab.memory(TARGET + 16, 8), b"12345678");
}

/// The peer lost the response, and reads again. The second response has the data of that time.
#[test]
fn a_repeated_read_reads_again() {
    let lab = lab();
    let key = lab.mr.rkey;
    let before = lab.memory(TARGET, 8);
    lab.receive(read_request(100, TARGET, key, 8));
    lab.receive(write_only(101, TARGET, key, b"12345678"));
    lab.expect([response(100, 1, &before), answered(101, ACK, 2)]);
    lab.deliver(read_request(100, TARGET, key, 8));
    lab.expect([response(100, 1, b"12345678")]);
}

#[test]
fn a_send_with_invalidate_does_not_end_the_key_of_a_read_before_it() {
    let lab = lab();
    let (memory, page) = (lab.device.memory(), TARGET as usize..TARGET as usize + 4096);
    let key = memory.alloc_fast(lab.pd, 1).unwrap();
    memory.map_fast_buffers(key, &[(&lab.buffer, page)], 4096, TARGET).unwrap();
    memory.register_fast(key, Access::REMOTE_READ, lab.pd).unwrap();
    let before = lab.memory(TARGET, 8);
    lab.post_recv(1, 64);
    lab.receive(read_request(100, TARGET, key, 8));
    lab.receive(request(RcSendOnlyInv, 101, Ext::Ieth(Ieth { rkey: key }), b"done"));
    // The program uses the memory again.
    lab.write(TARGET, b"12345678");
    lab.expect([response(100, 1, &before), answered(101, ACK, 2)]);
    lab.expect_recvs([(1, Success)]);
}

#[test]
fn a_message_that_the_program_sees_does_not_change_the_data_of_a_read_before_it() {
    let messages: [fn(Rkey) -> Packet; 2] = [
        |_| send_only(101, b"done"),
        |key| {
            let Ext::Reth(reth) = reth(DESTINATION, key, 4) else { unreachable!() };
            request(RcWriteOnlyImm, 101, Ext::RethImm(reth, ImmDt { data: 7 }), b"done")
        },
    ];
    for message in messages {
        let lab = lab();
        let before = lab.memory(TARGET, 8);
        lab.post_recv(1, 64);
        lab.receive(read_request(100, TARGET, lab.mr.rkey, 8));
        lab.receive(message(lab.mr.rkey));
        lab.write(TARGET, b"12345678");
        lab.expect([response(100, 1, &before), answered(101, ACK, 2)]);
        lab.expect_recvs([(1, Success)]);
    }
}

/// A request that changes more data than are saved is executed after the responses.
#[test]
fn a_write_to_long_reads_is_requested_again_behind_them() {
    let lab = lab();
    let key = lab.mr.rkey;
    let before = lab.memory(0, LONG);
    let psn = 100 + 2 * LONG_PACKETS;
    let write = write_only(psn, 0, key, b"12345678");
    lab.receive(read_request(100, 0, key, LONG));
    lab.receive(read_request(100 + LONG_PACKETS, 0, key, LONG));
    lab.receive(write);
    lab.receive(write_only(psn + 1, 8, key, b"12345678"));
    assert_eq!(lab.memory(0, LONG), before, "not executed yet");
    let mut sent = lab.sent();
    assert_eq!(sent.pop(), Some(answered(psn, SEQUENCE, 2)), "the NAK follows the responses");
    let data: Vec<u8> = sent.iter().flat_map(|packet| packet.payload.clone()).collect();
    assert_eq!(data, [before.clone(), before].concat());
    lab.deliver(write_only(psn, 0, key, b"12345678"));
    lab.expect([answered(psn, ACK, 3)]);
    assert_eq!(lab.memory(0, 8), b"12345678");
}

#[test]
fn a_write_to_other_memory_does_not_wait_for_long_reads() {
    let lab = lab();
    let key = lab.mr.rkey;
    let psn = 100 + 2 * LONG_PACKETS;
    lab.receive(read_request(100, 0, key, LONG));
    lab.receive(read_request(100 + LONG_PACKETS, 0, key, LONG));
    lab.receive(write_only(psn, LONG as u64, key, b"12345678"));
    assert_eq!(lab.memory(LONG as u64, 8), b"12345678");
    assert_eq!(lab.sent().pop(), Some(answered(psn, ACK, 3)));
}

/// The key ends before the response is sent, and no request saved the data.
#[test]
fn a_read_whose_key_ended_is_still_refused() {
    let lab = lab();
    let mr = lab.mr_with(Access::REMOTE_READ);
    lab.receive(read_request(100, TARGET, mr.rkey, 8));
    lab.device.memory().deregister(mr.lkey).unwrap();
    lab.receive(write_only(101, TARGET, lab.mr.rkey, b"12345678"));
    let access = Syndrome::Nak(NakCode::RemoteAccess);
    lab.expect([answered(100, access, 0)]);
}

/// The data of a READ takes room once, and two of this length have none.
#[test]
fn a_second_change_of_a_read_saves_nothing_more() {
    let lab = lab();
    let (key, psn) = (lab.mr.rkey, 100 + LONG_PACKETS);
    let before = lab.memory(0, LONG);
    lab.receive(read_request(100, 0, key, LONG));
    lab.receive(write_only(psn, 0, key, b"12345678"));
    lab.receive(write_only(psn + 1, 8, key, b"87654321"));
    assert_eq!(lab.memory(0, 16), b"1234567887654321");
    let sent = lab.sent();
    assert_eq!(sent.last(), Some(&answered(psn + 1, ACK, 3)));
    assert!(sent.iter().flat_map(|packet| &packet.payload).eq(&before));
}

#[test]
fn reset_forgets_the_saved_data_of_a_read() {
    let lab = lab();
    let key = lab.mr.rkey;
    lab.receive(read_request(100, TARGET, key, 8));
    lab.receive(write_only(101, TARGET, key, b"12345678"));
    lab.go_to(QpState::Reset);
    let attr = QpAttr {
        path_mtu: PathMtu::Mtu256,
        rq_psn: Psn::new(100),
        ..attributes(PEER, Qpn::masked(PEER_QPN))
    };
    lab.bring_up((lab.qp, QpType::Rc), &attr, QpState::Rts);
    lab.deliver(read_request(100, TARGET, key, 8));
    lab.expect([response(100, 1, b"12345678")]);
}
