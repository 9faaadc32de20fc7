//! Private data of requests and replies, of every valid length and of lengths that do not fit.

use urxe_wire::Qpn;
use urxe_wire::mad::{PortSpace, RejReason};

use super::two_hosts::TwoHosts;
use crate::cma::CmaEventType::{
    ConnectRequest, ConnectResponse, Established, Rejected, Unreachable,
};
use crate::cma::{CmaError, CmaId, ConnParam, EventParam};

/// The largest length that a C program can state.
const MOST: usize = u8::MAX as usize;
/// The reject reasons of a program (IBTA 12.6.7.2) and of a datagram service (IBTA 12.11.2.2).
const CONSUMER: i32 = 28;
const REFUSED: i32 = 2;

/// Returns bytes of which none is zero, unlike the bytes that fill up a message.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| 1 + ((len * 31 + at * 7) % 255) as u8).collect()
}

fn param(private_data: &[u8], qpn: usize) -> ConnParam<'_> {
    ConnParam { private_data, qpn: Qpn::masked(1 + qpn as u32), ..ConnParam::default() }
}

/// Checks the whole private data: `data` followed by zeros.
#[track_caller]
fn assert_received(param: &EventParam, data: &[u8], whole: usize) {
    let received = match param {
        EventParam::Conn(conn) => &conn.private_data,
        EventParam::Ud(ud) => &ud.private_data,
        EventParam::None => panic!("nothing was received"),
    };
    assert_eq!((received.len(), &received[..data.len()]), (whole, data));
    assert!(received[data.len()..].iter().all(|byte| *byte == 0), "behind {} bytes", data.len());
}

#[track_caller]
fn assert_too_much(result: Result<(), CmaError>, given: usize, max: usize) {
    let error = result.unwrap_err();
    assert_eq!((error, error.errno()), (CmaError::PrivateData { given, max }, libc::EINVAL));
}

/// The private data that fits in each message.
#[derive(Clone, Copy)]
struct Capacity {
    space: PortSpace,
    request: usize,
    accept: usize,
    reject: usize,
}

const CAPACITIES: [Capacity; 2] = [
    Capacity { space: PortSpace::TCP, request: 56, accept: 196, reject: 148 },
    Capacity { space: PortSpace::UDP, request: 180, accept: 136, reject: 136 },
];

struct Session {
    hosts: TwoHosts,
    listener: CmaId,
    capacity: Capacity,
}

impl Session {
    fn new(capacity: Capacity) -> Self {
        let mut hosts = TwoHosts::new();
        let listener = hosts.b.listen(capacity.space, "0.0.0.0:9", 0);
        Self { hosts, listener, capacity }
    }

    /// Sends a request with `len` bytes. Returns the client's and the server's identifier.
    fn asked(&mut self, len: usize) -> (CmaId, CmaId) {
        let Self { hosts, capacity, .. } = self;
        let active = hosts.a.resolved(capacity.space, "10.0.0.2:9");
        hosts.connect(active, &param(&pattern(len), active.0 as usize));
        let event = hosts.b.expect(ConnectRequest);
        assert_received(&event.param, &pattern(len), capacity.request);
        (active, event.new_id.unwrap())
    }

    /// Checks that there are no more events and no leak.
    fn close(mut self) {
        assert_eq!((self.hosts.a.event(), self.hosts.b.event()), (None, None));
        self.hosts.destroy([], [self.listener]);
        self.hosts.assert_empty();
    }
}

#[test]
fn every_length_of_a_request_arrives_and_longer_data_is_an_error() {
    for capacity in CAPACITIES {
        let mut session = Session::new(capacity);
        for len in 0..=capacity.request {
            let (active, passive) = session.asked(len);
            session.hosts.destroy([active], [passive]);
            session.hosts.run();
        }
        for len in capacity.request + 1..=MOST {
            let hosts = &mut session.hosts;
            let active = hosts.a.resolved(capacity.space, "10.0.0.2:9");
            let (now, cma) = (hosts.now, &mut hosts.a.cma);
            assert_too_much(
                cma.connect(now, active, &param(&pattern(len), 1)),
                len,
                capacity.request,
            );
            // The identifier can send a request with less data.
            cma.connect(now, active, &param(&[], active.0 as usize)).unwrap();
            hosts.run();
            let passive = hosts.request();
            hosts.destroy([active], [passive]);
            hosts.run();
        }
        session.close();
    }
}

/// Calls `reply` for a request of the passive side, with every length.
fn for_each_length(reply: impl Fn(&mut TwoHosts, Capacity, usize, CmaId)) {
    for capacity in CAPACITIES {
        let mut session = Session::new(capacity);
        for len in 0..=MOST {
            let (active, passive) = session.asked(3);
            reply(&mut session.hosts, capacity, len, passive);
            session.hosts.destroy([active], [passive]);
            session.hosts.run();
        }
        session.close();
    }
}

/// Checks that the active side receives a rejection with `data`.
#[track_caller]
fn assert_rejected(hosts: &mut TwoHosts, capacity: Capacity, data: &[u8]) {
    let is_connection = capacity.space == PortSpace::TCP;
    let (rejection, reason) =
        if is_connection { (Rejected, CONSUMER) } else { (Unreachable, REFUSED) };
    let event = hosts.a.expect(rejection);
    assert_eq!(event.status, reason);
    assert_received(&event.param, data, capacity.reject);
}

#[test]
fn every_length_of_a_reply_arrives_and_longer_data_rejects() {
    for_each_length(|hosts, capacity, len, passive| {
        let data = pattern(len);
        let result = hosts.b.cma.accept(hosts.now, passive, &param(&data, passive.0 as usize));
        hosts.run();
        if len <= capacity.accept {
            result.unwrap();
            let is_connection = capacity.space == PortSpace::TCP;
            let event = hosts.a.expect(if is_connection { ConnectResponse } else { Established });
            assert_received(&event.param, &data, capacity.accept);
        } else {
            assert_too_much(result, len, capacity.accept);
            assert_rejected(hosts, capacity, &[]);
            // The rejection is final.
            assert!(hosts.b.cma.accept(hosts.now, passive, &param(&[], 1)).is_err());
        }
    });
}

#[test]
fn every_length_of_a_rejection_arrives_and_longer_data_is_an_error() {
    for_each_length(|hosts, capacity, len, passive| {
        let mut reject =
            |data: &[u8]| hosts.b.cma.reject(hosts.now, passive, RejReason::CONSUMER_DEFINED, data);
        let mut received = len;
        if len > capacity.reject {
            assert_too_much(reject(&pattern(len)), len, capacity.reject);
            received = 1;
        }
        reject(&pattern(received)).unwrap();
        hosts.run();
        assert_rejected(hosts, capacity, &pattern(received));
    });
}
