//! Shared receive queues and XRC domains: lifetimes and errors.

use std::fs::File;
use std::net::Ipv4Addr;

use urxe::*;

use crate::common::{LONG, connect};

fn device(net: u8, host: u8) -> Device {
    Device::open_address(Ipv4Addr::new(127, 48, net, host)).unwrap()
}

#[test]
fn everything_may_be_dropped_in_any_order() {
    let server = device(61, 1);
    let (pd, cq) = (server.alloc_pd().unwrap(), server.create_cq(16).unwrap());
    let srq = pd.shared_receive_queue(4).max_sge(1).create().unwrap();
    let region = pd.allocate(256, Access::LOCAL_WRITE).unwrap();
    srq.post_recv(&RecvRequest::new(region.slice(..).unwrap()).wr_id(3)).unwrap();
    let to = pd.queue_pair(&cq).shared_receive_queue(&srq).create().unwrap();
    let number = srq.id();
    drop((pd, srq));

    let client = device(61, 2);
    let client_cq = client.create_cq(16).unwrap();
    let from = client.alloc_pd().unwrap().queue_pair(&client_cq).create().unwrap();
    connect(&from, &to);
    from.post_send(&SendRequest::send(Data::inline(b"still there"))).unwrap();
    let completion = cq.wait_one(LONG).unwrap();
    assert_eq!((completion.wr_id, completion.qp_num), (3, to.qpn()));
    assert_eq!(region.read_vec(0, 11).unwrap(), b"still there");
    assert_eq!(to.shared_receive_queue().unwrap().id(), number);

    to.set_error().unwrap();
    let last = std::iter::from_fn(|| server.events().try_next())
        .any(|event| event == AsyncEvent::Qp(QpEventType::QpLastWqeReached, to.qpn()));
    assert!(last);
    let srq = to.shared_receive_queue().unwrap().clone();
    drop(to);
    assert!(srq.is_empty());
}

#[test]
fn refusals_say_what_was_given_and_what_is_allowed() {
    let (one, other) = (device(62, 1), device(62, 2));
    let (pd, cq) = (one.alloc_pd().unwrap(), one.create_cq(16).unwrap());
    let (other_pd, other_cq) = (other.alloc_pd().unwrap(), other.create_cq(16).unwrap());
    let srq = pd.shared_receive_queue(4).max_sge(1).create().unwrap();
    let error = other_pd.queue_pair(&other_cq).shared_receive_queue(&srq).create().unwrap_err();
    assert_eq!((error.errno(), error.to_string().contains("another device")), (libc::EINVAL, true));
    let domain = one.new_xrc_domain().unwrap();
    let error = pd.shared_receive_queue(4).xrc(&domain, &other_cq).create().unwrap_err();
    assert_eq!((error.errno(), error.to_string().contains("another device")), (libc::EINVAL, true));
    let error = pd.shared_receive_queue(0).create().unwrap_err();
    assert_eq!(error.to_string(), "max_wr is 0, not 1 to 1048576");

    let qp = pd.queue_pair(&cq).shared_receive_queue(&srq).create().unwrap();
    let region = pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    let request = RecvRequest::new(region.slice(..).unwrap());
    let error = qp.post_recv(&request).unwrap_err();
    assert_eq!((error, error.errno()), (PostError::SharedReceive, libc::EINVAL));
    let requests: Vec<_> = (0..40).map(|_| request.clone()).collect();
    srq.resize(33).unwrap();
    let error = srq.post_recv_batch(&requests).unwrap_err();
    assert_eq!((error.index, error.error), (33, PostError::QueueFull { capacity: 33 }));
    assert_eq!(srq.arm_limit(34).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(srq.resize(32).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(srq.query(), SrqAttr { max_wr: 33, max_sge: 1, srq_limit: 0 });
}

#[test]
fn a_file_names_one_domain_of_a_device() {
    let (one, other) = (device(63, 1), device(63, 2));
    let path = std::env::temp_dir().join(format!("urxe-xrcd-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    let error = one.open_xrc_domain(&file, XrcdFlags::empty()).unwrap_err();
    assert_eq!(error.errno(), libc::EAGAIN);
    let domain = one.open_xrc_domain(&file, XrcdFlags::CREATE | XrcdFlags::EXCLUSIVE).unwrap();
    let again = one.open_xrc_domain(File::open(&path).unwrap(), XrcdFlags::empty()).unwrap();
    assert!(domain.is_same(&again));
    // Another device of this process has a domain of its own.
    assert!(!domain.is_same(&other.open_xrc_domain(&file, XrcdFlags::CREATE).unwrap()));
    let target = domain.target().unwrap();
    drop(domain);
    let shared = again.open_target(target.qpn()).unwrap();
    drop(target);
    assert_eq!(shared.state(), QpState::Reset);
    let qpn = shared.qpn();
    drop(shared);
    assert_eq!(again.open_target(qpn).unwrap_err().errno(), libc::EINVAL);
    drop(again);
    let error = one.open_xrc_domain(&file, XrcdFlags::empty()).unwrap_err();
    assert_eq!(error.errno(), libc::EAGAIN);
    std::fs::remove_file(&path).unwrap();
}
