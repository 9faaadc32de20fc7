//! Parent domains, imported domains and regions, and reregistered regions.

use urxe::sim::Fabric;
use urxe::*;

use crate::common::{ALL, End, connected, failure, pattern, simulated_pair, status};

#[test]
fn a_parent_domain_is_its_protection_domain() {
    let fabric = Fabric::new(11);
    let (a, b) = simulated_pair(&fabric);
    let td = a.device.alloc_thread_domain().unwrap();
    let parent = a.pd.parent_domain(Some(&td)).unwrap();
    assert!(parent.is_parent_domain() && !a.pd.is_parent_domain());
    assert!(parent.thread_domain().is_some());
    let of_parent = parent.allocate(64, ALL).unwrap();
    let (qp, _peer) = connected((&parent, &a.cq), (&b.pd, &b.cq));
    of_parent.write(0, &pattern(64, 1)).unwrap();
    a.region.write(0, &pattern(64, 2)).unwrap();
    // Regions of either domain are used by queue pairs of either domain.
    for (qp, from, to) in [
        (&qp, a.slice(..64), 0),
        (&qp, of_parent.slice(..).unwrap(), 64),
        (&a.qp, of_parent.slice(..).unwrap(), 128),
    ] {
        let remote = b.region.remote().slice(to..).unwrap();
        qp.post_send(&SendRequest::write(from, remote).signaled()).unwrap();
        let _ = a.complete();
    }
    let got: Vec<u8> = b.bytes(0, 192);
    assert_eq!(got, [pattern(64, 2), pattern(64, 1), pattern(64, 1)].concat());
    let other = Fabric::new(12).device([10, 0, 0, 9]).unwrap();
    let refused = other.alloc_pd().unwrap().parent_domain(Some(&td)).unwrap_err();
    assert_eq!(refused, AllocParentDomainError::NoTd);
}

#[test]
fn domains_are_freed_in_any_order_of_drops() {
    let fabric = Fabric::new(13);
    let mut options = sim::DeviceOptions::default();
    options.limits.max_pd = 2;
    let device = fabric.device_with(&[[10, 0, 0, 1].into()], options).unwrap();
    // Each round needs both protection domains of the device, so a leaked domain fails the next
    // round.
    for round in 0..6 {
        let pd = device.alloc_pd().unwrap();
        let td = device.alloc_thread_domain().unwrap();
        let parent = pd.parent_domain(Some(&td)).unwrap();
        let region = parent.allocate(64, ALL).unwrap();
        let cq = device.create_cq(4).unwrap();
        let qp = parent.queue_pair(&cq).create().unwrap();
        let window = parent.alloc_window().unwrap();
        let mut things: Vec<Box<dyn std::any::Any>> = vec![
            Box::new(pd),
            Box::new(td),
            Box::new(parent),
            Box::new(region),
            Box::new(qp),
            Box::new(window),
        ];
        things.rotate_left(round);
        things.into_iter().for_each(drop);
    }
}

#[test]
fn a_protection_domain_and_a_region_are_found_by_their_numbers() {
    let fabric = Fabric::new(14);
    let (a, b) = simulated_pair(&fabric);
    // Another part of the program receives the device and two numbers.
    let (context, handles) = (a.device.clone(), (a.pd.handle(), a.region.handle()));
    let pd = context.import_pd(handles.0).unwrap();
    let region = pd.import_region(handles.1).unwrap();
    assert_eq!(
        (region.lkey(), region.rkey(), region.len()),
        (a.region.lkey(), a.region.rkey(), a.region.len())
    );
    assert_eq!(region.remote(), a.region.remote());
    let (qp, _peer) = connected((&pd, &a.cq), (&b.pd, &b.cq));
    a.region.write(100, b"shared").unwrap();
    let from = region.slice(100..106).unwrap();
    qp.post_send(&SendRequest::write(from, b.region.remote()).signaled()).unwrap();
    let _ = a.complete();
    assert_eq!(b.bytes(0, 6), b"shared");
    // Dropping an imported handle does not affect the owner.
    drop((region, pd));
    let _ = a.perform(SendRequest::write(a.slice(..8), b.region.remote()));

    let other = a.device.alloc_pd().unwrap();
    let error = other.import_region(handles.1).unwrap_err();
    assert_eq!((error, error.errno()), (ImportError::OtherPd { given: handles.1 }, libc::ENOENT));
    let wrong = handles.1 ^ 0x100;
    assert_eq!(other.import_region(wrong).unwrap_err(), ImportError::NoRegion { given: wrong });
    let gone = other.handle();
    drop(other);
    assert_eq!(a.device.import_pd(gone).unwrap_err(), ImportError::NoPd { given: gone });
    assert_eq!(b.device.import_pd(gone).unwrap_err().errno(), libc::ENOENT);
}

#[test]
fn an_imported_region_that_is_gone_ends_its_users_with_an_error() {
    let fabric = Fabric::new(15);
    let (a, b) = simulated_pair(&fabric);
    let gone = a.pd.allocate(64, ALL).unwrap();
    let imported = a.pd.import_region(gone.handle()).unwrap();
    drop(gone);
    a.qp.post_send(&SendRequest::write(imported.slice(..8).unwrap(), b.region.remote())).unwrap();
    assert_eq!(failure(&a.cq).status, WcStatus::LocProtErr);
}

/// Returns the status of a WRITE of eight bytes to `remote`.
fn write_to(a: &End, b: &End, b_pd: &ProtectionDomain, remote: RemoteRegion) -> WcStatus {
    let (qp, _peer) = connected((&a.pd, &a.cq), (b_pd, &b.cq));
    a.region.write(0, &pattern(8, 3)).unwrap();
    qp.post_send(&SendRequest::write(a.slice(..8), remote).signaled()).unwrap();
    status(&a.cq)
}

#[test]
fn a_region_is_reregistered_in_each_way_alone_and_in_all_together() {
    let fabric = Fabric::new(16);
    let (a, b) = simulated_pair(&fabric);
    let (pd, other) = (b.pd.clone(), b.device.alloc_pd().unwrap());
    let write = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mut region = pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let keys = (region.lkey(), region.rkey());
    assert_eq!(write_to(&a, &b, &pd, region.remote()), WcStatus::RemAccessErr);

    region.change(&RegionChange::new().access(write)).unwrap();
    assert_eq!(write_to(&a, &b, &pd, region.remote()), WcStatus::Success);
    assert_eq!(region.read_vec(0, 8).unwrap(), pattern(8, 3));

    region.change(&RegionChange::new().pd(&other)).unwrap();
    assert_eq!(region.pd().handle(), other.handle());
    assert_eq!(write_to(&a, &b, &pd, region.remote()), WcStatus::RemAccessErr);
    assert_eq!(write_to(&a, &b, &other, region.remote()), WcStatus::Success);

    let former = region.remote();
    region.change(&RegionChange::new().memory(3 << 12, 0x7000_0000)).unwrap();
    assert_eq!((region.len(), region.iova(), region.access()), (3 << 12, 0x7000_0000, write));
    assert_eq!(region.read_vec(0, 8).unwrap(), [0; 8], "the memory is fresh");
    assert_eq!(
        write_to(&a, &b, &other, former),
        WcStatus::RemAccessErr,
        "the former address is nowhere"
    );
    assert_eq!(
        write_to(&a, &b, &other, region.remote().slice(12280..).unwrap()),
        WcStatus::Success
    );
    assert_eq!(region.read_vec(12280, 8).unwrap(), pattern(8, 3));

    let all =
        RegionChange::new().memory(64, 0).pd(&pd).access(Access::LOCAL_WRITE | Access::REMOTE_READ);
    region.change(&all).unwrap();
    assert_eq!((region.len(), region.iova(), region.pd().handle()), (64, 0, pd.handle()));
    assert_eq!(write_to(&a, &b, &pd, region.remote()), WcStatus::RemAccessErr);
    assert_eq!((region.lkey(), region.rkey()), keys, "the keys stayed all along");
    drop(other);
}

#[test]
fn a_refused_reregistration_leaves_the_region_as_it_was() {
    let fabric = Fabric::new(17);
    let (a, b) = simulated_pair(&fabric);
    let mut region = b.pd.allocate(4096, ALL | Access::MW_BIND).unwrap();
    region.write(0, b"keep").unwrap();
    let before = region.remote();
    let foreign = a.device.alloc_pd().unwrap();
    let mut window = b.pd.alloc_window().unwrap();
    for (change, errno) in [
        (RegionChange::new(), libc::EINVAL),
        (RegionChange::new().pd(&foreign), libc::EINVAL),
        (RegionChange::new().access(Access::REMOTE_WRITE), libc::EINVAL),
        (RegionChange::new().memory(0, 0), libc::EINVAL),
        (RegionChange::new().memory(4096, 5), libc::EINVAL),
    ] {
        let error = region.change(&change).unwrap_err();
        assert_eq!(error.errno(), errno, "{error}");
    }
    let part = region.slice(..64).unwrap();
    let _ = b.perform(SendRequest::bind(&mut window, part, Access::REMOTE_READ));
    let error = region.change(&RegionChange::new().memory(8192, 0)).unwrap_err();
    assert_eq!(error.errno(), libc::EBUSY, "{error}");
    assert_eq!((region.remote(), region.access()), (before, ALL | Access::MW_BIND));
    assert_eq!(region.read_vec(0, 4).unwrap(), b"keep");
    assert_eq!(write_to(&a, &b, &b.pd, region.remote()), WcStatus::Success);
}
