//! Two hosts on a network that loses, repeats and delays MADs.
//!
//! The tests run every script with a single fault at every MAD, with many faults by seed, and with
//! the death of either host at every MAD.
//! Either both programs end with a connection, or both learn that there is none. Nothing leaks.

use std::collections::BTreeMap;

use urxe_wire::Qpn;
use urxe_wire::mad::{PortSpace, RejReason};

use super::two_hosts::TwoHosts;
use crate::cma::{CmaEvent, CmaEventType, CmaId, ConnParam};
use crate::test_network::{
    Fate, Network, RandomFaults, SECOND_NS, by_seed, faults, one_fault_at_every_mad,
};
use urxe_types::rng::Rng;
use urxe_types::sync::lock;
use urxe_types::time::Time;

/// A time after all retries of a REQ, and of the REP for the last of them.
const SETTLED: Time = Time::from_ns(400 * SECOND_NS);
/// A time after all retries of a DREQ and the longest delay.
const END: Time = Time::from_ns(2_000 * SECOND_NS);

/// The behaviour of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    /// The server accepts. This side disconnects at the end.
    Closes(usize),
    BothClose,
    /// The server accepts after a delay.
    Slow,
    Rejects,
    /// The server destroys the request.
    Destroys,
    NobodyListens,
    /// The client destroys its identifier before a reply can arrive.
    GivesUp,
    /// A datagram service.
    Datagrams,
}

const SCRIPTS: [Script; 9] = [
    Script::Closes(0),
    Script::Closes(1),
    Script::BothClose,
    Script::Slow,
    Script::Rejects,
    Script::Destroys,
    Script::NobodyListens,
    Script::GivesUp,
    Script::Datagrams,
];

/// The knowledge of a program about one of its identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Asked,
    Connected,
    /// The program learned that there is no connection, by this event and status.
    Over(CmaEventType, i32),
}

struct Run {
    hosts: TwoHosts,
    script: Script,
    /// The knowledge of each side's program.
    known: [BTreeMap<CmaId, Known>; 2],
    network: Network,
    accepts: BTreeMap<Time, CmaId>,
    sequence: u32,
}

impl Run {
    fn new(script: Script, connections: u32) -> Self {
        let mut hosts = TwoHosts::new();
        let space = if script == Script::Datagrams { PortSpace::UDP } else { PortSpace::TCP };
        if script != Script::NobodyListens {
            hosts.b.listen(space, "0.0.0.0:9", 0);
        }
        let (known, accepts) = Default::default();
        let mut run =
            Self { hosts, script, known, network: Network::default(), accepts, sequence: 0 };
        for qpn in 1..=connections {
            let id = run.hosts.a.resolved(space, "10.0.0.2:9");
            let param = ConnParam { qpn: Qpn::masked(qpn), ..ConnParam::default() };
            run.hosts.a.cma.connect(run.hosts.now, id, &param).unwrap();
            run.known[0].insert(id, Known::Asked);
            if script == Script::GivesUp {
                run.hosts.a.cma.destroy_id(run.hosts.now, id).unwrap();
                run.known[0].remove(&id);
            }
        }
        run
    }

    fn record(&mut self, side: usize, id: CmaId, known: Known) {
        self.known[side].insert(id, known);
    }

    fn on_event(&mut self, side: usize, event: &CmaEvent) {
        use CmaEventType::*;
        let (now, id) = (self.hosts.now, event.id);
        match event.event_type {
            ConnectRequest => self.on_request(event.new_id.unwrap()),
            ConnectResponse => {
                self.hosts.a.cma.establish(now, id).unwrap();
                self.record(side, id, Known::Connected);
            }
            Established => self.record(side, id, Known::Connected),
            Rejected | Unreachable => {
                self.record(side, id, Known::Over(event.event_type, event.status))
            }
            Disconnected => {
                self.host(side).disconnect(now, id).unwrap();
                self.record(side, id, Known::Over(event.event_type, event.status));
            }
            TimewaitExit => {}
            other => panic!("{other}"),
        }
    }

    fn on_request(&mut self, new: CmaId) {
        let now = self.hosts.now;
        let cma = &mut self.hosts.b.cma;
        match self.script {
            Script::Rejects => {
                cma.reject(now, new, RejReason::CONSUMER_DEFINED, b"no").unwrap();
                cma.destroy_id(now, new).unwrap();
            }
            Script::Destroys => cma.destroy_id(now, new).unwrap(),
            Script::Slow => {
                self.known[1].insert(new, Known::Asked);
                self.sequence += 1;
                self.accepts.insert(now.plus_ns(100 * SECOND_NS + u64::from(self.sequence)), new);
            }
            _ => {
                self.known[1].insert(new, Known::Asked);
                self.accept(new);
            }
        }
    }

    fn accept(&mut self, id: CmaId) {
        self.sequence += 1;
        let param = ConnParam { qpn: Qpn::masked(0x1000 + self.sequence), ..ConnParam::default() };
        // The connection may have ended.
        if self.hosts.b.cma.accept(self.hosts.now, id, &param).is_ok()
            && self.script == Script::Datagrams
        {
            self.record(1, id, Known::Connected);
        }
    }

    fn host(&mut self, side: usize) -> &mut crate::cma::Cma {
        if side == 0 { &mut self.hosts.a.cma } else { &mut self.hosts.b.cma }
    }

    fn drain(&mut self, fate: &mut impl FnMut(usize, usize) -> Fate) {
        for side in [0, 1] {
            loop {
                let host = if side == 0 { &mut self.hosts.a } else { &mut self.hosts.b };
                let Some(event) = host.event() else { break };
                self.on_event(side, &event);
            }
        }
        for side in [0, 1] {
            while let Some((_, transmit)) = self.host(side).poll_transmit() {
                let fate = fate(self.network.sent, side);
                self.network.send(self.hosts.now, 1 - side, transmit, fate);
            }
        }
    }

    fn run(&mut self, end: Time, mut fate: impl FnMut(usize, usize) -> Fate) {
        loop {
            self.drain(&mut fate);
            let arrival = self.network.next_arrival();
            let accept = self.accepts.keys().next().copied();
            let due = [self.hosts.a.cma.next_deadline(), self.hosts.b.cma.next_deadline()];
            let next = [arrival, accept].into_iter().chain(due).flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.hosts.now = self.hosts.now.max(next);
            let now = self.hosts.now;
            if arrival == Some(next) {
                let (to, path, mad) = self.network.arrive();
                let host = if to == 0 { &mut self.hosts.a } else { &mut self.hosts.b };
                host.cma.receive(now, host.key, path, &mad);
            } else if accept == Some(next)
                && let Some((_, id)) = self.accepts.pop_first()
            {
                self.accept(id);
            } else {
                self.hosts.a.cma.handle_timeout(now);
                self.hosts.b.cma.handle_timeout(now);
            }
        }
        self.hosts.now = self.hosts.now.max(end);
    }

    fn connected(&self, side: usize) -> Vec<CmaId> {
        self.known[side]
            .iter()
            .filter(|(_, known)| **known == Known::Connected)
            .map(|(id, _)| *id)
            .collect()
    }

    fn close(&mut self) {
        let now = self.hosts.now;
        for side in [0, 1] {
            let closes = match self.script {
                Script::Closes(closer) => closer == side,
                Script::BothClose => true,
                Script::Datagrams => false,
                _ => side == 0,
            };
            for id in self.connected(side).into_iter().filter(|_| closes) {
                self.host(side).disconnect(now, id).unwrap();
            }
        }
    }

    /// Destroys all identifiers of the programs, and checks that nothing leaks.
    fn assert_nothing_is_left(mut self, context: &str, fate: impl FnMut(usize, usize) -> Fate) {
        let now = self.hosts.now;
        for side in [0, 1] {
            for id in std::mem::take(&mut self.known[side]).into_keys() {
                self.host(side).destroy_id(now, id).unwrap();
            }
        }
        self.run(now.plus_ns(1_000 * SECOND_NS), fate);
        for (side, host) in [&self.hosts.a, &self.hosts.b].into_iter().enumerate() {
            let listeners = usize::from(side == 1 && self.script != Script::NobodyListens);
            assert_eq!(host.cma.id_count(), listeners, "{context}: side {side}");
            assert!(host.cma.manager(host.key).unwrap().is_idle(), "{context}: side {side}");
            assert_eq!(lock(&host.claims).len(), listeners, "{context}: side {side}");
        }
    }
}

fn run_script(script: Script, context: &str, fate: &mut dyn FnMut(usize) -> Fate) -> usize {
    let mut run = Run::new(script, 1);
    run.run(SETTLED, |number, _| fate(number));
    check_outcome(&run, context);
    run.close();
    run.run(END, |number, _| fate(number));
    if matches!(script, Script::Closes(_) | Script::BothClose | Script::Slow) {
        for known in run.known.iter().flat_map(BTreeMap::values) {
            assert!(matches!(known, Known::Over(..)), "{context}: {known:?} in the end");
        }
    }
    let sent = run.network.sent;
    run.assert_nothing_is_left(context, |_, _| Fate::Deliver);
    sent
}

/// Checks the outcome of each script, which no single fault may change.
fn check_outcome(run: &Run, context: &str) {
    use CmaEventType::Rejected;
    let [active, passive] = &run.known;
    let ends: Vec<&Known> = active.values().collect();
    match run.script {
        Script::Closes(_) | Script::BothClose | Script::Slow => {
            assert_eq!(ends, [&Known::Connected], "{context}");
            assert_eq!(run.connected(1).len(), 1, "{context}: {passive:?}");
        }
        Script::Datagrams => assert_eq!(ends, [&Known::Connected], "{context}"),
        Script::Rejects | Script::Destroys => {
            assert_eq!(ends, [&Known::Over(Rejected, 28)], "{context}")
        }
        Script::NobodyListens => assert_eq!(ends, [&Known::Over(Rejected, 8)], "{context}"),
        Script::GivesUp => assert!(run.connected(1).is_empty(), "{context}: {passive:?}"),
    }
}

#[test]
fn one_fault_at_every_mad_of_every_script() {
    let runs = one_fault_at_every_mad(&SCRIPTS, &faults(50_000)[..7], run_script);
    assert!(runs > 250, "{runs} runs");
}

/// The other side reports the same events as a kernel, at the same time: after 16 tries of 4.8 s
/// for a REQ or a DREQ. An established connection stays until one side sends a message.
#[test]
fn a_host_that_dies_at_every_mad_of_every_script() {
    use CmaEventType::{Disconnected, Rejected, Unreachable};
    let mut reported = std::collections::BTreeSet::new();
    for script in SCRIPTS {
        for (dead, after) in (0..2).flat_map(|dead| (0..12).map(move |after| (dead, after))) {
            let context = format!("{script:?}, side {dead} dead after MAD {after}");
            let fate = |number: usize, _| if number >= after { Fate::Lose } else { Fate::Deliver };
            let mut run = Run::new(script, 1);
            run.run(SETTLED, fate);
            let alive = 1 - dead;
            for id in run.connected(alive) {
                let now = run.hosts.now;
                run.host(alive).disconnect(now, id).unwrap();
            }
            run.run(END, fate);
            for known in run.known[alive].values() {
                match known {
                    Known::Over(event, status) => {
                        let is_known = match event {
                            Unreachable => *status == -libc::ETIMEDOUT,
                            Disconnected => [0, -libc::ETIMEDOUT].contains(status),
                            Rejected => [4, 8, 28].contains(status),
                            _ => false,
                        };
                        assert!(is_known, "{context}: {event} {status}");
                        reported.insert((event.name(), *status));
                    }
                    // A datagram server whose reply is not acknowledged receives no further
                    // message.
                    Known::Connected => assert_eq!(script, Script::Datagrams, "{context}"),
                    Known::Asked => panic!("{context}: nothing was reported"),
                }
            }
            run.assert_nothing_is_left(&context, fate);
        }
    }
    for expected in [("UNREACHABLE", -libc::ETIMEDOUT), ("DISCONNECTED", -libc::ETIMEDOUT)] {
        assert!(reported.contains(&expected), "{reported:?}");
    }
}

fn many_faults(seed: u64) {
    let mut rng = Rng::stream(seed, 3);
    let script = rng.pick(&SCRIPTS);
    let mut faults = RandomFaults::new(&mut rng, [50, 40, 40], Rng::stream(seed, 4));
    let mut fate = |_: usize, _: usize| faults.fate();
    let mut run = Run::new(script, 1 + rng.below(12) as u32);
    run.run(SETTLED, &mut fate);
    run.close();
    run.run(Time::from_ns(900 * SECOND_NS), &mut fate);
    // The faults stop, and all MADs in flight arrive.
    run.run(END, |_, _| Fate::Deliver);
    run.assert_nothing_is_left(&format!("seed {seed}, {script:?}"), |_, _| Fate::Deliver);
}

#[test]
fn many_faults_by_seed() {
    by_seed(300, many_faults);
}

/// Checks that the tests can fail: the loss of every RTU leaves only one side connected.
#[test]
fn a_canary_that_loses_every_rtu_is_noticed() {
    let mut run = Run::new(Script::Closes(0), 1);
    // REQ and REP arrive, and no further MAD of the client.
    run.run(
        SETTLED,
        |number, side| if side == 0 && number > 0 { Fate::Lose } else { Fate::Deliver },
    );
    assert_eq!((run.connected(0).len(), run.connected(1).len()), (0, 0), "{:?}", run.known);
    assert!(
        run.known[1]
            .values()
            .any(|known| matches!(known, Known::Over(CmaEventType::Unreachable, _)))
    );
}
