//! C programs compiled on the spot against Debian's headers and linked with `-libverbs`.

use std::path::PathBuf;
use std::sync::OnceLock;

use urxe_tests::programs::lists;

use crate::install::{compile, install, ok};
use crate::pair::{ONE, TWO, play, turn};

fn compiled() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("verbs"))
}

#[test]
fn two_ends_of_a_first_program_send_read_and_write() {
    compile("exchange");
    for pair in lists::exchanges() {
        play(&pair, ONE).unwrap();
        play(&pair, TWO).unwrap();
    }
}

#[test]
fn errors_events_and_work_requests_are_as_a_c_program_expects() {
    let _turn = turn();
    let words = format!("--link rxe0=127.79.0.2 -- timeout 60 {}", compiled().display());
    assert_eq!(ok(&mut install().run(&words)), "all as expected\n");
}

#[test]
fn children_leave_what_they_inherit_alone_and_open_the_device_for_themselves() {
    let _turn = turn();
    let words = format!("--link rxe0=127.79.0.6 -- timeout 60 {} fork", compiled().display());
    assert_eq!(ok(&mut install().run(&words)), "all as expected\n");
}

#[test]
fn texts_and_rates_are_the_originals() {
    let ours = ok(&mut install().run(&format!("-- {} texts", compiled().display())));
    let theirs = ok(install().user(compiled()).arg("texts"));
    assert_eq!(ours, theirs);
}
