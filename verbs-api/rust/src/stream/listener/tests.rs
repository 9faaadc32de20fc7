//! Tests of the options of streams and of the limits of listeners, which programs cannot query.

use urxe_wire::AckTimeout;

use super::*;
use crate::Device;
use crate::sim::Fabric;
use crate::stream::Connect;

const SOURCE: ([u8; 4], u16) = ([10, 0, 0, 2], 40_001);

/// Returns a listener with these options, and the builder of its client.
fn listener_and_client(
    options: impl Fn(StreamBuilder) -> StreamBuilder,
) -> (RdmaListener, StreamBuilder) {
    let fabric = Fabric::new(1);
    let [here, there] = [1, 2].map(|host| fabric.device([10, 0, 0, host]).unwrap());
    let builder = |device: &Device| options(RdmaStream::builder().device(device));
    let listener = builder(&here).bind(([10, 0, 0, 1], 7471).into()).unwrap();
    (listener, builder(&there))
}

#[test]
fn the_queue_pairs_of_both_ends_have_the_options() {
    let timeout = AckTimeout::at_least(4_096 << 20);
    let options = |builder: StreamBuilder| builder.ack_timeout(timeout).type_of_service(0x40);
    let (listener, client) = listener_and_client(options);
    let connect = client.source(SOURCE).connect(listener.local_addr());
    let (accepted, connected) = smol::block_on(smol::future::zip(listener.accept(), connect));
    let (accepted, peer) = accepted.unwrap();
    assert_eq!(peer, SocketAddr::from(SOURCE));
    for stream in [&accepted, connected.as_ref().unwrap()] {
        let attr = stream.io.connection.qp().query();
        assert_eq!((attr.timeout, attr.ah.traffic_class), (20, 0x40));
        // All messages and all receives may complete before the queue is polled.
        let wanted = attr.cap.max_send_wr + attr.cap.max_recv_wr;
        assert!(stream.io.connection.recv_cq().capacity() >= wanted);
    }
}

#[test]
fn sizes_of_buffers_are_limited() {
    for (given, expected) in [(0, 4 << 10), (5000, 5000), (usize::MAX, 256 << 20)] {
        let builder = RdmaStream::builder().send_buffer(given).receive_buffer(given);
        assert_eq!((builder.send_buffer, builder.receive_buffer), (expected, expected));
    }
}

/// Sends the requests of `count` clients, which arrive while the listener takes none.
fn arrived_requests(client: &StreamBuilder, to: SocketAddr, count: usize) -> Vec<Connect> {
    let mut clients = Vec::from_iter((0..count).map(|_| client.clone().connect(to)));
    let mut cx = Context::from_waker(Waker::noop());
    for client in (0..4).flat_map(|_| 0..count) {
        assert!(Pin::new(&mut clients[client]).poll(&mut cx).is_pending());
    }
    clients
}

#[test]
fn requests_beyond_the_backlog_wait_for_room() {
    let (listener, client) = listener_and_client(|builder| builder.backlog(1));
    let _clients = arrived_requests(&client, listener.local_addr(), 3);
    assert!(listener.listener.try_next().is_some());
    assert!(listener.listener.try_next().is_none(), "the backlog has room for one");
}

#[test]
fn the_handshakes_at_a_time_are_limited() {
    let small = |builder: StreamBuilder| builder.send_buffer(0).receive_buffer(0);
    let (listener, client) = listener_and_client(small);
    let clients = arrived_requests(&client, listener.local_addr(), MAX_OPENING + 2);
    assert!(listener.try_accept().is_none());
    assert_eq!(lock(&listener.opening).len(), MAX_OPENING);
    // The handshakes go on, and make room for the others.
    let accepting = async {
        for _ in 0..MAX_OPENING + 2 {
            listener.accept().await.unwrap();
        }
    };
    let connecting = async {
        for client in clients {
            client.await.unwrap();
        }
    };
    smol::block_on(smol::future::zip(accepting, connecting));
    assert!(lock(&listener.opening).is_empty());
}

/// As `Future` demands, a future that has ended is not ready again.
#[test]
fn a_connection_that_was_refused_stays_pending() {
    let (listener, client) = listener_and_client(|builder| builder);
    let to = SocketAddr::from(([10, 0, 0, 1], 1));
    let mut connect = client.clone().connect(to);
    assert!(smol::block_on(&mut connect).is_err());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut connect).poll(&mut cx).is_pending());
    // No request leaves, because the device does not have this address.
    let mut unsent = client.source(([10, 0, 0, 77], 1)).connect(listener.local_addr());
    assert!(smol::block_on(&mut unsent).is_err());
    assert!(Pin::new(&mut unsent).poll(&mut cx).is_pending());
    assert_eq!(connect.wait().unwrap_err().kind(), io::ErrorKind::NotConnected);
    drop(listener);
}
