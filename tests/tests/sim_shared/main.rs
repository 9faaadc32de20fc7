//! Many connections on shared receive queues, some of them of an XRC domain, over a bad network:
//! every byte right, every receive accounted for, every change of a cell made once, whatever
//! becomes of single connections.
//!
//! | module | subject |
//! |---|---|
//! | `scenario` | the devices, what is posted to the queues, a run from its begin to its end |
//! | `send` | what a connection sends: messages, chains of operations on a cell, records that are flushed, the end of a lent |
//! | `checker` | completions, cells and memory, compared with what was sent |
//! | `lent_part` | keys that a SEND with invalidate takes away |
//! | `ending` | how connections end before their time |
//!
//! A receive has no place in the plan, since nobody can say which message takes it: the judge knows
//! each by its `wr_id`, and each message by its queue pair and its place there. `URXE_SEED` runs
//! one seed alone, `URXE_SIM_SEEDS` sets how many there are.

mod checker;
mod ending;
mod lent_part;
mod scenario;
mod send;

use urxe_test_support::simulation::{Seeds, assert_bug_is_found, assert_runs_follow_seeds};

use self::scenario::{SharedQueues, Tally};

const SEEDS: u64 = 40;

/// A fault made on purpose, to see that the judge finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// A received message has another byte.
    Byte,
    /// An atomic operation is carried out once more.
    Twice,
    /// An ATOMIC WRITE brings another value.
    Word,
    /// A FLUSH completes, and its record is not all in place.
    Unflushed,
    /// The mark behind a FLUSH is there, and its record is not.
    Overtaken,
    /// Two sends complete in the other order.
    Order,
    /// A key that was to be taken away stays.
    KeyStays,
    /// A key that was taken away still grants access.
    StaleKey,
    /// A region is flushed to the disk that has not promised it.
    EmptyPromise,
}

#[test]
fn every_seed_comes_out_right() {
    let seeds = Seeds::chosen(SEEDS);
    let all = seeds.run::<SharedQueues>(());
    println!("{all:?}");
    if seeds.are_all() {
        let Tally { received, flushed, limits_told, in_files, dry, again, by_service } = all;
        assert!(
            received > 5000 && flushed > 0 && dry > 100 && limits_told > 20 && again > 1000,
            "the seeds do not show what they should"
        );
        let [rc, xrc] = by_service;
        assert!(in_files == 0 || rc.lasting + xrc.lasting > 0, "nothing was flushed to a disk");
        for done in [rc, xrc] {
            assert!(
                done.atomics > 1000
                    && done.swapped > 300
                    && done.words > 500
                    && done.flushes > 200
                    && done.taken_away > 100
                    && done.refused > 5,
                "the seeds do not show what they should: {done:?}"
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
    assert_is_found(InjectedBug::EmptyPromise);
}
