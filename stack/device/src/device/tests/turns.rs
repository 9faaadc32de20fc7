//! Whose turn it is when many wait for room in a budget of their path.

use urxe_wire::{Aeth, Bth, Ext, IcrcSeed, Msn, Opcode, PacketRepr, Psn, Reth, Rkey, Syndrome};

use super::bursts::Sender;
use super::*;

const MTU: u32 = 1024;
/// Packets of a burst, and so of what is sent or not sent in one go.
const BURST: usize = 32;

/// Acknowledges the first `packets` packets of queue pair `nr`.
fn acknowledge(sender: &Sender, nr: usize, packets: usize) {
    let psn = sender.end.device.query_qp(sender.qps[nr]).unwrap().sq_psn.add(packets as u32 - 1);
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::masked(0) };
    receive(sender, Bth::new(Opcode::RcAcknowledge, sender.qps[nr].qpn(), psn), Ext::Aeth(aeth));
}

/// Tells queue pair `nr` that its packet behind the first `packets` has not come.
fn miss(sender: &Sender, nr: usize, packets: usize) {
    let psn = sender.end.device.query_qp(sender.qps[nr]).unwrap().sq_psn.add(packets as u32);
    let aeth =
        Aeth { syndrome: Syndrome::Nak(urxe_wire::NakCode::PsnSequence), msn: Msn::masked(0) };
    receive(sender, Bth::new(Opcode::RcAcknowledge, sender.qps[nr].qpn(), psn), Ext::Aeth(aeth));
}

fn receive(sender: &Sender, bth: Bth, ext: Ext) {
    let seed = IcrcSeed::new(B.into(), ROCE_PORT, A.into(), ROCE_PORT).unwrap();
    let mut bytes = vec![0; 64];
    let end = PacketRepr::new(bth, ext).emit(&[], &mut bytes).unwrap();
    let len = seed.append(0, &mut bytes, end).unwrap();
    let packets =
        Packets { from: B.into(), to: A.into(), bytes: bytes[..len].to_vec(), segment_size: len };
    sender.end.device.receive(Time::ZERO, &packets.arrived(), &mut ReceiveScratch::default());
}

/// The queue pairs whose packets leave now, each once for those in a row, and how many those are.
fn turns(sender: &Sender) -> Vec<(u32, usize)> {
    let mut turns: Vec<(u32, usize)> = Vec::new();
    for (nr, _) in sender.runs().concat() {
        match turns.last_mut() {
            Some((last, count)) if *last == nr => *count += 1,
            _ => turns.push((nr, 1)),
        }
    }
    turns
}

/// Queue pairs of which the first fills the window, and the second has a burst to send.
fn full() -> Sender {
    let sender = Sender::new(10);
    sender.post(0, SendOp::Send, 3 * BURST as u32 * MTU);
    assert_eq!(turns(&sender), [(0, 3 * BURST)]);
    sender.post(1, SendOp::Send, BURST as u32 * MTU);
    assert_eq!(turns(&sender), []);
    sender
}

#[test]
fn who_waits_gets_room_in_order() {
    let sender = full();
    for nr in 2..10 {
        sender.post(nr, SendOp::Send, BURST as u32 * MTU);
        assert_eq!(turns(&sender), []);
    }
    acknowledge(&sender, 0, BURST);
    assert_eq!(turns(&sender), [(1, BURST)]);
    acknowledge(&sender, 0, 3 * BURST);
    assert_eq!(turns(&sender)[0].0, 2);
}

#[test]
fn short_messages_that_come_later_go_before_who_waits_a_few_times_and_then_behind_it() {
    let sender = full();
    let later = pass_over(&sender);
    acknowledge(&sender, 0, BURST);
    assert_eq!(turns(&sender), [(1, BURST), (later as u32, 1)]);
}

#[test]
fn who_comes_late_answers_at_once_and_sends_when_its_turn_comes() {
    let sender = full();
    let later = pass_over(&sender);
    let mut write = Bth::new(Opcode::RcWriteOnly, sender.qps[later].qpn(), Psn::new(0xff_fffe));
    write.ack_req = true;
    receive(&sender, write, Ext::Reth(Reth { va: 0, rkey: Rkey(0), dma_len: 0 }));
    assert_eq!(turns(&sender), [(later as u32, 1)], "the acknowledgement");
    sender.post(later, SendOp::Send, 1);
    assert_eq!(turns(&sender), []);
    acknowledge(&sender, 0, 3 * BURST);
    let turns = turns(&sender);
    assert_eq!((turns[0], turns[1]), ((1, BURST), (later as u32, 2)));
}

#[test]
fn who_comes_late_and_starts_over_sends_what_it_posts_then() {
    let sender = full();
    let later = pass_over(&sender);
    for _ in 0..3 {
        let attr = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
        sender
            .end
            .device
            .modify_qp(Time::ZERO, sender.qps[later], &attr, QpAttrMask::STATE)
            .unwrap();
        sender.end.connect_qp(sender.qps[later], Qpn::masked(0x1000 + later as u32), B);
        sender.post(later, SendOp::Send, 1);
    }
    assert_eq!(turns(&sender), []);
    acknowledge(&sender, 0, 3 * BURST);
    let sent: usize =
        turns(&sender).iter().filter(|(nr, _)| *nr == later as u32).map(|(_, count)| count).sum();
    assert_eq!(sent, 1, "what was posted before is forgotten");
}

#[test]
fn who_comes_late_and_moves_to_another_path_sends_there_at_once() {
    let sender = full();
    let later = pass_over(&sender);
    let attr = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
    sender.end.device.modify_qp(Time::ZERO, sender.qps[later], &attr, QpAttrMask::STATE).unwrap();
    sender.end.connect_qp(
        sender.qps[later],
        Qpn::masked(0x1000 + later as u32),
        Ipv4Addr::new(10, 0, 0, 3),
    );
    sender.post(later, SendOp::Send, 1);
    assert_eq!(turns(&sender), [(later as u32, 1)]);
}

#[test]
fn who_gives_way_to_one_that_is_gone_gets_its_turn_at_once() {
    let sender = full();
    let later = pass_over(&sender);
    let attr = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
    sender.end.device.modify_qp(Time::ZERO, sender.qps[1], &attr, QpAttrMask::STATE).unwrap();
    sender.post(9, SendOp::Send, 1);
    assert_eq!(turns(&sender), [(later as u32, 1), (9, 1)]);
}

/// Lets others send short messages until they have to wait for the second; returns the first that
/// had to.
fn pass_over(sender: &Sender) -> usize {
    let mut before = 0;
    let later = loop {
        // Each has room for sixteen.
        let later = 2 + before / 16;
        sender.post(later, SendOp::Send, 1);
        match turns(sender)[..] {
            [(nr, 1)] if nr as usize == later => before += 1,
            [] => break later,
            ref other => panic!("{other:?}"),
        }
    };
    assert!(before > 10, "there was room for short ones: {before}");
    later
}

#[test]
fn what_is_sent_again_goes_before_those_that_wait() {
    let sender = full();
    miss(&sender, 0, 1);
    let turns = turns(&sender);
    assert_eq!(turns[0].0, 0, "{turns:?}");
    assert!(turns[0].1 >= 2 * BURST, "{turns:?}");
}

#[test]
fn who_waits_to_read_holds_up_nobody_who_writes_nor_the_other_way_round() {
    let sender = full();
    let read = SendOp::Read { remote: sender.end.remote(0) };
    while !turns(&sender).is_empty() || sender.end.device.bytes_in_flight().1 == 0 {
        sender.post(2, read, 1 << 20);
    }
    sender.post(3, read, 1 << 20);
    let asked = sender.end.device.bytes_in_flight().1;
    assert_eq!(turns(&sender), []);
    assert_eq!(sender.end.device.bytes_in_flight().1, asked, "the budget of reads is used up");
    acknowledge(&sender, 0, 3 * BURST);
    let turns = turns(&sender);
    assert!(turns.contains(&(1, BURST)), "{turns:?}");
    assert!(turns.iter().all(|(nr, _)| *nr < 2), "{turns:?}");
}

#[test]
fn thousands_that_wait_all_get_their_turn_in_their_order() {
    const QPS: usize = 500;
    let sender = Sender::new(QPS);
    for nr in 0..QPS {
        sender.post(nr, SendOp::Send, BURST as u32 * MTU);
    }
    let (mut order, mut sent) = (Vec::new(), vec![0; QPS]);
    for answered in 0..QPS {
        for (nr, packets) in turns(&sender) {
            if sent[nr as usize] == 0 {
                order.push(nr);
            }
            sent[nr as usize] += packets;
        }
        let nr = order[answered] as usize;
        assert_eq!(sent[nr], BURST, "queue pair {nr}, after {answered} acknowledgements");
        acknowledge(&sender, nr, BURST);
    }
    assert!(order.is_sorted(), "{order:?}");
}
