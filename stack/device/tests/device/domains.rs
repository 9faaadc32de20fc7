//! Parent domains and thread domains: ownership and use counts.

use super::*;
use urxe_device::srq::{SrqAttr, SrqInit};

#[test]
fn objects_made_with_a_parent_domain_belong_to_the_protection_domain() {
    let (a, b, wire) = pair();
    let td = a.device.alloc_td().unwrap();
    let parent = a.device.alloc_parent_domain(a.pd, Some(td)).unwrap();
    assert_ne!(parent, a.pd);
    assert_eq!(a.device.protection_domain(parent), Some(a.pd));
    assert_eq!(a.device.protection_domain(a.pd), Some(a.pd));
    // A queue pair of the parent domain sends from a region of the protection domain, and its peer
    // writes there.
    let (from, to) = (a.create(&qp::init(QpType::Rc, parent, &a.cq)), b.create_qp());
    connect(&a, from, &b, to);
    a.write(0, b"of the parent");
    a.post_on(from, SendOp::Write { remote: b.remote(0) }, &[a.sge(0, 13)]);
    run(&a, &b, &wire);
    b.post_on(to, SendOp::Write { remote: a.remote(64) }, &[b.sge(0, 13)]);
    run(&a, &b, &wire);
    assert_eq!([a.statuses(), b.statuses()], [[WcStatus::Success]; 2]);
    assert_eq!(a.bytes(64, 13), b"of the parent");
}

#[test]
fn domains_are_busy_while_something_is_made_with_them() {
    let end = Host::new(A, 1);
    let device = &end.device;
    let pd = device.alloc_pd().unwrap();
    let td = device.alloc_td().unwrap();
    let parent = device.alloc_parent_domain(pd, Some(td)).unwrap();
    // A parent domain of a parent domain belongs to the same protection domain.
    let second = device.alloc_parent_domain(parent, None).unwrap();
    assert_eq!(device.protection_domain(second), Some(pd));
    let busy = |domain| match device.dealloc_pd(domain) {
        Err(error @ DeallocPdError::Busy { qps, srqs, ahs, holds, mrs, parents }) => {
            assert_eq!(error.errno(), libc::EBUSY);
            assert_eq!(holds, 0);
            [qps, srqs, ahs, mrs, parents]
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(busy(pd), [0, 0, 0, 0, 2]);
    assert_refused!(device.dealloc_td(td), DeallocTdError::Busy { parents: 1 }, EBUSY);

    let qp = end.create(&qp::init(QpType::Rc, parent, &end.cq));
    let attr = SrqAttr { max_wr: 1, max_sge: 1, srq_limit: 0 };
    let srq = device.create_srq(&SrqInit { pd: parent, attr, xrc: None, context: 0 }).unwrap();
    assert_eq!(srq.pd(), pd, "its receives are in regions of the protection domain");
    let ah = device.create_ah(parent, &address_vector(B.into())).unwrap();
    assert_eq!(busy(parent), [1, 1, 1, 0, 0]);
    device.destroy_qp(Time::ZERO, qp).unwrap();
    assert_eq!(busy(parent), [0, 1, 1, 0, 0]);
    device.destroy_srq(&srq).unwrap();
    device.destroy_ah(ah).unwrap();
    device.dealloc_pd(parent).unwrap();
    device.dealloc_td(td).unwrap();
    assert_eq!(busy(pd), [0, 0, 0, 0, 1]);
    device.dealloc_pd(second).unwrap();
    device.dealloc_pd(pd).unwrap();

    assert_refused!(device.alloc_parent_domain(pd, None), _, EINVAL);
    assert_refused!(device.alloc_parent_domain(end.pd, Some(td)), _, EINVAL);
    assert_refused!(device.dealloc_td(td), _, EINVAL);
    assert_eq!(device.dealloc_pd(parent), Err(DeallocPdError::NoPd));
    let init = SrqInit { pd: parent, attr, xrc: None, context: 0 };
    assert_refused!(device.create_srq(&init), _, EINVAL);
}

#[test]
fn a_held_domain_is_busy() {
    let end = Host::new(A, 1);
    let device = &end.device;
    let pd = device.alloc_pd().unwrap();
    let parent = device.alloc_parent_domain(pd, None).unwrap();
    for domain in [parent, pd] {
        device.hold_domain(domain).unwrap();
        assert!(matches!(device.dealloc_pd(domain), Err(DeallocPdError::Busy { holds: 1, .. })));
        device.release_domain(domain);
        device.dealloc_pd(domain).unwrap();
        assert_eq!(device.hold_domain(domain), Err(AllocParentDomainError::NoPd));
    }
}

#[test]
fn parent_domains_count_among_the_protection_domains() {
    let device = limits::device(|limits| limits.max_pd = 2);
    let pd = device.alloc_pd().unwrap();
    let parent = device.alloc_parent_domain(pd, None).unwrap();
    assert_eq!(device.alloc_pd(), None);
    let none_left = device.alloc_parent_domain(pd, None);
    assert_refused!(none_left, AllocParentDomainError::NoneLeft { allowed: 2 }, ENOMEM);
    let tds = [device.alloc_td().unwrap(), device.alloc_td().unwrap()];
    assert_eq!(device.alloc_td(), None);
    device.dealloc_td(tds[0]).unwrap();
    device.dealloc_pd(parent).unwrap();
    assert!(device.alloc_pd().is_some() && device.alloc_td().is_some());
}
