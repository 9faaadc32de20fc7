//! Back-pressure, failures, the error state, and receive buffers.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use urxe::aio::*;
use urxe::sim::{Fabric, Rng};
use urxe::*;

use super::{Tasks, builder, poll_once, simulated};
use crate::common::{WakeCount, says};

const STEP: Duration = Duration::from_millis(1);

#[test]
fn operations_wait_for_the_send_queue_in_the_order_of_their_first_polls() {
    let fabric = Fabric::manual(1);
    let (a, b) = simulated(&fabric, builder().max_send_wr(2).receives(64, 16));
    let numbers: [u8; 20] = std::array::from_fn(|nr| nr as u8);
    let mut sends: Vec<_> = numbers.chunks(1).map(|number| a.qp.send(number)).collect();
    let mut rounds = 0;
    while !sends.is_empty() {
        if rounds > 0 {
            // A later future is polled before an earlier one that waits for longer.
            sends.reverse();
            sends.retain_mut(|send| poll_once(send).is_pending());
            sends.reverse();
        }
        sends.retain_mut(|send| poll_once(send).is_pending());
        fabric.run_for(STEP).unwrap();
        rounds += 1;
    }
    assert!(rounds >= 10, "two at a time");
    for nr in numbers {
        let std::task::Poll::Ready(message) = poll_once(&mut b.qp.recv()) else { panic!("{nr}") };
        assert_eq!(message.unwrap().to_vec(), [nr]);
    }
}

/// Returns the failure of an atomic addition on a connection of its own.
fn failed_add(
    options: &ConnectOptions,
    builder: AsyncQueuePairBuilder,
    rights: Access,
    offset: u64,
) -> OperationError {
    let fabric = Fabric::new(1);
    let pds = [1, 2].map(|host| fabric.device([10, 0, 0, host]).unwrap().alloc_pd().unwrap());
    let [qp, peer] = pds.each_ref().map(|pd| builder.clone().create(pd).unwrap());
    qp.connect(&peer.endpoint(), options).unwrap();
    peer.connect(&qp.endpoint(), options).unwrap();
    let counters = pds[1].allocate(64, rights).unwrap();
    let word = counters.remote().slice(offset..).unwrap();
    let error = pollster::block_on(qp.fetch_add(word, 1)).unwrap_err();
    assert!(counters.read_vec(0, 64).unwrap().iter().all(|byte| *byte == 0));
    error
}

#[test]
fn the_errors_of_atomic_operations_are_those_of_their_page() {
    let (usual, rights) = (ConnectOptions::new(), Access::LOCAL_WRITE | Access::REMOTE_ATOMIC);
    let status = |options, rights| match failed_add(&options, builder(), rights, 0) {
        OperationError::Failed(error) => error.status,
        other => panic!("{other}"),
    };
    let others = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    assert_eq!(status(usual, others), WcStatus::RemAccessErr);
    assert_eq!(status(usual.access(Access::REMOTE_READ), rights), WcStatus::RemInvReqErr);
    let post = |options, builder, offset| match failed_add(&options, builder, rights, offset) {
        OperationError::Post(error) => error,
        other => panic!("{other}"),
    };
    let PostError::AtomicAlignment { addr } = post(usual, builder(), 4) else { panic!() };
    assert_eq!(addr % 8, 4);
    assert_eq!(post(usual.max_rd_atomic(0), builder(), 0), PostError::NoReadDepth);
    let unreliable = PostError::Unsupported { qp_type: QpType::Uc };
    assert_eq!(post(usual, builder().unreliable(), 0), unreliable);
}

/// More of them than the connection allows at a time wait for earlier ones.
#[test]
fn atomic_operations_beyond_max_rd_atomic_wait() {
    let fabric = Fabric::new(1);
    let [a, b] = [1, 2].map(|host| fabric.device([10, 0, 0, host]).unwrap().alloc_pd().unwrap());
    let (qp, peer) = (builder().create(&a).unwrap(), builder().create(&b).unwrap());
    let options = ConnectOptions::new().max_rd_atomic(2);
    qp.connect(&peer.endpoint(), &options).unwrap();
    peer.connect(&qp.endpoint(), &options).unwrap();
    let counter = b.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC).unwrap();
    let mut adds: Vec<_> = (0..20).map(|_| qp.fetch_add(counter.remote(), 1)).collect();
    assert!(adds.iter_mut().all(|add| poll_once(add).is_pending()));
    for (nr, add) in adds.into_iter().enumerate() {
        assert_eq!(pollster::block_on(add).unwrap(), nr as u64);
    }
}

#[test]
fn a_failed_operation_names_itself_and_all_others_resolve() {
    let fabric = Fabric::new(1);
    let (a, b) = simulated(&fabric, builder().max_send_wr(2).receives(2, 16));
    let forbidden = b.qp.pd().allocate(64, Access::LOCAL_WRITE).unwrap();
    let failed = Cell::new(0);
    let mut tasks = Tasks::default();
    let mut write = a.qp.write(b"text", forbidden.remote());
    assert!(poll_once(&mut write).is_pending());
    tasks.spawn(async {
        let failure = write.await.unwrap_err();
        // The program chose no `wr_id`.
        assert!(!failure.to_string().contains("wr_id"), "{failure}");
        says(&failure, &format!("RDMA WRITE on queue pair {} failed", a.qp.qpn()));
        let OperationError::Failed(error) = failure else { panic!("it failed") };
        assert_eq!((error.opcode, error.status), (WcOpcode::RdmaWrite, WcStatus::RemAccessErr));
        assert_eq!(error.qp_num, a.qp.qpn());
        says(&error, "wr_id");
        failed.set(failed.get() + 1);
    });
    for nr in 0..5 {
        let (a, failed, b) = (&a, &failed, &b);
        let read = a.qp.read(a.share(nr * 8, 8), b.remote(0, 8));
        tasks.spawn(async move {
            let OperationError::Failed(error) = read.await.unwrap_err() else {
                panic!("it failed")
            };
            assert_eq!(error.status, WcStatus::WrFlushErr);
            failed.set(failed.get() + 1);
        });
    }
    // More tasks than receives.
    for qp in [&a.qp, &b.qp].into_iter().cycle().take(8) {
        let failed = &failed;
        tasks.spawn(async move {
            assert!(matches!(qp.recv().await.unwrap_err(), OperationError::Failed(_)));
            failed.set(failed.get() + 1);
        });
    }
    tasks.run(&mut Rng::new(1));
    assert_eq!(failed.get(), 14);
}

#[test]
fn the_error_state_resolves_all_futures_and_keeps_messages_that_arrived() {
    let fabric = Fabric::new(1);
    let (a, b) = simulated(&fabric, builder().receives(4, 16));
    for nr in 0..2 {
        let _ = pollster::block_on(a.qp.send(&[nr])).unwrap();
    }
    b.qp.set_error().unwrap();
    for nr in 0..2 {
        assert_eq!(pollster::block_on(b.qp.recv()).unwrap().to_vec(), [nr]);
    }
    let OperationError::Failed(error) = pollster::block_on(b.qp.recv()).unwrap_err() else {
        panic!("it is flushed")
    };
    assert_eq!(error.status, WcStatus::WrFlushErr);
    assert!(pollster::block_on(b.qp.send(b"late")).is_err());
}

#[test]
fn a_message_gives_its_buffer_back_when_it_is_dropped() {
    let fabric = Fabric::manual(1);
    let (a, b) = simulated(&fabric, builder().receives(1, 16));
    let mut sends = [a.qp.send(b"first"), a.qp.send(b"second")];
    for send in &mut sends {
        assert!(poll_once(send).is_pending());
    }
    fabric.run_for(STEP).unwrap();
    let std::task::Poll::Ready(first) = poll_once(&mut b.qp.recv()) else { panic!("no message") };
    let first = first.unwrap();
    fabric.run_for(STEP * 20).unwrap();
    assert!(poll_once(&mut b.qp.recv()).is_pending(), "the only buffer is in use");
    assert_eq!(first.to_vec(), b"first");
    let mut part = [0; 3];
    first.read(2, &mut part).unwrap();
    assert_eq!(&part, b"rst");
    let outside = BufferError::OutOfBounds { offset: 3, len: 3, buffer_len: 5 };
    assert_eq!(first.read(3, &mut part), Err(outside));
    drop(first);
    fabric.run_for(STEP * 20).unwrap();
    let std::task::Poll::Ready(second) = poll_once(&mut b.qp.recv()) else { panic!("no message") };
    assert_eq!(second.unwrap().to_vec(), b"second");
    assert!(sends.iter_mut().all(|send| poll_once(send).is_ready()));
}

#[test]
fn each_kind_of_operation_has_its_effect() {
    let fabric = Fabric::new(1);
    let (a, b) = simulated(&fabric, builder().receives(4, 16));
    let rights = crate::common::ALL | Access::FLUSH_GLOBAL;
    let log = b.qp.pd().allocate(4096, rights).unwrap();
    pollster::block_on(async {
        let written = a.qp.write_imm(b"log", log.remote(), 9).await.unwrap();
        assert_eq!(written.opcode, WcOpcode::RdmaWrite);
        let message = b.qp.recv().await.unwrap();
        assert_eq!((message.len(), message.is_empty(), message.imm_data()), (0, true, Some(9)));
        assert_eq!(message.completion().byte_len, 3);
        let flush = a.qp.flush(log.remote(), 3, PlacementType::GLOBAL_VISIBILITY).await.unwrap();
        assert_eq!(flush.opcode, WcOpcode::Flush);
        let mark = log.remote().slice(64..72).unwrap();
        let commit = a.qp.atomic_write(mark, 3).fenced().await.unwrap();
        assert_eq!(commit.opcode, WcOpcode::AtomicWrite);
        assert_eq!(log.load_u64(64).unwrap(), 3);
        assert_eq!(a.qp.compare_swap(mark, 4, 5).await.unwrap(), 3);
        assert_eq!(a.qp.compare_swap(mark, 3, 5).await.unwrap(), 3);
        assert_eq!(a.qp.fetch_add(mark, 2).await.unwrap(), 5);
        assert_eq!(log.load_u64(64).unwrap(), 7);
        let _ = a.qp.send(&[]).solicited().await.unwrap();
        assert!(b.qp.recv().await.unwrap().is_empty());
    });
}

#[test]
#[deny(unused_must_use)]
fn a_program_may_ignore_the_completion_of_an_operation() {
    let fabric = Fabric::new(1);
    let (a, b) = simulated(&fabric, builder());
    pollster::block_on(async {
        a.qp.send(b"one").await?;
        let completed: Completed = a.qp.send(b"two").await?;
        assert_eq!((completed.opcode, completed.qp_num), (WcOpcode::Send, a.qp.qpn()));
        assert_eq!(b.qp.recv().await?.to_vec(), b"one");
        Ok::<(), OperationError>(())
    })
    .unwrap();
}

#[test]
fn bytes_that_are_too_long_for_inline_data_are_sent_from_a_region() {
    let fabric = Fabric::new(1);
    let (a, b) = simulated(&fabric, builder().max_inline_data(300).receives(4, 9000));
    let long: Vec<u8> = (0..9000).map(|nr| nr as u8).collect();
    pollster::block_on(async {
        let allowed = a.qp.query().cap.max_inline_data;
        assert!(allowed >= 300);
        a.qp.send(&long[..300]).await.unwrap();
        assert_eq!(b.qp.recv().await.unwrap().to_vec(), long[..300]);
        let too_many = OperationError::TooManyBytes { given: 9000, allowed };
        assert_eq!(a.qp.send(&long).await, Err(too_many));
        assert_eq!(a.qp.batch([a.qp.send(&long)]).await, Err(too_many));
        says(&too_many, "ProtectionDomain::share_bytes");
        a.qp.send(a.qp.pd().share_bytes(&long).unwrap()).await.unwrap();
        assert_eq!(b.qp.recv().await.unwrap().to_vec(), long);
        a.qp.write(a.qp.pd().share_bytes(&long).unwrap(), b.remote(8, 9000)).await.unwrap();
        assert_eq!(b.region.read_vec(8, 9000).unwrap(), long);
        let nothing = a.qp.pd().share_bytes(&[]).unwrap();
        assert_eq!((nothing.len(), nothing.is_empty()), (0, true));
        let slice = a.share(8, 16);
        assert_eq!((slice.len(), slice.is_empty()), (16, false));
        a.qp.send(nothing).await.unwrap();
        assert!(b.qp.recv().await.unwrap().is_empty());
    });
}

#[test]
fn a_queue_pair_without_receives_says_so() {
    let fabric = Fabric::new(1);
    let (a, _b) = simulated(&fabric, builder().receives(0, 0));
    let error = pollster::block_on(a.qp.recv()).unwrap_err();
    assert_eq!(error, OperationError::NoReceives);
    says(&error, "AsyncQueuePairBuilder::receives");
    let other = Fabric::new(1).device([10, 0, 0, 9]).unwrap().alloc_pd().unwrap();
    let foreign = Arc::new(other.allocate(64, Access::LOCAL_WRITE).unwrap());
    let error = pollster::block_on(a.qp.send(foreign.share(..8).unwrap())).unwrap_err();
    let OperationError::Post(PostError::MemoryOfOtherDevice { memory, queue }) = error else {
        panic!("{error}")
    };
    assert_eq!((memory.as_str(), queue.as_str()), ("sim0=10.0.0.9", "sim0=10.0.0.1"));
    // A request that is not posted frees its slot.
    for _ in 0..200 {
        assert!(pollster::block_on(a.qp.send(foreign.share(..8).unwrap())).is_err());
    }
}

#[test]
#[should_panic(expected = "polled after it had returned its result")]
fn an_operation_that_is_polled_after_its_result_panics() {
    let fabric = Fabric::new(1);
    let (a, b) = simulated(&fabric, builder());
    let mut write = a.qp.write(b"once", b.remote(0, 4));
    let _ = pollster::block_on(&mut write).unwrap();
    let _ = poll_once(&mut write);
}

/// A request that is not accepted gives its entry of the send queue to the next future.
#[test]
fn a_refused_request_wakes_the_next_future() {
    let fabric = Fabric::manual(1);
    let (a, b) = simulated(&fabric, builder().max_send_wr(1));
    let other = fabric.device([10, 0, 0, 9]).unwrap().alloc_pd().unwrap();
    let foreign = Arc::new(other.allocate(64, Access::LOCAL_WRITE).unwrap());
    let mut first = a.qp.write(b"1", b.remote(0, 1));
    let mut refused = a.qp.send(foreign.share(..8).unwrap());
    let mut waits = a.qp.write(b"2", b.remote(0, 1));
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut refused).is_pending());
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(pin!(&mut waits).poll(&mut Context::from_waker(&waker)).is_pending());
    fabric.run_for(STEP).unwrap();
    assert!(poll_once(&mut first).is_ready());
    assert_eq!(*count.0.lock().unwrap(), 0);
    assert!(poll_once(&mut refused).is_ready());
    assert_eq!(*count.0.lock().unwrap(), 1);
    assert!(poll_once(&mut waits).is_pending(), "it is posted");
    fabric.run_for(STEP).unwrap();
    assert!(poll_once(&mut waits).is_ready());
}

#[test]
fn solicited_messages_cause_an_event_of_a_queue_that_waits_for_them() {
    let fabric = Fabric::manual(1);
    let [here, there] = [1, 2].map(|host| fabric.device([10, 0, 0, host]).unwrap());
    let qp = builder().create(&here.alloc_pd().unwrap()).unwrap();
    let channel = there.create_channel().unwrap();
    let cq = channel.create_cq(16).unwrap();
    let peer = there.alloc_pd().unwrap().queue_pair(&cq).create().unwrap();
    qp.connect(&peer.endpoint(), &ConnectOptions::default()).unwrap();
    peer.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
    assert!(!cq.arm(ArmKind::Solicited));
    for (send, expected) in [(qp.send(&[]), false), (qp.send(&[]).solicited(), true)] {
        peer.post_recv(&RecvRequest::new(Gather::EMPTY)).unwrap();
        let mut send = send;
        assert!(poll_once(&mut send).is_pending());
        fabric.run_for(STEP).unwrap();
        assert!(poll_once(&mut send).is_ready());
        assert_eq!(channel.try_next().is_some(), expected);
    }
}
