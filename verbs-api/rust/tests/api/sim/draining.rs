//! Send queues that are stopped by the program or by an error, and resumed.

use urxe::sim::Fabric;
use urxe::*;

use crate::common::{End, failure, pattern, simulated_pair};

fn next_event(end: &End, due: QpEventType) {
    let due = AsyncEvent::Qp(due, end.qp.qpn());
    while end.device.events().wait(None).unwrap() != due {}
}

#[test]
fn a_drained_queue_finishes_what_it_began_and_goes_on_with_other_attributes() {
    const LEN: usize = 200_000;
    let fabric = Fabric::new(31);
    let (a, b) = simulated_pair(&fabric);
    assert!(!a.qp.is_drained());
    a.region.write(0, &pattern(LEN, 1)).unwrap();
    let write = |wr_id| {
        let data = a.slice(..LEN);
        SendRequest::write(data, b.region.remote()).wr_id(wr_id).signaled()
    };
    a.qp.post_send(&write(1)).unwrap();
    // The WRITE is started, and no acknowledgement can have arrived.
    fabric.run_for(std::time::Duration::from_nanos(1)).unwrap();
    a.qp.drain_send_queue().unwrap();
    a.qp.post_send(&write(2)).unwrap();
    assert!(!a.qp.is_drained() && a.qp.query().sq_draining);
    next_event(&a, QpEventType::SqDrained);
    assert!(a.qp.is_drained());
    assert_eq!(a.complete().wr_id, 1);
    fabric.run_for(std::time::Duration::from_secs(1)).unwrap();
    assert!(a.cq.is_empty(), "what was posted behind it waits");
    // The queue pair still serves its peer.
    let read = SendRequest::read(b.slice(..100), a.region.remote());
    let _ = b.perform(read);
    a.qp.modify(&QpAttr { retry_cnt: 2, ..QpAttr::default() }, QpAttrMask::RETRY_CNT).unwrap();
    a.qp.resume_send_queue().unwrap();
    assert_eq!((a.complete().wr_id, a.qp.query().retry_cnt), (2, 2));
    assert!(a.qp.drain_send_queue().is_ok() && a.qp.drain_send_queue().is_err(), "from RTS alone");
}

#[test]
fn an_unreliable_queue_pair_goes_on_after_a_send_that_failed() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let device = Fabric::new(32).device([10, 0, 0, 1]).unwrap();
        let (pd, another, cq) =
            (device.alloc_pd().unwrap(), device.alloc_pd().unwrap(), device.create_cq(16).unwrap());
        let qp = pd.queue_pair(&cq).qp_type(qp_type).create().unwrap();
        let ah = pd.address_handle(qp.endpoint().gid).unwrap();
        match qp_type {
            QpType::Ud => qp.start_datagrams(QKey(7)).unwrap(),
            _ => qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap(),
        }
        let post = |wr_id, data: Data<'_>| {
            let send = SendRequest::send(data).wr_id(wr_id).signaled();
            let send = if qp_type == QpType::Ud { send.to(&ah, qp.qpn(), QKey(7)) } else { send };
            qp.post_send(&send).unwrap();
        };
        let (forbidden, inbox) = (
            another.allocate(64, Access::empty()).unwrap(),
            pd.allocate(64, Access::LOCAL_WRITE).unwrap(),
        );
        qp.post_recv(&RecvRequest::new(inbox.slice(..).unwrap()).wr_id(9)).unwrap();
        post(1, forbidden.slice(..).unwrap().into());
        post(2, Data::inline(b"flushed"));
        let done = [(); 2].map(|()| failure(&cq));
        let due = [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(done.map(|done| (done.wr_id, done.status)), due, "{qp_type}");
        assert_eq!(qp.state(), QpState::Sqe);
        qp.resume_send_queue().unwrap();
        post(3, Data::inline(b"sent"));
        let mut done = [(); 2].map(|()| cq.wait_one(None).unwrap());
        done.sort_unstable_by_key(|done| done.wr_id);
        let due = [(3, WcStatus::Success), (9, WcStatus::Success)];
        assert_eq!(done.map(|done| (done.wr_id, done.status)), due, "{qp_type}: receiving went on");
    }
}
