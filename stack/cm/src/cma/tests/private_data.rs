//! What programs say with a request and an answer, at every length that there can be, and what is
//! more than a message holds.

use urxe_wire::Qpn;
use urxe_wire::mad::{PortSpace, RejReason};

use super::world::World;
use crate::cma::CmaEventType::{
    ConnectRequest, ConnectResponse, Established, Rejected, Unreachable,
};
use crate::cma::{CmaError, CmaId, ConnParam, EventParam};

/// As many bytes as a program of C can name.
const MOST: usize = u8::MAX as usize;
/// Reasons of a refusal: the program's (IBTA 12.6.7.2), and of a service the same (IBTA 12.11.2.2).
const CONSUMER: i32 = 28;
const REFUSED: i32 = 2;

/// No byte is zero, as those that fill a message are.
fn said(len: usize) -> Vec<u8> {
    (0..len).map(|at| 1 + ((len * 31 + at * 7) % 255) as u8).collect()
}

fn param(private_data: &[u8], qpn: usize) -> ConnParam<'_> {
    ConnParam { private_data, qpn: Qpn::masked(1 + qpn as u32), ..ConnParam::default() }
}

/// All of the message, what was said and zeros behind it.
#[track_caller]
fn assert_heard(param: &EventParam, data: &[u8], whole: usize) {
    let heard = match param {
        EventParam::Conn(conn) => &conn.private_data,
        EventParam::Ud(ud) => &ud.private_data,
        EventParam::None => panic!("nothing was heard"),
    };
    assert_eq!((heard.len(), &heard[..data.len()]), (whole, data));
    assert!(heard[data.len()..].iter().all(|byte| *byte == 0), "behind {} bytes", data.len());
}

#[track_caller]
fn assert_too_much(result: Result<(), CmaError>, given: usize, max: usize) {
    let error = result.unwrap_err();
    assert_eq!((error, error.errno()), (CmaError::PrivateData { given, max }, libc::EINVAL));
}

/// How much each message holds.
#[derive(Clone, Copy)]
struct Room {
    space: PortSpace,
    request: usize,
    accept: usize,
    reject: usize,
}

const ROOMS: [Room; 2] = [
    Room { space: PortSpace::TCP, request: 56, accept: 196, reject: 148 },
    Room { space: PortSpace::UDP, request: 180, accept: 136, reject: 136 },
];

struct Play {
    world: World,
    listener: CmaId,
    room: Room,
}

impl Play {
    fn new(room: Room) -> Self {
        let mut world = World::new();
        let listener = world.b.listen(room.space, "0.0.0.0:9", 0);
        Self { world, listener, room }
    }

    /// A request with so many bytes: who asks, who is to answer.
    fn asked(&mut self, len: usize) -> (CmaId, CmaId) {
        let Self { world, room, .. } = self;
        let active = world.a.resolved(room.space, "10.0.0.2:9");
        world.connect(active, &param(&said(len), active.0 as usize));
        let event = world.b.expect(ConnectRequest);
        assert_heard(&event.param, &said(len), room.request);
        (active, event.new_id.unwrap())
    }

    /// Nothing more is told, and nothing is left.
    fn close(mut self) {
        assert_eq!((self.world.a.event(), self.world.b.event()), (None, None));
        self.world.destroy([], [self.listener]);
        self.world.assert_empty();
    }
}

#[test]
fn every_length_of_a_request_arrives_and_more_asks_nobody() {
    for room in ROOMS {
        let mut play = Play::new(room);
        for len in 0..=room.request {
            let (active, passive) = play.asked(len);
            play.world.destroy([active], [passive]);
            play.world.run();
        }
        for len in room.request + 1..=MOST {
            let world = &mut play.world;
            let active = world.a.resolved(room.space, "10.0.0.2:9");
            let (now, cma) = (world.now, &mut world.a.cma);
            assert_too_much(cma.connect(now, active, &param(&said(len), 1)), len, room.request);
            // It may ask again, with less.
            cma.connect(now, active, &param(&[], active.0 as usize)).unwrap();
            world.run();
            let passive = world.request();
            world.destroy([active], [passive]);
            world.run();
        }
        play.close();
    }
}

#[test]
fn every_length_of_an_answer_arrives_and_more_is_a_refusal() {
    for room in ROOMS {
        let is_connection = room.space == PortSpace::TCP;
        let mut play = Play::new(room);
        for len in 0..=MOST {
            let (active, passive) = play.asked(3);
            let world = &mut play.world;
            let result =
                world.b.cma.accept(world.now, passive, &param(&said(len), passive.0 as usize));
            world.run();
            if len <= room.accept {
                result.unwrap();
                let event =
                    world.a.expect(if is_connection { ConnectResponse } else { Established });
                assert_heard(&event.param, &said(len), room.accept);
            } else {
                assert_too_much(result, len, room.accept);
                let (refusal, reason) =
                    if is_connection { (Rejected, CONSUMER) } else { (Unreachable, REFUSED) };
                let event = world.a.expect(refusal);
                assert_eq!(event.status, reason);
                assert_heard(&event.param, &[], room.reject);
                // It is refused for good.
                assert!(world.b.cma.accept(world.now, passive, &param(&[], 1)).is_err());
            }
            world.destroy([active], [passive]);
            world.run();
        }
        play.close();
    }
}

#[test]
fn every_length_of_a_refusal_arrives_and_more_can_be_said_shorter() {
    for room in ROOMS {
        let is_connection = room.space == PortSpace::TCP;
        let mut play = Play::new(room);
        for len in 0..=MOST {
            let (active, passive) = play.asked(3);
            let world = &mut play.world;
            let mut refuse = |data: &[u8]| {
                world.b.cma.reject(world.now, passive, RejReason::CONSUMER_DEFINED, data)
            };
            let mut heard = len;
            if len > room.reject {
                assert_too_much(refuse(&said(len)), len, room.reject);
                heard = 1;
            }
            refuse(&said(heard)).unwrap();
            world.run();
            let (refusal, reason) =
                if is_connection { (Rejected, CONSUMER) } else { (Unreachable, REFUSED) };
            let event = world.a.expect(refusal);
            assert_eq!(event.status, reason);
            assert_heard(&event.param, &said(heard), room.reject);
            world.destroy([active], [passive]);
            world.run();
        }
        play.close();
    }
}
