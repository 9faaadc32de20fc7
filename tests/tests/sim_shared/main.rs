//! Many connections on shared receive queues, some of them of an XRC domain, over a bad network.
//! Every byte must be right, every receive accounted for, and every change of a cell made once,
//! also when single connections fail.
//!
//! | module | subject |
//! |---|---|
//! | `scenario` | the devices, posted receives, and a run from start to end |
//! | `send` | the sends of a connection: messages, cell operations, flushed records, ends of keys |
//! | `checker` | completions, cells and memory, compared with the posted requests |
//! | `lent_part` | keys that a SEND with invalidate ends |
//! | `ending` | premature ends of connections |
//!
//! A receive has no place in the plan, because any message may take it. The checker identifies
//! receives by `wr_id`, and messages by queue pair and order. `URXE_SEED` runs a single seed,
//! `URXE_SIM_SEEDS` sets the number of seeds.

mod checker;
mod ending;
mod lent_part;
mod scenario;
mod send;

use urxe_test_support::simulation::{Seeds, assert_bug_is_found, assert_runs_follow_seeds};

use self::scenario::{SharedQueues, Tally};

const SEEDS: u64 = 40;

/// A bug that is injected to test the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// A received message has another byte.
    Byte,
    /// An atomic operation is executed twice.
    Twice,
    /// An ATOMIC WRITE stores another value.
    Word,
    /// A FLUSH completes before its record is complete.
    Unflushed,
    /// The mark behind a FLUSH is visible before its record.
    Overtaken,
    /// Two sends complete in the wrong order.
    Order,
    /// A key stays valid that should be invalidated.
    KeyStays,
    /// An invalidated key still grants access.
    StaleKey,
    /// A region without that right is flushed for persistence.
    WeakFlush,
}

#[test]
fn every_seed_comes_out_right() {
    let seeds = Seeds::chosen(SEEDS);
    let all = seeds.run::<SharedQueues>(());
    println!("{all:?}");
    if seeds.are_all() {
        let Tally { received, flushed, limit_events, in_files, srq_empty, again, by_service } = all;
        assert!(
            received > 5000 && flushed > 0 && srq_empty > 100 && limit_events > 20 && again > 1000,
            "the seeds do not cover every case"
        );
        let [rc, xrc] = by_service;
        assert!(in_files == 0 || rc.lasting + xrc.lasting > 0, "nothing was flushed to a disk");
        for done in [rc, xrc] {
            assert!(
                done.atomics > 1000
                    && done.swapped > 300
                    && done.words > 500
                    && done.flushes > 200
                    && done.invalidated > 100
                    && done.refused > 5,
                "the seeds do not cover every case: {done:?}"
            );
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_runs_follow_seeds::<SharedQueues>(());
}

fn assert_is_found(bug: InjectedBug) {
    assert_bug_is_found::<SharedQueues>((), bug);
}

#[test]
fn a_wrong_byte_is_found() {
    assert_is_found(InjectedBug::Byte);
}

#[test]
fn an_atomic_operation_carried_out_twice_is_found() {
    assert_is_found(InjectedBug::Twice);
}

#[test]
fn a_wrong_word_is_found() {
    assert_is_found(InjectedBug::Word);
}

#[test]
fn a_flush_that_comes_too_early_is_found() {
    assert_is_found(InjectedBug::Unflushed);
    assert_is_found(InjectedBug::Overtaken);
}

#[test]
fn completions_out_of_order_are_found() {
    assert_is_found(InjectedBug::Order);
}

#[test]
fn a_key_that_outlives_its_invalidation_is_found() {
    assert_is_found(InjectedBug::KeyStays);
    assert_is_found(InjectedBug::StaleKey);
}

#[test]
fn a_flush_to_a_region_without_the_right_is_found() {
    assert_is_found(InjectedBug::WeakFlush);
}
