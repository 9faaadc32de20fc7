//! Keys that come and go while a peer uses them, over a bad network: what a window or a
//! fast-registration region grants is granted as long as it is valid and not a packet longer.
//!
//! ```text
//! owner: bind / register ─→ key ─→ peer: WRITEs and READs through it, as they come
//!        at any time, or once they are done: LOCAL_INV, the peer's SEND with invalidate behind them,
//!        or, type 1, bound anew (another key, which the next round uses) or to nothing
//!        done: from now on nothing changes; what the peer then sends by the old key fails with "remote access error"
//! ```
//! A request that the peer saw succeed was carried out whole; one that it did not may have been, in
//! part. Nothing beside the part that was bound ever changes.
//!
//! | service | keys | who learns what became of a request |
//! |---|---|---|
//! | RC | windows of both types, fast-registration regions | the peer |
//! | XRC | type 1 windows, fast-registration regions; one of type 2 belongs to the queue pair that bound it, and a target can bind none | the peer |
//! | UC | windows of both types, fast-registration regions; WRITEs alone, and nobody else takes a key away | nobody: on a good network, all were carried out |
//!
//! `URXE_SEED` runs one seed alone, `URXE_SIM_SEEDS` sets how many there are.

mod judge;
mod lend;
mod world;

use urxe::Counter;
use urxe_tests::sim::seeds::{Seeds, assert_fault_is_found, assert_runs_follow_seeds};

use self::world::{Service, Tally, World};

/// A fault made on purpose, to see that the judge finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    /// Memory changes when the key is gone.
    Change,
    /// A type 1 window grants by its former key, too.
    StaleGrants,
    /// A key grants nothing.
    CurrentRefused,
    /// A type 1 window that is bound anew keeps its key.
    SameKey,
    /// A peer takes the key of a type 1 window away.
    PeerUnbinds,
    /// A window of type 2 serves another queue pair's peer.
    ForeignGrants,
}

/// Runs all seeds over a service; what they showed, and how many accesses met a stale key.
fn all_seeds(service: Service, usual: u64) -> (Tally, u64) {
    let (mut all, mut stale) = (Tally::default(), 0);
    Seeds::chosen(usual).each(
        |seed| World::new(seed, service, None),
        World::run,
        |world| {
            all.add(&world.tally);
            stale += world.owner.counter(Counter::AccessStaleKey);
        },
    );
    println!("{service:?}: {all:?}; {stale} stale keys");
    (all, stale)
}

#[test]
fn a_key_grants_nothing_once_it_is_gone() {
    let (all, stale) = all_seeds(Service::Rc, 60);
    if Seeds::chosen(60).are_many() {
        let Tally { done, cut_off, refused, by_peer, by_owner, rebound, unbound, kept, .. } = all;
        assert!(done > 300 && cut_off > 100 && refused > 60 && stale > 100);
        assert!(by_peer > 40 && by_owner > 40 && rebound > 40 && unbound > 20 && kept > 10);
    }
}

#[test]
fn a_key_of_a_shared_receive_queues_domain_grants_nothing_once_it_is_gone() {
    let (all, stale) = all_seeds(Service::Xrc, 30);
    if Seeds::chosen(30).are_many() {
        let Tally {
            done,
            cut_off,
            refused,
            by_peer,
            by_owner,
            rebound,
            unbound,
            kept,
            foreign,
            ..
        } = all;
        assert!(done > 100 && cut_off > 20 && refused > 40 && stale > 40);
        assert!(
            by_peer > 10
                && by_owner > 10
                && rebound > 20
                && unbound > 10
                && kept > 5
                && foreign > 5
        );
    }
}

#[test]
fn a_key_for_unreliable_writes_grants_nothing_once_it_is_gone() {
    let (all, stale) = all_seeds(Service::Uc, 30);
    if Seeds::chosen(30).are_many() {
        let Tally { done, refused, by_owner, rebound, unbound, plain, .. } = all;
        assert!(done > 300 && refused > 50 && stale > 50);
        assert!(by_owner > 50 && rebound > 20 && unbound > 15 && plain > 30);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for service in Service::ALL {
        assert_runs_follow_seeds(|seed| {
            let mut world = World::new(seed, service, None);
            world.run().unwrap();
            world.fabric.trace_hash()
        });
    }
}

fn assert_is_found(sabotage: Sabotage, services: &[Service]) {
    for &service in services {
        assert_fault_is_found(|seed| World::new(seed, service, Some(sabotage)).run());
    }
}

#[test]
fn a_change_without_a_key_is_found() {
    assert_is_found(Sabotage::Change, &Service::ALL);
}

#[test]
fn a_former_key_that_still_grants_is_found() {
    assert_is_found(Sabotage::StaleGrants, &Service::ALL);
    assert_is_found(Sabotage::SameKey, &Service::ALL);
}

#[test]
fn a_key_that_grants_nothing_is_found() {
    assert_is_found(Sabotage::CurrentRefused, &Service::ALL);
}

#[test]
fn a_window_for_the_wrong_peer_is_found() {
    assert_is_found(Sabotage::PeerUnbinds, &[Service::Rc, Service::Xrc]);
    assert_is_found(Sabotage::ForeignGrants, &[Service::Xrc]);
}
