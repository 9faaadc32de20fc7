//! Datagram queue pairs with a shared receive queue, and windows of an unreliable connection.

use urxe::sim::Fabric;
use urxe::*;

use crate::common::{datagram_qp, pattern, success};

const QKEY: QKey = QKey(0x1111_2222);

#[test]
fn datagrams_without_a_shared_receive_are_lost_and_counted() {
    let fabric = Fabric::new(31);
    let (a, b) = (fabric.device([10, 0, 0, 1]).unwrap(), fabric.device([10, 0, 0, 2]).unwrap());
    let (pd, cq) = (b.alloc_pd().unwrap(), b.create_cq(16).unwrap());
    let srq = pd.shared_receive_queue(8).create().unwrap();
    let inbox = pd.allocate(4 * 128, Access::LOCAL_WRITE).unwrap();
    let receivers: Vec<_> = (0..3)
        .map(|_| {
            let qp =
                pd.queue_pair(&cq).qp_type(QpType::Ud).shared_receive_queue(&srq).create().unwrap();
            qp.start_datagrams(QKEY).unwrap();
            qp
        })
        .collect();
    let (a_pd, a_cq) = (a.alloc_pd().unwrap(), a.create_cq(16).unwrap());
    let sender = datagram_qp(&a_pd, &a_cq, QKEY);
    let there = a_pd.address_handle(receivers[0].endpoint().gid).unwrap();
    for wr_id in 0..3 {
        let slot = inbox.slice(wr_id * 128..(wr_id + 1) * 128).unwrap();
        srq.post_recv(&RecvRequest::new(slot).wr_id(wr_id as u64)).unwrap();
    }
    // The order differs from that of creation. The fourth message finds no receive.
    let order = [2, 0, 1, 0];
    for (nr, &to) in order.iter().enumerate() {
        let data = pattern(32, nr as u8);
        let request = SendRequest::send(Data::inline(&data)).to(&there, receivers[to].qpn(), QKEY);
        sender.post_send(&request).unwrap();
    }
    let before = b.counters().collect::<Vec<_>>();
    for (nr, &to) in order[..3].iter().enumerate() {
        let got = cq.wait_one(None).unwrap();
        assert_eq!((got.status, got.wr_id), (WcStatus::Success, nr as u64));
        assert_eq!((got.qp_num, got.src_qp), (receivers[to].qpn(), sender.qpn()));
        assert_eq!(got.byte_len, GRH_LEN as u32 + 32);
        assert_eq!(inbox.read_vec(nr * 128 + GRH_LEN, 32).unwrap(), pattern(32, nr as u8));
    }
    assert_eq!(cq.wait_one(None), Err(WaitError::Quiet), "the fourth is lost");
    let moved: Vec<_> = b
        .counters()
        .zip(before)
        .filter(|((counter, now), (_, then))| now != then && counter.name().starts_with("drop"))
        .map(|((counter, now), (_, then))| (counter.name(), now - then))
        .collect();
    assert_eq!(moved, [(Counter::DropNoReceive.name(), 1)], "one counter says why");
    assert_eq!(b.counter(Counter::SrqEmpty), 1, "and another where it is to be mended");
    assert_eq!(srq.len(), 0);
    // The queue pairs still work: another receive takes another message.
    srq.post_recv(&RecvRequest::new(inbox.slice(..128).unwrap()).wr_id(9)).unwrap();
    sender.post_send(&SendRequest::send(Data::EMPTY).to(&there, receivers[1].qpn(), QKEY)).unwrap();
    assert_eq!(cq.wait_one(None).unwrap().wr_id, 9);
}

#[test]
fn a_window_of_an_unreliable_connection_serves_its_peer_until_invalidated() {
    let fabric = Fabric::new(32);
    let (a, b) = (fabric.device([10, 0, 0, 1]).unwrap(), fabric.device([10, 0, 0, 2]).unwrap());
    let ends = [&a, &b].map(|device| {
        let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(16).unwrap());
        let qp = pd.queue_pair(&cq).qp_type(QpType::Uc).create().unwrap();
        (pd, cq, qp)
    });
    let [(a_pd, a_cq, a_qp), (b_pd, b_cq, b_qp)] = &ends;
    a_qp.connect(&b_qp.endpoint(), &ConnectOptions::default()).unwrap();
    b_qp.connect(&a_qp.endpoint(), &ConnectOptions::default()).unwrap();
    let region = b_pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let mut window = b_pd.alloc_window().unwrap();
    let part = region.slice(64..128).unwrap();
    b_qp.post_send(&SendRequest::bind(&mut window, part, Access::REMOTE_WRITE).wr_id(1).signaled())
        .unwrap();
    let bound = b_cq.wait_one(None).unwrap();
    assert_eq!((bound.wr_id, bound.opcode, bound.status), (1, WcOpcode::BindMw, WcStatus::Success));
    let there = window.remote().unwrap();
    let from = a_pd.allocate(64, Access::empty()).unwrap();
    let write = |seed| {
        from.write(0, &pattern(64, seed)).unwrap();
        a_qp.post_send(&SendRequest::write(from.slice(..).unwrap(), there).signaled()).unwrap();
        let _ = success(a_cq);
        while fabric.run_while(std::time::Duration::from_millis(1), || true) != Ok(false) {}
    };
    write(1);
    assert_eq!(region.read_vec(64, 64).unwrap(), pattern(64, 1));
    b_qp.post_send(&SendRequest::invalidate(there.rkey).wr_id(2).signaled()).unwrap();
    let _ = success(b_cq);
    write(2);
    assert_eq!(
        region.read_vec(64, 64).unwrap(),
        pattern(64, 1),
        "what the key no longer allows is dropped"
    );
}
