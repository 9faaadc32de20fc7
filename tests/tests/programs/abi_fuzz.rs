//! Random sequences of calls with hostile arguments, and threads that destroy objects while others
//! use the device: `tests/programs/abi_fuzz.c`. Its findings: `tests/programs/abi_findings.c`.
//!
//! `URXE_ABI_STEPS` is the number of random calls (default: 20,000), and `URXE_SEED` the first
//! seed. `cargo xtask abi-fuzz` runs the same program over a library with AddressSanitizer.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::install::{EXPECTED, compile, compile_as, install, ok, text_of};
use crate::pair::exclusive;

/// The random calls of a test, unless `URXE_ABI_STEPS` gives another number.
const STEPS: u64 = 20_000;
/// The steps of a seed, at most.
const STEPS_OF_A_SEED: u64 = 10_000;
/// A step of the threaded mode is a round, which takes as long as this many calls.
const STEPS_OF_A_ROUND: u64 = 10_000;

fn compiled() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let options = ["-Wl,--as-needed", "-libverbs", "-lrdmacm", "-pthread"];
    PROGRAM.get_or_init(|| compile_as("abi_fuzz", "bin/abi_fuzz", &options))
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

#[track_caller]
fn fuzz(address: &str, seed: u64, amount: u64, mode: &str) {
    let _exclusive = exclusive();
    let program = compiled().display();
    let words = format!("--link rxe0={address} -- timeout 600 {program} {seed} {amount} {mode}");
    let output = install().run(&words).output().unwrap();
    let text = text_of(&output);
    assert!(output.status.success() && text.contains(EXPECTED), "{words}\n{text}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn random_verbs_have_documented_answers_and_leave_a_working_device() {
    let (first, mut left) = (number("URXE_SEED", 1), number("URXE_ABI_STEPS", STEPS));
    for seed in first.. {
        fuzz("127.79.0.51", seed, left.min(STEPS_OF_A_SEED), "");
        left = left.saturating_sub(STEPS_OF_A_SEED);
        if left == 0 {
            break;
        }
    }
}

/// Runs rounds of a mode, at least two: the first have one thread, the second several.
#[track_caller]
fn fuzz_rounds(address: &str, mode: &str) {
    let rounds = number("URXE_ABI_STEPS", STEPS).div_ceil(STEPS_OF_A_ROUND).max(2);
    fuzz(address, number("URXE_SEED", 1), rounds, mode);
}

#[test]
fn threads_destroy_objects_while_others_post_and_sleep() {
    fuzz_rounds("127.79.0.52", "threads");
}

#[test]
fn random_calls_of_librdmacm_have_documented_answers_and_new_identifiers_connect() {
    fuzz_rounds("127.79.0.61", "cm");
}

#[test]
fn random_calls_of_rsockets_have_documented_answers_and_new_sockets_carry_every_byte() {
    fuzz_rounds("127.79.0.62", "sockets");
}

/// valgrind finds accesses to freed memory that go unnoticed otherwise.
#[test]
fn what_the_fuzzer_found_stays_right() {
    let _exclusive = exclusive();
    let (program, address) = (compile("abi_findings"), "127.79.0.63");
    for before in ["", "valgrind -q --error-exitcode=9"] {
        let program = program.display();
        let words = format!("--link rxe0={address} -- timeout 120 {before} {program} {address}");
        assert_eq!(ok(&mut install().run(&words)), EXPECTED, "{before}");
    }
}
