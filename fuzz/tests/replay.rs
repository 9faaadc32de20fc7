//! Runs every kept input once, without a fuzzer. An empty corpus is an error, because it proves
//! nothing.

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
    {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        // The output appears if the test fails; the last name is that of the failing input.
        println!("{}", path.display());
        run(&bytes);
        count += 1;
    }
    assert!(count >= 10, "{count} inputs in {}", folder.display());
}

#[test]
fn packet_parse() {
    replay("packet_parse", urxe_fuzz::parse::run);
}

#[test]
fn packet_round_trip() {
    replay("packet_round_trip", urxe_fuzz::round_trip::run);
}

#[test]
fn device() {
    replay("device", urxe_fuzz::device::run);
}

#[test]
fn mad() {
    replay("mad", urxe_fuzz::mad::run);
}

#[test]
fn cm() {
    replay("cm", urxe_fuzz::cm::run);
}

#[test]
fn forward() {
    replay("forward", urxe_fuzz::forward::run);
}

#[test]
fn listing() {
    replay("listing", urxe_fuzz::listing::run);
}

#[test]
fn rsocket() {
    replay("rsocket", urxe_fuzz::rsocket::run);
}

#[test]
fn capture() {
    replay("capture", urxe_fuzz::capture::run);
}

#[test]
fn keys() {
    replay("keys", urxe_fuzz::keys::run);
}

#[test]
fn rendezvous() {
    replay("rendezvous", urxe_fuzz::rendezvous::run);
}
