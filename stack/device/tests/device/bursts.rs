//! Bursts that the window admits as a whole, and runs filled by packets of many queue pairs.

use urxe_device::qp::attr::PathMtu;
use urxe_test_support::packet::ack;
use urxe_wire::PacketView;

use super::*;

const MTU: u32 = 1024;
/// The initial window in bytes, packet overhead included.
const WINDOW: u64 = 2 * 15 * (4096 + PACKET_OVERHEAD);

/// The bytes that a packet is charged beside its payload.
const PACKET_OVERHEAD: u64 = 64;

/// A device with some queue pairs. All are connected to numbers from 0x1000 on at one peer, which
/// is the test.
pub struct Sender {
    pub end: Host,
    pub qps: Vec<QpHandle>,
    pub wire: Wire,
}

/// A packet that was sent: its queue pair, and whether it requests an acknowledgement.
type Sent = (u32, bool);

impl Sender {
    pub fn new(count: usize) -> Self {
        let end = Host::new(A, 1);
        let qps: Vec<_> = (0..count).map(|_| end.create_qp()).collect();
        for (nr, qp) in qps.iter().enumerate() {
            end.connect_qp(*qp, number(nr), B);
        }
        let sender = Self { end, qps, wire: Wire::default() };
        assert!(sender.take().is_empty());
        sender
    }

    pub fn post(&self, nr: usize, op: SendOp, len: u32) {
        self.end.post_on(self.qps[nr], op, &[self.end.sge(0, len)]);
    }

    fn write(&self, nr: usize, len: u32) {
        self.post(nr, SendOp::Write { remote: self.end.remote(0) }, len);
    }

    /// Returns the packets that are sent now, by runs.
    pub fn take(&self) -> Vec<PacketRun> {
        self.end.transmit(&self.wire);
        self.wire.take()
    }

    /// Returns the queue pairs of the packets that are sent now, by runs.
    pub fn runs(&self) -> Vec<Vec<Sent>> {
        let sent = |packet: PacketView<'_>| (packet.dest_qp().value() - 0x1000, packet.ack_req());
        self.take().iter().map(|run| run.packets().map(sent).collect()).collect()
    }

    /// Delivers packets of the peer together, each for the queue pair of this place.
    pub fn receive(&self, packets: impl IntoIterator<Item = (usize, Packet)>) {
        let packets = packets.into_iter().map(|(nr, packet)| (self.qps[nr].qpn(), packet));
        let run = Packet::merge(B.into(), A.into(), packets);
        self.wire.deliver(&self.end.device, self.end.clock.now(), &run);
    }

    pub fn state(&self, nr: usize) -> QpState {
        self.end.state(self.qps[nr])
    }

    pub fn go_to(&self, nr: usize, state: QpState) {
        self.end.go_to(self.qps[nr], state);
    }
}

/// Returns the number of the peer's queue pair in this place.
pub fn number(nr: usize) -> Qpn {
    Qpn::masked(0x1000 + nr as u32)
}

/// Returns the charge for `packets` full packets.
fn charged(packets: usize) -> u64 {
    packets as u64 * (u64::from(MTU) + PACKET_OVERHEAD)
}

#[test]
fn a_burst_goes_on_over_the_end_of_a_run_and_of_a_message_and_asks_once() {
    let sender = Sender::new(1);
    sender.write(0, 5 * MTU);
    sender.post(0, SendOp::Send, 3 * MTU);
    // FIRST has a RETH and is the longest packet: only one can follow it in a run.
    let runs = sender.runs();
    assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [2, 6]);
    let asks: Vec<bool> = runs.concat().iter().map(|(_, asks)| *asks).collect();
    assert_eq!(asks, [false, false, false, false, false, false, false, true]);
}

#[test]
fn the_window_stops_whole_bursts_whose_last_packet_asked() {
    let sender = Sender::new(3);
    for nr in 0..3 {
        sender.post(nr, SendOp::Send, 1 << 20);
    }
    let packets = sender.runs().concat();
    assert!(
        charged(packets.len()) <= WINDOW && charged(packets.len() + 32) > WINDOW,
        "{}",
        packets.len()
    );
    for nr in 0..3 {
        let of_one: Vec<bool> =
            packets.iter().filter(|(of, _)| *of == nr).map(|(_, asks)| *asks).collect();
        assert!(of_one.last().is_none_or(|asks| *asks), "queue pair {nr}: {of_one:?}");
    }
    assert!(sender.runs().is_empty());
}

#[test]
fn first_packets_of_many_queue_pairs_share_a_run_and_so_do_those_that_follow() {
    const QPS: usize = 8;
    let sender = Sender::new(QPS);
    for nr in 0..QPS {
        sender.write(nr, 4 * MTU);
    }
    let runs = sender.runs();
    // A packet that follows closes the run of the first ones, and the others fill another.
    assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [QPS + 1, 3 * QPS - 1]);
    for nr in 0..QPS as u32 {
        let of_one: Vec<bool> =
            runs.concat().iter().filter(|(of, _)| *of == nr).map(|(_, asks)| *asks).collect();
        assert_eq!(of_one, [false, false, false, true], "queue pair {nr}");
    }
}

#[test]
fn packets_of_many_lengths_all_leave_and_each_queue_pair_keeps_its_order() {
    const QPS: usize = 40;
    let sender = Sender::new(QPS);
    for round in 0..4_u32 {
        for nr in 0..QPS {
            sender.post(nr, SendOp::Send, 1 + (nr as u32 * 37 + round * 101) % 900);
        }
    }
    let packets = sender.runs().concat();
    assert_eq!(packets.len(), 4 * QPS);
    for nr in 0..QPS as u32 {
        let last = packets.iter().rev().find(|(of, _)| *of == nr);
        assert_eq!(last, Some(&(nr, true)), "the last of queue pair {nr} asks");
    }
    assert!(sender.runs().is_empty());
}

#[test]
fn a_probe_passes_a_full_window() {
    let sender = Sender::new(1);
    for nr in 0..20 {
        sender.post(0, SendOp::Send, 1);
        assert_eq!(sender.runs().concat(), [(0, true)]);
        sender.end.clock.advance(50_000);
        sender.receive([(0, ack(qp::FIRST_PSN.add(nr).value()))]);
    }
    sender.post(0, SendOp::Send, 1 << 20);
    let sent = sender.runs().concat().len();
    assert!(charged(sent + 1) <= WINDOW && charged(sent + 32) > WINDOW, "{sent}");
    while sender.end.counter(Counter::TailProbes) == 0 {
        sender.end.clock.set(sender.end.device.next_deadline().unwrap());
        sender.end.device.handle_timeouts(sender.end.clock.now());
    }
    assert_eq!(sender.end.counter(Counter::CompleterRetryErr), 0, "no timer ran out");
    assert_eq!(sender.runs().concat(), [(0, true)]);
}

/// Returns the places of the packets that request an acknowledgement, and the number of packets.
fn places(sender: &Sender) -> (Vec<usize>, usize) {
    let packets = sender.runs().concat();
    ((0..packets.len()).filter(|&place| packets[place].1).collect(), packets.len())
}

#[test]
fn a_burst_over_many_messages_has_32_packets() {
    for (packets, asks) in [(1, vec![15]), (3, vec![31, 47]), (5, vec![31, 63, 79])] {
        let sender = Sender::new(1);
        for _ in 0..16 {
            sender.post(0, SendOp::Send, packets * MTU);
        }
        assert_eq!(places(&sender), (asks, 16 * packets as usize));
    }
}

#[test]
fn a_burst_over_many_messages_has_at_most_a_run_of_bytes() {
    // Fifteen packets of 4096 bytes are a run; a message of several packets may end it.
    let cases = [
        (vec![4096; 16], vec![14, 15]),
        ([vec![4096; 14], vec![1, 1]].concat(), vec![15]),
        ([vec![4096; 14], vec![4096, 1]].concat(), vec![14, 15]),
        ([vec![4096; 13], vec![2 * 4096 + 1, 1]].concat(), vec![14, 16]),
        ([vec![4096; 14], vec![3900, 140]].concat(), vec![14, 15]),
        ([vec![4096; 14], vec![3900, 132]].concat(), vec![15]),
    ];
    for (lengths, asks) in cases {
        let sender = requester::sender(Host::new(A, 1), PathMtu::Mtu4096);
        lengths.iter().for_each(|length| sender.post(0, SendOp::Send, *length));
        let (places, _) = places(&sender);
        assert_eq!(places, asks, "{lengths:?}");
    }
}

#[test]
fn a_burst_goes_on_only_if_the_window_has_room() {
    let sender = Sender::new(2);
    // Leaves room for one packet of the path MTU and a few bytes.
    sender.post(0, SendOp::Send, 113 * MTU);
    assert_eq!(sender.runs().concat().len(), 113);
    sender.post(1, SendOp::Send, MTU);
    sender.post(1, SendOp::Send, MTU);
    assert_eq!(sender.runs().concat(), [(1, true)]);
    assert_eq!(sender.end.device.bytes_in_flight(), (charged(114), 0));
}
