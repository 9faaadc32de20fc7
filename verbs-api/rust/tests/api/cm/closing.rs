//! Closing connections: to peers that are slow, dead, or close at the same time.

use std::io::{BufRead, BufReader};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use urxe::cm::{self, CloseError, Connection, ConnectionEvent, Listener, Options};
use urxe::*;

use crate::cm::{address, client, device, pair};
use crate::common::{LONG, failure, says, success};

const MESSAGES: u64 = 5;
/// The variable by which a test starts a peer that dies.
const PEER_ADDRESS: &str = "URXE_TEST_DYING_PEER";

fn send(connection: &Connection) {
    for wr_id in 0..MESSAGES {
        let message = SendRequest::send(Data::inline(b"last")).wr_id(wr_id);
        connection.qp().post_send(&message).unwrap();
    }
}

fn post_receive(connection: &Connection, inbox: &MemoryRegion) {
    connection.qp().post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
}

fn inbox(connection: &Connection) -> MemoryRegion {
    connection.pd().allocate(64, Access::LOCAL_WRITE).unwrap()
}

#[test]
fn a_slow_peer_gets_all_messages() {
    for (net, awaits) in [(70, false), (71, true)] {
        let (accepted, connected) = pair(net);
        send(&accepted);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let inbox = inbox(&connected);
                for _ in 0..MESSAGES {
                    std::thread::sleep(Duration::from_millis(10));
                    post_receive(&connected, &inbox);
                    assert_eq!(success(connected.recv_cq()).byte_len, 4);
                }
                assert_eq!(connected.events().wait(LONG).unwrap(), ConnectionEvent::Disconnected);
            });
            if awaits {
                pollster::block_on(accepted.close()).unwrap();
            } else {
                accepted.close().wait(LONG).unwrap();
            }
        });
        assert_eq!(accepted.qp().state(), QpState::Err);
        // Both ends may close what has ended.
        accepted.close().wait(LONG).unwrap();
        connected.close().wait(LONG).unwrap();
    }
}

#[test]
fn a_given_up_close_leaves_the_connection() {
    let (accepted, connected) = pair(72);
    send(&accepted);
    let error = accepted.close().wait(Some(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.errno(), libc::ETIMEDOUT);
    assert!(matches!(error, CloseError::TimedOut { sends: MESSAGES, .. }), "{error}");
    says(&error, "has not acknowledged the last 5 sends within 20ms: is it running");
    {
        let mut close = pin!(accepted.close());
        let waker = Waker::noop();
        assert_eq!(close.as_mut().poll(&mut Context::from_waker(waker)), Poll::Pending);
    }
    let inbox = inbox(&connected);
    for _ in 0..MESSAGES {
        post_receive(&connected, &inbox);
        let _ = success(connected.recv_cq());
    }
    assert_eq!(accepted.qp().state(), QpState::Rts);
    accepted.close().wait(LONG).unwrap();
}

#[test]
fn a_drop_discards_what_is_not_acknowledged() {
    let (accepted, connected) = pair(73);
    let (ours, theirs) = (accepted.send_cq().clone(), connected.recv_cq());
    send(&accepted);
    drop(accepted);
    for wr_id in 0..MESSAGES {
        let flushed = failure(&ours);
        assert_eq!((flushed.wr_id, flushed.status), (wr_id, WcStatus::WrFlushErr));
    }
    assert_eq!(connected.events().wait(LONG).unwrap(), ConnectionEvent::Disconnected);
    post_receive(&connected, &inbox(&connected));
    assert_eq!(failure(theirs).status, WcStatus::WrFlushErr);
    connected.close().wait(LONG).unwrap();
}

#[test]
fn sends_that_failed_before_are_reported() {
    let (accepted, connected) = pair(77);
    accepted.disconnect();
    assert_eq!(connected.events().wait(LONG).unwrap(), ConnectionEvent::Disconnected);
    send(&connected);
    let peer = connected.peer_addr();
    assert_eq!(connected.close().wait(LONG), Err(CloseError::SendsFailed { peer }));
}

#[test]
fn an_end_that_is_disconnected_first_learns_that_its_sends_failed() {
    let (accepted, connected) = pair(74);
    send(&accepted);
    std::thread::scope(|threads| {
        let closing = threads.spawn(|| accepted.close().wait(LONG));
        std::thread::sleep(Duration::from_millis(20));
        connected.close().wait(LONG).unwrap();
        let peer = accepted.peer_addr();
        assert_eq!(closing.join().unwrap(), Err(CloseError::SendsFailed { peer }));
    });
    assert!(matches!(accepted.close().wait(LONG), Err(CloseError::SendsFailed { .. })));
}

#[test]
fn ends_that_close_at_the_same_time_lose_no_message_unnoticed() {
    let (here, there) = (device(75, 1), device(75, 2));
    let listener = Listener::builder().device(&here).bind((address(75, 1), 0)).unwrap();
    let to = listener.local_addr();
    let options = Options::new().device(&there);
    for round in 0..20 {
        let connecting = crate::cm::connecting(to, options.clone());
        let accepted = listener.wait(LONG).unwrap().accept().unwrap();
        let ends = [accepted, connecting.join().unwrap().unwrap()];
        let inboxes = ends.each_ref().map(inbox);
        let sends = round % 2 == 0;
        for (end, inbox) in ends.iter().zip(&inboxes) {
            (0..MESSAGES).for_each(|_| post_receive(end, inbox));
        }
        let together = Barrier::new(2);
        let closed = std::thread::scope(|threads| {
            let closing = ends.each_ref().map(|end| {
                let together = &together;
                threads.spawn(move || {
                    together.wait();
                    if sends {
                        send(end);
                    }
                    end.close().wait(LONG)
                })
            });
            closing.map(|closing| closing.join().unwrap())
        });
        for (from, to) in [(0, 1), (1, 0)] {
            let received = ends[to].recv_cq().drain();
            let received = received.filter(|done| done.unwrap().status.is_success()).count() as u64;
            match closed[from] {
                Ok(()) if sends => assert_eq!(received, MESSAGES, "round {round}"),
                Ok(()) => assert_eq!(received, 0),
                Err(CloseError::SendsFailed { .. }) if sends => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        assert!(closed.iter().any(Result::is_ok), "round {round}: {closed:?}");
    }
}

/// The peer of the next test, in a process of its own.
#[test]
#[ignore = "another test starts it"]
fn dying_peer() {
    let Ok(address) = std::env::var(PEER_ADDRESS) else { return };
    let address: std::net::IpAddr = address.parse().unwrap();
    // Without a watcher, no one tells the peer that this process was killed.
    let device = Device::builder().watcher(false).open_address(address).unwrap();
    let listener = Listener::builder().device(&device).bind((address, 0)).unwrap();
    println!("\nlistening on {}", listener.local_addr());
    let connections: Vec<_> = (0..2).map(|_| listener.wait(LONG).unwrap().accept()).collect();
    std::thread::sleep(LONG.unwrap());
    drop(connections);
}

#[test]
fn a_dead_peer_is_reported() {
    let mut peer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cm::closing::dying_peer", "--ignored", "--nocapture"])
        .env(PEER_ADDRESS, address(76, 1).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(peer.stdout.take().unwrap()).lines();
    let to = lines
        .find_map(|line| Some(line.unwrap().strip_prefix("listening on ")?.parse().unwrap()))
        .unwrap();
    // Few repetitions of each message.
    let options = client(76)
        .timeout(Duration::from_secs(3))
        .ack_timeout(Duration::from_millis(16))
        .retry_count(1);
    let [with_sends, without] =
        [(); 2].map(|()| cm::prepare(to, &options).unwrap().establish().unwrap());
    peer.kill().unwrap();
    peer.wait().unwrap();
    send(&with_sends);
    let error = with_sends.close().wait(LONG).unwrap_err();
    assert_eq!(error, CloseError::SendsFailed { peer: to });
    assert_eq!(failure(with_sends.send_cq()).status, WcStatus::RetryExcErr);
    let error = without.close().wait(LONG).unwrap_err();
    assert_eq!(error, CloseError::Unconfirmed { peer: to });
}
