//! The ping-pongs of `ibverbs-utils` and the programs of `perftest` in pairs (`urxe_tests::programs`).

use urxe_tests::programs::{Pair, lists, perftest, pingpong};

use crate::pair::{ONE, TWO, play};

/// Plays all, and then tells of each that failed.
fn play_all(pairs: &[Pair], addresses: [&str; 2]) {
    let failed: Vec<String> = pairs.iter().filter_map(|pair| play(pair, addresses).err()).collect();
    assert!(failed.is_empty(), "{} of {} pairs failed:\n{}", failed.len(), pairs.len(), failed.join("\n"));
    println!("{} pairs played", pairs.len());
}

#[test]
fn one_of_each_kind_on_the_default_device() {
    play_all(&lists::on_one_address(), ONE);
}

#[test]
fn some_on_two_addresses() {
    play_all(&lists::on_two_addresses(), TWO);
}

#[test]
#[ignore = "minutes: cargo xtask programs all"]
fn every_ping_pong_with_every_option() {
    play_all(&pingpong::all(), ONE);
}

#[test]
#[ignore = "minutes: cargo xtask programs all"]
fn every_perftest_with_every_option() {
    play_all(&perftest::all(), ONE);
}
