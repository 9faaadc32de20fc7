//! The message for the end of the process equals the message that a release sends.

use std::collections::BTreeMap;

use urxe_wire::mad::{
    Attribute, CommId, InfoLength, PrivateData, RejReason, Rep, SidrRep, SidrReq,
};

use super::pair::{ADDRESSES, SERVICE, request};
use crate::cm::table::CmState;
use crate::cm::{CmConfig, CmEventKind, CmPath, CmRoute, CmTransmit, ConnectionManager};
use urxe_types::time::Time;
use urxe_wire::mad::{Bits, Guid, Mad};

const NOW: Time = Time::from_ns(1_000_000_000);

/// Two connection managers, and the last messages that they reported.
struct Pair {
    sides: [ConnectionManager; 2],
    last: [BTreeMap<CommId, CmTransmit>; 2],
    ids: [CommId; 2],
}

impl Pair {
    /// Connects until `steps` of: the request arrives, the reply leaves and arrives, the RTU leaves
    /// and arrives, the DREQ leaves and arrives.
    fn after(steps: usize, is_service: bool) -> Self {
        let sides = [0, 1].map(|slot| {
            ConnectionManager::new(CmConfig {
                reports_last_messages: true,
                ..CmConfig::new(slot, 7, Guid(u64::from(slot)))
            })
        });
        let mut pair =
            Self { sides, last: [BTreeMap::new(), BTreeMap::new()], ids: [CommId::NONE; 2] };
        pair.sides[1].listen(SERVICE, None, 8).unwrap();
        let path = CmPath::new(ADDRESSES[0], ADDRESSES[1]);
        let active = &mut pair.sides[0];
        pair.ids[0] = if is_service {
            let req = SidrReq { service_id: SERVICE, ..SidrReq::default() };
            active.send_sidr_req(NOW, (path, 0), req, 1_000_000, 3).unwrap()
        } else {
            let route = CmRoute { path, packet_life_time: Bits::masked(16) };
            active.connect(NOW, route, request(17), 0, false).unwrap()
        };
        for step in 0..steps {
            pair.step(step, is_service);
        }
        pair.record();
        pair
    }

    fn step(&mut self, step: usize, is_service: bool) {
        let [active, passive] = self.ids;
        match step {
            0 | 2 | 4 | 6 => self.deliver(usize::from(step.is_multiple_of(4))),
            1 if is_service => {
                self.sides[1].send_sidr_rep(NOW, passive, SidrRep::default()).unwrap();
            }
            1 => self.sides[1].accept(NOW, passive, Rep::default(), 0).unwrap(),
            3 => self.sides[0].confirm(NOW, active, PrivateData::NONE).unwrap(),
            5 => self.sides[1].disconnect(NOW, passive, PrivateData::NONE).unwrap(),
            _ => unreachable!("there are seven steps"),
        }
    }

    /// Delivers all messages to one side.
    fn deliver(&mut self, to: usize) {
        while let Some(sent) = self.sides[1 - to].poll_transmit() {
            let path = CmPath { local: sent.path.remote, remote: sent.path.local };
            self.sides[to].receive(NOW, path, &sent.mad);
        }
        while let Some(event) = self.sides[to].poll_event() {
            if matches!(event.kind, CmEventKind::Request { .. }) {
                self.ids[to] = event.id;
            }
        }
    }

    fn record(&mut self) {
        for (side, last) in self.sides.iter_mut().zip(&mut self.last) {
            while let Some((id, message)) = side.poll_last_message() {
                match message {
                    Some(message) => last.insert(id, message),
                    None => last.remove(&id),
                };
            }
        }
    }

    /// Returns the last message of a side, and the messages that a release sends.
    fn compare(mut self, side: usize) -> (CmState, Option<CmTransmit>, Vec<CmTransmit>) {
        let id = self.ids[side];
        let state = self.sides[side].state(id).unwrap();
        while self.sides[side].poll_transmit().is_some() {}
        self.sides[side].destroy(NOW, id).unwrap();
        let sent = std::iter::from_fn(|| self.sides[side].poll_transmit()).collect();
        (state, self.last[side].get(&id).copied(), sent)
    }
}

#[test]
fn the_last_message_is_what_a_release_sends() {
    let mut seen = BTreeMap::new();
    for (steps, side, is_service) in (0..8)
        .flat_map(|steps| [(steps, 0, false), (steps, 1, false)])
        .chain((0..3).flat_map(|steps| [(steps, 0, true), (steps, 1, true)]))
    {
        if side == 1 && steps == 0 {
            continue;
        }
        let (state, last, sent) = Pair::after(steps, is_service).compare(side);
        let attribute = last.map(|last| Mad::parse(&last.mad).unwrap().message.attribute());
        if state == CmState::DreqSent {
            // The connection manager repeats its DREQ by itself.
            assert_eq!((attribute, sent), (Some(Attribute::Dreq), Vec::new()), "after {steps}");
        } else {
            assert_eq!(last.into_iter().collect::<Vec<_>>(), sent, "{state} after {steps}");
        }
        seen.insert(state, attribute);
    }
    let expected = [
        (CmState::ReqSent, Some(Attribute::Rej)),
        (CmState::ReqRcvd, Some(Attribute::Rej)),
        (CmState::RepSent, Some(Attribute::Rej)),
        (CmState::RepRcvd, Some(Attribute::Rej)),
        (CmState::Established, Some(Attribute::Dreq)),
        (CmState::DreqSent, Some(Attribute::Dreq)),
        (CmState::DreqRcvd, Some(Attribute::Drep)),
        (CmState::SidrReqRcvd, Some(Attribute::SidrRep)),
    ];
    for (state, attribute) in expected {
        assert_eq!(seen.get(&state), Some(&attribute), "{state}");
    }
}

#[test]
fn a_rejected_or_removed_connection_has_no_last_message() {
    let mut pair = Pair::after(1, false);
    let [active, passive] = pair.ids;
    assert!(pair.last[0].contains_key(&active) && pair.last[1].contains_key(&passive));
    let none = (InfoLength::default(), PrivateData::NONE);
    pair.sides[1]
        .reject(NOW, passive, RejReason::CONSUMER_DEFINED, none, PrivateData::NONE)
        .unwrap();
    pair.deliver(0);
    pair.sides[0].destroy(NOW, active).unwrap();
    pair.record();
    assert!(pair.last.iter().all(BTreeMap::is_empty), "{:?}", pair.last);
}

#[test]
fn without_the_option_nothing_is_reported() {
    let mut manager = ConnectionManager::new(CmConfig::new(0, 1, Guid(1)));
    let route = CmRoute {
        path: CmPath::new(ADDRESSES[0], ADDRESSES[1]),
        packet_life_time: Bits::masked(16),
    };
    manager.connect(NOW, route, request(17), 0, false).unwrap();
    assert_eq!(manager.poll_last_message(), None);
}
