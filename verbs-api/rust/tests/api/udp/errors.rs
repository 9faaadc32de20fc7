//! Errors name the given value and the values that are allowed.

use std::net::Ipv4Addr;

use urxe::*;

use crate::common::{ALL, End, LONG, connect, failure, pair, says};

#[test]
fn opening_a_missing_device_fails() {
    let error = Device::open("no/name").unwrap_err();
    says(&error, "no/name");
    assert_eq!(error.errno(), libc::EINVAL);
    says(&Device::open_address(Ipv4Addr::new(192, 0, 2, 1)).unwrap_err(), "192.0.2.1");
    let error = Device::builder().open_interface("nothere0").unwrap_err();
    assert!(error.to_string().contains("nothere0") && error.to_string().contains("lo"), "{error}");
    // Two devices of one user share the address. A socket that does not share it excludes them.
    let address = Ipv4Addr::new(127, 48, 50, 1);
    let ends = [End::new(address), End::new(address)];
    drop(ends);
    let stranger = std::net::UdpSocket::bind((address, 4791)).unwrap();
    let error = Device::open_address(address).unwrap_err();
    let owner = format!("is taken by process {} (", std::process::id());
    assert!(error.to_string().contains(&owner) && error.to_string().contains("is free"), "{error}");
    assert_eq!(error.errno(), libc::EADDRINUSE);
    drop(stranger);
}

#[cfg(feature = "capture")]
#[test]
fn a_capture_without_its_folder_is_refused() {
    let error = Device::builder()
        .capture("/nonexistent/file.pcapng")
        .open_address(Ipv4Addr::LOCALHOST)
        .unwrap_err();
    says(&error, "/nonexistent/file.pcapng");
    assert_eq!(error.errno(), libc::ENOENT);
}

#[test]
fn sizes_and_types_out_of_range_are_refused() {
    let end = End::new(Ipv4Addr::new(127, 48, 51, 1));
    says(&end.device.create_cq(0).unwrap_err(), "1 to");
    let error = end.pd.queue_pair(&end.cq).max_send_sge(33).create().unwrap_err();
    assert_eq!(error.to_string(), "max_send_sge is 33; the device allows 32");
    says(&end.pd.queue_pair(&end.cq).qp_type(QpType::XrcRecv).create().unwrap_err(), "XRC_RECV");
    let error = end.pd.allocate(0, ALL).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    says(&end.pd.allocate(10, Access::REMOTE_WRITE).unwrap_err(), "LOCAL_WRITE");
    says(&end.pd.allocate_at(10, 5, ALL).unwrap_err(), "0x5");
    let error = end.pd.allocate(usize::MAX / 2, ALL).unwrap_err();
    assert_eq!(error.errno(), libc::ENOMEM);

    let other = End::new(Ipv4Addr::new(127, 48, 51, 2));
    says(&end.pd.queue_pair(&other.cq).create().unwrap_err(), "another device");
}

#[test]
fn states_that_do_not_allow_a_call() {
    let end = End::new(Ipv4Addr::new(127, 48, 52, 1));
    let error = end.qp.post_send(&SendRequest::send(Data::EMPTY)).unwrap_err();
    assert_eq!(error, PostError::State { state: QpState::Reset });
    let attr = QpAttr { qp_state: QpState::Rtr, ..QpAttr::default() };
    let error = end.qp.modify(&attr, QpAttrMask::STATE).unwrap_err();
    assert!(error.to_string().contains("RESET") && error.to_string().contains("RTR"), "{error}");
    let attr = QpAttr { qp_state: QpState::Init, ..QpAttr::default() };
    let error = end.qp.modify(&attr, QpAttrMask::STATE | QpAttrMask::PORT).unwrap_err();
    says(&error, "IBV_QP_PKEY_INDEX");
    let options = ConnectOptions::new().sgid_index(9);
    let error = end.qp.connect(&end.qp.endpoint(), &options).unwrap_err();
    says(&error, "9");
    assert_eq!(end.qp.state(), QpState::Init);
    end.qp.reset().unwrap();
    end.qp.connect(&end.qp.endpoint(), &ConnectOptions::default()).unwrap();
    assert_eq!(end.qp.state(), QpState::Rts);
    says(&end.qp.connect(&end.qp.endpoint(), &ConnectOptions::default()).unwrap_err(), "RTS");
}

#[test]
fn full_queues_and_bad_requests() {
    let (a, b) = pair(53);
    let qp =
        a.pd.queue_pair(&a.cq).max_send_wr(4).max_recv_wr(2).max_inline_data(8).create().unwrap();
    let cap = qp.query().cap;
    qp.connect(&b.qp.endpoint(), &ConnectOptions::default()).unwrap();
    let error = qp.post_send(&SendRequest::send(Data::inline(&[0; 1025]))).unwrap_err();
    assert_eq!(error, PostError::TooMuchInline { given: 1025, allowed: cap.max_inline_data });
    let five = [a.slice(..1); 5];
    let error = qp.post_send(&SendRequest::send(five)).unwrap_err();
    assert_eq!(error, PostError::TooManySges { given: 5, allowed: cap.max_send_sge });
    let error = qp.post_send(&SendRequest::fetch_add(a.slice(..4), b.region.remote(), 1));
    assert_eq!(error, Err(PostError::AtomicLength { given: 4 }));
    let receives = vec![RecvRequest::new(Gather::EMPTY); cap.max_recv_wr as usize + 1];
    let error = qp.post_recv_batch(&receives).unwrap_err();
    assert_eq!(error.index, cap.max_recv_wr as usize);
    assert_eq!(error.error, PostError::QueueFull { capacity: cap.max_recv_wr });
    assert_eq!(error.errno(), libc::ENOMEM);
    // The index counts correctly over several chunks of a batch, too.
    let receives = vec![RecvRequest::new(Gather::EMPTY); 500];
    let held = a.qp.query().cap.max_recv_wr as usize;
    assert_eq!(a.qp.post_recv_batch(&receives).unwrap_err().index, held);
}

#[test]
fn an_error_flushes_both_queues_and_a_reset_begins_anew() {
    let (a, b) = pair(54);
    for wr_id in 0..3 {
        a.post_recv(Gather::EMPTY, wr_id);
    }
    a.qp.set_error().unwrap();
    for wr_id in 0..3 {
        let flushed = failure(&a.cq);
        assert_eq!((flushed.wr_id, flushed.status), (wr_id, WcStatus::WrFlushErr));
    }
    b.qp.reset().unwrap();
    a.qp.reset().unwrap();
    connect(&a.qp, &b.qp);
    let _ = a.perform(SendRequest::write(a.slice(..8), b.region.remote()));
}

#[test]
fn an_overrun_queue_says_so() {
    let (a, b) = pair(55);
    let small = a.device.create_cq(2).unwrap();
    let qp = a.pd.queue_pair(&small).signal_all(true).create().unwrap();
    let peer = b.pd.queue_pair(&b.cq).create().unwrap();
    connect(&qp, &peer);
    for _ in 0..3 {
        qp.post_send(&SendRequest::write(a.slice(..8), b.region.remote())).unwrap();
    }
    let event = a.device.events().wait(LONG).unwrap();
    assert_eq!(event, AsyncEvent::Cq(CqEventType::CqErr, small.id()));
    let overrun = CqError::Overrun { capacity: 2 };
    let taken: Vec<_> = small.drain().take(3).collect();
    assert!(taken[0].is_ok() && taken[1].is_ok());
    assert_eq!(taken[2], Err(overrun));
    assert_eq!(small.wait_one(LONG), Err(WaitError::Cq(overrun)));
    assert_eq!(pollster::block_on(small.next()), Err(WaitError::Cq(overrun)));
}

#[test]
fn a_device_reports_its_attributes() {
    let (a, b) = pair(56);
    let port = a.device.query_port();
    assert!(port.is_active);
    assert_eq!(port.active_mtu, PathMtu::Mtu4096);
    assert_eq!(port.gids[0].gid, a.qp.endpoint().gid);
    assert_eq!(a.device.query().limits.max_sge, 32);
    let _ = a.perform(SendRequest::write(a.slice(..8), b.region.remote()));
    assert_eq!(a.device.counter(Counter::RdmaSends), 1);
    assert_eq!(b.device.counter(Counter::RdmaRecvs), 1);
    assert!(a.device.counters().any(|(counter, value)| counter.name() == "sent_pkts" && value > 0));
}
