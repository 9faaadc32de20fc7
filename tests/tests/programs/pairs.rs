//! The ping-pongs of `ibverbs-utils` and the programs of `perftest` in pairs
//! (`urxe_tests::programs`).
//!
//! Each failed pair is reported with its number. `URXE_PAIRS=351-548` runs those pairs only,
//! `URXE_PAIRS=351` starts there.

use std::ops::RangeInclusive;
use std::time::Instant;

use urxe_tests::programs::{Pair, lists, perftest, pingpong, selected_pairs};

use crate::pair::{ONE, TWO, run_pair};

/// Runs all pairs, and reports each that fails.
fn run_all(pairs: &[Pair], addresses: [&str; 2]) {
    run_some(pairs, 1..=pairs.len(), addresses);
}

/// Runs the pairs with these numbers, of which the first is 1.
fn run_some(pairs: &[Pair], numbers: RangeInclusive<usize>, addresses: [&str; 2]) {
    let (start, mut failed) = (Instant::now(), 0);
    for nr in numbers.clone() {
        if let Err(error) = run_pair(&pairs[nr - 1], addresses) {
            println!("pair {nr} of {}: {error}", pairs.len());
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "of pairs {numbers:?}");
    println!("pairs {numbers:?} of {} played in {} s", pairs.len(), start.elapsed().as_secs());
}

#[test]
fn one_of_each_kind_on_the_default_device() {
    run_all(&lists::on_one_address(), ONE);
}

#[test]
fn some_on_two_addresses() {
    run_all(&lists::on_two_addresses(), TWO);
}

#[test]
#[ignore = "minutes: cargo xtask programs all"]
fn every_ping_pong_with_every_option() {
    let pairs = pingpong::all();
    run_some(&pairs, selected_pairs(pairs.len()), ONE);
}

#[test]
#[ignore = "minutes: cargo xtask programs all"]
fn every_perftest_with_every_option() {
    let pairs = perftest::all();
    run_some(&pairs, selected_pairs(pairs.len()), ONE);
}
