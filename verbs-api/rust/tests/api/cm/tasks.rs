//! Connecting and accepting in tasks of several executors.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use urxe::cm::{self, ConnectionEvent, Listener, Options};
use urxe::*;

use crate::cm::{client, listener};
use crate::common::{LONG, WakeCount};

async fn serve(listener: Listener, clients: usize) {
    for _ in 0..clients {
        let pending = listener.next().await.unwrap().prepare(&Options::new()).unwrap();
        let inbox = pending.pd().allocate(64, Access::LOCAL_WRITE).unwrap();
        pending.qp().post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
        let connection = pending.await.unwrap();
        let message = connection.recv_cq().next().await.unwrap();
        let echo = inbox.slice(..message.byte_len as usize).unwrap();
        connection.qp().post_send(&SendRequest::send(echo).signaled()).unwrap();
        assert!(connection.send_cq().next().await.unwrap().status.is_success());
        assert_eq!(connection.events().next().await.unwrap(), ConnectionEvent::Disconnected);
    }
}

async fn talk(to: std::net::SocketAddr, options: Options, number: u64) {
    let pending = cm::prepare(to, &options).unwrap();
    let inbox = pending.pd().allocate(64, Access::LOCAL_WRITE).unwrap();
    pending.qp().post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
    let connection = pending.await.unwrap();
    let message = number.to_be_bytes();
    connection.qp().post_send(&SendRequest::send(Data::inline(&message))).unwrap();
    assert_eq!(connection.recv_cq().next().await.unwrap().status, WcStatus::Success);
    assert_eq!(inbox.read_vec(0, 8).unwrap(), message);
}

#[test]
fn pollster() {
    let listener = listener(60);
    let (to, options) = (listener.local_addr(), client(60));
    let server = std::thread::spawn(|| pollster::block_on(serve(listener, 20)));
    (0..20).for_each(|number| pollster::block_on(talk(to, options.clone(), number)));
    server.join().unwrap();
}

#[test]
fn tokio() {
    let listener = listener(61);
    let (to, options) = (listener.local_addr(), client(61));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = tokio::spawn(serve(listener, 20));
        let clients: Vec<_> =
            (0..20).map(|number| tokio::spawn(talk(to, options.clone(), number))).collect();
        for client in clients {
            tokio::time::timeout(LONG.unwrap(), client).await.unwrap().unwrap();
        }
        server.await.unwrap();
    });
}

#[test]
fn smol() {
    let listener = listener(62);
    let (to, options) = (listener.local_addr(), client(62));
    smol::block_on(async {
        let server = smol::spawn(serve(listener, 20));
        for number in 0..20 {
            talk(to, options.clone(), number).await;
        }
        server.await;
    });
}

#[test]
fn dropped_futures_give_their_wakers_back_and_lose_no_request() {
    let listener = listener(63);
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    for _ in 0..100 {
        assert!(pin!(listener.next()).poll(&mut cx).is_pending());
    }
    let options = client(63);
    let mut first = Box::pin(cm::prepare(listener.local_addr(), &options).unwrap().into_future());
    assert!(first.as_mut().poll(&mut cx).is_pending());
    let request = pollster::block_on(listener.next()).unwrap();
    drop(first);
    drop(request);
    // One reference is here, and one in the waker of the test.
    assert_eq!(Arc::strong_count(&count), 2);
    let second = cm::prepare(listener.local_addr(), &options).unwrap().start().unwrap();
    let accepting = listener.wait(LONG).unwrap().prepare(&Options::new()).unwrap().start().unwrap();
    let (connected, accepted) =
        (pollster::block_on(second).unwrap(), pollster::block_on(accepting).unwrap());
    assert!(pin!(accepted.events().next()).poll(&mut cx).is_pending());
    drop(connected);
    assert_eq!(
        pollster::block_on(accepted.events().next()).unwrap(),
        ConnectionEvent::Disconnected
    );
    assert_eq!(*count.0.lock().unwrap(), 0);
}
