//! Limits of a device: each object up to the limit, and a refusal of the next.

use super::*;
use urxe_device::device::ah::CreateAhError;
use urxe_device::device::{CreateCqError, CreateQpError, Limits};
use urxe_device::qp::work_request::PostError;
use urxe_device::srq::error::{CreateSrqError, ModifySrqError};
use urxe_device::srq::xrcd::XrcdFlags;
use urxe_device::srq::{SrqAttr, SrqAttrMask, SrqInit};
use urxe_memory::{AllocMwError, MwType, RegMrError};

/// Returns a device with changed limits.
pub fn device(change: impl FnOnce(&mut Limits)) -> Device {
    let mut config = DeviceConfig::new(vec![Gid::from_ip(A.into())], 1);
    change(&mut config.limits);
    Device::new(config)
}

type Lower = fn(&mut Limits);
type Take = fn(&Device, PdId, &Arc<Cq>) -> Result<(), i32>;

fn open_xrcd(device: &Device) -> Result<(), i32> {
    device
        .open_xrcd(None, XrcdFlags::CREATE, |_| unreachable!("no file"))
        .map(drop)
        .map_err(|error| error.errno())
}

fn register_page(device: &Device, pd: PdId, len: usize) -> Result<(), RegMrError> {
    let buffer = Arc::new(Buffer::new(len).unwrap());
    device.memory().register_buffer(pd, &buffer, 0..len, 0, Access::LOCAL_WRITE).map(drop)
}

#[test]
fn as_many_are_made_as_the_device_has_and_one_more_is_refused() {
    let rows: [(&str, Lower, Take); 5] = [
        (
            "max_qp",
            |limits| limits.max_qp = 3,
            |device, pd, cq| {
                let init = qp::init(QpType::Rc, pd, cq);
                device.create_qp(&init).map(drop).map_err(|error| error.errno())
            },
        ),
        ("max_xrcd", |limits| limits.max_xrcd = 3, |device, _, _| open_xrcd(device)),
        (
            "max_srq",
            |limits| limits.max_srq = 3,
            |device, pd, _| {
                let attr = SrqAttr { max_wr: 1, max_sge: 1, srq_limit: 0 };
                let made = device.create_srq(&SrqInit { pd, attr, xrc: None, context: 0 });
                // A dropped queue still exists until it is destroyed.
                made.map(std::mem::forget).map_err(|error| error.errno())
            },
        ),
        (
            "max_mr",
            |limits| limits.max_mr = 3,
            |device, pd, _| register_page(device, pd, 4096).map_err(|error| error.errno()),
        ),
        (
            "max_mw",
            |limits| limits.max_mw = 3,
            |device, pd, _| {
                let made = device.memory().alloc_mw(pd, MwType::Type2);
                made.map(drop).map_err(|error: AllocMwError| error.errno())
            },
        ),
    ];
    for (name, change, take) in rows {
        let device = device(change);
        let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4, None, 0).unwrap());
        let outcomes: Vec<_> = (0..4).map(|_| take(&device, pd, &cq)).collect();
        assert_eq!(outcomes, [Ok(()), Ok(()), Ok(()), Err(libc::ENOMEM)], "{name}");
    }
}

#[test]
fn a_region_is_no_longer_than_the_device_allows() {
    let device = device(|limits| limits.max_mr_size = 8192);
    let pd = device.alloc_pd().unwrap();
    assert_eq!(register_page(&device, pd, 8192), Ok(()));
    let too_long = register_page(&device, pd, 8193);
    assert_refused!(too_long, RegMrError::TooLong { given: 8193, allowed: 8192 }, EINVAL);
    let [short, long] = [4096, 16384].map(|len| Arc::new(Buffer::new(len).unwrap()));
    let mr = device.memory().register_buffer(pd, &short, 0..4096, 0, Access::LOCAL_WRITE).unwrap();
    let grown = device.memory().reregister_buffer(mr.lkey, Some((&long, 0..16384, 0)), None, None);
    assert_refused!(grown, _, EINVAL);
}

#[test]
fn a_message_is_no_longer_than_the_device_allows() {
    let mut config = DeviceConfig::new(vec![Gid::from_ip(A.into())], 1);
    config.limits.max_msg_sz = 5000;
    let end = Host::with(A.into(), config, HostOptions::default());
    end.connect_qp(end.qp, end.qp.qpn(), A);
    let remote = end.remote(0);
    for op in [SendOp::Send, SendOp::Write { remote }, SendOp::Read { remote }] {
        let post = |sges: &[Sge]| end.post_request(end.qp, &request(op, sges));
        assert_eq!(post(&[end.sge(0, 2500), end.sge(0, 2500)]), Ok(()), "{op:?}");
        let refused = post(&[end.sge(0, 2500), end.sge(0, 2501)]);
        assert_eq!(refused, Err(PostError::TooLong { given: 5001, allowed: 5000 }), "{op:?}");
    }
}

#[test]
fn completion_queues_are_counted_and_their_places_come_back() {
    let device = device(|limits| limits.max_cq = 2);
    let (first, second) =
        (device.create_cq(1, None, 0).unwrap(), device.create_cq(1, None, 0).unwrap());
    assert_refused!(device.create_cq(1, None, 0), CreateCqError::NoneLeft { allowed: 2 }, ENOMEM);
    first.destroy().unwrap();
    drop(first);
    let third = device.create_cq(1, None, 0).unwrap();
    assert!(device.create_cq(1, None, 0).is_err());
    // A refusal for another reason does not count.
    drop(third);
    assert!(matches!(device.create_cq(0, None, 0), Err(CreateCqError::Cq(_))));
    assert!(device.create_cq(1, None, 0).is_ok());
    drop(second);
}

#[test]
fn address_handles_are_counted_and_their_places_come_back() {
    let device = device(|limits| limits.max_ah = 2);
    let pd = device.alloc_pd().unwrap();
    let to = address_vector(B.into());
    let (first, _) = (device.create_ah(pd, &to).unwrap(), device.create_ah(pd, &to).unwrap());
    assert_refused!(device.create_ah(pd, &to), CreateAhError::NoneLeft { allowed: 2 }, ENOMEM);
    device.destroy_ah(first).unwrap();
    device.create_ah(pd, &to).unwrap();
    assert!(device.create_ah(pd, &to).is_err());
}

#[test]
fn a_device_has_no_more_groups_than_its_process_has_descriptors() {
    let limits = Limits::default();
    assert_eq!(limits.within_descriptors(1024).max_mcast_grp, 1024);
    assert_eq!(limits.within_descriptors(u64::MAX), limits);
}

#[test]
fn queues_that_no_system_has_memory_for_are_refused_and_leave_nothing() {
    let device = device(|limits| {
        limits.max_srq_wr = u32::MAX / 2;
        (limits.max_qp_wr, limits.max_sge, limits.max_srq_sge) = (u32::MAX / 2, u32::MAX, u32::MAX);
        (limits.max_qp, limits.max_srq) = (1, 1);
    });
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(10, None, 0).unwrap();
    let attr = SrqAttr { max_wr: u32::MAX / 2, max_sge: u32::MAX, srq_limit: 0 };
    let init = SrqInit { pd, attr, xrc: None, context: 0 };
    for _ in 0..3 {
        let refused = device.create_srq(&init).unwrap_err();
        assert!(matches!(refused, CreateSrqError::NoMemory(_)), "{refused}");
        assert_eq!(refused.errno(), libc::ENOMEM);
        for large in [
            QpCap { max_send_wr: u32::MAX / 2, max_send_sge: u32::MAX, ..QpCap::default() },
            QpCap { max_recv_wr: u32::MAX / 2, max_recv_sge: u32::MAX, ..QpCap::default() },
        ] {
            let init = QpInit { cap: large, ..qp::init(QpType::Rc, pd, &cq) };
            let refused = device.create_qp(&init).unwrap_err();
            assert!(matches!(refused, CreateQpError::NoMemory(_)), "{refused}");
        }
    }
    // Neither the counts of the domain nor the only numbers are taken.
    let small = SrqInit { attr: SrqAttr { max_wr: 1, max_sge: 1, srq_limit: 0 }, ..init };
    let srq = device.create_srq(&small).unwrap();
    let refused = srq.modify(&attr, SrqAttrMask::MAX_WR).unwrap_err();
    assert!(matches!(refused, ModifySrqError::NoMemory(_)), "{refused}");
    assert_eq!(srq.query().max_wr, 1);
    device.destroy_srq(&srq).unwrap();
    let made = device.create_qp(&qp::init(QpType::Rc, pd, &cq)).unwrap();
    device.destroy_qp(Time::ZERO, made).unwrap();
    device.dealloc_pd(pd).unwrap();
}
