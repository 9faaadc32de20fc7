//! The ping-pongs of `ibverbs-utils` and the programs of `perftest` in pairs (`urxe_tests::programs`).

use urxe_tests::programs::{Pair, lists, perftest, pingpong};

use crate::pair::{ONE, TWO, play};

/// Plays all, telling of each that fails.
fn play_all(pairs: &[Pair], addresses: [&str; 2]) {
    let mut failed = 0;
    for (nr, pair) in pairs.iter().enumerate() {
        if let Err(error) = play(pair, addresses) {
            println!("pair {} of {}: {error}", nr + 1, pairs.len());
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "of {} pairs", pairs.len());
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
