//! Correct data over bad links, with the same result on every run.

use std::time::Duration;

use urxe::sim::{Fabric, LinkFaults, Probability};
use urxe::*;

use crate::common::{SIZE, pattern, says, simulated_pair};

fn bad_link() -> LinkFaults {
    LinkFaults {
        loss: Probability::from_percent(3),
        duplicate: Probability::from_percent(2),
        reorder: Probability::from_percent(2),
        corrupt: Probability::from_percent(1),
        ..LinkFaults::default()
    }
}

/// Performs SEND, WRITE, READ and atomic operations. Returns all completions and the trace of the
/// network.
fn run(seed: u64) -> (Vec<Completion>, u64, sim::SimCounters) {
    let fabric = Fabric::new(seed);
    fabric.set_faults(bad_link());
    let (a, b) = simulated_pair(&fabric);
    let mut completions = Vec::new();
    for round in 0..4 {
        let data = pattern(SIZE, round);
        a.region.write(0, &data).unwrap();
        b.region.write(0, &vec![0; SIZE]).unwrap();
        b.post_recv(b.slice(..SIZE / 2), 0);
        a.post(SendRequest::send(a.slice(..SIZE / 2)));
        let there = b.region.remote();
        let half = SIZE as u64 / 2;
        let write = SendRequest::write(a.slice(SIZE / 2..), there.slice(half..).unwrap());
        a.post(write);
        completions.extend([b.complete(), a.complete(), a.complete()]);
        assert!(b.bytes(0, SIZE) == data, "SEND and WRITE, seed {seed}, round {round}");
        a.region.write(0, &vec![0; SIZE]).unwrap();
        a.post(SendRequest::read(a.slice(..), there));
        completions.push(a.complete());
        assert!(a.bytes(0, SIZE) == data, "READ, seed {seed}, round {round}");
        b.region.store_u64(0, 5).unwrap();
        for _ in 0..20 {
            let add = SendRequest::fetch_add(a.slice(..8), there, 3);
            a.post(add);
            completions.push(a.complete());
        }
        assert_eq!(b.region.load_u64(0).unwrap(), 65, "each atomic once, seed {seed}");
    }
    (completions, fabric.trace_hash(), fabric.counters())
}

#[test]
fn every_operation_survives_a_bad_link_and_replays_from_its_seed() {
    for seed in 1..=5 {
        let (completions, hash, counters) = run(seed);
        assert!(
            counters.lost > 0 && counters.duplicated > 0 && counters.corrupted > 0,
            "{counters:?}"
        );
        assert_eq!((completions, hash, counters), run(seed), "seed {seed}");
    }
    assert_ne!(run(1).1, run(2).1, "another seed is another run");
}

#[test]
fn faults_can_be_set_for_one_direction_and_ended() {
    let fabric = Fabric::new(3);
    let (a, b) = simulated_pair(&fabric);
    let broken = LinkFaults { loss: Probability::ALWAYS, ..LinkFaults::default() };
    fabric.set_faults_between(&a.device, &b.device, broken).unwrap();
    a.post(SendRequest::write(a.slice(..8), b.region.remote()));
    fabric.run_for(Duration::from_millis(100)).unwrap();
    assert!(a.cq.is_empty());
    assert!(fabric.counters().lost >= 2, "sent again at least once: {:?}", fabric.counters());
    fabric.heal();
    let _ = a.complete();
}

#[test]
fn devices_of_other_fabrics_are_refused() {
    let (one, other) = (Fabric::new(1), Fabric::new(1));
    let device = one.device([10, 0, 0, 1]).unwrap();
    assert_eq!(other.set_node_config(&device, sim::NodeConfig::default()), Err(sim::NotInFabric));
    let taken = one.device([10, 0, 0, 1]).unwrap_err();
    says(&taken, "10.0.0.1");
}

/// Returns the virtual time of 64 operations of 1 MiB, eight at once, over a link of 25 Gbit/s with
/// these faults, and the number of retransmissions of the requester.
fn time_of(operation: WcOpcode, faults: LinkFaults, seed: u64) -> (Duration, u64) {
    let fabric = Fabric::new(seed);
    fabric.set_faults(LinkFaults { bandwidth_bps: Some(25_000_000_000), ..faults });
    let (a, b) = simulated_pair(&fabric);
    let start = fabric.now();
    for nr in 0..64 {
        let (here, there) = (a.slice(..), b.region.remote());
        let request = match operation {
            WcOpcode::RdmaRead => SendRequest::read(here, there),
            WcOpcode::RdmaWrite => SendRequest::write(here, there),
            _ => {
                b.post_recv(b.slice(..), 0);
                SendRequest::send(here)
            }
        };
        a.post(request);
        if nr >= 8 {
            assert_eq!(a.complete().opcode, operation);
        }
    }
    for _ in 0..8 {
        let _ = a.complete();
    }
    (
        Duration::from_nanos(fabric.now().since_ns(start)),
        a.device.counter(Counter::CompleterRetryErr),
    )
}

/// Later packets reveal a lost packet, and also the loss of its retransmission. Timers, which take
/// hundreds of round trips, are only needed if no packet follows.
#[test]
fn a_loss_of_one_percent_costs_round_trips_and_no_timeouts() {
    for operation in [WcOpcode::RdmaWrite, WcOpcode::Send, WcOpcode::RdmaRead] {
        for seed in 1..=4 {
            let (good, _) = time_of(operation, LinkFaults::default(), seed);
            let loss = Probability::from_percent(1);
            let (bad, _) = time_of(operation, LinkFaults { loss, ..LinkFaults::default() }, seed);
            eprintln!(
                "{operation:?} of 1 MiB, seed {seed}: {good:?} without loss, {bad:?} with 1 %"
            );
            assert!(
                bad < good * 3,
                "{operation:?}, seed {seed}: {good:?} without loss, {bad:?} with 1 %"
            );
        }
    }
}

/// A packet of 4 KiB takes 1.3 µs at 25 Gbit/s, so up to seven packets overtake one that is 10 µs
/// late.
#[test]
fn slightly_reordered_packets_cost_nothing() {
    for operation in [WcOpcode::RdmaWrite, WcOpcode::Send, WcOpcode::RdmaRead] {
        for seed in 1..=4 {
            let (good, _) = time_of(operation, LinkFaults::default(), seed);
            let reorder = Probability::from_percent(2);
            let faults = LinkFaults { reorder, reorder_delay_ns: 10_000, ..LinkFaults::default() };
            let (bad, went_back) = time_of(operation, faults, seed);
            eprintln!(
                "{operation:?} of 1 MiB, seed {seed}: {good:?} in order, {bad:?} with 2 % overtaken"
            );
            assert_eq!(went_back, 0, "{operation:?}, seed {seed}");
            assert!(
                bad < good * 11 / 10,
                "{operation:?}, seed {seed}: {good:?} in order, {bad:?} else"
            );
        }
    }
}
