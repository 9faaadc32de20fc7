//! Connections from the request to the disconnection.

use urxe::cm::{self, ConnectionEvent, Options, PrivateData};
use urxe::*;

use crate::cm::{client, connecting, device, listener, pair};
use crate::common::{LONG, failure, success};

#[test]
fn private_data_and_parameters_go_both_ways() {
    let listener = listener(1);
    let options = client(1)
        .private_data(b"what I want")
        .initiator_depth(3)
        .responder_resources(5)
        .retry_count(4)
        .rnr_retry_count(6);
    let connecting = connecting(listener.local_addr(), options);
    let request = listener.wait(LONG).unwrap();
    assert_eq!(request.peer_private_data().len(), cm::CONNECT_DATA_MAX);
    assert!(request.peer_private_data().starts_with(b"what I want\0"));
    assert_eq!(request.local_addr(), listener.local_addr());
    // The numbers of the two ends are swapped.
    let asked = request.parameters().clone();
    assert_eq!((asked.responder_resources, asked.initiator_depth), (3, 5));
    assert_eq!((asked.retry_count, asked.rnr_retry_count), (4, 6));
    let pending = request.prepare(&Options::new().private_data(b"what you get")).unwrap();
    let accepted = pending.establish().unwrap();
    let connected = connecting.join().unwrap().unwrap();
    assert_eq!(connected.peer_private_data().len(), cm::ACCEPT_DATA_MAX);
    assert!(connected.peer_private_data().starts_with(b"what you get\0"));
    assert!(accepted.peer_private_data().starts_with(b"what I want\0"));
    assert_eq!(accepted.peer_addr(), connected.local_addr());
    assert_eq!(accepted.local_addr(), connected.peer_addr());
    assert_eq!(connected.peer_parameters().qpn, accepted.qp().qpn());
    let (here, there) = (connected.qp().query(), accepted.qp().query());
    assert_eq!((here.qp_state, there.qp_state), (QpState::Rts, QpState::Rts));
    assert_eq!((here.max_rd_atomic, here.max_dest_rd_atomic), (3, 5));
    assert_eq!((there.max_rd_atomic, there.max_dest_rd_atomic), (5, 3));
    assert_eq!((here.retry_cnt, there.retry_cnt), (4, 4));
    // Each end sets the RNR retries of the other end.
    assert_eq!((here.rnr_retry, there.rnr_retry), (7, 6));
}

#[test]
fn private_data_behind_their_length_end_where_the_peer_says() {
    let padded = |data: &[u8], len| {
        let mut bytes = PrivateData::with_len(data);
        bytes.resize(len, 0);
        bytes
    };
    let longest = [7; cm::REJECT_DATA_MAX - 1];
    for data in [&b""[..], b"\0", b"zero at the end\0", &longest] {
        let bytes = padded(data, cm::REJECT_DATA_MAX);
        assert_eq!(PrivateData::new(&bytes).content(), Some(data));
    }
    // A length that exceeds the field, and no field.
    assert_eq!(PrivateData::new(&[3, 1, 2]).content(), None);
    assert_eq!(PrivateData::new(&[]).content(), None);
    assert_eq!(PrivateData::new(&[0, 1, 0, 0]).trimmed(), [0, 1]);
    assert!(PrivateData::new(&[0, 0]).trimmed().is_empty());
    assert_eq!(format!("{:?}", PrivateData::new(b"a\n\0\0")), r#""a\n" and 2 zeros"#);
    // Data whose length no byte holds exceed each field.
    assert!(PrivateData::with_len(&[0; 256]).len() > cm::ACCEPT_DATA_MAX);
}

#[test]
fn receives_that_are_posted_before_take_the_first_messages() {
    let listener = listener(2);
    // Without any retry for an end that has no receive.
    let options = client(2).rnr_retry_count(0);
    let to = listener.local_addr();
    let talking = std::thread::spawn(move || {
        let pending = cm::prepare(to, &options).unwrap();
        let inbox = pending.pd().allocate(64, Access::LOCAL_WRITE).unwrap();
        pending.qp().post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
        let connection = pending.establish().unwrap();
        connection.qp().post_send(&SendRequest::send(Data::inline(b"ping")).signaled()).unwrap();
        let _ = success(connection.send_cq());
        let reply = success(connection.recv_cq());
        inbox.read_vec(0, reply.byte_len as usize).unwrap()
    });
    let pending = listener.wait(LONG).unwrap().prepare(&Options::new().rnr_retry_count(0)).unwrap();
    let inbox = pending.pd().allocate(64, Access::LOCAL_WRITE).unwrap();
    pending.qp().post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
    let connection = pending.establish().unwrap();
    let _ = success(connection.recv_cq());
    assert_eq!(inbox.read_vec(0, 4).unwrap(), b"ping");
    connection.qp().post_send(&SendRequest::send(Data::inline(b"pong")).signaled()).unwrap();
    let _ = success(connection.send_cq());
    assert_eq!(talking.join().unwrap(), b"pong");
}

#[test]
fn every_kind_of_access_is_there() {
    let (accepted, connected) = pair(3);
    let all = Access::LOCAL_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_WRITE
        | Access::REMOTE_ATOMIC
        | Access::FLUSH_GLOBAL;
    for (from, to) in [(&accepted, &connected), (&connected, &accepted)] {
        let theirs = to.pd().allocate(4096, all).unwrap();
        let ours = from.pd().allocate(4096, Access::LOCAL_WRITE).unwrap();
        theirs.store_u64(8, 41).unwrap();
        let there = theirs.remote();
        let (qp, cq) = (from.qp(), from.send_cq());
        let word = ours.slice(..8).unwrap();
        qp.post_send(&SendRequest::write(Data::inline(b"12345678"), there).signaled()).unwrap();
        let _ = success(cq);
        qp.post_send(&SendRequest::read(word, there).signaled()).unwrap();
        let _ = success(cq);
        assert_eq!(ours.read_vec(0, 8).unwrap(), b"12345678");
        qp.post_send(&SendRequest::fetch_add(word, there.slice(8..).unwrap(), 1).signaled())
            .unwrap();
        let _ = success(cq);
        assert_eq!((ours.load_u64(0).unwrap(), theirs.load_u64(8).unwrap()), (41, 42));
        qp.post_send(&SendRequest::flush(there, 64, PlacementType::GLOBAL_VISIBILITY).signaled())
            .unwrap();
        let _ = success(cq);
    }
}

#[test]
fn the_remaining_end_gets_flushes_and_an_event() {
    for (net, ends_by_drop) in [(4, false), (5, true)] {
        let (accepted, connected) = pair(net);
        for wr_id in 0..3 {
            accepted.qp().post_recv(&RecvRequest::new(Gather::EMPTY).wr_id(wr_id)).unwrap();
        }
        if ends_by_drop {
            drop(connected);
        } else {
            connected.disconnect();
            assert_eq!(connected.events().wait(LONG).unwrap(), ConnectionEvent::Disconnected);
            assert_eq!(connected.qp().state(), QpState::Err);
        }
        // This end does not poll the connection manager. Waiting for completions is enough.
        for wr_id in 0..3 {
            let flushed = failure(accepted.recv_cq());
            assert_eq!((flushed.wr_id, flushed.status), (wr_id, WcStatus::WrFlushErr));
        }
        assert_eq!(accepted.events().wait(LONG).unwrap(), ConnectionEvent::Disconnected);
        assert_eq!(accepted.events().wait(LONG).unwrap(), ConnectionEvent::TimewaitExit);
        assert_eq!(accepted.events().try_next(), None);
    }
}

#[test]
fn one_device_connects_to_itself() {
    let device = device(6, 1);
    let listener = cm::Listener::builder().device(&device).bind("0.0.0.0:0").unwrap();
    let to = (crate::cm::address(6, 1), listener.local_addr().port()).into();
    let connecting = connecting(to, Options::new().device(&device));
    let accepted = listener.wait(LONG).unwrap().accept().unwrap();
    let connected = connecting.join().unwrap().unwrap();
    accepted.qp().post_recv(&RecvRequest::new(Gather::EMPTY)).unwrap();
    connected.qp().post_send(&SendRequest::send(Data::EMPTY).signaled()).unwrap();
    let _ = success(connected.send_cq());
    let _ = success(accepted.recv_cq());
}

#[test]
fn objects_of_the_program_are_used_and_outlive_the_connections() {
    let (here, there) = (device(7, 1), device(7, 2));
    let listener = cm::Listener::builder().device(&here).bind("0.0.0.0:0").unwrap();
    let to = (crate::cm::address(7, 1), listener.local_addr().port()).into();
    let (pd, cq) = (here.alloc_pd().unwrap(), here.create_cq(64).unwrap());
    let srq = pd.shared_receive_queue(16).create().unwrap();
    let inbox = pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    let options = Options::new().pd(&pd).cq(&cq).shared_receive_queue(&srq);
    let client_pd = there.alloc_pd().unwrap();
    let clients: Vec<_> = (0..4u8)
        .map(|number| {
            // The protection domain selects the device.
            let connecting = connecting(to, Options::new().pd(&client_pd).private_data(&[number]));
            let request = listener.wait(LONG).unwrap();
            let accepted = request.prepare(&options).unwrap().establish().unwrap();
            assert_eq!(accepted.recv_cq().id(), cq.id());
            (accepted, connecting.join().unwrap().unwrap())
        })
        .collect();
    for (accepted, connected) in &clients {
        assert!(connected.peer_parameters().srq);
        srq.post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
        connected.qp().post_send(&SendRequest::send(Data::inline(b"x")).signaled()).unwrap();
        let _ = success(connected.send_cq());
        assert_eq!(success(&cq).qp_num, accepted.qp().qpn());
    }
    drop(clients);
    inbox.write(0, b"still here").unwrap();
    assert!(cq.is_empty());
}

#[test]
fn a_hundred_connections_come_and_go_and_leave_nothing() {
    let listener = listener(8);
    let options = client(8);
    let to = listener.local_addr();
    let served = std::thread::spawn(move || {
        for _ in 0..100 {
            let connection = listener.wait(LONG).unwrap().accept().unwrap();
            assert_eq!(connection.events().wait(LONG).unwrap(), ConnectionEvent::Disconnected);
        }
        listener
    });
    for _ in 0..100 {
        let connection = cm::prepare(to, &options).unwrap().establish().unwrap();
        connection.disconnect();
        assert_eq!(connection.events().wait(LONG).unwrap(), ConnectionEvent::Disconnected);
    }
    let listener = served.join().unwrap();
    assert!(listener.try_next().is_none());
}
