//! Send queues whose entries stay in use until a completion is polled.

use urxe::*;

use crate::common::{End, connect, failure, success};

const CAPACITY: u32 = 4;

/// Returns two connected ends, the first with a send queue of [`CAPACITY`] entries.
fn ends(net: u8, strict: bool) -> (End, End, QueuePair, QueuePair) {
    let [a, b] = [1, 2].map(|host| {
        let builder = Device::builder().strict_queues(strict);
        End::on(builder.open_address([127, 48, net, host]).unwrap())
    });
    let qp = a.pd.queue_pair(&a.cq).max_send_wr(CAPACITY).create().unwrap();
    let peer = b.pd.queue_pair(&b.cq).create().unwrap();
    connect(&qp, &peer);
    assert_eq!(qp.query().cap.max_send_wr, CAPACITY);
    (a, b, qp, peer)
}

/// Posts a WRITE and waits until the peer has it. If only its acknowledgement is missing, which
/// frees an entry, waits for that as well.
fn write(b: &End, qp: &QueuePair, number: u64, signaled: bool) -> Result<(), PostError> {
    let bytes = number.to_ne_bytes();
    let request = SendRequest::write(Data::inline(&bytes), b.region.remote()).wr_id(number);
    let request = if signaled { request.signaled() } else { request };
    loop {
        match qp.post_send(&request) {
            Err(PostError::QueueFull { .. }) => std::thread::yield_now(),
            posted => break posted?,
        }
    }
    while b.region.load_u64(0).unwrap() != number {
        std::thread::yield_now();
    }
    Ok(())
}

#[test]
fn acknowledged_sends_free_their_entries() {
    let (a, b, qp, _peer) = ends(210, false);
    for number in 1..=100 {
        write(&b, &qp, number, false).unwrap();
    }
    for number in 101..=103 {
        write(&b, &qp, number, true).unwrap();
    }
    assert_eq!([(); 3].map(|()| success(&a.cq).wr_id), [101, 102, 103]);
}

#[test]
fn polled_completions_free_the_entries_of_strict_queues() {
    let (a, b, qp, _peer) = ends(211, true);
    let full = Err(PostError::NotPolled { capacity: CAPACITY });
    for first in (1..200).step_by(8) {
        for number in first..first + 4 {
            // The third of four requests is signaled, so its completion frees three entries.
            write(&b, &qp, number, number == first + 2).unwrap();
        }
        assert_eq!(write(&b, &qp, 0, false), full);
        while a.cq.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(write(&b, &qp, 0, false), full, "a completion frees nothing before its poll");
        assert_eq!(success(&a.cq).wr_id, first + 2);
        for number in first + 4..first + 7 {
            write(&b, &qp, number, number == first + 6).unwrap();
        }
        assert_eq!(write(&b, &qp, 0, false), full);
        let mut poller = loop {
            if let Some(poller) = a.cq.start_poll().unwrap() {
                break poller;
            }
        };
        assert_eq!(poller.wr_id, first + 6);
        assert!(!poller.advance().unwrap());
        drop(poller);
        write(&b, &qp, first + 7, true).unwrap();
        assert_eq!(success(&a.cq).wr_id, first + 7);
    }
}

#[test]
fn a_strict_queue_without_signaled_requests_stays_full_until_reset() {
    let (a, b, qp, peer) = ends(212, true);
    for number in 1..=u64::from(CAPACITY) {
        write(&b, &qp, number, false).unwrap();
    }
    let error = write(&b, &qp, 0, false).unwrap_err();
    assert_eq!(error, PostError::NotPolled { capacity: CAPACITY });
    assert!(error.to_string().contains("signal at least one of each 4 sends"), "{error}");
    assert_eq!(a.cq.poll_one(), Ok(None));
    qp.reset().unwrap();
    peer.reset().unwrap();
    connect(&qp, &peer);
    for number in 5..=8 {
        write(&b, &qp, number, number == 8).unwrap();
    }
    assert_eq!(success(&a.cq).wr_id, 8);
    // Failed requests complete without a signal, and free their entries as well.
    qp.set_error().unwrap();
    for number in 0..u64::from(CAPACITY) {
        qp.post_send(&SendRequest::send(Data::EMPTY).wr_id(number)).unwrap();
    }
    let post = || qp.post_send(&SendRequest::send(Data::EMPTY));
    assert_eq!(post(), Err(error));
    assert_eq!(failure(&a.cq).wr_id, 0);
    post().unwrap();
    assert_eq!(post(), Err(error));
}
