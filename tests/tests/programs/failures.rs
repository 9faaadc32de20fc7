//! A system in which one system call or one large allocation fails. `failures.c` opens a device,
//! connects, sends and closes, once for each case. A case is a kind of call, its number among the
//! calls of that kind, and an error.
//!
//! The test runs an even selection of the cases. `URXE_FAILURES_FIRST=0` runs all of them, and a
//! higher number begins with that case.

use crate::install::{EXPECTED, compile_as, install, text_of};

const ADDRESS: &str = "127.79.0.43";
/// The number of cases to run. Each takes 0.1 s, and a few take 5 s, because a packet is lost.
const CASES: usize = 300;

#[test]
fn every_system_call_and_allocation_may_fail() {
    // The program's allocation functions replace those of the C library for all libraries.
    let options = ["-rdynamic", "-Wl,--as-needed", "-libverbs", "-lrdmacm", "-lpthread"];
    let program = compile_as("failures", "bin/failures", &options);
    let words = format!("--link rxe0={ADDRESS} -- {} {ADDRESS} {CASES}", program.display());
    let mut command = install().run(&words);
    // Messages name the call that failed. Packets go through sockets.
    command.env("URXE_LOG", "info").env("URXE_DIRECT", "off");
    let output = command.output().unwrap();
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text_of(&output).contains(EXPECTED), "{}", text_of(&output));
}
