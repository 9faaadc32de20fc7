//! Keep-alive probes, in virtual time.

use urxe_wire::mad::{Attribute, Bits, CmMessage, CommId, Guid, Mad, PrivateData, Rep};

use super::pair::{ADDRESSES, SERVICE, request};
use crate::cm::table::CmState;
use crate::cm::{CmConfig, CmEventKind, CmPath, CmRoute, ConnectionManager};
use urxe_types::time::Time;

const SECOND_NS: u64 = 1_000_000_000;
const PERIOD_NS: u64 = 30 * SECOND_NS;

/// An established connection, and the time.
struct Connected {
    active: ConnectionManager,
    passive: ConnectionManager,
    ids: [CommId; 2],
    now: Time,
}

impl Connected {
    fn new(keep_alive_ns: Option<u64>) -> Self {
        let manager = |slot, keep_alive_ns| {
            let config = CmConfig::new(slot, 3, Guid(u64::from(slot)));
            ConnectionManager::new(CmConfig { keep_alive_ns, ..config })
        };
        let now = Time::from_ns(SECOND_NS);
        let (active, passive) = (manager(0, None), manager(1, keep_alive_ns));
        let mut this = Self { active, passive, ids: [CommId::NONE; 2], now };
        this.passive.listen(SERVICE, None, 8).unwrap();
        let route = CmRoute {
            path: CmPath::new(ADDRESSES[0], ADDRESSES[1]),
            packet_life_time: Bits::masked(16),
        };
        this.ids[0] = this.active.connect(now, route, request(17), 0, false).unwrap();
        this.exchange();
        this.ids[1] = this.passive.poll_event().unwrap().id;
        this.passive.accept(now, this.ids[1], Rep::default(), 0).unwrap();
        this.exchange();
        this.active.confirm(now, this.ids[0], PrivateData::NONE).unwrap();
        this.exchange();
        while this.passive.poll_event().is_some() {}
        assert_eq!(this.passive.state(this.ids[1]), Some(CmState::Established));
        this
    }

    /// Delivers all messages. Returns those of the passive side.
    fn exchange(&mut self) -> Vec<Attribute> {
        let mut sent = Vec::new();
        loop {
            if let Some(mad) = self.active.poll_transmit() {
                let path = CmPath { local: mad.path.remote, remote: mad.path.local };
                self.passive.receive(self.now, path, &mad.mad);
            } else if let Some(mad) = self.passive.poll_transmit() {
                sent.push(Mad::parse(&mad.mad).unwrap().message.attribute());
                let path = CmPath { local: mad.path.remote, remote: mad.path.local };
                self.active.receive(self.now, path, &mad.mad);
            } else {
                return sent;
            }
        }
    }

    fn advance(&mut self) {
        self.now = self.passive.next_deadline().unwrap();
        self.passive.handle_timeout(self.now);
    }
}

#[test]
fn a_peer_that_has_the_connection_keeps_it() {
    let mut connected = Connected::new(Some(PERIOD_NS));
    for period in 1..=20 {
        connected.advance();
        assert_eq!(connected.now, Time::from_ns(SECOND_NS + period * PERIOD_NS));
        assert_eq!(connected.exchange(), [Attribute::Rep], "one probe a period");
    }
    assert_eq!(connected.passive.state(connected.ids[1]), Some(CmState::Established));
    assert_eq!(connected.active.state(connected.ids[0]), Some(CmState::Established));
    assert_eq!(connected.passive.poll_event(), None);
}

#[test]
fn a_peer_that_disappears_ends_the_connection() {
    let mut connected = Connected::new(Some(PERIOD_NS));
    let started = connected.now;
    let mut probes = 0;
    let event = loop {
        connected.advance();
        while let Some(mad) = connected.passive.poll_transmit() {
            assert!(matches!(Mad::parse(&mad.mad).unwrap().message, CmMessage::Rep(_)));
            probes += 1;
        }
        if let Some(event) = connected.passive.poll_event() {
            break event;
        }
    };
    assert_eq!((event.id, event.kind), (connected.ids[1], CmEventKind::PeerLost));
    assert_eq!(probes, 5);
    assert_eq!(connected.now, started.plus_ns(PERIOD_NS + 5 * SECOND_NS));
    assert_eq!(connected.passive.state(connected.ids[1]), Some(CmState::Timewait));
    connected.passive.destroy(connected.now, connected.ids[1]).unwrap();
    connected.advance();
    assert!(connected.passive.is_idle());
}

#[test]
fn one_reply_among_lost_ones_suffices() {
    let mut connected = Connected::new(Some(PERIOD_NS));
    for _ in 0..4 {
        for lost in 0..4 {
            connected.advance();
            assert!(connected.passive.poll_transmit().is_some(), "probe {lost}");
        }
        connected.advance();
        assert_eq!(connected.exchange(), [Attribute::Rep]);
        assert_eq!(connected.passive.next_deadline(), Some(connected.now.plus_ns(PERIOD_NS)));
    }
    assert_eq!(connected.passive.poll_event(), None);
}

#[test]
fn a_peer_without_the_connection_rejects_the_probe() {
    let mut connected = Connected::new(Some(PERIOD_NS));
    connected.active = ConnectionManager::new(CmConfig::new(0, 4, Guid(9)));
    connected.advance();
    connected.exchange();
    assert_eq!(connected.passive.state(connected.ids[1]), Some(CmState::Timewait));
    assert!(matches!(
        connected.passive.poll_event().unwrap().kind,
        CmEventKind::Message(Mad { message: CmMessage::Rej(_), .. })
    ));
}

#[test]
fn without_the_option_there_are_no_probes() {
    assert_eq!(Connected::new(None).passive.next_deadline(), None);
}

#[test]
fn an_ended_connection_sends_no_probe() {
    let mut connected = Connected::new(Some(PERIOD_NS));
    let [active, passive] = connected.ids;
    connected.active.disconnect(connected.now, active, PrivateData::NONE).unwrap();
    connected.exchange();
    assert_eq!(connected.passive.state(passive), Some(CmState::DreqRcvd));
    assert_eq!(connected.passive.next_deadline(), None);
}
