//! Extended reliable connections: every operation to every queue of the domain, and refusals.

use super::reordering::{HELD, assert_undisturbed, run_overtaking};
use super::*;
use urxe_device::cq::{AsyncEvent, QpEventType, SrqId};
use urxe_device::qp::work_request::PostError;
use urxe_device::srq::error::{CreateSrqError, SrqError};
use urxe_device::srq::xrcd::{CloseXrcdError, Inode, OpenXrcdError, Xrcd, XrcdError, XrcdFlags};
use urxe_device::srq::{SrqAttr, SrqInit, XrcSrqInit};
use urxe_types::rng::Rng;

const FILE: Inode = Inode { device: 1, number: 2 };

fn new_xrcd(device: &Device) -> Arc<Xrcd> {
    device.open_xrcd(None, XrcdFlags::CREATE, |_| Ok(None)).unwrap()
}

/// A shared receive queue of `xrcd` with its own protection domain, region and completion queue.
pub struct Inbox {
    pub srq: Arc<Srq>,
    cq: Arc<Cq>,
    pub pd: PdId,
    mr: Mr,
}

impl Inbox {
    pub fn new(end: &Host, xrcd: &Arc<Xrcd>) -> Self {
        let pd = end.device.alloc_pd().unwrap();
        let cq = end.device.create_cq(64, None, 0).unwrap();
        let xrc = XrcSrqInit { xrcd: Arc::clone(xrcd), cq: Arc::clone(&cq) };
        let srq = end.create_srq(pd, 16, Some(xrc));
        Self { srq, cq, pd, mr: end.register(pd, Access::LOCAL_WRITE | REMOTE) }
    }

    fn post(&self, wr_id: u64, offset: u64, length: u32) {
        let sge = Sge { addr: self.mr.iova + offset, length, lkey: self.mr.lkey };
        self.srq.post(&[RecvRequest { wr_id, sges: &[sge] }]).unwrap();
    }

    fn remote(&self, offset: u64) -> Remote {
        Remote { addr: self.mr.iova + offset, rkey: self.mr.rkey }
    }

    fn completions(&self) -> Vec<Completion> {
        poll(&self.cq)
    }
}

/// A connection: `a` sends through `from`, and `b` has the target `to` in `xrcd`.
pub struct Xrc {
    pub a: Host,
    pub b: Host,
    wire: Wire,
    pub xrcd: Arc<Xrcd>,
    pub from: QpHandle,
    pub to: QpHandle,
}

impl Xrc {
    pub fn new() -> Self {
        let (a, b) = (Host::new(A, 1), Host::new(B, 2));
        let xrcd = new_xrcd(&b.device);
        let (from, to) = (initiator(&a), b.device.create_xrc_target(&xrcd).unwrap());
        a.connect_as(QpType::XrcSend, from, to.qpn(), B);
        b.connect_as(QpType::XrcRecv, to, from.qpn(), A);
        Self { a, b, wire: Wire::default(), xrcd, from, to }
    }

    /// Returns the connection and one queue of its domain.
    pub fn with_inbox() -> (Self, Inbox) {
        let xrc = Self::new();
        let inbox = Inbox::new(&xrc.b, &xrc.xrcd);
        (xrc, inbox)
    }

    pub fn post(&self, to: &Inbox, op: SendOp, sges: &[Sge]) {
        self.post_to(to.srq.id(), op, sges);
    }

    fn post_to(&self, srq: SrqId, op: SendOp, sges: &[Sge]) {
        let to = Destination::XrcSrq { srq };
        self.a.post_request(self.from, &SendRequest { to, ..request(op, sges) }).unwrap();
    }

    pub fn run(&self) {
        run(&self.a, &self.b, &self.wire);
    }

    fn sent(&self) -> Vec<WcStatus> {
        self.a.statuses()
    }

    fn state(&self) -> QpState {
        self.b.state(self.to)
    }
}

fn initiator(end: &Host) -> QpHandle {
    end.create(&QpInit { qp_type: QpType::XrcSend, ..end.init() })
}

#[test]
fn every_operation_of_a_reliable_connection() {
    let (xrc, inbox) = Xrc::with_inbox();
    let data = pattern(5000);
    xrc.a.write(0, &data);
    inbox.post(1, 0, 6000);
    inbox.post(2, 8192, 6000);
    inbox.post(3, 16384, 6000);
    inbox.post(4, 0, 0);
    // The key that the second SEND invalidates: a window of the queue's protection domain.
    let extra = xrc.b.register(inbox.pd, Access::REMOTE_READ);
    xrc.post(&inbox, SendOp::Send, &[xrc.a.sge(0, 5000)]);
    xrc.post(&inbox, SendOp::SendImm { imm: 0xfeed }, &[xrc.a.sge(0, 1024)]);
    xrc.post(&inbox, SendOp::Send, &[xrc.a.sge(0, 0)]);
    xrc.post(
        &inbox,
        SendOp::WriteImm { remote: inbox.remote(40_000), imm: 3 },
        &[xrc.a.sge(0, 3000)],
    );
    xrc.post(&inbox, SendOp::Write { remote: inbox.remote(50_000) }, &[xrc.a.sge(0, 5000)]);
    xrc.post(&inbox, SendOp::Read { remote: inbox.remote(40_000) }, &[xrc.a.sge(60_000, 3000)]);
    xrc.run();
    assert_eq!(xrc.sent(), [WcStatus::Success; 6]);
    let wcs = inbox.completions();
    let told: Vec<_> =
        wcs.iter().map(|wc| (wc.wr_id, wc.opcode, wc.byte_len, wc.imm_data())).collect();
    assert_eq!(
        told,
        [
            (1, WcOpcode::Recv, 5000, None),
            (2, WcOpcode::Recv, 1024, Some(0xfeed)),
            (3, WcOpcode::Recv, 0, None),
            (4, WcOpcode::RecvRdmaWithImm, 3000, Some(3))
        ]
    );
    assert!(wcs.iter().all(|wc| wc.qp_num == xrc.to.qpn() && wc.src_qp == xrc.from.qpn()));
    assert_eq!(xrc.b.bytes(0, 5000), data);
    assert_eq!(xrc.b.bytes(8192, 1024), data[..1024]);
    assert_eq!(xrc.b.bytes(40_000, 3000), data[..3000]);
    assert_eq!(xrc.b.bytes(50_000, 5000), data);
    assert_eq!(xrc.a.bytes(60_000, 3000), data[..3000]);

    xrc.b.write(80_000, &41u64.to_ne_bytes());
    xrc.post(&inbox, SendOp::FetchAdd { remote: inbox.remote(80_000), add: 1 }, &[xrc.a.sge(0, 8)]);
    let swap = SendOp::CompareSwap { remote: inbox.remote(80_000), compare: 42, swap: 7 };
    xrc.post(&inbox, swap, &[xrc.a.sge(8, 8)]);
    xrc.run();
    assert_eq!(xrc.sent(), [WcStatus::Success; 2]);
    assert_eq!(xrc.a.bytes(0, 16), [41u64.to_ne_bytes(), 42u64.to_ne_bytes()].concat());
    assert_eq!(xrc.b.bytes(80_000, 8), 7u64.to_ne_bytes());

    // A peer may invalidate a window or a fast registration, but not a region, as on a reliable
    // connection.
    inbox.post(5, 0, 64);
    xrc.post(&inbox, SendOp::SendInvalidate { rkey: extra.rkey }, &[xrc.a.sge(0, 8)]);
    xrc.run();
    assert_eq!(xrc.sent(), [WcStatus::RemInvReqErr]);
}

#[test]
fn one_connection_reaches_every_queue_of_its_domain() {
    let xrc = Xrc::new();
    let inboxes: Vec<_> = (0..4).map(|_| Inbox::new(&xrc.b, &xrc.xrcd)).collect();
    for round in 0..3u64 {
        for (nr, inbox) in inboxes.iter().enumerate() {
            let at = (round * 4 + nr as u64) * 4096;
            inbox.post(round, at, 4096);
            xrc.a.buffer.write(0, &vec![at as u8 + 1; 2500]).unwrap();
            xrc.post(inbox, SendOp::Send, &[xrc.a.sge(0, 2500)]);
            xrc.run();
            let [wc] = inbox.completions()[..] else { panic!("one completion in its own queue") };
            assert_eq!((wc.wr_id, wc.qp_num), (round, xrc.to.qpn()));
            assert_eq!(xrc.b.bytes(at as usize, 2500), vec![at as u8 + 1; 2500]);
            // A READ uses a key of one queue's protection domain, while the next request is for
            // another.
            let other = &inboxes[(nr + 1) % 4];
            xrc.post(inbox, SendOp::Read { remote: inbox.remote(at) }, &[xrc.a.sge(100_000, 2500)]);
            xrc.post(other, SendOp::Write { remote: other.remote(500_000) }, &[xrc.a.sge(0, 10)]);
            xrc.run();
            assert_eq!(xrc.a.bytes(100_000, 2500), vec![at as u8 + 1; 2500]);
        }
    }
    assert_eq!(xrc.sent(), [WcStatus::Success; 36]);
}

#[test]
fn a_key_is_checked_against_the_named_queues_protection_domain() {
    let xrc = Xrc::new();
    let (one, other) = (Inbox::new(&xrc.b, &xrc.xrcd), Inbox::new(&xrc.b, &xrc.xrcd));
    xrc.post(&one, SendOp::Write { remote: other.remote(0) }, &[xrc.a.sge(0, 10)]);
    xrc.run();
    assert_eq!(xrc.sent(), [WcStatus::RemAccessErr]);
    assert_eq!(xrc.state(), QpState::Err);
}

#[test]
fn a_queue_that_the_domain_does_not_have_is_an_invalid_request() {
    for case in 0..4 {
        let (xrc, inbox) = Xrc::with_inbox();
        let elsewhere = new_xrcd(&xrc.b.device);
        let stranger = Inbox::new(&xrc.b, &elsewhere);
        let plain = xrc.b.create_srq(xrc.b.pd, 1, None);
        let id = match case {
            0 => SrqId(0xabcdef),
            1 => stranger.srq.id(),
            2 => plain.id(),
            _ => {
                // The queue was used before and is gone.
                inbox.post(1, 0, 10);
                xrc.post(&inbox, SendOp::Send, &[xrc.a.sge(0, 10)]);
                xrc.run();
                assert_eq!((xrc.sent(), inbox.completions().len()), (vec![WcStatus::Success], 1));
                xrc.b.device.destroy_srq(&inbox.srq).unwrap();
                inbox.srq.id()
            }
        };
        let _ = xrc.b.events();
        xrc.post_to(id, SendOp::Send, &[xrc.a.sge(0, 10)]);
        xrc.run();
        assert_eq!(xrc.sent(), [WcStatus::RemInvReqErr], "case {case}");
        assert_eq!(xrc.b.counter(Counter::XrcViolation), 1, "case {case}");
        assert_eq!(xrc.state(), QpState::Err);
        let event = AsyncEvent::Qp(QpEventType::QpReqErr, xrc.to.qpn());
        assert_eq!(xrc.b.events(), [event]);
    }
}

#[test]
fn an_empty_queue_makes_the_peer_wait() {
    let (xrc, inbox) = Xrc::with_inbox();
    xrc.post(&inbox, SendOp::Send, &[xrc.a.sge(0, 10)]);
    xrc.run();
    assert_eq!(xrc.b.counter(Counter::SrqEmpty), 1);
    assert_eq!(xrc.a.counter(Counter::RcvdRnrErr), 1);
    inbox.post(9, 0, 10);
    xrc.a.device.handle_timeouts(Time::from_ns(1 << 40));
    xrc.run();
    assert_eq!((xrc.sent().len(), inbox.completions()[0].wr_id), (1, 9));
}

#[test]
fn a_target_is_shared_and_goes_with_its_last_user() {
    let xrc = Xrc::new();
    let device = &xrc.b.device;
    let again = device.open_xrc_target(&xrc.xrcd, xrc.to.qpn()).unwrap();
    assert_eq!(again, xrc.to);
    device.destroy_qp(Time::ZERO, xrc.to).unwrap();
    let inbox = Inbox::new(&xrc.b, &xrc.xrcd);
    inbox.post(1, 0, 10);
    xrc.post(&inbox, SendOp::Send, &[xrc.a.sge(0, 10)]);
    xrc.run();
    assert_eq!(inbox.completions().len(), 1);

    assert_refused!(device.close_xrcd(&xrc.xrcd), CloseXrcdError::Busy { users: 2 }, EBUSY);
    assert_refused!(inbox.cq.destroy(), _, EBUSY);
    device.destroy_qp(Time::ZERO, again).unwrap();
    assert!(device.query_qp(again).is_none());
    device.destroy_srq(&inbox.srq).unwrap();
    inbox.cq.destroy().unwrap();
    device.close_xrcd(&xrc.xrcd).unwrap();
    assert_eq!(device.close_xrcd(&xrc.xrcd), Err(CloseXrcdError::NoXrcd));
    let created = device.create_xrc_target(&xrc.xrcd);
    assert_refused!(created, ref error if error.to_string() == "the XRC domain was closed", EINVAL);
}

#[test]
fn a_destroyed_queue_takes_the_receives_that_were_under_way_with_it() {
    let (xrc, inbox) = Xrc::with_inbox();
    inbox.post(1, 0, 5000);
    xrc.post(&inbox, SendOp::Send, &[xrc.a.sge(0, 3000)]);
    xrc.a.transmit(&xrc.wire);
    let mut all = xrc.wire.pop().unwrap();
    let rest = all.bytes.split_off(all.segment_size);
    xrc.wire.deliver(&xrc.b.device, Time::ZERO, &all);
    xrc.b.device.destroy_srq(&inbox.srq).unwrap();
    xrc.wire.push(PacketRun { bytes: rest, ..all });
    xrc.run();
    assert_eq!(xrc.sent(), [WcStatus::Success]);
    assert!(inbox.completions().is_empty());
    inbox.cq.destroy().unwrap();
}

#[test]
fn each_end_has_one_queue_and_says_so() {
    let (xrc, inbox) = Xrc::with_inbox();
    let recv = [RecvRequest { wr_id: 1, sges: &[] }];
    let send = |to| SendRequest { to, ..request(SendOp::Send, &[]) };
    let none = |qp_type, queue| Err((0, PostError::NoQueue { qp_type, queue }));
    let (a, b) = (&xrc.a.device, &xrc.b.device);
    assert_eq!(a.post_recv(Time::ZERO, xrc.from, &recv), none(QpType::XrcSend, "receive"));
    assert_eq!(b.post_recv(Time::ZERO, xrc.to, &recv), none(QpType::XrcRecv, "receive"));
    let to = Destination::XrcSrq { srq: inbox.srq.id() };
    assert_eq!(b.post_send(Time::ZERO, xrc.to, &[send(to)]), none(QpType::XrcRecv, "send"));
    let error = a.post_send(Time::ZERO, xrc.from, &[send(Destination::Peer)]);
    assert_eq!(error, Err((0, PostError::Destination { qp_type: QpType::XrcSend })));
    let error = a.post_send(Time::ZERO, xrc.a.qp, &[send(to)]).unwrap_err();
    assert!(matches!(error, (0, PostError::State { .. })), "not connected");
    let given = 1 << 24;
    let error =
        a.post_send(Time::ZERO, xrc.from, &[send(Destination::XrcSrq { srq: SrqId(given) })]);
    assert_eq!(error, Err((0, PostError::SrqNumber { given })));
    let cap = a.query_qp(xrc.from).unwrap().cap;
    assert_eq!((cap.max_send_wr, cap.max_recv_wr, cap.max_recv_sge), (16, 0, 0));
    let not_of_domain = OpenQpError::NotOfDomain { given: xrc.b.qp.qpn() };
    let opened = b.open_xrc_target(&xrc.xrcd, xrc.b.qp.qpn());
    assert_refused!(opened, error if error == not_of_domain, EINVAL);
    let error = b.open_xrc_target(&new_xrcd(b), xrc.to.qpn()).unwrap_err();
    assert_eq!(error, OpenQpError::NotOfDomain { given: xrc.to.qpn() });
    let error = a.create_xrc_target(&xrc.xrcd).unwrap_err();
    assert!(matches!(error, CreateQpError::Xrcd(XrcdError::OtherDevice)));

    // A queue of a domain serves targets only, and no end of a connection has its own.
    let init = |qp_type| QpInit { qp_type, srq: Some(Arc::clone(&inbox.srq)), ..xrc.b.init() };
    let created = b.create_qp(&init(QpType::Rc));
    assert_refused!(created, CreateQpError::Srq(SrqError::Xrc { .. }), EINVAL);
    let error = b.create_qp(&init(QpType::XrcSend)).unwrap_err();
    assert!(matches!(error, CreateQpError::NoReceives { .. }), "{error}");
    let xrc_init = Some(XrcSrqInit { xrcd: Arc::clone(&xrc.xrcd), cq: Arc::clone(&xrc.a.cq) });
    let attr = SrqAttr { max_wr: 1, max_sge: 1, srq_limit: 0 };
    let error =
        a.create_srq(&SrqInit { pd: xrc.a.pd, attr, xrc: xrc_init, context: 0 }).unwrap_err();
    assert_eq!(error, CreateSrqError::Xrcd(XrcdError::OtherDevice));
}

#[test]
fn a_file_names_a_domain() {
    let device = limits::device(|_| ());
    let open = |inode, flags| device.open_xrcd(inode, flags, |_| Ok(None));
    let other = Inode { number: 3, ..FILE };
    let (create, exclusive) = (XrcdFlags::CREATE, XrcdFlags::EXCLUSIVE);
    let opened = open(Some(FILE), XrcdFlags::empty());
    assert_refused!(opened, OpenXrcdError::NotThere { given: FILE }, EAGAIN);
    assert_refused!(open(None, XrcdFlags::empty()), _, EINVAL);
    let first = open(Some(FILE), create | exclusive).unwrap();
    for flags in [create, XrcdFlags::empty()] {
        assert!(Arc::ptr_eq(&first, &open(Some(FILE), flags).unwrap()));
    }
    let opened = open(Some(FILE), create | exclusive);
    assert_refused!(opened, OpenXrcdError::Exists { given: FILE }, EINVAL);
    assert!(!Arc::ptr_eq(&first, &open(Some(other), create).unwrap()));
    assert!(!Arc::ptr_eq(&open(None, create).unwrap(), &open(None, create).unwrap()));
    // After three opens and three closes, the file has no domain.
    let attr = SrqAttr { max_wr: 1, max_sge: 1, srq_limit: 0 };
    let cq = device.create_cq(1, None, 0).unwrap();
    let xrc = Some(XrcSrqInit { xrcd: Arc::clone(&first), cq });
    let pd = device.alloc_pd().unwrap();
    let srq = device.create_srq(&SrqInit { pd, attr, xrc, context: 0 }).unwrap();
    device.close_xrcd(&first).unwrap();
    device.close_xrcd(&first).unwrap();
    assert_eq!(device.close_xrcd(&first), Err(CloseXrcdError::Busy { users: 1 }));
    device.destroy_srq(&srq).unwrap();
    device.close_xrcd(&first).unwrap();
    assert!(matches!(open(Some(FILE), XrcdFlags::empty()), Err(OpenXrcdError::NotThere { .. })));
    assert!(!Arc::ptr_eq(&first, &open(Some(FILE), create).unwrap()));
    // Another process has a domain: this process may not join that one, but may make its own beside
    // it.
    let third = Inode { number: 4, ..FILE };
    let claim = |given| Err(OpenXrcdError::OtherProcess { given });
    for flags in [XrcdFlags::empty(), create | exclusive] {
        let error = device.open_xrcd(Some(third), flags, claim).unwrap_err();
        assert!(error.to_string().contains("one process only"), "{error}");
        assert_eq!(error.errno(), libc::EOPNOTSUPP);
    }
    let own = device.open_xrcd(Some(third), create, claim).unwrap();
    // Queue pairs of the other process's domain cannot be opened here.
    let theirs = Qpn::masked(63 << 18 | 5);
    let opened = device.open_xrc_target(&own, theirs);
    assert_refused!(opened, OpenQpError::OtherProcess { given } if given == theirs, EOPNOTSUPP);
}

/// The target is a responder like any other: it executes early packets in their turn, each message
/// with the queue that it names.
#[test]
fn messages_that_overtake_each_other_reach_their_queues_in_order() {
    for seed in 0..20 {
        let xrc = Xrc::new();
        let inboxes = [Inbox::new(&xrc.b, &xrc.xrcd), Inbox::new(&xrc.b, &xrc.xrcd)];
        let mut rng = Rng::stream(seed, 1);
        let data = pattern(3000);
        xrc.a.write(0, &data);
        for nr in 0..8_u64 {
            let inbox = &inboxes[nr as usize % 2];
            inbox.post(nr, 100_000 + nr * 4096, 4096);
            xrc.post(inbox, SendOp::Send, &[xrc.a.sge(0, 3000 - nr as u32)]);
        }
        run_overtaking(&xrc.a, &xrc.b, &xrc.wire, &mut rng, HELD);
        assert_eq!(xrc.sent(), [WcStatus::Success; 8], "seed {seed}");
        for (place, inbox) in inboxes.iter().enumerate() {
            let wcs = inbox.completions();
            let seen: Vec<_> = wcs.iter().map(|wc| wc.wr_id as usize).collect();
            assert_eq!(seen, [place, place + 2, place + 4, place + 6], "seed {seed}");
        }
        for nr in 0..8 {
            assert_eq!(
                xrc.b.bytes(100_000 + nr * 4096, 3000 - nr),
                data[..3000 - nr],
                "seed {seed}"
            );
        }
        assert_undisturbed(&xrc.b, &format!("seed {seed}"));
        assert!(xrc.b.counter(Counter::ReorderDelivered) > 0, "seed {seed}");
    }
}

/// A target stays in RTR, where its timers must run too.
#[test]
fn a_target_requests_missing_packets() {
    let (xrc, inbox) = Xrc::with_inbox();
    xrc.post(&inbox, SendOp::Write { remote: inbox.remote(0) }, &[xrc.a.sge(0, 2000)]);
    xrc.a.transmit(&xrc.wire);
    let runs: Vec<_> = xrc.wire.take();
    let last = runs.last().unwrap();
    let bytes = last.segments().last().unwrap().to_vec();
    let last = PacketRun::new(last.from, last.to, bytes.clone(), bytes.len());
    xrc.wire.deliver(&xrc.b.device, Time::ZERO, &last);
    let due = xrc.b.device.next_deadline().unwrap();
    assert!(due > Time::ZERO && due <= Time::from_ns(1_000_000), "{due:?}");
    xrc.b.device.handle_timeouts(due);
    assert_eq!(xrc.b.counter(Counter::SendSeqErr), 1);
    xrc.run();
    assert_eq!(xrc.sent(), [WcStatus::Success]);
}
