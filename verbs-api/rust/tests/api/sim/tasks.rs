//! Tasks of one thread in virtual time.

use std::time::Duration;

use urxe::sim::{Fabric, PausedPackets};
use urxe::*;

use crate::common::{End, simulated_pair};

async fn serve(end: &End, rounds: u64) {
    for round in 0..rounds {
        end.post_recv(end.slice(..64), 0);
        assert_eq!(end.cq.next().await.unwrap().opcode, WcOpcode::Recv);
        assert_eq!(end.region.load_u64(0).unwrap(), round);
        end.post(SendRequest::send(end.slice(..64)));
        assert_eq!(end.cq.next().await.unwrap().opcode, WcOpcode::Send);
    }
}

async fn ask(end: &End, rounds: u64) {
    for round in 0..rounds {
        end.post_recv(end.slice(64..128), 0);
        end.region.store_u64(0, round).unwrap();
        end.qp.post_send(&SendRequest::send(end.slice(..64))).unwrap();
        assert_eq!(end.cq.next().await.unwrap().opcode, WcOpcode::Recv);
        assert_eq!(end.region.load_u64(64).unwrap(), round);
    }
}

fn both(seed: u64) -> (u64, u64) {
    let fabric = Fabric::new(seed);
    let (a, b) = simulated_pair(&fabric);
    let executor = smol::LocalExecutor::new();
    smol::future::block_on(executor.run(async {
        let server = executor.spawn(serve(&b, 30));
        ask(&a, 30).await;
        server.await;
    }));
    (fabric.now().as_ns(), fabric.trace_hash())
}

#[test]
fn two_tasks_of_one_thread_play_ping_pong_the_same_way_every_time() {
    assert_eq!(both(7), both(7));
}

#[test]
fn events_can_be_awaited() {
    let fabric = Fabric::new(8);
    let (a, b) = simulated_pair(&fabric);
    assert_eq!(a.device.events().try_next(), None);
    // Without the right to write, the peer's write ends b's queue pair.
    let closed = b.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    a.qp.post_send(&SendRequest::write(a.slice(..8), closed.remote())).unwrap();
    let event = pollster::block_on(b.device.events().next()).unwrap();
    assert_eq!(event.event_type(), AsyncEventType::QpAccessErr, "{event}");
    assert_eq!(a.cq.wait_one(None).unwrap().status, WcStatus::RemAccessErr);
    fabric.pause(&a.device, PausedPackets::Drop, Duration::from_secs(1)).unwrap();
    assert_eq!(b.device.events().wait(Some(Duration::from_secs(2))), Err(WaitError::TimedOut));
}
