//! Awaitable queue pairs that are connected by `rdma_cm`.

use urxe::aio::*;
use urxe::cm::{ConnectionEvent, Listener, Options};
use urxe::*;

use super::builder;
use crate::cm::{client, listener};
use crate::common::says;

/// Accepts one connection, and returns each message with its number.
async fn echo(listener: Listener, messages: u8) {
    let request = listener.next().await.unwrap();
    let options = Options::new().private_data(b"welcome");
    let connection = builder().receives(2, 64).accept(request, &options).await.unwrap();
    for nr in 0..messages {
        let mut message = connection.recv().await.unwrap().to_vec();
        message.push(nr);
        let _ = connection.send(&message).await.unwrap();
    }
    assert!(connection.recv().await.is_err(), "the peer disconnects");
    assert_eq!(connection.events().next().await.unwrap(), ConnectionEvent::Disconnected);
}

#[test]
fn a_client_and_a_server_connect_and_close() {
    let listener = listener(64);
    let (addr, options) = (listener.local_addr(), client(64));
    let server = std::thread::spawn(|| pollster::block_on(echo(listener, 50)));
    pollster::block_on(async {
        let connection = builder().receives(2, 64).connect(addr, &options).await.unwrap();
        assert_eq!(connection.peer_addr(), addr);
        assert!(connection.peer_private_data().starts_with(b"welcome"));
        for nr in 0..50 {
            let _ = connection.queue_pair().send(b"message ").await.unwrap();
            let answer = connection.recv().await.unwrap().to_vec();
            assert_eq!(answer, [b"message ".as_slice(), &[nr]].concat());
        }
        connection.close().await.unwrap();
    });
    server.join().unwrap();
}

#[test]
fn options_that_name_a_queue_are_refused() {
    let (listener, options) = (listener(65), client(65));
    let device = Device::open_address([127, 50, 65, 3]).unwrap();
    let options = options.recv_cq(&device.create_cq(16).unwrap());
    let connect = builder().connect(listener.local_addr(), &options);
    let error = pollster::block_on(connect).unwrap_err();
    assert!(matches!(error, SetupError::OtherQueue { .. }));
    says(&error, "completion queue of receives");
    assert!(listener.try_next().is_none());
}

#[test]
fn a_rejected_client_and_a_dropped_connect_leave_nothing() {
    let (listener, options) = (listener(66), client(66));
    let addr = listener.local_addr();
    let mut dropped = Box::pin(builder().connect(addr, &options));
    let nobody = std::task::Waker::noop();
    assert!(dropped.as_mut().poll(&mut std::task::Context::from_waker(nobody)).is_pending());
    drop(dropped);
    let server = std::thread::spawn(move || {
        drop(pollster::block_on(listener.next()));
        drop(pollster::block_on(listener.next()));
    });
    let error = pollster::block_on(builder().connect(addr, &options)).unwrap_err();
    assert!(matches!(error, SetupError::Connect(cm::ConnectError::Rejected { .. })), "{error}");
    server.join().unwrap();
}

/// Returns both ends of a connection, the listening end last.
async fn connected(net: u8) -> (AsyncConnection, AsyncConnection) {
    let (listener, options) = (listener(net), client(net));
    let addr = listener.local_addr();
    let server = std::thread::spawn(move || {
        pollster::block_on(async {
            let request = listener.next().await.unwrap();
            builder().receives(2, 64).accept(request, &Options::new()).await.unwrap()
        })
    });
    let client = builder().receives(2, 64).connect(addr, &options).await.unwrap();
    (client, server.join().unwrap())
}

#[test]
fn operations_after_the_end_say_that_the_connection_ended() {
    pollster::block_on(async {
        // The peer drops its end while this end waits.
        let (here, there) = connected(67).await;
        let peer = here.peer_addr();
        let waiting = std::thread::spawn(move || {
            let error = pollster::block_on(here.recv()).unwrap_err();
            (here, error)
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(there);
        let (here, error) = waiting.join().unwrap();
        assert_eq!((error, error.errno()), (OperationError::Disconnected { peer }, 104));
        says(&error, &format!("the connection to {peer} has ended"));
        let table = here.pd().allocate(8, Access::LOCAL_WRITE).unwrap();
        let late = here.batch([here.send(b"late"), here.write(b"late", table.remote())]).await;
        assert_eq!(late, Err(error));
        assert_eq!(here.fetch_add(table.remote(), 1).await, Err(error));
        // This end disconnects.
        let (here, there) = connected(68).await;
        let peer = here.peer_addr();
        here.disconnect();
        assert_eq!(here.send(b"late").await, Err(OperationError::Disconnected { peer }));
        drop(there);
    });
}

#[test]
fn a_queue_pair_that_failed_has_the_reason_of_its_failure() {
    pollster::block_on(async {
        let (here, there) = connected(69).await;
        let long = here.pd().share_bytes(&[7; 65]).unwrap();
        let OperationError::Failed(error) = here.send(long).await.unwrap_err() else { panic!() };
        assert_eq!(error.status, WcStatus::RemInvReqErr);
        let OperationError::Failed(error) = there.recv().await.unwrap_err() else { panic!() };
        assert_eq!(error.status, WcStatus::LocLenErr);
        // Neither end has disconnected, so later requests are flushed for another reason.
        let OperationError::Failed(error) = here.send(b"late").await.unwrap_err() else { panic!() };
        assert_eq!(error.status, WcStatus::WrFlushErr);
        // A failure has its own reason after the end of the connection, too.
        let (here, there) = connected(70).await;
        let long = there.pd().share_bytes(&[7; 65]).unwrap();
        assert!(there.send(long).await.is_err());
        here.disconnect();
        let OperationError::Failed(error) = here.recv().await.unwrap_err() else { panic!() };
        assert_eq!(error.status, WcStatus::LocLenErr);
    });
}
