//! Groups over real sockets on the loopback interface, where IPv4 groups work for every user. IPv6
//! groups need a route there; their test (`tests/on_the_wire.rs`) makes its own interface.

use std::net::UdpSocket;
use std::sync::atomic::AtomicU32;

use urxe_test_support::qp::datagram_attributes;
use urxe_wire::{QKey, ROCE_PORT};

use super::*;
use crate::device::multicast::AttachMcastError;
use crate::port::groups::JoinError;
use crate::port::tap::Tap;
use crate::qp::attr::{AddressVector, QpCap};
use crate::qp::work_request::AhHandle;

const QKEY: QKey = QKey(0x4d43);
const GRH: u32 = 40;

/// Returns a group of this process, because other tests may run on the same interface.
fn group(test: u8) -> IpAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    IpAddr::from([239, 200 + test, high, low])
}

/// Returns addresses in 127.64.0.0/10, starting at a point that differs by process.
fn loopback_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let host = std::process::id().wrapping_mul(67).wrapping_add(nth) % (1 << 22);
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 64, 0, 0).to_bits() + host)
}

struct Member {
    engine: Engine,
    pd: PdId,
    cq: Arc<Cq>,
    qp: Vec<QpHandle>,
    buffer: Arc<Buffer>,
    mr: Mr,
}

impl Member {
    fn new(queue_pairs: usize) -> Self {
        Self::with(queue_pairs, over_sockets())
    }

    fn with(queue_pairs: usize, config: EngineConfig) -> Self {
        let engine = open(loopback_address(), config).unwrap();
        let device = engine.device();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(1024, None, 0).unwrap();
        let buffer = Arc::new(Buffer::new(1 << 20).unwrap());
        let mr = register(device, pd, &buffer);
        let qp = (0..queue_pairs).map(|_| started(&engine, pd, &cq)).collect();
        Self { engine, pd, cq, qp, buffer, mr }
    }

    fn ah(&self, group: IpAddr) -> AhHandle {
        let attr = AddressVector { hop_limit: 1, ..address_vector(group) };
        self.engine.device().create_ah(self.pd, &attr).unwrap()
    }

    fn attach(&self, group: IpAddr) -> Result<(), AttachMcastError> {
        self.qp
            .iter()
            .try_for_each(|&qp| self.engine.device().attach_mcast(qp, Gid::from_ip(group)))
    }

    fn listen(&self, group: IpAddr, receives: u64) {
        self.attach(group).unwrap();
        for &qp in &self.qp {
            for wr_id in 0..receives {
                let sges =
                    [Sge { addr: self.mr.iova + 64 * wr_id, length: 64, lkey: self.mr.lkey }];
                self.engine.post_recv(qp, &[RecvRequest { wr_id, sges: &sges }]).unwrap();
            }
        }
    }

    /// Sends numbered messages of 16 bytes, several a call.
    fn send(&self, group: IpAddr, numbers: std::ops::Range<u32>) {
        let ah = self.ah(group);
        let to = Destination::Datagram { ah, qpn: Qpn::MULTICAST, qkey: QKEY };
        let start = 1 << 19;
        let sges: Vec<_> = numbers
            .clone()
            .map(|number| {
                let at = start + 16 * number as usize;
                self.buffer.write(at, &u128::from(number).to_le_bytes()).unwrap();
                [Sge { addr: self.mr.iova + at as u64, length: 16, lkey: self.mr.lkey }]
            })
            .collect();
        let requests: Vec<_> = sges
            .iter()
            .map(|sges| SendRequest { wr_id: u64::MAX, to, ..request(SendOp::Send, sges) })
            .collect();
        for batch in requests.chunks(16) {
            self.engine.post_send(self.qp[0], batch).unwrap();
        }
    }

    /// Waits for `count` received messages. Returns the numbers that each queue pair received, in
    /// order of arrival. Also takes completions of sends.
    fn receive(&self, count: usize) -> Vec<Vec<u32>> {
        let start = Instant::now();
        let mut received = vec![Vec::new(); self.qp.len()];
        while received.iter().map(Vec::len).sum::<usize>() < count {
            let mut out = [Completion::default(); 8];
            let taken = self.engine.poll(&self.cq, &mut out).unwrap();
            for completion in &out[..taken] {
                assert_eq!(completion.status, WcStatus::Success);
                let at = self.qp.iter().position(|qp| qp.qpn() == completion.qp_num).unwrap();
                if completion.wr_id != u64::MAX {
                    received[at].push(self.number(completion));
                }
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{received:?} of {count}");
        }
        received
    }

    fn number(&self, completion: &Completion) -> u32 {
        assert_eq!(completion.byte_len, GRH + 16);
        let mut bytes = [0; 4];
        self.buffer.read(64 * completion.wr_id as usize + GRH as usize, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    fn counter(&self, counter: Counter) -> u64 {
        self.engine.device().counters().value(counter)
    }
}

fn started(engine: &Engine, pd: PdId, cq: &Arc<Cq>) -> QpHandle {
    let cap = QpCap { max_send_wr: 256, max_recv_wr: 256, ..qp::CAP };
    let qp = engine.device().create_qp(&QpInit { cap, ..qp::init(QpType::Ud, pd, cq) }).unwrap();
    let modify = |attr: &QpAttr, mask| engine.modify_qp(qp, attr, mask);
    bring_up_by(QpType::Ud, &datagram_attributes(QKEY), QpState::Rts, modify).unwrap();
    qp
}

#[test]
fn every_member_hears_everything_in_order_and_the_sender_itself() {
    let group = group(1);
    let (a, b, outside) = (Member::new(1), Member::new(3), Member::new(1));
    a.listen(group, 100);
    b.listen(group, 100);
    a.send(group, 0..100);
    let all: Vec<u32> = (0..100).collect();
    assert_eq!(b.receive(300), vec![all.clone(); 3]);
    assert_eq!(a.receive(100), [all]);
    for member in [&a, &b] {
        assert_eq!(member.counter(Counter::RcvdPkts), 100);
        assert_eq!(
            member.counter(Counter::IcrcExact),
            100,
            "identifications as the ICRCs were made for"
        );
        assert_eq!(member.counter(Counter::DropNoGroup), 0);
    }
    assert_eq!(outside.counter(Counter::RcvdPkts), 0);
}

/// The background thread sleeps on the groups as well.
#[test]
fn a_member_that_never_polls_is_served() {
    let group = group(2);
    let (a, b) = (Member::new(1), Member::new(1));
    b.listen(group, 4);
    for number in 0..4 {
        // Time for the background threads to fall asleep.
        std::thread::sleep(Duration::from_millis(3));
        a.send(group, number..number + 1);
        let start = Instant::now();
        let mut out = [Completion::default(); 1];
        while b.cq.poll(&mut out).unwrap() == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "no completion");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(b.number(&out[0]), number);
    }
}

#[test]
fn groups_are_separate_and_a_member_that_left_receives_nothing() {
    let groups = [group(3), group(4), group(5)];
    let (a, b) = (Member::new(1), Member::new(1));
    for group in groups {
        b.listen(group, 10);
    }
    for (group, number) in groups.into_iter().zip(0..) {
        a.send(group, number..number + 1);
    }
    let mut received = b.receive(3).remove(0);
    received.sort_unstable();
    assert_eq!(received, [0, 1, 2]);
    b.engine.device().detach_mcast(b.qp[0], Gid::from_ip(groups[1])).unwrap();
    a.send(groups[1], 3..4);
    a.send(groups[2], 4..5);
    assert_eq!(b.receive(1), [[4]]);
    assert_eq!(b.counter(Counter::RcvdPkts), 4, "it did not even arrive");
    // Attached again, it receives again, and a free index is used again.
    b.attach(groups[1]).unwrap();
    a.send(groups[1], 5..6);
    assert_eq!(b.receive(1), [[5]]);
}

#[test]
fn a_process_that_does_not_share_a_group_is_named() {
    let group = group(6);
    let holder = UdpSocket::bind((group, ROCE_PORT)).unwrap();
    let a = Member::new(1);
    let error = a.attach(group).unwrap_err();
    assert_eq!(error, AttachMcastError::Join(JoinError::AddressInUse { group }));
    assert_eq!(error.errno(), libc::EADDRINUSE);
    assert!(error.to_string().contains("taken by a process that does not share it"), "{error}");
    drop(holder);
    a.attach(group).unwrap();
}

#[test]
fn a_capture_has_what_was_sent_and_every_copy_that_came() {
    let group = group(7);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("groups.pcapng");
    let tap = Arc::new(Tap::create(&file).unwrap());
    let a = Member::with(1, EngineConfig { tap: Some(tap.clone()), ..over_sockets() });
    a.listen(group, 5);
    a.send(group, 0..5);
    a.receive(5);
    tap.flush().unwrap();
    assert_eq!(tap.packets(), 10);
    let IpAddr::V4(v4) = group else { panic!("{group}") };
    let [_, b, c, d] = v4.octets();
    let mac = [0x01, 0x00, 0x5e, b & 0x7f, c, d];
    let bytes = std::fs::read(&file).unwrap();
    let frames_to_group = bytes.windows(6).filter(|window| *window == mac).count();
    assert_eq!(frames_to_group, 10, "to the group's Ethernet address");
}
