//! The errors of a device whose process has no descriptors left. The test has its own process,
//! because it lowers the limit.

use std::net::Ipv4Addr;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use urxe_stack::driver::{Engine, EngineConfig};
use urxe_stack::link::LinkSpec;
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpCap, QpType};
use urxe_wire::Gid;

/// More descriptors than a device and a test need.
const DESCRIPTORS: u64 = 128;

#[test]
fn groups_end_where_the_descriptors_do() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum }).unwrap();
    let spec: LinkSpec = "rxe0=127.77.4.1".parse().unwrap();
    let engine = Engine::open(&spec, EngineConfig::default()).unwrap();
    let device = engine.device();
    assert_eq!(device.limits().max_mcast_grp, DESCRIPTORS as u32);
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(1, None, 0).unwrap();
    let (send_cq, recv_cq) = (Arc::clone(&cq), cq);
    let (qp_type, cap) = (QpType::Ud, QpCap::default());
    let init = QpInit { qp_type, pd, send_cq, recv_cq, srq: None, cap, sq_sig_all: false };
    let qp = device.create_qp(&init).unwrap();
    let [.., high, low] = std::process::id().to_be_bytes();
    let group = |nr: u8| Gid::from_ip(Ipv4Addr::new(239, high, low, nr).into());
    let refused = (0..DESCRIPTORS as u8).find_map(|nr| device.attach_mcast(qp, group(nr)).err());
    let error = refused.expect("the sockets of the device itself are descriptors, too");
    assert_eq!(error.errno(), libc::ENOMEM, "{error}");
    // A group that the device leaves makes room for another.
    device.detach_mcast(qp, group(0)).unwrap();
    device.attach_mcast(qp, group(200)).unwrap();
}
