//! Every single fault at every MAD of every script, and many faults by seed.

use super::pair::{ADDRESSES, Pair, SCRIPTS, SETTLED, Script};
use crate::test_network::{Fate, RandomFaults, SECOND_NS, by_seed, faults, one_fault_at_every_mad};
use urxe_types::rng::Rng;
use urxe_types::time::Time;

/// A time after all retries of a DREQ, TIMEWAIT and the longest delay.
const END: Time = Time::from_ns(2_000 * SECOND_NS);

/// Runs a script with its faults. Checks the properties that hold after any single fault.
fn run_script(script: Script, context: &str, mut fate: impl FnMut(usize) -> Fate) -> Pair {
    let mut pair = Pair::new(script, 7);
    pair.send_request(0, 0x11);
    if script == Script::PeerToPeer {
        pair.send_request(1, 0x12);
    }
    if script == Script::ActiveGivesUp {
        // The REQ is in flight.
        pair.run(Time::from_ns(1), |number, _| fate(number));
        for id in pair.sides[0].held.clone() {
            pair.release(0, id);
        }
    }
    pair.run(SETTLED, |number, _| fate(number));
    assert_eq!(pair.is_connected(0), pair.is_connected(1), "{context}");
    pair.close();
    pair.run(END, |number, _| fate(number));
    pair.assert_idle(context);
    pair
}

/// Checks the outcome of each script, which no single fault may change.
fn check_outcome(pair: &Pair, context: &str) {
    let [active, passive] = &pair.sides;
    let connects = |expected: bool| {
        let times = usize::from(expected);
        // A REQ that is delayed until after the connection may look like a new request, but both
        // sides never establish it.
        assert_eq!(active.established, times, "{context}: active");
        assert!(passive.established >= times, "{context}: passive");
        assert_eq!(active.timed_out, 0, "{context}");
    };
    match pair.script {
        // The DREQ may arrive before the RTU, and then ends the connection at once.
        Script::Releases(0) => {
            assert_eq!((active.established, passive.established <= 1), (1, true), "{context}")
        }
        Script::Closes(_)
        | Script::BothClose
        | Script::BothCloseInSilence
        | Script::Delays(_)
        | Script::Releases(_) => {
            connects(true);
            assert_eq!(passive.established, 1, "{context}");
        }
        Script::DataFirst => connects(true),
        Script::PeerToPeer => {
            assert_eq!((active.established, passive.established), (1, 1), "{context}")
        }
        Script::PassiveRejects | Script::PassiveDrops | Script::NobodyListens => {
            connects(false);
            assert_eq!(passive.established, 0, "{context}");
            assert_eq!(active.refused.len(), 1, "{context}");
        }
        Script::ActiveRejects => {
            connects(false);
            assert_eq!((passive.established, passive.refused.is_empty()), (0, false), "{context}");
        }
        Script::ActiveGivesUp => {
            assert_eq!((active.established, passive.established), (0, 0), "{context}")
        }
        Script::Service => assert_eq!((active.resolved, active.timed_out), (1, 0), "{context}"),
        Script::NoService => assert_eq!((active.resolved, active.timed_out), (0, 0), "{context}"),
    }
}

/// IBTA 12.10.4: script `PeerToPeer`.
#[test]
fn every_script_without_faults() {
    for script in SCRIPTS {
        let context = format!("{script:?}");
        let pair = run_script(script, &context, |_| Fate::Deliver);
        check_outcome(&pair, &context);
        assert!(pair.network.sent >= 2, "{context}: {}", pair.network.sent);
    }
}

#[test]
fn one_fault_at_every_mad_of_every_script() {
    let runs = one_fault_at_every_mad(&SCRIPTS, &faults(30_000), |script, context, fate| {
        let pair = run_script(script, context, fate);
        check_outcome(&pair, context);
        pair.network.sent
    });
    assert!(runs > 400, "{runs} runs");
}

/// Both sides end without a leak after any permanent loss.
#[test]
fn a_peer_that_dies_at_every_mad_of_every_script() {
    for script in SCRIPTS {
        for (dead, after) in (0..2).flat_map(|dead| (0..12).map(move |after| (dead, after))) {
            let context = format!("{script:?}, side {dead} dead after MAD {after}");
            let mut pair = Pair::new(script, 3);
            pair.send_request(0, 0x11);
            let dies = |number: usize, transmit: &crate::cm::CmTransmit| {
                let is_from_or_to_dead = transmit.path.local == ADDRESSES[dead].into()
                    || transmit.path.remote == ADDRESSES[dead].into();
                if number >= after && is_from_or_to_dead { Fate::Lose } else { Fate::Deliver }
            };
            pair.run(SETTLED, dies);
            pair.close();
            pair.run(END, dies);
            pair.release_all();
            pair.run(Time::from_ns(3_000 * SECOND_NS), dies);
            pair.assert_idle(&context);
        }
    }
}

fn many_faults(seed: u64) {
    let mut rng = Rng::stream(seed, 1);
    let script = rng.pick(&SCRIPTS);
    let mut faults = RandomFaults::new(&mut rng, [60, 40, 40], Rng::stream(seed, 2));
    let mut fate = |_: usize, _: &_| faults.fate();
    let mut pair = Pair::new(script, seed);
    let connections = 1 + rng.below(12) as u32;
    for qpn in 0..connections {
        // A few connections start at a time, so that some start while others end. Peer-to-peer
        // allows only one connection for a service and path.
        pair.send_request(0, 0x11 + qpn);
        if script == Script::PeerToPeer {
            pair.send_request(1, 0x1011 + qpn);
            break;
        }
        let until = pair.now.plus_ns(rng.below(5 * SECOND_NS));
        pair.run(until, &mut fate);
    }
    pair.run(SETTLED, &mut fate);
    pair.close();
    pair.run(Time::from_ns(900 * SECOND_NS), &mut fate);
    // Without further faults, every connection must end.
    pair.release_all();
    pair.run(END, |_, _| Fate::Deliver);
    pair.release_all();
    pair.run(Time::from_ns(3_000 * SECOND_NS), |_, _| Fate::Deliver);
    pair.assert_idle(&format!("seed {seed}, {script:?}"));
}

#[test]
fn many_faults_by_seed() {
    by_seed(600, many_faults);
}

/// Checks that the tests can fail: a loss that retries cannot repair is detected.
#[test]
fn a_canary_that_loses_every_rtu_is_noticed() {
    let mut pair = Pair::new(Script::Closes(0), 1);
    pair.send_request(0, 0x11);
    pair.run(SETTLED, |_, transmit| {
        let is_rtu = transmit.mad[17] == 0x14;
        let is_rej = transmit.mad[17] == 0x12;
        if is_rtu || is_rej { Fate::Lose } else { Fate::Deliver }
    });
    assert!(pair.is_connected(0) && !pair.is_connected(1));
    assert_eq!(pair.sides[1].timed_out, 1);
}
