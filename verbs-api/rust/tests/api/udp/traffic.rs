//! Every operation, with its data.

use std::time::{Duration, Instant};

use urxe::*;

use crate::common::{SIZE, connect, failure, pair, pattern};

#[test]
fn send_write_read_and_atomics_move_the_right_bytes() {
    let (a, b) = pair(1);
    let data = pattern(SIZE, 5);

    b.post_recv(b.slice(..), 9);
    a.region.write(0, &data).unwrap();
    assert_eq!(a.perform(SendRequest::send_imm(a.slice(..), 77).wr_id(1)).wr_id, 1);
    let received = b.complete();
    assert_eq!(
        (received.wr_id, received.byte_len, received.imm_data()),
        (9, SIZE as u32, Some(77))
    );
    assert!(b.bytes(0, SIZE) == data, "SEND");

    let data = pattern(SIZE, 6);
    a.region.write(0, &data).unwrap();
    let there = b.region.remote();
    let _ = a.perform(SendRequest::write(a.slice(..), there));
    assert!(b.bytes(0, SIZE) == data, "WRITE");

    a.region.write(0, &vec![0; SIZE]).unwrap();
    assert_eq!(a.perform(SendRequest::read(a.slice(..), there)).opcode, WcOpcode::RdmaRead);
    assert!(a.bytes(0, SIZE) == data, "READ");

    b.region.store_u64(64, 40).unwrap();
    let word = there.slice(64..72).unwrap();
    let old = a.slice(8..16);
    let _ = a.perform(SendRequest::fetch_add(old, word, 2));
    assert_eq!((a.region.load_u64(8).unwrap(), b.region.load_u64(64).unwrap()), (40, 42));
    let _ = a.perform(SendRequest::compare_swap(old, word, 42, 7));
    assert_eq!((a.region.load_u64(8).unwrap(), b.region.load_u64(64).unwrap()), (42, 7));
}

#[test]
fn atomic_write_and_flush() {
    let (a, b) = pair(61);
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::FLUSH_GLOBAL;
    let log = b.pd.allocate(SIZE, rights).unwrap();
    let there = log.remote();
    let data = pattern(SIZE - 8, 3);
    a.region.write(8, &data).unwrap();
    a.region.store_u64(0, 77).unwrap();
    let visible = PlacementType::GLOBAL_VISIBILITY;
    let requests = [
        SendRequest::write(a.slice(8..), there.slice(8..).unwrap()),
        SendRequest::flush(there, SIZE as u32, visible).wr_id(1).signaled(),
        SendRequest::flush_region(there, visible).wr_id(2).signaled(),
        SendRequest::atomic_write(a.slice(..8), there).wr_id(3).signaled(),
    ];
    a.qp.post_send_batch(&requests).unwrap();
    for (wr_id, opcode) in [(1, WcOpcode::Flush), (2, WcOpcode::Flush), (3, WcOpcode::AtomicWrite)]
    {
        let completion = a.complete();
        assert_eq!((completion.wr_id, completion.opcode), (wr_id, opcode));
    }
    assert!(log.read_vec(8, SIZE - 8).unwrap() == data);
    assert_eq!(log.load_u64(0).unwrap(), 77);
    // Anonymous memory is not persistent, so it cannot be registered for this, and a peer cannot
    // request it.
    let refused = b.pd.allocate(SIZE, rights | Access::FLUSH_PERSISTENT);
    assert!(
        matches!(refused, Err(AllocateError::Register(RegMrError::NotPersistent { .. }))),
        "{refused:?}"
    );
    let lasting = SendRequest::flush_region(there, PlacementType::PERSISTENCE).signaled();
    a.qp.post_send(&lasting).unwrap();
    assert_eq!(failure(&a.cq).status, WcStatus::RemAccessErr);
}

#[test]
fn batches_inline_data_and_several_pieces() {
    let (a, b) = pair(2);
    let texts: Vec<String> = (0..40).map(|nr| format!("message {nr}")).collect();
    let receives: Vec<_> = (0..40)
        .map(|nr| {
            RecvRequest::new(b.region.slice(nr * 64..(nr + 1) * 64).unwrap()).wr_id(nr as u64)
        })
        .collect();
    b.qp.post_recv_batch(&receives).unwrap();
    let sends: Vec<_> = texts
        .iter()
        .map(|text| SendRequest::send(Data::inline(text.as_bytes())).signaled())
        .collect();
    a.qp.post_send_batch(&sends).unwrap();
    for (nr, text) in texts.iter().enumerate() {
        let received = b.complete();
        assert_eq!((received.wr_id, received.byte_len as usize), (nr as u64, text.len()));
        assert_eq!(b.region.read_vec(nr * 64, text.len()).unwrap(), text.as_bytes());
        let _ = a.complete();
    }

    let data = pattern(300, 1);
    a.region.write(0, &data).unwrap();
    let pieces = [(0..100), (100..101), (101..200), (200..300)].map(|range| a.slice(range));
    let here = [(4096..4200), (5000..5196)].map(|range| b.slice(range));
    b.post_recv(here, 0);
    a.post(SendRequest::send(pieces));
    assert_eq!(b.complete().byte_len, 300);
    let got = [b.bytes(4096, 104), b.bytes(5000, 196)].concat();
    assert_eq!(got, data);
}

/// As a program with `ibv_cq_ex`: several completions in one poll, posts in between, and increasing
/// timestamps.
#[test]
fn completions_are_polled_one_by_one_and_stamped() {
    let (a, b) = pair(62);
    let before = a.device.clock_ns();
    let wall_before = a.device.wallclock_ns(before).unwrap();
    let there = b.region.remote();
    let post = |wr_id| {
        a.post(SendRequest::write(Data::inline(b"x"), there).wr_id(wr_id));
    };
    (0..4).for_each(post);
    let (mut seen, mut last) = (Vec::new(), before);
    while seen.len() < 8 {
        let Some(mut poller) = a.cq.start_poll().unwrap() else { continue };
        // A second exclusive poll must fail, whether or not the other requests have completed.
        assert!(matches!(a.cq.start_poll(), Err(CqError::Polling) | Ok(None)));
        loop {
            assert_eq!((poller.status, poller.opcode), (WcStatus::Success, WcOpcode::RdmaWrite));
            assert!(poller.timestamp_ns >= last && poller.timestamp_ns <= a.device.clock_ns());
            assert!(
                a.device.wallclock_ns(poller.timestamp_ns).unwrap() + 1_000_000_000 > wall_before
            );
            last = poller.timestamp_ns;
            seen.push(poller.wr_id);
            if seen.len() <= 4 {
                post(poller.wr_id + 4);
            }
            if !poller.advance().unwrap() {
                break;
            }
        }
    }
    assert_eq!(seen, (0..8).collect::<Vec<_>>());
}

/// Requests that were deferred to share a system call are sent even if the program never polls.
#[test]
fn posted_requests_arrive_without_any_poll() {
    let (a, b) = pair(46);
    for round in 1..=2u8 {
        let message = [round];
        for at in 0..30 {
            let there = b.region.remote().slice(at..at + 1).unwrap();
            a.qp.post_send(&SendRequest::write(Data::inline(&message), there)).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while b.bytes(0, 30) != [round; 30] {
            assert!(Instant::now() < deadline, "{:?}", b.region.read_vec(0, 30));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_queue_pair_acknowledges_a_message_before_it_is_destroyed() {
    let (a, b) = pair(47);
    // Polls without pause, so that the next step immediately follows the message.
    let received = || {
        while b.cq.poll_one().unwrap().is_none() {}
    };
    let leave: [&dyn Fn(QueuePair); 3] =
        [&|qp| qp.set_error().unwrap(), &|qp| qp.reset().unwrap(), &|qp| drop(qp)];
    for round in 0..30 {
        let [here, there] = [&a, &b].map(|end| end.pd.queue_pair(&end.cq).create().unwrap());
        connect(&here, &there);
        there.post_recv(&RecvRequest::new(Gather::EMPTY)).unwrap();
        here.post_send(&SendRequest::send(Data::EMPTY).signaled()).unwrap();
        received();
        leave[round % leave.len()](there);
        let _ = a.complete();
    }
}

/// A link delays one of thirty packets by some microseconds. This causes almost no retransmission,
/// even with a single outstanding message, because the receiver stores the packets that follow. The
/// scheduler decides about the real delay, so a few packets count as lost.
#[cfg(feature = "sim")]
#[test]
fn packets_that_are_late_for_microseconds_are_not_retransmitted() {
    /// The size of a message in bytes: six packets of 4 KiB.
    const MESSAGE: usize = 6 << 12;
    const MESSAGES: usize = 1500;

    let faults: FaultSpec = "reorder=3%,late=30us,seed=11".parse().unwrap();
    let ends = [1, 2].map(|host| {
        let builder = Device::builder().faults(faults.clone());
        crate::common::End::on(builder.open_address([127, 48, 63, host]).unwrap())
    });
    let [a, b] = &ends;
    let options = ConnectOptions::new().path_mtu(PathMtu::Mtu4096);
    a.qp.connect(&b.qp.endpoint(), &options).unwrap();
    b.qp.connect(&a.qp.endpoint(), &options).unwrap();
    let there = b.region.remote();
    for nr in 0..MESSAGES {
        let data = pattern(MESSAGE, nr as u8);
        a.region.write(0, &data).unwrap();
        let _ = a.perform(SendRequest::write(a.slice(..MESSAGE), there));
        assert!(b.bytes(0, MESSAGE) == data, "WRITE {nr}");
        let back = SendRequest::read(a.slice(MESSAGE..2 * MESSAGE), there);
        let _ = a.perform(back);
        assert!(a.bytes(MESSAGE, MESSAGE) == data, "READ {nr}");
    }
    let count = |counter| ends.iter().map(|end| end.device.counter(counter)).sum::<u64>();
    let [late, executed, went_back] =
        [Counter::SimulatedReorder, Counter::ReorderDelivered, Counter::CompleterRetryErr]
            .map(count);
    eprintln!(
        "{late} packets were late, {executed} executed when these came, \
         {went_back} times sent again"
    );
    assert!(late > 300 && executed > late, "{late} were late, {executed} kept for them");
    // Without the reorder buffer, each late packet would cause a retransmission. With it, only a
    // late packet at the end of a message does.
    assert!(went_back < late / 4, "{late} were late, {went_back} times sent again");
}
