//! What a device has only so many of.

use super::*;
use crate::device::ah::CreateAhError;
use crate::device::{CreateCqError, Limits};

fn device(limits: Limits) -> Device {
    Device::new(DeviceConfig { limits, ..DeviceConfig::new(vec![Gid::from_ip(A.into())], 1) })
}

#[test]
fn completion_queues_are_counted_and_their_places_come_back() {
    let device = device(Limits { max_cq: 2, ..Limits::default() });
    let (first, second) = (device.create_cq(1, None, 0).unwrap(), device.create_cq(1, None, 0).unwrap());
    let error = device.create_cq(1, None, 0).unwrap_err();
    assert!(matches!(error, CreateCqError::NoneLeft { allowed: 2 }), "{error}");
    assert_eq!(error.errno(), libc::ENOMEM);
    first.destroy().unwrap();
    drop(first);
    let third = device.create_cq(1, None, 0).unwrap();
    assert!(device.create_cq(1, None, 0).is_err());
    // What is refused for another reason takes no place.
    drop(third);
    assert!(matches!(device.create_cq(0, None, 0), Err(CreateCqError::Cq(_))));
    assert!(device.create_cq(1, None, 0).is_ok());
    drop(second);
}

#[test]
fn address_handles_are_counted_and_their_places_come_back() {
    let device = device(Limits { max_ah: 2, ..Limits::default() });
    let pd = device.alloc_pd().unwrap();
    let to = AddressVector {
        dgid: Gid::from_ip(B.into()),
        is_global: true,
        port_num: 1,
        ..AddressVector::default()
    };
    let (first, _) = (device.create_ah(pd, &to).unwrap(), device.create_ah(pd, &to).unwrap());
    let error = device.create_ah(pd, &to).unwrap_err();
    assert_eq!((error.errno(), error), (libc::ENOMEM, CreateAhError::NoneLeft { allowed: 2 }));
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
