//! Keys that are revoked while a peer uses them, over a bad network. A window or a
//! fast-registration region grants access as long as its key is valid, and to no later packet.
//!
//! A round has these steps:
//!
//! 1. The owner binds a window or registers a region, and passes the key to the peer.
//! 2. The peer posts WRITEs and READs with the key.
//! 3. At any time, or after these requests, the key is revoked: by LOCAL_INV of the owner, by a
//!    SEND with invalidate of the peer, or, for type 1, by another bind. The next round uses the
//!    key of that bind. A bind of no bytes has no key.
//! 4. From then on, no byte changes. Later requests with the old key fail with "remote access
//!    error".
//!
//! A request that succeeded at the peer was executed completely. A failed request may have been
//! executed in part. Bytes outside the bound part never change.
//!
//! Keys and results depend on the service:
//!
//! - RC: Windows of both types, and fast-registration regions. The peer gets the results.
//! - XRC: As RC, but type 1 windows only. A type 2 window belongs to the queue pair that bound it,
//!   and a target cannot bind.
//! - UC: As RC, but only WRITEs, and only the owner revokes keys. The peer gets no results. On a
//!   network without faults, all requests are executed.
//!
//! `URXE_SEED` runs a single seed, `URXE_SIM_SEEDS` sets the number of seeds.

mod checker;
mod keys;
mod scenario;

use urxe_test_support::simulation::{Seeds, assert_bug_is_found, assert_runs_follow_seeds};

use self::scenario::{Service, Tally, Windows};

/// A bug that is injected to test the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// Memory changes after the revocation of a key.
    Change,
    /// A type 1 window also grants access by its former key.
    StaleGrants,
    /// A valid key grants nothing.
    CurrentRefused,
    /// A type 1 window that is bound again keeps its key.
    SameKey,
    /// A peer invalidates the key of a type 1 window.
    PeerUnbinds,
    /// A type 2 window serves another queue pair's peer.
    ForeignGrants,
}

/// Runs all seeds over a service, and checks the tallies if there are many seeds.
fn all_seeds(service: Service, usual: u64) -> Option<Tally> {
    let seeds = Seeds::chosen(usual);
    let all = seeds.run::<Windows>(service);
    println!("{service:?}: {all:?}");
    seeds.are_many().then_some(all)
}

#[test]
fn a_key_grants_nothing_once_it_is_gone() {
    if let Some(all) = all_seeds(Service::Rc, 60) {
        assert!(all.done > 300 && all.cut_off > 100 && all.refused > 60 && all.stale > 100);
        assert!(all.by_peer > 40 && all.by_owner > 40 && all.rebound > 40 && all.unbound > 20);
        assert!(all.peer_refused > 10);
    }
}

#[test]
fn a_key_of_a_shared_receive_queues_domain_grants_nothing_once_it_is_gone() {
    if let Some(all) = all_seeds(Service::Xrc, 30) {
        assert!(all.done > 100 && all.cut_off > 20 && all.refused > 40 && all.stale > 40);
        assert!(all.by_peer > 10 && all.by_owner > 10 && all.rebound > 20 && all.unbound > 10);
        assert!(all.peer_refused > 5 && all.other_qp_refused > 5);
    }
}

#[test]
fn a_key_for_unreliable_writes_grants_nothing_once_it_is_gone() {
    if let Some(all) = all_seeds(Service::Uc, 30) {
        assert!(all.done > 300 && all.refused > 50 && all.stale > 50);
        assert!(all.by_owner > 50 && all.rebound > 20 && all.unbound > 15 && all.lossless > 30);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    Service::ALL.into_iter().for_each(assert_runs_follow_seeds::<Windows>);
}

fn assert_is_found(bug: InjectedBug, services: &[Service]) {
    services.iter().for_each(|service| assert_bug_is_found::<Windows>(*service, bug));
}

#[test]
fn a_change_without_a_key_is_found() {
    assert_is_found(InjectedBug::Change, &Service::ALL);
}

#[test]
fn a_former_key_that_still_grants_is_found() {
    assert_is_found(InjectedBug::StaleGrants, &Service::ALL);
    assert_is_found(InjectedBug::SameKey, &Service::ALL);
}

#[test]
fn a_key_that_grants_nothing_is_found() {
    assert_is_found(InjectedBug::CurrentRefused, &Service::ALL);
}

#[test]
fn a_window_for_the_wrong_peer_is_found() {
    assert_is_found(InjectedBug::PeerUnbinds, &[Service::Rc, Service::Xrc]);
    assert_is_found(InjectedBug::ForeignGrants, &[Service::Xrc]);
}
