//! The soak campaign: two processes exchange verified messages over every service for hours, while
//! other processes, addresses, clocks and disks fail beside them.
//!
//! ```text
//!  a, on `here` 10.99.1.1                    b, on `there` 10.99.2.1
//!     │  lasting lanes: RC, UC, UD, XRC          │
//!     ├──────────────────────────────────────────┤
//!     └───────────┐                  ┌───────────┘
//!            short processes, on the address of a or of b
//! ```
//!
//! | each minute | demand |
//! |---|---|
//! | a process with lanes to both is killed in mid-transfer | the lanes of the others continue |
//! | another one is stopped for seconds | its reliable lanes continue afterwards |
//! | a or b is stopped for seconds | all lasting lanes continue afterwards |
//! | an address is added and removed | the same |
//! | every third minute: the address of a or of b is removed for a second | the same |
//! | a process writes a capture to a disk that becomes full | its lanes continue |
//! | connections by `rdma_cm`, and a second device that is closed again | each succeeds |
//! | the wall clock of all processes jumps by up to an hour, every seven seconds | no effect |
//!
//! The wall clock is that of a preloaded library (`tests/programs/clock_jumps.c`). After the
//! warm-up, a and b must not have more descriptors or threads, and their resident memory must not
//! grow ([`trend`]). The campaign ends at the first fault.
//!
//! `URXE_SOAK_MINUTES` is the duration. By default, the campaign takes some seconds, with shorter
//! minutes. `URXE_SEED` repeats the choices of a run, but not its timing. The test needs root and a
//! network namespace of its own: `cargo xtask soak [MINUTES]`, `cargo xtask namespace`.

mod campaign;
mod faults;
mod soaker;
mod trend;

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use urxe_test_support::namespace::{ip, own_namespace};

use campaign::Campaign;
use soaker::{Files, Result, Soaker};

/// The minutes of a run, unless the environment sets others: nine seconds.
const MINUTES: f64 = 0.15;
/// The interfaces of a and b, with their addresses.
pub const INTERFACES: [(&str, &str); 2] = [("here", "10.99.1.1"), ("there", "10.99.2.1")];

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Two interfaces with a carrier, each with an address. Dropping the value deletes them.
struct Interfaces;

impl Interfaces {
    fn new() -> Self {
        let interfaces = Self;
        ip("link set lo up");
        for (name, address) in INTERFACES {
            ip(&format!("link add {name} mtu 9000 type veth peer name {name}-end mtu 9000"));
            // A link-local address would appear seconds later.
            ip(&format!("link set {name} addrgenmode none"));
            ip(&format!("address add {address}/32 dev {name}"));
            ip(&format!("link set {name}-end up"));
            ip(&format!("link set {name} up"));
        }
        interfaces
    }
}

impl Drop for Interfaces {
    fn drop(&mut self) {
        for (name, _) in INTERFACES {
            // The test may be failing already.
            let _ = Command::new("ip").args(["link", "del", name]).status();
        }
    }
}

#[test]
#[ignore = "needs root and a network namespace: cargo xtask soak [MINUTES]"]
fn processes_beside_deaths_pauses_and_changes_lose_nothing_and_do_not_grow() {
    let _alone = own_namespace();
    let minutes = number("URXE_SOAK_MINUTES").unwrap_or(MINUTES);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    let seed = number("URXE_SEED").unwrap_or(now.as_secs());
    println!("URXE_SEED={seed} URXE_SOAK_MINUTES={minutes}");
    let folder = tempfile::tempdir().expect("a folder");
    let _interfaces = Interfaces::new();
    let run = Duration::from_secs_f64(minutes * 60.0);
    let campaign = Files::new(folder.path()).and_then(|files| Campaign::new(seed, files, run));
    let result = campaign.and_then(|mut campaign| campaign.run());
    if let Err(fault) = result {
        panic!("URXE_SEED={seed}: {fault}");
    }
}

/// The comparison of messages finds a wrong byte.
#[test]
#[ignore = "needs root and a network namespace: cargo xtask soak [MINUTES]"]
fn a_wrong_byte_is_found() {
    let _alone = own_namespace();
    let folder = tempfile::tempdir().expect("a folder");
    let _interfaces = Interfaces::new();
    let files = Files::new(folder.path()).expect("files");
    for service in ["rc", "uc", "ud", "xrc"] {
        let fault = spoil(service, &files).expect_err("a wrong byte");
        assert!(fault.contains("wrong: lane 1"), "{fault}");
    }
}

/// Runs a lane whose messages get one wrong byte, until a process reports it.
fn spoil(service: &str, files: &Files) -> Result<()> {
    let start = |(interface, _)| Soaker::start("an end", files, interface, 500, false);
    let [mut a, mut b] = [start(INTERFACES[0])?, start(INTERFACES[1])?];
    campaign::connect(1, &mut a, &mut b, service, campaign::PATIENT)?;
    a.request("spoil", "ok")?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        b.figures()?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
