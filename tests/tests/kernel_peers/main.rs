//! Pairs with real kernels: Debian's 6.1 and 6.12 in QEMU, both booted once for all tests.
//!
//! ```sh
//! tests/kernel/setup.sh # installs packages and kernels, once
//! sudo -E cargo test -p urxe-tests --features kernel-peers --test kernel_peers # runs all tests
//! … --test kernel_peers -- pingpong --list # lists tests
//! ```
//!
//! A failed test keeps its packets in `urxe-kernel-<test>.pcap` (in `$URXE_KERNEL_CAPTURES` or the
//! temporary folder).

mod case;
mod clean;
mod congestion;
mod connections;
mod deaths;
mod ends;
mod kernels;
mod krping;
mod multicast;
mod nodes;
mod nvme_initiator;
mod nvmet;
mod ports;
mod programs;
mod rcopy;
mod refused;
mod service_type;
mod sharing;
mod speed;
mod urxe;

use std::{path::Path, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Trial};
use urxe_tests::kernel::{Error, Series, Testbed};
use urxe_tests::process::build;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The guests share the machine's processors, so parallel tests would delay each other.
    arguments.test_threads.get_or_insert(1);
    let run = |both, testbed: Option<Arc<Testbed>>| {
        libtest_mimic::run(&arguments, trials(both, testbed.as_ref())).exit_code()
    };
    let ran = Series::chosen().and_then(|both| {
        let testbed = if arguments.list { None } else { Some(Arc::new(open(both)?)) };
        Ok(run(both, testbed))
    });
    ran.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

/// Opens the testbed, and installs the programs under test.
fn open(both: [Series; 2]) -> Result<Testbed, Error> {
    // This precedes the testbed, because nothing can be downloaded in its namespace.
    let built = build(["urxe", "liburxe.so"])
        .map_err(|source| Error::Io { action: "build urxe and liburxe.so".to_owned(), source })?;
    let testbed = Testbed::open(&both)?;
    for file in built {
        testbed.install(&file)?;
    }
    // Built together with this test.
    testbed.install(Path::new(env!("CARGO_BIN_EXE_urxe-peer")))?;
    testbed.install(Path::new(env!("CARGO_BIN_EXE_urxe-group")))?;
    testbed.install(Path::new(env!("CARGO_BIN_EXE_urxe-stream")))?;
    Ok(testbed)
}

/// Returns all tests. Without a testbed, they can only be listed.
fn trials(both: [Series; 2], testbed: Option<&Arc<Testbed>>) -> Vec<Trial> {
    let cases = [
        kernels::cases(both),
        urxe::cases(both),
        sharing::cases(both),
        multicast::cases(both),
        programs::cases(both),
        congestion::cases(both),
        ports::cases(both),
        connections::cases(both),
        ends::cases(both),
        deaths::cases(both),
        service_type::cases(),
        nvme_initiator::cases(both),
        nvmet::cases(both),
        rcopy::cases(both),
        refused::cases(),
        krping::cases(both),
        speed::cases(both),
    ];
    cases.into_iter().flatten().map(|case| case.trial(testbed.cloned())).collect()
}
