//! Tests of order, limit, resizing and destruction.

use super::error::*;
use super::*;
use crate::cq::NoWake;
use urxe_wire::Lkey;

fn srq(max_wr: u32, srq_limit: u32) -> Srq {
    let init = SrqInit {
        pd: PdId(1),
        attr: SrqAttr { max_wr, max_sge: 2, srq_limit },
        xrc: None,
        context: 0,
    };
    let resources = SrqResources {
        id: SrqId(5),
        pd: PdId(1),
        max_wr: 100,
        events: Arc::new(AsyncEvents::new(Box::new(NoWake))),
        counters: Arc::default(),
    };
    Srq::new(&init, None, resources).unwrap()
}

fn sge(addr: u64) -> Sge {
    Sge { addr, length: 16, lkey: Lkey(9) }
}

fn post(srq: &Srq, ids: std::ops::Range<u64>) -> Result<(), (usize, PostError)> {
    let sges: Vec<_> = ids.clone().map(|id| [sge(id)]).collect();
    let requests: Vec<_> =
        ids.zip(&sges).map(|(wr_id, sges)| RecvRequest { wr_id, sges }).collect();
    srq.post(&requests)
}

fn take(srq: &Srq) -> Option<(u64, Vec<Sge>)> {
    let mut sges = [Sge::default(); 2];
    let wqe = srq.take(&mut sges)?;
    Some((wqe.wr_id, sges[..usize::from(wqe.num_sge)].to_vec()))
}

#[test]
fn receives_are_taken_in_the_order_in_which_they_were_posted() {
    let srq = srq(4, 0);
    assert_eq!(take(&srq), None);
    for round in 0..10 {
        assert_eq!(post(&srq, round..round + 3), Ok(()));
        for id in round..round + 3 {
            assert_eq!(take(&srq), Some((id, vec![sge(id)])));
        }
        assert_eq!(take(&srq), None);
    }
    assert_eq!(srq.counters.value(Counter::SrqEmpty), 11);
}

#[test]
fn a_request_that_does_not_fit_is_refused_with_its_index_and_those_before_it_are_posted() {
    let srq = srq(4, 0);
    assert_eq!(post(&srq, 0..6), Err((4, PostError::QueueFull { capacity: 4 })));
    assert_eq!((srq.len(), PostError::QueueFull { capacity: 4 }.errno()), (4, libc::ENOMEM));
    assert_eq!(take(&srq).unwrap().0, 0);
    let three = [sge(0); 3];
    let requests = [RecvRequest { wr_id: 9, sges: &[] }, RecvRequest { wr_id: 10, sges: &three }];
    assert_eq!(srq.post(&requests[1..]), Err((0, PostError::TooManySges { given: 3, allowed: 2 })));
    assert_eq!(srq.post(&requests), Err((1, PostError::QueueFull { capacity: 4 })));
    assert_eq!(srq.len(), 4);
}

/// IBTA 10.2.9.1.
#[test]
fn the_limit_raises_one_event_when_the_number_falls_below_it() {
    let srq = srq(8, 3);
    post(&srq, 0..5).unwrap();
    for _ in 0..2 {
        take(&srq).unwrap();
    }
    assert_eq!(
        (srq.events.next_event(), srq.query().srq_limit),
        (None, 3),
        "three are left: not below"
    );
    take(&srq).unwrap();
    let reached = AsyncEvent::Srq(SrqEventType::SrqLimitReached, SrqId(5));
    assert_eq!((srq.events.next_event(), srq.query().srq_limit), (Some(reached), 0));
    take(&srq).unwrap();
    assert_eq!(srq.events.next_event(), None, "once");
    // The limit is armed while there are fewer entries: the next take raises the event.
    srq.modify(&SrqAttr { srq_limit: 2, ..SrqAttr::default() }, SrqAttrMask::LIMIT).unwrap();
    assert_eq!(srq.events.next_event(), None);
    take(&srq).unwrap();
    assert_eq!(srq.events.next_event(), Some(reached));
    assert_eq!(take(&srq), None);
}

#[test]
fn a_resized_queue_keeps_what_it_holds() {
    let srq = srq(4, 0);
    post(&srq, 0..4).unwrap();
    take(&srq).unwrap();
    post(&srq, 4..5).unwrap();
    let resize =
        |max_wr| srq.modify(&SrqAttr { max_wr, ..SrqAttr::default() }, SrqAttrMask::MAX_WR);
    resize(9).unwrap();
    post(&srq, 5..10).unwrap();
    assert_eq!(post(&srq, 10..11), Err((0, PostError::QueueFull { capacity: 9 })));
    assert_eq!(resize(8), Err(ModifySrqError::Holds { given: 8, held: 9 }));
    assert_eq!(srq.query(), SrqAttr { max_wr: 9, max_sge: 2, srq_limit: 0 });
    for id in 1..10 {
        assert_eq!(take(&srq), Some((id, vec![sge(id)])));
    }
    resize(1).unwrap();
    assert_eq!(srq.query().max_wr, 1);
}

#[test]
fn impossible_changes_are_refused_and_change_nothing() {
    let srq = srq(4, 2);
    let size =
        |given| ModifySrqError::Size(SrqSizeError { field: "max_wr", given, min: 1, max: 100 });
    let attr = |max_wr, srq_limit| SrqAttr { max_wr, srq_limit, max_sge: 0 };
    let (max_wr, limit) = (SrqAttrMask::MAX_WR, SrqAttrMask::LIMIT);
    for (attr, mask, error) in [
        (attr(0, 0), max_wr, size(0)),
        (attr(101, 0), max_wr, size(101)),
        (attr(1, 0), max_wr, ModifySrqError::Limit { given: 2, max_wr: 1 }),
        (attr(0, 5), limit, ModifySrqError::Limit { given: 5, max_wr: 4 }),
        (attr(8, 9), max_wr | limit, ModifySrqError::Limit { given: 9, max_wr: 8 }),
        (attr(8, 1), SrqAttrMask::from_bits_retain(7), ModifySrqError::Mask { given: 4 }),
    ] {
        assert_eq!(srq.modify(&attr, mask), Err(error));
        assert_eq!(error.errno(), libc::EINVAL);
        assert_eq!(srq.query(), SrqAttr { max_wr: 4, max_sge: 2, srq_limit: 2 });
    }
    srq.modify(&attr(8, 6), max_wr | limit).unwrap();
    assert_eq!(srq.query(), SrqAttr { max_wr: 8, max_sge: 2, srq_limit: 6 });
}

#[test]
fn a_queue_is_destroyed_once_and_only_without_users() {
    let srq = Arc::new(srq(4, 0));
    post(&srq, 0..2).unwrap();
    let hold = SrqRef::new(Arc::clone(&srq)).unwrap();
    assert_eq!(srq.destroy(), Err(DestroySrqError::Busy { users: 1 }));
    drop(hold);
    assert_eq!(srq.destroy(), Ok(()));
    assert_eq!(srq.destroy(), Err(DestroySrqError::NoSrq));
    assert_eq!(SrqRef::new(Arc::clone(&srq)).unwrap_err(), SrqError::Destroyed);
    assert_eq!(post(&srq, 0..1), Err((0, PostError::NoSrq)));
    assert_eq!(srq.modify(&SrqAttr::default(), SrqAttrMask::LIMIT), Err(ModifySrqError::NoSrq));
}

#[test]
fn threads_that_post_and_take_share_every_receive_exactly_once() {
    let srq = Arc::new(srq(64, 0));
    let taken = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut ids = Vec::new();
                    while ids.last() != Some(&u64::MAX) {
                        match take(&srq) {
                            Some((id, _)) => ids.push(id),
                            None => std::thread::yield_now(),
                        }
                    }
                    ids
                })
            })
            .collect();
        let post_one = |id: u64| {
            let sges = [sge(id)];
            while srq.post(&[RecvRequest { wr_id: id, sges: &sges }]).is_err() {
                std::thread::yield_now();
            }
        };
        let posters: Vec<_> = (0..2u64)
            .map(|nr| scope.spawn(move || (nr * 5000..(nr + 1) * 5000).for_each(post_one)))
            .collect();
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        (0..3).for_each(|_| post_one(u64::MAX));
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect::<Vec<_>>()
    });
    let mut ids: Vec<_> = taken.into_iter().filter(|id| *id != u64::MAX).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..10_000));
}
