//! Acknowledgements of queue pairs whose packets came in one run: they leave their queue pairs and
//! wait at the path.

use urxe_test_support::packet::write_only;
use urxe_wire::Opcode;

use super::bursts::{Sender, number};
use super::*;

/// Delivers WRITEs of four bytes in one run: the queue pair, the number of the packet to it, and
/// whether the packet requests an acknowledgement.
fn receive(sender: &Sender, writes: &[(usize, u32, bool)]) {
    let Remote { addr, rkey } = sender.end.remote(0);
    sender.receive(writes.iter().map(|&(nr, n, ack_req)| {
        let psn = qp::FIRST_PSN.add(n).value();
        (nr, Packet { ack_req, ..write_only(psn, addr, rkey, &[1; 4]) })
    }));
}

/// Returns the runs that are sent now: of each packet, its queue pair and the packet that it
/// acknowledges.
fn sent(sender: &Sender) -> Vec<Vec<(usize, u32)>> {
    let of = |(dest_qp, packet): (Qpn, Packet)| {
        assert_eq!(packet.opcode, Opcode::RcAcknowledge);
        let psn = urxe_wire::Psn::new(packet.psn).steps_from(qp::FIRST_PSN);
        ((dest_qp.value() - 0x1000) as usize, psn)
    };
    sender.take().iter().map(|run| Packet::sent(run).map(of).collect()).collect()
}

#[test]
fn those_of_one_run_leave_in_one_run() {
    let sender = Sender::new(4);
    receive(&sender, &[(0, 0, true), (1, 0, true), (2, 0, false), (3, 0, true)]);
    assert_eq!(sent(&sender), [[(0, 0), (1, 0), (3, 0)]]);
    assert!(sent(&sender).is_empty(), "once");
}

#[test]
fn a_queue_pair_that_comes_up_twice_in_a_run_acknowledges_once() {
    let sender = Sender::new(2);
    receive(&sender, &[(0, 0, true), (1, 0, true), (0, 1, true), (1, 1, true), (0, 2, true)]);
    assert_eq!(sent(&sender), [[(0, 2), (1, 1)]]);
}

#[test]
fn a_run_for_one_queue_pair_leaves_its_acknowledgement_there_until_later_ones_take_its_place() {
    let sender = Sender::new(1);
    receive(&sender, &[(0, 0, true), (0, 1, true)]);
    receive(&sender, &[(0, 2, true)]);
    assert_eq!(sent(&sender), [[(0, 2)]]);
}

#[test]
fn executed_requests_are_acknowledged_even_if_the_queue_pair_fails() {
    let sender = Sender::new(2);
    receive(&sender, &[(0, 0, true), (1, 0, true)]);
    sender.go_to(0, QpState::Err);
    assert_eq!(sent(&sender), [[(0, 0), (1, 0)]]);
}

#[test]
fn a_path_without_users_forgets_its_acknowledgements() {
    let sender = Sender::new(2);
    receive(&sender, &[(0, 0, true), (1, 0, true)]);
    for qp in &sender.qps {
        sender.end.device.destroy_qp(Time::ZERO, *qp).unwrap();
    }
    let other = sender.end.create_qp();
    // Uses the free path.
    sender.end.connect_qp(other, number(7), Ipv4Addr::new(10, 0, 0, 3));
    assert!(sent(&sender).is_empty());
}

#[test]
fn as_many_as_a_system_call_is_worth_wait_for_nothing() {
    let sender = Sender::new(40);
    let run: Vec<_> = (0..40).map(|nr| (nr, 0, true)).collect();
    receive(&sender, &run[..20]);
    sender.end.device.transmit_urgent(Time::ZERO, &sender.wire);
    assert!(sender.wire.is_empty());
    receive(&sender, &run[20..]);
    sender.end.device.transmit_urgent(Time::ZERO, &sender.wire);
    assert_eq!(sender.wire.len(), 1);
}
